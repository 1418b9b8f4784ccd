"""What POOL is compared with: guarantees in integers, limits without noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from poolrl import LostSales, Pool, SeededNoise, Trajectories, rollout_cost, saa
from poolrl.geometry.partition import Partition
from poolrl.learning.policy import GreedyQ
from poolrl.learning.stored import Report
from poolrl.paper import trials
from poolrl.paper.sweeps import Setting
from poolrl.privacy.release import release_levels, release_rows
from poolrl.privacy.sensitivity import LATTICE
from poolrl.privacy.zcdp import budget
from tests.helpers.neighbours import Recorder, neighbours, squared_change


def shop(products: int = 2, episodes: int = 400, **more: float) -> tuple[LostSales, Trajectories]:
    rng = np.random.default_rng(4)
    costs = rng.uniform(0.1, 0.5, (2, 3, products))
    problem = LostSales(horizon=3, products=products, holding=costs[0], shortage=costs[1], demand_max=50.0, **more)
    return problem, problem.simulate_log(rng.gamma(4, 5, (episodes, 3, products)).clip(0, 50), rng=rng)


@settings(max_examples=60, deadline=None)
@given(neighbours())
def test_perturbed_numbers_never_move_further_than_was_paid_for(pair: tuple) -> None:
    problem, first, second = pair
    if first.facts.has_units:
        return  # the door refuses them: it perturbs single trajectories
    recorders = Recorder(), Recorder()
    for log, recorder in zip((first, second), recorders, strict=True):
        released = release_rows(log, problem, rho=budget(0.5), noise=recorder)
    (mechanism,) = released.guarantee.mechanisms
    assert sum(squared_change(*recorders)) <= mechanism.sensitivity_squared
    assert recorders[0].variances == [mechanism.sensitivity_squared]  # σ² = Δ₂² / 2ρ
    assert released.guarantee.rho == 0.5


def test_the_sensitivities_are_attained() -> None:
    problem = LostSales(horizon=2, products=2, holding=1, shortage=1, demand_max=8.0)
    zeros, full = np.zeros((1, 2, 2)), np.full((1, 2, 2), 8.0)
    logs = [
        Trajectories(states=zeros, actions=zeros, next_states=zeros),
        Trajectories(states=zeros, actions=full, next_states=full),
    ]
    recorders = Recorder(), Recorder()
    for log, recorder in zip(logs, recorders, strict=True):
        rows = release_rows(log, problem, rho=budget(2.0), noise=recorder)
    assert sum(squared_change(*recorders)) == rows.guarantee.mechanisms[0].sensitivity_squared == 8 * LATTICE**2
    recorders = Recorder(), Recorder()
    for level, recorder in zip((0.0, 8.0), recorders, strict=True):
        table = release_levels(np.full((2, 2), level), logs[0], problem, rho=budget(2.0), noise=recorder)
    assert sum(squared_change(*recorders)) == table.guarantee.mechanisms[0].sensitivity_squared == 4 * LATTICE**2
    assert recorders[0].variances == [Fraction(4 * LATTICE**2, 4)]


@pytest.mark.parametrize("method", [trials.input_perturbation, trials.output_perturbation])
def test_a_perturbation_carries_its_guarantee_and_without_noise_it_is_non_private(method) -> None:
    """Rounding to the lattice is all that is left then, so the levels agree to a thousandth of the range."""
    problem, log = shop(episodes=60)
    without = method(problem, log, math.inf)
    assert without.levels == pytest.approx(trials.non_private().fit(problem, log).levels, abs=0.05)
    assert not without.guarantee.private
    assert "rho = inf" in str(without.guarantee)
    private = method(problem, log, 0.1)
    assert private.guarantee.private
    assert private.guarantee.rho == pytest.approx(0.1)
    assert ((private.levels >= 0) & (private.levels <= 50)).all()
    one, same = (method(problem, log, 0.1, noise=SeededNoise(3)) for _ in range(2))
    assert not one.guarantee.private
    assert (one.levels == same.levels).all()
    if method is trials.output_perturbation:
        assert private.report == Report()  # the learner behind it paid for nothing


def test_noise_in_the_right_place_is_what_makes_the_difference() -> None:
    problem, log = shop(episodes=2000)
    rng = np.random.default_rng(8)
    paths = rng.gamma(4, 5, (4000, 3, 2)).clip(0, 50)
    best = rollout_cost(problem, saa(problem, paths), paths)
    noise = SeededNoise(1)
    pool = rollout_cost(problem, Pool(1.0).fit(problem, log, noise=noise), paths) / best - 1
    for method in (trials.input_perturbation, trials.output_perturbation):
        assert rollout_cost(problem, method(problem, log, 1.0, noise=noise), paths) / best - 1 > 20 * pool


def test_compositions() -> None:
    problem, log = shop(products=1, episodes=3000)
    middle = trials.order_to_the_middle(problem)
    assert (middle.levels == 25).all()
    assert "no private log was released" in str(middle.guarantee)
    grid = trials.dp_apvi(1.0, 10, scale=1e-4).fit(problem, log, noise=SeededNoise(0))
    assert isinstance(grid.rule, GreedyQ)
    assert isinstance(grid.rule.where, Partition)
    assert grid.guarantee.rho == 1
    assert grid.report.planned.nodes == 100
    qin = trials.VISITS["partial"](Setting(granularity=30)).fit(problem, log)
    assert qin.report.planned.nodes == 60
    assert not qin.guarantee.private
    rng = np.random.default_rng(9)
    paths = rng.gamma(4, 5, (2000, 3, 1)).clip(0, 50)
    assert rollout_cost(problem, qin, paths) < rollout_cost(problem, middle, paths)
