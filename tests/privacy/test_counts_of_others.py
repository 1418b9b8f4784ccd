"""Nobody but our own logs brings counts through the door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from poolrl import LostSales, Outcomes, Pool, SeededNoise, Table, Trajectories, Visits
from poolrl.checks import IntArray
from poolrl.data.counts import count_outcomes
from poolrl.privacy.noise.source import NoiseSource
from poolrl.privacy.release import release_levels, release_outcomes, release_rows, release_visits
from tests.helpers.broken_problems import FACTS, LEVELS, DividesByTheLargest, Untouched, a_log
from tests.helpers.own_problems import Wear, wear_log
from tests.helpers.tables import columns


class OwnCounts(Trajectories):
    def outcome_leaves(self, problem: Any, **more: Any) -> IntArray:
        return super().outcome_leaves(problem, **more) * 1_000


class SaysItIsOne:
    """Everything that the door asks for, and a lie about its class."""

    def __init__(self, log: Trajectories) -> None:
        self._log = log

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return Trajectories

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def releases(problem: LostSales) -> list[Callable[[Any, NoiseSource], Any]]:
    partition = Pool(1.0, Visits()).prepare(problem).where  # type: ignore[attr-defined]
    return [
        lambda log, noise: release_outcomes(log, problem, level_sizes=LEVELS, rho=1.0, noise=noise),
        lambda log, noise: release_visits(log, problem, partition, rho=1.0, noise=noise),
        lambda log, noise: release_rows(log, problem, rho=1.0, noise=noise),
        lambda log, noise: release_levels(np.zeros((2, 2)), log, problem, rho=1.0, noise=noise),
        lambda log, noise: Pool(1.0).fit(problem, log, noise=noise),
        lambda log, noise: Pool(1.0, Outcomes()).fit(problem, log, noise=noise),
    ]


class NeverAsked:
    """Noise that must not be drawn."""

    def begin(self) -> Any:
        raise AssertionError("something was counted")


def test_the_door_takes_no_counts_but_our_own() -> None:
    problem, log = LostSales(**FACTS), a_log(rows=20)
    parts = {name: getattr(log, name) for name in ("states", "actions", "next_states")}

    class OwnTable(Table):
        pass

    others = [OwnCounts(**parts), OwnTable(log.to_arrow(), **columns(2)), SaysItIsOne(log), parts, None]
    for release in releases(problem):
        for other in others:
            with pytest.raises(ValueError, match="a log must be a Trajectories or a Table, and no subclass"):
                release(other, NeverAsked())
    Pool(1.0).fit(problem, log, noise=SeededNoise(0))


def test_visits_are_counted_on_nodes_of_ours() -> None:
    problem = Wear(2)
    partition = Pool(1.0, Visits()).prepare(problem).where  # type: ignore[attr-defined]

    class OwnPartition(type(partition)):  # type: ignore[misc]
        def pair_index(self, step: int, state: Any, action: Any) -> Any:
            return np.full(len(state), len(state) % 2)

    own = OwnPartition(partition.problem, partition.pairs, partition.states)
    with pytest.raises(ValueError, match="nodes of this package"):
        release_visits(wear_log(problem, 5), problem, own, rho=1.0, noise=NeverAsked())


def test_visits_of_a_formula_that_looks_at_the_batch_are_refused() -> None:
    class Relative(Wear):
        def unit_pair(self, state: Any, action: Any) -> Any:
            return np.concatenate([state, action], axis=-1) / np.maximum(action.max(), 1.0)

    with pytest.raises(ValueError, match=r"unit_pair\(\) of Relative must treat each row by itself"):
        Pool(1.0).fit(Relative(2), Untouched.log())
    partition = Pool(1.0, Visits()).prepare(Wear(2)).where  # type: ignore[attr-defined]
    partition = type(partition)(Relative(2), partition.pairs, partition.states)
    with pytest.raises(ValueError, match="formulas of Relative must treat each row by itself"):
        release_visits(wear_log(Wear(2), 5), Relative(2), partition, rho=1.0, noise=NeverAsked())


def test_engines_give_formulas_no_rows_either() -> None:
    log = a_log(rows=20)
    with pytest.raises(ValueError, match="DividesByTheLargest"):
        count_outcomes(Table(log.to_arrow(), **columns(2)), DividesByTheLargest(**FACTS), level_sizes=LEVELS)
