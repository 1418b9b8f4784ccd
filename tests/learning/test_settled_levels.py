"""A scale made from past sales follows the shop's own orders: levels are multiples of what they bring about."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poolrl import LostSales, Policy, Pool, Trajectories
from poolrl.checks import FloatArray
from poolrl.learning.levels import plan_shops, settled_levels
from poolrl.learning.outcomes import OutcomeDistribution, bin_middles
from poolrl.learning.policy import Levels

MEAN, WEEKS, SHOPS = 50.0, 120, 40
PROBLEM = LostSales(horizon=1, holding=1.0, shortage=0.8, demand_max=4.0)


def trade(demand: FloatArray, level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scales, orders and sales (shops, weeks) where shops order `level` times the average of their last four sales."""
    sales = [np.full(len(demand), MEAN)] * 4
    scales, orders = [], []
    for week in range(demand.shape[1]):
        scales.append(np.mean(sales[-4:], axis=0))
        orders.append(level * scales[-1])
        sales.append(np.minimum(demand[:, week], orders[-1]))
    return np.stack(scales, 1), np.stack(orders, 1), np.stack(sales[4:], 1)


def weekly_log(demand: FloatArray, level: float) -> Trajectories:
    scales, orders, sales = (part.reshape(-1, 1, 1) for part in trade(demand, level))
    return Trajectories(
        states=np.zeros_like(orders), actions=orders, next_states=orders - sales, scale=scales, scale_memory=4
    )


def with_levels(policy: Policy, levels: FloatArray) -> Policy:
    return Policy(policy.problem, Levels(levels.copy()), policy.guarantee, policy.report, policy.outcomes)


def closed_loop(policy: Policy, demand: FloatArray) -> tuple[FloatArray, float]:
    """Sales (shops, weeks) and the mean cost of a policy whose scale is the average of its own last four sales."""
    sales, costs = [np.full(len(demand), MEAN)] * 4, []
    for week in range(demand.shape[1]):
        scale = np.mean(sales[-4:], axis=0)[:, None]
        order = policy.act(0, np.zeros((len(demand), 1)), scale=scale)
        costs.append(policy.problem.cost(0, order, order, demand[:, week, None]))
        sales.append(np.minimum(demand[:, week], order[:, 0]))
    return np.stack(sales[4:], 1), float(np.mean(costs[60:]))


def test_plain_levels_spiral_down_and_settled_ones_do_not() -> None:
    """b / (h + b) = 0.44: less is stocked than is asked for on average, so sales and scale fall below demand."""
    rng = np.random.default_rng(0)
    past, future = rng.gamma(16, MEAN / 16, (2, SHOPS, WEEKS))
    log = weekly_log(past, 1.3)
    policy = Pool(math.inf).fit(PROBLEM, log)
    assert policy.guarantee.scale_memory == 4
    assert policy.outcomes is not None
    plain = with_levels(policy, plan_shops(PROBLEM, policy.outcomes))
    assert plain.levels[0, 0] < 1.1
    falling, dear = closed_loop(plain, future)
    steady, cheap = closed_loop(policy, future)
    assert falling[:, -20:].mean() < 0.6 * MEAN
    assert (np.diff(falling.reshape(SHOPS, 6, 20).mean(axis=(0, 2))) < 0).all()
    assert steady[:, -20:].mean() > 0.75 * MEAN
    assert steady[:, -20:].mean() == pytest.approx(steady[:, 40:60].mean(), rel=0.05)
    best = min(float(np.mean(PROBLEM.cost(0, y, y, future.reshape(-1, 1)))) for y in np.linspace(20, 80, 61)[:, None])
    assert cheap < 1.2 * best
    assert cheap < 0.8 * dear


def test_the_shift_is_the_ratio_of_expected_sales() -> None:
    """Demand 1 or 3, past orders 2, new level 1.5: E min(D, 1.5) = 1.25 and E min(D, 2) = 1.5, so 1.5 / (5/6) = 1.8."""
    problem = LostSales(horizon=1, holding=1.0, shortage=1.0, demand_max=4.0)
    bins = 400
    points = bin_middles(problem, bins)
    weights, cutoffs = np.zeros((2, 1, 1, bins))
    weights[0, 0, [100, 300]] = 0.5
    cutoffs[0, 0, 200] = 1.0
    outcomes = OutcomeDistribution(points, weights, cutoffs, slots=np.ones((1, 1)))
    assert settled_levels(problem, outcomes, np.array([[1.5]])) == pytest.approx(1.8, abs=0.02)
    # A level at the past orders changes nothing.
    assert settled_levels(problem, outcomes, np.array([[2.0]])) == pytest.approx(2.0, abs=0.02)


def test_a_scale_averages_over_labels_with_the_same_costs() -> None:
    """Promotion weeks with twice the demand: one scale for both, so their levels keep their ratio."""
    problem = LostSales(horizon=1, holding=1.0, shortage=1.0, demand_max=4.0, labels={"promo": [0, 1]})
    bins = 400
    points = bin_middles(problem, bins)
    weights, cutoffs = np.zeros((2, 2, 1, 1, bins))
    weights[0, 0, 0, 100], weights[1, 0, 0, 200] = 1.0, 1.0  # demand 1, and 2 in promotion weeks
    cutoffs[..., 399] = 1.0  # past orders always sufficed
    slots = np.array([3.0, 1.0])[:, None, None]
    outcomes = OutcomeDistribution(points, weights, cutoffs, slots=slots)
    levels = np.array([0.8, 1.6])[:, None, None]
    found = settled_levels(problem, outcomes, levels)
    # Sales fall from (3 · 1 + 2)/4 to 0.8 of it, and so does the scale.
    assert found[:, 0, 0] == pytest.approx([1.0, 2.0], rel=0.01)
    other = LostSales(
        horizon=1, holding=np.array([1.0, 2.0])[:, None, None], shortage=1.0, demand_max=4.0, labels={"promo": [0, 1]}
    )
    # With other costs they are other shops: each has its own scale.
    lower = np.array([0.8, 2.0])[:, None, None]
    assert settled_levels(other, outcomes, lower)[:, 0, 0] == pytest.approx([1.0, 2.0], rel=0.01)


def test_levels_stay_where_the_scale_does_not_follow() -> None:
    """A scale from outside the log (memory 0) is a forecast: orders do not move it."""
    rng = np.random.default_rng(1)
    demand = rng.gamma(16, MEAN / 16, (SHOPS, 30)).reshape(-1, 1, 1)
    log = PROBLEM.simulate_log(demand, rng=rng, scale=np.full(demand.shape, MEAN))
    policy = Pool(math.inf).fit(PROBLEM, log)
    assert policy.outcomes is not None
    assert policy.levels == pytest.approx(plan_shops(PROBLEM, policy.outcomes))
