"""Who owns which trajectory, and which of a unit's trajectories are kept."""

from __future__ import annotations

import datetime
import re
import uuid
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolrl.checks import BoolArray
from poolrl.data.ids import LARGEST_WHOLE_FLOAT, canonical_text


def owners(unit: ArrayLike, trajectories: int) -> NDArray[np.int64]:
    """The units numbered 0, 1, ...; ids that spell one unit, like 7, 7.0 and " 07", are one (`data/ids.py`)."""
    try:
        # A list is read entry by entry: one unit's name must not decide how others are read.
        ids = np.array(unit, dtype=object) if isinstance(unit, list | tuple) else np.asarray(unit)
    except ValueError:
        raise ValueError("unit must hold one label per trajectory") from None
    if ids.shape != (trajectories,):
        raise ValueError("unit must hold one label per trajectory")
    if ids.dtype.kind in "biu":
        return np.unique(ids, return_inverse=True)[1].astype(np.int64)
    distinct, place = (ids, slice(None)) if ids.dtype.kind == "O" else np.unique(ids, return_inverse=True)
    numbers: dict[str, int] = {}
    read = [numbers.setdefault(_id_of(each), len(numbers)) for each in distinct]
    return np.array(read, dtype=np.int64)[place]


def _id_of(given: Any) -> str:
    """The id that an entry spells. Numbers are read like their text."""
    found = None
    if isinstance(given, str):
        found = canonical_text(given)
    elif isinstance(given, Integral | np.bool_):
        found = str(int(given))
    elif isinstance(given, Decimal):
        found = canonical_text(f"{given.normalize():f}") if given.is_finite() else None
    elif isinstance(given, Real):
        number = float(given)  # NaN is missing too
        found = str(int(number)) if abs(number) <= LARGEST_WHOLE_FLOAT and number == int(number) else None
    elif isinstance(given, datetime.date | uuid.UUID) or (isinstance(given, np.datetime64) and not np.isnat(given)):
        # A date is its own midnight.
        found = canonical_text(re.sub(r" 00:00:00(\.0+)?$", "", str(given).replace("T", " ")))
    if found is None:
        raise ValueError("unit has missing labels, or labels that are not ids (whole numbers, text, dates)")
    return found


def first_of_each(owner: NDArray[np.int64], most: int) -> BoolArray:
    """Which trajectories are among the first of their unit, in the order of the log."""
    return _rank_within(owner) < most


def _rank_within(owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 for the first trajectory of each unit in the order of the log, 1 for the second, ..."""
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner)
    rank = np.empty_like(owner)
    rank[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank
