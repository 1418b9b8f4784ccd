"""Labels: which values may be declared, and the cell of every row, against the same labels looked up one at a time."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrl import LostSales
from poolrl.data.expressions import CELL, SHARE, comparable, with_label_cells
from poolrl.problems.labels import Labels

COSTS = {"horizon": 1, "holding": 1.0, "shortage": 1.0}
NUMBERS: list[Any] = [None, -1, 0, 1, 2, 3, 4, 5, 7, 8]
REALS: list[Any] = [None, math.nan, math.inf, -math.inf, -1e300, 1e300, -0.0, 0.5, 1.5, 2.5, 3.5]
TYPES = [pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]


@cache
def engine() -> Any:
    return ibis.duckdb.connect()


def found_cells(columns: dict[str, pa.Array], problem: Any) -> dict[int, tuple[Any, ...]]:
    """The cell of each row by its number, and the cell's shares of the bound; rows without a cell are not there."""
    rows = pa.table({"row": np.arange(len(next(iter(columns.values()))))} | columns)
    table = ibis.memtable(rows)
    found = with_label_cells(table, [table[name] for name in problem.labels.names], problem, by_coordinate=False)
    answer = engine().to_pyarrow(found)
    names = [CELL, *(name for name in answer.column_names if name.startswith(SHARE.format("")))]
    values = zip(*(answer[name].to_pylist() for name in names), strict=True)
    return dict(zip(answer["row"].to_pylist(), values, strict=True))


def expected_cells(columns: dict[str, list[Any]], declared: dict[str, list[Any]]) -> dict[int, int]:
    """Row by row: the place of each value among those declared, the last label fastest."""
    cells = {}
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        cell = 0
        for value, known in zip(values, declared.values(), strict=True):
            place = next((i for i, each in enumerate(known) if value is not None and each == value), None)
            if place is None:
                break
            cell = cell * len(known) + place
        else:
            cells[row] = cell
    return cells


def shop(declared: dict[str, list[Any]], **more: Any) -> LostSales:
    return LostSales(**(COSTS | {"demand_max": 10.0} | more), labels=declared)


# Consecutive numbers, which are found by arithmetic; others, which are found by a join.
DECLARED = [[1, 2, 3], [0], [2.0, 3.0, 4.0], [3, 1, 2], [1, 3], [7, 2, 5, 0], [0.5, 1.5, 2.5], [-1, 0, 1, 2]]


def columns_of_labels() -> Iterator[tuple[str, pa.Array, list[Any], list[list[Any]]]]:
    """A name, a column, the same as numbers or texts, and lists of declared values."""
    for kind in TYPES:
        numbers = [v for v in NUMBERS if v is None or v >= 0 or not pa.types.is_unsigned_integer(kind)]
        if pa.types.is_floating(kind):
            reals = [v if v is None or abs(v) < 1e300 or math.isinf(v) else math.copysign(1e30, v) for v in REALS]
            numbers = [*numbers, *reals]
        yield str(kind), pa.array(numbers, kind, from_pandas=False), numbers, DECLARED
    spelt = ["1", "2.0", " 3", "3.5", "x", "", None, "0", "-0", "1e0", "nan", "inf", "007"]
    numbers = [1, 2, 3, 3.5, None, None, None, 0, 0, 1, None, math.inf, 7]
    yield "numbers in text", pa.array(spelt), numbers, DECLARED  # as in a CSV file
    yield "truth values", pa.array([True, False, None]), [1, 0, None], DECLARED
    texts = ["b", "a", "", None, "B", "a ", "1"]
    yield "texts", pa.array(texts), texts, [["a", "b"], ["b"], ["1", "a"]]
    yield "nothing", pa.nulls(3), [None] * 3, [[1, 2], [1, 5], ["a", "b"]]
    beyond = [1e20, 5.0, 2e20, 6.0]
    yield "beyond integers", pa.array(beyond), beyond, [[10**20, 5]]


@pytest.mark.parametrize(
    ("column", "values", "declared"),
    [
        pytest.param(column, values, declared, id=f"{name} {declared}")
        for name, column, values, several in columns_of_labels()
        for declared in several
    ],
)
def test_a_column_of_any_type(column: pa.Array, values: list[Any], declared: list[Any]) -> None:
    found = found_cells({"x": column}, shop({"x": declared}))
    assert {row: cell for row, (cell,) in found.items()} == expected_cells({"x": values}, {"x": declared})


def test_three_labels_make_cells_with_the_last_one_fastest() -> None:
    """By arithmetic, by a join of numbers, and by a join of texts."""
    labels: dict[str, list[Any]] = {"day": [1, 2, 3, 4], "store": [9, 4, 6], "promo": ["no", "yes"]}
    rng = np.random.default_rng(1)
    given: dict[str, list[Any]] = {
        "day": rng.choice([0, 1, 2, 3, 4, 5], 300).tolist(),
        "store": rng.choice([4, 6, 9, 10], 300).tolist(),
        "promo": rng.choice(["no", "yes", "so"], 300).tolist(),
    }
    expected = expected_cells(given, labels)
    assert set(expected.values()) == set(range(24))
    found = found_cells({name: pa.array(values) for name, values in given.items()}, shop(labels))
    assert {row: cell for row, (cell,) in found.items()} == expected


def test_text_of_a_table_without_an_engine_becomes_numbers_where_it_can() -> None:
    """What is not a number must become NULL: a cast would fail after payment."""
    column = ibis.table({"x": "string"}, name="rows")["x"]
    made = comparable(column, shop({"x": [1, 5]}).labels, "x")
    assert "TRY_CAST" in str(ibis.to_sql(made.as_table(), dialect="duckdb"))


def test_other_columns_are_refused_by_their_type() -> None:
    day = pa.array([datetime.date(2024, 1, 1)])
    for column, declared in ((pa.array([0.5]), ["a"]), (day, ["a"]), (pa.array([b"1"]), [1])):
        wanted = "text" if declared == ["a"] else "numbers"
        with pytest.raises(ValueError, match=f"label 'x' must hold {wanted}, as declared, but its column has type"):
            comparable(ibis.memtable(pa.table({"x": column}))["x"], shop({"x": declared}).labels, "x")


@given(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=5, unique=True), min_size=1, max_size=3), st.data())
def test_cells_count_in_the_order_of_declaration(values: list[list[int]], data: st.DataObject) -> None:
    """The last label runs fastest, as in an array of shape `labels.shape`."""
    labels = Labels({f"label {i}": each for i, each in enumerate(values)})
    places = [data.draw(st.integers(0, len(each) - 1)) for each in values]
    chosen = {f"label {i}": values[i][place] for i, place in enumerate(places)}
    assert labels.count == np.prod(labels.shape)
    assert labels.cells(chosen).item() == np.ravel_multi_index(places, labels.shape)


def test_what_was_not_declared_has_no_cell() -> None:
    labels = Labels({"shop": [7, 1, 2.5], "kind": ["b", "a"]})
    shop, kind = [7, 1, 2.5, 2, np.nan, 7], ["b", "a", "a", "b", "b", None]
    assert labels.cells({"shop": shop, "kind": kind}).tolist() == [0, 3, 5, -1, -1, -1]
    assert labels.places("shop", [1.0, True, -0.0, 1 + 1e-12]).tolist() == [1, 1, -1, -1]
    assert labels.places("kind", np.array(["a", "ab", ""])).tolist() == [1, -1, -1]


def test_values_of_every_kind_are_kept_as_plain_ones() -> None:
    labels = Labels({"shop": np.arange(3), "size": (0.5, 1), "name": np.array(["a", "b"]), "open": range(2)})
    assert labels.facts() == [["shop", [0, 1, 2]], ["size", [0.5, 1]], ["name", ["a", "b"]], ["open", [0, 1]]]
    again = Labels(json.loads(json.dumps(labels.facts(), sort_keys=True)))
    assert again == labels
    assert hash(again) == hash(labels)
    assert Labels(labels.facts()[::-1]) != labels  # another order makes other cells


@pytest.mark.parametrize(
    ("values", "message"),
    [
        *(
            (mixed, "label 'shop' must have values, all numbers or all text")
            for mixed in ([], [1, "a"], [1, None], [1.0, np.nan], [np.inf])
        ),
        ("north", "label 'shop' must have a list of values, got the text 'north'"),
        ([1, 1.0], "label 'shop' must not have a value twice"),
        (["a", "a"], "label 'shop' must not have a value twice"),
        # A join would put one row into the cells of both.
        *(
            (pair, "nor values that an engine may take for equal")
            for pair in ([2**60, 2**60 + 1], ["a", "A"], ["a", " a"], ["e", "\u00e9"], ["ss", "\u00df"])
        ),
    ],
)
def test_values_that_cannot_be_declared(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Labels({"shop": values})


def test_cells_stay_countable() -> None:
    with pytest.raises(ValueError, match="labels must make at most 10,000,000 cells, got 16,000,000"):
        Labels({"shop": range(4000), "product": range(4000)})
