"""What a fit needs of its noise.

Guarantee: N_ℤ(0, σ²) added to integer counts of ℓ₂-sensitivity Δ₂ is (Δ₂² / 2σ²)-zCDP
(Canonne, Kamath and Steinke 2020, Theorem 4), with no error from floating point.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from poolrl.checks import FloatArray, IntArray

RandomWords = NDArray[np.uint64]


class NoiseSource(Protocol):
    """Where a fit takes its noise from."""

    def begin(self) -> Sampler:
        """Start one release; every draw of it comes from the sampler returned."""


class Sampler(Protocol):
    """One release's stream of noise."""

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """Counts plus independent discrete Gaussian noise of at least `variance` in every cell."""


def in_cell_blocks(work: Callable[[slice], None], size: int, block: int) -> None:
    """Call `work` on slices that together cover all cells, with one thread for every core."""
    parts = [slice(start, min(start + block, size)) for start in range(0, size, block)]
    if len(parts) < 2:
        list(map(work, parts))
        return
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        list(threads.map(work, parts))


def scale_above(variance: Fraction) -> float:
    """The least double σ with σ² ≥ variance in exact arithmetic: rounding must never reduce the noise."""
    scale = math.sqrt(variance)
    while Fraction(scale) ** 2 < variance:
        scale = math.nextafter(scale, math.inf)
    return scale


def discrete_gaussian(scale: float) -> tuple[IntArray, FloatArray]:
    """The support and probabilities of N_ℤ(0, scale²), up to tails below double precision."""
    reach = math.ceil(scale * 9) + 1
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (support / scale) ** 2)
    return support, weights / weights.sum()
