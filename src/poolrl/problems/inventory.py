"""Inventory control with zero lead time: order up to y ≥ x, meet demand D, pay for what is left or missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, public_array, whole
from poolrl.problems.problem import ROUNDING, Boundary, Observation, SeparableProblem

Behaviour = Callable[[int, FloatArray, np.random.Generator], FloatArray]


class Inventory(SeparableProblem):
    """What lost sales and backlog share: products, costs, a public demand bound and a boundary on y.

    Amounts are in the user's units. `holding` and `shortage` are costs per unit and broadcast to
    (horizon, products); `demand_max` broadcasts to (products,); `boundary` is λ as a share of `demand_max`.
    """

    action_sets_state = True
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
    ) -> None:
        whole(horizon=horizon, products=products)
        self.horizon = int(horizon)
        self.products = int(products)
        self.holding = public_array("holding", holding, (horizon, products))
        self.shortage = public_array("shortage", shortage, (horizon, products))
        self.demand_max = public_array("demand_max", demand_max, (products,))
        for name in ("holding", "shortage"):
            if (getattr(self, name) < 0).any():
                raise ValueError(f"{name} must not be negative, got {getattr(self, name).min():g}")
        if (self.demand_max <= 0).any():
            raise ValueError(f"demand_max must be positive, got {self.demand_max.min():g}")
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

    def cost(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """h (y − D)⁺ + b (D − y)⁺, summed over products."""
        left = np.maximum(action - outcome, 0.0)
        missing = np.maximum(outcome - action, 0.0)
        return (self.holding[step] * left + self.shortage[step] * missing).sum(axis=-1)

    def without_boundary(self) -> Self:
        """The same shop with λ = 1: no limit on orders, and every row is observed."""
        facts = self.facts() | {"boundary": 1.0}
        return type(self)(**{name: value for name, value in facts.items() if name != "kind"})

    def facts(self) -> dict[str, Any]:
        """The constructor's arguments: enough to build the problem again."""
        arrays = {name: getattr(self, name).tolist() for name in ("holding", "shortage", "demand_max")}
        sizes = {"kind": type(self).__name__, "horizon": self.horizon, "products": self.products}
        return sizes | arrays | {"boundary": self.share.tolist()}


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
        return -(self.holding[step] * left + self.shortage[step] * missing)

    def reward_range(self, step: int) -> tuple[float, float]:
        """At worst everything is left, or everything is missing."""
        return -float(np.maximum(self.holding[step], self.shortage[step]) @ self.demand_max), 0.0
