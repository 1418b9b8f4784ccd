"""Released trees, drawn from laws instead of counted in a log: what a fit would have seen if the laws were true.

No row is made. A leaf's count follows from its chance, and a node's noise from its variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray
from poolrl.geometry.bins import bin_edges
from poolrl.learning.shapes import expected_shares
from poolrl.privacy.guarantee import Guarantee
from poolrl.privacy.released import PrivateOutcomes

# Chances of a leaf are sums over finer bins, in which "half of the bin" says which of two amounts is the larger.
FINER = 8


@dataclass(frozen=True)
class TreeLaws:
    """Laws of outcomes and cut-off levels on equal bins up to `tops` (k,), in shares of the bound, (H, k, B)."""

    outcomes: FloatArray
    cutoffs: FloatArray | None
    tops: FloatArray

    def chances(self, bins: int) -> FloatArray:
        """Of every leaf, (H, k, kinds, bins)."""
        outcomes, cutoffs = (
            None if law is None else self._on_leaves(law, bins) for law in (self.outcomes, self.cutoffs)
        )
        assert outcomes is not None
        shares = expected_shares(outcomes, cutoffs)
        merged = np.maximum(shares.reshape(*shares.shape[:-1], bins, FINER).sum(axis=-1), 0.0)
        return np.asarray(merged / merged.sum(axis=(-2, -1), keepdims=True))

    def _on_leaves(self, law: FloatArray, bins: int) -> FloatArray:
        below = np.concatenate([np.zeros_like(law[..., :1]), np.cumsum(law, axis=-1)], axis=-1)
        place = np.minimum(bin_edges(bins * FINER) / self.tops[:, None], 1.0) * law.shape[-1]
        lower = np.broadcast_to(
            np.minimum(place.astype(np.int64), law.shape[-1] - 1), (*law.shape[:-1], place.shape[-1])
        )
        part = place - np.minimum(place.astype(np.int64), law.shape[-1] - 1)
        reached = np.take_along_axis(below, lower, -1) * (1 - part) + np.take_along_axis(below, lower + 1, -1) * part
        # What lies beyond the top stands at it.
        reached[..., -1] = below[..., -1]
        return np.diff(reached, axis=-1)


def draw_trees(
    laws: TreeLaws, slots: FloatArray, *, level_sizes: tuple[int, ...], variance: float, rng: np.random.Generator
) -> PrivateOutcomes:
    """Trees of as many slots (H, k) as a log had, with noise of the variance that its release had."""
    chances = laws.chances(level_sizes[-1])
    flat = chances.reshape(*chances.shape[:-2], -1)
    leaves = rng.multinomial(np.rint(slots).astype(np.int64), flat).reshape(chances.shape)
    levels = []
    for size in level_sizes:
        counts = leaves.reshape(*leaves.shape[:-1], size, -1).sum(axis=-1)
        levels.append(counts + np.rint(rng.normal(0.0, variance**0.5, counts.shape)).astype(np.int64))
    total = int(np.rint(slots.max()))
    unobserved = np.rint(total - slots + rng.normal(0.0, variance**0.5, slots.shape)).astype(np.int64)
    return PrivateOutcomes(tuple(levels), unobserved, total, variance, Guarantee.of_nothing(len(slots)))
