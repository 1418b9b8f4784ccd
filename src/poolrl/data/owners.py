"""Who owns which trajectory, and which of a unit's trajectories are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolrl.checks import BoolArray


def owners(unit: ArrayLike, trajectories: int) -> NDArray[np.int64]:
    """The units numbered 0, 1, ..., for labels of any type; equal labels (7 and 7.0) are one unit."""
    try:
        # A list is read entry by entry: one unit's name must not decide how others are read.
        labels = np.array(unit, dtype=object) if isinstance(unit, list | tuple) else np.asarray(unit)
    except ValueError:
        raise ValueError("unit must hold one label per trajectory") from None
    if labels.shape != (trajectories,):
        raise ValueError("unit must hold one label per trajectory")
    if labels.dtype.kind == "O":
        if any(label is None or label != label for label in labels):
            raise ValueError("unit has missing labels")
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError("unit has missing labels")
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


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
