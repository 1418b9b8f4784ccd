"""Shops that the log never saw: the plan on the population's demand, against a mixture worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from poolrl import LostSales, Policy, data_free
from poolrl.checks import FloatArray
from poolrl.geometry.axes import Separable
from poolrl.learning.model import population_policy
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.planning import plan_on_outcomes
from poolrl.learning.stored import Report
from poolrl.privacy.guarantee import Guarantee

BINS = 512


def uniform_shops(tops: FloatArray, slots: FloatArray) -> OutcomeDistribution:
    """Demand of each cell is uniform from 0 to its top, (*labels, k)."""
    middles = (np.arange(BINS) + 0.5) / BINS
    return OutcomeDistribution(tops[..., None] * middles, np.full((*slots.shape, BINS), 1 / BINS), slots=slots)


def planned(problem: LostSales, outcomes: OutcomeDistribution, memory: int = 0, changing: Sequence[str] = ()) -> Policy:
    """A policy as `Pool.fit` makes it of these outcomes."""
    rule, report = plan_on_outcomes(
        outcomes, Separable().axes(problem), scale_follows_sales=memory > 0, step_labels=changing
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
    one, other = population_policy(policy, ["shop", "promo"]), population_policy(policy, ["promo", "shop"])
    assert one.levels.shape == (1, 1)
    assert np.array_equal(one.levels, other.levels)
    assert one.outcomes is not None
    assert one.outcomes.weights.sum() == pytest.approx(1.0)
    # Cells that nobody saw are averaged, not divided by nothing.
    unseen = population_policy(replace(policy, outcomes=uniform_shops(bound, 0 * slots)), ["shop", "promo"])
    assert unseen.problem.facts()["holding"] == [[pytest.approx(2.0)]]


def test_a_policy_without_an_estimate_has_no_population() -> None:
    problem = LostSales(horizon=1, holding=1.0, shortage=9.0, demand_max=4.0, labels={"shop": [1, 2]})
    with pytest.raises(ValueError, match="was not declared needs the policy's estimate of demand"):
        population_policy(data_free(problem), ["shop"])
