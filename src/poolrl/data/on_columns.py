"""Recorded formulas on a table's columns: each operation on numbers becomes an expression of an engine.

Floating-point operations come in the same order as on arrays. So no second version of a formula could differ. A value
of many coordinates is an array of entries: expressions, or constants where no column is involved.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
from numpy.typing import NDArray

from poolrl.data.trace import Recording, RowOperation, Take, cast_to, joined

LARGEST_CAST = 2.0**53  # engines cast what they floor. Doubles up to here are exact whole numbers, and fit


def _castable(value: Any) -> Any:
    """A number that every engine can make whole. Otherwise one row with a huge number would stop the count."""
    return ibis.least(ibis.greatest(value, -LARGEST_CAST), LARGEST_CAST) if value.type().is_floating() else value


# Engines compute these exactly as NumPy does (IEEE 754). That is not so for sines and powers.
_RULES: dict[RowOperation, Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.negative: operator.neg,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.bitwise_and: operator.and_,
    np.logical_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.logical_or: operator.or_,
    np.invert: operator.invert,
    np.logical_not: operator.invert,
    np.maximum: ibis.greatest,
    # Of no number and another one an engine may give no number. `bin_of` then takes the least of it and a number.
    np.fmax: ibis.greatest,
    np.minimum: ibis.least,
    np.absolute: operator.methodcaller("abs"),
    np.sqrt: operator.methodcaller("sqrt"),
    np.floor: lambda value: _castable(value).floor(),
    np.where: ibis.ifelse,
    cast_to(np.dtype(np.int64)): lambda value: _castable(value).cast("int64"),
    cast_to(np.dtype(np.float64)): operator.methodcaller("cast", "float64"),
}


class OnColumns:
    """Evaluates recordings on rows with a column, or a constant, for each coordinate."""

    coordinates = 0  # that one column stands for, if any

    def __init__(self) -> None:
        # Expressions made before from the same parts. Formulas repeat themselves at every step.
        self._known: dict[Any, Any] = {}

    @property
    def facts(self) -> dict[str, list[float]]:
        """What must be joined with the rows: nothing, where each coordinate has a column."""
        return {}

    def read_from(self, rows: ir.Table) -> None:
        """From now on facts are columns of these rows."""

    def __call__(self, recording: Recording, *vectors: Sequence[Any] | NDArray[Any]) -> list[NDArray[Any]]:
        """The entries of each answer."""
        found = recording.evaluated([_entries(vector) for vector in vectors], self._applied)
        return [_entries(part) for part in found]

    def _applied(self, rule: RowOperation, parts: list[NDArray[Any]]) -> NDArray[Any]:
        if rule is joined or isinstance(rule, Take):
            return np.asarray(rule(*parts))
        if rule not in _RULES:
            raise TypeError(f"{getattr(rule, '__name__', 'it')} is not what every engine computes alike")
        return _entries(np.frompyfunc(partial(self._expression, rule), len(parts), 1)(*parts))

    def _expression(self, rule: RowOperation, *entries: Any) -> Any:
        """A rule of single entries. A result of constants stays a constant."""
        plain = [entry.item() if isinstance(entry, np.generic) else entry for entry in entries]
        if not any(isinstance(entry, ir.Value) for entry in plain):
            return rule(*map(np.asarray, plain))[()]
        name = (rule, *((type(e), id(e) if isinstance(e, ir.Value) else e) for e in plain))
        if name not in self._known:
            # The parts are kept too, so that their ids are not used again.
            self._known[name] = (_RULES[rule](*plain), plain)
        return self._known[name][0]


def as_columns(entries: NDArray[Any]) -> list[ir.Value]:
    """Every entry as an expression."""
    return [entry if isinstance(entry, ir.Value) else ibis.literal(entry) for entry in entries.ravel()]


def _entries(vector: Any) -> NDArray[Any]:
    """A list of entries, or one of them, as an array."""
    if isinstance(vector, np.ndarray):
        return vector
    entries = vector if isinstance(vector, list) else [vector]
    found = np.empty(len(entries), dtype=object)
    for i, entry in enumerate(entries):
        found[i] = entry  # one by one, because NumPy would look for arrays inside a column
    return found if isinstance(vector, list) else found.reshape(())


# The columns of public numbers that differ by coordinate. A user's own column is hardly called so.
FACT = "poolrl_fact_{}"


class OnOneColumn(OnColumns):
    """Evaluates recordings on rows that show one coordinate: a value of k coordinates has one entry, one of 2k has two.

    A public number that differs between coordinates becomes a column of a small table (`facts`), which rows are joined
    with. An expression does not grow with k, and its floating-point operations are those of k columns, in their order.
    """

    def __init__(self, coordinates: int, recordings: Iterable[Recording]) -> None:
        super().__init__()
        self.coordinates = coordinates
        self._numbers = {
            _key(numbers): numbers
            for recording in recordings
            for symbol, _ in recording.order
            for part in symbol.parts
            if isinstance(part, np.ndarray)
            for numbers in self._by_coordinate(part)
            if (numbers != numbers[0]).any()
        }
        self._columns: dict[Any, ir.Value] = {}

    @property
    def facts(self) -> dict[str, list[float]]:
        """A column for each array of numbers that differ by coordinate."""
        return {FACT.format(i): array.astype(np.float64).tolist() for i, array in enumerate(self._numbers.values())}

    def read_from(self, rows: ir.Table) -> None:
        """From now on facts are columns of these rows."""
        # Each is made once, because expressions are recognised by their parts. Engines know no number as a condition.
        self._columns = {
            key: rows[name] != 0.0 if array.dtype.kind == "b" else rows[name]
            for (key, array), name in zip(self._numbers.items(), self.facts, strict=True)
        }

    def _applied(self, rule: RowOperation, parts: list[NDArray[Any]]) -> NDArray[Any]:
        if isinstance(rule, Take):
            if len(rule.place) != 2 or not isinstance(rule.place[1], slice):
                raise TypeError("it picks out a coordinate")
            start, stop, stride = rule.place[1].indices(len(parts[0]) * self.coordinates)
            if stride != 1 or start % self.coordinates or stop % self.coordinates:
                raise TypeError("it picks out coordinates")
            return parts[0][start // self.coordinates : stop // self.coordinates]
        return super()._applied(rule, [part if part.dtype == object else self._lined_up(part) for part in parts])

    def _by_coordinate(self, array: NDArray[Any]) -> NDArray[Any]:
        """Numbers for each coordinate (entries, k); none for a single number."""
        fits = array.size > 1 and array.size % self.coordinates == 0
        return array.reshape(-1, self.coordinates) if fits else np.empty((0, self.coordinates))

    def _lined_up(self, array: NDArray[Any]) -> NDArray[Any]:
        """One entry for each k. A single number stays as it is."""
        numbers = self._by_coordinate(array)
        same = [each[0].item() if (each == each[0]).all() else self._columns[_key(each)] for each in numbers]
        return _entries(same) if same else array


def _key(numbers: NDArray[Any]) -> tuple[str, bytes]:
    return numbers.dtype.str, numbers.tobytes()
