"""Columns of a table that behave like NumPy arrays: a formula on numbers becomes one expression per column.

A problem states its formulas in NumPy. The same code, given a `ColumnVector`, builds expressions for any engine, with
the same order of floating-point operations. So there is no second version of a formula that could differ.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial, reduce
from typing import Any, Self

import ibis
import ibis.expr.operations as ops
import ibis.expr.types as ir
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray


# Public constants often make an operation idle (x − 0, x ≤ ∞ for a finite x). Idle operations are left out.
def _minus(left: Any, right: Any) -> Any:
    return left if not isinstance(right, ir.Value) and right == 0 else left - right


def _at_most(left: Any, right: Any) -> Any:
    return True if not isinstance(right, ir.Value) and right == np.inf else left <= right


def _no_less(left: Any, right: Any) -> Any:
    # The largest of several numbers is at least each of them.
    largest = left.op() if isinstance(left, ir.Value) else None
    if isinstance(largest, ops.Greatest) and not isinstance(right, ir.Value):
        constants = [part.value for part in largest.arg if isinstance(part, ops.Literal)]
        if any(constant >= right for constant in constants):
            return True
    return left >= right


def _logical(rule: Callable[[Any, Any], Any], decides: bool) -> Callable[[Any, Any], Any]:
    """`and`, which false decides, or `or`, which true decides."""

    def combined(left: Any, right: Any) -> Any:
        for one, other in ((left, right), (right, left)):
            if not isinstance(one, ir.Value):
                return decides if bool(one) is decides else other
        return rule(left, right)

    return combined


_both, _either = _logical(operator.and_, False), _logical(operator.or_, True)
# Engines compute these exactly as NumPy does (IEEE 754). That is not so for sines and powers.
_UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: _minus,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.negative: operator.neg,
    np.less: operator.lt,
    np.less_equal: _at_most,
    np.greater: operator.gt,
    np.greater_equal: _no_less,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.bitwise_and: _both,
    np.logical_and: _both,
    np.bitwise_or: _either,
    np.logical_or: _either,
    np.invert: operator.invert,
    np.logical_not: operator.invert,
    np.maximum: ibis.greatest,
    np.minimum: ibis.least,
    np.absolute: operator.methodcaller("abs"),
    np.sqrt: operator.methodcaller("sqrt"),
    np.floor: operator.methodcaller("floor"),
}
_CASTS = {np.dtype(kind): operator.methodcaller("cast", kind.__name__) for kind in (np.int64, np.float64)}


class ColumnVector(NDArrayOperatorsMixin):
    """A vector (k,), or a number (), whose entries are columns of a table or constants."""

    def __init__(self, entries: Sequence[Any] | NDArray[Any], known: dict[Any, Any] | None = None) -> None:
        # Expressions made before from the same parts. Formulas repeat themselves at every step.
        self.known = {} if known is None else known
        if isinstance(entries, np.ndarray):
            self.entries = entries
        else:
            self.entries = np.empty(len(entries), dtype=object)
            # One by one, because NumPy would look for arrays inside a column.
            for i, entry in enumerate(entries):
                self.entries[i] = entry

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row: a batch of rows has no axis here."""
        return self.entries.shape

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, place: Any) -> Self:
        return self._like(self.entries[place])

    def astype(self, kind: Any) -> Self:
        """A cast. Values must fit the new type, because engines differ in what they do otherwise."""
        plain = np.dtype(kind)
        return _mapped(_CASTS[plain], self, constant=plain.type)

    def all(self, axis: int = -1, keepdims: bool = False) -> Self:
        """Whether every entry holds."""
        return self._reduced(_both, axis, keepdims)

    def any(self, axis: int = -1, keepdims: bool = False) -> Self:
        """Whether some entry holds."""
        return self._reduced(_either, axis, keepdims)

    def columns(self) -> list[ir.Value]:
        """Every entry as an expression."""
        return [entry if isinstance(entry, ir.Value) else ibis.literal(entry) for entry in self.entries.ravel()]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options or ufunc not in _UFUNCS:
            return NotImplemented
        return _mapped(_UFUNCS[ufunc], *inputs, constant=ufunc)

    def __array_function__(self, function: Any, types: Iterable[type], args: Any, options: Any) -> Any:
        if function not in _FUNCTIONS:
            return NotImplemented
        return _FUNCTIONS[function](*args, **options)

    def _like(self, entries: Any) -> Self:
        """Other entries in a vector of this kind."""
        found = copy(self)
        found.entries = entries
        if not isinstance(entries, np.ndarray):
            found.entries = np.empty((), dtype=object)
            found.entries[()] = entries
        return found

    def _vector(self, part: Any) -> ColumnVector:
        """A vector, or public numbers as one."""
        return part if isinstance(part, ColumnVector) else ColumnVector(np.asarray(part), self.known)

    def _lined_up(self, inputs: Sequence[Any]) -> list[NDArray[Any]]:
        """The entries of an operation's inputs."""
        return [part.entries if isinstance(part, ColumnVector) else np.asarray(part) for part in inputs]

    def _reduced(self, rule: Callable[[Any, Any], Any], axis: int, keepdims: bool) -> Self:
        if axis not in (-1, len(self.shape) - 1):
            raise TypeError("columns can be reduced along the last axis only")
        found = reduce(partial(_mapped, rule), [self[i] for i in range(len(self))])
        return self._like(found.entries.reshape(1)) if keepdims else found


def _mapped(rule: Callable[..., Any], *inputs: Any, constant: Callable[..., Any] | None = None) -> Any:
    """Apply a rule entry by entry, with NumPy's broadcasting. A result of constants stays a constant."""
    vector = next(part for part in inputs if isinstance(part, ColumnVector))
    known = vector.known

    def one(*entries: Any) -> Any:
        plain = [entry.item() if isinstance(entry, np.generic) else entry for entry in entries]
        if constant is not None and not any(isinstance(entry, ir.Value) for entry in plain):
            return constant(*plain)
        name = (rule, *((type(e), id(e) if isinstance(e, ir.Value) else e) for e in plain))
        if name not in known:
            # The parts are kept too, so that their ids are not used again.
            known[name] = (rule(*plain), plain)
        return known[name][0]

    parts = vector._lined_up(inputs)
    return vector._like(np.frompyfunc(one, len(parts), 1)(*parts))


def _choose(held: Any, one: Any, two: Any) -> Any:
    return ibis.ifelse(held, one, two) if isinstance(held, ir.Value) else one if held else two


def _concatenate(parts: Sequence[Any], axis: int = 0) -> ColumnVector:
    vector = next(part for part in parts if isinstance(part, ColumnVector))
    return vector._like(np.concatenate([vector._vector(part).entries for part in parts], axis=axis))


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.clip: lambda values, low, high: np.minimum(np.maximum(values, low), high),
    np.where: lambda condition, chosen, other: _mapped(_choose, condition, chosen, other),
    np.concatenate: _concatenate,
    np.broadcast_to: lambda values, shape: values._like(np.broadcast_to(values.entries, shape)),
    np.zeros_like: lambda values, dtype=np.float64: np.zeros(values.shape, dtype=dtype),
    np.all: ColumnVector.all,
    np.any: ColumnVector.any,
}


# The columns of public numbers that differ by coordinate. A user's own column is hardly called so.
FACT = "poolrl_fact_{}"


class CoordinateFacts:
    """Public numbers that differ by coordinate, found while formulas run.

    Formulas run twice: first without rows, to find out which numbers they use, then on rows that have these numbers.
    """

    def __init__(self, coordinates: int) -> None:
        self.coordinates = coordinates
        self._found: dict[tuple[str, bytes], NDArray[Any]] = {}
        self._columns: dict[tuple[str, bytes], ir.Value] | None = None

    def vector(self, columns: Sequence[Any], known: dict[Any, Any]) -> SharedVector:
        """A vector of k coordinates per column, whose entries are all that column."""
        return SharedVector(columns, known, self)

    def column(self, numbers: NDArray[Any]) -> ir.Value:
        """The number of a row's own coordinate; some number of the same type as long as there are no rows."""
        key = numbers.dtype.str, numbers.tobytes()
        if self._columns is None:
            self._found[key] = numbers
            return ibis.literal(numbers[0].item())
        return self._columns[key]

    def table(self) -> dict[str, list[float]]:
        """What is joined with the rows: a column for each array of numbers that was found."""
        return {FACT.format(i): array.astype(np.float64).tolist() for i, array in enumerate(self._found.values())}

    def read_from(self, rows: ir.Table) -> None:
        """From now on numbers are columns of these rows."""
        columns = [rows[FACT.format(i)] for i in range(len(self._found))]
        # Each is made once, because expressions are recognised by their parts. Engines know no number as a condition.
        self._columns = {
            key: column != 0.0 if array.dtype.kind == "b" else column
            for (key, array), column in zip(self._found.items(), columns, strict=True)
        }


class SharedVector(ColumnVector):
    """A vector (k,), or several one after the other (2k,), of which each k entries are one column.

    So one expression counts a table with one row per coordinate. In a row of such a table all k entries are one column,
    and the row is meant for one coordinate. A public number that is the same for all coordinates stays a constant. One
    that differs becomes a column of a small table, which every row is joined with by its coordinate. An expression does
    not grow with k, and its floating-point operations are those of a table with k columns, in the same order.
    """

    def __init__(self, entries: Sequence[Any], known: dict[Any, Any], facts: CoordinateFacts) -> None:
        super().__init__(entries, known)
        self._facts = facts

    @property
    def shape(self) -> tuple[int]:
        """As a formula sees it."""
        return (len(self),)

    def __len__(self) -> int:
        return len(self.entries) * self._facts.coordinates

    def __getitem__(self, place: Any) -> Self:
        if isinstance(place, tuple) and len(place) == 2 and place[0] is Ellipsis:
            place = place[1]
        if not isinstance(place, slice):
            raise TypeError("it picks out a coordinate")
        start, stop, stride = place.indices(len(self))
        width = self._facts.coordinates
        if stride != 1 or start % width or stop % width:
            raise TypeError("it picks out coordinates")
        return self._like(self.entries[start // width : stop // width])

    def __array_function__(self, function: Any, types: Iterable[type], args: Any, options: Any) -> Any:
        if function is np.broadcast_to:
            return self if tuple(args[1]) == self.shape else NotImplemented
        return super().__array_function__(function, types, args, options)

    def _vector(self, part: Any) -> ColumnVector:
        """A vector, or public numbers, k or a multiple of it, as one."""
        if isinstance(part, SharedVector):
            return part
        array, width = np.asarray(part), self._facts.coordinates
        if array.ndim != 1 or len(array) % width:
            raise TypeError("it needs one number for each coordinate")
        entries = [
            numbers[0].item() if (numbers == numbers[0]).all() else self._facts.column(numbers)
            for numbers in array.reshape(-1, width)
        ]
        return self._facts.vector(entries, self.known)

    def _lined_up(self, inputs: Sequence[Any]) -> list[NDArray[Any]]:
        """One entry for each k. Numbers without coordinates stay as they are."""
        found = [
            part if isinstance(part, SharedVector | ir.Value) or np.shape(part) in ((), (1,)) else self._vector(part)
            for part in inputs
        ]
        if len({part.shape for part in found if isinstance(part, SharedVector)}) > 1:
            raise TypeError("it combines vectors of different lengths")
        return super()._lined_up(found)
