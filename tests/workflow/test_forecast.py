"""Forecasts: predicted costs against true ones where they can be known, and none where they cannot."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress

from poolrl import LostSales, Policy, Pool, SeededNoise, Trajectories, rollout_cost
from poolrl.simulation.evaluation import expected_costs
from poolrl.simulation.families import worlds_of
from poolrl.workflow.budget import Simulator
from poolrl.workflow.forecast import Forecast
from poolrl.workflow.trades.shop_forecast import (
    EstimatedCosts,
    make_forecast,
    orders_follow_demand,
)
from tests.helpers.managers import IN_MULTIPLES, SHOP, managers

SHOP_FACTS: dict[str, Any] = {"horizon": 3, "products": 2, "holding": 0.2, "shortage": [0.5, 0.6]}
PROBLEM = LostSales(**SHOP_FACTS, demand_max=[60.0, 90.0])
MEANS = np.array([15.0, 22.0])


def demand(weeks: int, seed: int) -> np.ndarray:
    """Gamma demand (weeks, 3, 2), well within the bounds."""
    rng = np.random.default_rng([seed, 1])
    return np.minimum(rng.gamma(6.0, MEANS / 6, (weeks, 3, 2)), PROBLEM.demand_max)


def past_orders(weeks: int, low: float, high: float, *, seed: int = 0) -> tuple[Trajectories, float]:
    """A log of orders between two multiples of the mean, and what they really cost."""
    paths, rng = demand(weeks, seed), np.random.default_rng([seed, 2])

    def habit(step: int, stock: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.maximum(stock, MEANS * rng.uniform(low, high, stock.shape))

    log = PROBLEM.simulate_log(paths, rng=rng, behaviour=habit)
    return log, cost_of(log.actions, paths)


def cost_of(levels: np.ndarray, paths: np.ndarray) -> float:
    """What a trajectory cost on average."""
    left, missing = np.maximum(levels - paths, 0), np.maximum(paths - levels, 0)
    return float((PROBLEM.holding * left + PROBLEM.shortage * missing).sum(axis=(1, 2)).mean())


def fitted(log: Trajectories, rho: float = 1.0, problem: LostSales = PROBLEM) -> Policy:
    return Pool(rho, left_over=0.1).fit(problem, log, noise=SeededNoise(1))


@cache
def usual() -> Policy:
    """A policy that nothing is wrong with."""
    return fitted(past_orders(2_000, 0.6, 2.4)[0])


def predicted(policy: Policy) -> Forecast:
    with Progress(disable=True) as progress:
        return make_forecast(policy, None, progress)


def test_costs_are_predicted_within_a_tenth() -> None:
    policy, (_, today) = usual(), past_orders(2_000, 0.6, 2.4)
    found = predicted(policy)
    assert found.today.mean == pytest.approx(today, rel=0.1)
    true = rollout_cost(PROBLEM, policy, demand(20_000, 9))
    assert found.policy.mean == pytest.approx(true, rel=0.1)
    assert found.policy.low < true < found.policy.high
    assert found.best.mean <= found.policy.mean
    assert (found.verdict, found.unknown, found.warning) == ("switch", "", "")
    for name in ("today", "policy"):
        assert math.fsum(getattr(each, name) for each in found.products) == pytest.approx(getattr(found, name).mean)


def test_who_orders_best_already_is_not_told_to_switch() -> None:
    """Today's levels are a policy that was learned from much more data."""
    learned = Pool(1.0).fit(PROBLEM, past_orders(20_000, 0.5, 3.0, seed=3)[0], noise=SeededNoise(0)).levels
    rng = np.random.default_rng(5)

    def habit(step: int, stock: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.maximum(stock, learned[step] * rng.uniform(0.97, 1.03, stock.shape))

    log = PROBLEM.simulate_log(demand(2_000, 4), rng=rng, behaviour=habit)
    assert predicted(fitted(log)).verdict != "switch"


def test_a_dear_policy_is_not_switched_to() -> None:
    """The same release with other levels: everything to the bound."""
    policy = usual()
    dear = replace(policy.rule, levels=np.broadcast_to(PROBLEM.demand_max, (3, 2)).copy())
    found = predicted(Policy(PROBLEM, dear, policy.guarantee, policy.report, policy.outcomes))
    assert found.verdict == "do not switch"
    assert found.policy.low > found.today.high
    assert found.products[0].binds == ["0", "1", "2"]


def test_what_no_log_tells_leaves_no_number() -> None:
    """Managers who order what they expect: without their averages as a scale, costs would be far off."""
    weeks, earlier_version = managers(), fitted(past_orders(500, 0.6, 2.4)[0])
    earlier_version.report = replace(earlier_version.report, trees=None)
    for policy, words in (
        (fitted(past_orders(40, 0.6, 2.4)[0], rho=0.01), "noise-dominated"),
        (fitted(past_orders(2_000, 0.2, 0.8)[0]), "no log tells"),  # nobody ever ordered the mean
        (fitted(weeks.log(slice(None)), problem=SHOP), "follow demand"),
        (earlier_version, "earlier version"),
    ):
        found = predicted(policy)
        assert (found.today, found.policy, found.best, found.verdict) == (None, None, None, "cannot tell")
        assert words in found.unknown + found.warning
    scaled = weeks.log(slice(None), scale=np.where(weeks.scales(slice(None)) > 0, weeks.scales(slice(None)), np.nan))
    for policy in (fitted(scaled, problem=IN_MULTIPLES), usual()):
        assert orders_follow_demand(policy, EstimatedCosts.of(policy)) == ""


def test_without_sums_only_today_is_unknown() -> None:
    found = predicted(Pool(1.0).fit(PROBLEM, past_orders(2_000, 0.6, 2.4)[0], noise=SeededNoise(1)))
    assert found.today is None
    assert found.verdict == "cannot tell"
    assert "no sums" in found.unknown


# Predictions of a plan: worlds are sampled as they say, and costs are those of the fits they stand for.


OTHER = LostSales(horizon=3, products=2, holding=0.2, shortage=[0.5, 0.6], demand_max=[40.0, 60.0], boundary=0.8)


def test_a_prediction_is_the_cost_of_that_fit() -> None:
    """The same log and noise by hand, and its cost on many drawn paths."""
    (world,) = worlds_of(OTHER, "normal", runs=1)
    (found,) = Simulator(OTHER).predict(world, 500, [0.5], seed=3)
    rng = np.random.default_rng([3, 500, 1])
    log = OTHER.simulate_log(world.sample(OTHER, 500, rng), rng=rng)
    policy = Pool(0.5).fit(OTHER, log, noise=SeededNoise(3_000))
    paths = world.sample(OTHER, 100_000, np.random.default_rng(9))
    assert found.cost == pytest.approx(rollout_cost(OTHER, policy, paths), rel=0.01)
    assert found.best < found.cost < found.free
    assert found.gap == pytest.approx(found.cost / found.best - 1)
    assert found.cost == pytest.approx(expected_costs(OTHER, policy.levels, world.probabilities).sum())
