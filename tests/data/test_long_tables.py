"""A table with one row per product is counted like one with a column per product, in one scan, under the same bound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import LostSales, Pool, Table, Trajectories
from poolrl.checks import FloatArray
from poolrl.data.expressions import OnOneColumn
from poolrl.data.log import Columns
from poolrl.data.periods import sketch_of
from poolrl.data.sources.opening import open_source
from poolrl.data.trace import Recording
from tests.helpers.long_tables import (
    BOUND,
    SHOWN,
    Rows,
    change_and_price,
    long_columns,
    melted,
    messy_trajectory,
    week_of,
)
from tests.helpers.own_problems import PostedPrice
from tests.helpers.tables import a_labelled_shop, a_shop, columns


def hostile_pair(rng: np.random.Generator, *, labels_public: bool) -> tuple[Rows, Rows]:
    """Rows that differ in one unit. Where labels are public, its rows and their labels stay, and its amounts do not."""

    def unit(name: int) -> Rows:
        weeks = int(rng.integers(1, 5))
        rows = [row for week in range(weeks) for row in messy_trajectory(rng, name, week)]
        return [*rows, {**rows[0], "step": -1}] if rows else unit(name)

    common = [row for n in range(int(rng.integers(0, 3))) for row in unit(n)]
    first = unit(9)
    second = [dict(row) for row in first] if labels_public else unit(9)
    if labels_public:
        for row, other in zip(second, rng.permutation(len(second)), strict=True):
            row |= {name: first[other][name] for name in ("state", "action", "left")}
    return common + first, common + second


@pytest.mark.parametrize("labels_public", [False, True], ids=["protected", "public"])
@pytest.mark.parametrize("examples", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_one_unit_moves_no_more_than_was_paid_for(examples: int, labels_public: bool) -> None:
    """Doubled rows, products and labels nobody declared, no numbers, labels that disagree, trajectories beyond c."""

    @settings(max_examples=examples, deadline=None)
    @given(st.integers(0, 2**32 - 1), st.integers(1, 3))
    def holds(seed: int, most: int) -> None:
        pair = hostile_pair(np.random.default_rng(seed), labels_public=labels_public)
        change, price = change_and_price(pair, most=most, labels_public=labels_public)
        assert change <= price == 2 * 2 * 2 * 3 * most**2  # 2 H k L c²

    holds()


def test_the_sensitivity_of_a_long_table_is_attained() -> None:
    """Two weeks that sell nothing against two that sell out, and a third that has no slot."""
    pair = tuple([row for name in (0, 1, 2) for row in week_of(name, left)] for left in (0.0, BOUND))
    assert change_and_price(pair, most=2, labels_public=False) == (96, 96)  # 2 H k L c²


@pytest.mark.parametrize(
    ("values", "declared", "counted"),
    [
        (["7", "07", "x", None], [8, 7], [0, 2]),  # text is read as a number where numbers were declared
        ([7, 8, 9, None], ["7", "9"], [1, 1]),
        ([7.0, 7.5, np.nan, -0.0], [0, 7.5], [1, 1]),
        ([True, False, None, True], [1, 0], [2, 1]),
    ],
)
def test_products_are_compared_like_labels(values: list[Any], declared: list[Any], counted: list[int]) -> None:
    """Each row is a week of its own; equal rows for two spellings of one number are two weeks."""
    problem = LostSales(horizon=1, products=2, holding=1, shortage=1, demand_max=BOUND)
    table = pa.table(
        {"trajectory": range(4), "step": [0] * 4, "product": values, "state": [0] * 4, "action": [5] * 4}
        | {"left": [1.0] * 4}
    )
    log = Table(table, **long_columns(declared))
    assert log.coordinates == tuple(declared)
    assert log.outcome_leaves(problem, bins=2).sum(axis=(0, 2)).tolist() == counted
    assert log.slots == 4  # rows of other products still name their weeks


def test_a_column_that_has_the_name_of_ours_is_not_taken_for_it() -> None:
    """Where bounds differ by store and product."""
    problem, log = a_labelled_shop(60)
    table, named = melted(log), long_columns(scale=["scale"], labels=["store", "promo"])
    spoilt = table.append_column("poolrl_coordinate", pa.array([99] * len(table)))
    found = [Table(each, **named).outcome_leaves(problem, bins=8) for each in (table, spoilt)]
    np.testing.assert_array_equal(*found)
    assert found[0].sum() > 5


def test_a_log_has_the_same_marks_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a ledger recognises its rows; a declared product of several has the marks of this product."""
    _, log = a_shop(LostSales, gridded=True, trajectories=60)
    wide, long = Table(log.to_arrow(), **columns(2)), Table(melted(log), **long_columns())
    assert sketch_of(long) == sketch_of(wide)
    one, other = (set(sketch_of(Table(melted(log), **long_columns(SHOWN[i : i + 1])))[1]) for i in (0, 1))
    assert one | other == set(sketch_of(wide)[1])
    assert len(one) == len(other) == 60
    monkeypatch.setattr("poolrl.data.periods.LOOKED_AT", 30)  # of 120 marks, at random
    assert sketch_of(long) == sketch_of(wide)
    assert 10 < len(sketch_of(long)[1]) < 60


def test_a_long_file_is_read_like_others(tmp_path: Path) -> None:
    """A product's number may have zeros in front, and a CSV file has text alone."""
    problem, log = a_shop(LostSales, gridded=True, trajectories=40)
    names = ("007", "08")
    table = melted(log, names)
    lines = [",".join(table.column_names), *(",".join(map(str, row.values())) for row in table.to_pylist())]
    (tmp_path / "log.csv").write_text("\n".join([*lines, "41,0,7,1,1,1", "5,,,,,", "6,0,,1,1,1"]) + "\n")
    given = long_columns(names)
    coordinates = given.pop("coordinates")
    with open_source(str(tmp_path / "log.csv"), Columns(**given)) as opened:
        found = Table(opened.rows, **given, coordinates=coordinates)
        np.testing.assert_array_equal(found.outcome_leaves(problem, bins=8), log.outcome_leaves(problem, bins=8))
        assert found.slots == 41


def test_what_a_long_table_cannot_do_is_refused_by_public_facts() -> None:
    problem, log = a_shop(LostSales, gridded=True, trajectories=4)
    table, given = melted(log), long_columns()
    long = Table(table, **given)
    assert (long.facts.has_coordinates, long.coordinates, repr(long)) == (True, SHOWN, "Table(sensitive)")
    assert not Table(log.to_arrow(), **columns(2)).facts.has_coordinates
    assert Table(log.to_arrow(), **columns(2)).coordinates == ()
    alone, bare = long_columns(SHOWN[:1]), {name: column for name, column in given.items() if name != "coordinates"}
    halves = pa.array([0.5] * len(table))

    def renamed(product: pa.Array, **more: Any) -> Table:
        return Table(table.drop("product").append_column("product", product), **given | more)

    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: Pool.published(1.0, 3).fit(problem, long), "a Table needs outcome counts"),
        (lambda: Table(table, **alone).check(PostedPrice(3)), r"\(SeparableProblem\); PostedPrice is another kind"),
        (lambda: Table(table, **alone).check(problem), "coordinates must be 2, got 1"),
        (lambda: Table(log.to_arrow(), **columns(2), coordinates=SHOWN), "coordinates needs coordinate"),
        (lambda: Table(table, **given | {"coordinates": "bread"}), "^coordinates must have values"),
        (
            lambda: Table(table, **given | {"coordinates": ["bread", "Bread "]}),
            "^coordinates must not have a value twice",
        ),
        (lambda: renamed(halves), "coordinate must hold text, as declared, but its column has type float64"),
        (lambda: Table(table, **given | {"coordinate": "produce"}), "one column 'produce'"),
        (lambda: Table(table, **given | {"actions": ["action", "left"]}), "coordinate, actions must name one column"),
        (lambda: Table(table, **given, labels={"what": "product"}), "'product' cannot be both coordinate and label"),
        (lambda: Trajectories.from_table(table, **bare), "one row per coordinate is counted by Table"),
    ]
    for act, words in refused:
        with pytest.raises(ValueError, match=words):
            act()


def test_a_formula_that_mixes_coordinates_is_refused_in_words() -> None:
    """A shelf that is not separable, whatever its class says: each product shows what the other one does."""

    class Shelf(LostSales):
        def observe(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> Any:
            return action - next_state[..., ::-1], next_state <= 0

    _, log = a_shop(LostSales, gridded=True, trajectories=4)
    problem = Shelf(horizon=3, products=2, holding=1, shortage=1, demand_max=10.0)
    with pytest.raises(ValueError, match=r"formulas of Shelf cannot run inside an engine .*Trajectories"):
        Table(melted(log), **long_columns()).outcome_leaves(problem, bins=4)


def test_public_numbers_are_constants_unless_they_differ() -> None:
    """A vector for all coordinates takes what NumPy's functions take of a vector of numbers."""
    rows = ibis.memtable(pa.table({"x": [1.0, -2.0, 3.0], "place": [0, 1, 2]}))
    same, high, whole, held = np.ones(3), np.array([0.1, 5.0, 2.0]), np.array([1, 2, 3]), np.array([True, False, True])

    def formula(x: Any) -> Any:
        pair = np.concatenate([np.clip(x * same, -1.0, high), x + whole, 0 * x], -1)
        chosen = np.where(held, pair[..., :3], pair[..., 3:6] + 10.0)
        return np.broadcast_to(chosen - pair[..., 6:] + np.ones(1), (3,)).astype(np.float64)

    recording = Recording(formula, [(3,)])
    one = OnOneColumn(3, [recording])
    assert one.facts == {
        "poolrl_fact_0": [0.1, 5.0, 2.0],
        "poolrl_fact_1": [1.0, 2.0, 3.0],
        "poolrl_fact_2": [1.0, 0.0, 1.0],
    }
    table = ibis.memtable(pa.table({"at": [0, 1, 2], **one.facts}))
    joined = rows.inner_join(table, rows.place == table["at"])
    one.read_from(joined)
    ((column,),) = one(recording, [joined.x])
    answers = dict(joined.select(joined.place, found=column).to_pyarrow().to_pandas().to_numpy().tolist())
    x = np.array([1.0, -2.0, 3.0])
    assert [answers[place] for place in range(3)] == [formula(np.full(3, x[i]))[i] for i in range(3)]
    ((cast,),) = one(Recording(lambda x: x.astype(np.int64), [(3,)]), [joined.x])
    assert not cast.type().is_floating()
    ((condition,),) = one(Recording(lambda x: np.where(held, x, x) > 0, [(3,)]), [joined.x])
    assert condition.type().is_boolean()


def test_a_vector_for_all_coordinates_refuses_what_would_mix_them() -> None:
    row = ibis.table({"x": "float64"}, name="rows")
    refused: list[tuple[str, Any]] = [
        ("cbrt", np.cbrt),
        ("outer|more than", lambda x: np.add.outer(x, x)),
        ("picks out a coordinate", lambda x: np.broadcast_to(x, (2, 3))),
        ("x\\[..., i\\]", lambda x: x[0]),
        ("picks out a coordinate", lambda x: x[..., 0]),
        ("picks out coordinates", lambda x: x - x[..., :1]),
        ("picks out coordinates", lambda x: x[..., 1:]),
        ("picks out coordinates", lambda x: x[..., :2]),
        ("picks out a coordinate", lambda x: np.where(np.ones((3, 3)), x, x)),
        ("joins rows", lambda x: np.concatenate([x, np.ones((3, 3))])),
    ]
    for words, formula in refused:
        with pytest.raises(TypeError, match=words):
            OnOneColumn(3, [])(Recording(formula, [(3,)]), [row.x])
    for lengths in (lambda x: x + np.ones(2), lambda x: x + np.concatenate([x, x], axis=-1)):
        with pytest.raises(ValueError, match="broadcast"):
            Recording(lengths, [(3,)])
    (alone,) = OnOneColumn(1, [])(Recording(lambda x: np.concatenate([x, x + 1], axis=-1), [(1,)]), [row.x])
    assert alone.shape == (2,)
