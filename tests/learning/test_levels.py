"""Levels and their costs: against exact recursions and paths, settled for a scale, and for a whole population."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from poolrl import LostSales, Policy, Pool, Trajectories, data_free, rollout_cost
from poolrl.checks import FloatArray
from poolrl.geometry.axes import Separable
from poolrl.learning.levels import (
    costs_of_levels,
    left_and_missing,
    plan_shops,
    settled_levels,
    step_costs,
    unseen_demand,
    unsettled_levels,
)
from poolrl.learning.model import population_policy
from poolrl.learning.outcomes import OutcomeDistribution, bin_middles
from poolrl.learning.planning import plan_on_outcomes
from poolrl.learning.policy import Levels
from poolrl.learning.stored import Report
from poolrl.privacy.guarantee import Guarantee

BINS = 512


def laws(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Gamma laws on equal bins, (*shape, BINS)."""
    mean, edges = rng.uniform(0.1, 0.4, shape), np.linspace(0, 1, BINS + 1)
    below = stats.gamma.cdf(edges, 6.0, scale=mean[..., None] / 6.0)
    law = np.diff(below, axis=-1)
    return np.asarray(law / law.sum(axis=-1, keepdims=True))


def recursion_of_one_shop(problem: LostSales, i: int, levels: np.ndarray, weights: np.ndarray) -> float:
    """V_h(x) = E[c_h(y, D) + V_{h+1}((y − D)⁺)] with y = max(x, S_h), on the edges of the bins."""
    edges = np.linspace(0.0, problem.demand_max[i], BINS + 1)
    demand, value = (edges[:-1] + edges[1:]) / 2, np.zeros(BINS + 1)
    for step in reversed(range(problem.horizon)):
        over = np.maximum(edges, levels[step, i])[:, None] - demand
        cost = problem.holding[step, i] * np.maximum(over, 0) + problem.shortage[step, i] * np.maximum(-over, 0)
        value = (cost + np.interp(np.maximum(over, 0), edges, value)) @ weights[step, i]
    return float(value[0])


def test_costs_of_levels_are_those_of_the_recursion_of_one_shop() -> None:
    rng = np.random.default_rng(0)
    problem = LostSales(horizon=4, products=3, holding=[0.1, 0.3, 0.2], shortage=[0.5, 0.4, 2.0], demand_max=[9, 20, 5])
    weights = laws(rng, 4, 3)
    levels = rng.uniform(0.1, 0.6, (4, 3)) * problem.demand_max
    found = costs_of_levels(problem, OutcomeDistribution(bin_middles(problem, BINS), weights), levels)
    plain = [recursion_of_one_shop(problem, i, levels, weights) for i in range(3)]
    np.testing.assert_allclose(found, plain, rtol=2e-3)


def test_with_labels_and_a_profile_they_are_those_of_simulated_paths() -> None:
    """Stock that is left is worth other multiples of tomorrow's scale."""
    rng = np.random.default_rng(1)
    profile = np.array([1.0, 2.0, 0.5])[:, None]
    problem = LostSales(
        horizon=3, holding=0.2, shortage=0.7, demand_max=4.0, labels={"promo": ["no", "yes"]}, scale_profile=profile
    )
    weights = laws(rng, 2, 3, 1)
    levels = rng.uniform(0.5, 2.0, (2, 3, 1))
    found = costs_of_levels(problem, OutcomeDistribution(bin_middles(problem, BINS), weights), levels)
    policy = Policy(problem, Levels(levels), Guarantee.of_nothing(3))
    for cell, word in enumerate(("no", "yes")):
        drawn = np.stack([rng.choice(BINS, 60_000, p=weights[cell, h, 0]) for h in range(3)], axis=1)
        scale = np.broadcast_to(profile, (60_000, 3, 1))
        paths = ((drawn + 0.5) / BINS * 4.0)[..., None] * scale
        simulated = rollout_cost(problem, policy, paths, scale=scale, labels={"promo": np.full(60_000, word)})
        assert found[cell, 0] == pytest.approx(simulated, rel=0.02)


def test_a_level_beyond_the_reach_of_demand_is_held_in_full() -> None:
    """By hand: demand is 1 for sure, the level 10, costs of holding 2: (10 − 1) · 2."""
    problem = LostSales(horizon=1, holding=2.0, shortage=5.0, demand_max=20.0)
    points = (np.arange(BINS) + 0.5)[None] / BINS * 2.0
    certain = np.zeros((1, 1, BINS))
    certain[..., [BINS // 2 - 1, BINS // 2]] = 0.5
    outcomes = OutcomeDistribution(points, certain)
    assert costs_of_levels(problem, outcomes, np.array([[10.0]]))[0] == pytest.approx(18.0, rel=0.02)


def test_left_and_missing_of_independent_orders() -> None:
    rng = np.random.default_rng(3)
    demand, orders = laws(rng, 1, 1), laws(rng, 1, 1)
    points = (np.arange(BINS) + 0.5)[None] / BINS * 8.0
    left, missing = left_and_missing(OutcomeDistribution(points, demand, orders))
    d, y = (rng.choice(points[0], 400_000, p=law[0, 0]) for law in (demand, orders))
    assert left[0, 0] == pytest.approx(np.maximum(y - d, 0).mean(), rel=0.02)
    assert missing[0, 0] == pytest.approx(np.maximum(d - y, 0).mean(), rel=0.02)
    problem = LostSales(horizon=1, holding=2.0, shortage=3.0, demand_max=8.0, scale_profile=5.0)
    assert step_costs(problem, left, missing)[0] == pytest.approx(5 * (2 * left[0, 0] + 3 * missing[0, 0]))


def test_unseen_demand_lies_beyond_what_was_tried() -> None:
    """Demand is even up to 8, and all orders were 2: E(D − 2)⁺ = 6²/16."""
    points = (np.arange(BINS) + 0.5)[None] / BINS * 8.0
    orders = np.zeros((1, 1, BINS))
    orders[..., BINS // 4 - 1] = 1.0
    found = unseen_demand(OutcomeDistribution(points, np.full((1, 1, BINS), 1 / BINS), orders))
    assert found[0, 0] == pytest.approx(36 / 16, rel=0.02)
    nothing = unseen_demand(OutcomeDistribution(points, np.full((1, 1, BINS), 1 / BINS)))
    assert nothing[0, 0] == pytest.approx(0.0, abs=1e-3)


def test_unsettled_levels_are_the_settled_ones_undone() -> None:
    rng = np.random.default_rng(4)
    problem = LostSales(horizon=3, holding=0.2, shortage=0.7, demand_max=4.0, labels={"promo": ["no", "yes"]})
    slots = np.full((2, 3, 1), 50.0)
    outcomes = OutcomeDistribution(bin_middles(problem, BINS), laws(rng, 2, 3, 1), laws(rng, 2, 3, 1), slots=slots)
    levels = rng.uniform(0.6, 2.0, (2, 3, 1))
    settled = settled_levels(problem, outcomes, levels)
    assert not np.allclose(settled, levels)
    np.testing.assert_allclose(unsettled_levels(problem, outcomes, settled), levels, rtol=1e-6)


MEAN, WEEKS, SHOPS = 50.0, 120, 40
PROBLEM = LostSales(horizon=1, holding=1.0, shortage=0.8, demand_max=4.0)


def closed_loop(policy: Policy, demand: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scales, orders and sales (shops, weeks) of a policy whose scale is the average of its own last four sales."""
    sales, scales, orders = [np.full(len(demand), MEAN)] * 4, [], []
    for week in range(demand.shape[1]):
        scales.append(np.mean(sales[-4:], axis=0))
        orders.append(policy.act(0, np.zeros((len(demand), 1)), scale=scales[-1][:, None])[:, 0])
        sales.append(np.minimum(demand[:, week], orders[-1]))
    return np.stack(scales, 1), np.stack(orders, 1), np.stack(sales[4:], 1)


def test_plain_levels_spiral_down_and_settled_ones_do_not() -> None:
    """b / (h + b) = 0.44: less is stocked than is asked for on average, so sales and scale fall below demand."""
    rng = np.random.default_rng(0)
    past, future = rng.gamma(16, MEAN / 16, (2, SHOPS, WEEKS))
    today = Policy(PROBLEM, Levels(np.array([[1.3]])), data_free(PROBLEM).guarantee)
    scale, order, sold = (part.reshape(-1, 1, 1) for part in closed_loop(today, past))
    log = Trajectories(states=0 * order, actions=order, next_states=order - sold, scale=scale, scale_memory=4)
    policy = Pool(math.inf).fit(PROBLEM, log)
    assert policy.guarantee.scale_memory == 4
    assert policy.outcomes is not None
    plain = Policy(PROBLEM, Levels(plan_shops(PROBLEM, policy.outcomes)), policy.guarantee)
    (_, low, falling), (_, high, steady) = (closed_loop(each, future) for each in (plain, policy))
    dear, cheap = (
        float(np.mean(PROBLEM.cost(0, order, order, future[:, 60:].reshape(-1, 1))))
        for order in (each[:, 60:].reshape(-1, 1) for each in (low, high))
    )
    assert falling[:, -20:].mean() < 0.6 * MEAN
    assert steady[:, -20:].mean() > 0.75 * MEAN
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


def uniform_shops(tops: FloatArray, slots: FloatArray) -> OutcomeDistribution:
    """Demand of each cell is uniform from 0 to its top, (*labels, k)."""
    middles = (np.arange(BINS) + 0.5) / BINS
    return OutcomeDistribution(tops[..., None] * middles, np.full((*slots.shape, BINS), 1 / BINS), slots=slots)


def planned(problem: LostSales, outcomes: OutcomeDistribution, memory: int = 0, changing: Sequence[str] = ()) -> Policy:
    """A policy as `Pool.fit` makes it of these outcomes."""
    rule, report = plan_on_outcomes(
        outcomes, problem, Separable().axes(problem), scale_follows_sales=memory > 0, step_labels=changing
    )
    guarantee = replace(Guarantee.of_nothing(problem.horizon), scaled=memory > 0, scale_memory=memory)
    return Policy(problem, rule, guarantee, replace(report, step_labels=tuple(changing)), outcomes)


@pytest.mark.parametrize(("shortage", "by_hand"), [(9.0, 24.0), (1.0, 0.5 / 0.08125)])
def test_a_new_shop_orders_the_quantile_of_the_mixture(shortage: float, by_hand: float) -> None:
    """P(D ≤ d) = 0.75 min(d/10, 1) + 0.25 d/40 reaches b/(h + b) at the level. The mean of levels is another number."""
    problem = LostSales(horizon=1, holding=1.0, shortage=shortage, demand_max=40.0, labels={"shop": [1, 2]})
    policy = planned(problem, uniform_shops(np.array([[10.0], [40.0]]), np.array([[[300.0]], [[100.0]]])))
    everybody = population_policy(policy, ["shop"])
    assert not everybody.problem.labels
    assert everybody.levels[0, 0] == pytest.approx(by_hand, abs=40 / BINS)
    mean_of_levels = np.array([0.75, 0.25]) @ policy.levels[:, 0, 0]
    assert abs(mean_of_levels - by_hand) > 20 * 40 / BINS
    demand = np.concatenate([np.linspace(0, 10, 30_000), np.linspace(0, 40, 10_000)])

    def cost(level: float) -> float:
        return float((np.maximum(level - demand, 0) + shortage * np.maximum(demand - level, 0)).mean())

    tried = [cost(level) for level in (*np.linspace(0, 40, 41), *policy.levels[:, 0, 0], mean_of_levels)]
    assert cost(float(everybody.levels[0, 0])) < min(tried) + 1e-3


@pytest.mark.parametrize("memory", [0, 4])
def test_where_shops_are_alike_a_new_one_is_like_them(memory: int) -> None:
    """Costs, promotions that come and go, and a scale that follows sales are planned for as in the fit."""
    rng = np.random.default_rng(1)
    labels = {"shop": [1, 2, 3], "promo": ["no", "yes"]}
    profile = np.array([1.0, 3.0, 0.5])[:, None]
    problem = LostSales(
        horizon=3, products=2, holding=[0.3, 0.1], shortage=1.0, demand_max=6.0, labels=labels, scale_profile=profile
    )
    weights, cutoffs = rng.dirichlet(np.ones(BINS) / 4, (2, 2, 3, 2))  # of each promotion, step and product
    points = np.array([4.0, 6.0])[:, None, None] * np.ones((2, 1)) * (np.arange(BINS) + 0.5) / BINS
    alike = [np.broadcast_to(part, (3, *part.shape)) for part in (points, weights, cutoffs)]
    slots = (
        np.broadcast_to(rng.uniform(50, 99, (2, 3, 2)), (3, 2, 3, 2)) * np.array([1.0, 2.0, 5.0])[:, None, None, None]
    )
    policy = planned(problem, OutcomeDistribution(*alike, slots=slots), memory, ["promo"])
    everybody = population_policy(policy, ["shop"])
    assert everybody.problem.labels.names == ("promo",)
    assert everybody.levels == pytest.approx(policy.levels[1], rel=1e-9)
    forgotten = population_policy(replace(policy, report=Report()), ["shop"])
    assert np.abs(forgotten.levels - policy.levels[1]).max() > 1e-3  # the test sees what comes and goes


def test_costs_bounds_and_other_labels_are_kept() -> None:
    labels = {"shop": [1, 2], "promo": [0, 1]}
    holding = np.array([[1.0, 2.0], [3.0, 2.0]])[:, :, None, None]
    bound = np.array([[10.0, 20.0], [30.0, 20.0]])[:, :, None]
    problem = LostSales(horizon=1, holding=holding, shortage=9.0, demand_max=bound, labels=labels)
    slots = np.array([[3.0, 1.0], [1.0, 1.0]])[:, :, None, None]
    policy = planned(problem, uniform_shops(bound, slots))
    left = population_policy(policy, ["shop"]).problem
    assert isinstance(left, LostSales)
    assert left.holding[:, 0, 0] == pytest.approx([1.5, 2.0])
    assert left.label_bounds[:, 0].tolist() == [30.0, 20.0]
    # Cells that nobody saw are averaged, not divided by nothing.
    unseen = population_policy(replace(policy, outcomes=uniform_shops(bound, 0 * slots)), ["shop", "promo"])
    assert unseen.problem.facts()["holding"] == [[pytest.approx(2.0)]]


def test_a_policy_without_an_estimate_has_no_population() -> None:
    problem = LostSales(horizon=1, holding=1.0, shortage=9.0, demand_max=4.0, labels={"shop": [1, 2]})
    with pytest.raises(ValueError, match="was not declared needs the policy's estimate of demand"):
        population_policy(data_free(problem), ["shop"])
