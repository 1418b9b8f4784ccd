"""Released trees of several periods, added up. What came before counts γ times as much with every period that passes.

    S_t = Y_t + γ S_{t−1}     nodes, unobserved slots and public totals;  n_t alike
    V_t = v_t + γ² V_{t−1}    the variance of their noise;                q_t = n_t + γ² q_{t−1} alike

Y are the nodes of one period, v their noise and n its slots. Counts of n slots are expected to vary by their own size,
but faded ones vary less: by q / n of it. So learning gets S n/q, which are the counts of n²/q slots with noise V (n/q)²
(Kish's effective sample size). With γ = 1 that is the plain sum. Everything here is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from os import PathLike
from typing import Self

import numpy as np

from poolrl.checks import FloatArray, as_floats
from poolrl.npz import Arrays, read_arrays, write_arrays
from poolrl.privacy.released import PrivateLeft, PrivateOutcomes

# Bytes of all arrays of a file: more than the trees of the largest chains.
LARGEST_TREES = 2**30


@dataclass(frozen=True, eq=False)
class FadedTrees:
    """Sums over periods: levels, unobserved slots and totals as in `PrivateOutcomes`, in floating point."""

    levels: tuple[FloatArray, ...]
    unobserved: FloatArray | None
    totals: FloatArray | None
    slots: float  # n
    squares: float  # q
    variance: float  # V
    left: PrivateLeft | None = None  # sums of what was left, added up alike, where every period has released them

    @classmethod
    def of(cls, released: PrivateOutcomes) -> Self:
        """The trees of one period."""
        levels = tuple(np.asarray(level, dtype=np.float64) for level in released.levels)
        unobserved, totals = (
            None if each is None else np.asarray(each, dtype=np.float64)
            for each in (released.unobserved, released.totals)
        )
        slots = float(released.total)
        return cls(levels, unobserved, totals, slots, slots, released.variance, released.left)

    @property
    def bins(self) -> int:
        """Leaves of each tree."""
        return int(self.levels[-1].shape[-1])

    @property
    def noise(self) -> float:
        """√V / n: the noise of a node beside the slots that are counted."""
        return math.sqrt(self.variance) / self.slots

    def slots_to_match(self, variance: float, forgetting: float) -> float:
        """How many slots a period with such noise must have, so that `noise` does not grow: n (√(γ² + v/V) − γ)."""
        return self.slots * (math.sqrt(forgetting**2 + variance / self.variance) - forgetting)

    def after(self, earlier: FadedTrees, forgetting: float) -> FadedTrees:
        """The sum of these trees and of earlier, faded ones."""
        if _shapes(self) != _shapes(earlier):
            raise ValueError("the earlier release has trees of another shape: other steps, products, labels or bins")
        return self._plus(earlier, forgetting)

    def alone(self, earlier: FadedTrees, forgetting: float) -> FadedTrees:
        """The inverse of `after`: the trees of the last period by itself."""
        return self._plus(earlier, -forgetting, squared=-(forgetting**2))

    def _plus(self, other: FadedTrees, weight: float, squared: float | None = None) -> FadedTrees:
        square = weight**2 if squared is None else squared

        def added(mine: FloatArray | None, theirs: FloatArray | None) -> FloatArray | None:
            return None if mine is None or theirs is None else mine + weight * theirs

        return FadedTrees(
            tuple(mine + weight * theirs for mine, theirs in zip(self.levels, other.levels, strict=True)),
            added(self.unobserved, other.unobserved),
            added(self.totals, other.totals),
            self.slots + weight * other.slots,
            self.squares + square * other.squares,
            self.variance + square * other.variance,
            _left_plus(self.left, other.left, weight, square),
        )

    def to_learn_from(self, like: PrivateOutcomes) -> PrivateOutcomes:
        """As counts of the effective number of slots, with the guarantee and labels of the last release."""
        factor = self.slots / self.squares
        return replace(
            like,
            levels=tuple(level * factor for level in self.levels),
            unobserved=None if self.unobserved is None else self.unobserved * factor,
            totals=None if self.totals is None else self.totals * factor,
            total=self.slots * factor,
            variance=self.variance * factor**2,
            left=None
            if self.left is None
            else PrivateLeft(factor * as_floats("left", self.left.sums), factor**2 * self.left.variance),
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write one npz file."""
        arrays: Arrays = {f"level_{level.shape[-1]}": level for level in self.levels}
        given = {"unobserved": self.unobserved, "totals": self.totals}
        if self.left is not None:
            given |= {"left": self.left.sums.astype(np.float64), "left_variance": np.array([self.left.variance])}
        arrays |= {name: array for name, array in given.items() if array is not None}
        write_arrays(path, arrays | {"sums": np.array([self.slots, self.squares, self.variance])})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The inverse of `save`."""
        try:
            arrays = read_arrays(path, most_bytes=LARGEST_TREES)
            slots, squares, variance = arrays.pop("sums").tolist()
            rest = arrays.pop("unobserved", None), arrays.pop("totals", None)
            left, doubt = arrays.pop("left", None), arrays.pop("left_variance", None)
            sizes = sorted(int(name.removeprefix("level_")) for name in arrays)
            levels = tuple(arrays[f"level_{size}"] for size in sizes)
        except (LookupError, ValueError, TypeError) as error:
            raise ValueError(f"{path} does not hold released trees, or is truncated") from error
        parts = [*levels, *(part for part in (*rest, left, doubt) if part is not None)]
        sound = levels and all(part.dtype == np.float64 and np.isfinite(part).all() for part in parts)
        if not sound or not (slots > 0 and squares > 0 and variance >= 0):
            raise ValueError(f"{path} does not hold released trees")
        if left is not None and (left.shape != levels[0].shape[:-2] or doubt is None or doubt.shape != (1,)):
            raise ValueError(f"{path} does not hold released trees")
        sums = None if left is None or doubt is None else PrivateLeft(left, float(doubt[0]))
        return cls(levels, *rest, slots, squares, variance, sums)


def _left_plus(
    mine: PrivateLeft | None, theirs: PrivateLeft | None, weight: float, square: float
) -> PrivateLeft | None:
    if mine is None or theirs is None:
        return None
    sums = as_floats("left", mine.sums) + weight * as_floats("left", theirs.sums)
    return PrivateLeft(sums, mine.variance + square * theirs.variance)


def _shapes(trees: FadedTrees) -> list[tuple[int, ...] | None]:
    arrays = [*trees.levels, trees.unobserved, trees.totals]
    return [None if array is None else array.shape for array in arrays]
