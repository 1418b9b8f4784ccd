"""The paper's private kernel: the consistency projection against a linear programme, fallback, pessimism."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from poolrl import Bernstein, Grid, LostSales, Pool, SeededNoise, Visits, Zones
from poolrl.learning.backward_induction import (
    Stage,
    backward_induction,
    consistent_counts,
    pessimistic_q,
    stages_from_visits,
)
from poolrl.privacy.release import release_visits
from poolrl.privacy.zcdp import budget, noise_bound
from tests.helpers.stages import joined


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
    assert stage.visits is not None
    lost = stage.visits <= bound
    assert lost.any()  # nodes with y < x are never visited
    assert not lost.all()
    assert stage.kernel[lost] == pytest.approx(0.25)


@pytest.mark.parametrize("pessimism", [None, Bernstein(scale=1e-4)])
def test_blocks_change_memory_and_nothing_else(pessimism: Bernstein | None, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = LostSales(horizon=3, holding=[[0.1], [0.5], [0.2]], shortage=0.4, demand_max=10.0)
    rng = np.random.default_rng(5)
    log = problem.simulate_log(rng.uniform(0, 10, (5000, 3, 1)), rng=rng)
    learner = Pool(1.0, Visits(), Zones(12), pessimism)
    whole_steps = learner.fit(problem, log, noise=SeededNoise(1))
    monkeypatch.setattr("poolrl.learning.backward_induction.BLOCK_CELLS", 12 * 5)  # five rows at a time
    in_blocks = learner.fit(problem, log, noise=SeededNoise(1))
    assert whole_steps.rule.q == pytest.approx(in_blocks.rule.q, abs=1e-12)
    assert whole_steps.report == in_blocks.report
    assert 0 < whole_steps.report.planned.fell_back_to_uniform < 1


def test_rows_that_are_never_drawn_would_have_fallen_back() -> None:
    """The shortcut changes nothing: planning on every row gives the same Q as planning on the hopeful ones."""
    problem = LostSales(horizon=2, holding=0.2, shortage=0.4, demand_max=10.0)
    rng = np.random.default_rng(6)
    log = problem.simulate_log(rng.uniform(0, 10, (3000, 2, 1)), rng=rng)
    partition = Zones(10).partition(problem)
    ranges = [problem.reward_range(step) for step in range(2)]
    values, planned = [], []
    for trusted_only in (True, False):
        released = release_visits(log, problem, partition, rho=budget(1.0), noise=SeededNoise(0))
        stages = stages_from_visits(released, partition, Visits(), trusted_only=trusted_only)
        q, told = backward_induction(2, stages, partition, pessimism=Bernstein(1e-4), reward_ranges=ranges)
        values.append(q)
        planned.append(told)
    assert values[0] == pytest.approx(values[1], abs=1e-12)
    assert planned[0] == planned[1]
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


def test_pessimistic_q_is_clipped_between_zero_and_the_ceiling() -> None:
    q = pessimistic_q(np.array([0.5, 0.5, 0.5]), np.array([1.0, 1.0, 9.0]), np.array([0.1, 5.0, 0.0]), ceiling=2.0)
    assert q == pytest.approx([1.4, 0.0, 2.0])


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
