"""Zones, grids and axes: geometry, reading and both sides of feedback, against the formulas they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrl import Backlog, Grid, LostSales, Pool, SeededNoise, Zones
from poolrl.data import trajectories
from poolrl.geometry.axes import Axes
from poolrl.geometry.bins import outward_edges
from poolrl.geometry.partition import Partition
from poolrl.learning.backward_induction import expected_on_axes
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.problems.problem import Problem
from tests.helpers.own_problems import OrderQuantity, PostedPrice


def shop(products: int, **changes: float) -> LostSales:
    return LostSales(horizon=2, products=products, holding=1, shortage=1, demand_max=10.0, **changes)


@pytest.mark.parametrize("products", [1, 2, 4])
@pytest.mark.parametrize("share", [1.0, 0.6, 0.01])
def test_ring_points_lie_in_their_ring_are_feasible_and_independent(products: int, share: float) -> None:
    problem = shop(products, boundary=share)
    rings = Zones(12).partition(problem).pairs[0]
    norms = np.linalg.norm(rings.corners, axis=-1)
    edges = np.linspace(0, share * np.sqrt(2 * products), 13)  # up to the largest observable norm
    assert (norms >= edges[:-1, None] - 1e-9).all()
    assert (norms <= edges[1:, None] + 1e-9).all()
    assert (rings.corners >= -1e-9).all()
    assert (rings.corners <= share + 1e-9).all()
    state, action = problem.natural_pair(rings.points)
    assert (action >= state - 1e-6).mean() > 0.95  # all but a few points of the innermost or outermost rings
    assert (np.abs(np.linalg.det(rings.corners)) > 0).all()


@pytest.mark.parametrize("values", [Zones(7), Grid(3), Grid(3, linear=True), Grid(1, linear=True)])
@pytest.mark.parametrize("products", [1, 2])
def test_reading_is_convex_so_constants_are_reproduced(values: Zones | Grid, products: int) -> None:
    problem = shop(products)
    partition = values.partition(problem)
    rng = np.random.default_rng(0)
    state = rng.uniform(0, 10, (200, products))
    action = rng.uniform(state, 10)
    state[0], action[0] = 0.0, 0.0  # at the origin the weights are equal
    nodes, weights = partition.pairs[0].weights(problem.unit_pair(state, action))
    assert (weights >= 0).all()
    assert weights.sum(axis=1) == pytest.approx(1)
    assert (nodes >= 0).all()
    assert (nodes < partition.pair_count).all()
    constant = np.full(partition.pair_count, 3.25)
    assert partition.read(0, constant, state, action) == pytest.approx(3.25)


def test_a_linear_grid_reproduces_linear_functions_between_centres() -> None:
    problem = shop(1)
    partition = Grid(5, linear=True).partition(problem)
    x, y = problem.natural_pair(partition.pairs[0].points)
    q = 2 * x[:, 0] - 3 * y[:, 0]
    rng = np.random.default_rng(1)
    state, action = rng.uniform(1, 9, (50, 1)), rng.uniform(1, 9, (50, 1))
    assert partition.read(0, q, state, action) == pytest.approx(2 * state[:, 0] - 3 * action[:, 0])


@pytest.mark.parametrize("values", [Zones(6), Grid(4)])
def test_nodes_are_counted_at_themselves(values: Zones | Grid) -> None:
    partition = values.partition(shop(2))
    points = partition.problem.natural_pair(partition.pairs[0].points)
    assert (partition.pair_index(0, *points) == np.arange(partition.pair_count)).all()


@pytest.mark.parametrize("values", [Zones(6), Grid(4), Grid(4, linear=True)])
def test_beyond_the_boundary_q_is_the_boundarys(values: Zones | Grid) -> None:
    problem = shop(1, boundary=0.5)
    partition = values.partition(problem)
    q = np.random.default_rng(2).normal(size=partition.pair_count)
    at_boundary = partition.read(0, q, np.array([[5.0]]), np.array([[5.0]]))
    outside = partition.read(0, q, np.array([[1.0], [6.0]]), np.array([[5.5], [9.0]]))
    assert outside == pytest.approx(at_boundary[0])
    assert (partition.pair_index(0, np.array([[1.0]]), np.array([[5.5]])) == -1).all()
    assert (partition.pair_index(0, np.array([[1.0]]), np.array([[5.0]])) >= 0).all()


def test_edges_of_bins_by_hand() -> None:
    """(i/B)², upwards, and downwards where an outcome is lost from sight from above."""
    assert outward_edges(4, higher=False).tolist() == [0.0, 1 / 16, 1 / 4, 9 / 16, 1.0]
    assert outward_edges(4, higher=True).tolist() == [1.0, 9 / 16, 1 / 4, 1 / 16, 0.0]


def test_the_higher_side_mirrors_the_lower_one() -> None:
    problem = PostedPrice(horizon=1, lowest_price=20.0)
    partition = Grid(4).partition(problem)
    prices = np.array([[10.0], [20.0], [49.0]])
    inside = partition.pair_index(0, np.zeros((3, 1)), prices) >= 0
    assert inside.tolist() == [False, True, True]
    low, high = problem.allowed(0, np.zeros((1, 1)))
    assert (low.item(), high.item()) == (20.0, 50.0)
    state, action = problem.natural_pair(partition.pairs[0].points)
    assert action.min() > 20.0
    assert problem.unit_pair(state, action) == pytest.approx(partition.pairs[0].points)


def test_a_table_past_any_memory_is_refused_with_its_size() -> None:
    with pytest.raises(ValueError, match=r"pair nodes × 2 steps make .* values.* use fewer zones or bins"):
        Grid(20).partition(shop(4))


@pytest.mark.parametrize("bins", [20, 300, 800])
def test_every_cell_can_be_chosen(bins: int) -> None:
    """Tabular methods maximise over all actions: from an empty shelf some candidate falls inside every cell."""
    problem = shop(1)
    partition = Grid(bins).partition(problem)
    low, high = problem.allowed(0, np.zeros((1, 1)))
    tried = low + partition.candidates * (high - low)
    cells = partition.pair_index(0, np.zeros_like(tried), tried)
    assert len(np.unique(cells)) == bins


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
        low, high = problem.allowed(1, state)
        assert ((actions >= low - 1e-9) & (actions <= high + 1e-9)).all()
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
    """That of the default and of the published learner."""
    rng, found = np.random.default_rng(0), []
    problem = LostSales(horizon=3, products=2, holding=0.2, shortage=0.4, demand_max=10.0)
    log = problem.simulate_log(rng.uniform(0, 10, (4000, 3, 2)), rng=rng)
    monkeypatch.setattr(trajectories, "FEWEST_BLOCKS", 1)
    for threads in (1, 2, 3):
        monkeypatch.setattr(trajectories, "THREADS", threads)
        pools = (Pool(1.0), Pool.published(20.0, 60, scale=1e-4))
        fits = [pool.fit(problem, log, noise=SeededNoise(1)) for pool in pools]
        found.append([array.tobytes() for fit in fits for array in fit.rule.arrays().values()])
    assert found[0] == found[1] == found[2]
