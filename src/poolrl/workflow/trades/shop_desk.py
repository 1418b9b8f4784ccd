"""The desks of shops: order-up-to levels of a policy, or orders of a plan.

Levels are rounded to whole units or packs. New shops get what the population should order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from poolrl.checks import BoolArray, FloatArray
from poolrl.learning.policy import Levels, Policy
from poolrl.workflow.desk import Answers, Desk, Questions, RowRefusedError, act, refuse_infinite

if TYPE_CHECKING:
    from poolrl.plans.saved import SavedPlan

# Whose levels decide: a shop's own, or those of the population where a label value was not declared.
BASIS = ("own", "population")
# A rounding error must not cost a pack.
PART_OF_A_PACK = 1e-9
TOGETHER = "decides on all products together: ask it with --step, and give the stock of each"


class ShopDesk(Desk):
    """A policy of shops: a question says the stock of each product, or of one; an answer the level and the order.

    Shops with a label value that was not declared get the population's levels.
    """

    takes, refusal = ("packs", "whole"), "goes with a plan for a lead time, by 'poolrl replan'"

    def __init__(self, policy: Policy) -> None:
        labels = policy.problem.labels
        answered = ["order_up_to", "order", *(["basis"] if labels else [])]
        super().__init__(policy.names, labels, answered, scaled=policy.guarantee.scaled)
        self._policies: dict[tuple[str, ...], Policy] = {(): policy}
        if not isinstance(policy.rule, Levels) and policy.problem.state_dim > 1:
            self.together = f"this policy {TOGETHER}"

    def answer(self, asked: Questions, *, whole: bool = False) -> Answers:
        """What `Policy.act` answers to every row, rounded to whole units or packs if asked."""
        self._refuse_low(asked)
        unknown = asked.places == np.array(self.labels.shape, dtype=np.int64)  # (m, labels)
        level, bound = np.empty_like(asked.state), np.empty_like(asked.state)
        with np.errstate(over="ignore", invalid="ignore"):
            pattern = unknown @ (1 << np.arange(unknown.shape[1]))
            for number in np.unique(pattern):
                rows = np.flatnonzero(pattern == number)
                policy, group = self._policy_without(unknown[rows[0]]), asked.only(rows)
                group = replace(group, places=group.places[:, ~unknown[rows[0]]])
                level[rows], bound[rows] = act(policy, group), _bounds(policy.problem, group)
            bound = np.maximum(bound if asked.scale is None else bound * asked.scale, level)
        refuse_infinite(level + bound)
        up_to = whole_levels(level, asked.state) if whole else level
        order = up_to - asked.state
        if asked.pack is not None:
            packed = ~np.isnan(asked.pack)
            in_packs = orders_in_packs(level, asked.state, np.where(packed, asked.pack, 1.0), bound)
            order = np.where(packed, in_packs, order)
            up_to = np.where(packed, asked.state + order, up_to)
            refuse_infinite(up_to)
        basis = [BASIS[number] for number in unknown.any(axis=1).astype(int).tolist()]
        return {"order_up_to": up_to, "order": order, **({"basis": basis} if self.labels else {})}

    def _refuse_low(self, asked: Questions) -> None:
        low = self._policies[()].problem.state_low
        least = low if asked.product is None else low[asked.product, None]
        with np.errstate(over="ignore"):
            below = asked.state / (1.0 if asked.scale is None else asked.scale) < least
        if below.any():
            row, i = (int(place) for place in np.argwhere(below)[0])
            product = i if asked.product is None else int(asked.product[row])
            rule = "must not be negative" if low[product] == 0 else "lies below what can wait"
            raise RowRefusedError(row, f"the stock of {self.names.products[product]} {rule}")

    def _policy_without(self, unknown: BoolArray) -> Policy:
        """The policy for rows of which some labels have unknown values. It is planned when it is first asked for."""
        names = tuple(name for name, new in zip(self.labels.names, unknown, strict=True) if new)
        if names not in self._policies:
            from poolrl.learning.model import population_policy

            self._policies[names] = population_policy(self._policies[()], names)
        return self._policies[names]


class PlanDesk(Desk):
    """A plan of `poolrl replan`: a question says stocks and what is coming, an answer what to order."""

    takes, refusal = ("coming",), "is not for a plan, whose orders are what the shop can place"

    def __init__(self, plan: SavedPlan) -> None:
        super().__init__(plan.names, plan.labels, ["order"])
        self.plan, self.coming = plan, max(plan.lead_time - 1, 0)
        self.meanings = {name: words for name, words in self.meanings.items() if name != "pack"}
        if self.coming:
            self.together = "this plan asks what is coming: ask it with --step and --coming"
        elif isinstance(plan.rule, list) and not plan.lead_time:
            self.together = f"this plan {TOGETHER}"

    def answer(self, asked: Questions, *, whole: bool = False) -> Answers:
        """What to order, row by row."""
        self.refuse_undeclared(asked)
        shape = (len(asked.step), 0, len(self.names.products))
        later = np.zeros(shape) if asked.coming is None else asked.coming
        if later.shape[1] != self.coming:
            raise ValueError(
                f"an order of this plan arrives {self.plan.lead_time} steps later, so {self.coming} more may be on "
                "their way: give --coming once for each, the next to arrive first, and zeros where nothing is"
                if self.coming
                else "nothing is on its way before an order of this plan: leave out --coming"
            )
        if (later < 0).any():
            raise ValueError("coming amounts must not be negative")
        states = asked.whole_states(len(self.names.products))
        orders = np.empty_like(states)
        for row, (step, stock) in enumerate(zip(asked.step, states, strict=True)):
            cell = int(np.ravel_multi_index(asked.places[row], self.labels.shape)) if self.labels else 0
            try:
                orders[row] = self.plan.order(int(step), stock, cell=cell, on_the_way=later[row])
            except ValueError as error:
                raise RowRefusedError(row, str(error)) from None
        return {"order": asked.asked_of(orders)}


def _bounds(problem: Any, asked: Questions) -> FloatArray:
    """The public bound of each row's level, in multiples of its scale."""
    empty = np.zeros((1, problem.state_dim))
    bounds = np.concatenate([problem.allowed(step, empty)[1] for step in range(problem.horizon)])[asked.step]
    if problem.labels:
        bounds = bounds * problem.bound_share[tuple(asked.places.T)]
    return asked.asked_of(bounds)


def orders_in_packs(level: FloatArray, stock: FloatArray, pack: FloatArray, bound: FloatArray) -> FloatArray:
    """The order nearest to level − stock that is a multiple of the pack; half a pack counts as a whole one.

    Where the stock reaches the level nothing is ordered. The stock and the order stay within the public bound, except
    that one pack may break it: a pack that is larger than the bound could never be ordered otherwise.

    >>> level, stock = np.array([20.0, 20.0, 25.0, 20.0, 5.0]), np.array([3.0, 15.0, 25.0, 1.0, 0.0])
    >>> pack, bound = np.array([12.0, 12.0, 12.0, 12.0, 8.0]), np.array([40.0, 40.0, 40.0, 23.0, 5.0])
    >>> orders_in_packs(level, stock, pack, bound).tolist()
    [12.0, 0.0, 0.0, 12.0, 8.0]
    """
    wanted = np.floor((level - stock) / pack + 0.5)
    room = np.floor((bound - stock) / pack + PART_OF_A_PACK)
    return np.asarray(np.minimum(wanted, np.maximum(room, 1.0)) * pack)


def whole_levels(level: FloatArray, stock: FloatArray) -> FloatArray:
    """Levels rounded to whole units. Nothing is sent back, and nothing ordered where enough is there."""
    return np.where(level > stock, np.maximum(np.rint(level), stock), stock)
