"""Noisy visits: which rows of the second table may be asked for, and how often."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from poolrl import Grid, LostSales, Zones
from poolrl.data.counts import count_visits
from poolrl.privacy import release
from poolrl.privacy.release import release_visits
from tests.helpers.neighbours import Recorder
from tests.helpers.tables import a_shop


def visits() -> tuple[Any, Any, Recorder]:
    problem, log = a_shop(LostSales, gridded=False, trajectories=60)
    partition, noise = Zones(3).partition(problem), Recorder()
    return release_visits(log, problem, partition, rho=Fraction(2), noise=noise), count_visits(log, partition), noise


def test_visits_and_their_rows() -> None:
    found, exact, noise = visits()
    np.testing.assert_array_equal(found.pairs, exact.pairs)
    nodes = exact.pairs.shape[1]
    for step in range(3):
        np.testing.assert_array_equal(found.transitions(step, np.arange(nodes)), exact.moves[step].toarray())
    # Two tables of 2 H c² at ρ/2 = 1 each: σ² = 2 · 3 / 2.
    assert set(noise.variances) == {Fraction(3)}
    assert found.variance == 3.0
    assert found.cells == 3 * nodes * exact.moves[0].shape[1]
    assert found.guarantee.rho == 2


def test_which_rows_may_be_asked_for() -> None:
    found, exact, noise = visits()
    nodes = exact.pairs.shape[1]
    some = np.array([1, 2])
    bad: list[tuple[Any, Any]] = [
        *((step, some) for step in (-1, 3, True, 1.0, np.int64(1), None)),
        *((0, rows) for rows in ([1, 2], np.array([[1, 2]]), np.array([1.0]), np.array([True]), np.uint64([1]))),
        *((0, rows) for rows in (np.array([-1]), np.array([nodes]), np.array([0, nodes]), np.array(1), None, "x")),
    ]
    for step, rows in bad:
        with pytest.raises(ValueError, match=rf"a step in 0 .. 2 and an array of rows in 0 .. {nodes - 1}"):
            found.transitions(step, rows)
    for rows in (np.array([2, 1]), np.array([1, 1]), np.array([0, 2, 2])):
        with pytest.raises(ValueError, match="released once, in ascending order"):
            found.transitions(0, rows)
    assert len(noise.tables) == 1  # nothing was drawn for any of them
    # Both ends, in narrow integers: 100 · S would not fit into eight bits.
    ends = np.array([0, min(nodes - 1, 127)], dtype=np.int8)
    np.testing.assert_array_equal(found.transitions(2, ends), exact.moves[2].toarray()[ends])
    found.transitions(0, np.array([0, nodes - 1]))
    for step, row in ((2, 0), (0, 0), (0, nodes - 1)):
        with pytest.raises(ValueError, match="released once"):
            found.transitions(step, np.array([row]))
    found.transitions(1, np.array([0]))  # another step is another row


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

    plain = Grid(2).partition(problem)
    own = object.__new__(OwnNodes)
    vars(own).update(vars(plain.states))
    partition = object.__new__(type(plain))
    vars(partition).update(vars(plain) | {"states": own})
    pairs = object.__new__(type(plain))
    vars(pairs).update(vars(plain) | {"pairs": (*plain.pairs[:-1], own)})
    kind = object.__new__(type("Own", (type(plain),), {}))
    vars(kind).update(vars(plain))
    for each in (partition, pairs, kind):
        with pytest.raises(ValueError, match="visits are counted on nodes of this package"):
            release_visits(log, problem, each, rho=Fraction(1), noise=Recorder())
