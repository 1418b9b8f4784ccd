"""Visit tables row by row: exact rows are those of the whole table, and a noisy one is handed out once."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from poolrl import Grid, LostSales, SeededNoise, Zones
from poolrl.audit.faults import Exact
from poolrl.data.counts import count_visits
from poolrl.privacy.release import release_visits
from poolrl.privacy.zcdp import budget


def test_a_row_of_transitions_is_handed_out_once() -> None:
    """A second draw of the same cell would average its noise away without paying."""
    problem = LostSales(horizon=2, holding=1, shortage=1, demand_max=8.0)
    rng = np.random.default_rng(0)
    log = problem.simulate_log(rng.uniform(0, 8, (20, 2, 1)), rng=rng)
    released = release_visits(log, problem, Grid(3).partition(problem), rho=budget(1.0), noise=SeededNoise(0))
    assert released.transitions(0, np.array([1, 4])).shape == (2, 3)
    assert released.transitions(1, np.array([1, 4])).shape == (2, 3)
    for again in ([4], [0, 1], [5, 5], [6, 5]):
        with pytest.raises(ValueError, match="each row of transitions is released once"):
            released.transitions(0, np.array(again))
    assert released.transitions(0, np.array([0, 5, 8])).shape == (3, 3)
    for step, rows in (
        (2, [2]),
        (-1, [2]),
        (0, [-1]),
        (0, [9]),
        (0, [[2]]),
        (0, [2.0]),
        (np.array([0, 1]), [2]),
        (True, [2]),
    ):
        with pytest.raises(ValueError, match=r"a step in 0 \.\. 1 and an array of rows in 0 \.\. 8"):
            released.transitions(step, np.array(rows))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):  # a copy could be asked again
        with pytest.raises(TypeError, match="can be neither copied nor saved"):
            copied(released.transitions)
    with pytest.raises(TypeError, match="can be neither copied nor saved"):
        pickle.dumps(released)


def test_narrow_integers_ask_for_the_rows_they_name() -> None:
    """21 · 12 cells are more than a byte holds: wrapped around, it would be another row, handed out unseen."""
    problem = LostSales(horizon=2, holding=1, shortage=1, demand_max=8.0)
    rng = np.random.default_rng(0)
    log = problem.simulate_log(rng.uniform(0, 8, (4000, 2, 1)), rng=rng)
    partition = Grid(12).partition(problem)
    exact = count_visits(log, partition).transitions(1, np.arange(partition.pair_count))
    row = np.flatnonzero(exact[:128].sum(axis=1))[-1]
    assert row > 21
    released = release_visits(log, problem, partition, rho=budget(1.0), noise=Exact())
    np.testing.assert_array_equal(released.transitions(1, np.array([row], dtype=np.int8)), exact[[row]])


def test_rows_of_transitions_are_the_table() -> None:
    """Asked for in any portions, the exact rows are those of the whole table, and they sum to the visits."""
    problem = LostSales(horizon=2, products=2, holding=1, shortage=1, demand_max=8.0, boundary=0.6)
    rng = np.random.default_rng(3)
    behaviour = lambda step, stock, rng: stock + rng.uniform(0, 8, stock.shape)  # noqa: E731
    log = problem.simulate_log(rng.uniform(0, 8, (300, 2, 2)), rng=rng, behaviour=behaviour)
    partition = Zones(5).partition(problem)
    counts = count_visits(log, partition)
    for step in range(2):
        whole = np.zeros((partition.pair_count, partition.state_count), dtype=int)
        node = partition.pair_index(step, log.states[:, step], log.actions[:, step])
        target = partition.state_index(log.next_states[:, step])
        assert 0 < (node < 0).sum() < 300  # some beyond the boundary
        np.add.at(whole, (node[node >= 0], target[node >= 0]), 1)
        assert (whole.sum(axis=1) == counts.pairs[step]).all()
        for rows in (np.arange(partition.pair_count), np.array([0, 3, 7, 19]), np.array([], dtype=int)):
            assert (counts.transitions(step, rows) == whole[rows]).all()
