"""Secure noise: exact discrete Gaussians from a stream that nobody can foresee or repeat."""

from __future__ import annotations

import re
from fractions import Fraction
from importlib.metadata import version

import numpy as np

from poolrl.checks import IntArray
from poolrl.privacy.noise.randomness import OneProcess, Stream
from poolrl.privacy.noise.source import Sampler, in_cell_blocks, scale_above

# Cells drawn by one thread at a time: enough that starting it does not matter.
SECURE_BLOCK, OPENDP_BLOCK = 2**16, 2**12
# Variances for which a table is made, in half a second at the most; OpenDP draws the others.
TABLED = Fraction(1, 100), Fraction(2**24)
# OpenDP's discrete Gaussian was biased before this version, at σ = 2 by 5% of P(X = 0) (opendp/opendp#2639).
UNBIASED = (0, 14, 2)


def refuse_biased(opendp: str) -> None:
    """Refuse a version of OpenDP whose noise is not what it says."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", opendp)[:3])
    if numbers < UNBIASED:
        raise ImportError(f"OpenDP {opendp} draws biased noise: install opendp >= {'.'.join(map(str, UNBIASED))}")


refuse_biased(version("opendp"))


class SecureNoise:
    """Exact noise from a stream that nobody can foresee or repeat: what a private release uses."""

    __slots__ = ()  # nothing of it can be replaced by something else

    def begin(self) -> Sampler:
        """A stream with a key of its own."""
        return _SecureSampler()


class _SecureSampler:
    def __init__(self) -> None:
        self._stream = Stream()

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        if variance == 0:
            return counts.copy()
        first = self._stream.take(counts.size)  # refused after a fork, whoever draws
        if not TABLED[0] <= variance <= TABLED[1]:
            return _add_by_opendp(counts, variance)
        from poolrl.privacy.noise.inversion import inversion

        table, noisy = inversion(variance), counts.astype(np.int64).ravel()

        def some(part: slice) -> None:
            table.add(self._stream.words(first + part.start, part.stop - part.start), noisy[part])

        in_cell_blocks(some, noisy.size, SECURE_BLOCK)
        return noisy.reshape(counts.shape)


class OpenDPNoise:
    """The same distribution drawn by OpenDP, a thousand times slower: for who would rather rely on its sampler."""

    __slots__ = ()

    def begin(self) -> Sampler:
        """OpenDP keeps no state of ours, so every release is fresh."""
        return _OpenDPSampler()


class _OpenDPSampler:
    def __init__(self) -> None:
        self._owner = OneProcess()

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        self._owner.check()
        return counts.copy() if variance == 0 else _add_by_opendp(counts, variance)


def _add_by_opendp(counts: IntArray, variance: Fraction) -> IntArray:
    import opendp.prelude as dp

    # T=int would mean 32 bits in OpenDP, which saturate silently.
    cells = dp.vector_domain(dp.atom_domain(T="i64"))
    dp.enable_features("contrib")
    measurement = dp.m.make_gaussian(cells, dp.l2_distance(T="f64"), scale=scale_above(variance))
    flat = counts.ravel()
    noisy = np.empty_like(flat)

    def some(part: slice) -> None:
        noisy[part] = measurement(flat[part].tolist())

    in_cell_blocks(some, flat.size, OPENDP_BLOCK)  # cells are independent, and OpenDP lets other threads run
    return noisy.reshape(counts.shape)


# Whose noise protects. What another class says of itself is not believed, not even a subclass.
SECURE = (SecureNoise, OpenDPNoise)
