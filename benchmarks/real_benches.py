"""The benches of `benchmarks.real`: what is learned from which log, and what each contender costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.chain import DAYS, HISTORY, Chain, run_chain, sales
from benchmarks.chain import costs as chain_costs
from benchmarks.version_0_5 import levels_of_0_5
from poolrl import LostSales, Policy, Pool, SeededNoise, Trajectories, data_free
from poolrl.checks import FloatArray
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.shops import plan_shops
from poolrl.paper import rossmann

LEARNED = 66  # weeks
FACTOR = 1.15  # of today's managers
# What a chain knows of its week before any log: Monday is strong, Saturday is short, Sunday is closed.
WEEK_PROFILE = np.array([1.2, 1.0, 1.0, 1.0, 1.0, 0.8, 0.05])[:, None]
FACTORS = (0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 2.0)
SAA_BINS = 512
# A store has its own levels where the noise of one level is below this share of its slots.
OWN_LEVELS = 0.1
OURS, OLD = "ours", "version 0.5"
RHOS = (1.0, 0.1, 0.01)


@dataclass(frozen=True)
class Figure:
    """One contender in one run; rho is None for those that release nothing."""

    bench: str
    contender: str
    rho: float | None
    value: float


def independent_orders(problem: LostSales, demand: FloatArray, seed: int, **known: Any) -> Trajectories:
    """A log (n, 7, products) of orders that are uniform between stock and bound."""
    return problem.simulate_log(demand, rng=np.random.default_rng([seed, 5]), **known)


def weekly_cost(levels: FloatArray, demand: FloatArray, holding: FloatArray, shortage: FloatArray) -> FloatArray:
    """The mean cost of each store (stores,), every week from an empty shelf; all arguments are (stores, weeks, 7)."""
    stock, total = np.zeros(demand.shape[:2]), np.zeros(demand.shape[:2])
    for day in range(DAYS):
        level = np.maximum(stock, levels[..., day])
        stock = np.maximum(level - demand[..., day], 0.0)
        total += holding[..., day] * stock + shortage[..., day] * np.maximum(demand[..., day] - level, 0.0)
    return np.asarray(total.mean(axis=1))


def saa_levels(demand: FloatArray, holding: FloatArray, shortage: FloatArray) -> FloatArray:
    """SAA of each store (stores, 7) on its uncensored demand (stores, weeks, 7): not private."""
    stores = len(demand)
    top = np.maximum(demand.max(axis=(1, 2)) * (1 + 1e-9), 1.0)
    place = np.minimum(demand / top[:, None, None] * SAA_BINS, SAA_BINS - 1).astype(np.int64)
    tree = np.arange(stores)[:, None, None] * DAYS + np.arange(DAYS)
    counts = np.bincount((tree * SAA_BINS + place).ravel(), minlength=stores * DAYS * SAA_BINS)
    weights = np.moveaxis(counts.reshape(stores, DAYS, SAA_BINS) / demand.shape[1], 0, 1)
    shops = LostSales(
        horizon=DAYS, products=stores, holding=holding.T, shortage=shortage.T, demand_max=np.maximum(top, 1.0)
    )
    points = (np.arange(SAA_BINS) + 0.5) / SAA_BINS * top[:, None]
    return plan_shops(shops, OutcomeDistribution(points, np.ascontiguousarray(weights))).T


def drawn_costs(seed: int, *shape: int) -> FloatArray:
    """h and b, (2, *shape)."""
    return np.random.default_rng([seed, 0]).uniform(0.0, 0.5, (2, *shape))


def managers_levels(chain: Chain, stores: slice, factor: float) -> FloatArray:
    """What managers order up to in the weeks that are judged, by the averages of their own sales."""
    part = Chain(chain.demand[stores], chain.promo, chain.source)
    seen = part.demand[:, :HISTORY]
    ran = run_chain(part, lambda week, day, scale, stock: factor * scale, weeks=slice(HISTORY, None), sold=seen,
                    stock=np.zeros(part.stores))  # fmt: skip
    return factor * ran.scale[:, LEARNED - HISTORY :]


def independent_bench(name: str, chain: Chain, seed: int, stores: slice, bound: float) -> Iterator[Figure]:
    """Benches a and b: stores as products of one shop."""
    demand = np.minimum(chain.demand[stores], bound)
    count = len(demand)
    holding, shortage = drawn_costs(seed, count, DAYS)
    problem = LostSales(horizon=DAYS, products=count, holding=holding.T, shortage=shortage.T, demand_max=bound)
    train, test = demand[:, :LEARNED], demand[:, LEARNED:]
    log = independent_orders(problem, np.moveaxis(train, 0, 2), seed)
    h, b = holding[:, None], shortage[:, None]

    def cost(levels: FloatArray) -> float:
        return float(weekly_cost(levels, test, h, b).sum())

    best = cost(saa_levels(train, holding, shortage)[:, None])
    yield from _today(name, lambda factor: cost(managers_levels(chain, stores, factor)) / best - 1)
    yield Figure(name, "data-free", None, cost(data_free(problem).levels.T[:, None]) / best - 1)
    for rho in RHOS:
        policy = Pool(rho).fit(problem, log, noise=SeededNoise(seed))
        yield Figure(name, OURS, rho, cost(policy.levels.T[:, None]) / best - 1)
        old = levels_of_0_5(problem, log, rho=rho, seed=seed)
        yield Figure(name, OLD, rho, cost(old.T[:, None]) / best - 1)


def _today(name: str, value: Callable[[float], float]) -> Iterator[Figure]:
    yield Figure(name, "today's managers", None, value(FACTOR))
    yield Figure(name, "best constant factor", None, min(value(factor) for factor in FACTORS))


def labelled_bench(name: str, chain: Chain, seed: int, bound: float, *, promo: bool) -> Iterator[Figure]:
    """Benches c and d: every store its own policy, in d one for promotion weeks too."""
    demand = np.minimum(chain.demand, bound)
    train, test = demand[:, :LEARNED], demand[:, LEARNED:]
    holding, shortage = drawn_costs(seed, chain.stores, DAYS)
    h, b = holding[:, None], shortage[:, None]
    axes = (slice(None), None) if promo else (slice(None),)
    declared: dict[str, Any] = {"store": range(chain.stores)} | ({"promo": [0, 1]} if promo else {})
    costs = {"holding": holding[axes][..., None], "shortage": shortage[axes][..., None]}
    problem = LostSales(horizon=DAYS, demand_max=bound, labels=declared, **costs)
    given: dict[str, Any] = {"store": np.repeat(np.arange(chain.stores), LEARNED)}
    if promo:
        given["promo"] = np.tile(chain.promo[:LEARNED], chain.stores)
    log = independent_orders(problem, train.reshape(-1, DAYS, 1), seed, labels=given)

    def cost(levels: FloatArray) -> float:
        return float(weekly_cost(levels, test, h, b).sum())

    best = cost(saa_levels(train, holding, shortage)[:, None])
    shift = 0.0 if promo else 1.0
    yield from _today(name, lambda factor: cost(managers_levels(chain, slice(None), factor)) / best - shift)
    plain = LostSales(horizon=DAYS, products=chain.stores, holding=holding.T, shortage=shortage.T, demand_max=bound)
    yield Figure(name, "data-free", None, cost(_data_free_levels(plain).T[:, None]) / best - shift)
    if promo:
        known = np.empty_like(test)
        for flag in (0, 1):
            own = saa_levels(train[:, chain.promo[:LEARNED] == flag], holding, shortage)
            known[:, chain.promo[LEARNED:] == flag] = own[:, None]
        yield Figure(name, "SAA with promotion (not private)", None, cost(known) / best)
    for rho in RHOS:
        start = time.perf_counter()
        policy = Pool(rho).fit(problem, log, noise=SeededNoise(seed))
        yield Figure(name, "seconds of our fit", rho, time.perf_counter() - start)
        levels = policy.levels[..., 0]
        by_week = levels[:, chain.promo[LEARNED:]] if promo else levels[:, None]
        yield Figure(name, OURS, rho, cost(by_week) / best - shift)
        if not promo:
            # 0.5 knows no labels: a fit per store, and every trajectory is in one of them.
            one = [_store_of_0_5(train[i], holding[i], shortage[i], bound, rho, seed) for i in range(chain.stores)]
            yield Figure(name, OLD, rho, cost(np.stack(one)[:, None]) / best - shift)


def _data_free_levels(problem: LostSales) -> FloatArray:
    points = (np.arange(SAA_BINS) + 0.5) / SAA_BINS * problem.demand_max[:, None]
    uniform = np.full((problem.horizon, problem.products, SAA_BINS), 1 / SAA_BINS)
    return plan_shops(problem, OutcomeDistribution(points, uniform))


def _store_of_0_5(
    train: FloatArray, holding: FloatArray, shortage: FloatArray, bound: float, rho: float, seed: int
) -> FloatArray:
    problem = LostSales(horizon=DAYS, holding=holding[:, None], shortage=shortage[:, None], demand_max=bound)
    return levels_of_0_5(problem, independent_orders(problem, train[..., None], seed), rho=rho, seed=seed)[:, 0]


def chosen_parts(stores: int, weeks: int, rho: float) -> tuple[str, ...]:
    """The parts of a fit to the managers' log, by public quantities alone."""
    noise_share = math.sqrt(DAYS / rho) / (weeks / 2)
    return ("store", "promo") if noise_share <= OWN_LEVELS else ("scale", "promo")


def managers_bench(name: str, chain: Chain, seed: int) -> Iterator[Figure]:
    """Bench e: managers' orders, judged in closed loop."""
    holding, shortage = drawn_costs(seed, DAYS)
    learned, judged = slice(HISTORY, LEARNED), slice(LEARNED, chain.demand.shape[1])
    empty = np.zeros(chain.stores)

    def constant(factor: float) -> Callable[..., FloatArray]:
        return lambda week, day, scale, stock: factor * scale

    log = run_chain(chain, constant(FACTOR), weeks=learned, sold=chain.demand[:, :HISTORY], stock=empty)

    def cost(rule: Callable[..., FloatArray]) -> float:
        ran = run_chain(chain, rule, weeks=judged, sold=sales(log, HISTORY), stock=log.left[:, -1, -1])
        return float(chain_costs(chain, ran, judged, holding, shortage).mean())

    today = cost(constant(FACTOR))
    yield from _today(name, lambda factor: cost(constant(factor)) / today)
    known = saa_levels(chain.demand[:, :LEARNED], *(np.tile(c, (chain.stores, 1)) for c in (holding, shortage)))
    yield Figure(name, "SAA per store (not private)", None, cost(lambda week, day, *_: known[:, day]) / today)
    bound = float(2 ** math.ceil(math.log2(45_000))) if chain.source == "made up" else 45_000.0
    plain = LostSales(horizon=DAYS, holding=holding[:, None], shortage=shortage[:, None], demand_max=bound)
    free = _data_free_levels(plain)[:, 0]
    yield Figure(name, "data-free", None, cost(lambda week, day, *_: np.full(chain.stores, free[day])) / today)
    for rho in RHOS:
        old = levels_of_0_5(plain, log.log(slice(None)), rho=rho, seed=seed)[:, 0]
        yield Figure(name, OLD, rho, cost(lambda week, day, *_, old=old: np.full(chain.stores, old[day])) / today)
        chosen = chosen_parts(chain.stores, LEARNED - HISTORY, rho)
        values: dict[tuple[str, ...], float] = {}
        for parts in (chosen, ("scale", "promo"), ("scale",)):
            if parts not in values:
                values[parts] = cost(_learned_rule(chain, log, parts, (holding, shortage), bound, rho, seed)) / today
        yield Figure(name, OURS, rho, values[chosen])
        yield Figure(name, "scale, promotion", rho, values["scale", "promo"])
        yield Figure(name, "scale", rho, values[("scale",)])
        flat = _learned_rule(chain, log, ("scale", "promo"), (holding, shortage), bound, rho, seed, profile=1.0)
        yield Figure(name, "scale, promotion, flat profile", rho, cost(flat) / today)


def choices_bench(name: str, chain: Chain, seed: int) -> Iterator[Figure]:
    """Bench f: what was chosen for bench e, one choice at a time undone (scale and promotion week)."""
    holding, shortage = drawn_costs(seed, DAYS)
    learned, judged = slice(HISTORY, LEARNED), slice(LEARNED, chain.demand.shape[1])

    def managers(week: int, day: int, scale: FloatArray, stock: FloatArray) -> FloatArray:
        return FACTOR * scale

    log = run_chain(chain, managers, weeks=learned, sold=chain.demand[:, :HISTORY], stock=np.zeros(chain.stores))

    def cost(rule: Callable[..., FloatArray]) -> float:
        ran = run_chain(chain, rule, weeks=judged, sold=sales(log, HISTORY), stock=log.left[:, -1, -1])
        return float(chain_costs(chain, ran, judged, holding, shortage).mean())

    today = cost(managers)
    variants: dict[str, dict[str, Any]] = {
        f"levels up to {limit:g} times the explored range": {"poolrl.learning.shops.CLIMB": limit}
        for limit in (1.0, 1.3, 1.5, 2.0, math.inf)
    }
    variants["levels that do not settle with their scale"] = {
        "poolrl.learning.planning.settled_levels": lambda problem, outcomes, levels: levels
    }
    for contender, undone in variants.items():
        with ExitStack() as stack:
            for place, value in undone.items():
                stack.enter_context(patch(place, value))
            for rho in RHOS:
                rule = _learned_rule(chain, log, ("scale", "promo"), (holding, shortage), 45_000.0, rho, seed)
                yield Figure(name, contender, rho, cost(rule) / today)


def _learned_rule(
    chain: Chain, log: Any, parts: tuple[str, ...], costs: tuple[FloatArray, FloatArray], bound: float, rho: float,
    seed: int, profile: Any = WEEK_PROFILE,
) -> Callable[..., FloatArray]:  # fmt: skip
    """A policy of the given parts, as a rule for `run_chain`."""
    scaled = "scale" in parts
    weeks = LEARNED - HISTORY
    given = {
        "store": np.repeat(np.arange(chain.stores), weeks),
        "promo": np.tile(chain.promo[HISTORY:LEARNED], chain.stores),
    }
    values = {"store": range(chain.stores), "promo": [0, 1]}
    named = [part for part in parts if part != "scale"]
    problem = LostSales(
        horizon=DAYS,
        holding=costs[0][:, None],
        shortage=costs[1][:, None],
        demand_max=4.0 if scaled else bound,
        labels={name: values[name] for name in named},
        scale_profile=profile if scaled else 1.0,
    )
    # A week is replaced by another week of the same store, so four later weeks of it may change their scale.
    known: dict[str, Any] = {"scale": log.scales(slice(None)), "scale_memory": HISTORY} if scaled else {}
    trajectories = log.log(slice(None), labels={name: given[name] for name in named}, **known)
    policy = Pool(rho).fit(problem, trajectories, noise=SeededNoise(seed))
    return _as_rule(policy, chain, named, scaled)


def _as_rule(policy: Policy, chain: Chain, named: list[str], scaled: bool) -> Callable[..., FloatArray]:
    def rule(week: int, day: int, scale: FloatArray, stock: FloatArray) -> FloatArray:
        today = {"store": np.arange(chain.stores), "promo": np.full(chain.stores, chain.promo[LEARNED + week])}
        labels = {name: today[name] for name in named}
        if not scaled:
            return policy.act(day, stock[:, None], labels=labels)[:, 0]
        expected = scale > 0
        safe = np.where(expected, scale, 1.0)[:, None]
        # Where nothing is expected (a closed day), nothing is ordered.
        return np.where(expected, policy.act(day, stock[:, None], scale=safe, labels=labels)[:, 0], stock)

    return rule


BENCHES: dict[str, tuple[str, Callable[[Chain, int], Iterator[Figure]]]] = {
    "a": ("one store, gap to SAA", lambda c, s: independent_bench("a", c, s, slice(0, 1), rossmann.BOUND)),
    "b": ("8 stores, gap to SAA", lambda c, s: independent_bench("b", c, s, slice(0, 8), rossmann.BOUND_OF_SEVERAL)),
    "c": ("each store, gap to SAA", lambda c, s: labelled_bench("c", c, s, 25_000.0, promo=False)),
    "d": ("stores x promotion, cost / SAA without", lambda c, s: labelled_bench("d", c, s, 30_000.0, promo=True)),
    "e": ("managers, cost / today's", lambda c, s: managers_bench("e", c, s)),
    "f": ("choices of e, cost / today's", lambda c, s: choices_bench("f", c, s)),
}
