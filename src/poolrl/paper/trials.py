"""One run: build the bench of a setting from a seed, learn, and measure. A run is a function of (setting, seed).

Here are also the methods that POOL is compared with, each a short composition that states its guarantee. Input and
output perturbation run over the default learner, so that they differ from it only in where the noise goes. Noise is
seeded, so that the same run gives the same row anywhere. No run is private, and none needs to be: demand is simulated,
or public.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np

from poolrl.checks import FloatArray, IntArray, one_of
from poolrl.data.trajectories import Trajectories
from poolrl.geometry.axes import Separable
from poolrl.geometry.partition import Grid, Partition, Rings, Zones
from poolrl.geometry.resolution import TRUTH_BINS
from poolrl.learning.backward_induction import Bernstein, Visits
from poolrl.learning.model import PrivateModel
from poolrl.learning.policy import GreedyQ, Levels, Policy
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import HORIZONS, PRODUCT_COUNTS, Setting
from poolrl.pool import OnVisits, Pool
from poolrl.privacy.guarantee import Guarantee
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.privacy.noise.source import NoiseSource
from poolrl.privacy.release import release_levels, release_rows
from poolrl.privacy.released import PrivateVisits
from poolrl.privacy.zcdp import budget
from poolrl.problems.inventory import Inventory, LostSales
from poolrl.simulation.evaluation import data_free, expected_costs, optimum, rollout_costs, saa
from poolrl.simulation.families import FAMILIES, TOP
from poolrl.simulation.logs import simulate_log

SAA_SAMPLES = 10_000  # the paper's
TEST_PATHS = 10_000
# A policy on zones or grid cells searches its action for every path, so it is judged on the first of them.
TEST_PATHS_OF_SEARCHES = 2_000


@dataclass(frozen=True)
class Market:
    """Demand and costs of a shop, the same for every boundary and log."""

    shop: Callable[..., Inventory]  # but for its boundary
    demand: Callable[[np.random.Generator, int], FloatArray]  # behind a log, uncensored
    samples: FloatArray  # for SAA
    test: FloatArray  # demand that policies are judged on
    # What each test path costs under known policies. `best`: SAA, free to order up to D̄, the paper's benchmark;
    # `optimum`: the plan on the true distribution, if known.
    costs: dict[str, FloatArray]
    probabilities: FloatArray | None  # the true distribution, (H, k, bins), if known
    least_cost: float  # of `optimum`, exact; NaN if not known


@dataclass(frozen=True)
class Bench:
    """What a setting and a seed give before learning: the market, the shop, and its log."""

    market: Market
    problem: Inventory
    log: Trajectories
    costs: dict[str, FloatArray]  # those of the market, and `best_within`: SAA below λ, as every learner must be

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


MEASURES = tuple(name for name in Run.__dataclass_fields__ if name not in ("setting", "seed"))


def run(setting: Setting, seed: int, real: Rossmann | None = None) -> Run:
    """Learn once and measure."""
    one_of(METHODS, method=setting.method)
    bench = _bench(setting.bench, seed, real)
    market = bench.market
    policy, seconds = _learned(setting, seed, real)
    common = market.test[:TEST_PATHS_OF_SEARCHES]
    test = market.test if isinstance(policy.rule, Levels) else common
    costs = rollout_costs(bench.problem, policy, test)

    def over(known: str, paths: FloatArray) -> float:
        return float(costs[: len(paths)].mean()) / bench.cost_of(known, paths) - 1

    if market.probabilities is None:
        gap_optimum = math.nan
    elif isinstance(policy.rule, Levels):  # exact, because close to the optimum a sample would hide the difference
        cost = expected_costs(bench.problem, policy.levels, market.probabilities).sum()
        gap_optimum = float(cost) / market.least_cost - 1
    else:
        gap_optimum = over("optimum", test)
    visited = policy.report.planned if setting.method in ("published", "grid") else None
    return Run(
        setting,
        seed,
        cost=float(costs.mean()),
        best_cost=bench.cost_of("best", test),
        gap=over("best", test),
        gap_within=over("best_within", test),
        gap_common=over("best", common),
        gap_optimum=gap_optimum,
        seconds=seconds,
        fell_back=math.nan if visited is None else visited.fell_back_to_uniform,
        clipped=math.nan if visited is None else visited.clipped_to_zero,
        empty_rings=_empty_rings(policy, bench.log),
    )


def _learned(setting: Setting, seed: int, real: Rossmann | None) -> tuple[Policy, float]:
    """What the method learns, and the processor seconds of that fit, with what it shares with others."""
    bench, noise = _bench(setting.bench, seed, real), SeededNoise(seed)
    start, shared = time.process_time(), 0.0
    if setting.method in VISITS:
        release = _released(replace(setting, scale=0.0), seed, real)
        start, shared = time.process_time(), release.seconds
        policy = release.learn(VISITS[setting.method](setting).pessimism)
    elif setting.method in VALUES:
        model, shared = _model(replace(setting, method="pool", granularity=0), seed, real)
        start = time.process_time()
        policy = model.plan(bench.problem, VALUES[setting.method](setting.granularity))
    elif setting.method == "output":
        learned, shared = _learned(replace(setting, method="pool", rho=math.inf), seed, real)
        start = time.process_time()
        policy = output_perturbation(bench.problem, bench.log, setting.rho, noise=noise, learned=learned)
    else:
        policy = OTHERS[setting.method](bench, setting, noise)
    return policy, shared + time.process_time() - start


@lru_cache(maxsize=16)
def _model(setting: Setting, seed: int, real: Rossmann | None) -> tuple[PrivateModel, float]:
    """Fits on outcomes that differ in M alone, or in where values stand, share a release and its estimate."""
    bench, start = _bench(setting.bench, seed, real), time.process_time()
    model = Pool(setting.rho).model(bench.problem, bench.log, noise=SeededNoise(seed))
    return model, time.process_time() - start


@dataclass
class Release:
    """A release of visits whose rows may be asked for again: equal fits but for Γ ask for the same rows."""

    prepared: OnVisits
    released: PrivateVisits
    seconds: float  # of processor time, so far
    rows_of: dict[tuple[int, bytes], IntArray] = field(default_factory=dict)

    def learn(self, pessimism: Bernstein | None) -> Policy:
        """The policy under this Γ."""
        return replace(self.prepared, pessimism=pessimism).learn(replace(self.released, transitions=self._rows))

    def _rows(self, step: int, rows: IntArray) -> IntArray:
        key, start = (step, rows.tobytes()), time.process_time()
        if key not in self.rows_of:
            self.rows_of[key] = self.released.transitions(step, rows)
            self.seconds += time.process_time() - start
        return self.rows_of[key]


@lru_cache(maxsize=1)
def _released(setting: Setting, seed: int, real: Rossmann | None) -> Release:
    """Fits on visits that differ in the scale of Γ alone share a release."""
    pool, bench = VISITS[setting.method](setting), _bench(setting.bench, seed, real)
    facts = setting.horizon, setting.products, setting.demand_max, setting.boundary
    nodes, seconds = _nodes(pool.values, *facts)
    start = time.process_time()
    partition = replace(nodes, problem=bench.problem)
    prepared = OnVisits(bench.problem, budget(setting.rho), Visits(setting.failure), partition, None)
    released = prepared.release(bench.log, SeededNoise(seed))
    return Release(prepared, released, seconds + time.process_time() - start)


@lru_cache(maxsize=64)
def _nodes(
    values: Zones | Grid, horizon: int, products: int, demand_max: float, boundary: float
) -> tuple[Partition, float]:
    """The nodes of all shops of one size, whatever they cost, and the processor seconds that it took to lay them."""
    start = time.process_time()
    problem = LostSales(
        horizon=horizon, products=products, holding=1.0, shortage=1.0, demand_max=demand_max, boundary=boundary
    )
    return values.partition(problem), time.process_time() - start


def _empty_rings(policy: Policy, log: Trajectories) -> float:
    partition = policy.rule.where if isinstance(policy.rule, GreedyQ) else None
    if not isinstance(partition, Partition) or not isinstance(partition.states, Rings):
        return math.nan
    rings, empty = len(partition.states.corners), []
    for step in range(log.horizon):
        node = partition.pair_index(step, log.states[:, step], log.actions[:, step])
        filled = np.unique(node[node >= 0] // (partition.pair_count // rings)).size
        empty.append(1 - filled / rings)
    return float(np.mean(empty))


@lru_cache(maxsize=4)
def _bench(setting: Setting, seed: int, real: Rossmann | None) -> Bench:
    # What varies here lets the same customers come.
    market = _market(replace(setting, boundary=1.0, trajectories=0, behaviour=""), seed, real)
    problem = market.shop(boundary=setting.boundary)
    # Each kind of randomness has a stream of its own.
    train = market.demand(np.random.default_rng([seed, 2]), setting.trajectories)
    ordered = BEHAVIOURS[setting.behaviour]
    behaviour = None if ordered is None else partial(ordered, problem)
    log = simulate_log(problem, train, rng=np.random.default_rng([seed, 5]), behaviour=behaviour)
    within = market.costs["best"]
    if setting.boundary < 1:
        within = rollout_costs(market.shop(boundary=1.0), saa(problem, market.samples), market.test)
    return Bench(market, problem, log, market.costs | {"best_within": within})


@lru_cache(maxsize=2)
def _market(setting: Setting, seed: int, real: Rossmann | None) -> Market:
    horizon, products = setting.horizon, setting.products
    # Drawn once for the largest shop and cut: runs with one seed share their costs across a sweep.
    largest = (2, int(max(HORIZONS.values)), int(max(PRODUCT_COUNTS.values)))
    drawn = np.random.default_rng([seed, 0]).uniform(0.0, 0.5, largest)
    holding, shortage = drawn[:, :horizon, :products]
    shop = partial(
        LostSales, horizon=horizon, products=products, holding=holding, shortage=shortage, demand_max=setting.demand_max
    )
    probabilities: FloatArray | None = None
    demand: Callable[[np.random.Generator, int], FloatArray]
    if setting.data == "rossmann":
        if real is None:
            raise ValueError("this run needs Rossmann's train.csv: name it with --rossmann")
        samples, test = real.halves(products, setting.demand_max)

        def demand(*_: object) -> FloatArray:
            return samples  # as in the paper's appendix: SAA learns from the same weeks, uncensored
    else:
        family = FAMILIES[setting.data](np.random.default_rng([seed, 1]), (horizon, products))
        demand, probabilities = family.sample, family.probabilities(TOP, TRUTH_BINS)
        samples = demand(np.random.default_rng([seed, 3]), SAA_SAMPLES)
        test = demand(np.random.default_rng([seed, 4]), TEST_PATHS)
    unrestricted, least_cost = shop(boundary=1.0), math.nan
    known = {"best": saa(unrestricted, samples)}
    if probabilities is not None:
        known["optimum"] = exact = optimum(unrestricted, probabilities)
        least_cost = float(expected_costs(unrestricted, exact.levels, probabilities).sum())
    costs = {name: rollout_costs(unrestricted, policy, test) for name, policy in known.items()}
    return Market(shop, demand, samples, test, costs, probabilities, least_cost)


def _low(problem: Inventory, step: int, stock: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A shop that never orders up to more than half of λ, so that it is mostly sold out."""
    return rng.uniform(stock, np.maximum(stock, problem.share[step] * problem.demand_max / 2))


def _steady(problem: Inventory, step: int, stock: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A shop that always orders up to about 60% of λ."""
    limit = problem.share[step] * problem.demand_max
    return np.clip(limit * rng.normal(0.6, 0.1, stock.shape), stock, np.maximum(stock, limit))


# "uniform": between the stock on hand and λ.
BEHAVIOURS: dict[str, Callable[..., FloatArray] | None] = {"uniform": None, "low": _low, "steady": _steady}


def non_private(points: int | None = None) -> Pool:
    """NonPrivate: the default learner with ρ = ∞. Guarantee: none."""
    return Pool(math.inf, values=Separable(points))


def dp_apvi(rho: float, bins: int, *, scale: float = 1.0, failure: float = 0.05) -> Pool:
    """Qiao and Wang's DP-APVI (arXiv 2206.00810) on a grid of `bins` cells per axis, the paper's comparison in RQ3.

    Guarantee: ρ-zCDP, by the same two tables of visits as POOL; only the nodes differ.
    """
    return Pool(rho, Visits(failure), Grid(bins), Bernstein(scale, failure))


def input_perturbation(
    problem: Inventory, log: Trajectories, rho: float, *, points: int | None = None, noise: NoiseSource | None = None
) -> Policy:
    """IP: noise on every logged number, then the default learner on the noisy log.

    In its favour, states are not logged twice: a trajectory starts at the public initial state, and each later state
    is the noisy next state before it.

    Guarantee: ρ-zCDP for one trajectory (`release_rows`); the rest is post-processing.
    """
    rows = release_rows(log, problem, rho=budget(rho), noise=noise or SecureNoise())
    first = np.broadcast_to(problem.initial_state, (len(rows.actions), 1, problem.state_dim))
    after = np.clip(rows.next_states, problem.state_low, problem.state_high)
    before = np.concatenate([first, after[:, :-1]], axis=1)
    noisy = Trajectories(states=before, actions=rows.actions, next_states=after).clipped(problem)
    learned = non_private(points).fit(problem, noisy)
    return Policy(problem, learned.rule, rows.guarantee, learned.report)


def output_perturbation(
    problem: Inventory,
    log: Trajectories,
    rho: float,
    *,
    noise: NoiseSource | None = None,
    learned: Policy | None = None,
) -> Policy:
    """OP: what the default learner `learned` from the log without privacy, then noise on its order-up-to levels.

    Guarantee: ρ-zCDP for one unit (`release_levels`), because every log gives levels in their public range.
    """
    learned = learned or non_private().fit(problem, log)
    noisy = release_levels(learned.levels, log, problem, rho=budget(rho), noise=noise or SecureNoise())
    inside = np.clip(noisy.levels, problem.action_low, problem.action_high)
    return Policy(problem, Levels(inside), noisy.guarantee)  # no budget was paid for the learner's report


def order_to_the_middle(problem: Inventory) -> Policy:
    """Order up to half of the public bound, whatever the costs. Guarantee: no log is read."""
    levels = np.tile(problem.demand_max / 2, (problem.horizon, 1))
    return Policy(problem, Levels(levels), Guarantee.of_nothing(problem.horizon))


# Methods by name: fits on visits, where the values of a fit on outcomes stand, and what is made in another way.
VISITS: dict[str, Callable[[Setting], Pool]] = {
    "published": lambda s: Pool.published(s.rho, s.granularity, scale=s.scale, failure=s.failure),
    "grid": lambda s: dp_apvi(s.rho, s.granularity, scale=s.scale, failure=s.failure),
    # Qin et al.'s partial discretisation as POOL describes it: its zones at w = d = 1, without noise.
    "partial": lambda s: Pool.published(math.inf, s.granularity, scale=0.0),
}
VALUES: dict[str, Callable[[int], Separable | Zones]] = {"pool": Separable, "outcome zones": Zones}
OTHERS: dict[str, Callable[[Bench, Setting, SeededNoise], Policy]] = {
    "input": lambda b, s, noise: input_perturbation(b.problem, b.log, s.rho, points=s.granularity, noise=noise),
    "data-free": lambda b, *_: data_free(b.problem),
    "middle": lambda b, *_: order_to_the_middle(b.problem),
}
METHODS = (*VALUES, *VISITS, "output", *OTHERS)
