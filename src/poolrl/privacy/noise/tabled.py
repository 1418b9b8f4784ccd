"""The sampler of a private release: words of a stream, turned into discrete Gaussian numbers by an exact table."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from poolrl.checks import IntArray
from poolrl.privacy.noise.randomness import Stream
from poolrl.privacy.noise.source import in_cell_blocks

# Cells drawn by one thread at a time: so many that the start of a thread does not matter.
SECURE_BLOCK = 2**16


class TabledSampler:
    """One release: a stream with a key of its own, which every table of the release continues."""

    def __init__(self) -> None:
        self._stream = Stream()

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """Counts plus independent numbers of exactly this variance's distribution."""
        # Here, because Numba takes half a second to import.
        from poolrl.privacy.noise.inversion import inversion

        first = self._stream.take(counts.size)
        table, noisy = inversion(variance), counts.astype(np.int64).ravel()

        def some(part: slice) -> None:
            table.add(self._stream.words(first + part.start, part.stop - part.start), noisy[part])

        in_cell_blocks(some, noisy.size, SECURE_BLOCK)
        return noisy.reshape(counts.shape)
