"""One run: build the bench of a setting from a seed, learn, and measure. A run is a function of (setting, seed).

Noise is seeded, so that the same run gives the same row anywhere. Nothing here is private, and nothing needs to be:
demand is simulated, or public.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from poolrl.checks import FloatArray
from poolrl.data.trajectories import Trajectories
from poolrl.geometry.axes import Separable
from poolrl.geometry.resolution import TRUTH_BINS
from poolrl.geometry.zones import Rings, Zones
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.policy import Policy
from poolrl.learning.rules import Levels
from poolrl.paper import baselines, q_learning, rossmann
from poolrl.paper.sweeps import HORIZONS, PRODUCT_COUNTS, Setting
from poolrl.pool import Pool
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.problems.inventory import Backlog, Behaviour, Inventory, LostSales
from poolrl.simulation.evaluation import data_free, expected_cost, optimum, rollout_costs, saa
from poolrl.simulation.families import FAMILIES, TOP
from poolrl.simulation.logs import simulate_log

SAA_SAMPLES = 10_000  # the paper's
TEST_PATHS = 10_000
# A policy on zones or grid cells searches its action for every path, so it is judged on the first of them.
TEST_PATHS_OF_SEARCHES = 2_000


@dataclass(frozen=True)
class Bench:
    """What a setting and a seed give before learning: the shop, its log, and costs to compare with."""

    problem: Inventory
    train: FloatArray  # the uncensored demand behind the log
    log: Trajectories
    test: FloatArray  # demand that policies are judged on
    # What each test path costs under known policies. `best`: SAA, free to order up to D̄, the paper's benchmark;
    # `best_within`: SAA below λ, as every learner must be; `optimum`: the plan on the true distribution, if known.
    costs: dict[str, FloatArray]
    probabilities: FloatArray | None  # the true distribution, (H, k, bins), if known
    least_cost: float  # of `optimum`, exact; NaN if not known

    def cost_of(self, known: str, paths: FloatArray) -> float:
        """The mean cost of a known policy on the first of the test paths."""
        return float(self.costs[known][: len(paths)].mean())


@dataclass(frozen=True)
class Run:
    """A setting, a seed and what was measured: one row of the results."""

    setting: Setting
    seed: int
    cost: float
    best_cost: float
    gap: float  # (c − c*) / c*, c* by SAA without a boundary
    gap_within: float  # the same against SAA below λ
    gap_common: float  # the same as `gap`, on the paths that every method is judged on
    gap_optimum: float  # against the true optimum, exact for order-up-to levels; NaN where it is not known
    seconds: float  # processor time of the fit alone
    fell_back: float  # share of noise-dominated nodes, NaN without visit counts
    clipped: float  # share of nodes whose pessimistic value was cut at zero, NaN as above
    empty_rings: float  # share of rings without a row of the log, NaN without rings

    def row(self) -> dict[str, Any]:
        """Flat, as it goes into a table."""
        return asdict(self.setting) | {"seed": self.seed} | {name: getattr(self, name) for name in MEASURES}


MEASURES = tuple(name for name in Run.__dataclass_fields__ if name not in ("setting", "seed"))


def run(setting: Setting, seed: int, real: rossmann.Rossmann | None = None) -> Run:
    """Learn once and measure."""
    if setting.method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {setting.method!r}")
    bench = _bench(setting.bench, seed, real)
    start = time.process_time()
    policy = METHODS[setting.method](bench, setting, SeededNoise(seed))
    seconds = time.process_time() - start
    common = bench.test[:TEST_PATHS_OF_SEARCHES]
    test = bench.test if isinstance(policy.rule, Levels) else common
    costs = rollout_costs(bench.problem, policy, test)
    cost = float(costs.mean())

    def over(best: str, paths: FloatArray) -> float:
        return float(costs[: len(paths)].mean()) / bench.cost_of(best, paths) - 1

    visited = policy.report.planned if setting.method in ("published", "grid") else None
    return Run(
        setting,
        seed,
        cost=cost,
        best_cost=bench.cost_of("best", test),
        gap=over("best", test),
        gap_within=over("best_within", test),
        gap_common=over("best", common),
        gap_optimum=_gap_to_optimum(bench, policy, cost, test),
        seconds=seconds,
        fell_back=math.nan if visited is None else visited.fell_back_to_uniform,
        clipped=math.nan if visited is None else visited.clipped_to_zero,
        empty_rings=_empty_rings(policy, bench.log),
    )


def _gap_to_optimum(bench: Bench, policy: Policy, cost: float, test: FloatArray) -> float:
    """Exact for a table of levels, because close to the optimum a sample would hide the difference."""
    if bench.probabilities is None:
        return math.nan
    if isinstance(policy.rule, Levels):
        return expected_cost(bench.problem, policy.levels, bench.probabilities) / bench.least_cost - 1
    return cost / bench.cost_of("optimum", test) - 1


@lru_cache(maxsize=4)
def _bench(setting: Setting, seed: int, real: rossmann.Rossmann | None) -> Bench:
    horizon, products = setting.horizon, setting.products
    backlog = setting.data == "backlog example"
    # Drawn once for the largest shop and cut: runs with one seed share their costs across a sweep.
    largest = (2, int(max(HORIZONS.values)), int(max(PRODUCT_COUNTS.values)))
    drawn = np.random.default_rng([seed, 0]).uniform(0.0, 0.5, largest)
    holding, shortage = (2.0, 10.0) if backlog else drawn[:, :horizon, :products]

    def shop(boundary: float) -> Inventory:
        return (Backlog if backlog else LostSales)(
            horizon=horizon,
            products=products,
            holding=holding,
            shortage=shortage,
            demand_max=setting.demand_max,
            boundary=boundary,
        )

    problem, unrestricted = shop(setting.boundary), shop(1.0)
    probabilities: FloatArray | None = None
    if setting.data == "rossmann":
        if real is None:
            raise ValueError("this run needs Rossmann's train.csv: name it with --rossmann")
        train, test = real.halves(products, setting.demand_max)
        samples = train  # as in the paper's appendix: SAA learns from the same weeks, uncensored
    elif backlog:
        train, samples, test = (
            ((horizon - np.arange(1, horizon + 1)) / 2)[:, None] + rng.uniform(0.0, 1.0, (size, horizon, 1))
            for rng, size in _streams(setting, seed)
        )
    else:
        family = FAMILIES[setting.data](np.random.default_rng([seed, 1]), (horizon, products))
        train, samples, test = (family.sample(rng, size) for rng, size in _streams(setting, seed))
        probabilities = family.probabilities(TOP, TRUTH_BINS)
    behaviour = BEHAVIOURS[setting.behaviour]
    log = simulate_log(
        problem,
        train,
        rng=np.random.default_rng([seed, 5]),
        behaviour=None if behaviour is None else behaviour(problem),
    )
    best = saa(unrestricted, samples)
    known = {"best": best, "best_within": best if setting.boundary == 1 else saa(problem, samples)}
    least_cost = math.nan
    if probabilities is not None:
        known["optimum"] = exact = optimum(unrestricted, probabilities)
        least_cost = expected_cost(unrestricted, exact.levels, probabilities)
    costs = {name: rollout_costs(unrestricted, policy, test) for name, policy in known.items()}
    return Bench(problem, train, log, test, costs, probabilities, least_cost)


def _streams(setting: Setting, seed: int) -> list[tuple[np.random.Generator, int]]:
    """Randomness and size of the log's demand, SAA's samples and the test paths."""
    sizes = (setting.trajectories, SAA_SAMPLES, TEST_PATHS)
    return [(np.random.default_rng([seed, 2 + stream]), size) for stream, size in enumerate(sizes)]


def _low(problem: Inventory) -> Behaviour:
    """A shop that never orders up to more than half of λ, so that it is mostly sold out."""

    def order(step: int, stock: FloatArray, rng: np.random.Generator) -> FloatArray:
        limit = problem.share[step] * problem.demand_max / 2
        return rng.uniform(stock, np.maximum(stock, limit))

    return order


def _steady(problem: Inventory) -> Behaviour:
    """A shop that always orders up to about 60% of λ."""

    def order(step: int, stock: FloatArray, rng: np.random.Generator) -> FloatArray:
        limit = problem.share[step] * problem.demand_max
        return np.clip(limit * rng.normal(0.6, 0.1, stock.shape), stock, np.maximum(stock, limit))

    return order


BEHAVIOURS: dict[str, Callable[[Inventory], Behaviour] | None] = {
    "uniform": None,  # between the stock on hand and λ
    "low": _low,
    "steady": _steady,
}

Method = Callable[[Bench, Setting, SeededNoise], Policy]


def _fit(pool: Pool, bench: Bench, noise: SeededNoise) -> Policy:
    return pool.fit(bench.problem, bench.log, noise=noise)


METHODS: dict[str, Method] = {
    "pool": lambda b, s, noise: _fit(Pool(s.rho, values=Separable(s.granularity)), b, noise),
    "published": lambda b, s, noise: _fit(
        Pool.published(s.rho, s.granularity, scale=s.scale, failure=s.failure), b, noise
    ),
    "grid": lambda b, s, noise: _fit(
        baselines.dp_apvi(s.rho, s.granularity, scale=s.scale, failure=s.failure), b, noise
    ),
    "outcome zones": lambda b, s, noise: _fit(Pool(s.rho, Outcomes(), Zones(s.granularity)), b, noise),
    "input": lambda b, s, noise: baselines.input_perturbation(
        b.problem, b.log, s.rho, points=s.granularity, noise=noise
    ),
    "output": lambda b, s, noise: baselines.output_perturbation(
        b.problem, b.log, s.rho, points=s.granularity, noise=noise
    ),
    "data-free": lambda b, s, noise: data_free(b.problem),
    "middle": lambda b, s, noise: baselines.order_to_the_middle(b.problem),
    "hql": lambda b, s, noise: q_learning.hql(b.problem, b.train, points=s.granularity).policy,
    "fql": lambda b, s, noise: q_learning.fql(b.problem, b.train, points=s.granularity).policy,
    "partial": lambda b, s, noise: _fit(baselines.partial_discretisation(s.granularity), b, noise),
    "replay": lambda b, s, noise: q_learning.replay_log(b.problem, b.log, points=s.granularity),
}


def _empty_rings(policy: Policy, log: Trajectories) -> float:
    partition = getattr(policy.rule, "partition", None)
    if partition is None or not isinstance(partition.states, Rings):
        return math.nan
    rings, empty = len(partition.states.corners), []
    for step in range(log.horizon):
        node = partition.pair_index(step, log.states[:, step], log.actions[:, step])
        filled = np.unique(node[node >= 0] // (partition.pair_count // rings)).size
        empty.append(1 - filled / rings)
    return float(np.mean(empty))
