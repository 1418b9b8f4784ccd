"""Desks: a policy or a plan that is asked in the user's words, whatever the trade.

Every answer of a policy is that of `Policy.act`, which is asked for all rows of a step at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray, nearest
from poolrl.learning.policy import Levels, Policy
from poolrl.learning.stored import Names
from poolrl.problems.labels import Labels, LabelValue
from poolrl.workflow.column_names import weekday_named
from poolrl.workflow.trades.trade import trade_of

if TYPE_CHECKING:
    from poolrl.plans.saved import SavedPlan

# Amounts by their names, each of the shape of the questions' states; and whose levels decided, where that may differ.
Answers = dict[str, Any]
# Whose levels decide: a shop's own, or those of the population where a label value was not declared.
BASIS = ("own", "population")
# A rounding error must not cost a pack.
PART_OF_A_PACK = 1e-9
TOGETHER = "decides on all products together: ask it with --step, and give the stock of each"


class RowRefusedError(ValueError):
    """A row that has no answer; its number counts from 0."""

    def __init__(self, row: int, words: str) -> None:
        super().__init__(words)
        self.row = row


@dataclass(frozen=True)
class Questions:
    """Questions in columns. A row asks about a whole state, or about one product of it."""

    step: IntArray  # (m,)
    places: IntArray  # (m, labels): the place of each label's value; a value that was not declared is behind the last
    state: FloatArray  # (m, w); (m, 1) where a row asks about one product
    scale: FloatArray | None = None  # of the same shape, or (m, 1)
    pack: FloatArray | None = None  # of the same shape; NaN where there are no packs
    product: IntArray | None = None  # (m,)
    coming: FloatArray | None = None  # (m, L - 1, w), where orders take L steps to arrive

    def only(self, rows: IntArray) -> Questions:
        """Some of the rows."""
        return replace(self, **{name: column[rows] for name, column in vars(self).items() if column is not None})

    def whole_states(self, width: int) -> FloatArray:
        """States (m, w). Where a row asks about one product, the others are zero, and do not matter."""
        if self.product is None:
            return self.state
        states = np.zeros((len(self.step), width))
        np.put_along_axis(states, self.product[:, None], self.state, axis=1)
        return states

    def asked_of(self, amounts: FloatArray) -> FloatArray:
        """Amounts (m, w), or of each row that of the product that it asks about, (m, 1)."""
        return amounts if self.product is None else np.take_along_axis(amounts, self.product[:, None], axis=1)


class Desk(ABC):
    """Answers questions, and reads names of steps, products, states and labels as people write them."""

    takes: tuple[str, ...] = ()  # flags of orders that it understands
    refusal: str  # what is said of the others
    together = ""  # why a row of a table cannot ask about one product, if it cannot
    by_product = True  # whether a row of a table asks about one product, by the columns product and stock
    decimals = 6  # of answers in files

    def __init__(self, names: Names, labels: Labels, answered: list[str], *, scaled: bool = False) -> None:
        self.names, self.labels, self.answered, self.scaled = names, labels, answered, scaled
        self.initial: FloatArray = np.zeros(len(names.products))
        # The columns that say the state.
        self.asked = ["product", "stock"]
        self._numbers = {name: number for number, name in enumerate(names.products)}
        self._places: dict[str, dict[LabelValue, int]] = {
            name: {_spelling(value, numbers=self.has_numbers(name)): place for place, value in enumerate(values)}
            for name, values in zip(labels.names, labels.values, strict=True)
        }

    @abstractmethod
    def answer(self, asked: Questions, *, whole: bool = False) -> Answers:
        """The answers; a row that has none is refused by `RowRefusedError`."""

    @property
    def needed(self) -> list[str]:
        """The columns that a table of questions must have."""
        steps = ["step"] if len(self.names.steps) > 1 else []
        return [*steps, *self.asked, *self.labels.names, *(["scale"] if self.scaled else [])]

    def question(
        self,
        step: str,
        *,
        stock: str | None = None,
        labels: str | None = None,
        scale: str | None = None,
        packs: str | None = None,
        coming: Sequence[str] = (),
    ) -> Questions:
        """One question about a whole state, by the texts of the command line."""
        values = pairs_from_text(labels, "labels")
        if other := [name for name in values if name not in self.labels.names]:
            raise ValueError(f"there is no label {other[0]!r}; known labels: {', '.join(self.labels.names) or 'none'}")
        if missing := [name for name in self.labels.names if name not in values]:
            raise ValueError(f"{missing[0]} is missing, which this was learned with: give --labels {missing[0]}=...")
        if self.scaled != (scale is not None):
            missing_one = "scale is missing, which this was learned with: give --scale"
            raise ValueError(missing_one if self.scaled else "this was learned without a scale: leave out --scale")
        later = [self.amounts("coming", text) for text in coming]
        return Questions(
            np.array([self.step(step)]),
            np.array([[self.place(name, values[name]) for name in self.labels.names]], dtype=np.int64),
            (self.initial if stock is None else self.amounts("stock", stock))[None],
            None if scale is None else self.amounts("scale", scale, positive=True)[None],
            None if packs is None else self.packs(packs)[None],
            coming=np.array([later]) if later else None,
        )

    def step(self, name: str) -> int:
        """A step by its name, by its number in the log, or by another name of a day of the week."""
        text, steps = name.strip(), self.names.steps
        numbers = [str(self.names.first_step + number) for number in range(len(steps))]
        for known, word in ((steps, text), (numbers, text), (steps, weekday_named(text))):
            if known.count(word or "") == 1:
                return known.index(word or "")
        raise ValueError(f"there is no step {text!r}; {nearest(text, [*steps, f'{numbers[0]} to {numbers[-1]}'])}")

    def product(self, name: str) -> int:
        """A product, or a coordinate of the state, by its name."""
        text, called = name.strip(), "product" if self.by_product else "state"
        if text in self._numbers:
            return self._numbers[text]
        raise ValueError(f"there is no {called} {text!r}; {nearest(text, self.names.products)}")

    def place(self, label: str, value: str) -> int:
        """The place of a value among the declared ones of a label. A value that was not declared comes after the last.

        Text may differ in case, as no two declared values do. A missing value is refused: it is not a new shop.
        """
        places = self._places[label]
        if not value.strip():
            raise ValueError(f"{label} is missing: answers differ by {label}")
        return places.get(_spelling(value, numbers=self.has_numbers(label)), len(places))

    def has_numbers(self, label: str) -> bool:
        """Whether the values of a label are declared as numbers."""
        return not isinstance(self.labels.values[self.labels.names.index(label)][0], str)

    def packs(self, text: str) -> FloatArray:
        """The size of each product's packs, (w,); NaN for products that come singly."""
        sizes = np.full(len(self.names.products), np.nan)
        for name, size in pairs_from_text(text, "packs").items():
            sizes[self.product(name)] = _amount(f"pack of {name}", size, positive=True)
        return sizes

    def amounts(self, what: str, text: str, *, positive: bool = False) -> FloatArray:
        """`10,20,5` or `bread=10,milk=20,salad=5`, (w,). One number may serve for all where it must be positive."""
        names, parts = self.names.products, _parts(text, what)
        if isinstance(parts, dict):
            by_number = {self.product(name): amount for name, amount in parts.items()}
            if missing := [name for i, name in enumerate(names) if i not in by_number]:
                raise ValueError(f"{what} lacks {', '.join(missing)}")
            parts = [by_number[i] for i in range(len(names))]
        if positive and len(parts) == 1:
            return np.full(len(names), _amount(what, parts[0], positive=True))
        if len(parts) != len(names):
            raise ValueError(f"{what} must give a number for each of {', '.join(names)}")
        pairs = zip(names, parts, strict=True)
        return np.array([_amount(f"{what} of {name}", part, positive=positive) for name, part in pairs])

    def refuse_undeclared(self, asked: Questions) -> None:
        """Refuse values of labels that were not declared, for which there is no answer."""
        for name, values, places in zip(self.labels.names, self.labels.values, asked.places.T, strict=True):
            known = ", ".join(map(str, values[:8])) + (", ..." if len(values) > 8 else "")
            refuse_rows(places == len(values), f"{name} must be one of those that were declared: {known}")


class ShopDesk(Desk):
    """A policy of shops: a question says the stock of each product, or of one; an answer the level and the order."""

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
                new, group = unknown[rows[0]], asked.only(rows)
                # A policy for rows of which these labels have unknown values is planned when it is first asked for.
                names = tuple(compress(self.labels.names, new))
                if names not in self._policies:
                    from poolrl.learning.model import population_policy

                    self._policies[names] = population_policy(self._policies[()], names)
                policy, group = self._policies[names], replace(group, places=group.places[:, ~new])
                level[rows] = act(policy, group)
                # The public bound of each row's level, in multiples of its scale.
                problem: Any = policy.problem
                empty = np.zeros((1, problem.state_dim))
                tops = np.concatenate([problem.allowed(step, empty)[1] for step in range(problem.horizon)])[group.step]
                shares = problem.bound_share[tuple(group.places.T)] if problem.labels else 1.0
                bound[rows] = group.asked_of(tops * shares)
            bound = np.maximum(bound if asked.scale is None else bound * asked.scale, level)
        refuse_infinite(level + bound)
        # Nothing is sent back, and nothing ordered where enough is there.
        rounded = np.where(level > asked.state, np.maximum(np.rint(level), asked.state), asked.state)
        up_to = rounded if whole else level
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


class PlanDesk(Desk):
    """A plan of `poolrl replan`: a question says stocks and what is coming, an answer what to order."""

    takes, refusal = ("coming",), "is not for a plan, whose orders are what the shop can place"

    def __init__(self, plan: SavedPlan) -> None:
        super().__init__(plan.names, plan.labels, ["order"])
        self.plan, self.coming = plan, max(plan.lead_time - 1, 0)
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


class StateDesk(Desk):
    """A policy of any problem: a question says every coordinate of the state, an answer the decision."""

    refusal = "is for orders of shops"
    by_product = False
    decimals = 12  # prices may be small

    def __init__(self, policy: Policy) -> None:
        problem, words = policy.problem, trade_of(policy.problem).words
        decision = words.decision
        decisions = [decision] if problem.action_dim == 1 else [f"{decision} {i}" for i in range(problem.action_dim)]
        super().__init__(policy.names, problem.labels, decisions, scaled=policy.guarantee.scaled)
        self.policy, self.initial = policy, problem.initial_state
        # Where only one state leaves something to decide, nobody has to say it.
        self.asked = [] if problem.ended(problem.state_high - 1.0) else self.names.products

    def answer(self, asked: Questions, *, whole: bool = False) -> Answers:
        """What `Policy.act` decides in every row, in the units of the scale."""
        problem, names = self.policy.problem, self.names.products
        self.refuse_undeclared(asked)
        outside = (asked.state < problem.state_low) | (asked.state > problem.state_high)
        if outside.any():
            row, i = (int(place) for place in np.argwhere(outside)[0])
            raise RowRefusedError(row, f"{names[i]} must lie in {problem.state_low[i]:g} .. {problem.state_high[i]:g}")
        refuse_rows(problem.ended(asked.state), f"{names[0]}: nothing is left to decide about")
        with np.errstate(over="ignore"):
            decided = act(self.policy, asked)
        refuse_infinite(decided)
        return {name: decided[:, [i]] for i, name in enumerate(self.answered)}


def act(policy: Policy, asked: Questions) -> FloatArray:
    """What `Policy.act` answers to all rows."""
    labels, states = policy.problem.labels, asked.whole_states(policy.problem.state_dim)
    declared = zip(labels.names, labels.values, asked.places.T, strict=True)
    named = {name: np.array(values)[places] for name, values, places in declared}
    decided = np.empty((len(states), policy.problem.action_dim))
    for step in np.unique(asked.step):
        rows = np.flatnonzero(asked.step == step)
        scale, here = None if asked.scale is None else asked.scale[rows], {name: named[name][rows] for name in named}
        decided[rows] = policy.act(int(step), states[rows], scale=scale, labels=here)
    return asked.asked_of(decided)


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


def refuse_rows(broken: BoolArray, words: str) -> None:
    """Refuse the first row in which something is broken."""
    if broken.any():
        raise RowRefusedError(int(broken.argmax()), words)


def refuse_infinite(answers: FloatArray) -> None:
    """Refuse the first row whose answer is no finite number."""
    infinite = np.asarray(~np.isfinite(answers).all(axis=1))
    refuse_rows(infinite, "stock, scale or pack is too large or too small to compute with")


def pairs_from_text(text: str | None, what: str) -> dict[str, str]:
    """`shop=7,promo=yes`; without a text, no pairs."""
    pairs = {} if text is None else _parts(text, what)
    if isinstance(pairs, dict):
        return pairs
    raise ValueError(f"--{what} must be pairs, for example {'bread=12,milk=6' if what == 'packs' else 'shop=7'}")


def number_or_nan(value: LabelValue) -> float:
    """A number; NaN where there is no number."""
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _parts(text: str, what: str) -> list[str] | dict[str, str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all("=" in part for part in parts):
        return parts
    pairs = {name.strip(): amount.strip() for name, _, amount in (part.partition("=") for part in parts)}
    if len(pairs) < len(parts):
        raise ValueError(f"{what} must name each product once")
    return pairs


def _amount(what: str, text: str, *, positive: bool) -> float:
    number = number_or_nan(text)
    if not math.isfinite(number):
        raise ValueError(f"the {what} must be a finite number")
    if positive and number <= 0:
        raise ValueError(f"the {what} must be positive")
    return number


def _spelling(value: LabelValue, *, numbers: bool) -> LabelValue:
    """One form for all spellings of a value; a text that is no declared number stays a text."""
    if not numbers:
        return str(value).strip().casefold()
    number = number_or_nan(value)
    return str(value) if math.isnan(number) else number
