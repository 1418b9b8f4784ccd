"""Formulas that are recorded: a symbol does what NumPy does with plain rows, and looks at one row only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from poolrl import LostSales, check_problem
from poolrl.data import trace
from poolrl.data.trace import ADVICE, NotRowByRowError, Recording, Symbol, record_steps
from tests.helpers.broken_problems import a_log

FACTS: dict[str, Any] = {"horizon": 2, "products": 2, "holding": 0.1, "shortage": 0.4, "demand_max": 100.0}
# Among them equal numbers, zeros, both signs, and numbers that are close to others in both ways of `isclose`.
X = np.array([[0.0, 2.0, -3.0], [1.0, 1.0, 1.0], [0.0, 0.0, 5.0], [1e-9, 100.0, -2.0], [4.0, 0.5, 0.0]])
Y = np.array([[0.0, 2.0 + 3e-5, -3.0], [2.0, 0.5, 1.0], [1e-8, 2e-8, 5.1], [0.0, 100.0009, -2.0], [4.5, 0.5, 3.0]])

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        f"{name}, {how}, {kept}": (
            lambda x, y, name=name, how=how, kept=kept: (
                getattr(x, name)(axis=-1, keepdims=kept)
                if how == "method"
                else getattr(np, name)(x, axis=-1, keepdims=kept)
            )
        )
        for name in ("sum", "prod", "max", "min", "mean", "all", "any")
        for how in ("method", "function")
        for kept in (False, True)
    },
    "sum": lambda x, y: x.sum(axis=-1),
    "prod": lambda x, y: x.prod(axis=-1),
    "max": lambda x, y: x.max(axis=-1),
    "min": lambda x, y: x.min(axis=-1),
    "mean": lambda x, y: x.mean(axis=-1),
    "all": lambda x, y: x.all(axis=-1),
    "any": lambda x, y: x.any(axis=-1),
    "mean of one": lambda x, y: x[..., :1].mean(axis=-1),
    "close": lambda x, y: np.isclose(x, y),
    "close, the other way": lambda x, y: np.isclose(y, x),
    "close, one side alone": lambda x, y: np.isclose(x, y, rtol=0.05),
    "close, however small": lambda x, y: np.isclose(x, y, atol=0.2),
    "close, both": lambda x, y: np.isclose(x, y, 0.02, 1e-12),
    "clip": lambda x, y: np.clip(x, -1.0, 2.0),
    "clip by rows": lambda x, y: x.clip(y, y + 1),
    "where": lambda x, y: np.where(x < y, x, 7.0),
    "interp": lambda x, y: np.interp(x, [-1, 0, 2], [5, 1, 3]),
    "stack": lambda x, y: np.stack([x[..., 0], y[..., 2]], axis=-1),
    "concatenate": lambda x, y: np.concatenate([x, y[..., :2]], axis=-1),
    "broadcast": lambda x, y: np.broadcast_to(x[..., 1:2], y.shape),
    "zeros": lambda x, y: np.zeros_like(x) + y,
    "zeros of another kind": lambda x, y: np.zeros_like(x, dtype=bool) | (y > 1),
    "ones": lambda x, y: np.ones_like(x) * y,
    "ones of another kind": lambda x, y: np.ones_like(x, dtype=np.int64) + (y > 1),
    "full": lambda x, y: np.full_like(x, 2.5) * y,
    "full of another kind": lambda x, y: np.full_like(x, 2.5, dtype=np.int64) + (y > 1),
    "like its kind": lambda x, y: np.ones_like(x > 0) & (y > 1),
    "cast": lambda x, y: x.astype(np.int64) + 1,
    "copy": lambda x, y: x.copy() * 2,
    "numbers beside vectors": lambda x, y: x - y.sum(axis=-1)[..., None],
    "a number beside a vector": lambda x, y: x - y.sum(axis=-1) + np.max(x, axis=-1) * y,
    "a number beside a table": lambda x, y: (x[..., None, :] * y.min(axis=-1)).sum(axis=-1),
    "a vector beside a table": lambda x, y: (x[..., :2, None] * y).sum(axis=-1),
    "mean of a table": lambda x, y: (x[..., :2, None] * y).mean(axis=-1),
    "a list": lambda x, y: x * [1.0, 2.0, 3.0] + 1,
    "reversed": lambda x, y: 1.0 - x,
    "a constant": lambda x, y: np.array([1.0, 2.0, 3.0]),
    "coordinates": lambda x, y: x[..., [2, 0]] + y[..., 1:],
    "a new axis": lambda x, y: x[..., None, :].sum(axis=-1),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_what_numpy_does_with_rows(operation: str) -> None:
    formula = OPERATIONS[operation]
    recording = Recording(formula, [(3,), (3,)])
    expected = np.array([formula(x, y) for x, y in zip(X, Y, strict=True)])
    found = recording(X, Y)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    # In any shape of a batch, and none; and against one row for all of them.
    np.testing.assert_array_equal(
        recording(X[:4].reshape(2, 2, 3), Y[:4].reshape(2, 2, 3)), found[:4].reshape(2, 2, *found.shape[1:])
    )
    np.testing.assert_array_equal(recording(X[2], Y[2]), found[2])
    np.testing.assert_allclose(recording(X, Y[2]), np.array([formula(x, Y[2]) for x in X]), rtol=1e-15)


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
    with pytest.raises(NotRowByRowError, match="a row that it was given before"):
        Recording(formula, [(2,)])
    with pytest.raises(NotRowByRowError, match="a row that it was given before"):
        Recording(lambda x: (x, kept[0]), [(2,)])


def test_a_symbol_says_its_shape_and_kind() -> None:
    symbol = Symbol(np.ones(3), [])
    assert (symbol.shape, symbol.ndim, symbol.dtype) == ((3,), 1, np.float64)
    number = symbol[..., 0] > 1
    assert (number.shape, number.ndim, number.dtype) == ((), 0, np.bool_)


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (lambda x: np.add(x, 1, out=np.zeros(2)), "np.add is used as more than|decides for a whole batch"),
        (lambda x: np.add(x, 1, out=(x[..., 0],)), "np.add is used as more than|decides for a whole batch"),
        (lambda x: np.add(x, 1, dtype=np.float32), "np.add is used as more than"),
        (lambda x: np.add.outer(x, x), "np.add is used as more than"),
        (lambda x: np.matmul(x, x), "np.matmul is used as more than"),
        (lambda x: np.divmod(x, 2), "np.divmod is used as more than"),
        (lambda x: np.flip(x), "np.flip is not known to work on one row"),
        (lambda x: np.asarray(x), "the numbers of a batch are asked for"),
        (lambda x: bool(x), "decides for a whole batch"),
        (lambda x: len(x), "the length of a batch"),
        (lambda x: iter(x), "gone through by hand"),
        (lambda x: x[()], "an index may choose rows"),
        (lambda x: x[...], "an index may choose rows"),
        (lambda x: x[0], "an index may choose rows"),
        (lambda x: x[0, ...], "an index may choose rows"),
        (lambda x: x[..., x > 0], "by a row's own numbers"),
        (lambda x: x[..., 0].sum(axis=-1), "goes over rows"),
        (lambda x: x.sum(), "goes over rows"),
        (lambda x: x.mean(axis=0), "goes over rows"),
        (lambda x: np.prod(x), "goes over rows"),
        (lambda x: np.min(x, axis=-2), "goes over rows"),
        (lambda x: np.concatenate([x, x]), "joins rows"),
        (lambda x: np.stack([x, x]), "joins rows"),
        (lambda x: np.concatenate([x, x], axis=0), "joins rows"),
        (lambda x: np.concatenate([x, np.ones(2)], axis=-1), "joins rows"),
    ],
)
def test_what_needs_more_than_a_row_is_refused(look: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(NotRowByRowError, match=words):
        look(Symbol(np.ones(2), []))


class Own(LostSales):
    """A shop of a user's own."""

    calls = 0

    def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
        Own.calls += 1
        seen, cut = super().observe(step, state, action, next_state)
        return np.minimum(seen, self.outcome_high - step), cut


def test_a_formula_is_recorded_once_for_each_step() -> None:
    """However many rows there are. The answers are those of the formula on plain rows."""
    problem, log = Own(**FACTS), a_log()
    Own.calls = 0
    leaves = log.outcome_leaves(problem, bins=8)
    assert Own.calls == problem.horizon
    assert leaves.sum() == len(log) * problem.horizon * problem.products
    for step in range(problem.horizon):
        row = [part[:, step] for part in (log.states, log.actions, log.next_states)]
        recording = Recording(lambda *row, h=step: problem.observe(h, *row), [(2,)] * 3)
        for found, expected in zip(recording(*row), problem.observe(step, *row), strict=True):
            np.testing.assert_array_equal(found, expected)


LOOKS: dict[str, Callable[[Any], float]] = {
    "index": lambda step: float(np.arange(3.0)[step]),
    "list": lambda step: [0.0, 1.0, 2.0][step],
    "dictionary": lambda step: {0: 0.0, 1: 1.0}[step],
    "text": lambda step: float(f"{step}"),
    "number": lambda step: float(step) + 0.0,
    "equal": lambda step: 1.0 if step == 1 else 0.0,
    "order": lambda step: 1.0 if step > 0 else 0.0,
    "truth": lambda step: 1.0 if step else 0.0,
    "range": lambda step: 1.0 if step in range(1, 3) else 0.0,
    "array": lambda step: float(np.where(np.arange(2) == step, 1.0, 0.0)[1]),
}


@pytest.mark.parametrize("look", LOOKS)
def test_however_a_formula_looks_at_the_step_it_is_recorded_for_each(look: str) -> None:
    """Steps share a recording where a formula does not look at them, or where it does the same."""
    for any_step in (False, True):
        for steps, expected in ((2, [0.0, 1.0]), (1, [0.0])):
            found = record_steps("it", lambda step, row: row * LOOKS[look](step), [(1,)], steps, any_step=any_step)
            assert [float(each(np.ones((1, 1)))[0, 0]) for each in found] == expected
        blind = record_steps("it", lambda step, row: row * 3.0, [(1,)], 5, any_step=any_step)
        halves = record_steps("it", lambda step, row: row * (step // 2), [(1,)], 4, any_step=any_step)
        assert len({*map(id, blind)}) == 1
        assert [halves[0] is halves[1], halves[1] is halves[2], halves[2] is halves[3]] == [True, False, True]


class TakesWhatItGets(LostSales):
    """It is another formula where the step is no whole number, and does not say so."""

    def seen_coordinates(self, step: int, state: Any, action: Any) -> Any:
        return action >= (40.0 * step if isinstance(step, int) else 0.0)


def test_a_formula_that_takes_anything_for_a_step_is_counted_at_its_steps() -> None:
    log = a_log()
    leaves = log.outcome_leaves(TakesWhatItGets(**FACTS), bins=4).sum(axis=-1)
    expected = [(log.actions[:, step] >= 40.0 * step).sum(axis=0).tolist() for step in (0, 1)]
    assert leaves.tolist() == expected
    assert sum(expected[1]) < sum(expected[0])


def test_steps_that_choose_other_coordinates_share_no_recording() -> None:
    """Also of so many that NumPy would print them alike, and by a list that is written anew at each step."""
    many, place = 3000, np.zeros(3000, dtype=np.int64)
    orders = [np.arange(many), np.r_[np.arange(1000), np.arange(1999, 999, -1), np.arange(2000, many)]]

    def chosen(step: int, row: Any) -> Any:
        place[:] = orders[step]
        return row[..., place]

    found = record_steps("it", chosen, [(many,)], 2)
    row = np.arange(float(many))[None]
    assert [each(row)[0].tolist() for each in found] == [row[0, order].tolist() for order in orders]


def test_a_formula_that_fails_on_symbols_is_refused_in_words() -> None:
    class Asks(LostSales):
        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            return action[7], action > 0

    class Lacks(LostSales):
        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            return action.nonsense, action > 0

    class Beyond(LostSales):
        def observe(self, step: int, state: Any, action: Any, next_state: Any) -> Any:
            return action[..., 7], action > 0

    for kind in (Asks, Lacks, Beyond):
        with pytest.raises(ValueError, match=rf"observe\(\) of {kind.__name__} must treat each row .*: {ADVICE}"):
            check_problem(kind(**FACTS))


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.max(),
        lambda x: np.max(x),
        lambda x: np.sum(x, axis=0),
        lambda x: np.sort(x),
        lambda x: np.cumsum(x),
        lambda x: np.maximum.reduce(x),
        lambda x: np.add.accumulate(x),
        lambda x: x @ x,
        lambda x: np.roll(x, 1),
        lambda x: np.median(x),
        lambda x: float(x),
        lambda x: x.size,
        lambda x: x.tolist(),
    ],
)
def test_nothing_that_stands_for_rows_lets_a_formula_reduce_them(look: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, AttributeError)):
        look(Symbol(np.ones(2), []))


@pytest.mark.parametrize(
    "look",
    [
        list,
        lambda x: x[:, 0],
        lambda x: np.array([x, x]),
        lambda x: x.any(),
        lambda x: x.all(axis=0),
        lambda x: np.add(x, x, where=np.array(True)),
        lambda x: np.modf(x),
        lambda x: np.where(x > 0),
        lambda x: np.nonzero(x),
        lambda x: np.argwhere(x),
        lambda x: np.flatnonzero(x),
        lambda x: np.unique(x),
        lambda x: np.sort(x, axis=0),
        lambda x: np.argsort(x),
        lambda x: np.argmax(x),
        lambda x: np.cumsum(x),
        lambda x: np.cumsum(x, axis=-1),
        lambda x: np.searchsorted(x, 0.5),
        lambda x: np.searchsorted(np.array([0.0, 1.0]), x),
        lambda x: np.digitize(x, x),
        lambda x: np.digitize(x, np.array([0.0, 1.0])),
        lambda x: np.select([x > 0], [x]),
        lambda x: np.piecewise(x, [x > 0], [1.0]),
        lambda x: np.choose(x > 0, [x, x]),
        lambda x: np.take_along_axis(x, x.astype(int), axis=-1),
        lambda x: np.interp(0.5, x, x),
        lambda x: x * np.array([np.float64, 1.0], dtype=object),
        lambda x: x.astype(object),
        lambda x: x.astype(str),
        # An index in two places with a slice between them puts its axis before that of the batch.
        lambda x: x[..., None, None][..., [0], :, [0]],
    ],
)
def test_a_symbol_of_a_row_has_no_numbers(look: Callable[[Any], Any]) -> None:
    with pytest.raises(NotRowByRowError):
        look(Symbol(np.ones(2), []))


def test_an_index_beyond_a_row_is_refused() -> None:
    with pytest.raises(IndexError):
        Recording(lambda x: x[..., 0:1, 0:1], [(1,)])


def test_an_operation_that_mixes_rows_is_caught_whatever_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: NumPy's functions, let in one by one as if they worked on each row."""
    reads: dict[Any, Callable[[Any], Any]] = {
        np.cumsum: np.cumsum,
        np.sort: lambda x: np.sort(x, axis=0),
        np.roll: lambda x: np.roll(x, 1, axis=0),
        np.median: lambda x: x - np.median(x, axis=0, keepdims=True),
        np.nonzero: lambda x: np.nonzero(x)[0],
        np.flip: lambda x: x[::-1],
    }
    for function, rule in reads.items():
        monkeypatch.setitem(trace.ROW_FUNCTIONS, function, partial(trace.recorded, rule))
        with pytest.raises(NotRowByRowError, match="several rows"):
            Recording(trace.ROW_FUNCTIONS[function], [(2,)]).refuse_mixed_rows()


def test_a_recording_is_a_function_of_the_row() -> None:
    """Every operation that a symbol allows, against NumPy on batches of any shape."""
    weights = np.array([0.3, 1.7, -0.2])
    odd = np.frompyfunc(lambda number: number**3, 1, 1)

    def formula(x: Any, y: Any) -> Any:
        z = np.where(x > y, x, 2.0 * y)
        z += np.clip(x, 0.2, 0.4) / (1.0 + np.exp(-y))
        total = (z * weights).sum(axis=-1, keepdims=True)
        least, most = z.min(axis=-1), np.max(z, axis=-1)
        sides = np.stack([least, most, z.mean(axis=-1)], axis=-1)
        joined = np.concatenate([z[..., :1], y[..., 1:], total], axis=-1)
        read = np.interp(x, [0.0, 1.0], [2.0, 4.0]) + np.floor(3 * y).astype(np.int64)
        flags = (x > 0.5).any(axis=-1, keepdims=True) & np.broadcast_to(y[..., :1] < 0.9, y.shape) & np.isclose(x, x)
        return z + total, sides, joined, read - odd(x), flags, np.zeros_like(x), z.prod(axis=-1) ** 2

    rng = np.random.default_rng(0)
    recording = Recording(formula, [(3,), (3,)])
    for batch in ((50,), (1,), (), (4, 5)):
        x, y = (rng.uniform(0, 1, (*batch, 3)) for _ in range(2))
        expected = list(formula(x, y))
        expected[3] = expected[3].astype(np.float64)
        for found, wanted in zip(recording(x, y), expected, strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
    x, y = (rng.uniform(0, 1, (50, 3)) for _ in range(2))
    together = recording(x, y)
    for row in range(50):  # to the last bit, whatever stands beside it
        for whole, alone in zip(together, recording(x[row : row + 1], y[row : row + 1]), strict=True):
            np.testing.assert_array_equal(whole[row : row + 1], alone)
