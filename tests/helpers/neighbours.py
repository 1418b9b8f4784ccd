"""Neighbouring logs, and how far one unit moves the exact tables that a release adds noise to."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from poolrl import Backlog, LostSales, Trajectories
from poolrl.checks import FloatArray, IntArray


@dataclass
class Recorder:
    """A noise source that adds nothing and remembers what it was given: the exact tables and their variance."""

    tables: list[IntArray] = field(default_factory=list)
    variances: list[Fraction] = field(default_factory=list)

    def begin(self) -> Recorder:
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        self.tables.append(counts.copy())
        self.variances.append(variance)
        return counts


def squared_change(first: Recorder, second: Recorder) -> list[int]:
    """The squared distance between two releases, table by table."""
    return [int(((a - b) ** 2).sum()) for a, b in zip(first.tables, second.tables, strict=True)]


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[LostSales | Backlog, Trajectories, Trajectories]:
    """Two logs that differ in one unit, which may own 1 to 4 trajectories of which max_per_unit count."""
    horizon, products = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kind = draw(st.sampled_from([LostSales, Backlog]))
    share = draw(st.sampled_from([1.0, 0.6]))
    problem = kind(horizon=horizon, products=products, holding=1, shortage=1, demand_max=10.0, boundary=share)
    cap, units = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**32 - 1))
    # Whole numbers meet bin edges, the boundary and zero stock far more often than reals do.
    rng, whole = np.random.default_rng(seed), draw(st.booleans())
    owned = [draw(st.integers(1, 4)) for _ in range(units + 1)]

    def rows(count: int) -> list[FloatArray]:
        x = rng.uniform(problem.state_low, 10, (count, horizon, products))
        y = rng.uniform(np.maximum(x, 0), 10)
        demand = rng.uniform(0, 10, y.shape)
        if whole:
            x, y, demand = np.floor(x), np.ceil(y), np.floor(demand)
        left = problem.next_state(0, x, y, demand)
        return [x, y, left]

    parts = [rows(count) for count in owned]

    def log(members: list[int]) -> Trajectories:
        x, y, left = (np.concatenate([parts[i][j] for i in members]) for j in range(3))
        unit = np.repeat(np.arange(len(members)), [owned[i] for i in members])
        return Trajectories(states=x, actions=y, next_states=left, unit=unit, max_per_unit=cap)

    common = list(range(units - 1))
    return problem, log([*common, units - 1]), log([*common, units])
