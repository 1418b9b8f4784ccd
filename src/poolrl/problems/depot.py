"""Shops or products that share a reserve: what one of them lacks comes from it, as long as it lasts.

    missing   m = Σ_i (D_i − y_i)⁺          served  q = min(m, y_0)
    cost      Σ_i h_i (y_i − D_i)⁺ + h_0 (y_0 − q) + e q + b (m − q)

y_0 is the level of the reserve, e what it costs to bring a unit from it in time. No product can be planned by itself:
the best size of the reserve depends on all of them, and on whether they run short on the same days.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, public_array
from poolrl.problems.inventory import LostSales
from poolrl.problems.problem import Boundary, Observation, OutcomeProblem


class Depot(OutcomeProblem):
    """k products of a shop, and a reserve for all of them as the last coordinate of states and actions.

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
        self.express, self.reserve_holding = (
            public_array(name, each, (shop.horizon,))
            for name, each in (("express", express), ("reserve_holding", reserve_holding))
        )
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
