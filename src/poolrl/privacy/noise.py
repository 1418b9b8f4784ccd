"""Noise: exact discrete Gaussians, unpredictable for production, seeded for dry runs.

Guarantee: N_ℤ(0, σ²) added to integer counts of ℓ₂-sensitivity Δ₂ is (Δ₂² / 2σ²)-zCDP
(Canonne, Kamath and Steinke 2020, Theorem 4), with no error from floating point.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from importlib.metadata import version
from typing import Protocol

import numpy as np

from poolrl.arrays import FloatArray, IntArray, whole
from poolrl.privacy.randomness import OneProcess, Stream

# Cells drawn by one thread at a time: enough that starting it does not matter.
SECURE_BLOCK, OPENDP_BLOCK, SEEDED_BLOCK = 2**16, 2**12, 2**17
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


class NoiseSource(Protocol):
    """Where a fit takes its noise from."""

    def begin(self) -> Sampler:
        """Start one release; every draw of it comes from the sampler returned."""


class Sampler(Protocol):
    """One release's stream of noise."""

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """Counts plus independent discrete Gaussian noise of at least `variance` in every cell."""


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
        from poolrl.privacy.inversion import inversion

        table, noisy = inversion(variance), counts.astype(np.int64).ravel()

        def some(part: slice) -> None:
            table.add(self._stream.words(first + part.start, part.stop - part.start), noisy[part])

        _in_blocks(some, noisy.size, SECURE_BLOCK)
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

    _in_blocks(some, flat.size, OPENDP_BLOCK)  # cells are independent, and OpenDP lets other threads run
    return noisy.reshape(counts.shape)


# Whose noise protects. What another class says of itself is not believed, not even a subclass.
SECURE = (SecureNoise, OpenDPNoise)


class SeededNoise:
    """Reproducible noise of the same distribution, for dry runs. NOT PRIVATE: the seed gives it away.

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
        if scale > 200:  # the grid of integers is then far finer than the noise
            return counts + np.rint(self._rng.normal(0.0, scale, counts.shape)).astype(np.int64)
        support, weights = discrete_gaussian(scale)
        edges = np.cumsum(weights)[:-1]
        flat, stream = counts.ravel(), self._rng.bit_generator
        noisy, here = np.empty_like(flat), stream.state

        def some(part: slice) -> None:
            # One cell takes one number of the stream, so a block begins where as many numbers were taken.
            own = np.random.PCG64()
            own.state = here  # type: ignore[assignment]
            own.advance(part.start)
            uniform = np.random.Generator(own).random(flat[part].shape)
            noisy[part] = flat[part] + support[np.searchsorted(edges, uniform, side="right")]

        _in_blocks(some, flat.size, SEEDED_BLOCK)
        stream.advance(flat.size)  # type: ignore[attr-defined]
        return noisy.reshape(counts.shape)


def _in_blocks(work: Callable[[slice], None], size: int, block: int) -> None:
    """Call `work` on slices that together are all cells, on a thread for every core."""
    parts = [slice(start, min(start + block, size)) for start in range(0, size, block)]
    if len(parts) < 2:
        list(map(work, parts))
        return
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        list(threads.map(work, parts))


def discrete_gaussian(scale: float) -> tuple[IntArray, FloatArray]:
    """The support and probabilities of N_ℤ(0, scale²), up to tails below double precision."""
    reach = math.ceil(scale * 9) + 1
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (support / scale) ** 2)
    return support, weights / weights.sum()


def scale_above(variance: Fraction) -> float:
    """The least double σ with σ² ≥ variance in exact arithmetic: rounding must never buy less noise."""
    scale = math.sqrt(variance)
    while Fraction(scale) ** 2 < variance:
        scale = math.nextafter(scale, math.inf)
    return scale
