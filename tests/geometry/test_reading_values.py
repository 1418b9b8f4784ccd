"""Nodes and axes against the plain formulas they stand for, and fits on any number of threads."""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from poolrl import Backlog, Grid, LostSales, Zones
from poolrl.data import trajectories
from poolrl.geometry.axes import Axes, _range_maxima
from poolrl.geometry.partition import Partition
from poolrl.learning.backward_induction import expected_on_axes
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.problems.problem import Problem
from tests.helpers.own_problems import OrderQuantity, PostedPrice
from tests.helpers.processes import environment, program
from tests.helpers.programs.seeded_fits import fit_digests


@given(npst.arrays(np.float64, st.integers(1, 40), elements=st.floats(-5, 5)), st.data())
def test_range_maxima(values: Any, data: Any) -> None:
    ends = st.integers(0, len(values))
    ranges = data.draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=20))
    first, end = (np.array(side) for side in zip(*ranges, strict=True))
    expected = [values[a:b].max() if a < b else -np.inf for a, b in ranges]
    np.testing.assert_array_equal(_range_maxima(values, first, end), expected)


def by_reading(partition: Partition, step: int, q: Any, state: Any) -> tuple[Any, Any]:
    """Q read at every candidate of every state."""
    low, high = partition.problem.allowed(step, state)
    tried = low[:, None] + partition.candidates * (high - low)[:, None]
    states = np.broadcast_to(state[:, None], (*tried.shape[:2], state.shape[1]))
    flat = partition.read(step, q, states.reshape(-1, states.shape[2]), tried.reshape(-1, tried.shape[2]))
    scores = flat.reshape(tried.shape[:2])
    best = scores.argmax(axis=1)
    return tried[np.arange(len(best)), best], scores.max(axis=1)


@pytest.mark.parametrize("values", [Zones(30), Grid(4)])
@pytest.mark.parametrize(
    "problem",
    [
        LostSales(horizon=2, products=2, holding=0.2, shortage=0.4, demand_max=[10.0, 30.0], boundary=[[0.7], [0.9]]),
        Backlog(horizon=2, products=1, holding=0.2, shortage=0.4, demand_max=10.0),
        PostedPrice(2, lowest_price=10.0),  # mirrored
    ],
    ids=["lost sales", "backlog", "posted price"],
)
def test_the_best_action_is_the_one_that_reading_everything_finds(values: Any, problem: Problem) -> None:
    rng = np.random.default_rng(0)
    partition = values.partition(problem)
    # Few different values, so that there are ties, and many zeros, as pessimism leaves them.
    q = rng.choice([0.0, 0.0, 0.5, 1.25], partition.pair_count)
    state = rng.uniform(problem.state_low, problem.state_high, (150, problem.state_dim))
    for table in (q, np.zeros_like(q), -q):
        actions, scores = partition.greedy(1, table, state)
        expected_actions, expected_scores = by_reading(partition, 1, table, state)
        np.testing.assert_allclose(scores, expected_scores, rtol=0, atol=1e-12)
        same = (actions == expected_actions).all(axis=1)
        assert same.mean() > 0.9  # where a value is one value's convex combination, rounding decides between equals
        read = partition.read(1, table, state, actions)
        np.testing.assert_allclose(read, expected_scores, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "problem", [LostSales(horizon=1, products=2, holding=0.2, shortage=0.4, demand_max=[9.0, 4.0])]
)
def test_a_backup_is_the_expectation_outcome_by_outcome(problem: LostSales) -> None:
    rng = np.random.default_rng(1)
    points = np.linspace(0, problem.demand_max, 7).T
    outcomes = OutcomeDistribution(points, rng.dirichlet(np.ones(7), size=(1, 2)))
    axes = Axes(problem, 12)
    value = rng.normal(size=(2, 12))
    found = expected_on_axes(outcomes, axes, 0, *axes.nodes(0), value).T
    for i, action in [(i, a) for i in range(2) for a in range(12)]:
        level, expected = axes.action_axis(0)[action, i], 0.0
        for demand, weight in zip(points[i], outcomes.weights[0, i], strict=True):
            left = max(level - demand, 0.0)
            reward = 0.4 * (level - left) - 0.2 * left
            expected += weight * (reward + np.interp(left, axes.state_axis()[:, i], value[i]))
        assert found[i, action] == pytest.approx(expected)


@pytest.mark.parametrize(
    "problem",
    [
        LostSales(horizon=2, products=2, holding=0.2, shortage=0.4, demand_max=[10.0, 30.0], boundary=[[0.6], [1.0]]),
        Backlog(horizon=2, products=2, holding=0.2, shortage=0.4, demand_max=[10.0, 30.0], boundary=0.8),
        OrderQuantity(2, 2, 0.2, 0.4, cap=60.0),
    ],
    ids=["lost sales", "backlog", "state matters"],
)
@pytest.mark.parametrize("beyond", [False, True])
def test_values_of_states_are_the_best_of_greedy(problem: Any, beyond: bool) -> None:
    axes = Axes(problem, 21, beyond)
    q = np.random.default_rng(3).normal(size=axes.q_shape)
    for step in range(2):
        np.testing.assert_array_equal(axes.state_values(step, q), axes.greedy(step, q, axes.state_axis())[1].T)


def test_a_fit_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(trajectories, "FEWEST_BLOCKS", 1)
    for threads in (1, 2, 3):
        monkeypatch.setattr(trajectories, "THREADS", threads)
        found.append(fit_digests())
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_a_fit_does_not_depend_on_the_number_of_threads_of_a_process() -> None:
    found = set()
    for threads in ("1", "2", "3"):
        answer = subprocess.run(
            program("seeded_fits"),
            capture_output=True,
            text=True,
            env=environment(NUMBA_NUM_THREADS=threads, OPENBLAS_NUM_THREADS="1"),
            check=True,
        )
        found.add(answer.stdout)
    assert len(found) == 1
