"""Rounds in which one amount is named, and a count goes down by one or stays: lots to sell, wins that are wanted.

state  n = 0 .. N, what is left        action  a, a price, a reserve or a bid        n′ = n − 1 if the round succeeds

    ReserveAuction      highest bid B₁, second B₂, reserve r:   sold iff B₁ ≥ r, at the price max(B₂, r)
                        reward  (max(B₂, r) − keep) if sold  =  (r − keep) 1[B₁ ≥ r] + (B₂ − r)⁺
    DynamicPricing      a buyer's value V, price p:             bought iff V ≥ p          reward  (p − keep) 1[V ≥ p]
    FirstPriceBidding   competing bid C, own bid b:             won iff b ≥ C, paying b   reward  (worth − b) 1[C ≤ b]

The reward of an auction is a sum of a function of B₁ and one of B₂, so a plan needs their two laws and not how they
belong together. Bids below a reserve are not seen, and the worth of things to buyers is never seen. The auction house,
and so the problem, decides whether C is seen above the own bid, below it or never.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from poolrl.checks import BoolArray, FloatArray, positive, public_array, whole
from poolrl.problems.labels import Labels
from poolrl.problems.problem import ROUNDING, Boundary, Observation, OutcomeProblem, Side

# The values of each label.
Declared = Mapping[str, Iterable[Any]] | None
# A plan has a decision for each of both, and a file must not ask for more than memory holds.
MOST_COUNTED = 1_000


class Rounds(OutcomeProblem):
    """What auctions and posted prices share. `most` bounds all amounts, in the user's units or multiples of a scale."""

    counts_down = True
    arguments: ClassVar[tuple[str, ...]]  # of the constructor, beside the horizon and labels
    count_name: ClassVar[str]  # of the one that says how many lots, units or wins there are
    most_name = "bid_max"  # of the one that bounds all amounts

    def __init__(
        self,
        horizon: int,
        count: int,
        most: float,
        labels: Declared,
        *,
        keep: float = 0.0,
        outcomes: int = 1,
        side: Side = "lower",
    ) -> None:
        whole(horizon=horizon, **{self.count_name: count})
        positive(**{self.most_name: most})
        public_array(self.most_name, most, ())
        if max(horizon, count) > MOST_COUNTED:
            raise ValueError(f"a problem has at most {MOST_COUNTED:,} rounds, lots, units or wins")
        self.horizon, self.labels = int(horizon), Labels(labels)
        self.state_low, self.state_high = np.zeros(1), np.full(1, float(count))
        self.initial_state = self.state_high
        self.action_low, self.action_high = np.zeros(1), np.full(1, float(most))
        self.outcome_low, self.outcome_high = np.zeros(outcomes), np.full(outcomes, float(most))
        self.shown_low, self.shown_high = np.zeros(len(self.shows)), np.full(len(self.shows), float(most))
        # Amounts of every size may be named: on either side the boundary is where nothing is left to see.
        self.boundary = Boundary(np.full((self.horizon, 2), float(side == "lower")), side)
        # What a lot or a unit is worth that is never sold.
        self.keep = float(public_array("keep", keep, ()))
        if not 0 <= self.keep < most:
            raise ValueError(f"keep must lie between 0 and {self.most_name}, got {self.keep:g}")

    @property
    def free_facts(self) -> tuple[str, ...]:
        """Bids, values and what is shown of them do not depend on how many lots there are."""
        return (*super().free_facts, self.count_name)

    @abstractmethod
    def succeeds(self, action: FloatArray, outcome: FloatArray) -> BoolArray:
        """Whether a round that takes place takes one off the count, (..., 1)."""

    def shown(self, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """What a row shows beside the count, (..., e)."""
        return outcome[..., :0]

    def next_state(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        """The count, and what is shown. Without a round, as if nobody had come."""
        takes_place = state >= 0.5
        # A count between two whole numbers is no possible row, but what follows it stays within the bounds.
        left = np.maximum(state - np.where(takes_place & self.succeeds(action, outcome), 1.0, 0.0), 0.0)
        if not self.shows:
            return left
        return np.concatenate([left, np.where(takes_place, self.shown(action, outcome), action)], axis=-1)

    def reward_weights(self, seen: FloatArray, tried: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """The part of each counted row in the reward, (k, B) for rows that are not cut off and for those that are.

        `seen` and `tried` (k, B) are the mean outcome and the mean tried amount of each bin. None where counts do not
        tell what was earned.
        """
        return None

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        """What a sale earns above `keep`."""
        return np.asarray((state[..., 0] - next_state[..., 0]) * (action[..., 0] - self.keep))

    def reward_range(self, step: int) -> tuple[float, float]:
        """From a lot or a unit that is given away to one that is sold at the bound."""
        return -self.keep, float(self.action_high[0])

    def succeeded(self, state: FloatArray, next_state: FloatArray) -> BoolArray:
        """Whether the count went down, (..., 1)."""
        return next_state[..., :1] <= state - 0.5

    def seen_coordinates(self, step: int, state: FloatArray, action: FloatArray) -> BoolArray:
        """A round takes place while anything is left. Otherwise nothing is seen."""
        takes_place = state >= 0.5
        return takes_place if self.outcome_dim == 1 else np.concatenate([takes_place] * self.outcome_dim, axis=-1)

    def facts(self) -> dict[str, Any]:
        """The constructor's arguments: enough to build the problem again."""
        own = {name: getattr(self, name) for name in ("horizon", *self.arguments)}
        return {"kind": type(self).__name__, **own, **({"labels": self.labels.facts()} if self.labels else {})}


class ReserveAuction(Rounds):
    """`lots` of one thing, to be sold within `horizon` rounds, one in each round at most.

    `bid_max` bounds bids and reserves. `keep` is what a lot is worth to the seller that is never sold. A row of the log
    shows lots before, the reserve, lots after, and behind them the highest bid and the price (both the reserve if the
    lot was not sold). Where the winner's bid is not known, `sees_highest=False`: a row then shows the price alone, and
    of the highest bid only on which side of the reserve it lies.
    """

    arguments = ("lots", "bid_max", "keep", "sees_highest")
    costs, count_name = ("keep",), "lots"
    example: ClassVar[Mapping[str, Any]] = {"horizon": 3, "lots": 2, "bid_max": 4.0, "keep": 0.2, "sees_highest": False}

    def __init__(
        self,
        *,
        horizon: int = 1,
        lots: int = 1,
        bid_max: float,
        keep: float = 0.0,
        sees_highest: bool = True,
        labels: Declared = None,
    ) -> None:
        self.shows = ("highest", "price") if sees_highest else ("price",)
        self.current_status = () if sees_highest else (0,)
        super().__init__(horizon, lots, bid_max, labels, keep=keep, outcomes=2, side="higher")
        self.lots, self.bid_max, self.sees_highest = int(lots), float(bid_max), bool(sees_highest)

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
        """The reserve of a lot that is sold above `keep`, and what the price is above the reserve."""
        return super().reward(step, state, action, next_state) + (next_state[..., -1] - action[..., 0])


class DynamicPricing(Rounds):
    """`stock` of one thing, to be sold within `horizon` periods, one in each period at most.

    The outcome is the buyer's value V, zero if nobody comes: bought at the price p iff V ≥ p. `price_max` bounds values
    and prices. `keep` is what a unit is worth that is never sold. A row shows stock before, the price, stock after.
    """

    current_status = (0,)
    arguments = ("stock", "price_max", "keep")
    costs, count_name, most_name = ("keep",), "stock", "price_max"
    example: ClassVar[Mapping[str, Any]] = {"horizon": 4, "stock": 2, "price_max": 4.0, "keep": 0.1}

    def __init__(
        self,
        *,
        horizon: int = 1,
        stock: int = 1,
        price_max: float,
        keep: float = 0.0,
        labels: Declared = None,
    ) -> None:
        super().__init__(horizon, stock, price_max, labels, keep=keep)
        self.stock, self.price_max = int(stock), float(price_max)

    def succeeds(self, action: FloatArray, outcome: FloatArray) -> BoolArray:
        """Bought if it is worth its price."""
        return outcome >= action

    def observe(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> Observation:
        """The price, and whether the value lies beyond it."""
        return action, self.succeeded(state, next_state)

    def reward_weights(self, seen: FloatArray, tried: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """The price above `keep` of those who bought."""
        return 0.0 * tried, tried - self.keep


class FirstPriceBidding(Rounds):
    """The other side of the table: win up to `wins` of `horizon` first-price auctions, each worth `worth`.

    The highest competing bid C is the outcome: a bid b ≥ C wins and pays b. `feedback` says when C is shown: "lost"
    (the winner's bid is published, so C is seen above b), "won" (the winner learns the second price, so C is seen below
    b), or "never" (win or lose is all that is known). A row shows wins still wanted, the bid, wins wanted after and,
    unless it is never shown, C or the bid in its place.
    """

    arguments = ("wins", "worth", "bid_max", "feedback")
    costs, count_name = ("worth",), "wins"
    example: ClassVar[Mapping[str, Any]] = {"horizon": 4, "wins": 2, "worth": 1.5, "bid_max": 4.0, "feedback": "lost"}

    def __init__(
        self,
        *,
        horizon: int,
        wins: int,
        worth: float,
        bid_max: float,
        feedback: str = "lost",
        labels: Declared = None,
    ) -> None:
        if feedback not in ("lost", "won", "never"):
            raise ValueError(f"feedback must be 'lost', 'won' or 'never', got {feedback!r}")
        positive(worth=worth)
        self.shows = () if feedback == "never" else ("competing",)
        self.current_status = (0,) if feedback == "never" else ()
        super().__init__(horizon, wins, bid_max, labels, side="higher" if feedback == "lost" else "lower")
        self.wins, self.bid_max, self.feedback = int(wins), float(bid_max), feedback
        self.worth = float(public_array("worth", worth, ()))

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
        """The worth of wins above their bids, where a win is counted at the own bid."""
        won = self.worth - tried
        return {"lost": (0.0 * won, won), "never": (won, 0.0 * won)}.get(self.feedback)

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        """The worth of a win above its bid."""
        return np.asarray((state[..., 0] - next_state[..., 0]) * (self.worth - action[..., 0]))

    def reward_range(self, step: int) -> tuple[float, float]:
        """From a win at the highest bid to one for nothing."""
        return min(0.0, self.worth - self.bid_max), self.worth
