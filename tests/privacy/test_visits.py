"""Visit tables row by row: exact rows are those of the whole table, and a noisy one is handed out once.

Also to two threads that ask for the same row at the same moment: it is looked at and marked while the lock is held.
"""

from __future__ import annotations

import copy
import pickle
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from poolrl import Grid, LostSales, Zones
from poolrl.checks import IntArray
from poolrl.data.counts import count_visits
from poolrl.privacy import release
from poolrl.privacy.release import release_visits
from tests.helpers.neighbours import Recorder
from tests.helpers.tables import a_shop


def visits(values: Zones | Grid = Zones(3)) -> tuple[Any, Any, Recorder]:  # noqa: B008
    """Visits of a small shop without noise, the counts behind them, and what was asked for."""
    problem, log = a_shop(LostSales, gridded=False, trajectories=60)
    partition, noise = values.partition(problem), Recorder()
    return release_visits(log, problem, partition, rho=Fraction(2), noise=noise), count_visits(log, partition), noise


def test_a_row_of_transitions_is_handed_out_once() -> None:
    """A second draw of the same cell would average its noise away without paying."""
    released, _, _ = visits()
    for step in (0, 1):
        assert len(released.transitions(step, np.array([1, 4]))) == 2
    for again in ([4], [0, 1], [5, 5], [6, 5]):
        with pytest.raises(ValueError, match="each row of transitions is released once"):
            released.transitions(0, np.array(again))
    assert len(released.transitions(0, np.array([0, 5, 8]))) == 3
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):  # a copy could be asked again
        with pytest.raises(TypeError, match="can be neither copied nor saved"):
            copied(released.transitions)
    with pytest.raises(TypeError, match="can be neither copied nor saved"):
        pickle.dumps(released)


def test_narrow_integers_ask_for_the_rows_they_name() -> None:
    """Row 40 of 9 cells each: 360 are more than a byte holds. Wrapped around, it would be another row, unseen."""
    found, exact, _ = visits(Grid(3))
    row = np.flatnonzero(exact.pairs[2, :128])[-1]
    whole = exact.moves[2].toarray()
    assert row * whole.shape[1] > 255
    np.testing.assert_array_equal(found.transitions(2, np.array([row], dtype=np.int8)), whole[[row]])


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
    # The door adds to them: two tables of 2 H c² at ρ/2 = 1 each, so σ² = 2 · 3 / 2.
    found, exact, noise = visits()
    np.testing.assert_array_equal(found.pairs, exact.pairs)
    for step in range(3):
        np.testing.assert_array_equal(
            found.transitions(step, np.arange(found.pairs.shape[1])), exact.moves[step].toarray()
        )
    assert (set(noise.variances), found.variance, found.guarantee.rho) == ({Fraction(3)}, 3.0, 2)
    assert found.cells == exact.pairs.size * exact.moves[0].shape[1]


def test_which_rows_may_be_asked_for() -> None:
    found, exact, noise = visits()
    nodes = exact.pairs.shape[1]
    some = np.array([1, 2])
    bad: list[tuple[Any, Any]] = [
        *((step, some) for step in (-1, 3, True, 1.0, None)),
        *(
            (0, rows)
            for rows in ([1, 2], [[1], [1, 2]], np.array([[1, 2]]), np.array([1.0]), np.array([True]), np.uint64([1]))
        ),
        *((0, rows) for rows in (np.array([-1]), np.array([0, nodes]), np.array(1))),
    ]
    for step, rows in bad:
        with pytest.raises(ValueError, match=rf"a step in 0 .. 2 and an array of rows in 0 .. {nodes - 1}"):
            found.transitions(step, rows)
    for rows in (np.array([2, 1]), np.array([1, 1]), np.array([0, 2, 2])):
        with pytest.raises(ValueError, match="released once, in ascending order"):
            found.transitions(0, rows)
    assert len(noise.tables) == 1  # nothing was drawn for any of them
    found.transitions(0, np.array([0, nodes - 1]))  # both ends
    for row in (0, nodes - 1):
        with pytest.raises(ValueError, match="released once"):
            found.transitions(0, np.array([row]))


def test_a_caller_who_writes_to_its_rows_meanwhile_gets_those_that_it_asked_for() -> None:
    """Row 0 was looked at and marked. Row 1 in its place could be had again, with other noise."""
    found, exact, _ = visits()
    rows = np.array([0])

    class Meanwhile:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            rows[:] = 1

    found.transitions._lock = Meanwhile()
    np.testing.assert_array_equal(found.transitions(0, rows), exact.moves[0].toarray()[:1])
    assert (exact.moves[0].toarray()[0] != exact.moves[0].toarray()[1]).any()


def test_nodes_of_another_make_are_refused() -> None:
    problem, log = a_shop(LostSales, gridded=False, trajectories=5)

    class OwnNodes(release.Lattice):
        """Could send one row to many nodes."""

    def disguised(kind: type, like: Any, **changed: Any) -> Any:
        found = object.__new__(kind)
        vars(found).update(vars(like) | changed)
        return found

    plain = Grid(2).partition(problem)
    kind, own = type(plain), disguised(OwnNodes, plain.states)
    partition, pairs = disguised(kind, plain, states=own), disguised(kind, plain, pairs=(*plain.pairs[:-1], own))
    for each in (partition, pairs, disguised(type("Own", (kind,), {}), plain)):
        with pytest.raises(ValueError, match="visits are counted on nodes of this package"):
            release_visits(log, problem, each, rho=Fraction(1), noise=Recorder())


ROW = np.array([0])


class Watched:
    """The lock, and the table of rows that were handed out: what is done with it, and in which turn of the lock."""

    def __init__(self, transitions: Any) -> None:
        assert isinstance(transitions._lock, type(threading.Lock()))
        self.table, self.turns, self.held = transitions._handed_out, 0, False
        self.uses: list[tuple[str, int | None]] = []
        transitions._handed_out = transitions._lock = self

    def __enter__(self) -> None:
        self.held, self.turns = True, self.turns + 1

    def __exit__(self, *_: object) -> None:
        self.held = False

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, tuple):  # otherwise its size is asked for
            self.uses.append(("looks", self.turns if self.held else None))
        return self.table[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        self.uses.append(("marks", self.turns if self.held else None))
        self.table[place] = value


class NoLock(release._Transitions):
    """The planted bug: two threads that look before either marks both get the row."""

    def __call__(self, step: int, rows: IntArray) -> IntArray:
        if self._handed_out[step, rows].any():
            raise ValueError("each row of transitions is released once")
        self._handed_out[step, rows] = True
        return self._sampler.add(self._exact.transitions(step, rows), self._variance)


@pytest.mark.parametrize(("kind", "turns"), [(release._Transitions, [1, 1, 2]), (NoLock, [None] * 3)])
def test_a_row_is_looked_at_and_marked_in_one_turn_of_the_lock(
    kind: type, turns: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "_Transitions", kind)
    released, _, _ = visits()
    watched = Watched(released.transitions)
    released.transitions(0, ROW)
    with pytest.raises(ValueError, match="each row of transitions is released once"):
        released.transitions(0, ROW)
    assert watched.uses == [*zip(("looks", "marks", "looks"), turns, strict=True)]
