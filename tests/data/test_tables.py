"""Counts inside an engine are those of the arrays, bit for bit; what cannot be used is unobserved, and never fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow.parquet as pq
import pytest

from poolrl import Grid, LostSales, Table, Trajectories, Zones
from poolrl.data.counts import count_outcomes, count_visits
from poolrl.privacy.sensitivity import every_level
from tests.helpers.long_tables import long
from tests.helpers.own_problems import PostedPrice, Wear, wear_log
from tests.helpers.tables import (
    LOGS,
    WITH_ALL,
    a_mess,
    assert_counted_like_arrays,
    by_hand,
    columns,
    simulated,
    wide,
)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("form", [wide, long])
def test_duckdb_counts_like_arrays(form: Any, name: str) -> None:
    """Bounds by product, a boundary by product and step, labels, scales, units, clipping, formulas as users write."""
    if form is long and name == "prices":
        pytest.skip("its one coordinate has no row of its own")
    assert_counted_like_arrays(name, form, everything=name in WITH_ALL)


@pytest.mark.parametrize("values", [Zones(20), Grid(5)])
@pytest.mark.parametrize("name", ["lost sales on a grid", "backlog"])
def test_duckdb_counts_visits_like_arrays(name: str, values: Any) -> None:
    """On rings, whose nodes are found by direction, and on cells."""
    problem, log = LOGS[name]()
    partition = values.partition(problem)
    by_array, by_engine = count_visits(log, partition), count_visits(wide(log, False), partition)
    assert by_array.pairs.sum() > 60
    np.testing.assert_array_equal(by_engine.pairs, by_array.pairs)
    for step, (mine, theirs) in enumerate(zip(by_engine.moves, by_array.moves, strict=True)):
        assert (mine != theirs).nnz == 0
        rows = np.array([0, 2])
        np.testing.assert_array_equal(by_engine.transitions(step, rows), theirs.toarray()[rows])


def test_one_dimension_is_counted_by_visits_too() -> None:
    """Of a problem without outcomes; and on a ring of one point, which no direction tells apart."""
    log = wear_log(Wear(2), 300)
    shop = LostSales(horizon=2, holding=0.2, shortage=0.4, demand_max=10.0)
    for each, partition in ((log, Grid(8).partition(Wear(2))), (simulated(shop), Zones(10).partition(shop))):
        by_array, by_engine = (count_visits(one, partition) for one in (each, wide(each, False)))
        np.testing.assert_array_equal(by_engine.pairs, by_array.pairs)


def test_counts_are_translated_for_engines_that_are_not_here() -> None:
    """Translated, which finds a function that an engine lacks; not executed."""
    problem, log = LOGS["labels and units"]()
    visited, plain = LOGS["lost sales"]()
    one, several = (form(log, False, lambda rows: ibis.table(rows.schema, name="log")) for form in (wide, long))
    visits = wide(plain, False, lambda rows: ibis.table(rows.schema, name="log"))
    for expression in (
        one.outcome_expression(problem, bins=16),
        several.outcome_expression(problem, bins=16),
        visits.visit_expression(Zones(4).partition(visited)),
        visits.visit_expression(Grid(4).partition(visited)),
    ):
        for engine in ("bigquery", "snowflake", "databricks", "trino", "postgres"):
            assert "GROUP BY" in ibis.to_sql(expression, dialect=engine)


def test_a_formula_that_no_engine_has_is_refused_in_words() -> None:
    class Odd(PostedPrice):
        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            return np.cbrt(action) ** 3, next_state <= 0

    log = Trajectories(states=np.ones((2, 1, 1)), actions=np.ones((2, 1, 1)), next_states=np.ones((2, 1, 1)))
    with pytest.raises(ValueError, match=r"Odd .*cbrt.* give the log as Trajectories"):
        count_outcomes(Table(log.to_arrow(), **columns(1)), Odd(1), level_sizes=every_level(4))


@pytest.mark.parametrize("max_per_unit", [None, 1, 3])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_what_cannot_be_used_is_unobserved(tmp_path: Path, seed: int, max_per_unit: int | None) -> None:
    """From Parquet, whose statistics pass over NaN, and from memory, against a count row by row."""
    problem = LostSales(horizon=3, holding=0.2, shortage=0.4, demand_max=10.0)
    mess = a_mess(np.random.default_rng(seed))
    pq.write_table(mess, tmp_path / "mess.parquet")
    named = columns(1) | ({"unit": "unit", "max_per_unit": max_per_unit} if max_per_unit else {})
    units, leaves = by_hand(mess, bins=16, max_per_unit=max_per_unit)
    assert leaves.sum() > 30
    for source in (mess, ibis.read_parquet(tmp_path / "mess.parquet")):
        table = Table(source, **named)
        assert table.units == units
        counts = count_outcomes(table, problem, level_sizes=every_level(16))
        np.testing.assert_array_equal(counts.levels[-1].reshape(leaves.shape), leaves)
        total = counts.levels[0].sum(axis=(2, 3)) + counts.unobserved
        assert (total == table.slots).all()
