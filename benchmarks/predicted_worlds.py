"""The worlds of `benchmarks.predicted`: logs whose true costs are known, because demand is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.chain import DAYS, HISTORY, Chain, run_chain
from benchmarks.chain import costs as chain_costs
from benchmarks.real_benches import FACTOR, LEARNED, drawn_costs, independent_orders, saa_levels, weekly_cost
from benchmarks.real_managers import WEEK_PROFILE, _as_rule
from poolrl import LostSales, Policy, Trajectories, rollout_cost
from poolrl.checks import BoolArray, FloatArray
from poolrl.simulation.evaluation import optimum
from poolrl.simulation.families import worlds_of
from poolrl.simulation.logs import Behaviour, simulate_log
from poolrl.workflow.trades.shop_example import usual_demand

WEEKS = 2_000
# Fresh demand on which policies are judged, and bins of its law.
JUDGED, LAW_BINS = 20_000, 512
FAMILY_NAMES = ("normal", "beta", "exponential", "bimodal")
# Order-up-to levels as multiples of mean demand: lean, and always plenty. None is even between stock and bound.
HABITS = {"even orders": None, "lean orders": (0.5, 1.7), "full shelves": (1.5, 2.5)}


@dataclass(frozen=True)
class Known:
    """A log with its true costs per trajectory: of today's orders, of knowing the demand, and of any policy."""

    world: str
    problem: LostSales
    log: Trajectories
    today: float
    best: float
    cost: Callable[[Policy], float]
    follows: bool = False  # orders follow demand, so no cost should be shown


def simulated_worlds(seed: int) -> Iterator[Known]:
    """README's example, families under three kinds of orders, few weeks, and managers with and without their scale."""
    means = usual_demand(seed)
    problem = LostSales(
        horizon=7,
        products=3,
        holding=[0.30, 0.10, 0.50],
        shortage=[0.60, 0.40, 0.70],
        demand_max=[150.0, 200.0, 100.0],  # round numbers from the size of the shelf, not from data
    )
    usual, by_feel = means.mean(axis=0), (0.4, 2.0)
    rng = np.random.default_rng(seed)
    rng.random(means.shape)  # those of the means
    shape = rng.uniform(0.2, 0.4, means.shape) ** -2

    def grocer(weeks: int, part: int) -> FloatArray:
        """Demand (weeks, H, k), skewed to the right as demand is."""
        rng = np.random.default_rng(10 * seed + part)
        return np.minimum(rng.gamma(shape, means / shape, (weeks, *means.shape)), problem.demand_max)

    def manager(step: int, stock: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Orders by feel, the same on every day of the week."""
        return np.maximum(stock, np.rint(usual * rng.uniform(*by_feel, stock.shape)))

    for weeks, name in ((WEEKS, "README's example"), (300, "README's example, 300 weeks")):
        demand = np.rint(grocer(weeks, 1))
        log = simulate_log(problem, demand, rng=np.random.default_rng(seed), behaviour=manager)
        yield _without_labels(name, problem, log, grocer(JUDGED, 2), grocer(JUDGED, 3), usual, by_feel)
    shop = LostSales(horizon=5, products=3, holding=[0.1, 0.2, 0.3], shortage=[0.4, 0.5, 0.9], demand_max=100.0)
    for family in FAMILY_NAMES:
        world = worlds_of(shop, family, runs=seed + 1)[seed]
        rng = np.random.default_rng([seed, 1])
        fresh = world.sample(shop, JUDGED, rng)
        for kind, habit in HABITS.items():
            usual = fresh.mean(axis=(0, 1))
            log = shop.simulate_log(world.sample(shop, WEEKS, rng), rng=rng, behaviour=_habit(usual, habit))
            name = f"{family}, {kind}"
            yield _without_labels(name, shop, log, fresh, world.sample(shop, JUDGED, rng), usual, habit)
    yield from _managers(seed)


def _habit(usual: FloatArray, habit: tuple[float, float] | None) -> Behaviour | None:
    if habit is None:
        return None
    return lambda step, stock, rng: np.maximum(stock, usual * rng.uniform(*habit, stock.shape))


def _without_labels(
    name: str,
    problem: LostSales,
    log: Trajectories,
    fresh: FloatArray,
    other: FloatArray,
    usual: FloatArray,
    habit: tuple[float, float] | None,
) -> Known:
    past = problem.simulate_log(other, rng=np.random.default_rng(5), behaviour=_habit(usual, habit))
    today = _cost_of(problem, past.actions, other)
    best = optimum(problem.changed(boundary=1.0), _law(fresh, problem.demand_max))
    return Known(
        name, problem, log, today, rollout_cost(problem, best, fresh), lambda p: rollout_cost(problem, p, fresh)
    )


def _cost_of(problem: LostSales, levels: FloatArray, demand: FloatArray) -> float:
    left, missing = np.maximum(levels - demand, 0.0), np.maximum(demand - levels, 0.0)
    return float((problem.holding * left + problem.shortage * missing).sum(axis=(1, 2)).mean())


def _law(paths: FloatArray, top: FloatArray) -> FloatArray:
    """Shares of equal bins, (H, k, bins)."""
    place = np.minimum(paths / top * LAW_BINS, LAW_BINS - 1).astype(np.int64)
    return np.stack(
        [
            [np.bincount(place[:, h, i], minlength=LAW_BINS) / len(paths) for i in range(paths.shape[2])]
            for h in range(paths.shape[1])
        ]
    )


def _managers(seed: int) -> Iterator[Known]:
    """Shops of all sizes whose managers know what to expect, promotions included; with a scale and without."""
    rng = np.random.default_rng([seed, 2])
    chain = LostSales(horizon=7, holding=0.1, shortage=0.4, demand_max=4.0, labels={"promo": ["no", "yes"]})
    plain = LostSales(horizon=7, holding=0.1, shortage=0.4, demand_max=400.0)

    def drawn(weeks: int) -> tuple[FloatArray, BoolArray, FloatArray, FloatArray]:
        size = np.clip(rng.lognormal(3.5, 0.6, (weeks, 1, 1)), 5.0, 100.0)
        promo = rng.random(weeks) < 0.3
        lift = np.where(promo, 1.4, 1.0)[:, None, None]
        demand = np.minimum(size * lift * rng.gamma(9.0, 1 / 9, (weeks, 7, 1)), 4.0 * size)
        stock, levels = np.zeros((weeks, 1)), np.empty_like(demand)
        for day in range(7):
            wanted = size[:, 0] * lift[:, 0] * rng.uniform(0.8, 1.5, (weeks, 1))
            levels[:, day] = np.maximum(stock, wanted)
            stock = np.maximum(levels[:, day] - demand[:, day], 0.0)
        return size, promo, demand, levels

    def log_of(size: FloatArray, demand: FloatArray, levels: FloatArray, **known: Any) -> Trajectories:
        left = np.maximum(levels - demand, 0.0)
        states = np.concatenate([np.zeros_like(left[:, :1]), left[:, :-1]], axis=1)
        return Trajectories(states=states, actions=levels, next_states=left, **known)

    size, promo, demand, levels = drawn(WEEKS)
    words = np.array(["no", "yes"])
    later_size, later_promo, later, later_levels = drawn(JUDGED)
    multiples, flags = later / later_size, {"promo": words[later_promo.astype(int)]}
    ones = np.ones_like(multiples)

    def cost(policy: Policy) -> float:
        return rollout_cost(chain, policy, multiples, scale=ones, labels=flags)

    law = np.stack([_law(multiples[later_promo == flag], chain.demand_max) for flag in (False, True)])
    best = cost(optimum(chain.changed(boundary=1.0), law))
    today = _plain_cost(later_levels / later_size, multiples)
    scale = np.broadcast_to(size, demand.shape)
    known = {"scale": scale, "labels": {"promo": words[promo.astype(int)]}}
    yield Known("managers, with a scale", chain, log_of(size, demand, levels, **known), today, best, cost)
    yield Known(
        "managers, no scale", plain, log_of(size, demand, levels), _plain_cost(later_levels, later), np.nan,
        lambda policy: rollout_cost(plain, policy, np.minimum(later, 400.0)), follows=True,
    )  # fmt: skip


def _plain_cost(levels: FloatArray, demand: FloatArray) -> float:
    left, missing = np.maximum(levels - demand, 0.0), np.maximum(demand - levels, 0.0)
    return float((0.1 * left + 0.4 * missing).sum(axis=(1, 2)).mean())


def real_worlds(chain: Chain, seed: int) -> Iterator[Known]:
    """Rossmann: independent orders with a policy per store; managers with scale and promotion, and without."""
    holding, shortage = drawn_costs(seed, chain.stores, DAYS)
    bound = 25_000.0
    demand = np.minimum(chain.demand, bound)
    train, test = demand[:, :LEARNED], demand[:, LEARNED:]
    problem = LostSales(
        horizon=DAYS, demand_max=bound, labels={"store": range(chain.stores)},
        holding=holding[..., None], shortage=shortage[..., None],
    )  # fmt: skip
    given = {"store": np.repeat(np.arange(chain.stores), LEARNED)}
    log = independent_orders(problem, train.reshape(-1, DAYS, 1), seed, labels=given)
    h, b = holding[:, None], shortage[:, None]
    levels = log.actions[..., 0].reshape(train.shape)
    left, missing = np.maximum(levels - train, 0.0), np.maximum(train - levels, 0.0)
    today = float((h * left + b * missing).sum(axis=-1).mean())
    known = saa_levels(train, holding, shortage)[:, None]
    for name, weeks in (("the log's weeks", train), ("later weeks", test)):

        def cost(policy: Policy, weeks: FloatArray = weeks) -> float:
            return float(weekly_cost(policy.levels[..., 0][:, None], weeks, h, b).mean())

        best = float(weekly_cost(known, weeks, h, b).mean())
        yield Known(f"Rossmann, each store, {name}", problem, log, today, best, cost)
    yield from _real_managers(chain, seed)


def _real_managers(chain: Chain, seed: int) -> Iterator[Known]:
    holding, shortage = drawn_costs(seed, DAYS)
    learned, stores = slice(HISTORY, LEARNED), chain.stores

    def managers(week: int, day: int, scale: FloatArray, stock: FloatArray) -> FloatArray:
        return FACTOR * scale

    start = {"sold": chain.demand[:, :HISTORY], "stock": np.zeros(stores)}
    ran = run_chain(chain, managers, weeks=learned, **start)
    today = chain_costs(chain, ran, learned, holding, shortage)  # (stores,) a week
    unit = ran.scale.sum(axis=-1).mean(axis=-1) / WEEK_PROFILE.sum()
    selling = unit > 0
    costs = {"holding": holding[:, None], "shortage": shortage[:, None]}
    problem = LostSales(horizon=DAYS, demand_max=4.0, labels={"promo": [0, 1]}, scale_profile=WEEK_PROFILE, **costs)
    promo = {"promo": np.tile(chain.promo[learned], stores)}
    log = ran.log(slice(None), labels=promo, scale=ran.scales(slice(None)), scale_memory=HISTORY)

    def cost(policy: Policy) -> float:
        # The rule counts weeks from LEARNED on, so the log's weeks are put there.
        rule = _as_rule(policy, Chain(chain.demand, np.concatenate([chain.promo[:LEARNED], chain.promo[learned]]), ""),
                        ["promo"], scaled=True)  # fmt: skip
        closed = run_chain(chain, rule, weeks=learned, **start)
        return float((chain_costs(chain, closed, learned, holding, shortage)[selling] / unit[selling]).mean())

    yield Known("Rossmann, managers, scale", problem, log, float((today[selling] / unit[selling]).mean()), np.nan, cost)
    plain = LostSales(horizon=DAYS, demand_max=45_000.0, **costs)

    def plain_cost(policy: Policy) -> float:
        rule = _as_rule(policy, chain, [], scaled=False)
        closed = run_chain(chain, rule, weeks=learned, **start)
        return float(chain_costs(chain, closed, learned, holding, shortage).mean())

    yield Known(
        "Rossmann, managers, no scale",
        plain,
        ran.log(slice(None)),
        float(today.mean()),
        np.nan,
        plain_cost,
        follows=True,
    )
