"""Released trees of several periods, added up. With every period that passes, all earlier ones count γ times as much.

    S_t = Y_t + γ S_{t−1}     nodes, unobserved slots and public totals;  n_t alike
    V_t = v_t + γ² V_{t−1}    the variance of their noise;                q_t = n_t + γ² q_{t−1} alike

Y are the nodes of one period, v their noise and n its slots. Faded counts vary less than their own size, by q / n of
it. So learning gets S n/q, the counts of n²/q slots with noise V (n/q)² (Kish's effective sample size).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Self

import numpy as np

from poolrl.checks import FloatArray
from poolrl.npz import Arrays, read_arrays, write_arrays
from poolrl.privacy.released import PrivateOutcomes, PrivateTable

# Bytes of all arrays of a file: more than the trees of the largest chains.
LARGEST_TREES = 2**30


@dataclass(frozen=True, eq=False)
class FadedTrees:
    """Sums over periods, in floating point, by the names they have in a file.

    `level_B` are the nodes of a level; the rest is as in `PrivateOutcomes`, if every period has released it.
    """

    arrays: Arrays
    slots: float  # n
    squares: float  # q
    variance: float  # V
    left_variance: float = 0.0  # of the sums of what was left

    @classmethod
    def of(cls, released: PrivateOutcomes) -> Self:
        """The trees of one period."""
        left, slots = released.on_top.get("left_over"), float(released.total)
        arrays: dict[str, Any] = {f"level_{level.shape[-1]}": level for level in released.levels}
        arrays |= {"unobserved": released.unobserved, "totals": released.totals, "left": left and left.counts}
        floats = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items() if array is not None}
        return cls(floats, slots, slots, released.variance, left.variance if left else 0.0)

    @property
    def levels(self) -> tuple[FloatArray, ...]:
        """Nodes of every level, from the coarsest to the finest."""
        levels = [array for name, array in self.arrays.items() if name.startswith("level_")]
        return tuple(sorted(levels, key=lambda level: int(level.shape[-1])))

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
        mine, theirs = ({n: a.shape for n, a in trees.arrays.items() if n != "left"} for trees in (self, earlier))
        if mine != theirs:
            raise ValueError("the earlier release has trees of another shape: other steps, products, labels or bins")
        return self._plus(earlier, forgetting, forgetting**2)

    def alone(self, earlier: FadedTrees, forgetting: float) -> FadedTrees:
        """The inverse of `after`: the trees of the last period by itself."""
        return self._plus(earlier, -forgetting, -(forgetting**2))

    def _plus(self, other: FadedTrees, weight: float, square: float) -> FadedTrees:
        both = self.arrays.keys() & other.arrays.keys()
        return FadedTrees(
            {name: array + weight * other.arrays[name] for name, array in self.arrays.items() if name in both},
            self.slots + weight * other.slots,
            self.squares + square * other.squares,
            self.variance + square * other.variance,
            self.left_variance + square * other.left_variance,
        )

    def to_learn_from(self, like: PrivateOutcomes) -> PrivateOutcomes:
        """As counts of the effective number of slots, with the guarantee and labels of the last release."""
        factor = self.slots / self.squares
        sums = {name: array * factor for name, array in self.arrays.items()}
        left = {"left_over": PrivateTable(sums["left"], factor**2 * self.left_variance)} if "left" in sums else {}
        return replace(
            like,
            levels=tuple(level * factor for level in self.levels),
            unobserved=sums.get("unobserved"),
            totals=sums.get("totals"),
            total=self.slots * factor,
            variance=self.variance * factor**2,
            on_top=left,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write one npz file."""
        sums = {"sums": np.array([self.slots, self.squares, self.variance])}
        doubt = {"left_variance": np.array([self.left_variance])} if "left" in self.arrays else {}
        write_arrays(path, self.arrays | sums | doubt)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The inverse of `save`."""
        try:
            arrays = read_arrays(path, most_bytes=LARGEST_TREES)
            slots, squares, variance = arrays.pop("sums").tolist()
            trees = cls(arrays, slots, squares, variance, arrays.pop("left_variance", np.zeros(1)).item())
            # Names of levels say how many nodes they have.
            known = {"unobserved", "totals", "left"} | {f"level_{level.shape[-1]}" for level in trees.levels}
            left_fits = "left" not in arrays or arrays["left"].shape == trees.levels[0].shape[:-2]
            positive = slots > 0 and squares > 0 and variance >= 0
        except (LookupError, ValueError, TypeError) as error:
            raise ValueError(f"{path} does not hold released trees, or is truncated") from error
        sound = all(part.dtype == np.float64 and np.isfinite(part).all() for part in arrays.values())
        if not (sound and positive and left_fits and arrays.keys() <= known):
            raise ValueError(f"{path} does not hold released trees")
        return trees
