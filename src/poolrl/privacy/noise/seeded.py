"""Seeded noise: the same distribution, reproducible, for dry runs. NOT PRIVATE."""

from fractions import Fraction

import numpy as np

from poolrl.checks import IntArray, whole
from poolrl.privacy.noise.source import Sampler, discrete_gaussian, in_cell_blocks, scale_above

# Cells drawn by one thread at a time: enough that the start of a thread does not matter.
SEEDED_BLOCK = 2**17


class SeededNoise:
    """Reproducible noise of the same distribution, for dry runs. NOT PRIVATE: the seed reveals it.

    Every release starts from the seed again, so the same call gives the same policy.
    """

    def __init__(self, seed: int) -> None:
        whole(at_least=0, seed=seed)
        self.seed = int(seed)

    def __repr__(self) -> str:
        return f"SeededNoise({self.seed})"

    def begin(self) -> Sampler:
        """A fresh stream from the seed."""
        return _SeededSampler(np.random.Generator(np.random.PCG64([self.seed, 0x9E3779B9])))


class _SeededSampler:
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        if variance == 0:
            return counts.copy()
        scale = scale_above(variance)
        if scale > 200:
            # Integers are so close together, compared with the noise, that a rounded normal will do.
            return counts + np.rint(self._rng.normal(0.0, scale, counts.shape)).astype(np.int64)
        support, weights = discrete_gaussian(scale)
        edges = np.cumsum(weights)[:-1]
        flat, stream = counts.ravel(), self._rng.bit_generator
        noisy, here = np.empty_like(flat), stream.state

        def some(part: slice) -> None:
            # A cell takes one number of the stream, so a block starts at the number of its first cell.
            own = np.random.PCG64()
            own.state = here  # type: ignore[assignment]
            own.advance(part.start)
            uniform = np.random.Generator(own).random(flat[part].shape)
            noisy[part] = flat[part] + support[np.searchsorted(edges, uniform, side="right")]

        in_cell_blocks(some, flat.size, SEEDED_BLOCK)
        stream.advance(flat.size)  # type: ignore[attr-defined]
        return noisy.reshape(counts.shape)
