"""What POOL is compared with: guarantees in integers, limits without noise, Q-learning on its published example."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from poolrl import Backlog, LostSales, Pool, SeededNoise, Trajectories, rollout_cost, saa
from poolrl.geometry.partition import Partition
from poolrl.learning.policy import GreedyQ, Levels
from poolrl.learning.stored import Report
from poolrl.paper import trials
from poolrl.paper.q_learning import QLearning
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


HORIZON = 10
LEAST = (10 - np.arange(1, HORIZON + 1)) / 2  # Gong and Simchi-Levi: D_h ~ (10 − h)/2 + U[0, 1]


def example(kind: type[Backlog] | type[LostSales]) -> tuple[Backlog | LostSales, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    demand = LEAST[:, None] + rng.uniform(0, 1, (6000, HORIZON, 1))
    return kind(horizon=HORIZON, holding=2.0, shortage=10.0, demand_max=10.0), demand[:1500], demand[1500:]


def test_the_published_example_costs_0835_per_step() -> None:
    """On the grid of 1/20 the newsvendor's 0.8333 becomes 0.85: 2 y²/2 + 10 (1 − y)²/2 = 0.835. Stock never binds."""
    grid = np.arange(0, 21) / 20
    costs = 2 * grid**2 / 2 + 10 * (1 - grid) ** 2 / 2
    assert costs.min() == pytest.approx(0.835)
    assert grid[costs.argmin()] == 0.85
    problem, _, test = example(Backlog)
    policy = trials.order_to_the_middle(problem)
    exact = type(policy)(problem, Levels((LEAST + 0.85)[:, None]), policy.guarantee, {})
    assert rollout_cost(problem, exact, test) / HORIZON == pytest.approx(0.835, rel=0.005)


@pytest.mark.parametrize("eliminate", [True, False])
@pytest.mark.parametrize("kind", [LostSales, pytest.param(Backlog, marks=pytest.mark.slow)])
def test_q_learning_finds_the_published_optimum(eliminate, kind) -> None:
    problem, demand, test = example(kind)
    policy = QLearning(problem, 201).play(demand, eliminate=eliminate)
    assert rollout_cost(problem, policy, test) / HORIZON == pytest.approx(0.835, rel=0.02)
    assert policy.levels[:, 0] == pytest.approx(LEAST + 0.85, abs=0.15)
    assert not policy.guarantee.private


def test_hql_never_looks_beyond_what_it_played() -> None:
    """Holding is dear, so high levels are eliminated; from then on more demand at an empty shelf cannot matter."""
    problem = LostSales(horizon=1, holding=8.0, shortage=2.0, demand_max=10.0)
    demand = np.random.default_rng(3).uniform(0, 10, (900, 1, 1))
    early = QLearning(problem, 11)
    early.play(demand[:600], eliminate=True)
    played = early.levels[early.last[0], 0].item()
    assert played < 9  # the largest level that episodes 600 and later can play
    more, fewer = demand.copy(), demand.copy()
    more[600:][demand[600:] > played] = 10.0
    fewer[600:] /= 2  # the planted opposite: sales themselves change
    states = []
    for paths in (demand, more, fewer):
        learner = QLearning(problem, 11)
        # The confidence interval knows the number of episodes, so all three are of one length.
        learner.play(paths, eliminate=True)
        states.append(learner.q)
    assert (states[0] == states[1]).all()
    assert not (states[0] == states[2]).all()


def test_replay_is_one_update_worked_by_hand() -> None:
    """One row, H = 1, α = 1: levels 0, 5, 10; ordered 6, sold 4. Level 10 was not observed and is not chosen."""
    problem = LostSales(horizon=1, holding=1.0, shortage=2.0, demand_max=10.0)
    row = {"states": [[[0.0]]], "actions": [[[6.0]]], "next_states": [[[2.0]]]}
    # Virtual reward 2 · sold − left: level 0 earns 0, level 5 earns 2·4 − 1 = 7.
    assert QLearning(problem, 3).replay(Trajectories(**row)).levels.tolist() == [[5.0]]
    empty = {"states": [[[0.0]]], "actions": [[[6.0]]], "next_states": [[[6.0]]]}  # nobody came: order nothing
    assert QLearning(problem, 3).replay(Trajectories(**empty)).levels.tolist() == [[0.0]]


def test_q_learning_looks_ahead_where_costs_differ_between_steps() -> None:
    """Leftovers of a cheap first step are dear in the second: the best first level is far below the myopic one."""
    rng = np.random.default_rng(5)
    problem = LostSales(horizon=2, holding=[[0.01], [2.0]], shortage=[[0.5], [0.1]], demand_max=10.0)
    demand = rng.uniform(0, 10, (6000, 2, 1))
    best = saa(problem, demand)
    assert best.levels[0, 0] < 7  # alone, step 1 would order up to 9.8
    for policy in (
        QLearning(problem, 41).play(demand, eliminate=False),
        QLearning(problem, 41).replay(problem.simulate_log(demand, rng=rng)),
    ):
        assert policy.levels[0, 0] == pytest.approx(best.levels[0, 0], abs=1.0)
        assert rollout_cost(problem, policy, demand) < 1.03 * rollout_cost(problem, best, demand)
