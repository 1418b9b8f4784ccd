"""Formulas on columns give what they give on arrays, in an engine, for every operation that there is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest

from poolrl.data.on_columns import OnColumns, as_columns
from poolrl.data.trace import Recording

# Whole numbers and halves around zero, each with each, so that every comparison is true, false and an equality.
GRID = np.arange(-4, 5) / 2
LEFT, RIGHT = (part.ravel() for part in np.meshgrid(GRID, GRID))
FIRST = np.column_stack([LEFT, RIGHT])
SECOND = np.column_stack([RIGHT, LEFT * 2])
ROWS = pa.table({"a": FIRST[:, 0], "b": FIRST[:, 1], "c": SECOND[:, 0], "d": SECOND[:, 1]})
TABLE = ibis.table(dict.fromkeys("abcd", "float64"), name="rows")

Formula = Callable[[Any, Any], Any]


@cache
def engine() -> Any:
    connection = ibis.duckdb.connect()
    connection.create_table("rows", ROWS)
    return connection


def in_engine(made: Any) -> np.ndarray[Any, Any]:
    """The entries of an answer for every row, computed by the engine."""
    columns = {f"x{i}": column for i, column in enumerate(as_columns(made))}
    found = engine().to_pyarrow(TABLE.select(row=ibis.row_number(), **columns))
    return np.column_stack([found[name].to_numpy() for name in columns])


X, Y = [TABLE["a"], TABLE["b"]], [TABLE["c"], TABLE["d"]]


def entries(formula: Formula, evaluator: OnColumns | None = None) -> Any:
    """What a formula gives on columns."""
    (found,) = (evaluator or OnColumns())(Recording(formula, [(2,), (2,)]), X, Y)
    return found


FORMULAS: dict[str, Formula] = {
    "add": lambda x, y: x + y,
    "add a number": lambda x, y: x + 0.5,
    "subtract": lambda x, y: x - y,
    "subtract zero": lambda x, y: x - 0.0,
    "subtract half": lambda x, y: x - 0.5,
    "subtract from": lambda x, y: 0.0 - x,
    "subtract both": lambda x, y: (x - np.array([0.0, 1.5])) - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / (y + 10.0),
    "negative": lambda x, y: -x,
    "less": lambda x, y: x < y,
    "at most": lambda x, y: x <= y,
    "at most a number": lambda x, y: x <= 0.5,
    "at most infinity": lambda x, y: (x <= np.inf) & (x < y),
    "at most nothing": lambda x, y: x <= -np.inf,
    "more": lambda x, y: x > y,
    "no less": lambda x, y: x >= y,
    "no less than a number": lambda x, y: x >= 0.5,
    "numbers are no less": lambda x, y: np.array([0.5, 1.0]) >= x,
    "a largest is no less": lambda x, y: np.maximum(x, 0.5) >= 0.5,
    "a largest may be less": lambda x, y: np.maximum(x, 0.5) >= 1.0,
    "a largest is no less than less": lambda x, y: np.maximum(x, 0.5) >= 0.25,
    "a largest of columns": lambda x, y: np.maximum(x, y) >= 0.5,
    "a largest is no less than a column": lambda x, y: np.maximum(x, 0.5) >= y,
    "a least may be less": lambda x, y: np.minimum(x, 0.5) >= 0.5,
    "equal": lambda x, y: x == y,
    "not equal": lambda x, y: x != y,
    "and": lambda x, y: (x > 0) & (y > 0),
    "or": lambda x, y: (x > 0) | (y > 0),
    "logical": lambda x, y: np.logical_or(np.logical_and(x > 0, y > 0), x < -1),
    "and true": lambda x, y: (x > 0) & np.array([True, False]),
    "true and": lambda x, y: np.array([True, False]) & (x > 0),
    "or true": lambda x, y: (x > 0) | np.array([True, False]),
    "true or": lambda x, y: np.array([True, False]) | (x > 0),
    "not": lambda x, y: ~(x > y),
    "logical not": lambda x, y: np.logical_not(x > y),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "absolute": lambda x, y: np.absolute(x),
    "root": lambda x, y: np.sqrt(np.absolute(x)),
    "floor": lambda x, y: np.floor(x),
    "clip": lambda x, y: np.clip(x, -0.5, y),
    "where": lambda x, y: np.where(x > y, x, y),
    "where some": lambda x, y: np.where(np.array([True, False]), x, y),
    "one that is always one": lambda x, y: np.where(x > y, 1.0, x),
    "whole": lambda x, y: np.floor(x).astype(np.int64) * 2,
    "real": lambda x, y: np.floor(x).astype(np.int64).astype(np.float64) / 2,
    "concatenate": lambda x, y: np.concatenate([x, y], axis=-1),
    "concatenate numbers": lambda x, y: np.concatenate([x, np.zeros_like(x) + 0 * x], axis=-1) + 1.0,
    "zeros": lambda x, y: x * 0 + np.zeros_like(x),
    "whole zeros": lambda x, y: (x > 0) | np.zeros_like(x, dtype=bool),
    "no less than no number": lambda x, y: np.fmax(x, y),
    "some": lambda x, y: x[..., :1] + y[..., 1:],
    "one of them": lambda x, y: (x[..., [1]] - y[..., [0]]) * 2,
    "all": lambda x, y: (x > y).all(axis=-1, keepdims=True) & (x > -5),
    "any": lambda x, y: (x > y).any(axis=-1, keepdims=True) & (x > -5),
    "all by function": lambda x, y: np.all(x > y, axis=-1, keepdims=True),
    "any by function": lambda x, y: np.any(x > y, axis=-1, keepdims=True),
    "all of three": lambda x, y: (np.concatenate([x, y[..., :1]], axis=-1) > 0).all(axis=-1, keepdims=True),
    "any of three": lambda x, y: (np.concatenate([x, y[..., :1]], axis=-1) > 1.5).any(axis=-1, keepdims=True),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_every_operation_is_numpys(name: str) -> None:
    expected, made = FORMULAS[name](FIRST, SECOND), entries(FORMULAS[name])
    assert made.shape == expected.shape[1:]
    found = in_engine(made)
    np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))
    if name in ("whole", "real"):
        assert found.dtype == expected.dtype


def test_a_vector_becomes_a_number_where_an_array_does() -> None:
    numbers: dict[str, tuple[Formula, Any]] = {
        "all": (lambda x, y: (x > y).all(axis=-1), (FIRST > SECOND).all(axis=-1)),
        "any": (lambda x, y: (x > y).any(axis=-1), (FIRST > SECOND).any(axis=-1)),
        "one": (lambda x, y: x[..., 1], FIRST[:, 1]),
    }
    for formula, expected in numbers.values():
        made = entries(formula)
        assert made.shape == ()
        np.testing.assert_array_equal(in_engine(made).ravel(), expected)
    wide = entries(lambda x, y: np.broadcast_to(x[..., :1], (3,)))
    np.testing.assert_array_equal(in_engine(wide), FIRST[:, [0, 0, 0]])


def test_constants_stay_constants() -> None:
    """Public numbers are computed here, and an engine is told the result only."""
    recording = Recording(lambda x: np.floor(x * 2 + 1).astype(np.int64), [(2,)])
    (made,) = OnColumns()(recording, [TABLE["a"], 7.0])
    assert made[1] == 15
    assert type(made[1]) is np.int64
    assert isinstance(as_columns(made)[1], ibis.expr.types.Scalar)


def test_the_same_parts_make_the_same_expression_once() -> None:
    """Formulas repeat themselves at every step; 1 and True are different constants although they are equal."""
    evaluator = OnColumns()
    made = [
        entries(formula, evaluator)[0]
        for formula in (
            *(lambda x, y: x + y, lambda x, y: x + y, lambda x, y: x - y),
            *(lambda x, y: x + 1, lambda x, y: x + 1.0),
        )
    ]
    assert made[0] is made[1]
    assert made[0] is not made[2]
    assert made[3] is not made[4]


def test_one_column_may_be_named_twice() -> None:
    """Ibis makes two objects of it, which are equal and not the same."""
    (twice,) = OnColumns()(Recording(lambda x: x + 1.0, [(2,)]), [TABLE["a"], TABLE["a"]])
    np.testing.assert_array_equal(in_engine(twice), FIRST[:, [0, 0]] + 1.0)


@pytest.mark.parametrize(
    "formula",
    [
        lambda x: np.sin(x),
        lambda x: np.power(x, 2.0),
        lambda x: np.add.reduce(x),
        lambda x: np.maximum.reduce(x),
        lambda x: np.add(x, 1.0, dtype=np.float32),
        lambda x: np.sort(x),
    ],
)
def test_other_operations_are_refused(formula: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        entries(lambda x, y: formula(x))
