"""Inventory control with zero lead time: order up to y ≥ x, meet demand D, pay for what is left or missing."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, IntArray, as_floats, public_array, whole
from poolrl.problems.labels import Labels
from poolrl.problems.problem import ROUNDING, Boundary, LevelProblem, Observation, OutcomeProblem, require_stored


class Inventory(LevelProblem):
    """What lost sales and backlog share: products, costs, a public demand bound and a boundary on y.

    Amounts are in the user's units, or in multiples of a log's scale. `holding` and `shortage` are costs per unit and
    broadcast to (horizon, products); `demand_max` broadcasts to (products,); `boundary` is λ as a share of it.

    `labels` declares the values of each label. Costs then broadcast to (*labels.shape, horizon, products) and
    `demand_max` to (*labels.shape, products), so both may differ by label. `scale_profile`, of the costs' shape, says
    how large the scale of each step usually is compared with others (only ratios matter): stock that is left on a
    large day is many multiples of a small day's scale.
    """

    # `simulation.logs` sets it, because this room is public and must not import a room that holds logs.
    simulate_log: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        *,
        horizon: int,
        products: int = 1,
        holding: ArrayLike,
        shortage: ArrayLike,
        demand_max: ArrayLike,
        boundary: ArrayLike = 1.0,
        labels: Mapping[str, Iterable[Any]] | None = None,
        scale_profile: ArrayLike = 1.0,
    ) -> None:
        whole(horizon=horizon, products=products)
        self.horizon = int(horizon)
        self.products = int(products)
        self.labels = Labels(labels)
        per_step = (*self.labels.shape, horizon, products)
        self.holding = public_array("holding", holding, per_step)
        self.shortage = public_array("shortage", shortage, per_step)
        self.scale_profile = public_array("scale_profile", scale_profile, per_step)
        self.label_bounds = public_array("demand_max", demand_max, (*self.labels.shape, products))
        for name in self.costs:
            if (getattr(self, name) < 0).any():
                raise ValueError(f"{name} must not be negative, got {getattr(self, name).min():g}")
        for name, values in (("demand_max", self.label_bounds), ("scale_profile", self.scale_profile)):
            if (values <= 0).any():
                raise ValueError(f"{name} must be positive, got {values.min():g}")
        # One bound for all cells. A cell with a lower one is counted and planned in multiples of its own.
        self.demand_max = self.label_bounds.reshape(-1, products).max(axis=0)
        self.share = public_array("boundary", boundary, (horizon, products))
        self.action_low = self.outcome_low = self.initial_state = np.zeros(products)
        self.action_high = self.outcome_high = self.state_high = self.demand_max
        # Unmet demand that can be seen waits as negative stock.
        self.state_low = np.zeros(products) if self.censored else -self.demand_max
        level = self.share * self.demand_max
        state_share = (level - self.state_low) / (self.state_high - self.state_low)
        self.boundary = Boundary(np.concatenate([state_share, self.share], axis=1))

    def feasible(self, step: int, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ordering only adds stock: x ≤ y ≤ max(x, demand_max)."""
        low = np.maximum(state, self.action_low)
        return low, np.maximum(low, self.action_high)

    def cutoff_reach(self, step: int) -> FloatArray:
        """Sales cannot exceed the order-up-to level, which is observed up to λ."""
        return self.share[step]

    @property
    def bound_share(self) -> FloatArray:
        """The bound of each label cell as a share of `demand_max`, (*labels.shape, products)."""
        return self.label_bounds / self.demand_max

    def cost(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """h (y − D)⁺ + b (D − y)⁺, summed over products."""
        return self.labelled_cost(step, state, action, outcome, np.zeros((), dtype=np.int64))

    def labelled_cost(
        self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray, cell: IntArray
    ) -> FloatArray:
        """The same with the costs of each row's label cell."""
        return self.coordinate_cost(step, action, outcome, np.asarray(cell)[..., None]).sum(axis=-1)

    def coordinate_cost(self, step: int, action: FloatArray, outcome: FloatArray, cell: IntArray) -> FloatArray:
        """h (y − D)⁺ + b (D − y)⁺ of each product, (..., k), with the costs of its label cell, (..., 1) or (..., k)."""
        left, missing = np.maximum(action - outcome, 0.0), np.maximum(outcome - action, 0.0)
        labelled = np.unravel_index(cell, self.labels.shape) if self.labels else ()
        return self.of_leftovers((*labelled, step, np.arange(self.products)), left, missing)

    def averaged_over(self, unknown: Collection[str], chance: FloatArray) -> Self:
        """The shop of somebody whose values of some labels are unknown, and come by `chance` (*labels, H)."""
        names, axes = self.labels.names, tuple(self.labels.names.index(name) for name in unknown)

        def mean(costs: FloatArray) -> FloatArray:
            # Equal costs stay equal in every bit: `settled_levels` asks whether labels have the same.
            same = np.ptp(costs, axis=axes) == 0
            return np.where(same, costs.max(axis=axes), (chance[..., None] * costs).sum(axis=axes))

        return self.changed(
            **{name: mean(getattr(self, name)) for name in (*self.costs, "scale_profile")},
            demand_max=self.label_bounds.max(axis=axes),
            labels={name: v for name, v in zip(names, self.labels.values, strict=True) if name not in unknown},
        )

    def why_unknown(self, other: OutcomeProblem) -> str:
        """Plans may have lower bounds too, but nobody has seen demand beyond the bounds."""
        if type(other) is not type(self) or not isinstance(other, Inventory):
            return f"the model was learned for {type(self).__name__}: a plan must be of the same kind"
        steps = np.arange(other.horizon) % self.horizon
        limits = [shop.share * shop.label_bounds[..., None, :] for shop in (self, other)]
        lower = (limits[1] <= limits[0][..., steps, :] * (1 + ROUNDING)).all()
        if not lower or (other.label_bounds > self.label_bounds * (1 + ROUNDING)).any():
            return "a plan may have lower bounds than the model was learned with, but no higher ones"
        if not np.allclose(other.scale_profile, self.scale_profile[..., steps, :]):
            return "the model was learned with another scale_profile: a plan must have the same"
        return ""

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], stored: tuple[int, ...]) -> Self:
        """The shop of a file, which holds the costs of every step and product, and of label cells where they differ."""
        require_stored(facts, stored)
        cells, products, horizon = stored[:-1], facts["products"], stored[-1]
        whole(products=products)
        for name in (*cls.costs, "scale_profile", "demand_max", "boundary"):
            last = (products,) if name == "demand_max" else (horizon, products)
            labels = () if name == "boundary" else cells
            if name in facts and not _spreads_to(shape := as_floats(name, facts[name]).shape, labels, last):
                raise ValueError(f"the file declares {name} for {(*labels, *last)}, but holds {shape}")
        return cls(**facts)

    def facts(self) -> dict[str, Any]:
        """The constructor's arguments: enough to build the problem again."""
        axes = len(self.labels.shape)
        arrays = {name: _collapsed(getattr(self, name), axes).tolist() for name in self.costs}
        sizes = {"kind": type(self).__name__, "horizon": self.horizon, "products": self.products}
        bounds = {"demand_max": _collapsed(self.label_bounds, axes).tolist(), "boundary": self.share.tolist()}
        # Only what is not the default, so that files of shops without labels stay as they were.
        labels = {"labels": self.labels.facts()} if self.labels else {}
        profile = _collapsed(self.scale_profile, axes)
        return sizes | arrays | bounds | labels | ({"scale_profile": profile.tolist()} if (profile != 1).any() else {})


def _collapsed(values: FloatArray, label_axes: int) -> FloatArray:
    """An array that broadcasts to `values`, with one entry for labels along which nothing differs.

    A chain has thousands of label cells, and mostly one cost for all of them.
    """
    for axis in range(label_axes):
        first = values.take([0], axis)
        values = first if (values == first).all() else values
    while label_axes and values.shape[0] == 1:
        values, label_axes = values[0], label_axes - 1
    return values


def _spreads_to(shape: tuple[int, ...], cells: tuple[int, ...], last: tuple[int, ...]) -> bool:
    """Whether an array has the shape (*cells, *last), but for labels that it leaves out or has one entry for."""
    labels = shape[: -len(last)]
    fits = all(size in (1, full) for size, full in zip(labels[::-1], cells[::-1], strict=False))
    return shape[len(labels) :] == last and len(labels) <= len(cells) and fits


class LostSales(Inventory):
    """Unmet demand is lost and not seen: the log shows sales min(y, D), cut off if the shelf ran empty."""

    def next_state(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """x′ = (y − D)⁺."""
        return np.maximum(action - outcome, 0.0)

    def observe(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> Observation:
        """Sales y − x′, cut off iff nothing was left."""
        # A shelf with 1e-17 of a loaf, left by rounding, is empty.
        return action - next_state, next_state <= ROUNDING * self.demand_max

    def coordinate_reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        """The paper's virtual reward −(h (y − D)⁺ − b min(y, D)), by (y − D)⁺ = x′ and min(y, D) = y − x′."""
        return -(self.holding[step] * next_state - self.shortage[step] * (action - next_state))

    def reward_range(self, step: int) -> tuple[float, float]:
        """From all stock left to all stock sold."""
        return -float(self.holding[step] @ self.demand_max), float(self.shortage[step] @ self.demand_max)


class Backlog(Inventory):
    """Unmet demand waits as negative stock, so demand is always seen (full feedback)."""

    censored = False

    def next_state(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """x′ = y − D, negative when demand waits."""
        return action - outcome

    def observe(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> Observation:
        """Demand y − x′, never cut off."""
        return action - next_state, np.zeros(next_state.shape, dtype=bool)

    def coordinate_reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        """−(h x′⁺ + b x′⁻)."""
        left, missing = np.maximum(next_state, 0.0), np.maximum(-next_state, 0.0)
        return -self.of_leftovers(step, left, missing)

    def reward_range(self, step: int) -> tuple[float, float]:
        """At worst everything is left, or everything is missing."""
        return -float(np.maximum(self.holding[step], self.shortage[step]) @ self.demand_max), 0.0


class Depot(OutcomeProblem):
    """k products of a shop, and a reserve for all of them as the last coordinate of states and actions.

        missing   m = Σ_i (D_i − y_i)⁺          served  q = min(m, y_0)
        cost      Σ_i h_i (y_i − D_i)⁺ + h_0 (y_0 − q) + e q + b (m − q)

    y_0 is the level of the reserve, e what it costs to bring a unit from it in time. No product can be planned by
    itself: the best size of the reserve depends on all of them, and on whether they run short on the same days.

    `shop` has the products' costs and bounds, and the same `shortage` for all of them, because a reserve serves whoever
    asks. `express` (e) and `reserve_holding` (h_0) are costs per unit, one number or one for each step. `reserve_max`
    bounds the reserve.
    """

    shared = ("reserve",)
    action_sets_state = True

    def __init__(self, *, shop: LostSales, express: ArrayLike, reserve_holding: ArrayLike, reserve_max: float) -> None:
        if not isinstance(shop, LostSales) or shop.labels or (shop.scale_profile != 1).any():
            raise ValueError("shop must be LostSales without labels and without a scale profile")
        if np.ptp(shop.shortage, axis=1).any():
            raise ValueError("shortage must be the same for all products of a step: a reserve serves whoever asks")
        self.shop, self.horizon = shop, shop.horizon
        self.express = public_array("express", express, (shop.horizon,))
        self.reserve_holding = public_array("reserve_holding", reserve_holding, (shop.horizon,))
        self.reserve_max = float(public_array("reserve_max", reserve_max, ()))
        if self.reserve_max <= 0 or (self.express < 0).any() or (self.reserve_holding < 0).any():
            raise ValueError("reserve_max must be positive, express and reserve_holding must not be negative")
        if (self.express > shop.shortage[:, 0]).any():
            raise ValueError("express above shortage: nobody would use the reserve")
        self.state_low = self.action_low = self.initial_state = np.zeros(shop.products + 1)
        self.state_high = self.action_high = np.append(shop.demand_max, self.reserve_max)
        self.outcome_low, self.outcome_high = shop.outcome_low, shop.outcome_high
        share = np.concatenate([shop.share, np.ones((shop.horizon, 1))], axis=1)
        self.boundary = Boundary(np.concatenate([share, share], axis=1))

    @property
    def world(self) -> OutcomeProblem:
        """A model of the shop knows all that this problem needs."""
        return self.shop

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], stored: tuple[int, ...]) -> Self:
        """The depot of a file, whose shop has the steps of the rule that the file holds."""
        shop = dict(facts["shop"])
        if shop.pop("kind") != LostSales.__name__:
            raise ValueError("a depot serves a shop of lost sales")
        return cls(**{**facts, "shop": LostSales.from_facts(shop, stored)})

    def facts(self) -> dict[str, Any]:
        """JSON-able public facts, with those of the shop."""
        own = {"express": self.express.tolist(), "reserve_holding": self.reserve_holding.tolist()}
        return {"kind": "Depot", "shop": self.shop.facts(), **own, "reserve_max": self.reserve_max}

    def feasible(self, step: int, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ordering only adds stock."""
        low = np.maximum(state, self.action_low)
        return low, np.maximum(low, self.action_high)

    def next_state(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """What is left of each product, and of the reserve."""
        left = np.maximum(action[..., :-1] - outcome, 0.0)
        missing = np.maximum(outcome - action[..., :-1], 0.0).sum(axis=-1)
        return np.concatenate([left, np.maximum(action[..., -1] - missing, 0.0)[..., None]], axis=-1)

    def observe(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> Observation:
        """Sales of each product, cut off where its shelf is empty."""
        return self.shop.observe(step, state[..., :-1], action[..., :-1], next_state[..., :-1])

    def cutoff_reach(self, step: int) -> FloatArray:
        """As in the shop."""
        return self.shop.cutoff_reach(step)

    def cost(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """Of what is left, of what comes from the reserve, and of what is missing after that."""
        missing = np.maximum(outcome - action[..., :-1], 0.0).sum(axis=-1)
        left = np.maximum(action[..., :-1] - outcome, 0.0) @ self.shop.holding[step]
        served = np.minimum(missing, action[..., -1])
        kept = self.reserve_holding[step] * (action[..., -1] - served)
        return left + kept + self.express[step] * served + self.shop.shortage[step, 0] * (missing - served)

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        """Minus the cost, and b times all demand, which no decision changes: a function of what a log shows."""
        left, reserve = next_state[..., :-1], next_state[..., -1]
        sold, served = (action[..., :-1] - left).sum(axis=-1), action[..., -1] - reserve
        kept = left @ self.shop.holding[step] + self.reserve_holding[step] * reserve + self.express[step] * served
        return np.asarray(self.shop.shortage[step, 0] * (sold + served) - kept)

    def reward_range(self, step: int) -> tuple[float, float]:
        """From all stock left to all stock sold."""
        low, high = self.shop.reward_range(step)
        shortage = float(self.shop.shortage[step, 0])
        return low - float(self.reserve_holding[step]) * self.reserve_max, high + shortage * self.reserve_max
