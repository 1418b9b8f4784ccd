"""Formulas are recorded once, look at one row only, and give on arrays and on columns of an engine what NumPy gives."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest

from poolrl import LostSales, check_problem
from poolrl.data.expressions import OnColumns, as_columns
from poolrl.data.trace import ADVICE, NotRowByRowError, Recording, Symbol, record_steps

FACTS: dict[str, Any] = {"horizon": 2, "products": 2, "holding": 0.1, "shortage": 0.4, "demand_max": 100.0}
# Among them equal numbers, zeros, both signs, and numbers that are close to others in both ways of `isclose`.
X = np.array([[0.0, 2.0, -3.0], [1.0, 1.0, 1.0], [0.0, 0.0, 5.0], [1e-9, 100.0, -2.0], [4.0, 0.5, 0.0]])
Y = np.array([[0.0, 2.0 + 3e-5, -3.0], [2.0, 0.5, 1.0], [1e-8, 2e-8, 5.1], [0.0, 100.0009, -2.0], [4.5, 0.5, 3.0]])
# For an engine: whole numbers and halves around zero, each with each, so that every comparison is also an equality.
LEFT, RIGHT = (part.ravel() for part in np.meshgrid(np.arange(-4, 5) / 2, np.arange(-4, 5) / 2))
FIRST, SECOND = np.column_stack([LEFT, RIGHT, LEFT - RIGHT]), np.column_stack([RIGHT, LEFT * 2, LEFT])
NAMES = "abcdef"
TABLE = ibis.table(dict.fromkeys(NAMES, "float64"), name="rows")
COLUMNS = [[TABLE[name] for name in names] for names in ("abc", "def")]
SOME = np.array([True, False, True])

Formula = Callable[[Any, Any], Any]

# What engines have too.
ON_COLUMNS: dict[str, Formula] = {
    "add": lambda x, y: x + y,
    "subtract zero": lambda x, y: x - 0.0,
    "subtract from": lambda x, y: 0.0 - x,
    "subtract both": lambda x, y: (x - np.array([0.0, 1.5, -0.5])) - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / (y + 110.0),
    "negative": lambda x, y: -x,
    "less": lambda x, y: x < y,
    "at most a number": lambda x, y: x <= 0.5,
    "at most infinity": lambda x, y: (x <= np.inf) & (x < y),
    "at most nothing": lambda x, y: x <= -np.inf,
    "no less than a number": lambda x, y: x >= 0.5,
    "numbers are no less": lambda x, y: np.array([0.5, 1.0, 0.0]) >= x,
    "a largest is no less": lambda x, y: np.maximum(x, 0.5) >= 0.5,
    "a largest may be less": lambda x, y: np.maximum(x, 0.5) >= 1.0,
    "a largest is no less than less": lambda x, y: np.maximum(x, 0.5) >= 0.25,
    "a largest of columns": lambda x, y: np.maximum(x, y) >= 0.5,
    "a largest is no less than a column": lambda x, y: np.maximum(x, 0.5) >= y,
    "a least may be less": lambda x, y: np.minimum(x, 0.5) >= 0.5,
    "equal": lambda x, y: x == y,
    "not equal": lambda x, y: x != y,
    "logical": lambda x, y: np.logical_or(np.logical_and(x > 0, y > 0), x < -1),
    "and true": lambda x, y: ((x > 0) & SOME) | (SOME & (y > 0)),
    "or true": lambda x, y: ((x > 0) | SOME) & (~SOME | (y > 0)),
    "not": lambda x, y: ~(x > y),
    "logical not": lambda x, y: np.logical_not(x > y),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "absolute": lambda x, y: np.absolute(x),
    "root": lambda x, y: np.sqrt(np.absolute(x)),
    "floor": lambda x, y: np.floor(x),
    "clip": lambda x, y: np.clip(x, -1.0, 2.0),
    "clip by rows": lambda x, y: np.clip(x, y, y + 1),
    "where": lambda x, y: np.where(x > y, x, y),
    "where some": lambda x, y: np.where(SOME, x, y),
    "one that is always one": lambda x, y: np.where(x > y, 1.0, x),
    "whole": lambda x, y: np.floor(x).astype(np.int64) * 2,
    "real": lambda x, y: np.floor(x).astype(np.int64).astype(np.float64) / 2,
    "concatenate": lambda x, y: np.concatenate([x, y[..., :2]], axis=-1),
    "concatenate numbers": lambda x, y: np.concatenate([x, np.zeros_like(x) + 0 * x], axis=-1) + 1.0,
    "broadcast": lambda x, y: np.broadcast_to(x[..., 1:2], y.shape) + y,
    "zeros of another kind": lambda x, y: np.zeros_like(x, dtype=bool) | (y > 1),
    "no less than no number": lambda x, y: np.fmax(x, y),
    "coordinates": lambda x, y: x[..., [2, 0]] + y[..., 1:],
    "a number": lambda x, y: x[..., 1],
    "all of three": lambda x, y: (np.concatenate([x, y[..., :1]], axis=-1) > 0).all(axis=-1, keepdims=True),
    "any of three": lambda x, y: (np.concatenate([x, y[..., :1]], axis=-1) > 1.5).any(axis=-1, keepdims=True),
    **{
        f"{name}, {how}, {kept}": (
            lambda x, y, name=name, how=how, kept=kept: (
                getattr(x > y, name)(axis=-1, keepdims=kept)
                if how == "method"
                else getattr(np, name)(x > y, axis=-1, keepdims=kept)
            )
        )
        for name in ("all", "any")
        for how in ("method", "function")
        for kept in (False, True)
    },
}
# What only arrays have.
ON_ARRAYS: dict[str, Formula] = {
    **{
        f"{name}, {how}, {kept}": (
            lambda x, y, name=name, how=how, kept=kept: (
                getattr(x, name)(axis=-1, keepdims=kept)
                if how == "method"
                else getattr(np, name)(x, axis=-1, keepdims=kept)
            )
        )
        for name in ("sum", "prod", "max", "min", "mean")
        for how in ("method", "function")
        for kept in (False, True)
    },
    "close, one side alone": lambda x, y: np.isclose(x, y, rtol=0.05),
    "close, however small": lambda x, y: np.isclose(x, y, atol=0.2),
    "close, both": lambda x, y: np.isclose(x, y, 0.02, 1e-12),
    "clip as a method": lambda x, y: x.clip(y, y + 1),
    "exponent": lambda x, y: 1.0 / (1.0 + np.exp(-y)),
    "interp": lambda x, y: np.interp(x, [-1, 0, 2], [5, 1, 3]),
    "a function of one's own": lambda x, y: np.frompyfunc(lambda number: number**3, 1, 1)(x) - y,
    "stack": lambda x, y: np.stack([x[..., 0], y[..., 2]], axis=-1),
    "ones of another kind": lambda x, y: np.ones_like(x, dtype=np.int64) + (y > 1),
    "full of another kind": lambda x, y: np.full_like(x, 2.5, dtype=np.int64) + (y > 1),
    "like its kind": lambda x, y: np.ones_like(x > 0) & (y > 1),
    "copy": lambda x, y: x.copy() * 2,
    "in place": lambda x, y: operator.iadd(x.copy(), y) * 2,
    "two coordinates": lambda x, y: x[..., None][..., 1, 0] + y[..., 0],
    "numbers beside vectors": lambda x, y: x - y.sum(axis=-1)[..., None],
    "a number beside a vector": lambda x, y: x - y.sum(axis=-1) + np.max(x, axis=-1) * y,
    "a number beside a table": lambda x, y: (x[..., None, :] * y.min(axis=-1)).sum(axis=-1),
    "mean of a table": lambda x, y: (x[..., :2, None] * y).mean(axis=-1),
    "a constant": lambda x, y: np.array([1.0, 2.0, 3.0]),
    "a new axis": lambda x, y: x[..., None, :].sum(axis=-1),
}


@cache
def engine() -> Any:
    connection = ibis.duckdb.connect()
    connection.create_table("rows", pa.table(dict(zip(NAMES, np.hstack([FIRST, SECOND]).T, strict=True))))
    return connection


def in_engine(made: Any) -> np.ndarray[Any, Any]:
    """The entries of an answer for every row, computed by the engine."""
    columns = {f"x{i}": column for i, column in enumerate(as_columns(made))}
    found = engine().to_pyarrow(TABLE.select(row=ibis.row_number(), **columns))
    return np.column_stack([found[name].to_numpy() for name in columns])


def entries(formula: Formula, evaluator: OnColumns | None = None) -> Any:
    """What a formula gives on columns."""
    (found,) = (evaluator or OnColumns())(Recording(formula, [(3,), (3,)]), *COLUMNS)
    return found


@pytest.mark.parametrize("operation", ON_ARRAYS | ON_COLUMNS)
def test_an_operation_is_what_numpy_does_with_rows(operation: str) -> None:
    formula = (ON_ARRAYS | ON_COLUMNS)[operation]
    recording = Recording(formula, [(3,), (3,)])
    expected = np.array([formula(x, y) for x, y in zip(X, Y, strict=True)])
    found = recording(X, Y)
    if expected.dtype == object:
        expected = expected.astype(np.float64)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    # In any shape of a batch, and none; to the last bit, whatever stands beside a row; and against one row for all.
    np.testing.assert_array_equal(
        recording(X[:4].reshape(2, 2, 3), Y[:4].reshape(2, 2, 3)), found[:4].reshape(2, 2, *found.shape[1:])
    )
    for row in range(len(X)):
        np.testing.assert_array_equal(recording(X[row], Y[row]), found[row])
    against_one = np.array([formula(x, Y[2]) for x in X]).astype(expected.dtype)
    np.testing.assert_allclose(recording(X, Y[2]), against_one, rtol=1e-15)


@pytest.mark.parametrize("name", ON_COLUMNS)
def test_an_operation_on_columns_is_numpys(name: str) -> None:
    expected, made = ON_COLUMNS[name](FIRST, SECOND), entries(ON_COLUMNS[name])
    assert made.shape == expected.shape[1:]
    found = in_engine(made)
    np.testing.assert_array_equal(found, np.reshape(expected, found.shape))
    if name in ("whole", "real"):
        assert found.dtype == expected.dtype


def test_constants_stay_constants() -> None:
    """Public numbers are computed here, and an engine is told the result only."""
    recording = Recording(lambda x: np.floor(x * 2 + 1).astype(np.int64), [(2,)])
    (made,) = OnColumns()(recording, [TABLE["a"], 7.0])
    assert made[1] == 15
    assert type(made[1]) is np.int64
    assert isinstance(as_columns(made)[1], ibis.expr.types.Scalar)


def test_several_answers_stay_several() -> None:
    both = Recording(lambda x: (x + 1, np.zeros(2)), [(3,)])(X)
    assert isinstance(both, tuple)
    np.testing.assert_array_equal(both[0], X + 1)
    np.testing.assert_array_equal(both[1], np.zeros((5, 2)))
    (alone,) = Recording(lambda x: (x + 1,), [(3,)])(X)
    np.testing.assert_array_equal(alone, X + 1)


def test_a_part_that_is_used_often_is_computed_once_and_in_order() -> None:
    calls = []

    def watched(value: float) -> float:
        calls.append(value)
        return 2 * value

    twice = np.frompyfunc(watched, 1, 1)

    def formula(x: Any) -> Any:
        y = twice(x)
        return y * y + y, y

    recording = Recording(formula, [(1,)])
    calls.clear()
    first, second = recording(np.array([[3.0]]))
    assert (first.item(), second.item(), calls) == (42.0, 6.0, [3.0])
    assert first.dtype == second.dtype == np.float64


def test_a_long_sum_is_recorded_without_recursion() -> None:
    many = np.arange(6000.0)
    assert Recording(lambda x: x.sum(axis=-1), [(3000,)])(many.reshape(2, 3000)).tolist() == [4498500.0, 13498500.0]


def test_a_symbol_of_an_earlier_call_is_no_row_of_this_one() -> None:
    kept: list[Any] = []

    def formula(x: Any) -> Any:
        kept.append(x)
        return x + kept[0]

    Recording(formula, [(2,)])
    for late in (formula, lambda x: (x, kept[0])):
        with pytest.raises(NotRowByRowError, match="a row that it was given before"):
            Recording(late, [(2,)])


def test_a_symbol_says_its_shape_and_kind() -> None:
    symbol = Symbol(np.ones(3), [])
    assert (symbol.shape, symbol.ndim, symbol.dtype) == ((3,), 1, np.float64)
    number = symbol[..., 0] > 1
    assert (number.shape, number.ndim, number.dtype) == ((), 0, np.bool_)


# What needs more than a row: by the words of its refusal. Nothing that stands for rows lets a formula reduce them.
LOOKS: dict[str, list[Callable[[Any], Any]]] = {
    "is used as more than|decides for a whole batch": [
        lambda x: np.add(x, 1, out=np.zeros(2)),
        lambda x: np.add(x, 1, dtype=np.float32),
        lambda x: np.add.outer(x, x),
        lambda x: np.add.accumulate(x),
        lambda x: np.maximum.reduce(x),
        lambda x: np.matmul(x, x),
        lambda x: np.add(x, x, where=np.array(True)),
        lambda x: bool(x),
        lambda x: np.modf(x),
    ],
    "is not a number": [
        lambda x: x == np.array(["a", "b"]),
        lambda x: x * np.array([np.float64, 1.0], dtype=object),
    ],
    "is not known to work on one row": [
        lambda x: np.flip(x),
        lambda x: np.sort(x, axis=0),
        lambda x: np.roll(x, 1),
        lambda x: np.searchsorted(np.array([0.0, 1.0]), x),
        lambda x: np.select([x > 0], [x]),
        lambda x: np.take_along_axis(x, x.astype(int), axis=-1),
    ],
    "goes over rows": [
        lambda x: x[..., 0].sum(axis=-1),
        lambda x: x.sum(),
        lambda x: x.all(axis=0),
        lambda x: np.prod(x),
        lambda x: np.min(x, axis=-2),
    ],
    "joins rows": [
        lambda x: np.concatenate([x, x]),
        lambda x: np.concatenate([x, np.ones(2)], axis=-1),
    ],
    "an index may choose rows|by a row's own numbers|chosen by two lists": [
        lambda x: x[()],
        lambda x: x[...],
        lambda x: x[:, 0],
        lambda x: x[..., x > 0],
        # A truth value is an axis too. The first action of a batch would become that of every row.
        lambda x: x[..., None][..., True, :, 0][..., 0, :],
        lambda x: x[..., np.False_],
        # An index in two places with a slice between them puts its axis before that of the batch.
        lambda x: x[..., None, None][..., [0], :, [0]],
        lambda x: x[..., None, None][..., 0, :, [0]],
    ],
    "": [  # in words of its own, or of Python
        list,
        iter,
        len,
        float,
        np.asarray,
        lambda x: np.array([x, x]),
        lambda x: np.where(x > 0),
        lambda x: np.interp(0.5, x, x),
        lambda x: x @ x,
        lambda x: x.size,
        lambda x: x.tolist(),
        lambda x: x.astype(object),
        lambda x: x.astype(str),
    ],
}


@pytest.mark.parametrize("words", LOOKS)
def test_what_needs_more_than_a_row_is_refused(words: str) -> None:
    refused = NotRowByRowError if words else (NotRowByRowError, TypeError, AttributeError)
    for place, look in enumerate(LOOKS[words]):
        with pytest.raises(refused, match=words or None):
            pytest.fail(f"{words} {place}: {look(Symbol(np.ones(2), []))}")


def test_an_index_beyond_a_row_is_refused() -> None:
    with pytest.raises(IndexError):
        Recording(lambda x: x[..., 0:1, 0:1], [(1,)])


# Steps.


STEPS: dict[str, Callable[[Any], float]] = {
    "list": lambda step: [0.0, 1.0, 2.0][step],
    "text": lambda step: float(f"{step}"),
    "number": lambda step: float(step) + 0.0,
    "equal": lambda step: 1.0 if step == 1 else 0.0,
    "order": lambda step: 1.0 if step > 0 else 0.0,
    "truth": lambda step: 1.0 if step else 0.0,
    "range": lambda step: 1.0 if step in range(1, 3) else 0.0,
    "array": lambda step: float(np.where(np.arange(2) == step, 1.0, 0.0)[1]),
}


@pytest.mark.parametrize("look", STEPS)
def test_however_a_formula_looks_at_the_step_it_is_recorded_for_each(look: str) -> None:
    """Steps share a recording where a formula does not look at them."""
    for any_step in (False, True):
        for steps, expected in ((2, [0.0, 1.0]), (1, [0.0])):
            found = record_steps("it", lambda step, row: row * STEPS[look](step), [(1,)], steps, any_step=any_step)
            assert [float(each(np.ones((1, 1)))[0, 0]) for each in found] == expected
    if look == "number":

        def sly(step: Any, row: Any) -> Any:
            with suppress(TypeError):
                return row * float(step)
            return row * 100.0

        # Somebody else's formula may catch what ours must not: it is never asked about all steps at once.
        assert [float(each(np.ones((1, 1)))[0, 0]) for each in record_steps("it", sly, [(1,)], 2)] == [0.0, 1.0]
    blind = record_steps("it", lambda step, row: row * 3.0, [(1,)], 5, any_step=True)
    assert len({*map(id, blind)}) == 1


def test_what_a_formula_writes_into_its_own_arrays_later_changes_no_recording() -> None:
    answer, place, factor = np.zeros(1), np.zeros(1, dtype=int), np.zeros(1)

    def formula(step: int, row: Any) -> Any:
        answer[:], place[:], factor[:] = step, step, step
        return row[..., place] * factor, answer

    recordings = record_steps("it", formula, [(3,)], 3)
    found = [[part.tolist() for part in each(np.array([5.0, 6.0, 7.0]))] for each in recordings]
    assert found == [[[0.0], [0.0]], [[6.0], [1.0]], [[14.0], [2.0]]]


def test_a_formula_that_fails_on_symbols_is_refused_in_words() -> None:
    asked: list[Callable[[Any], Any]] = [lambda x: x[7], lambda x: x.nonsense, lambda x: x[..., 7]]
    for ask in asked:

        class Asks(LostSales):
            def observe(self, step: int, state: Any, action: Any, next_state: Any, ask: Any = ask) -> Any:
                return ask(action), action > 0

        with pytest.raises(ValueError, match=rf"observe\(\) of Asks must treat each row .*: {ADVICE}"):
            check_problem(Asks(**FACTS))
