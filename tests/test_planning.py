"""Backward induction and the benchmarks: hand-worked problems, brute force, quantecon."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from quantecon.markov.ddp import DiscreteDP
from quantecon.markov.ddp import backward_induction as quantecon_induction

from poolrl import Backlog, Grid, LostSales, Separable, Visits, data_free, relative_gap, rollout_cost, saa
from poolrl.evaluation import cost_difference, optimum, rollout_costs
from poolrl.learning.backward_induction import backward_induction
from poolrl.learning.kernel import Stage, stages_from_visits
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.planning import plan_on_outcomes
from poolrl.privacy.noise import SeededNoise
from poolrl.privacy.release import release_visits
from tests.own_problems import OrderQuantity, Wear
from tests.test_pool import wear_log

COIN = np.array([[[0.5, 0.5]], [[0.5, 0.5]]])  # demand is 0 or 10 at both steps


@pytest.mark.parametrize(("shortage", "levels", "cost"), [(1.2, [0, 0], 7.0), (1.5, [10, 0], 8.0)])
def test_a_two_step_problem_worked_by_hand(shortage: float, levels: list[float], cost: float) -> None:
    """Holding 1; shortage b at step 1 and 0.2 at step 2; demand 0 or 10.

    Step 2: G₂(y) = 0.5 y + 0.1 (10 − y) rises in y, so nothing is ordered and V₂(x) = 1 + 0.4 x.
    Step 1: G₁(y) = 0.5 y + 0.5 b (10 − y) + 1 + 0.2 y = 1 + 5b + (0.7 − 0.5 b) y: order 10 iff b > 1.4,
    where a planner blind to the next step would order from b > 1 on.
    """
    problem = LostSales(horizon=2, holding=1.0, shortage=[[shortage], [0.2]], demand_max=10.0)
    demand = OutcomeDistribution(np.array([[0.0, 10.0]]), COIN)
    rule, _ = plan_on_outcomes(problem, demand, Separable(11))
    assert rule.arrays()["levels"][:, 0] == pytest.approx(levels)
    paths = np.array(list(itertools.product([0.0, 10.0], repeat=2)))[:, :, None]
    assert rollout_cost(problem, saa(problem, paths), paths) == pytest.approx(cost)


def test_saa_is_as_good_as_brute_force() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        holding, shortage = rng.uniform(0, 1, (2, 3, 1))
        problem = LostSales(horizon=3, holding=holding, shortage=shortage, demand_max=4.0)
        sample = rng.integers(0, 5, (6, 3, 1)).astype(float)
        # Steps are independent in the programme: every combination of their samples is a path.
        paths = np.array(list(itertools.product(*sample[:, :, 0].T)))[:, :, None]
        best = np.inf
        for levels in itertools.product(range(5), repeat=3):
            stock, total = np.zeros(len(paths)), np.zeros(len(paths))
            for step, level in enumerate(levels):
                target, wanted = np.maximum(stock, level), paths[:, step, 0]
                stock = np.maximum(target - wanted, 0)
                total += holding[step] * stock + shortage[step] * np.maximum(wanted - target, 0)
            best = min(best, total.mean())
        assert rollout_cost(problem, saa(problem, sample), paths) == pytest.approx(best, rel=1e-9)


def test_lost_sales_and_backlog_have_the_same_optimum_at_zero_lead_time() -> None:
    rng = np.random.default_rng(1)
    costs = {"holding": rng.uniform(0.1, 1, (4, 2)), "shortage": rng.uniform(0.1, 1, (4, 2)), "demand_max": 10.0}
    probabilities = rng.dirichlet(np.ones(64), size=(4, 2))
    lost, waiting = (optimum(kind(horizon=4, products=2, **costs), probabilities) for kind in (LostSales, Backlog))
    assert lost.levels == pytest.approx(waiting.levels, abs=10 / 64)
    paths = rng.uniform(0, 10, (500, 4, 2))
    assert rollout_cost(lost.problem, lost, paths) == pytest.approx(
        rollout_cost(waiting.problem, waiting, paths), rel=1e-2
    )


def test_backward_induction_agrees_with_quantecon_on_a_grid() -> None:
    problem, bins, horizon = Wear(horizon=6), 5, 6
    partition = Grid(bins).partition(problem)
    released = release_visits(wear_log(problem, 3000), problem, partition, rho=np.inf, noise=SeededNoise(0))
    first = stages_from_visits(released, partition, Visits())(0)
    ours = backward_induction(horizon, lambda step: first, partition)
    rewards, kernel = first.reward.reshape(bins, bins), first.kernel.reshape(bins, bins, bins)
    with pytest.warns(UserWarning, match="infinite horizon"):  # which we do not ask for
        model = DiscreteDP(rewards, kernel, beta=1.0)
    theirs, choices = quantecon_induction(model, horizon, np.zeros(bins))
    for step in range(horizon):
        table = ours.q[step].reshape(bins, bins)
        assert table.max(axis=1) == pytest.approx(theirs[step])
        assert (table.argmax(axis=1) == choices[step]).all()
        assert partition.state_values(step, ours.q[step]) == pytest.approx(theirs[step])


def test_the_loop_carries_coordinates_side_by_side() -> None:
    """Two coordinates planned together equal each planned alone."""
    rng = np.random.default_rng(2)
    costs = rng.uniform(0.1, 1, (2, 3, 2))
    probabilities = rng.dirichlet(np.ones(32), size=(3, 2))
    both = optimum(
        LostSales(horizon=3, products=2, holding=costs[0], shortage=costs[1], demand_max=[10.0, 40.0]), probabilities
    )
    for i, top in enumerate((10.0, 40.0)):
        one = LostSales(horizon=3, holding=costs[0][:, [i]], shortage=costs[1][:, [i]], demand_max=top)
        assert optimum(one, probabilities[:, [i]]).levels[:, 0] == pytest.approx(both.levels[:, i])


def test_a_separable_problem_whose_state_matters() -> None:
    """Ordering an amount of at most 200 is ordering up to a level; with a cap of 30 it is not."""
    uniform = np.full((3, 1, 128), 1 / 128)
    levels = optimum(LostSales(horizon=3, holding=0.2, shortage=0.5, demand_max=100.0), uniform).levels[:, 0]
    stock = np.linspace(0, 100, 21)[:, None]
    for cap in (200.0, 30.0):
        problem = OrderQuantity(horizon=3, products=1, holding=0.2, shortage=0.5, cap=cap)
        rule, _ = plan_on_outcomes(
            problem, OutcomeDistribution((np.arange(128)[None] + 0.5) * 100 / 128, uniform), Separable(65)
        )
        last = rule.act(problem, 2, stock)[:, 0]
        wanted = np.clip(levels[2] - stock[:, 0], 0, cap)
        assert last == pytest.approx(wanted, abs=200 / 64)


def test_the_data_free_policy_is_the_newsvendor_on_uniform_demand() -> None:
    """With equal costs at every step the level is the critical ratio b / (h + b) of the range, by steady need."""
    problem = LostSales(horizon=1, products=2, holding=[[1.0, 3.0]], shortage=[[3.0, 1.0]], demand_max=[100.0, 40.0])
    assert data_free(problem).levels[0] == pytest.approx([75.0, 10.0], abs=0.1)


def test_gaps_use_common_paths_and_have_two_names() -> None:
    problem = LostSales(horizon=2, holding=1.0, shortage=1.0, demand_max=10.0)
    paths = np.random.default_rng(3).uniform(0, 10, (400, 2, 1))
    best, free = saa(problem, paths), data_free(problem)
    ratio = relative_gap(problem, free, paths, benchmark=best)
    difference = cost_difference(problem, free, paths, benchmark=best)
    assert difference == pytest.approx(rollout_costs(problem, free, paths).mean() - rollout_cost(problem, best, paths))
    assert ratio == pytest.approx(difference / rollout_cost(problem, best, paths))
    assert relative_gap(problem, best, paths, benchmark=best) == 0
    with pytest.raises(ValueError, match="benchmark's cost must be positive"):
        relative_gap(problem, free, np.full((1, 2, 1), 0.0), benchmark=saa(problem, np.zeros((1, 2, 1))))
    with pytest.raises(ValueError, match=r"outcomes must have shape \(paths, 2, 1\), got \(4, 3, 1\)"):
        rollout_cost(problem, best, np.zeros((4, 3, 1)))


def test_pessimism_is_refused_without_visits() -> None:
    from poolrl import Bernstein

    stage = Stage(np.zeros(2), np.eye(2))
    with pytest.raises(ValueError, match="needs visit counts"):
        Bernstein().penalty(stage, np.zeros(2), horizon=1)
