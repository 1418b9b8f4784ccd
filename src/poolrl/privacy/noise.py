"""Noise: OpenDP's exact discrete Gaussian for production, a seeded one for dry runs.

Guarantee: N_ℤ(0, σ²) added to integer counts of ℓ₂-sensitivity Δ₂ is (Δ₂² / 2σ²)-zCDP
(Canonne, Kamath and Steinke 2020, Theorem 4), with no error from floating point.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Protocol

import numpy as np

from poolrl.arrays import FloatArray, IntArray, whole


class NoiseSource(Protocol):
    """Where a fit takes its noise from."""

    def begin(self) -> Sampler:
        """Start one release; every draw of it comes from the sampler returned."""


class Sampler(Protocol):
    """One release's stream of noise."""

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """Counts plus independent discrete Gaussian noise of at least `variance` in every cell."""


class SecureNoise:
    """OpenDP's exact sampler, seeded by the operating system: what a private release uses."""

    def begin(self) -> Sampler:
        """OpenDP keeps no state of ours, so every release is fresh."""
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """Add exact discrete Gaussian noise."""
        if variance == 0:
            return counts.copy()
        import opendp.prelude as dp

        # T=int would mean 32 bits in OpenDP, which saturate silently.
        cells = dp.vector_domain(dp.atom_domain(T="i64"))
        dp.enable_features("contrib")
        measurement = dp.m.make_gaussian(cells, dp.l2_distance(T="f64"), scale=scale_above(variance))
        noisy = measurement(counts.ravel().tolist())
        return np.asarray(noisy, dtype=np.int64).reshape(counts.shape)


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
        return _SeededSampler(np.random.default_rng([self.seed, 0x9E3779B9]))


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
        draws = np.searchsorted(np.cumsum(weights)[:-1], self._rng.random(counts.shape), side="right")
        return counts + support[draws]


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
