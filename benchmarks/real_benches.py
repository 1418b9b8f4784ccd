"""The benches of `benchmarks.real`: what is learned from which log, and what each contender costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.chain import DAYS, HISTORY, Chain, run_chain
from poolrl import LostSales, Pool, SeededNoise, Trajectories
from poolrl.checks import FloatArray
from poolrl.learning.levels import plan_shops
from poolrl.learning.outcomes import OutcomeDistribution

LEARNED = 66  # weeks
FACTOR = 1.15  # of today's managers
FACTORS = (0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 2.0)
SAA_BINS = 512
# Bench g needs no more of them.
NEW_SHOPS_AMONG = 200
OURS = "ours"
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


def managers_levels(chain: Chain, factor: float) -> FloatArray:
    """Managers' order-up-to levels in the weeks that are judged, by the averages of their own sales."""
    seen = chain.demand[:, :HISTORY]
    ran = run_chain(chain, lambda week, day, scale, stock: factor * scale, weeks=slice(HISTORY, None), sold=seen,
                    stock=np.zeros(chain.stores))  # fmt: skip
    return factor * ran.scale[:, LEARNED - HISTORY :]


def today_figures(name: str, value: Callable[[float], float]) -> Iterator[Figure]:
    """The costs of managers, and of the constant multiple that would have been best: chosen after the fact."""
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
    yield from today_figures(name, lambda factor: cost(managers_levels(chain, factor)) / best - shift)
    plain = LostSales(horizon=DAYS, products=chain.stores, holding=holding.T, shortage=shortage.T, demand_max=bound)
    yield Figure(name, "data-free", None, cost(data_free_levels(plain).T[:, None]) / best - shift)
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


def data_free_levels(problem: LostSales) -> FloatArray:
    """The plan on uniform demand, (H, products)."""
    points = (np.arange(SAA_BINS) + 0.5) / SAA_BINS * problem.demand_max[:, None]
    uniform = np.full((problem.horizon, problem.products, SAA_BINS), 1 / SAA_BINS)
    return plan_shops(problem, OutcomeDistribution(points, uniform))


def new_shops_bench(name: str, chain: Chain, seed: int, bound: float) -> Iterator[Figure]:
    """Bench g: one store in ten is declared but has no rows. What do the population's levels cost it?"""
    demand = np.minimum(chain.demand[:NEW_SHOPS_AMONG], bound)
    train, test = demand[:, :LEARNED], demand[:, LEARNED:]
    holding, shortage = drawn_costs(seed, DAYS)
    stores, new = len(demand), np.arange(len(demand)) % 10 == 0
    costs = {"holding": holding[:, None], "shortage": shortage[:, None]}
    problem = LostSales(horizon=DAYS, demand_max=bound, labels={"store": range(stores)}, **costs)
    known = np.repeat(np.flatnonzero(~new), LEARNED)
    log = independent_orders(problem, train[~new].reshape(-1, DAYS, 1), seed, labels={"store": known})

    def cost(levels: FloatArray) -> float:
        return float(weekly_cost(levels[new], test[new], holding, shortage).sum())

    every = np.tile(holding, (stores, 1)), np.tile(shortage, (stores, 1))
    best = cost(saa_levels(train, *every)[:, None])
    plain = LostSales(horizon=DAYS, products=stores, holding=every[0].T, shortage=every[1].T, demand_max=bound)
    yield Figure(name, "data-free", None, cost(data_free_levels(plain).T[:, None]) / best - 1)
    for rho in RHOS:
        policy = Pool(rho).fit(problem, log, noise=SeededNoise(seed))
        yield Figure(name, OURS, rho, cost(policy.levels[..., 0][:, None]) / best - 1)
