"""One run: build the world of a setting from a seed, learn, and measure. A run is a function of (setting, seed).

Noise is seeded, so that the same run gives the same row anywhere; nothing here is private, and nothing needs to be:
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
from poolrl.geometry.zones import Rings, Zones
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.policy import Policy
from poolrl.learning.rules import Levels
from poolrl.paper import baselines, q_learning, rossmann
from poolrl.paper.sweeps import HORIZONS, PRODUCTS, Setting
from poolrl.pool import Pool
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.problems.inventory import Backlog, Inventory, LostSales
from poolrl.simulation.evaluation import data_free, expected_cost, optimum, rollout_costs, saa
from poolrl.simulation.families import FAMILIES, TOP
from poolrl.simulation.logs import simulate_log

SAA_SAMPLES = 10_000  # the paper's
TEST_PATHS = 10_000
# A policy on zones or grid cells searches its action anew for every path: it is judged on the first of them.
TEST_PATHS_OF_SEARCHES = 2_000

Behaviour = Callable[[int, FloatArray, np.random.Generator], FloatArray]


@dataclass(frozen=True)
class World:
    """What a seed makes of a setting before anybody learns."""

    problem: Inventory
    unrestricted: Inventory  # the same shop with λ = 1
    train: FloatArray  # the demand behind the log, which only nature knows
    log: Trajectories
    test: FloatArray  # demand that policies are judged on
    best: Policy  # SAA, free to order up to D̄: the paper's benchmark
    best_within: Policy  # SAA that stays below λ, as every learner must
    optimum: Policy | None  # the plan on the true distribution, where it is known
    costs: dict[str, FloatArray]  # what each test path costs under `best`, `best_within` and `optimum`
    probabilities: FloatArray | None  # that distribution, (H, k, bins)
    least_cost: float  # of `optimum`, exact; NaN where it is not known

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
    fell_back: float  # share of nodes that drowned in noise, NaN without visit counts
    clipped: float  # share of nodes whose pessimistic value was cut at zero, NaN as above
    empty_rings: float  # share of rings that no row of the log falls in, NaN without rings

    def row(self) -> dict[str, Any]:
        """Flat, as it goes into a table."""
        return asdict(self.setting) | {"seed": self.seed} | {name: getattr(self, name) for name in MEASURES}


MEASURES = tuple(name for name in Run.__dataclass_fields__ if name not in ("setting", "seed"))


def run(setting: Setting, seed: int, real: rossmann.Rossmann | None = None) -> Run:
    """Learn once and measure."""
    if setting.method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {setting.method!r}")
    world = _world(setting.world, seed, real)
    start = time.process_time()
    policy = METHODS[setting.method](world, setting, SeededNoise(seed))
    seconds = time.process_time() - start
    common = world.test[:TEST_PATHS_OF_SEARCHES]
    test = world.test if isinstance(policy.rule, Levels) else common
    costs = rollout_costs(world.problem, policy, test)
    cost = float(costs.mean())

    def over(best: str, paths: FloatArray) -> float:
        return float(costs[: len(paths)].mean()) / world.cost_of(best, paths) - 1

    visited = policy.report if setting.method in ("published", "grid") else {}
    return Run(
        setting,
        seed,
        cost=cost,
        best_cost=world.cost_of("best", test),
        gap=over("best", test),
        gap_within=over("best_within", test),
        gap_common=over("best", common),
        gap_optimum=_gap_to_optimum(world, policy, cost, test),
        seconds=seconds,
        fell_back=visited.get("fell_back_to_uniform", math.nan),
        clipped=visited.get("clipped_to_zero", math.nan),
        empty_rings=_empty_rings(policy, world.log),
    )


def _gap_to_optimum(world: World, policy: Policy, cost: float, test: FloatArray) -> float:
    """Exact where the policy is a table of levels; close to the optimum a sample would hide the difference."""
    if world.probabilities is None:
        return math.nan
    if isinstance(policy.rule, Levels):
        return expected_cost(world.problem, policy.levels, world.probabilities) / world.least_cost - 1
    return cost / world.cost_of("optimum", test) - 1


@lru_cache(maxsize=4)
def _world(setting: Setting, seed: int, real: rossmann.Rossmann | None) -> World:
    horizon, products = setting.horizon, setting.products
    published = setting.data == "backlog example"
    # Drawn once for the largest world and cut: runs with one seed share their costs across a sweep.
    costs = np.random.default_rng([seed, 0]).uniform(0.0, 0.5, (2, max(HORIZONS), max(PRODUCTS)))
    holding, shortage = (2.0, 10.0) if published else costs[:, :horizon, :products]

    def shop(boundary: float) -> Inventory:
        return (Backlog if published else LostSales)(
            horizon=horizon,
            products=products,
            holding=holding,
            shortage=shortage,
            demand_max=setting.demand_max,
            boundary=boundary,
        )

    problem, unrestricted = shop(setting.boundary), shop(1.0)
    if setting.data == "rossmann":
        if real is None:
            raise ValueError("this run needs Rossmann's train.csv: name it with --rossmann")
        train, test = real.halves(products, setting.demand_max)
        samples, exact, probabilities = (
            train,
            None,
            None,
        )  # as in the paper's appendix: SAA learns from the same weeks, uncensored
    elif published:
        train, samples, test = (
            ((horizon - np.arange(1, horizon + 1)) / 2)[:, None] + rng.uniform(0.0, 1.0, (size, horizon, 1))
            for rng, size in _streams(setting, seed)
        )
        exact, probabilities = None, None
    else:
        family = FAMILIES[setting.data](np.random.default_rng([seed, 1]), (horizon, products))
        train, samples, test = (family.sample(rng, size) for rng, size in _streams(setting, seed))
        probabilities = family.probabilities(TOP, 1024)
        exact = optimum(unrestricted, probabilities)
    behaviour = BEHAVIOURS[setting.behaviour]
    log = simulate_log(
        problem,
        train,
        rng=np.random.default_rng([seed, 5]),
        behaviour=None if behaviour is None else behaviour(problem),
    )
    best = saa(unrestricted, samples)
    best_within = best if setting.boundary == 1 else saa(problem, samples)
    known = {"best": best, "best_within": best_within} | ({"optimum": exact} if exact is not None else {})
    return World(
        problem,
        unrestricted,
        train,
        log,
        test,
        best=best,
        best_within=best_within,
        optimum=exact,
        costs={name: rollout_costs(unrestricted, policy, test) for name, policy in known.items()},
        probabilities=probabilities,
        least_cost=expected_cost(unrestricted, exact.levels, probabilities)
        if exact and probabilities is not None
        else math.nan,
    )


def _streams(setting: Setting, seed: int) -> list[tuple[np.random.Generator, int]]:
    """Randomness and size of the log's demand, SAA's samples and the test paths."""
    sizes = (setting.trajectories, SAA_SAMPLES, TEST_PATHS)
    return [(np.random.default_rng([seed, 2 + stream]), size) for stream, size in enumerate(sizes)]


def _low(problem: Inventory) -> Behaviour:
    """A shop that never orders up to more than half of λ, and runs empty most of the time."""

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

Method = Callable[[World, Setting, SeededNoise], Policy]


def _fit(pool: Pool, world: World, noise: SeededNoise) -> Policy:
    return pool.fit(world.problem, world.log, noise=noise)


METHODS: dict[str, Method] = {
    "pool": lambda w, s, noise: _fit(Pool(s.rho, values=Separable(s.granularity)), w, noise),
    "published": lambda w, s, noise: _fit(
        Pool.published(s.rho, s.granularity, scale=s.scale, failure=s.failure), w, noise
    ),
    "grid": lambda w, s, noise: _fit(
        baselines.dp_apvi(s.rho, s.granularity, scale=s.scale, failure=s.failure), w, noise
    ),
    "outcome zones": lambda w, s, noise: _fit(Pool(s.rho, Outcomes(), Zones(s.granularity)), w, noise),
    "input": lambda w, s, noise: baselines.input_perturbation(
        w.problem, w.log, s.rho, points=s.granularity, noise=noise
    ),
    "output": lambda w, s, noise: baselines.output_perturbation(
        w.problem, w.log, s.rho, points=s.granularity, noise=noise
    ),
    "data-free": lambda w, s, noise: data_free(w.problem),
    "middle": lambda w, s, noise: baselines.order_to_the_middle(w.problem),
    "hql": lambda w, s, noise: q_learning.hql(w.problem, w.train, points=s.granularity).policy,
    "fql": lambda w, s, noise: q_learning.fql(w.problem, w.train, points=s.granularity).policy,
    "partial": lambda w, s, noise: _fit(baselines.partial_discretisation(s.granularity), w, noise),
    "replay": lambda w, s, noise: q_learning.replay(w.problem, w.log, points=s.granularity),
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
