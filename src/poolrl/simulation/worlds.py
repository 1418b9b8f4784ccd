"""Assumed demand: a family of distributions, the prior between the bounds, or a released estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray
from poolrl.geometry.resolution import BENCHMARK_BINS
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.problems.inventory import Behaviour, Inventory
from poolrl.simulation.families import FAMILIES, TOP


@dataclass(frozen=True, eq=False)
class World:
    """Demand as probabilities (H, k, bins) of equal bins between zero and the public bound.

    `orders` is the distribution of past order-up-to levels in the same form; by default it is uniform up to λ.
    """

    name: str
    probabilities: FloatArray
    orders: FloatArray | None = None

    def sample(self, problem: Inventory, count: int, rng: np.random.Generator) -> FloatArray:
        """Demand (count, H, k)."""
        return np.stack([_draw(each, problem.demand_max, count, rng) for each in self.probabilities], axis=1)

    def behaviour(self, problem: Inventory) -> Behaviour | None:
        """Past orders as a policy, or None for the default of a simulated log."""
        orders = self.orders
        if orders is None:
            return None
        return lambda step, stock, rng: np.maximum(stock, _draw(orders[step], problem.demand_max, len(stock), rng))


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


def estimated_world(outcomes: OutcomeDistribution) -> World:
    """The demand and the past orders that a fit has estimated."""
    weights = outcomes.weights / outcomes.weights.sum(axis=-1, keepdims=True)
    return World("estimate", weights, outcomes.cutoffs)
