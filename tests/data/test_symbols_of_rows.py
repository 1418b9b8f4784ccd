"""A symbol for rows in a formula has no numbers, and lets nothing look beyond one row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from poolrl.data import trace
from poolrl.data.trace import NotRowByRowError, Recording, Symbol


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.max(),
        lambda x: x.sum(),
        lambda x: x.mean(axis=0),
        lambda x: np.max(x),
        lambda x: np.sum(x, axis=0),
        lambda x: np.sort(x),
        lambda x: np.cumsum(x),
        lambda x: np.maximum.reduce(x),
        lambda x: np.add.accumulate(x),
        lambda x: x @ x,
        lambda x: np.roll(x, 1),
        lambda x: np.unique(x),
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
        lambda x: bool(x[..., 0] > 1),
        len,
        list,
        lambda x: x[0],
        lambda x: x[:, 0],
        lambda x: np.asarray(x),
        lambda x: np.array([x, x]),
        lambda x: x.any(),
        lambda x: x.all(axis=0),
        lambda x: np.concatenate([x, x]),
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
