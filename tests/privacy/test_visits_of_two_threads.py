"""Bugs that were planted into the door and that no test noticed.

The lock on transitions: each noisy row is given once, also to two threads that ask for the same row at the same moment.
Nothing here is left to luck. One thread is stopped between its look and its mark, until the other one can go no
further.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from poolrl import LostSales, Pool, Visits
from poolrl.checks import IntArray
from poolrl.privacy import release
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.released import PrivateVisits

SECONDS = 20  # until a thread that hangs is a failure
ROW = np.array([0])


def visits() -> PrivateVisits:
    problem = LostSales(horizon=1, holding=0.1, shortage=0.4, demand_max=10.0)
    log = problem.simulate_log(np.full((30, 1, 1), 4.0), rng=np.random.default_rng(0))
    prepared = Pool(1.0, Visits()).prepare(problem)
    found = prepared.release(log, SecureNoise())
    assert isinstance(found, PrivateVisits)
    return found


class Watched:
    """A lock, and the table of rows that were handed out, which say when they are used and by whom."""

    def __init__(self, transitions: Any, heard: Callable[[str], None]) -> None:
        self.table, self.lock, self.heard = transitions._handed_out, threading.Lock(), heard
        self.holder: int | None = None
        self.turns = 0
        # (what was done, in which turn of the lock; None without it)
        self.uses: list[tuple[str, int | None]] = []
        transitions._handed_out, transitions._lock = self, self

    def __enter__(self) -> None:
        self.heard("waits")
        self.lock.acquire()
        self.holder, self.turns = threading.get_ident(), self.turns + 1

    def __exit__(self, *_: object) -> None:
        self.holder = None
        self.lock.release()

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, place: Any) -> Any:
        found = self.table[place]
        if isinstance(place, tuple):  # otherwise its size is asked for
            self._used("looks")
        return found

    def __setitem__(self, place: Any, value: Any) -> None:
        self._used("marks")
        self.table[place] = value

    def _used(self, what: str) -> None:
        self.uses.append((what, self.turns if self.holder == threading.get_ident() else None))
        self.heard(what)


def test_a_row_is_looked_at_and_marked_in_one_turn_of_the_lock() -> None:
    released = visits()
    watched = Watched(released.transitions, lambda _: None)
    released.transitions(0, ROW)
    assert watched.uses == [("looks", 1), ("marks", 1)]
    with pytest.raises(ValueError, match="each row of transitions is released once"):
        released.transitions(0, ROW)
    assert watched.uses[2:] == [("looks", 2)]


def rows_given(stop_at: str) -> int:
    """How often a row is given where one thread stops at some point, until a second one is done or can only wait."""
    released, given, refused = visits(), [], []
    first_stopped, second_stuck = threading.Event(), threading.Event()

    def ask() -> None:
        try:
            given.append(released.transitions(0, ROW))
        except ValueError:
            refused.append(1)

    def second() -> None:
        assert first_stopped.wait(SECONDS)
        ask()
        second_stuck.set()

    def heard(what: str) -> None:
        if threading.current_thread() is other:
            if what == "waits":
                second_stuck.set()
        elif what == stop_at and not first_stopped.is_set():
            first_stopped.set()
            assert second_stuck.wait(SECONDS)

    other = threading.Thread(target=second)
    Watched(released.transitions, heard)
    other.start()
    ask()
    other.join(SECONDS)
    assert not other.is_alive()
    assert len(given) + len(refused) == 2
    return len(given)


@pytest.mark.parametrize("stop_at", ["looks", "marks"])
def test_two_threads_never_get_one_row(stop_at: str) -> None:
    assert rows_given(stop_at) == 1


class NoLock(release._Transitions):
    """The planted bug."""

    def __call__(self, step: int, rows: IntArray) -> IntArray:
        if self._handed_out[step, rows].any():
            raise ValueError("each row of transitions is released once")
        self._handed_out[step, rows] = True
        return self._sampler.add(self._counts.transitions(step, rows), self._variance)


@pytest.mark.parametrize("stop_at", ["looks", "marks"])
def test_without_the_lock_both_would(stop_at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "_Transitions", NoLock)
    assert rows_given(stop_at) == 2
    released = visits()
    watched = Watched(released.transitions, lambda _: None)
    released.transitions(0, ROW)
    assert watched.uses == [("looks", None), ("marks", None)]
