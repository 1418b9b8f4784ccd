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
from poolrl.learning.levels import left_and_missing
from poolrl.simulation.evaluation import expected_costs
from poolrl.simulation.families import FAMILIES, worlds_of
from poolrl.workflow.budget import Prediction, Simulator, StudyLine
from poolrl.workflow.forecast import Forecast
from poolrl.workflow.trades import shop_forecast as forecasts
from poolrl.workflow.trades.shop_forecast import (
    EstimatedCosts,
    Rehearsal,
    foreseen_share,
    make_forecast,
    orders_follow_demand,
    relative_error,
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


def test_full_shelves_cost_what_was_left_and_no_tree_could_tell() -> None:
    """Nothing is ever cut off, so two habits give the same trees. Only the sums tell that one holds more."""
    found = []
    for multiple in (3.6, 3.95):
        log, today = past_orders(2_000, multiple, multiple)
        policy = fitted(log)
        assert EstimatedCosts.of(policy).today.sum() == pytest.approx(today, rel=0.03)
        found.append((today, policy.outcomes))
    (lean, one), (plenty, other) = found
    assert plenty > 1.1 * lean
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)
    np.testing.assert_allclose(left_and_missing(one)[0], left_and_missing(other)[0], rtol=0.03)


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


def test_what_a_fit_overestimates_is_taken_off_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it overestimates on demand that nobody estimated, up to a limit; the verdict does not lean on it."""
    policy = usual()
    over = Rehearsal(policy).on_families().overestimate
    assert over > 0.001
    found = []
    for limit in (0.0, over / 2, 1.0):
        monkeypatch.setattr(forecasts, "MOST_TAKEN_OFF", limit)
        found.append(predicted(policy))
        for cost, plain in zip((found[-1].policy, found[-1].best), (found[0].policy, found[0].best), strict=True):
            assert cost.mean == pytest.approx(plain.mean / (1 + min(limit, over)))
            assert cost.high - cost.mean == pytest.approx(plain.high - plain.mean)
    assert len({each.because for each in found}) == 1


def test_a_cost_that_may_be_a_tenth_off_is_not_shown_but_a_clear_verdict_is(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = fitted(past_orders(1_000, 2.5, 3.5)[0])
    # In one case of ten, noise of 6.5% is more than a tenth off; of 5.5%, it is not.
    for error, shown in ((0.055, True), (0.065, False)):
        monkeypatch.setattr(forecasts, "relative_error", lambda *_, error=error: error)
        found = predicted(policy)
        assert [found.today is not None, found.policy is not None, found.best is not None] == [shown] * 3
        assert found.unknown == ("" if shown else forecasts.TOO_NOISY)
        assert found.verdict == "switch"


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


@pytest.mark.parametrize("foresight", [0.5, 0.8])
def test_managers_who_foresee_a_part_of_demand_are_not_told_to_switch(foresight: float) -> None:
    """Levels 1.15 times a mix of the mean and of what will be asked for: hard to beat, and not by these levels."""
    paths, rng = demand(2_000, 0), np.random.default_rng(3)
    expected = (1 - foresight) * MEANS + foresight * paths
    levels = 1.15 * expected * rng.uniform(0.9, 1.1, paths.shape)
    # Stock is sold off in the evening, so that no day depends on the day before.
    log = Trajectories(states=np.zeros_like(paths), actions=levels, next_states=np.maximum(levels - paths, 0.0))
    policy = fitted(log)
    assert rollout_cost(PROBLEM, policy, demand(20_000, 9)) > cost_of(levels, paths)
    assert predicted(policy).verdict != "switch"
    # A quarter of what independent orders leave was not left, so a quarter of the shortage was foreseen too. Nobody
    # orders against demand, and noise may exceed what was left.
    shares = [foreseen_share(*each) for each in ((6.0, 8.0), (9.0, 8.0), (-1.0, 8.0), (1.0, 0.0))]
    assert shares == [0.25, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("seed", range(3))
def test_few_weeks_of_one_product_are_known_to_be_few(seed: int) -> None:
    """With one column, only one family was tried, and that was the one for which data are worth nothing."""
    one = LostSales(horizon=7, products=1, holding=0.2, shortage=0.5, demand_max=60.0)
    paths = np.minimum(np.random.default_rng(seed).gamma(6.0, 2.5, (36, 7, 1)), 60.0)
    log = one.simulate_log(paths, rng=np.random.default_rng(seed), behaviour=lambda h, x, rng: np.maximum(x, 17.0))
    policy = Pool(0.1, left_over=0.1).fit(one, log, noise=SeededNoise(seed))
    found = predicted(policy)
    assert found.warning
    assert (found.verdict, found.today, found.policy, found.best) == ("cannot tell", None, None, None)
    assert len(Rehearsal(policy).on_families().policy) >= len(FAMILIES)


def test_without_sums_only_today_is_unknown() -> None:
    found = predicted(Pool(1.0).fit(PROBLEM, past_orders(2_000, 0.6, 2.4)[0], noise=SeededNoise(1)))
    assert found.today is None
    assert found.verdict == "cannot tell"
    assert "no sums" in found.unknown


def test_labels_are_averaged_as_common_as_they_are() -> None:
    """A chain of two kinds of shops, nine in ten of them small."""
    rng = np.random.default_rng(7)
    problem = LostSales(horizon=2, holding=0.2, shortage=0.5, demand_max=80.0, labels={"kind": ["small", "large"]})
    kind = rng.choice(["small", "large"], 4_000, p=[0.9, 0.1])
    mean = np.where(kind == "small", 8.0, 24.0)[:, None, None]
    paths = np.minimum(rng.gamma(6.0, mean / 6, (4_000, 2, 1)), 80.0)
    log = problem.simulate_log(
        paths, rng=rng, labels={"kind": kind},
        behaviour=lambda step, stock, rng: np.maximum(stock, mean[:, 0] * rng.uniform(0.6, 2.4, stock.shape)),
    )  # fmt: skip
    policy = fitted(log, problem=problem)
    found = predicted(policy)
    left, missing = np.maximum(log.actions - paths, 0), np.maximum(paths - log.actions, 0)
    assert found.today.mean == pytest.approx((0.2 * left + 0.5 * missing).sum(axis=(1, 2)).mean(), rel=0.1)
    assert found.policy.mean == pytest.approx(rollout_cost(problem, policy, paths, labels={"kind": kind}), rel=0.1)


def test_a_rehearsal_draws_the_trees_that_its_laws_expect() -> None:
    """Without noise and with many slots, a fit to drawn trees finds the laws again."""
    policy = fitted(past_orders(3_000, 0.6, 2.4)[0])
    rehearsal = Rehearsal(policy)
    assert rehearsal.weights.shape[:2] == (3, 2)
    rehearsal.slots = np.full((3, 2), 10**7)
    rehearsal.variance = 0.0
    trial = rehearsal.on_estimate(0)
    assert trial.true_policy == pytest.approx(trial.true_best, rel=0.03)
    assert trial.policy == pytest.approx(trial.true_policy, rel=0.1)


def test_errors_of_columns_average_out_but_for_what_they_share() -> None:
    """By hand: log errors +0.3 and −0.1 share 0.1, and differ from it by 0.2."""
    true = np.array([1.0, 1.0])
    estimated = true * np.exp([0.3, -0.1])
    assert relative_error([(estimated, true)], 1) == pytest.approx(math.hypot(0.1, 0.2))
    assert relative_error([(estimated, true)], 400) == pytest.approx(math.hypot(0.1, 0.01))


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


def test_places_that_units_leave_empty_bring_noise() -> None:
    """Units that own two trajectories of twenty allowed: as good as protecting two, with ten times the noise."""
    (world,) = worlds_of(OTHER, "normal", runs=1)

    def gap(simulator: Simulator) -> float:
        return next(simulator.predict(world, 200, [0.5], seed=1)).gap

    tight, loose = Simulator(OTHER, per_unit=2), Simulator(OTHER, per_unit=20, owned=2)
    full = Simulator(OTHER, per_unit=20)
    assert (tight.filled, loose.filled, full.filled) == (2, 2, 20)
    assert gap(full) < gap(loose)
    assert gap(tight) < gap(loose)


def test_a_fit_estimates_how_many_of_its_places_were_filled() -> None:
    rng = np.random.default_rng(0)
    problem = LostSales(horizon=2, holding=0.2, shortage=0.5, demand_max=40.0)
    whole = problem.simulate_log(rng.uniform(0, 40, (600, 2, 1)), rng=rng)
    log = Trajectories(**whole._arguments() | {"unit": np.arange(600) // 3, "max_per_unit": 12})
    outcomes = Pool(50.0).fit(problem, log, noise=SeededNoise(1)).outcomes
    assert outcomes.observed == pytest.approx(3 / 12, abs=0.02)


def test_the_worst_family_counts_as_a_family() -> None:
    def one(world: str, cost: float) -> Prediction:
        return Prediction(world, 1.0, 10, cost, 1.0, 2.0)

    line = StudyLine.of([one("a", 1.5), one("a", 1.1), one("b", 1.4), one("b", 1.4)])
    assert (line.worst_family, line.worst) == ("b", pytest.approx(0.4))
    assert line.gap == pytest.approx(0.35)
