"""Rounds in which one amount is named, and a count goes down by one or stays: lots to sell, wins that are wanted.

state  n = 0 .. N, what is left        action  a, a price, a reserve or a bid        n′ = n − 1 if the round succeeds
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from poolrl.checks import BoolArray, FloatArray, public_array, whole
from poolrl.problems.labels import Labels
from poolrl.problems.problem import Boundary, OutcomeProblem, Side

# A plan has a decision for each of both, and a file must not ask for more than memory holds.
MOST_COUNTED = 1_000


class Rounds(OutcomeProblem):
    """What auctions and posted prices share. `most` bounds all amounts, in the user's units or multiples of a scale."""

    counts_down = True
    count_name: ClassVar[str]  # of the fact that says how many lots, units or wins there are

    def __init__(
        self,
        *,
        horizon: int,
        count: int,
        most: float,
        outcomes: int,
        side: Side,
        labels: Mapping[str, Iterable[Any]] | None,
    ) -> None:
        whole(horizon=horizon)
        public_array("the largest amount", most, ())
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
        """What each counted row adds to the reward, (k, B) for rows that are not cut off and for those that are.

        `seen` and `tried` (k, B) are the mean outcome and the mean tried amount of each bin. None where counts do not
        tell what was earned.
        """
        return None

    def succeeded(self, state: FloatArray, next_state: FloatArray) -> BoolArray:
        """Whether the count went down, (..., 1)."""
        return next_state[..., :1] <= state - 0.5

    def seen_coordinates(self, step: int, state: FloatArray, action: FloatArray) -> BoolArray:
        """A round takes place while anything is left. Otherwise nothing is seen."""
        takes_place = state >= 0.5
        return takes_place if self.outcome_dim == 1 else np.concatenate([takes_place] * self.outcome_dim, axis=-1)

    def feasible(self, step: int, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Any amount."""
        return state * 0.0 + self.action_low, state * 0.0 + self.action_high

    def _facts(self, **own: Any) -> dict[str, Any]:
        """The constructor's arguments: enough to build the problem again."""
        labels = {"labels": self.labels.facts()} if self.labels else {}
        return {"kind": type(self).__name__, "horizon": self.horizon, **own, **labels}
