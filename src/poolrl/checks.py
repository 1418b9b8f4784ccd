"""Array types, and the checks that every argument must pass.

A message names the argument, the rule and the value. A value of a log is never quoted: `finite_array` takes
arrays that may be sensitive and reports shapes and kinds only.
"""

import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def positive(**named: float) -> None:
    """Refuse a public number that is not above zero (infinity is allowed, NaN is not)."""
    for name, value in named.items():
        if not _is_number(value) or not value > 0:
            raise ValueError(f"{name} must be positive, got {value!r}")


def fraction(**named: float) -> None:
    """Refuse a public number outside the open interval (0, 1)."""
    for name, value in named.items():
        if not _is_number(value) or not 0 < value < 1:
            raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")


def whole(*, at_least: int = 1, **named: int) -> None:
    """Refuse a public number that is not an integer of at least `at_least`."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
            raise ValueError(f"{name} must be a whole number of at least {at_least}, got {value!r}")


def one_of(known: Iterable[str], **named: str) -> None:
    """Refuse an unknown word, and suggest the known word that is nearest to it."""
    choices = list(known)
    for name, word in named.items():
        if word not in choices:
            raise ValueError(f"there is no {name.replace('_', ' ')} {word!r}; {nearest(word, choices)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown word: the known one that was probably meant, otherwise all of them."""
    spelled = {choice.lower(): choice for choice in known}
    near = get_close_matches(word.lower(), spelled, n=1, cutoff=0.5)
    return f"did you mean {spelled[near[0]]}?" if near else f"choose from {', '.join(spelled.values())}"


# A public parameter has at most (horizon, products) entries. A file must not make us allocate more than this.
MOST_ENTRIES = 10_000_000


def public_array(name: str, value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """A public parameter, broadcast to `shape` and read-only; scalars and smaller arrays are allowed."""
    array = as_floats(name, value)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")
    if math.prod(shape) > MOST_ENTRIES:
        raise ValueError(f"{name} would have {math.prod(shape):.1e} entries, more than {MOST_ENTRIES:.0e}")
    return read_only(shaped(name, array, shape).copy())


def finite_array(name: str, value: ArrayLike) -> FloatArray:
    """Finite numbers (trajectories, steps, coordinates) that may be sensitive, so no message quotes a value."""
    array = as_floats(name, value)
    if array.ndim != 3:
        raise ValueError(f"{name} must have 3 dimensions, got {array.ndim}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers, but has NaN or infinite entries")
    return array


def shaped(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """An array that may be sensitive, broadcast to `shape`: no message quotes a value."""
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{name} must broadcast to shape {shape}, got shape {array.shape}") from None


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, in an array that cannot be written to."""
    found = array.view()
    found.flags.writeable = False
    return found


def as_floats(name: str, value: ArrayLike) -> FloatArray:
    """Anything that is a regular array of numbers, as floats."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        # NumPy's own message would quote the entry that is not a number.
        raise ValueError(f"{name} must hold numbers in a regular array") from None


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return number and not math.isnan(value)
