"""Assumed demand: a family of distributions, or the prior between the bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray
from poolrl.geometry.resolution import BENCHMARK_BINS
from poolrl.problems.inventory import Inventory
from poolrl.simulation.families import FAMILIES, TOP


@dataclass(frozen=True, eq=False)
class World:
    """Demand as probabilities (H, k, bins) of equal bins between zero and the public bound."""

    name: str
    probabilities: FloatArray

    def sample(self, problem: Inventory, count: int, rng: np.random.Generator) -> FloatArray:
        """Demand (count, H, k)."""
        return np.stack([_draw(each, problem.demand_max, count, rng) for each in self.probabilities], axis=1)


def _draw(probabilities: FloatArray, top: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """Amounts (count, k) from probabilities (k, bins), spread evenly inside their bins."""
    bins = probabilities.shape[-1]
    cumulative = np.cumsum(probabilities, axis=-1)
    chosen = [np.searchsorted(each / each[-1], rng.random(count), side="right") for each in cumulative]
    return np.asarray((np.stack(chosen, axis=-1).clip(0, bins - 1) + rng.random((count, len(top)))) * top / bins)


def worlds_of(problem: Inventory, demand: str, *, runs: int) -> list[World]:
    """Members of a family of demand, or of all five (`any`); `prior` is uniform between the bounds."""
    names = list(FAMILIES) if demand == "any" else ["uniform" if demand == "prior" else demand]
    shape = (problem.horizon, problem.products)
    return [
        World(name, FAMILIES[name](np.random.default_rng([number, run]), shape).probabilities(TOP, BENCHMARK_BINS))
        for run in range(runs)
        for number, name in enumerate(names)
    ]
