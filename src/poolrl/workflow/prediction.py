"""What a budget would buy, by simulation: demand that somebody assumes, logs drawn from it, fits with seeded noise.

No row of a log is read here. A world is public: a family of distributions, or the prior between the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from poolrl.checks import FloatArray
from poolrl.data.trajectories import Trajectories
from poolrl.pool import Pool
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import OutcomeProblem
from poolrl.simulation.evaluation import data_free, expected_costs, optimum
from poolrl.simulation.logs import simulate_log
from poolrl.simulation.worlds import World

SLIDER_BUDGETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SIZES = (30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


@dataclass(frozen=True)
class Prediction:
    """Mean costs per trajectory of one simulated fit, product by product (k,)."""

    world: str
    rho: float
    units: int
    costs: FloatArray
    best: FloatArray  # of somebody who knows the demand
    free: FloatArray  # of somebody who knows only the bounds

    @property
    def cost(self) -> float:
        """Over all products."""
        return float(self.costs.sum())

    @property
    def gap(self) -> float:
        """(c − c*) / c*."""
        return _gap(self.costs, self.best)

    @property
    def free_gap(self) -> float:
        """The same without any data."""
        return _gap(self.free, self.best)


@dataclass(frozen=True)
class AssumedLog:
    """What is assumed of a log: its units, and how many trajectories one may own.

    `owned` is how many a unit does own; the places it leaves empty bring noise and no observation.
    """

    units: int
    per_unit: int = 1
    owned: int | None = None

    @property
    def filled(self) -> int:
        """Trajectories of one unit that are used."""
        return min(self.per_unit, self.owned or self.per_unit)


class Simulator:
    """Simulated shops with the public facts of one problem. Nothing here is private, and nothing sensitive is read."""

    def __init__(self, problem: Inventory) -> None:
        self.problem = problem
        self._free = data_free(problem).levels
        self._best: dict[World, FloatArray] = {}

    def predict(self, world: World, log: AssumedLog, budgets: Sequence[float], *, seed: int) -> Iterator[Prediction]:
        """One simulated log, fitted at each budget; the seed makes both the log and the noise."""
        problem, rng = self.problem, np.random.default_rng([seed, log.units, log.per_unit])
        demand = world.sample(problem, log.units * log.filled, rng)
        simulated = simulate_log(problem, demand, rng=rng)
        if log.per_unit > 1:
            simulated = Trajectories(
                states=simulated.states,
                actions=simulated.actions,
                next_states=simulated.next_states,
                unit=np.repeat(np.arange(log.units), log.filled),
                max_per_unit=log.per_unit,
            )
        for number, rho in enumerate(budgets):
            policy = Pool(rho).fit(problem, simulated, noise=SeededNoise(seed * 1_000 + number))
            yield Prediction(
                world.name,
                rho,
                log.units,
                self._costs(policy.levels, world),
                self._costs(self.best_levels(world), world),
                self._costs(self._free, world),
            )

    def best_levels(self, world: World) -> FloatArray:
        """What somebody who knows the demand would order, also beyond λ."""
        if world not in self._best:
            self._best[world] = optimum(self.problem.without_boundary(), world.probabilities).levels
        return self._best[world]

    def _costs(self, levels: FloatArray, world: World) -> FloatArray:
        return expected_costs(self.problem, levels, world.probabilities)


# Rows times products of one simulated log, so that it fits into memory.
LARGEST_LOG = 20_000_000


def most_units(problem: OutcomeProblem, per_unit: int) -> int:
    """The largest log that can be simulated here."""
    return max(1, LARGEST_LOG // (problem.horizon * problem.outcome_dim * per_unit))


def runs_for(problem: OutcomeProblem, trajectories: int, *, fits: int, least: int = 1, most: int = 8) -> int:
    """How often to repeat a simulation so that it stays a matter of seconds."""
    rows = trajectories * problem.horizon * problem.outcome_dim * fits
    return max(least, min(most, 40_000_000 // rows))


def units_needed(gaps: Sequence[tuple[int, float]], target: float) -> float | None:
    """Where the gap, linear between sizes on logarithmic axes, first falls to the target; None if it never does."""
    for (size, gap), (larger, smaller) in pairwise(gaps):
        if gap <= target:
            return float(size)
        if smaller <= target:
            tiny = 1e-12
            part = np.log(gap / target) / np.log(max(gap, tiny) / max(smaller, tiny))
            return float(size * (larger / size) ** part)
    return float(gaps[-1][0]) if gaps and gaps[-1][1] <= target else None


def _gap(costs: FloatArray, best: FloatArray) -> float:
    """NaN where knowing the demand costs nothing, for then there is no ratio."""
    return float(costs.sum() / best.sum() - 1) if best.sum() > 0 else math.nan


# Where noise takes more than this share of what data could save, a budget should not be spent.
NOISE_DOMINATED = 0.25


def noise_share_of_gain(gap: float, free_gap: float) -> float:
    """How much of what data could save is lost: 0 is nothing, 1 is as bad as no data."""
    return gap / free_gap if free_gap > 0 else 0.0


def signed_percent(gap: float) -> str:
    """A gap for people."""
    return f"{gap:+.1%}" if math.isfinite(gap) else "n/a"
