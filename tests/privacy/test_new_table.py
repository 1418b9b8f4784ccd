"""A new table on top of the trees is added in four places; the audit, the certificate and `verify` then know it.

A count (`data/counts.py`), a formula (`privacy/sensitivity.py`), a share of ρ and a reading (`pool.py`), and what the
reading does (a file of `learning/`). The table here counts how many rows of each step and product ran out.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from poolrl import LostSales, Pool, SeededNoise
from poolrl import pool as pool_module
from poolrl.audit.attack import attack_case
from poolrl.audit.cases import AuditCase
from poolrl.data import counts
from poolrl.privacy import sensitivity

PROBLEM = LostSales(horizon=2, products=2, holding=1.0, shortage=1.0, demand_max=8.0, labels={"shop": [1, 2]})
ASKED: dict[str, Any] = {"on_top": {"ran_out": 0.25}, "units": 8, "engine": "arrays"}


def count_cut_off(log: Any, problem: Any, _: Any) -> Any:
    """How many rows were cut off, (*labels, H, k)."""
    leaves = log.outcome_leaves(problem, bins=2)
    return leaves[..., 2:].sum(axis=-1)


def cut_off_rows(problem: Any, *, per_unit: int) -> sensitivity.TableLayout:
    """A trajectory adds one to at most one cell of a step and product: two cells change by c where labels do."""
    tables, sides = problem.horizon * problem.outcome_dim, 2 if problem.labels else 1
    cells = tables * problem.labels.count
    return sensitivity.TableLayout("rows that ran out", cells, Fraction(sides * tables * per_unit**2))


@dataclass(frozen=True)
class WithTable(Pool):
    """The share of ρ that pays for it."""

    ran_out: float = 0.0


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setitem(counts.ON_TOP, "ran_out", count_cut_off)
    monkeypatch.setitem(sensitivity.ON_TOP, "ran_out", sensitivity.OnTop(cut_off_rows))
    monkeypatch.setattr("poolrl.audit.cases.Pool", WithTable)
    return monkeypatch


@pytest.mark.usefixtures("added")
def test_a_new_table_is_paid_for_and_released() -> None:
    rng = np.random.default_rng(0)
    demand, shop = rng.uniform(0, 8, (400, 2, 2)), rng.integers(1, 3, 400)
    log = PROBLEM.simulate_log(demand, rng=rng, labels={"shop": shop})
    prepared = WithTable(1.0, ran_out=0.25).prepare(PROBLEM)
    released = prepared.release(log, SeededNoise(0))
    trees, paid = released.guarantee.mechanisms
    assert (paid.name, paid.rho, trees.rho) == ("rows that ran out", 0.25, 0.75)
    exact = count_cut_off(log, PROBLEM, None)
    assert exact.sum() == (log.next_states == 0).sum()
    assert np.abs(released.on_top["ran_out"].counts - exact).max() < 6 * paid.variance**0.5


@pytest.mark.usefixtures("added")
def test_the_audit_attacks_it() -> None:
    found = attack_case(AuditCase(PROBLEM, **ASKED), releases=200)
    assert found.faults == ()
    assert {table.stated.name: float(table.share) for table in found.tables}["rows that ran out"] <= 1


def test_every_room_knows_the_same_tables() -> None:
    assert list(counts.ON_TOP) == list(sensitivity.ON_TOP)
    assert all(hasattr(Pool(1.0), name) for name in sensitivity.ON_TOP)
    assert pool_module.READINGS.keys() <= sensitivity.ON_TOP.keys()
