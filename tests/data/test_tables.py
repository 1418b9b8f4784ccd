"""Counts inside an engine are those of the arrays, bit for bit; what cannot be used is unobserved, and never fails."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import LostSales, Pool, SeededNoise, Table, Trajectories
from poolrl.data.counts import count_outcomes, sum_together
from poolrl.data.expressions import count_steps
from poolrl.data.sources.engine import Source
from poolrl.privacy.guarantee import KEEP_IDS, REPLACE_ANY
from poolrl.privacy.release import release_outcomes
from tests.helpers.long_tables import MESSES, a_mess, as_table, by_hand, long
from tests.helpers.own_problems import PostedPrice
from tests.helpers.tables import (
    LOGS,
    WITH_ALL,
    assert_counted_like_arrays,
    columns,
    every_level,
    wide,
)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("form", [wide, long])
def test_duckdb_counts_like_arrays(form: Any, name: str) -> None:
    """Bounds by product, a boundary by product and step, labels, scales, units, clipping, formulas as users write."""
    if form is long and name == "prices":
        pytest.skip("its one coordinate has no row of its own")
    assert_counted_like_arrays(name, form, everything=name in WITH_ALL)


def test_counts_are_translated_for_engines_that_are_not_here() -> None:
    """Translated, which finds a function that an engine lacks; not executed."""
    problem, log = LOGS["labels and units"]()
    one, several = (form(log, False, lambda rows: ibis.table(rows.schema, name="log")) for form in (wide, long))
    for expression in (one.outcome_expression(problem, bins=16), several.outcome_expression(problem, bins=16)):
        for engine in ("bigquery", "snowflake", "trino"):
            assert "GROUP BY" in ibis.to_sql(expression, dialect=engine)


def test_a_formula_that_no_engine_has_is_refused_in_words() -> None:
    class Odd(PostedPrice):
        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            return np.cbrt(action) ** 3, next_state <= 0

    log = Trajectories(states=np.ones((2, 1, 1)), actions=np.ones((2, 1, 1)), next_states=np.ones((2, 1, 1)))
    with pytest.raises(ValueError, match=r"Odd .*cbrt.* give the log as Trajectories"):
        count_outcomes(Table(log.to_arrow(), **columns(1)), Odd(1), level_sizes=every_level(4))


@pytest.mark.parametrize("products", MESSES)
@pytest.mark.parametrize(("most", "labels_public"), [(None, False), (1, True), (2, False), (2, True)])
def test_what_cannot_be_used_is_unobserved(
    tmp_path: Path, most: int | None, labels_public: bool, products: int
) -> None:
    """Doubled rows, no numbers, no ids, labels that disagree, products and steps that nobody declared.

    Against a count row by row; from memory, and from Parquet, whose statistics pass over NaN.
    """
    (problem, named), rng = MESSES[products], np.random.default_rng(3)
    rows = a_mess(rng, products)
    if most is None:  # each trajectory is a unit of its own
        named = {name: column for name, column in named.items() if name != "unit"}
        rows = [row | {"unit": row["trajectory"]} for row in rows]
    units, leaves, totals = by_hand(rows, products, bins=4, max_per_unit=most or 1, labels_public=labels_public)
    assert leaves.sum() > 30
    source = as_table(rows).take(rng.permutation(len(rows)))
    if labels_public:
        pq.write_table(source, tmp_path / "mess.parquet")
        source = ibis.read_parquet(tmp_path / "mess.parquet")
    table = Table(source, **named, max_per_unit=most or 1, labels_public=labels_public)
    table.check(problem)
    assert (table.units, table.slots) == (units, units * (most or 1))
    np.testing.assert_array_equal(table.outcome_leaves(problem, bins=4), leaves)
    np.testing.assert_array_equal(table.label_totals(problem), totals)
    if labels_public:  # no product of a label's slots is observed more often than there are slots
        assert (totals[:, :, None] >= leaves.sum(axis=-1)).all()


# Part by part, against the same rules for one row at a time.


PARTS = ("state", "action", "next_state")


def executed(expression: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = expression.to_pyarrow().to_pydict()
    return found


@pytest.mark.parametrize("horizon", [1, 2, 31])
def test_repeated_steps_are_found_whatever_they_are(horizon: int) -> None:
    """Lives of every length up to beyond the horizon; one bit that is there twice carries into the next one."""
    rng = np.random.default_rng(horizon)
    lives = [list(range(horizon)), [0], [horizon - 1], [0, 0], [horizon - 1] * 2, [0] * horizon, [0] * (horizon + 2)]
    lives += [list(range(horizon - 1)) + [max(horizon - 2, 0)], [*range(horizon), horizon - 1], [0] * 2000]
    for _ in range(12):
        life = rng.permutation(horizon)[: rng.integers(1, horizon + 1)].tolist()
        lives += [life, [*life, int(rng.choice(life))]]
    rows = [(name, step) for name, life in enumerate(lives) for step in life]
    given = pa.table({"name": [n for n, _ in rows], "step": pa.array([s for _, s in rows], pa.int32())})
    found = executed(count_steps(ibis.memtable(given), ["name"], horizon).order_by("name"))
    assert found["name"] == list(range(len(lives)))
    assert found["count"] == [len(life) for life in lives]
    assert found["repeated"] == [len(set(life)) < len(life) for life in lives]


def a_table(**more: Any) -> pa.Table:
    size = len(next(iter(more.values())))
    numbers = {f"{part}_0": pa.array(np.ones(size)) for part in PARTS}
    return pa.table({"trajectory": pa.array(range(size)), **more, **numbers})


@pytest.mark.parametrize(("first", "kind"), [(3, pa.int64()), (-2, pa.float64()), (3, pa.decimal128(6, 2))])
def test_which_rows_have_a_step(first: int, kind: pa.DataType) -> None:
    steps: list[Any] = [None, *range(first - 2, first + 6)]
    if not pa.types.is_integer(kind):
        steps += [first + 0.5, first + 1.5, first - 0.5, first + 3.5]
    if pa.types.is_floating(kind):
        steps += [math.nan, math.inf, -math.inf, 3e38, -3e38]
    given = pa.array(steps, pa.float64() if kind != pa.int64() else kind).cast(kind)
    table = Table(a_table(step=given), **columns(1, first_step=first))
    found = executed(table.rows_of_steps(4, twice=table.rows.action_0 * 2).order_by("trajectory"))
    held = [(n, step) for n, step in enumerate(steps) if step in range(first, first + 4)]
    assert found["trajectory"] == [n for n, _ in held]
    assert found["step"] == [int(step) - first for _, step in held]
    assert found["twice"] == [2.0] * len(held)
    assert (table.first_step, type(table.first_step)) == (first, int)


def test_what_a_table_is_made_of() -> None:
    table = a_table(step=np.zeros(3, dtype=int), unit=["a", "b", "a"])
    made = Table(Source(ibis.memtable(table), ("SELECT 1",)), **columns(1, unit="unit", max_per_unit=2))
    assert (made.definitions, made.is_full, made.clip, repr(made)) == (("SELECT 1",), False, False, "Table(sensitive)")
    facts = made.facts
    assert (facts.scale_memory, facts.ids_public, facts.labels_public) == (0, False, False)  # unless it is said
    assert Table(table, **columns(1, first_step=-(2**31))).first_step == -(2**31)
    assert Table(table, **columns(1)).facts.max_per_unit == 1


def test_columns_are_checked_by_name_and_kind_alone() -> None:
    table = a_table(step=np.zeros(3, dtype=int), unit=["a", "b", "a"])
    table = table.append_column("more", table["state_0"]).append_column("most", table["state_0"])
    refused: list[tuple[dict[str, Any], str]] = [
        ({"max_per_unit": 0, "unit": "unit"}, "max_per_unit"),
        ({"max_per_unit": 2}, "max_per_unit needs unit"),
        ({"unit": "nobody"}, "nobody"),
        ({"actions": ["unit"]}, "column 'unit' must hold numbers"),
        ({"labels_public": True}, "labels"),
        ({"states": ["stat_0"]}, r"one column 'stat_0' \(did you mean 'state_0'"),
    ]
    for bad, words in refused:
        with pytest.raises(ValueError, match=words):
            Table(table, **columns(1, **bad))
    problem = LostSales(horizon=1, holding=0.2, shortage=0.4, demand_max=10.0)
    Table(table, **columns(1)).check(problem)
    for name in ("states", "actions", "next_states", "scale"):
        with pytest.raises(ValueError, match=f"{name} must name 1 columns, got 2"):
            Table(table, **columns(1, **{name: ["more", "most"]})).check(problem)
    with pytest.raises(ValueError, match="for files, Table"):
        Table("log.parquet", **columns(2))
    with pytest.raises(ValueError, match=r"log .*got .*DataFrame"):
        Pool(1.0).fit(problem, table.to_pandas())


def test_a_table_without_ids_is_refused() -> None:
    ids = pa.array([None, None], pa.int64())
    for table in (a_table(step=[0]).slice(0, 0), a_table(step=[0, 1]).set_column(0, "trajectory", ids)):
        with pytest.raises(ValueError, match="the table must not be empty"):
            _ = Table(table, **columns(1)).units


@pytest.mark.parametrize("ids_public", [False, True])
def test_a_table_says_whether_its_ids_are_public(ids_public: bool) -> None:
    """The guarantee says what neighbours keep."""
    table = Table(a_table(step=[0, 0]), **columns(1), ids_public=ids_public)
    problem = LostSales(horizon=1, holding=0.2, shortage=0.4, demand_max=10.0)
    found = release_outcomes(table, problem, level_sizes=(1, 2), rho=Fraction(1), noise=SeededNoise(1)).guarantee
    assert table.facts.ids_public is ids_public
    assert found.adjacency == (KEEP_IDS if ids_public else REPLACE_ANY)


def test_sums_of_pairs_are_of_64_bits() -> None:
    """2⁴⁰ trajectories, each with both of its products beyond their edges: cell 2 · 3 + 2 of a step."""

    class Many:
        def crowd_tallies(self, problem: Any, *, edges: Any) -> Any:
            return [(np.array([8]), np.array([2**40]))]

    shop: Any = LostSales(horizon=1, products=2, holding=1, shortage=1, demand_max=4.0)
    many: Any = Many()
    assert sum_together(many, shop, edges=np.zeros((1, 2), dtype=np.int64)).tolist() == [[2**40 * 128, 0, 0]]
