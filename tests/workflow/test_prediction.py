"""Predictions by simulation: worlds are sampled as they say, and costs are those of the fits they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from poolrl import LostSales, Pool, SeededNoise, Trajectories, rollout_cost
from poolrl.simulation.evaluation import expected_costs
from poolrl.simulation.families import FAMILIES, worlds_of
from poolrl.workflow.budget import Prediction, Simulator, StudyLine, _two_digits, units_needed

PROBLEM = LostSales(horizon=3, products=2, holding=0.2, shortage=[0.5, 0.6], demand_max=[40.0, 60.0], boundary=0.8)


def test_a_world_is_sampled_as_it_says() -> None:
    (world,), (prior,) = worlds_of(PROBLEM, "bimodal", runs=1), worlds_of(PROBLEM, "prior", runs=1)
    drawn = world.sample(PROBLEM, 60_000, np.random.default_rng(0)) / PROBLEM.demand_max
    for step, i in np.ndindex(3, 2):
        shares, _ = np.histogram(drawn[:, step, i], bins=16, range=(0, 1))
        expected = world.probabilities[step, i].reshape(16, -1).sum(axis=1)
        np.testing.assert_allclose(shares / 60_000, expected / expected.sum(), atol=0.008)
    np.testing.assert_allclose(prior.probabilities, 1 / prior.probabilities.shape[-1])
    assert [each.name for each in worlds_of(PROBLEM, "any", runs=2)] == list(FAMILIES) * 2


def test_a_fit_estimates_how_far_the_log_looked() -> None:
    """Without noise, the estimate of past orders is what they were, up to where demand still reaches."""
    rng = np.random.default_rng(2)
    problem = LostSales(horizon=2, holding=0.2, shortage=0.5, demand_max=40.0)

    def habit(step: int, stock: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.maximum(stock, rng.choice([10.0, 30.0], p=[0.7, 0.3], size=stock.shape))

    log = problem.simulate_log(rng.uniform(0, 40, (20_000, 2, 1)), rng=rng, behaviour=habit)
    outcomes = Pool(float("inf")).fit(problem, log).outcomes
    assert outcomes is not None
    assert outcomes.cutoffs is not None
    first = np.cumsum(outcomes.cutoffs[0, 0])
    assert first[outcomes.points[0] < 9.5][-1] < 0.01
    assert first[outcomes.points[0] < 12][-1] == pytest.approx(0.7, abs=0.02)
    assert first[outcomes.points[0] < 32][-1] == pytest.approx(1.0, abs=0.01)


def test_a_prediction_is_the_cost_of_that_fit() -> None:
    """The same log and noise by hand, and its cost on many drawn paths."""
    (world,) = worlds_of(PROBLEM, "normal", runs=1)
    (found,) = Simulator(PROBLEM).predict(world, 500, [0.5], seed=3)
    rng = np.random.default_rng([3, 500, 1])
    log = PROBLEM.simulate_log(world.sample(PROBLEM, 500, rng), rng=rng)
    policy = Pool(0.5).fit(PROBLEM, log, noise=SeededNoise(3_000))
    paths = world.sample(PROBLEM, 100_000, np.random.default_rng(9))
    assert found.cost == pytest.approx(rollout_cost(PROBLEM, policy, paths), rel=0.01)
    assert found.best < found.cost < found.free
    assert found.gap == pytest.approx(found.cost / found.best - 1)
    assert found.cost == pytest.approx(expected_costs(PROBLEM, policy.levels, world.probabilities).sum())


def test_units_cost_more() -> None:
    """Averages over members of a family: protecting several weeks at once is worse."""
    worlds = worlds_of(PROBLEM, "exponential", runs=6)

    def mean_gap(simulator: Simulator, units: int) -> float:
        fits = [simulator.predict(world, units, [0.05], seed=seed) for seed, world in enumerate(worlds)]
        return float(np.mean([each.gap for fit in fits for each in fit]))

    assert mean_gap(Simulator(PROBLEM), 400) < mean_gap(Simulator(PROBLEM, per_unit=10), 40)


def test_places_that_units_leave_empty_bring_noise() -> None:
    """Units that own two trajectories of twenty allowed: as good as protecting two, with ten times the noise."""
    (world,) = worlds_of(PROBLEM, "normal", runs=1)

    def gap(simulator: Simulator) -> float:
        return next(simulator.predict(world, 200, [0.5], seed=1)).gap

    tight, loose = Simulator(PROBLEM, per_unit=2), Simulator(PROBLEM, per_unit=20, owned=2)
    full = Simulator(PROBLEM, per_unit=20)
    assert (tight.filled, loose.filled, full.filled) == (2, 2, 20)
    assert gap(full) < gap(loose)
    assert gap(tight) < gap(loose)


def test_a_fit_estimates_how_many_of_its_places_were_filled() -> None:
    rng = np.random.default_rng(0)
    problem = LostSales(horizon=2, holding=0.2, shortage=0.5, demand_max=40.0)
    whole = problem.simulate_log(rng.uniform(0, 40, (600, 2, 1)), rng=rng)
    log = Trajectories(
        states=whole.states,
        actions=whole.actions,
        next_states=whole.next_states,
        unit=np.arange(600) // 3,
        max_per_unit=12,
    )
    outcomes = Pool(50.0).fit(problem, log, noise=SeededNoise(1)).outcomes
    assert outcomes is not None
    assert outcomes.observed == pytest.approx(3 / 12, abs=0.02)


@pytest.mark.parametrize(
    ("gaps", "target", "expected"),
    [
        ([(100, 0.1), (1000, 0.01)], 0.0316227766, 316.2),  # half way on both logarithmic axes
        ([(100, 0.1), (1000, 0.01)], 0.1, 100),
        ([(100, 0.1), (1000, 0.05)], 0.01, None),
        ([(100, 0.1), (1000, -0.001)], 0.05, 100 * 10 ** (np.log(2) / np.log(1e11))),
        ([(30, 0.001)], 0.01, 30),
        ([], 0.01, None),
    ],
)
def test_units_needed(gaps: list[tuple[int, float]], target: float, expected: float | None) -> None:
    found = units_needed(gaps, target)
    assert found is None if expected is None else found == pytest.approx(expected, rel=1e-3)


def test_the_worst_family_counts_as_a_family() -> None:
    def one(world: str, cost: float) -> Prediction:
        return Prediction(world, 1.0, 10, cost, 1.0, 2.0)

    line = StudyLine.of([one("a", 1.5), one("a", 1.1), one("b", 1.4), one("b", 1.4)])
    assert (line.worst_family, line.worst) == ("b", pytest.approx(0.4))
    assert line.gap == pytest.approx(0.35)
    assert [_two_digits(x) for x in (7.2, 99.1, 791.3, 12_340, 1.0)] == [8, 100, 800, 13_000, 1]
