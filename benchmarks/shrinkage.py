"""Does learned shrinkage pay? The default against fixed spreads, over families, sizes and budgets.

    python -m benchmarks.shrinkage    about four minutes

Fixed: every split of a tree is shrunk towards that of all steps with prior standard deviation 0.2, and this towards the
public prior with 0.5; always 256 bins. Learned (the default): spreads by empirical Bayes, products share information,
the prior keeps its posterior probability, bins follow from public quantities. H = 10, lost sales, seeded noise; gap to
the exact optimum in percent, mean over 4 seeds; "free" is the data-free policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from poolrl import LostSales, Policy, Pool, SeededNoise, Separable, Trajectories, data_free
from poolrl.checks import FloatArray
from poolrl.learning.outcomes import OutcomeDistribution, bin_middles, kaplan_meier, prior_masses
from poolrl.learning.planning import plan_on_outcomes
from poolrl.learning.trees import NodeEstimate, Shrinkage, consistent_masses
from poolrl.privacy.release import release_outcomes
from poolrl.privacy.sensitivity import every_level
from poolrl.privacy.zcdp import budget
from poolrl.simulation.evaluation import optimum, rollout_cost
from poolrl.simulation.families import FAMILIES, TOP

HORIZON, SEEDS, BINS = 10, 4, 256
CELLS = [(k, n, rho) for k in (1, 8) for n, rho in ((1000, 1.0), (1000, 0.1), (1000, 0.01), (60, 0.1), (60, 0.01))]


@dataclass(frozen=True)
class FixedShrinkage(Shrinkage):
    """Spreads that are given, not learned."""

    def split(
        self, parent: FloatArray, left: NodeEstimate, right: NodeEstimate, *, prior_share: FloatArray
    ) -> tuple[FloatArray, float]:
        """m_l = clip(g x + (1 − g) θ m, 0, m), first on the mean over steps, then step by step."""
        x = left[0] + (parent - left[0] - right[0]) / 2
        variance = (left[1] + right[1]) / 4

        def share(m: FloatArray, x: FloatArray, v: float, centre: FloatArray, spread: float) -> FloatArray:
            gain = (m * spread) ** 2 / ((m * spread) ** 2 + v)
            return np.clip(gain * x / np.maximum(m, 1e-12) + (1 - gain) * centre, 0.0, 1.0)

        pooled = share(parent.mean(axis=0), x.mean(axis=0), variance / len(parent), prior_share, self.spread)
        return parent * share(parent, x, variance, pooled, self.step_spread), math.inf


def fixed(problem: LostSales, log: Trajectories, rho: float, seed: int) -> Policy:
    """The same release and planning with fixed spreads."""
    released = release_outcomes(log, problem, level_sizes=every_level(BINS), rho=budget(rho), noise=SeededNoise(seed))
    prior = prior_masses(kinds=2, bins=BINS)
    weights = kaplan_meier(consistent_masses(released, prior, FixedShrinkage(0.5, 0.2)), prior)
    outcomes = OutcomeDistribution(bin_middles(problem, BINS), weights)
    rule, report = plan_on_outcomes(outcomes, Separable().axes(problem))
    return Policy(problem, rule, released.guarantee, report)


def gaps(products: int, family: str, seed: int) -> dict[tuple[int, int, float], list[float]]:
    """Learned, fixed and free for every cell of one shop, in percent."""
    shape = (HORIZON, products)
    rng = np.random.default_rng([seed, products])
    costs = {"holding": rng.uniform(0, 0.5, shape), "shortage": rng.uniform(0, 0.5, shape)}
    problem = LostSales(horizon=HORIZON, products=products, demand_max=TOP, **costs)
    demand = FAMILIES[family](rng, shape)
    paths = demand.sample(rng, 4000)
    best = rollout_cost(problem, optimum(problem, demand.probabilities(TOP, 1024)), paths)
    free = rollout_cost(problem, data_free(problem), paths)
    noise_seed = 100 * seed + list(FAMILIES).index(family)
    found = {}
    for cell in CELLS:
        if cell[0] == products:
            log = problem.simulate_log(demand.sample(rng, cell[1]), rng=rng)
            learned = Pool(cell[2]).fit(problem, log, noise=SeededNoise(noise_seed))
            costs_of = [rollout_cost(problem, p, paths) for p in (learned, fixed(problem, log, cell[2], noise_seed))]
            found[cell] = [100 * (cost / best - 1) for cost in (*costs_of, free)]
    return found


def main() -> None:
    """Print the table."""
    results: dict[tuple[int, int, float], dict[str, list[list[float]]]] = {cell: {} for cell in CELLS}
    jobs = [(k, family, seed) for k in (1, 8) for family in FAMILIES for seed in range(SEEDS)]
    for products, family, seed in track(jobs, description="fitting", console=Console(stderr=True)):
        for cell, values in gaps(products, family, seed).items():
            results[cell].setdefault(family, []).append(values)
    table = Table(title="learned / fixed / free, gap in percent", title_justify="left")
    for column in ("products", "n", "rho", *FAMILIES):
        table.add_column(column, justify="right")
    for (products, n, rho), families in results.items():
        cells = [" / ".join(f"{gap:.1f}" for gap in np.mean(families[family], axis=0)) for family in FAMILIES]
        table.add_row(str(products), f"{n:,}", f"{rho:g}", *cells)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
