"""The labels of a log in memory: for each, its distinct values and which of them every trajectory or step has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolrl.checks import FloatArray, IntArray
from poolrl.data.cells import NOWHERE
from poolrl.problems.labels import Labels, number_of

if TYPE_CHECKING:
    import pyarrow as pa

_SHAPE = "label {!r} must have one value per trajectory, or one per trajectory and step"


@dataclass(frozen=True)
class LogLabel:
    """Distinct entries (numbers or text; NaN or None if one is missing), and codes (n,) or (n, H): which is where."""

    values: NDArray[Any]
    codes: IntArray
    holds: str = ""  # "numbers" or "text" by an array's own type; "spelt" in a column of text, where numbers are text

    @classmethod
    def of(cls, name: str, given: ArrayLike) -> LogLabel:
        """From an array of numbers or of text, or from a list, entry by entry; any other entry is missing."""
        try:
            array = np.array(given, dtype=object) if isinstance(given, list | tuple) else np.asarray(given)
        except ValueError:
            raise ValueError(_SHAPE.format(name)) from None
        if array.dtype.kind not in "UbiufO":
            raise ValueError(f"label {name!r} must hold numbers or text")
        holds = {"O": "", "U": "text"}.get(array.dtype.kind, "numbers")
        if holds == "numbers":
            with np.errstate(over="ignore"):
                array = array.astype(np.float64)
        distinct, at = np.unique(array, return_inverse=True) if holds else (array.ravel(), slice(None))
        # Text and numbers never meet: "7" is not 7.
        entries = (value if isinstance(value, str) else number_of(value) for value in distinct.tolist())
        places: dict[str | float, int] = {}
        codes = np.array([places.setdefault(entry, len(places)) for entry in entries], dtype=np.int64)[at]
        return cls(np.array([*places], dtype=object), codes.reshape(array.shape), holds)

    @classmethod
    def of_texts(cls, column: pa.ChunkedArray) -> LogLabel:
        """From a column of text, as a file has it: each entry is read as the number that it spells, or as text."""
        coded = column.combine_chunks().dictionary_encode("encode")
        # As objects, because in an array of texts one long text makes all of them as long.
        return cls(np.array(coded.dictionary.to_pylist(), dtype=object), np.asarray(coded.indices, np.int64), "spelt")

    def taken(self, rows: NDArray[Any] | slice) -> LogLabel:
        """Of some trajectories only."""
        return replace(self, codes=self.codes[rows])

    def array(self) -> NDArray[Any]:
        """As it was given: numbers with NaN where one is missing, or text with None."""
        values = self.values.tolist()
        if any(isinstance(value, str) for value in values):
            return np.array([value if value == value else None for value in values], dtype=object)[self.codes]
        return np.array(values, dtype=np.float64)[self.codes]

    def places(self, labels: Labels, name: str) -> IntArray:
        """The place of each entry among the declared values, −1 where it is not declared."""
        declared, values = labels.values[labels.names.index(name)], self.values
        kind = "text" if isinstance(declared[0], str) else "numbers"
        if self.holds not in ("", "spelt", kind):
            raise ValueError(f"label {name!r} must hold {kind}, as declared")
        if self.holds == "spelt" and kind == "numbers":
            values = numbers_spelt(values)
        # As doubles, in which a column has numbers.
        place_of = {value if isinstance(value, str) else float(value): i for i, value in enumerate(declared)}
        known = np.array([place_of.get(value, NOWHERE) for value in values.tolist()], dtype=np.int64)
        return known[self.codes]


def log_labels(given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, LogLabel]:
    """Every label of n trajectories of H steps."""
    found = {}
    for name, values in given.items():
        label = values if type(values) is LogLabel else LogLabel.of(name, values)
        if label.codes.shape not in (shape, shape[:1]):
            raise ValueError(_SHAPE.format(name))
        found[str(name)] = label
    return found


def cells_of(labels: Labels, given: Mapping[str, LogLabel], shape: tuple[int, int]) -> IntArray:
    """The label cell of every trajectory and step, (n, H), −1 where a label is missing or was not declared."""
    cell: IntArray = np.broadcast_to(np.int64(0), shape)  # without labels it takes no memory
    for name, size in zip(labels.names, labels.shape, strict=True):
        place = given[name].places(labels, name)
        place = place if place.ndim == 2 else place[:, None]
        cell = np.where((cell < 0) | (place < 0), NOWHERE, cell * size + place)
    return cell


def numbers_spelt(texts: NDArray[Any]) -> FloatArray:
    """The number that each text spells, as `Table` reads it; NaN for none."""
    from poolrl.data.expressions import number_of_text
    from poolrl.data.sources.engine import read_texts

    return np.asarray(read_texts(texts.tolist(), number_of_text).to_numpy(), dtype=np.float64)
