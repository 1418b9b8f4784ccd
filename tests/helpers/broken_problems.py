"""Problems whose formulas look at more than one row, or break another rule, and a log for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from poolrl import LostSales, Trajectories

FACTS: dict[str, Any] = {"horizon": 2, "products": 2, "holding": 0.1, "shortage": 0.4, "demand_max": 100.0}
LEVELS = (4, 8, 16)
ROWS = 2_000


class Shop(LostSales):
    """A shop of a user's own, which is fine."""


class DividesByTheLargest(LostSales):
    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        return seen / np.maximum(seen.max(), 1.0) * 100.0, cut


class LooksAtLargeBatches(LostSales):
    """What dummy rows alone would not show."""

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        return (seen * 0.5 if len(seen) > 1_000_000 else seen), cut


class SeesTheOrder(LostSales):
    def feasible(self, step: int, state: Any) -> Any:
        low, high = super().feasible(step, state)
        return np.minimum(low, np.roll(low, 1, axis=0)), high


class Remembers(LostSales):
    last = 0.0

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        self.last += 1.0
        return np.minimum(seen + self.last, 100.0), cut


class DrawsLots(LostSales):
    def next_state(self, step: int, state: Any, action: Any, outcome: Any) -> Any:
        return super().next_state(step, state, action, outcome) * np.random.default_rng().uniform()


class WritesIntoItsArguments(LostSales):
    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        found = super().observe(step, state, action, next_state)
        next_state[..., 0] = 0.0
        return found


class CountsRows(LostSales):
    def seen_coordinates(self, step: int, state: Any, action: Any) -> Any:
        return super().seen_coordinates(step, state, action) & (np.cumsum(np.ones_like(state), axis=0) < 5)


class MeasuresInItsOwnUnits(LostSales):
    def unit_state(self, state: Any) -> Any:
        return (state - state.min()) / 100.0


class HasNoShape(LostSales):
    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        return super().observe(step, state, action, next_state)[0]


class SaysMaybe(LostSales):
    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        seen, cut = super().observe(step, state, action, next_state)
        return seen, cut * 0.5


BROKEN: dict[type[LostSales], str] = {
    DividesByTheLargest: r"observe\(\) of DividesByTheLargest must treat each row by itself, but a sum, mean",
    LooksAtLargeBatches: r"observe\(\) .* each row by itself, but the length of a batch is asked for",
    SeesTheOrder: r"feasible\(\) .* each row by itself, but np.roll is not known",
    Remembers: r"observe\(\) .* must give for each row what its recorded operations give",
    DrawsLots: r"next_state\(\) .* must give for each row what its recorded operations give",
    WritesIntoItsArguments: r"observe\(\) .* each row by itself, but 'Symbol' object does not support item assignment",
    CountsRows: r"seen_coordinates\(\) .* must give for each row what its recorded operations give",
    MeasuresInItsOwnUnits: r"unit_state\(\) .* each row by itself",
    HasNoShape: r"observe\(\) .* must return 2 arrays",
    SaysMaybe: r"observe\(\) .* must return truth values",
}


def a_log(problem: LostSales | None = None, rows: int = ROWS) -> Trajectories:
    """On quarters, so that 17.25 is among the sales."""
    rng = np.random.default_rng(0)
    wanted = rng.integers(0, 400, (rows, 2, 2)) / 4.0
    return (problem or LostSales(**FACTS)).simulate_log(wanted, rng=rng)


def neighbour(log: Trajectories) -> Trajectories:
    """One trajectory becomes another."""
    parts = {name: getattr(log, name).copy() for name in ("states", "actions", "next_states")}
    parts["states"][0], parts["actions"][0], parts["next_states"][0] = 0.0, 17.25, 0.0
    parts["next_states"][0, 0] = 0.0
    return Trajectories(**parts)


class Untouched:
    """Stands in the place of a log that must not be looked at; a `Trajectories` by type, with nothing inside."""

    @staticmethod
    def log() -> Trajectories:
        return Trajectories.__new__(Trajectories)
