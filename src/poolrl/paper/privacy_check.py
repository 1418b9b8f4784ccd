"""Does ρ-zCDP hold? How far one trajectory moves the counts, and how much noise is drawn, on the real code path.

The proof of a Gaussian release rests on these two facts. `poolrl audit` attacks the complete release.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.data.trajectories import Trajectories
from poolrl.geometry.zones import Zones
from poolrl.privacy import sensitivity
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.noise.source import Sampler
from poolrl.privacy.release import release_outcomes, release_visits
from poolrl.privacy.released import PrivateOutcomes, PrivateVisits
from poolrl.privacy.sensitivity import every_level
from poolrl.privacy.zcdp import budget
from poolrl.problems.inventory import LostSales
from poolrl.simulation.logs import simulate_log

RINGS, BINS, LOG_SIZE = 20, 64, 50
PROBLEM = LostSales(horizon=5, holding=0.2, shortage=0.3, demand_max=100.0)


@dataclass(frozen=True)
class Evidence:
    """For one learner: over pairs of neighbouring logs, and over all noise that was drawn."""

    learner: str
    pairs: int
    largest_change: float  # of ‖Δ counts‖² / Δ₂², summed over the mechanisms as the budget is; at most 1
    draws: int
    noise_ratio: tuple[float, float]  # 99.99% interval of the drawn noise's variance over the variance paid for
    claimed: float
    composed: float  # Σ Δ₂² / 2σ² of the mechanisms, exact

    @property
    def holds(self) -> bool:
        """No pair moved further than was paid for, the noise is as large as claimed, the budgets add up."""
        return self.largest_change <= 1 and self.noise_ratio[1] >= 1 and self.composed == self.claimed


@dataclass
class _Recorder:
    """Exact noise, with a record of what it was added to and what it was."""

    tables: list[IntArray] = field(default_factory=list)
    noise: list[IntArray] = field(default_factory=list)

    def begin(self) -> Sampler:
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        noisy = SecureNoise().begin().add(counts, variance)
        self.tables.append(counts)
        self.noise.append((noisy - counts).ravel())
        return noisy


def privacy_evidence(*, pairs: int = 20, rho: float = 1.0) -> list[Evidence]:
    """Neighbouring logs at random and at the extremes, through both releases."""
    rng = np.random.default_rng(0)
    partition = Zones(RINGS).partition(PROBLEM)

    def outcomes(log: Trajectories, noise: _Recorder) -> PrivateOutcomes:
        return release_outcomes(log, PROBLEM, level_sizes=every_level(BINS), rho=budget(rho), noise=noise)

    def visits(log: Trajectories, noise: _Recorder) -> PrivateVisits:
        released = release_visits(log, PROBLEM, partition, rho=budget(rho), noise=noise)
        for step in range(PROBLEM.horizon):
            released.transitions(step, np.arange(partition.pair_count))
        return released

    found = []
    for learner, release in (("Pool.published", visits), ("Pool (default)", outcomes)):
        change, composed = 0.0, 0.0
        drawn: list[FloatArray] = []
        for _ in range(pairs):
            logs = _neighbours(rng)
            recorders = _Recorder(), _Recorder()
            released = [release(log, noise) for log, noise in zip(logs, recorders, strict=True)]
            moved = sum(
                int(((a - b) ** 2).sum()) for a, b in zip(recorders[0].tables, recorders[1].tables, strict=True)
            )
            mechanisms = released[0].guarantee.mechanisms
            change = max(change, moved / float(sum(m.sensitivity_squared for m in mechanisms)))
            # Against what the guarantee states, not against what the sampler was called with.
            stated = [float(m.variance) for m in mechanisms]
            for recorder in recorders:
                drawn += [noise**2 / stated[min(n, len(stated) - 1)] for n, noise in enumerate(recorder.noise)]
            composed = released[0].guarantee.rho
        squares = np.concatenate(drawn)
        # A wide interval, because the noise is not seeded: a correct release must not fail once in forty times.
        margin = 3.9 * squares.std() / np.sqrt(len(squares))
        interval = float(squares.mean() - margin), float(squares.mean() + margin)
        found.append(Evidence(learner, pairs, change, len(squares), interval, rho, composed))
    return found


def change_by_replay() -> float:
    """‖Δ counts‖² / Δ₂² if a trajectory were counted at every node that it informs, with Δ₂² as printed.

    One row below λ is an observation of every node below λ. The claimed sample complexity rests on that. Here two
    trajectories, one with the least demand and one with the most, are followed from every node.
    """
    partition = Zones(RINGS).partition(PROBLEM)
    moved = 0
    for step in range(PROBLEM.horizon):
        state, action = PROBLEM.natural_pair(partition.pairs[step].points)
        least, most = (
            partition.state_index(PROBLEM.next_state(step, state, action, np.full(1, demand)))
            for demand in (0.0, 100.0)
        )
        moved += 2 * int((least != most).sum())
    counts = {"pairs": partition.pair_count, "states": partition.state_count}
    visits, _ = sensitivity.visit_tables(PROBLEM, **counts, per_unit=1)
    return moved / float(visits.sensitivity_squared)


def _neighbours(rng: np.random.Generator) -> tuple[Trajectories, Trajectories]:
    """Two logs that differ in one trajectory: a random one, or one at an end of what is possible."""
    shape = (PROBLEM.horizon, 1)
    log = simulate_log(PROBLEM, rng.uniform(0, 100, (LOG_SIZE, *shape)), rng=rng)
    kind = rng.integers(3)
    if kind < 2:  # a shop that orders everything and sells nothing, or all of it
        demand = np.full((1, *shape), 100.0 * kind)
        other = simulate_log(PROBLEM, demand, rng=rng, behaviour=lambda step, stock, rng: np.full_like(stock, 100.0))
    else:
        other = simulate_log(PROBLEM, rng.uniform(0, 100, (1, *shape)), rng=rng)
    states, actions, next_states = (
        np.concatenate([getattr(other, name), getattr(log, name)[1:]]) for name in ("states", "actions", "next_states")
    )
    return log, Trajectories(states=states, actions=actions, next_states=next_states)
