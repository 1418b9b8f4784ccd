"""Buying by first-price auctions: the seller's problem from the other side of the table.

    own bid b, highest competing bid C:    won iff b ≥ C, at the price b        reward  (worth − b) 1[C ≤ b]

Whether C is seen above the own bid, below it or never is a property of the auction house, and so of the problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from poolrl.checks import BoolArray, FloatArray, positive, public_array, whole
from poolrl.problems.problem import Observation, Side
from poolrl.problems.rounds import Rounds
from poolrl.problems.words import TableColumn, Words


class FirstPriceBidding(Rounds):
    """The other side of the table: win up to `wins` of `horizon` first-price auctions, each worth `worth`.

    The highest competing bid C is the outcome: a bid b ≥ C wins and pays b. `feedback` says when C is shown: "lost"
    (the winner's bid is published, so C is seen above b), "won" (the winner learns the second price, so C is seen below
    b), or "never" (win or lose is all that is known). A row shows wins still wanted, the bid, wins wanted after and,
    unless it is never shown, C or the bid in its place.
    """

    costs, count_name = ("worth",), "wins"
    words = Words(
        decision="bid",
        decisions="bids",
        past="bids",
        outcome="competing bids",
        states=("wanted",),
        trajectory="season",
        alone="auction",
        step="round",
        logged="bids and wins",
        earned="value above what was paid",
        estimate="estimate of competing bids that were not shown: Kaplan-Meier, or isotonic where none is shown",
        advice="Bid this much while so many wins are still wanted.",
        keys={
            "horizon": "rounds of one season",
            "wins": "how many wins are wanted in a season",
            "worth": "what a win is worth to you",
            "bid_max": "no bid exceeds this, by public knowledge, in money or in multiples of the scale",
            "feedback": 'when the competing bid is shown: "lost", "won" or "never"',
        },
        example={"horizon": 4, "wins": 2, "worth": 1.5, "bid_max": 4.0, "feedback": "lost"},
        columns=(
            TableColumn(
                "wanted",
                "wins that are still wanted before the round",
                otherwise="1",
                spared=lambda one: one.wins == 1,
            ),
            TableColumn("bid", "your bid"),
            TableColumn("won", "whether it won", "flag"),
            TableColumn(
                "competing",
                "the highest competing bid, where it is shown",
                otherwise="{bid}",
                spared=lambda one: not one.shows,
            ),
        ),
        rows=(("{wanted}",), ("{bid}",), ("{wanted} - {won}",)),
        shown={"competing": "COALESCE({competing}, {bid})"},
    )

    def __init__(
        self,
        *,
        horizon: int,
        wins: int,
        worth: float,
        bid_max: float,
        feedback: str = "lost",
        labels: Mapping[str, Iterable[Any]] | None = None,
    ) -> None:
        whole(wins=wins)
        positive(bid_max=bid_max)
        if feedback not in ("lost", "won", "never"):
            raise ValueError(f"feedback must be 'lost', 'won' or 'never', got {feedback!r}")
        self.wins, self.bid_max, self.feedback = int(wins), float(bid_max), feedback
        self.worth = float(public_array("worth", worth, ()))
        if self.worth <= 0:
            raise ValueError(f"worth must be positive, got {self.worth:g}")
        self.shows = () if feedback == "never" else ("competing",)
        self.current_status = (0,) if feedback == "never" else ()
        side: Side = "higher" if feedback == "lost" else "lower"
        super().__init__(horizon=horizon, count=self.wins, most=bid_max, outcomes=1, side=side, labels=labels)

    def facts(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return self._facts(wins=self.wins, worth=self.worth, bid_max=self.bid_max, feedback=self.feedback)

    def succeeds(self, action: FloatArray, outcome: FloatArray) -> BoolArray:
        """Won if nobody bids more."""
        return outcome <= action

    def shown(self, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """The competing bid on the side where it is seen, and the own bid elsewhere."""
        return np.maximum(outcome, action) if self.feedback == "lost" else np.minimum(outcome, action)

    def observe(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> Observation:
        """The competing bid: cut off at the own one when it is not shown."""
        won = self.succeeded(state, next_state)
        cut = won if self.feedback == "lost" else ~won
        return (np.where(cut, action, next_state[..., 1:]) if self.shows else action), cut

    def reward_weights(self, seen: FloatArray, tried: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """What wins are worth above their bids, where a win is counted at the own bid."""
        won = self.worth - tried
        return {"lost": (0.0 * won, won), "never": (won, 0.0 * won)}.get(self.feedback)

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        """What a win is worth above its bid."""
        return np.asarray((state[..., 0] - next_state[..., 0]) * (self.worth - action[..., 0]))

    def reward_range(self, step: int) -> tuple[float, float]:
        """From a win at the highest bid to one for nothing."""
        return min(0.0, self.worth - self.bid_max), self.worth
