"""What the paper proves, beside what can be measured: its bounds with the errors that they bound, and ρ-zCDP.

Õ hides constants and logarithms: the bounds take the hidden constant as one. Rewards lie in [0, 1] at each step, so no
policy can lose more than H. The proof of a Gaussian release rests on two facts: how far one trajectory moves the
counts, and how much noise is drawn. Both are measured here on the real code path; `poolrl audit` attacks the complete
release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from poolrl.checks import FloatArray, IntArray, positive
from poolrl.data.trajectories import Trajectories
from poolrl.geometry.partition import Zones
from poolrl.privacy import sensitivity
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.noise.source import Sampler
from poolrl.privacy.release import release_outcomes, release_visits
from poolrl.privacy.released import PrivateOutcomes, PrivateVisits
from poolrl.privacy.zcdp import budget, noise_bound
from poolrl.problems.inventory import LostSales
from poolrl.simulation.logs import simulate_log

RINGS, BINS, LOG_SIZE = 20, 64, 50
PROBLEM = LostSales(horizon=5, holding=0.2, shortage=0.3, demand_max=100.0)


@dataclass(frozen=True)
class Sizes:
    """What the bounds depend on."""

    horizon: int  # H
    state_dim: int  # w
    action_dim: int  # d
    zones: int  # M
    rho: float
    failure: float = 0.05  # δ

    @property
    def dimensions(self) -> int:
        """w + d."""
        return self.state_dim + self.action_dim

    @property
    def noise_bound(self) -> float:
        """E_ρ = 4 √(H log(4 H M² w (w + d) / δ) / ρ)."""
        cells = self.horizon * self.zones**2 * self.state_dim * self.dimensions
        return noise_bound(variance=2 * self.horizon / self.rho, cells=cells, failure=self.failure)


def approximation_bound(sizes: Sizes, *, lipschitz: float, boundary_norm: float) -> float:
    """Theorem 1 at the first step: L₁ √(w + d) / M + L₁ |w + d − ‖λ‖₂|, with L₁ = H L.

    Even where everything is observed the second term is not zero: ‖(1, …, 1)‖₂ = √(w + d) < w + d.
    """
    first = sizes.horizon * lipschitz
    return first * math.sqrt(sizes.dimensions) / sizes.zones + first * abs(sizes.dimensions - boundary_norm)


def optimality_bound(sizes: Sizes, *, trajectories: int, lipschitz: float, boundary_norm: float) -> float:
    """The appendix's bound on v* − v^π̃, at its most favourable.

    4√2 Σ_h √(Var ι / (n d̄)) + (H³ + M w H² E_ρ) / (n d̄) + Theorem 1's two terms, with ι = log(H M (w + d) / δ).
    d̄ has its best possible value: all M(w + d) nodes visited equally often. Var is taken as (H − h)² / 4, the most it
    can be.
    """
    nodes = sizes.zones * sizes.dimensions
    visits = trajectories / nodes
    iota = math.log(sizes.horizon * nodes / sizes.failure)
    spread = sum(left / 2 for left in range(sizes.horizon)) * math.sqrt(iota / visits)
    rest = sizes.horizon**3 + sizes.zones * sizes.state_dim * sizes.horizon**2 * sizes.noise_bound
    approximation = approximation_bound(sizes, lipschitz=lipschitz, boundary_norm=boundary_norm)
    return 4 * math.sqrt(2) * spread + rest / visits + approximation


def sample_size(sizes: Sizes, *, accuracy: float) -> float:
    """Theorem 2's n = (1 + E_ρ) H³ / α². (Its statement prints α⁻¹; the proof and the rest of the paper have α⁻².)"""
    positive(accuracy=accuracy)
    return (1 + sizes.noise_bound) * sizes.horizon**3 / accuracy**2


def zone_count(sizes: Sizes, *, accuracy: float, lipschitz: float) -> float:
    """The M that Theorem 2 asks for: L₁ √(w + d) / α."""
    return sizes.horizon * lipschitz * math.sqrt(sizes.dimensions) / accuracy


def measured_approximation(products: int, zones: int, *, rng: np.random.Generator) -> tuple[float, float]:
    """The largest |Q̲ − Q̄| over random feasible pairs in one step of lost sales, and the reward's Lipschitz constant.

    h = b = 1 for every product, D ~ U[0, 1]: the expected virtual reward is known at every pair, so that the error
    comes from reading between the nodes alone. The constant is the usual one (norm of the difference).
    """
    problem = LostSales(horizon=1, products=products, holding=1.0, shortage=1.0, demand_max=1.0)
    partition = Zones(zones).partition(problem)
    low, high = problem.reward_range(0)

    def reward(action: FloatArray) -> FloatArray:
        """E[−(y − D)⁺ + min(y, D)] = Σ y − y², scaled to [0, 1]."""
        return ((action - action**2).sum(axis=-1) - low) / (high - low)

    at_nodes = reward(problem.natural_pair(partition.pairs[0].points)[1])
    state = rng.uniform(0, 1, (20_000, products))
    action = rng.uniform(state, 1.0)
    read = partition.read(0, at_nodes, state, action)
    # |∇ Σ y − y²| ≤ √k on the cube, divided by the range 2k.
    return float(np.abs(read - reward(action)).max()), math.sqrt(products) / (high - low)


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
    partition, sizes = Zones(RINGS).partition(PROBLEM), sensitivity.every_level(BINS)

    def outcomes(log: Trajectories, noise: _Recorder) -> PrivateOutcomes:
        return release_outcomes(log, PROBLEM, level_sizes=sizes, rho=budget(rho), noise=noise)

    def visits(log: Trajectories, noise: _Recorder) -> PrivateVisits:
        released = release_visits(log, PROBLEM, partition, rho=budget(rho), noise=noise)
        for step in range(PROBLEM.horizon):
            released.transitions(step, np.arange(partition.pair_count))
        return released

    evidence = []
    for learner, release in (("Pool.published", visits), ("Pool (default)", outcomes)):
        change, composed = 0.0, 0.0
        drawn: list[FloatArray] = []
        for _ in range(pairs):
            recorders = _Recorder(), _Recorder()
            released = [release(log, noise) for log, noise in zip(_neighbours(rng), recorders, strict=True)]
            tables = zip(*(recorder.tables for recorder in recorders), strict=True)
            moved = sum(int(((one - other) ** 2).sum()) for one, other in tables)
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
        evidence.append(Evidence(learner, pairs, change, len(squares), interval, rho, composed))
    return evidence


def change_by_replay() -> float:
    """‖Δ counts‖² / Δ₂² if a trajectory were counted at every node that it informs, with Δ₂² as printed.

    One row below λ is an observation of every node below λ. The claimed sample complexity rests on that. Here two
    trajectories, one with the least demand and one with the most, are followed from every node.
    """
    partition = Zones(RINGS).partition(PROBLEM)
    moved = 0
    for step in range(PROBLEM.horizon):
        state, action = PROBLEM.natural_pair(partition.pairs[step].points)
        arrived = (PROBLEM.next_state(step, state, action, np.full(1, demand)) for demand in (0.0, 100.0))
        least, most = map(partition.state_index, arrived)
        moved += 2 * int((least != most).sum())
    nodes = {"pairs": partition.pair_count, "states": partition.state_count}
    visits, _ = sensitivity.visit_tables(PROBLEM, **nodes, per_unit=1)
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
    parts = ("states", "actions", "next_states")
    states, actions, after = (np.concatenate([getattr(other, part), getattr(log, part)[1:]]) for part in parts)
    return log, Trajectories(states=states, actions=actions, next_states=after)
