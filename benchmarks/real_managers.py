"""Benches e and f of `benchmarks.real`: managers' orders, judged in closed loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.chain import DAYS, HISTORY, Chain, run_chain, sales
from benchmarks.chain import costs as chain_costs
from benchmarks.real_benches import (
    FACTOR,
    LEARNED,
    OURS,
    RHOS,
    Figure,
    data_free_levels,
    drawn_costs,
    saa_levels,
    today_figures,
)
from poolrl import LostSales, Policy, Pool, SeededNoise
from poolrl.checks import FloatArray

# A chain's knowledge of its week before any log: Monday is strong, Saturday is short, Sunday is closed.
WEEK_PROFILE = np.array([1.2, 1.0, 1.0, 1.0, 1.0, 0.8, 0.05])[:, None]
# A store has its own levels where the noise of one level is below this share of its slots.
OWN_LEVELS = 0.1
SAA_NAME = "SAA per store (not private)"


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
    yield from today_figures(name, lambda factor: cost(constant(factor)) / today)
    known = saa_levels(chain.demand[:, :LEARNED], *(np.tile(c, (chain.stores, 1)) for c in (holding, shortage)))
    yield Figure(name, SAA_NAME, None, cost(lambda week, day, *_: known[:, day]) / today)
    bound = float(2 ** math.ceil(math.log2(45_000))) if chain.source == "made up" else 45_000.0
    plain = LostSales(horizon=DAYS, holding=holding[:, None], shortage=shortage[:, None], demand_max=bound)
    free = data_free_levels(plain)[:, 0]
    yield Figure(name, "data-free", None, cost(lambda week, day, *_: np.full(chain.stores, free[day])) / today)
    for rho in RHOS:
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
        f"levels up to {limit:g} times the explored range": {"poolrl.learning.priors.CLIMB": limit}
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
