"""Assumed demand: a family of distributions, or the prior between the bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray
from poolrl.geometry.resolution import BENCHMARK_BINS
from poolrl.problems.problem import OutcomeProblem
from poolrl.simulation.families import FAMILIES, TOP


@dataclass(frozen=True, eq=False)
class World:
    """Demand as probabilities (H, k, bins) of equal bins between zero and the public bound."""

    name: str
    probabilities: FloatArray

    def sample(self, problem: OutcomeProblem, count: int, rng: np.random.Generator) -> FloatArray:
        """Demand, or other outcomes, (count, H, k)."""
        drawn = np.stack([_draw(each, problem.outcome_high, count, rng) for each in self.probabilities], axis=1)
        return problem.arranged(drawn)


def _draw(probabilities: FloatArray, top: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """Amounts (count, k) from probabilities (k, bins), spread evenly inside their bins."""
    bins = probabilities.shape[-1]
    cumulative = np.cumsum(probabilities, axis=-1)
    chosen = [np.searchsorted(each / each[-1], rng.random(count), side="right") for each in cumulative]
    return np.asarray((np.stack(chosen, axis=-1).clip(0, bins - 1) + rng.random((count, len(top)))) * top / bins)


def worlds_of(problem: OutcomeProblem, demand: str, *, runs: int) -> list[World]:
    """Members of a family of demand, or of all five (`any`); `prior` is uniform between the bounds."""
    names = list(FAMILIES) if demand == "any" else ["uniform" if demand == "prior" else demand]
    shape = (problem.horizon, problem.outcome_dim)
    return [
        World(name, FAMILIES[name](np.random.default_rng([number, run]), shape).probabilities(TOP, BENCHMARK_BINS))
        for run in range(runs)
        for number, name in enumerate(names)
    ]
