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


def estimated_world(problem: Inventory, outcomes: OutcomeDistribution) -> World:
    """The demand and the past orders that a fit without labels has estimated."""
    orders = None if outcomes.cutoffs is None else _up_to_the_bound(problem, outcomes.points, outcomes.cutoffs)
    return World("estimate", _up_to_the_bound(problem, outcomes.points, outcomes.weights), orders)


def _up_to_the_bound(problem: Inventory, points: FloatArray, weights: FloatArray) -> FloatArray:
    """Weights (H, k, B) on equal bins of each product's own range, moved to equal bins up to the public bound."""
    bins = points.shape[-1]
    below = np.concatenate([np.zeros_like(weights[..., :1]), np.cumsum(weights, axis=-1)], axis=-1)
    found = np.empty_like(weights)
    for i, top in enumerate(problem.demand_max):
        edges = np.linspace(0.0, points[i, -1] + points[i, 0], bins + 1)
        wanted = np.linspace(0.0, top, bins + 1)
        found[:, i] = [np.diff(np.interp(wanted, edges, step) / step[-1]) for step in below[:, i]]
    return found
