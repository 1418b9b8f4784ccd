"""Costs by estimated laws, against the exact recursion of one shop, simulated paths and independent samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolrl import LostSales, rollout_cost
from poolrl.learning.levels import (
    best_costs,
    costs_of_levels,
    left_and_missing,
    settled_levels,
    step_costs,
    unseen_demand,
    unsettled_levels,
)
from poolrl.learning.outcomes import OutcomeDistribution, bin_middles
from poolrl.learning.policy import Levels, Policy
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


def test_nobody_is_cheaper_than_who_knows_the_laws() -> None:
    rng = np.random.default_rng(2)
    problem = LostSales(horizon=3, products=2, holding=0.2, shortage=0.9, demand_max=10.0, boundary=0.3)
    outcomes = OutcomeDistribution(bin_middles(problem, BINS), laws(rng, 3, 2))
    best = best_costs(problem, outcomes)
    for _ in range(30):
        assert (costs_of_levels(problem, outcomes, rng.uniform(0, 10, (3, 2))) >= best * (1 - 1e-6)).all()


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
