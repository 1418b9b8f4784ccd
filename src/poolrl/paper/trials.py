"""One run: build the bench of a setting from a seed, learn, and measure. A run is a function of (setting, seed).

Here are also the methods that POOL is compared with, each a short composition that states its guarantee. Input and
output perturbation run over the default learner, so that they differ from it only in where the noise goes. Noise is
seeded, so that the same run gives the same row anywhere. No run is private, and none needs to be: demand is simulated,
or public.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray, one_of
from poolrl.data.trajectories import Trajectories
from poolrl.geometry.axes import Separable
from poolrl.geometry.partition import Grid, Partition, Rings, Zones
from poolrl.geometry.resolution import TRUTH_BINS
from poolrl.learning.backward_induction import Bernstein, Visits
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.policy import GreedyQ, Levels, Policy
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import HORIZONS, PRODUCT_COUNTS, Setting
from poolrl.pool import Pool
from poolrl.privacy.guarantee import Guarantee
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.privacy.noise.source import NoiseSource
from poolrl.privacy.release import release_levels, release_rows
from poolrl.privacy.zcdp import budget
from poolrl.problems.inventory import Backlog, Inventory, LostSales
from poolrl.simulation.evaluation import data_free, expected_costs, optimum, rollout_costs, saa
from poolrl.simulation.families import FAMILIES, TOP
from poolrl.simulation.logs import simulate_log

SAA_SAMPLES = 10_000  # the paper's
TEST_PATHS = 10_000
# A policy on zones or grid cells searches its action for every path, so it is judged on the first of them.
TEST_PATHS_OF_SEARCHES = 2_000
FEWEST_OBSERVED = 20  # a level is chosen only if one row in twenty has observed it


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


MEASURES = tuple(name for name in Run.__dataclass_fields__ if name not in ("setting", "seed"))


def run(setting: Setting, seed: int, real: Rossmann | None = None) -> Run:
    """Learn once and measure."""
    one_of((*POOLS, *OTHERS), method=setting.method)
    bench, noise = _bench(setting.bench, seed, real), SeededNoise(seed)
    start = time.process_time()
    if setting.method in POOLS:
        policy = POOLS[setting.method](setting).fit(bench.problem, bench.log, noise=noise)
    else:
        policy = OTHERS[setting.method](bench, setting, noise)
    seconds = time.process_time() - start
    common = bench.test[:TEST_PATHS_OF_SEARCHES]
    test = bench.test if isinstance(policy.rule, Levels) else common
    costs = rollout_costs(bench.problem, policy, test)

    def over(known: str, paths: FloatArray) -> float:
        return float(costs[: len(paths)].mean()) / bench.cost_of(known, paths) - 1

    if bench.probabilities is None:
        gap_optimum = math.nan
    elif isinstance(policy.rule, Levels):  # exact, because close to the optimum a sample would hide the difference
        cost = expected_costs(bench.problem, policy.levels, bench.probabilities).sum()
        gap_optimum = float(cost) / bench.least_cost - 1
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
    horizon, products = setting.horizon, setting.products
    backlog = setting.data == "backlog example"
    # Drawn once for the largest shop and cut: runs with one seed share their costs across a sweep.
    largest = (2, int(max(HORIZONS.values)), int(max(PRODUCT_COUNTS.values)))
    drawn = np.random.default_rng([seed, 0]).uniform(0.0, 0.5, largest)
    holding, shortage = (2.0, 10.0) if backlog else drawn[:, :horizon, :products]
    facts: dict[str, Any] = {"holding": holding, "shortage": shortage, "demand_max": setting.demand_max}
    shop = partial(Backlog if backlog else LostSales, horizon=horizon, products=products, **facts)
    problem, unrestricted = shop(boundary=setting.boundary), shop(boundary=1.0)
    # Randomness and size of the log's demand, of SAA's samples and of the test paths.
    sizes = (setting.trajectories, SAA_SAMPLES, TEST_PATHS)
    streams = [(np.random.default_rng([seed, 2 + stream]), size) for stream, size in enumerate(sizes)]
    probabilities: FloatArray | None = None
    if setting.data == "rossmann":
        if real is None:
            raise ValueError("this run needs Rossmann's train.csv: name it with --rossmann")
        train, test = real.halves(products, setting.demand_max)
        samples = train  # as in the paper's appendix: SAA learns from the same weeks, uncensored
    elif backlog:
        least = ((horizon - np.arange(1, horizon + 1)) / 2)[:, None]
        train, samples, test = (least + rng.uniform(0.0, 1.0, (size, horizon, 1)) for rng, size in streams)
    else:
        family = FAMILIES[setting.data](np.random.default_rng([seed, 1]), (horizon, products))
        train, samples, test = (family.sample(rng, size) for rng, size in streams)
        probabilities = family.probabilities(TOP, TRUTH_BINS)
    ordered = BEHAVIOURS[setting.behaviour]
    behaviour = None if ordered is None else partial(ordered, problem)
    log = simulate_log(problem, train, rng=np.random.default_rng([seed, 5]), behaviour=behaviour)
    best = saa(unrestricted, samples)
    known = {"best": best, "best_within": best if setting.boundary == 1 else saa(problem, samples)}
    least_cost = math.nan
    if probabilities is not None:
        known["optimum"] = exact = optimum(unrestricted, probabilities)
        least_cost = float(expected_costs(unrestricted, exact.levels, probabilities).sum())
    costs = {name: rollout_costs(unrestricted, policy, test) for name, policy in known.items()}
    return Bench(problem, train, log, test, costs, probabilities, least_cost)


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
    problem: Inventory, log: Trajectories, rho: float, *, points: int | None = None, noise: NoiseSource | None = None
) -> Policy:
    """OP: the default learner without privacy, then noise on its table of order-up-to levels.

    Guarantee: ρ-zCDP for one unit (`release_levels`), because every log gives levels in their public range.
    """
    learned = non_private(points).fit(problem, log)
    noisy = release_levels(learned.levels, log, problem, rho=budget(rho), noise=noise or SecureNoise())
    inside = np.clip(noisy.levels, problem.action_low, problem.action_high)
    return Policy(problem, Levels(inside), noisy.guarantee)  # no budget was paid for the learner's report


def order_to_the_middle(problem: Inventory) -> Policy:
    """Order up to half of the public bound, whatever the costs. Guarantee: no log is read."""
    levels = np.tile(problem.demand_max / 2, (problem.horizon, 1))
    return Policy(problem, Levels(levels), Guarantee.of_nothing(problem.horizon))


class QLearning:
    """HQL and FQL of Gong and Simchi-Levi (arXiv 2007.00080): Q-learning with one-sided and with full feedback.

    Demand that is seen once shows what every smaller order would have earned. Q has one entry per step, product and
    order-up-to level on a grid; products do not interact, so they learn side by side. Rewards are scaled to [0, 1].
    Step size α_k = (H + 1) / (H + k). Guarantee: none.
    """

    def __init__(self, problem: Inventory, points: int) -> None:
        self.problem, self.points = problem, points
        self.column = np.arange(problem.products)
        self.levels = np.linspace(problem.action_low, problem.action_high, points)  # (P, k)
        self.width = (problem.action_high - problem.action_low) / (points - 1)
        horizon, products = problem.horizon, problem.products
        # Q starts at the most that is left to earn, V_{H+1} = 0.
        self.q = np.broadcast_to(np.arange(horizon, 0.0, -1)[:, None, None], (horizon, points, products)).copy()
        self.active = np.ones(self.q.shape, dtype=bool)
        self.last = np.full((horizon + 1, products), points - 1)  # the largest active level of each step
        # The least and largest reward of each step and product are at the ends of level and demand.
        ends = (problem.action_low, problem.action_high), (problem.outcome_low, problem.outcome_high)
        corners = np.array([[self._earned(h, *end)[0] for end in product(*ends)] for h in range(horizon)])
        self.floor = corners.min(axis=1, keepdims=True)  # (H, 1, k)
        # One scale for all steps: dividing each step by its own range would change which policy is best.
        span = (corners.max(axis=1, keepdims=True) - self.floor).max(axis=0)  # (1, k)
        self.span = np.where(span > 0, span, 1.0)

    def play(self, demand: FloatArray, *, eliminate: bool) -> Policy:
        """K episodes of uncensored demand (K, H, products), each: play forward, then update backward on what was seen.

        HQL eliminates: it plays the largest level that may still be best, sees demand up to that level only, and so
        observes all smaller ones. FQL sees all demand, updates every level, and plays the best one.
        """
        horizon, products = self.problem.horizon, self.problem.products
        log_term = horizon * math.log(horizon * len(demand) * self.points)
        for k, path in enumerate(demand, start=1):
            seen = self._episode(path, eliminate)
            step_size = (horizon + 1) / (horizon + k)
            value = np.zeros((horizon + 1, self.points, products))
            for h in reversed(range(horizon)):
                moved = (1 - step_size) * self.q[h] + step_size * self._target(h, seen, value)
                self.q[h] = np.where(self.active[h], moved, self.q[h])
                if eliminate:
                    candidates = np.where(self.active[h], self.q[h], -np.inf)
                    self.active[h] &= candidates.max(axis=0) - candidates <= math.sqrt(log_term / k)
                    self.last[h] = self.points - 1 - self.active[h][::-1].argmax(axis=0)
                value[h] = _best_above(np.where(self.active[h], self.q[h], -np.inf))
        return self._policy()

    def replay(self, log: Trajectories) -> Policy:
        """HQL in one pass over a log: each row updates every level up to the one that was ordered.

        Nothing is eliminated, because the log has chosen the levels; α_k counts how often each was observed. A level
        that fewer than one row in twenty has observed is never chosen: too little is known about it.
        """
        horizon = self.problem.horizon
        observed = np.zeros(self.q.shape)
        value = np.concatenate([self.q, np.zeros((1, *self.q.shape[1:]))])
        for i in range(len(log)):
            for h in reversed(range(horizon)):
                action = log.actions[i, h]
                seen = self.problem.observe(h, log.states[i, h], action, log.next_states[i, h])[0]
                reward, arrived = self._earned(h, self.levels, seen)
                known = (self.levels <= action) | ~np.bool_(self.problem.censored)
                observed[h] += known
                step_size = (horizon + 1) / (horizon + np.maximum(observed[h], 1))
                future = value[h + 1][self._grid_above(arrived), self.column]
                target = (reward - self.floor[h]) / self.span + future
                self.q[h] = np.where(known, (1 - step_size) * self.q[h] + step_size * target, self.q[h])
                value[h] = _best_observed_above(self.q[h], observed[h] > 0)
        self.active = observed >= max(1.0, len(log) / FEWEST_OBSERVED)
        self.active[:, 0] |= ~self.active.any(axis=1)  # without any observation: order nothing
        return self._policy()

    def _policy(self) -> Policy:
        best = np.where(self.active, self.q, -np.inf).argmax(axis=1)  # (H, k)
        table = np.take_along_axis(self.levels, best, axis=0)
        return Policy(self.problem, Levels(table), Guarantee.of_nothing(self.problem.horizon))

    def _earned(self, h: int, level: FloatArray, demand: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What a level earns under a demand, and the stock that it leaves."""
        arrived = self.problem.next_state(h, level, level, demand)
        return self.problem.coordinate_reward(h, level, level, arrived), arrived

    def _episode(self, demand: FloatArray, eliminate: bool) -> FloatArray:
        """One episode: its demand (H, k) as far as the learner saw it."""
        problem = self.problem
        stock, seen = problem.initial_state, np.empty_like(demand)
        for h in range(problem.horizon):
            chosen = self.last[h] if eliminate else self.q[h].argmax(axis=0)
            level = np.maximum(self.levels[chosen, self.column], stock)
            arrived = problem.next_state(h, stock, level, demand[h])
            # One-sided: cut off where the shelf ran empty, which is all that levels below need.
            seen[h] = problem.observe(h, stock, level, arrived)[0] if eliminate else demand[h]
            stock = arrived
        return seen

    def _target(self, h: int, seen: FloatArray, value: FloatArray) -> FloatArray:
        """r_{h..τ} + V_τ(x_τ) for every level at step h, (P, k), on the demand that was seen.

        τ is the next step at which a level can be chosen again; until then stock beyond all active levels is kept.
        """
        stock = self.levels
        earned, result = np.zeros_like(stock), np.zeros_like(stock)
        waiting: BoolArray = np.ones(stock.shape, dtype=bool)
        for t in range(h, self.problem.horizon):
            reward, arrived = self._earned(t, stock, seen[t])
            earned = earned + np.where(waiting, (reward - self.floor[t]) / self.span, 0.0)
            stock = np.maximum(arrived, self.problem.action_low)  # stock owed is ordered first
            index, last = self._grid_above(arrived), self.last[t + 1]
            free = waiting & (index <= last)
            if t == h and free.all():  # as nearly always: nothing has to wait
                return earned + value[t + 1][index, self.column]
            result = np.where(free, earned + value[t + 1][np.minimum(index, last), self.column], result)
            waiting = waiting & ~free
            if not waiting.any():
                break
        return np.where(waiting, earned, result)

    def _grid_above(self, stock: FloatArray) -> IntArray:
        """The first grid level at or above a stock."""
        position = np.ceil((stock - self.problem.action_low) / self.width - 1e-9)
        return np.minimum(np.maximum(position, 0), self.points - 1).astype(np.int64)  # np.clip is slow on small arrays


def _best_above(q: FloatArray) -> FloatArray:
    """V(x) for x on the grid: the best level at or above it, (P, k)."""
    return np.asarray(np.maximum.accumulate(q[::-1], axis=0)[::-1])


def _best_observed_above(q: FloatArray, observed: BoolArray) -> FloatArray:
    """The same among observed levels; above them all, the highest of those; before any observation, the initial Q."""
    best = _best_above(np.where(observed, q, -np.inf))
    highest = len(q) - 1 - observed[::-1].argmax(axis=0)
    beyond = np.take_along_axis(q, highest[None], axis=0)
    return np.where(observed.any(axis=0), np.where(np.isinf(best), beyond, best), _best_above(q))


# Methods by name: those that are a `Pool`, and the others.
POOLS: dict[str, Callable[[Setting], Pool]] = {
    "pool": lambda s: Pool(s.rho, values=Separable(s.granularity)),
    "published": lambda s: Pool.published(s.rho, s.granularity, scale=s.scale, failure=s.failure),
    "grid": lambda s: dp_apvi(s.rho, s.granularity, scale=s.scale, failure=s.failure),
    "outcome zones": lambda s: Pool(s.rho, Outcomes(), Zones(s.granularity)),
    # Qin et al.'s partial discretisation as POOL describes it: its zones at w = d = 1, without noise.
    "partial": lambda s: Pool.published(math.inf, s.granularity, scale=0.0),
}
OTHERS: dict[str, Callable[[Bench, Setting, SeededNoise], Policy]] = {
    "input": lambda b, s, noise: input_perturbation(b.problem, b.log, s.rho, points=s.granularity, noise=noise),
    "output": lambda b, s, noise: output_perturbation(b.problem, b.log, s.rho, points=s.granularity, noise=noise),
    "data-free": lambda b, *_: data_free(b.problem),
    "middle": lambda b, *_: order_to_the_middle(b.problem),
    "hql": lambda b, s, _: QLearning(b.problem, s.granularity).play(b.train, eliminate=True),
    "fql": lambda b, s, _: QLearning(b.problem, s.granularity).play(b.train, eliminate=False),
    "replay": lambda b, s, _: QLearning(b.problem, s.granularity).replay(b.log),
}
