"""Labels: public facts of a trajectory or of a step, such as its shop or a promotion week.

Label values are declared, never read off a log. A value that was not declared has no cell, and its row is unobserved.
"""

import math
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import IntArray

# A value of a label, as it stands in a file.
LabelValue = int | float | str
# No log has more cells, and their product must stay countable.
MOST_LABEL_CELLS = 10**7
# Larger numbers are no labels, and a double may not hold them.
LARGEST_LABEL = 1e300


@dataclass(frozen=True, init=False)
class Labels:
    """The declared values of each label. A label cell is a combination of values, numbered with the last label fastest.

    >>> labels = Labels({"store": [1, 2, 7], "promo": ["no", "yes"]})
    >>> labels.shape, labels.count
    ((3, 2), 6)
    >>> labels.cells({"store": [7, 3, 1], "promo": ["yes", "no", "no"]}).tolist()
    [5, -1, 0]
    """

    names: tuple[str, ...]
    values: tuple[tuple[LabelValue, ...], ...]

    def __init__(self, values: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None) -> None:
        declared = {str(name): _declared(str(name), given) for name, given in dict(values or {}).items()}
        object.__setattr__(self, "names", tuple(declared))
        object.__setattr__(self, "values", tuple(declared.values()))
        if math.prod(self.shape) > MOST_LABEL_CELLS:
            raise ValueError(f"labels must make at most {MOST_LABEL_CELLS:,} cells, got {math.prod(self.shape):,}")

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each label has; () without labels."""
        return tuple(len(values) for values in self.values)

    @property
    def count(self) -> int:
        """How many label cells there are; one without labels."""
        return math.prod(self.shape)

    def cells(self, given: Mapping[str, ArrayLike]) -> IntArray:
        """The cell of each combination of values, −1 where a value was not declared. Arrays broadcast."""
        self.require(given)
        cell: IntArray = np.zeros((), dtype=np.int64)
        for name, size in zip(self.names, self.shape, strict=True):
            place = self.places(name, given[name])
            cell = np.where((cell < 0) | (place < 0), -1, cell * size + place)
        return cell

    def places(self, name: str, given: ArrayLike) -> IntArray:
        """The place of each value among those declared for a label, −1 where it is not declared."""
        declared = self.values[self.names.index(name)]
        is_text = isinstance(declared[0], str)
        kind = "str" if is_text else "float64"
        # A list is read entry by entry: one entry must not decide how others are read.
        values = np.array(given, dtype=object) if isinstance(given, list | tuple) else np.asarray(given)
        if values.dtype.kind not in ("UO" if is_text else "biufO"):
            raise ValueError(f"label {name!r} must hold {'text' if is_text else 'numbers'}, as declared")
        if values.dtype.kind == "O":
            # For anything but a text, a text that nobody can declare.
            entries = [(v if isinstance(v, str) else "\0") if is_text else number_of(v) for v in values.ravel()]
            values = np.array(entries).reshape(values.shape)
        known = np.array(declared, dtype=kind)
        order = np.argsort(known)
        at = np.minimum(np.searchsorted(known[order], values), len(known) - 1)
        return np.where(known[order][at] == values, order[at], -1).astype(np.int64)

    def require(self, given: Iterable[str]) -> None:
        """Refuse other names than the declared ones."""
        if set(given) != set(self.names):
            wanted = ", ".join(self.names) or "none"
            raise ValueError(f"labels must be those of the problem ({wanted}), got {', '.join(given) or 'none'}")

    def facts(self) -> list[list[Any]]:
        """Pairs of name and declared values, for JSON: an object has no order, and the order numbers the cells."""
        return [[name, list(values)] for name, values in zip(self.names, self.values, strict=True)]


def number_of(value: Any) -> float:
    """A number, NaN for anything else."""
    plain = value.item() if isinstance(value, np.generic) else value
    return float(plain) if isinstance(plain, int | float) and abs(plain) < LARGEST_LABEL else math.nan


def _declared(name: str, given: Iterable[Any]) -> tuple[LabelValue, ...]:
    if isinstance(given, str):
        raise ValueError(f"label {name!r} must have a list of values, got the text {given!r}")
    values = [value.item() if isinstance(value, np.generic) else value for value in given]
    text = [isinstance(value, str) for value in values]
    numbers = [isinstance(value, int | float) and abs(value) < LARGEST_LABEL for value in values]
    if not values or not (all(text) or all(numbers)):
        raise ValueError(f"label {name!r} must have values, all numbers or all text")
    if len({_as_engines_see(value) for value in values}) < len(values):
        raise ValueError(
            f"label {name!r} must not have a value twice, nor values that an engine may take for equal (texts that "
            "differ in case, accents or blanks, numbers that are equal as doubles)"
        )
    return tuple(values)


def _as_engines_see(value: LabelValue) -> LabelValue:
    """A key that two values must not share: by any engine's rule of comparison, a row must have one label cell."""
    if not isinstance(value, str):
        return float(value)
    plain = unicodedata.normalize("NFKD", value).casefold()
    return "".join(letter for letter in plain if not unicodedata.combining(letter)).strip()
