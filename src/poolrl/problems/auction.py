"""Selling by second-price auctions with a reserve: bids below the reserve are not seen.

    highest bid B₁, second B₂, reserve r:    sold iff B₁ ≥ r, at the price max(B₂, r)

    reward   (max(B₂, r) − keep) if sold  =  (r − keep) 1[B₁ ≥ r] + (B₂ − r)⁺

The reward is a sum of a function of B₁ and one of B₂, so a plan needs their two laws and not how they belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from poolrl.checks import BoolArray, FloatArray, positive, public_array, whole
from poolrl.problems.problem import ROUNDING, Observation
from poolrl.problems.rounds import Rounds
from poolrl.problems.words import TableColumn, Words


class ReserveAuction(Rounds):
    """`lots` of one thing, to be sold within `horizon` rounds, one in each round at most.

    `bid_max` bounds bids and reserves. `keep` is what a lot is worth to the seller that is never sold. A row of the log
    shows lots before, the reserve, lots after, and behind them the highest bid and the price (both the reserve if the
    lot was not sold). Where the winner's bid is not known, `sees_highest=False`: a row then shows the price alone, and
    of the highest bid only on which side of the reserve it lies.
    """

    costs, count_name = ("keep",), "lots"
    words = Words(
        decision="reserve",
        decisions="reserves",
        past="reserves",
        outcome="bids",
        states=("lots",),
        trajectory="sale",
        alone="lot",
        step="round",
        logged="reserves, sales and prices",
        earned="revenue",
        estimate="estimate of bids below the reserve: Kaplan-Meier from above, or isotonic where bids are not shown",
        advice="Let no lot go below this reserve while so many lots are left.",
        keys={
            "horizon": "rounds of one sale: 1 where each lot is sold by itself",
            "lots": "lots of one thing at the beginning of a sale",
            "bid_max": "no bid and no reserve exceeds this, by public knowledge, in money or in multiples of the scale",
            "keep": "what a lot is worth to you that is never sold",
            "sees_highest": "whether the log shows the winner's bid, and not only the price that was paid",
        },
        example={"horizon": 3, "lots": 2, "bid_max": 4.0, "keep": 0.2, "sees_highest": False},
        columns=(
            TableColumn("lots", "lots that are left before the round", otherwise="1", spared=lambda one: one.lots == 1),
            TableColumn("reserve", "the reserve of the round"),
            TableColumn("sold", "whether the lot was sold", "flag"),
            TableColumn("price", "what it was sold for; empty if it was not sold"),
            TableColumn(
                "highest",
                "the winner's bid, where sees_highest = true",
                otherwise="{price}",
                spared=lambda one: not one.sees_highest,
            ),
        ),
        rows=(("{lots}",), ("{reserve}",), ("{lots} - {sold}",)),
        shown={
            "highest": "CASE WHEN {sold} > 0 THEN {highest} ELSE {reserve} END",
            "price": "CASE WHEN {sold} > 0 THEN {price} ELSE {reserve} END",
        },
    )

    def __init__(
        self,
        *,
        horizon: int = 1,
        lots: int = 1,
        bid_max: float,
        keep: float = 0.0,
        sees_highest: bool = True,
        labels: Mapping[str, Iterable[Any]] | None = None,
    ) -> None:
        whole(lots=lots)
        positive(bid_max=bid_max)
        self.lots, self.bid_max, self.sees_highest = int(lots), float(bid_max), bool(sees_highest)
        self.keep = float(public_array("keep", keep, ()))
        if not 0 <= self.keep < self.bid_max:
            raise ValueError(f"keep must lie between 0 and bid_max, got {self.keep:g}")
        self.shows = ("highest", "price") if self.sees_highest else ("price",)
        self.current_status = () if self.sees_highest else (0,)
        super().__init__(horizon=horizon, count=self.lots, most=bid_max, outcomes=2, side="higher", labels=labels)

    def facts(self) -> dict[str, Any]:
        """The constructor's arguments."""
        own = {"lots": self.lots, "bid_max": self.bid_max, "keep": self.keep, "sees_highest": self.sees_highest}
        return self._facts(**own)

    def succeeds(self, action: FloatArray, outcome: FloatArray) -> BoolArray:
        """Sold if the highest bid reaches the reserve."""
        return outcome[..., :1] >= action

    def arranged(self, outcomes: FloatArray) -> FloatArray:
        """The highest bid first."""
        return -np.sort(-outcomes, axis=-1)

    def shown(self, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """Bids above the reserve, and the reserve in the place of others."""
        return np.maximum(outcome if self.sees_highest else outcome[..., 1:], action)

    def observe(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> Observation:
        """Both bids; a bid that is not above the reserve is cut off there."""
        sold, price = self.succeeded(state, next_state), next_state[..., -1:]
        second_hidden = ~sold | (price <= action + ROUNDING * self.bid_max)
        highest = np.where(sold, next_state[..., 1:2], action) if self.sees_highest else action
        values = np.concatenate([highest, np.where(second_hidden, action, price)], axis=-1)
        return values, np.concatenate([~sold, second_hidden], axis=-1)

    def reward_weights(self, seen: FloatArray, tried: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """The price where it is above the reserve, else the reserve of those that were sold: Σ r over B₂ < r ≤ B₁."""
        return np.stack([np.full_like(seen[0], -self.keep), seen[1]]), np.stack([-tried[0], tried[1]])

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        """What the round earns above `keep`."""
        sold = state[..., 0] - next_state[..., 0]
        return np.asarray(sold * (action[..., 0] - self.keep) + (next_state[..., -1] - action[..., 0]))

    def reward_range(self, step: int) -> tuple[float, float]:
        """From a lot that is given away to one that is sold at the bound."""
        return -self.keep, self.bid_max
