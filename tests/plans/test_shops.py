"""Plans for many shops at once: against the generic planner, exact costs, brute force and hand-made shops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from poolrl import Backlog, Grid, LostSales, Pool, SeededNoise, Separable, Trajectories, saa
from poolrl.checks import FloatArray
from poolrl.learning.levels import plan_shops
from poolrl.learning.outcomes import OutcomeDistribution, bin_middles
from poolrl.learning.planning import plan_on_outcomes
from poolrl.problems.inventory import Inventory
from poolrl.simulation.evaluation import expected_costs, optimum

KINDS = [LostSales, Backlog]


def gamma_laws(mean: FloatArray, cv: FloatArray | float, bins: int) -> FloatArray:
    """Gamma laws on equal bins of [0, 1], (*shape, bins) for means (*shape)."""
    x, mean, cv = (np.arange(bins) + 0.5) / bins, np.asarray(mean)[..., None], np.asarray(cv)[..., None]
    log_density = (cv**-2 - 1) * np.log(x) - x / (mean * cv**2)
    density = np.exp(log_density - log_density.max(axis=-1, keepdims=True))
    return np.asarray(density / density.sum(axis=-1, keepdims=True))


def smooth_laws(rng: np.random.Generator, shape: tuple[int, ...], bins: int) -> FloatArray:
    """Gamma laws of many sizes and spreads."""
    return gamma_laws(rng.uniform(0.15, 0.5, shape), rng.uniform(0.2, 0.8, shape), bins)


def costs(rng: np.random.Generator, *shape: int) -> dict[str, Any]:
    return {"holding": rng.uniform(0.05, 0.5, shape), "shortage": rng.uniform(0.2, 1, shape)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_levels_are_optimal_and_as_good_as_the_generic_planners(kind: type[Inventory], share: float) -> None:
    rng = np.random.default_rng(0)
    problem = kind(horizon=4, products=3, demand_max=[10.0, 40.0, 1.0], boundary=share, **costs(rng, 4, 3))
    probabilities = smooth_laws(rng, (4, 3), 512)
    outcomes = OutcomeDistribution(bin_middles(problem, 512), probabilities)
    levels = plan_shops(problem, outcomes)
    generic = plan_on_outcomes(outcomes, problem, Separable(513).axes(problem))[0].arrays()["levels"]
    cost = expected_costs(problem, levels, probabilities).sum()
    assert cost == pytest.approx(expected_costs(problem, generic, probabilities).sum(), rel=1e-3)
    assert levels == pytest.approx(generic, abs=0.01 * problem.demand_max.max())
    assert (levels <= share * problem.demand_max * (1 + 1e-12)).all()
    for _ in range(30):
        nearby = np.clip(levels * rng.normal(1, 0.05, levels.shape), 0, share * problem.demand_max)
        assert expected_costs(problem, nearby, probabilities).sum() >= cost * 0.999


def test_the_last_step_is_a_newsvendor_between_edges() -> None:
    """P(D < y) = b / (h + b), by linear interpolation: exactly, because the cost of even bins is a parabola."""
    rng = np.random.default_rng(2)
    problem = LostSales(horizon=1, products=4, holding=1.0, shortage=[[0.2, 1.0, 5.0, 30.0]], demand_max=10.0)
    probabilities = smooth_laws(rng, (1, 4), 512)
    levels = plan_shops(problem, OutcomeDistribution(bin_middles(problem, 512), probabilities))[0]
    for i, ratio in enumerate(problem.shortage[0] / (1 + problem.shortage[0])):
        below = np.concatenate([[0.0], np.cumsum(probabilities[0, i])])
        assert levels[i] == pytest.approx(np.interp(ratio, below, np.linspace(0, 10, 513)), abs=10 / 512)


def brute_force(
    demand: FloatArray, chance: FloatArray, problem: LostSales, profile: FloatArray, *, top: float, points: int
) -> tuple[FloatArray, FloatArray]:
    """Best amounts (labels, H) and their cost by loops over labels, steps, levels and every demand point.

    `demand` (labels, H, m) are equally likely amounts of a label's step, and `chance` (H, labels) the law of labels.
    """
    axis = np.linspace(0, top, points)
    labels, horizon = demand.shape[:2]
    best = np.empty((labels, horizon))
    tomorrow = np.zeros(points)
    for step in reversed(range(horizon)):
        values = []
        for label in range(labels):
            holding, shortage = problem.holding[label, step, 0], problem.shortage[label, step, 0]
            left = axis[:, None] - demand[label, step] * profile[label, step]
            cost = holding * np.maximum(left, 0) + shortage * np.maximum(-left, 0)
            g = (cost + np.interp(np.maximum(left, 0), axis, tomorrow)).mean(axis=1)
            best[label, step] = axis[g.argmin()]
            values.append(np.minimum.accumulate(g[::-1])[::-1])
        tomorrow = np.sum([c * v for c, v in zip(chance[step], values, strict=True)], axis=0)
    return best, tomorrow[0]


@pytest.mark.parametrize("profile", [np.ones((2, 3)), np.array([[1.0, 2.0, 0.5], [3.0, 1.0, 0.5]])])
def test_step_labels_against_brute_force(profile: FloatArray) -> None:
    """Promotion days come and go. Today's is known, tomorrow's is drawn as often as the released trees show it."""
    bins, chance = 256, np.array([[0.5, 0.5], [0.9, 0.1], [0.3, 0.7]])
    problem = LostSales(
        horizon=3,
        demand_max=8.0,
        labels={"promo": [0, 1]},
        scale_profile=profile[..., None],
        holding=np.array([[[0.1], [0.3], [2.0]], [[0.1], [0.3], [0.1]]]),
        shortage=np.array([[[1.0], [0.6], [0.5]], [[1.0], [3.0], [1.5]]]),
    )
    weights = gamma_laws(np.array([[[0.1], [0.15], [0.1]], [[0.4], [0.5], [0.4]]]), 0.6, bins)
    middles = bin_middles(problem, bins)
    slots = np.moveaxis(chance, 0, 1)[..., None] * 1000
    outcomes = OutcomeDistribution(middles, weights, slots=slots)
    levels = plan_shops(problem, outcomes, ["promo"])[..., 0]
    # Quantiles of the weights stand for them: 2,000 equally likely points, spread evenly inside the bins.
    below = np.cumsum(weights[..., 0, :], axis=-1)
    at = (np.arange(2000) + 0.5) / 2000
    edges = np.linspace(0, 8, bins + 1)
    demand = np.array([[np.interp(at, np.concatenate([[0.0], each]), edges) for each in label] for label in below])
    best, _ = brute_force(demand, chance, problem, profile, top=8.0 * profile.max(), points=1501)
    assert levels * profile == pytest.approx(best, abs=0.02 * best.max())
    alone = plan_shops(problem, outcomes)[..., 0]
    assert np.abs(alone - levels).max() > 0.1  # who takes labels to stay plans otherwise
    # On the last day there is no tomorrow.
    assert alone[:, -1] == pytest.approx(levels[:, -1], abs=0.01)


@pytest.mark.parametrize("by_step", [False, True])
def test_a_fit_knows_which_labels_change(by_step: bool) -> None:
    """A label given for each step of the log comes and goes; one given for each trajectory stays."""
    rng = np.random.default_rng(9)
    promo = rng.integers(0, 2, (600, 3)) if by_step else rng.integers(0, 2, 600)
    problem = LostSales(horizon=3, holding=0.2, shortage=1.0, demand_max=100.0, labels={"promo": [0, 1]})
    size = np.where(promo.reshape(600, -1) == 1, 45.0, 10.0) * np.ones((600, 3))
    log = problem.simulate_log(rng.gamma(4, size[..., None] / 4).clip(0, 100), rng=rng, labels={"promo": promo})
    policy = Pool(1.0).fit(problem, log, noise=SeededNoise(0))
    assert policy.outcomes is not None
    changing, staying = (plan_shops(problem, policy.outcomes, labels) for labels in (["promo"], []))
    assert np.abs(changing[1, :2] - staying[1, :2]).min() > 0.5  # what is left after a promotion may be too much
    assert np.array_equal(policy.levels, changing if by_step else staying)


def test_labels_that_stay_are_planned_one_by_one() -> None:
    rng = np.random.default_rng(4)
    own = {"holding": rng.uniform(0.1, 1, (2, 3, 4, 2)), "shortage": rng.uniform(0.1, 1, (2, 3, 4, 2))}
    tops = rng.uniform(5, 50, (2, 3, 2))
    facts = {"horizon": 4, "products": 2}
    problem = LostSales(**facts, **own, demand_max=tops, labels={"kind": ["a", "b"], "shop": [1, 2, 3]})
    weights = smooth_laws(rng, (2, 3, 4, 2), 512)
    together = plan_shops(problem, OutcomeDistribution(bin_middles(problem, 512), weights))
    for cell in np.ndindex(2, 3):
        one = LostSales(**facts, **{name: values[cell] for name, values in own.items()}, demand_max=tops[cell])
        alone = plan_shops(one, OutcomeDistribution(bin_middles(one, 512), weights[cell]))
        assert together[cell] == pytest.approx(alone, rel=1e-9)


def test_labelled_fits_without_noise_are_separate_fits() -> None:
    """Costs and bounds that differ by label: nothing is borrowed where nothing is hidden."""
    rng = np.random.default_rng(6)
    tops = np.array([20.0, 90.0, 55.0])
    money = {"holding": rng.uniform(0.1, 1, (3, 2, 1)), "shortage": rng.uniform(0.5, 2, (3, 2, 1))}
    problem = LostSales(horizon=2, **money, demand_max=tops[:, None], labels={"shop": ["a", "b", "c"]})
    shop = rng.integers(0, 3, 900)
    demand = rng.gamma(5, 0.08, (900, 2, 1)).clip(0, 1) * tops[shop][:, None, None]
    orders = rng.uniform(0, 1, (900, 2, 1)) * tops[shop][:, None, None]
    log = problem.simulate_log(
        demand,
        rng=rng,
        behaviour=lambda h, x, r: np.maximum(x, orders[:, h]),
        labels={"shop": np.array(["a", "b", "c"])[shop]},
    )
    together = Pool(math.inf).fit(problem, log).levels
    for i, top in enumerate(tops):
        alone = LostSales(horizon=2, **{name: each[i] for name, each in money.items()}, demand_max=top)
        states, actions, next_states = (part[shop == i] for part in (log.states, log.actions, log.next_states))
        rows = Trajectories(states=states, actions=actions, next_states=next_states)
        assert together[i] == pytest.approx(Pool(math.inf).fit(alone, rows).levels, rel=1e-3)


def test_what_only_shops_can_plan_is_refused_elsewhere_before_anything_is_paid() -> None:
    rng = np.random.default_rng(8)
    facts = {"horizon": 2, "holding": 1.0, "shortage": 1.0, "demand_max": 10.0}
    for problem in (LostSales(**facts, labels={"shop": [1, 2]}), LostSales(**facts, scale_profile=[[1.0], [2.0]])):
        for values in (Separable(513), Grid(5)):
            with pytest.raises(ValueError, match=r"labels and a scale profile need .* values=Separable\(\)"):
                Pool(1.0, values=values).prepare(problem)
    labelled = LostSales(**facts, labels={"shop": [1, 2]})
    with pytest.raises(ValueError, match="saa plans one shop"):
        saa(labelled, rng.uniform(0, 10, (5, 2, 1)))
    with pytest.raises(ValueError, match=r"probabilities must have shape \(2, 2, 1, 'bins'\), got \(2, 1, 4\)"):
        optimum(labelled, np.full((2, 1, 4), 0.25))
