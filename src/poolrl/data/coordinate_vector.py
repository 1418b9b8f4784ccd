"""Columns that stand for all coordinates at once: one expression counts a table with one row per coordinate.

A problem's formulas take vectors (k,). In a row of such a table all k entries are one column, and the row is meant for
one coordinate. A public number that is the same for all coordinates stays a constant. One that differs becomes a column
of a small table, which every row is joined with by its coordinate. So an expression does not grow with k, and its
floating-point operations are those of a table with k columns, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from poolrl.data.column_vector import ColumnVector

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
        return SharedVector(ColumnVector(columns, known), self)

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


class SharedVector(NDArrayOperatorsMixin):
    """A vector (k,), or several one after the other (2k,), of which each k entries are one column."""

    def __init__(self, parts: ColumnVector, facts: CoordinateFacts) -> None:
        self._parts, self._facts = parts, facts

    @property
    def shape(self) -> tuple[int]:
        """As a formula sees it."""
        return (len(self),)

    def __len__(self) -> int:
        return len(self._parts) * self._facts.coordinates

    def __getitem__(self, place: Any) -> SharedVector:
        if isinstance(place, tuple) and len(place) == 2 and place[0] is Ellipsis:
            place = place[1]
        if not isinstance(place, slice):
            raise TypeError("it picks out a coordinate")
        start, stop, stride = place.indices(len(self))
        width = self._facts.coordinates
        if stride != 1 or start % width or stop % width:
            raise TypeError("it picks out coordinates")
        return self._like(self._parts[start // width : stop // width])

    def astype(self, kind: Any) -> SharedVector:
        """A cast of every entry."""
        return self._like(self._parts.astype(kind))

    def columns(self) -> list[ir.Value]:
        """One expression for each k entries."""
        return self._parts.columns()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        return self._like(ufunc(*self._folded(inputs)))

    def __array_function__(self, function: Any, types: Iterable[type], args: Any, options: Any) -> Any:
        if function in (np.where, np.clip):
            return self._like(function(*self._folded(args)))
        if function is np.concatenate:
            # Each part may have k entries while others have 2k.
            whole = [part if isinstance(part, SharedVector) else self._constant(part) for part in args[0]]
            return self._like(np.concatenate([part._parts for part in whole]))
        if function is np.broadcast_to and tuple(args[1]) == self.shape:
            return self
        if function is np.zeros_like:
            return np.zeros(self.shape, **options)
        return NotImplemented

    def _constant(self, numbers: Any) -> SharedVector:
        """Public numbers, k or a multiple of it."""
        array = np.asarray(numbers)
        if array.ndim != 1 or len(array) % self._facts.coordinates:
            raise TypeError("it needs one number for each coordinate")
        entries = [
            each[0].item() if (each == each[0]).all() else self._facts.column(each)
            for each in array.reshape(-1, self._facts.coordinates)
        ]
        return self._facts.vector(entries, self._parts.known)

    def _folded(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs of an operation with one entry for each k. Numbers without coordinates stay as they are."""
        found = [each if isinstance(each, SharedVector | ir.Value) else self._with_coordinates(each) for each in inputs]
        if len({each.shape for each in found if isinstance(each, SharedVector)}) > 1:
            raise TypeError("it combines vectors of different lengths")
        return [each._parts if isinstance(each, SharedVector) else each for each in found]

    def _with_coordinates(self, numbers: Any) -> Any:
        return numbers if np.asarray(numbers).shape in ((), (1,)) else self._constant(numbers)

    def _like(self, parts: ColumnVector) -> SharedVector:
        return SharedVector(parts, self._facts)
