"""The labels of a log in memory: for each, its distinct values and which of them every trajectory or step has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolrl.checks import FloatArray, IntArray
from poolrl.problems.labels import Labels, number_of

if TYPE_CHECKING:
    import pyarrow as pa

MISSING = -1
_SHAPE = "label {!r} must have one value per trajectory, or one per trajectory and step"


@dataclass(frozen=True)
class LogLabel:
    """Distinct values (numbers or text), and codes (n,) or (n, H) that say which value stands where; −1 is missing."""

    values: NDArray[Any]
    codes: IntArray
    one_type: bool = False  # by the array's own type, whatever its entries are
    is_spelt: bool = False  # by a column of text, in which numbers are text too

    @classmethod
    def of(cls, name: str, given: ArrayLike) -> LogLabel:
        """From an array of numbers or of text, or from a list, entry by entry; any other entry is missing."""
        try:
            array = np.array(given, dtype=object) if isinstance(given, list | tuple) else np.asarray(given)
        except ValueError:
            raise ValueError(_SHAPE.format(name)) from None
        if array.dtype.kind == "U":
            return cls._coded(array, np.ones(array.shape, dtype=bool))
        if array.dtype.kind in "biuf":
            with np.errstate(over="ignore"):
                numbers = array.astype(np.float64)
            return cls._coded(numbers, np.isfinite(numbers))
        if array.dtype.kind != "O":
            raise ValueError(f"label {name!r} must hold numbers or text")
        places: dict[tuple[bool, str | float], int] = {}
        codes = np.full(array.size, MISSING, dtype=np.int64)
        for i, value in enumerate(array.ravel()):
            plain = value if isinstance(value, str) else number_of(value)
            if plain == plain:
                # Text and numbers never meet: "7" is not 7.
                codes[i] = places.setdefault((isinstance(plain, str), plain), len(places))
        texts = {is_text for is_text, _ in places}
        kind = np.float64 if True not in texts else object if False in texts else str
        return cls(np.array([value for _, value in places], dtype=kind), codes.reshape(array.shape))

    @classmethod
    def of_texts(cls, column: pa.ChunkedArray) -> LogLabel:
        """From a column of text, as a file has it: each entry is read as the number that it spells, or as text."""
        coded = column.combine_chunks().dictionary_encode()
        # As objects, because in an array of texts one long text makes all of them as long.
        values, codes = np.array(coded.dictionary.to_pylist(), dtype=object), coded.indices.fill_null(MISSING)
        return cls(values, np.asarray(codes, dtype=np.int64), is_spelt=True)

    @classmethod
    def _coded(cls, array: NDArray[Any], there: NDArray[np.bool_]) -> LogLabel:
        values, codes = np.unique(array[there], return_inverse=True)
        every = np.full(array.shape, MISSING, dtype=np.int64)
        every[there] = codes
        return cls(values, every, one_type=True)

    def taken(self, rows: NDArray[Any] | slice) -> LogLabel:
        """Of some trajectories only."""
        return replace(self, codes=self.codes[rows])

    def array(self) -> NDArray[Any]:
        """As it was given: numbers with NaN where one is missing, or text with None."""
        missing, kind = (np.nan, np.float64) if self.values.dtype.kind == "f" else (None, object)
        return np.append(self.values.astype(kind), np.array([missing], dtype=kind))[self.codes]

    def places(self, labels: Labels, name: str) -> IntArray:
        """The place of each entry among the declared values, −1 where it is not declared."""
        declared = "text" if isinstance(labels.values[labels.names.index(name)][0], str) else "numbers"
        if self.one_type and declared != ("text" if self.values.dtype.kind == "U" else "numbers"):
            raise ValueError(f"label {name!r} must hold {declared}, as declared")
        if self.is_spelt and declared == "text":
            place_of = {value: place for place, value in enumerate(labels.values[labels.names.index(name)])}
            known = np.array([place_of.get(text, MISSING) for text in self.values], dtype=np.int64)
        else:
            values = numbers_spelt(self.values) if self.is_spelt else self.values.astype(object)
            known = labels.places(name, values) if len(values) else np.empty(0, dtype=np.int64)
        return np.append(known, MISSING)[self.codes]


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
    cell = np.zeros(shape, dtype=np.int64)
    for name, size in zip(labels.names, labels.shape, strict=True):
        place = given[name].places(labels, name)
        place = place if place.ndim == 2 else place[:, None]
        cell = np.where((cell < 0) | (place < 0), MISSING, cell * size + place)
    return cell


def numbers_spelt(texts: NDArray[Any]) -> FloatArray:
    """The number that each text spells, as `Table` reads it; NaN for none."""
    import pyarrow as pa

    from poolrl.data.expressions import number_of_text
    from poolrl.data.sources.engine import answer, in_memory

    table = in_memory(pa.table({"place": np.arange(len(texts)), "text": pa.array(texts.tolist(), pa.string())}))
    found = answer(table.select("place", number=number_of_text(table.text)).order_by("place"))
    return np.asarray(found["number"].to_numpy(), dtype=np.float64)
