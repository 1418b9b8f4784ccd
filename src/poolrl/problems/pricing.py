"""Selling at posted prices: a buyer comes, sees the price, and buys or not. What it was worth to them is never seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from poolrl.checks import BoolArray, FloatArray, positive, public_array, whole
from poolrl.problems.problem import Observation
from poolrl.problems.rounds import Rounds
from poolrl.problems.words import TableColumn, Words


class DynamicPricing(Rounds):
    """`stock` of one thing, to be sold within `horizon` periods, one in each period at most.

    The outcome is the buyer's value V, zero if nobody comes: bought at the price p iff V ≥ p. `price_max` bounds values
    and prices. `keep` is what a unit is worth that is never sold. A row shows stock before, the price, stock after.
    """

    current_status = (0,)
    costs, count_name = ("keep",), "stock"
    words = Words(
        decision="price",
        decisions="prices",
        past="prices",
        outcome="what things are worth to buyers",
        states=("stock",),
        trajectory="season",
        alone="buyer",
        step="period",
        logged="prices and sales",
        earned="revenue",
        estimate="isotonic estimate of buyers' values, of which only the side of a price is known",
        advice="Ask this price while so many units are left.",
        keys={
            "horizon": "periods of one season, in each of which one buyer comes",
            "stock": "units at the beginning of a season",
            "price_max": "no price and no value exceeds this, by public knowledge, in money or multiples of the scale",
            "keep": "what a unit is worth to you that is never sold",
        },
        example={"horizon": 4, "stock": 2, "price_max": 4.0, "keep": 0.1},
        columns=(
            TableColumn(
                "stock", "units that are left before the period", otherwise="1", spared=lambda one: one.stock == 1
            ),
            TableColumn("price", "the price that was asked"),
            TableColumn("sold", "whether it was bought", "flag"),
        ),
        rows=(("{stock}",), ("{price}",), ("{stock} - {sold}",)),
    )

    def __init__(
        self,
        *,
        horizon: int = 1,
        stock: int = 1,
        price_max: float,
        keep: float = 0.0,
        labels: Mapping[str, Iterable[Any]] | None = None,
    ) -> None:
        whole(stock=stock)
        positive(price_max=price_max)
        self.stock, self.price_max = int(stock), float(price_max)
        self.keep = float(public_array("keep", keep, ()))
        if not 0 <= self.keep < self.price_max:
            raise ValueError(f"keep must lie between 0 and price_max, got {self.keep:g}")
        super().__init__(horizon=horizon, count=self.stock, most=price_max, outcomes=1, side="lower", labels=labels)

    def facts(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return self._facts(stock=self.stock, price_max=self.price_max, keep=self.keep)

    def succeeds(self, action: FloatArray, outcome: FloatArray) -> BoolArray:
        """Bought if it is worth its price."""
        return outcome >= action

    def observe(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> Observation:
        """The price, and whether the value lies beyond it."""
        return action, self.succeeded(state, next_state)

    def reward_weights(self, seen: FloatArray, tried: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """The price above `keep` of those who bought."""
        return 0.0 * tried, tried - self.keep

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        """What a sale earns above `keep`."""
        return np.asarray((state[..., 0] - next_state[..., 0]) * (action[..., 0] - self.keep))

    def reward_range(self, step: int) -> tuple[float, float]:
        """From a unit that is given away to one that is sold at the bound."""
        return -self.keep, self.price_max
