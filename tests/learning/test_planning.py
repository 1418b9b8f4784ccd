"""Backward induction, the paper's private kernel and the benchmarks: hand-worked, by brute force and quantecon."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from poolrl import (
    Bernstein,
    Grid,
    LostSales,
    Policy,
    Pool,
    SeededNoise,
    Separable,
    Visits,
    Zones,
    data_free,
    relative_gap,
    rollout_cost,
    saa,
)
from poolrl.learning.backward_induction import (
    Stage,
    backward_induction,
    consistent_counts,
    stages_from_visits,
)
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.planning import plan_on_outcomes
from poolrl.learning.policy import Levels
from poolrl.privacy.release import release_visits
from poolrl.privacy.zcdp import budget, noise_bound
from poolrl.simulation.evaluation import cost_difference, optimum, rollout_costs
from tests.helpers.own_problems import OrderQuantity, Wear, wear_log


def joined(blocks: Iterable[Stage]) -> Stage:
    """All rows of a step, in the order of its nodes."""
    parts = list(blocks)
    order = np.argsort(np.concatenate([part.rows for part in parts]))
    reward, kernel, visits = (
        np.concatenate([getattr(part, name) for part in parts])[order] for name in ("reward", "kernel", "visits")
    )
    return Stage(reward, kernel, visits, parts[0].noise_bound)


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
    rule, _ = plan_on_outcomes(demand, problem, Separable(11).axes(problem))
    assert rule.arrays()["levels"][:, 0] == pytest.approx(levels)
    paths = np.array(list(itertools.product([0.0, 10.0], repeat=2)))[:, :, None]
    assert rollout_cost(problem, saa(problem, paths), paths) == pytest.approx(cost)


def test_backward_induction_agrees_with_quantecon_on_a_grid() -> None:
    from quantecon.markov import ddp  # here, because its import takes half a second

    problem, bins, horizon = Wear(horizon=6), 5, 6
    partition = Grid(bins).partition(problem)
    released = release_visits(wear_log(problem, 3000), problem, partition, rho=np.inf, noise=SeededNoise(0))
    first = joined(stages_from_visits(released, partition, Visits())(0))
    ours, _ = backward_induction(lambda step: [first], partition)
    rewards, kernel = first.reward.reshape(bins, bins), first.kernel.reshape(bins, bins, bins)
    with pytest.warns(UserWarning, match="infinite horizon"):  # which we do not ask for
        model = ddp.DiscreteDP(rewards, kernel, beta=1.0)
    theirs, choices = ddp.backward_induction(model, horizon, np.zeros(bins))
    for step in range(horizon):
        table = ours[step].reshape(bins, bins)
        assert table.max(axis=1) == pytest.approx(theirs[step])
        assert (table.argmax(axis=1) == choices[step]).all()
        assert partition.state_values(step, ours[step]) == pytest.approx(theirs[step])


def test_a_separable_problem_whose_state_matters() -> None:
    """Ordering an amount of at most 200 is ordering up to a level; with a cap of 30 it is not."""
    uniform = np.full((3, 1, 128), 1 / 128)
    levels = optimum(LostSales(horizon=3, holding=0.2, shortage=0.5, demand_max=100.0), uniform).levels[:, 0]
    stock = np.linspace(0, 100, 21)[:, None]
    for cap in (200.0, 30.0):
        problem = OrderQuantity(horizon=3, products=1, holding=0.2, shortage=0.5, cap=cap)
        demand = OutcomeDistribution((np.arange(128)[None] + 0.5) * 100 / 128, uniform)
        rule, _ = plan_on_outcomes(demand, problem, Separable(65).axes(problem))
        order = rule.act(problem, 2, stock)[:, 0]
        assert order == pytest.approx(np.clip(levels[2] - stock[:, 0], 0, cap), abs=200 / 64)
        first = rule.act(problem, 0, stock)[:, 0]
        if cap == 200.0:
            assert first == pytest.approx(np.clip(levels[0] - stock[:, 0], 0, cap), abs=200 / 64)
        else:  # who cannot catch up tomorrow stocks up today
            assert (first >= np.clip(levels[0] - stock[:, 0], 0, cap) - 100 / 64).all()


FALLING = [
    ([[1.0], [0.1]], [[0.01], [1.0]], [[0.5], [0.3]]),
    ([[1.0], [0.3]], [[0.5], [0.01]], [[0.3], [0.3]]),
    ([[0.2], [1.0]], [[0.1], [0.1]], [[0.5], [0.5]]),
]


@pytest.mark.parametrize(("share", "holding", "shortage"), FALLING)
def test_a_boundary_that_changes_between_steps_against_brute_force(share: list, holding: list, shortage: list) -> None:
    """Stock left from a step with a high λ must be carried through one with a low λ."""
    facts = {"horizon": 2, "holding": holding, "shortage": shortage, "demand_max": 10.0}
    problem = LostSales(boundary=share, **facts)
    rng = np.random.default_rng(5)
    steps = rng.uniform(0, 10, (40, 2))
    paths = np.array(list(itertools.product(*steps.T)))[:, :, None]
    tried = [Levels(np.array([[a], [b]])) for a in np.linspace(0, 10, 81) for b in np.linspace(0, 10, 21)]
    guarantee = saa(problem, paths).guarantee
    best = min(rollout_cost(problem, Policy(problem, levels, guarantee), paths) for levels in tried)
    assert rollout_cost(problem, saa(problem, paths), paths) <= best * 1.002
    assert (saa(problem, paths).levels <= np.array(share) * 10 + 1e-9).all()


def test_pessimistic_values_stay_below_what_is_left_to_earn() -> None:
    """Rewards at the top of every step's range, no penalty: Q at step h is exactly H − h + 1 in units of the widest."""
    ranges = [(-1.0, 3.0), (5.0, 9.0), (0.0, 2.0)]

    class Still:
        problem = SimpleNamespace(horizon=3, reward_range=lambda step: ranges[step])
        pair_count = state_count = 1

        def state_values(self, step: int, q: np.ndarray) -> np.ndarray:
            return q

    for more, values in (0, [2.5, 1.5, 0.5]), (100, [3, 2, 1]), (-100, [0, 0, 0]):  # between zero and H − h + 1
        stages = [Stage(np.array([high + more]), np.ones((1, 1)), np.array([100.0])) for _, high in ranges]
        q, planned = backward_induction(lambda h: [stages[h]], Still(), Bernstein(0.0))  # noqa: B023
        assert q[:, 0] == pytest.approx(values)
        assert planned.clipped_to_zero == (more < 0)


def test_the_data_free_policy_is_the_newsvendor_on_uniform_demand() -> None:
    """With equal costs at every step the level is the critical ratio b / (h + b) of the range, by steady need."""
    problem = LostSales(horizon=1, products=2, holding=[[1.0, 3.0]], shortage=[[3.0, 1.0]], demand_max=[100.0, 40.0])
    assert data_free(problem).levels[0] == pytest.approx([75.0, 10.0], abs=0.1)


def test_gaps_use_common_paths_and_have_two_names() -> None:
    problem = LostSales(horizon=2, holding=1.0, shortage=1.0, demand_max=10.0)
    paths = np.random.default_rng(3).uniform(0, 10, (400, 2, 1))
    best, free = saa(problem, paths), data_free(problem)
    least = rollout_cost(problem, best, paths)
    difference = cost_difference(problem, free, paths, benchmark=best)
    assert difference == pytest.approx(rollout_costs(problem, free, paths).mean() - least)
    assert relative_gap(problem, free, paths, benchmark=best) == pytest.approx(difference / least)
    for act, message in (
        (lambda: relative_gap(problem, free, 0 * paths[:1], benchmark=saa(problem, 0 * paths)), "must be positive"),
        (lambda: saa(problem, np.full((1, 2, 1), 11.0)), "within the problem's public bounds"),
        (lambda: rollout_cost(problem, best, np.zeros((4, 3, 1))), r"must have shape \(paths, 2, 1\), got \(4, 3, 1\)"),
    ):
        with pytest.raises(ValueError, match=message):
            act()


def smallest_shift(counts: np.ndarray, total: float, slack: float) -> float:
    """min t subject to |x − n′| ≤ t, |Σx − n| ≤ slack, x ≥ 0, by linear programming."""
    size = len(counts)
    column = np.ones((size, 1))
    above = np.hstack([np.eye(size), -column])
    below = np.hstack([-np.eye(size), -column])
    sums = np.vstack([np.append(np.ones(size), 0), np.append(-np.ones(size), 0)])
    limits = np.concatenate([counts, -counts, [total + slack, slack - total]])
    answer = linprog(np.append(np.zeros(size), 1), A_ub=np.vstack([above, below, sums]), b_ub=limits)
    assert answer.success
    return float(answer.fun)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(-30, 60), min_size=1, max_size=7),
    st.integers(-20, 150),
    st.sampled_from([0.0, 0.5, 5.0, 40.0]),
)
def test_the_projection_is_optimal(joint: list[int], total: int, slack: float) -> None:
    counts, wanted = np.maximum(joint, 0.0), max(total, 0)
    moved = consistent_counts(np.array([joint], dtype=float), np.array([float(total)]), slack=slack)[0]
    assert (moved >= 0).all()
    assert abs(moved.sum() - wanted) <= slack + 1e-9
    assert np.abs(moved - counts).max() == pytest.approx(smallest_shift(counts, wanted, slack), abs=1e-7)


def test_kernel_rows_are_distributions_and_fall_back_to_uniform() -> None:
    problem = LostSales(horizon=2, holding=1, shortage=1, demand_max=10.0)
    rng = np.random.default_rng(0)
    log = problem.simulate_log(rng.uniform(0, 10, (400, 2, 1)), rng=rng)
    partition = Grid(4).partition(problem)
    released = release_visits(log, problem, partition, rho=budget(1.0), noise=SeededNoise(0))
    stage = joined(stages_from_visits(released, partition, Visits(0.05))(0))
    assert stage.kernel.sum(axis=1) == pytest.approx(1)
    bound = noise_bound(variance=4.0, cells=2 * 16 * 4, failure=0.05)  # σ² = 2H/ρ = 4
    assert stage.noise_bound == pytest.approx(bound)
    lost = stage.visits <= bound
    assert lost.any()  # nodes with y < x are never visited
    assert not lost.all()
    assert stage.kernel[lost] == pytest.approx(0.25)


def test_neither_blocks_nor_rows_that_are_never_drawn_change_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning on every row gives the same Q as planning on the hopeful ones, all at once or five at a time."""
    problem = LostSales(horizon=2, holding=0.2, shortage=0.4, demand_max=10.0)
    rng = np.random.default_rng(6)
    log = problem.simulate_log(rng.uniform(0, 10, (3000, 2, 1)), rng=rng)
    partition = Zones(10).partition(problem)
    values, planned = [], []
    for trusted_only, block in ((True, 10**6), (False, 10**6), (True, 10 * 5)):
        monkeypatch.setattr("poolrl.learning.backward_induction.BLOCK_CELLS", block)
        released = release_visits(log, problem, partition, rho=budget(1.0), noise=SeededNoise(0))
        stages = stages_from_visits(released, partition, Visits(), trusted_only=trusted_only)
        q, told = backward_induction(stages, partition, Bernstein(1e-4))
        values.append(q)
        planned.append(told)
    for number in (1, 2):
        assert values[number] == pytest.approx(values[0], abs=1e-12)
        assert planned[number] == planned[0]
    assert 0 < planned[0].fell_back_to_uniform < 1


def test_without_noise_the_kernel_is_the_empirical_one() -> None:
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=10.0)
    rng = np.random.default_rng(1)
    log = problem.simulate_log(rng.uniform(0, 10, (300, 1, 1)), rng=rng)
    partition = Grid(5).partition(problem)
    released = release_visits(log, problem, partition, rho=math.inf, noise=SeededNoise(0))
    stage = joined(stages_from_visits(released, partition, Visits())(0))
    cell = lambda value: np.minimum((value / 2).astype(int), 4)  # noqa: E731
    node = cell(log.states[:, 0, 0]) * 5 + cell(log.actions[:, 0, 0])
    for n in np.unique(node):
        arrived = np.bincount(cell(log.next_states[node == n, 0, 0]), minlength=5)
        assert stage.kernel[n] == pytest.approx(arrived / arrived.sum())


def test_gamma_is_the_printed_formula() -> None:
    """One node, worked by hand: Var = 0.21, ñ = 100, E_ρ = 10, S = 2, H = 3, N = 1."""
    kernel = np.array([[0.3, 0.7]])
    stage = Stage(np.zeros(1), kernel, visits=np.array([100.0]), noise_bound=10.0)
    iota = math.log(3 * 1 / 0.05)
    expected = math.sqrt(2) * math.sqrt(0.21 * iota / 90) + 16 * 2 * 3 * 10 * iota / 100
    assert expected > 6  # more than C H: no better than a node that nobody visited
    assert Bernstein(failure=0.05).penalty(stage, np.array([0.0, 1.0]), horizon=3) == pytest.approx([6])
    assert Bernstein(scale=0.1, failure=0.05).penalty(stage, np.array([0.0, 1.0]), horizon=3) == pytest.approx(
        expected / 10
    )
    seldom = Stage(np.zeros(1), kernel, visits=np.array([10.0]), noise_bound=10.0)
    for scale in (1.0, 1e-4, 0.0):  # C H with C > 1: softening Γ never makes an unknown node look better
        assert Bernstein(scale).penalty(seldom, np.array([0.0, 1.0]), horizon=3) > 3


def test_the_printed_constants_are_vacuous_and_the_report_says_so() -> None:
    """DESIGN: H = 10, M = 100, w = d = 1, ρ = 1 needs about 870,000 visits of a node before Γ ≤ H."""
    horizon, zones, failure = 10, 100, 0.05
    bound = noise_bound(variance=2 * horizon, cells=horizon * 2 * zones * zones, failure=failure)
    kernel = np.full((2 * zones, zones), 1 / zones)

    def gamma(visits: float) -> float:
        stage = Stage(np.zeros(2 * zones), kernel, np.full(2 * zones, visits), bound)
        return float(Bernstein(failure=failure).penalty(stage, np.zeros(zones), horizon=horizon)[0])

    assert gamma(400_000) > horizon
    assert gamma(1_500_000) < horizon
    problem = LostSales(horizon=3, holding=0.2, shortage=0.3, demand_max=10.0)
    rng = np.random.default_rng(2)
    log = problem.simulate_log(rng.uniform(0, 10, (2000, 3, 1)), rng=rng)
    report = Pool.published(1.0, zones=10).fit(problem, log, noise=SeededNoise(0)).report
    assert report.planned.clipped_to_zero == 1.0
    softer = Pool.published(1.0, zones=10, scale=1e-4).fit(problem, log, noise=SeededNoise(0)).report
    assert softer.planned.clipped_to_zero < 0.7
    assert 0 < softer.planned.fell_back_to_uniform < 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bernstein(scale=-1.0), "scale must be finite and not negative"),
        (lambda: Bernstein(scale=math.inf), "scale must be finite and not negative"),
        (lambda: Visits(failure=0), "failure must lie strictly between 0 and 1, got 0"),
        (lambda: Zones(0), "zones must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_settings(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
