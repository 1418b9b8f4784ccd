"""A toy trade in one file: a garage opens parking places for guests, and lets the others to neighbours.

Guests who find no place drive on, and nobody counts them. Half of those who are there stay until the next day.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from poolrl import Boundary, SeparableProblem, TableColumn, Words, simulate_log
from poolrl.workflow.trades.trade import Trade

STAY = 0.5


class Parking(SeparableProblem):
    """Up to `places` places: a guest brings `fee` a day, and an open place costs the `rent` of a neighbour."""

    example: ClassVar[Mapping[str, Any]] = {"horizon": 3, "places": 20, "come_max": 24, "fee": 3.0, "rent": 1.0}
    costs = ("fee", "rent")

    def __init__(self, *, horizon: int, places: int, come_max: float, fee: float = 3.0, rent: float = 1.0) -> None:
        self.horizon, self.places, self.come_max, self.fee, self.rent = horizon, places, come_max, fee, rent
        self.state_low = self.action_low = self.outcome_low = self.initial_state = np.zeros(1)
        self.state_high, self.action_high = np.full(1, STAY * places), np.full(1, float(places))
        self.outcome_high = np.full(1, float(come_max))
        self.boundary = Boundary(np.ones((horizon, 2)))

    def facts(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = ("horizon", "places", "come_max", "fee", "rent")
        return {"kind": "Parking"} | {name: getattr(self, name) for name in names}

    def feasible(self, step: int, state: Any) -> Any:
        """Guests who stay keep their places."""
        return state, state * 0.0 + self.action_high

    def next_state(self, step: int, state: Any, action: Any, outcome: Any) -> Any:
        """Half of those who found a place stay."""
        return STAY * np.minimum(action, state + outcome)

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        """The guests who came, cut off where the garage was full."""
        there = next_state / STAY
        return np.clip(there - state, self.outcome_low, self.outcome_high), there >= action - 1e-9

    def coordinate_reward(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        """Fees, less the rent of open places."""
        return self.fee * next_state / STAY - self.rent * action

    def reward_range(self, step: int) -> tuple[float, float]:
        """From an empty garage to a full one."""
        return -self.rent * self.places, self.fee * self.places


class ParkingTrade(Trade):
    """What garages say, and a table of one to try things on."""

    def example(self, folder: Path) -> dict[str, dict[str, Any]]:
        """A garage of which nobody knew how many guests would come."""
        problem, rng = Parking(**Parking.example), np.random.default_rng(1)
        log = simulate_log(problem, rng.poisson(7, (400, 3, 1)).clip(0, 24).astype(float), rng=rng)
        with (folder / "garage.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["week", "day", "parked", "opened", "entered"])
            for week, day in np.ndindex(400, 3):
                parked, opened, after = (part[week, day, 0] for part in (log.states, log.actions, log.next_states))
                writer.writerow([week, day + 1, parked, opened, after / STAY - parked])
        return {
            "problem": {"kind": self.kind, **Parking.example},
            "log": {"source": "garage.csv", "trajectory": "week", "step": "day", "first_step": 1},
            "privacy": {
                "protects": "one week",
                "rho": 1.0,
                "budget": 3.0,
                "data_set": "the garage",
                "ledger": "ledger.sqlite",
            },
            "plan": {"units": 400},
        }


PARKING = ParkingTrade(
    "parking",
    Parking,
    Words(
        decision="open places",
        decisions="numbers of open places",
        past="numbers of open places",
        outcome="guests",
        states=("parked",),
        trajectory="week",
        step="day",
        logged="open places and guests",
        earned="fees less rent",
        advice="Keep this many places open.",
        keys={
            "horizon": "days of a week",
            "places": "places of the garage",
            "come_max": "no more guests come in a day",
            "fee": "what a guest pays for a day",
            "rent": "what a neighbour would pay for an open place",
        },
        columns=(
            TableColumn("parked"),  # guests who are still there in the morning
            TableColumn("opened"),  # places that were open to guests
            TableColumn("entered"),  # guests who came and found a place
        ),
        rows=(("{parked}",), ("{opened}",), (f"{STAY} * ({{parked}} + {{entered}})",)),
    ),
)
