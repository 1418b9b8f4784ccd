"""How wrong a forecast may be: the same fit again, on trees that are drawn from laws which are then known.

A few columns (label cells times products) are enough, because each of them errs on its own. Nothing is read but the
policy, and nothing is spent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.level_costs import best_costs, costs_of_levels
from poolrl.learning.outcomes import OutcomeDistribution, uniform_outcomes
from poolrl.learning.policy import Policy
from poolrl.learning.shops import plan_shops
from poolrl.pool import Pool
from poolrl.problems.inventory import Inventory
from poolrl.simulation.drawn_trees import TreeLaws, draw_trees
from poolrl.simulation.families import FAMILIES, TOP

# Columns times steps of one fit, which then takes a fraction of a second; more where the trees are coarse.
MOST_TREES, COARSE_LEVEL, MOST_COARSE_TREES = 24, 8, 420
# Finer levels of the trees hardly change how far a fit errs, and take most of its time.
FINEST_LEVEL = 16
# Fits on trees of the estimate itself.
REPETITIONS = 2
# Two shifts of each family, so that no member of it decides.
FAMILY_SEED = 18


@dataclass(frozen=True)
class Trial:
    """One fit on drawn trees: costs of each column (m,) by its own estimate, and by the laws that were drawn from."""

    policy: FloatArray
    true_policy: FloatArray
    best: FloatArray
    true_best: FloatArray
    free: FloatArray  # without any data

    @property
    def gap(self) -> float:
        """How much more the policy costs than knowing the laws."""
        return float(self.true_policy.sum() / self.true_best.sum() - 1) if self.true_best.sum() > 0 else 0.0

    @property
    def overestimate(self) -> float:
        """How much more the policy costs by its own estimate than by the laws."""
        return float(self.policy.sum() / self.true_policy.sum() - 1) if self.true_policy.sum() > 0 else 0.0

    @property
    def free_gap(self) -> float:
        """The same without data."""
        return float(self.free.sum() / self.true_best.sum() - 1) if self.true_best.sum() > 0 else 0.0


class Rehearsal:
    """Some columns of a policy as a shop of their own, without labels."""

    def __init__(self, policy: Policy, *, most_trees: int = MOST_TREES) -> None:
        problem, outcomes = policy.problem, policy.outcomes
        assert isinstance(problem, Inventory)
        assert outcomes is not None
        assert outcomes.slots is not None
        trees = policy.report.trees
        assert trees is not None
        self.sizes = tuple(size for size in trees.sizes if size <= FINEST_LEVEL) or trees.sizes[:1]
        self.variance = float(trees.variance)
        cells, horizon, products = problem.labels.count, problem.horizon, problem.products
        per_step = (cells, horizon, products)
        most = MOST_COARSE_TREES if self.sizes[-1] <= COARSE_LEVEL else most_trees
        count = min(max(1, most // horizon), cells * products)
        columns = np.random.default_rng(0).choice(cells * products, count, replace=False)
        cell, product = np.divmod(np.sort(columns), products)

        def taken(values: FloatArray) -> FloatArray:
            return np.ascontiguousarray(
                values.reshape(*per_step, *values.shape[len(problem.labels.shape) + 2 :])[cell, :, product].swapaxes(
                    0, 1
                )
            )

        bounds = problem.label_bounds.reshape(cells, products)[cell, product]
        self.shop = type(problem)(
            horizon=horizon,
            products=count,
            holding=taken(problem.holding),
            shortage=taken(problem.shortage),
            demand_max=bounds,
            boundary=problem.share[:, product],
            scale_profile=taken(problem.scale_profile),
        )
        self.points = outcomes.points.reshape(cells, products, -1)[cell, product]
        self.weights = taken(outcomes.weights)
        self.cutoffs = None if outcomes.cutoffs is None else taken(outcomes.cutoffs)
        self.slots = np.maximum(taken(outcomes.slots), 1.0)
        self._free = plan_shops(self.shop, uniform_outcomes(self.shop, self.weights.shape[-1]))

    def on_estimate(self, seed: int, *, variance: float | None = None) -> Trial:
        """A fit on trees of the policy's own estimate."""
        truth = OutcomeDistribution(self.points, self.weights, slots=self.slots)
        tops = (self.points[:, -1] + self.points[:, 0]) / self.shop.demand_max
        return self._trial(truth, TreeLaws(self.weights, self.cutoffs, tops), seed, variance)

    def on_families(self) -> Trial:
        """Fits where every column's demand is of another public family, and past orders are even up to λ.

        Where there are fewer columns than families, there are more fits. Data are worth nothing for some families.
        """
        columns = self.shop.products
        fits = [self._on_families(first) for first in range(0, len(FAMILIES), columns)]
        return Trial(*(np.concatenate([getattr(fit, each.name) for fit in fits]) for each in fields(Trial)))

    def _on_families(self, first: int) -> Trial:
        shape = (self.shop.horizon, self.shop.products)
        bins = self.weights.shape[-1]
        of_families = [
            FAMILIES[name](np.random.default_rng([FAMILY_SEED, first]), shape).probabilities(TOP, bins)
            for name in FAMILIES
        ]
        which = (first + np.arange(shape[1])) % len(of_families)
        weights = np.stack(of_families)[which, :, np.arange(shape[1])].swapaxes(0, 1)
        weights = weights / weights.sum(axis=-1, keepdims=True)
        points = (np.arange(bins) + 0.5) / bins * self.shop.demand_max[:, None]
        even = np.diff(np.minimum(np.arange(bins + 1) / bins / self.shop.share[..., None], 1.0), axis=-1)
        cutoffs = even if self.shop.censored else None
        laws = TreeLaws(weights, cutoffs, np.ones(shape[1]))
        return self._trial(OutcomeDistribution(points, weights, slots=self.slots), laws, first, None)

    def _trial(self, truth: OutcomeDistribution, laws: TreeLaws, seed: int, variance: float | None) -> Trial:
        noise = self.variance if variance is None else variance
        rng = np.random.default_rng([seed, len(self.points)])
        drawn = draw_trees(laws, self.slots, level_sizes=self.sizes, variance=noise, rng=rng)
        policy = Pool(1.0).prepare(self.shop).learn(drawn)
        assert policy.outcomes is not None
        return Trial(
            costs_of_levels(self.shop, policy.outcomes, policy.levels),
            costs_of_levels(self.shop, truth, policy.levels),
            best_costs(self.shop, policy.outcomes),
            best_costs(self.shop, truth),
            costs_of_levels(self.shop, truth, self._free),
        )


def relative_error(trials: list[Trial], of: Callable[[Trial], tuple[FloatArray, FloatArray]], columns: int) -> float:
    """The root mean square of (estimated − true) / true for a sum over so many columns.

    A part of the error is common to all columns, and the rest averages out.
    """
    pairs = [of(trial) for trial in trials]
    ratios = np.concatenate([np.log(np.maximum(a, 1e-12) / np.maximum(b, 1e-12)) for a, b in pairs])
    shares = np.concatenate([b for _, b in pairs])
    if shares.sum() <= 0:
        return 0.0
    common = float(np.average(ratios, weights=shares))
    spread = float(np.average((ratios - common) ** 2, weights=shares))
    return float(np.sqrt(common**2 + spread / columns))
