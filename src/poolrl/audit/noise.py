"""Tests of the noise: of single values, of each number, of pairs of numbers, and of pairs of releases.

An attack sees only the sum of what one unit moves. Noise of the right variance can still be useless: even numbers only,
nothing beyond 3σ, the same for two releases. Such noise is found here. Limits are binomial, or follow from exponential
moments (Chernoff), so they hold for few releases and for little noise. A sound release fails once in a million times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from poolrl.audit.evidence import Rows
from poolrl.checks import FloatArray, IntArray
from poolrl.privacy.noise.seeded import discrete_gaussian

# How often a sound release may fail, and the share of each of the seven checks.
LUCK = 1e-6
EACH = LUCK / 7
# For windows of neighbouring numbers: the most that are compared, and an odd factor to hash them.
MOST_WINDOWS, FACTOR = 2**22, 0x9E3779B97F4A7C15
Law = tuple[IntArray, FloatArray]
NoiseCheck = Callable[[Rows, Law, float], bool]


def noise_faults(first: Rows, second: Rows, variance: float) -> list[str]:
    """The faults of the noise in the two logs' releases, (releases, numbers) each."""
    law, both = discrete_gaussian(math.sqrt(variance)), np.concatenate([first, second])
    # In each log, because faults of the two logs may cancel; and in both together, because more releases show more.
    looks = first, second, both
    found = [fault for fault, check in CHECKS.items() if any(check(each, law, EACH / len(looks)) for each in looks)]
    if _repeated(both, law, EACH):
        found.append("two releases have the same noise")
    if _coupled(first, second, law, EACH):
        found.append("two releases share the noise of a number")
    return found


def _misfits(noise: Rows, law: Law, luck: float) -> bool:
    """Whether a value, or all values beyond it, are too frequent or too rare: for one number, or for all together."""
    support, weights = law
    reach, (releases, numbers) = int(support[-1]), noise.shape
    places = np.clip(noise, -reach, reach) + reach
    histogram = np.stack([np.bincount(column, minlength=len(support)) for column in places.T])
    histogram = np.concatenate([histogram, histogram.sum(axis=0, keepdims=True)])
    trials = np.append(np.full(numbers, releases), releases * numbers)[:, None]
    seen = np.concatenate([histogram, _at_least(histogram)], axis=1)
    chance = np.minimum(np.concatenate([weights, _at_least(weights)]), 1.0)
    return _unlikely(seen, trials, chance, luck)


def _unlikely(seen: NDArray[Any], trials: NDArray[Any] | int, chance: FloatArray | float, luck: float) -> bool:
    """Whether any of these counts is too small or too large to be binomial."""
    rarest = np.minimum(binom.cdf(seen, trials, chance), binom.sf(seen - 1, trials, chance))
    return bool((rarest < luck / 2 / max(1, seen.size)).any())


def _at_least(of: NDArray[Any]) -> NDArray[Any]:
    """Counts or probabilities of |value| ≥ 1, 2, ... from those of each value."""
    middle = of.shape[-1] // 2
    folded = of[..., middle + 1 :] + of[..., :middle][..., ::-1]
    return folded[..., ::-1].cumsum(axis=-1)[..., ::-1]


def _off_centre(noise: Rows, law: Law, luck: float) -> bool:
    """E exp(tx) ≤ exp(t²σ²/2) for discrete Gaussians as well (Canonne, Kamath and Steinke 2020)."""
    releases, numbers = noise.shape
    limit = math.sqrt(2 * _parameter(law) * math.log(2 * numbers / luck) / releases)
    return bool((np.abs(noise.mean(axis=0)) > limit).any())


def _too_small(noise: Rows, law: Law, luck: float) -> bool:
    """P(mean x² ≤ s) ≤ exp(n (ts + log E exp(−tx²))) for every t > 0."""
    support, weights = law
    releases, numbers = noise.shape
    needed = math.log(numbers / luck) / releases
    squares = support.astype(np.float64) ** 2
    tried = np.geomspace(1e-4, 10, 200) / float(weights @ squares)
    limits = [(-math.log(float(weights @ np.exp(-t * squares))) - needed) / t for t in tried]
    return bool(((noise.astype(np.float64) ** 2).mean(axis=0) < max(limits)).any())


def _go_together(noise: Rows, law: Law, luck: float) -> bool:
    """Whether the mean product of two numbers is not zero."""
    releases, numbers = noise.shape
    values, pairs = noise.astype(np.float64), np.triu_indices(numbers, 1)
    limit = _mean_product(law, releases, luck / max(1, len(pairs[0])))
    return bool((np.abs((values.T @ values / releases)[pairs]) > limit).any())


def _mean_product(law: Law, releases: int, luck: float) -> float:
    """A limit that the mean of xy rarely exceeds, if x and y are independent.

    E exp(txy) ≤ E exp(t²x²σ²/2), because y is sub-Gaussian.
    """
    support, weights = law
    needed, variance = math.log(2 / luck) / releases, _parameter(law)
    # Beyond 0.7 the sum over x would not end within the support.
    tried = np.geomspace(1e-4, 0.7, 200) / variance
    squares = support.astype(np.float64) ** 2
    moments = [math.log(float(weights @ np.exp(t**2 * variance / 2 * squares))) for t in tried]
    return min((moment + needed) / t for t, moment in zip(tried, moments, strict=True))


def _are_alike(noise: Rows, law: Law, luck: float) -> bool:
    """Whether two numbers tend to be large, or small, at the same time, with any signs."""
    releases, numbers = noise.shape
    beyond = _at_least(law[1])
    cut = int(np.argmin(np.abs(beyond - 0.5)))
    large = (np.abs(noise) > cut).astype(np.float64)
    alone = large.sum(axis=0)
    alike = np.rint(releases - alone[:, None] - alone + 2 * (large.T @ large))[np.triu_indices(numbers, 1)]
    return _unlikely(alike, releases, float(beyond[cut] ** 2 + (1 - beyond[cut]) ** 2), luck)


def _repeated(noise: Rows, law: Law, luck: float) -> bool:
    """Whether two releases agree in so many neighbouring numbers, at any places, that it can hardly be chance."""
    releases, numbers = noise.shape
    agree = float(law[1] @ law[1])
    ways = max(1, releases * (releases - 1) / 2) * numbers**2
    width = math.ceil(math.log(luck / ways) / math.log(agree)) if agree < 1 else numbers + 1
    if width > numbers:
        # With so little noise, equal numbers are no evidence.
        return False
    hashes, release, start = _windows(noise, width)
    order = np.argsort(hashes)
    hashes, release, start = hashes[order], release[order], start[order]
    same = (hashes[1:] == hashes[:-1]) & (release[1:] != release[:-1])
    # Hashes may be equal by chance, so the numbers themselves decide.
    for i in np.flatnonzero(same):
        one, other = (noise[release[at], start[at] : start[at] + width] for at in (i, i + 1))
        if (one == other).all():
            return True
    return False


def _windows(noise: Rows, width: int) -> tuple[NDArray[np.uint64], IntArray, IntArray]:
    """Hashes of `width` neighbouring numbers, with the release and the place of each; only some, if there are many.

    The hash itself decides which windows are kept, so two equal windows are both kept or both left out.
    """
    releases, numbers = noise.shape
    values, starts = noise.astype(np.int64).view(np.uint64), numbers - width + 1
    limit = np.uint64(min(2**64 - 1, 2**64 * MOST_WINDOWS // (releases * starts)))
    highest = np.uint64(FACTOR**width % 2**64)
    hashes = np.zeros(releases, dtype=np.uint64)
    found = []
    for end in range(numbers):  # h = Σ x[start + j] factorʷ⁻ʲ, modulo 2⁶⁴
        hashes = (hashes + values[:, end]) * np.uint64(FACTOR)
        if end >= width:
            hashes -= values[:, end - width] * highest * np.uint64(FACTOR)
        if end >= width - 1:
            kept = np.flatnonzero(hashes < limit)
            found.append((hashes[kept], kept, np.full(len(kept), end - width + 1)))
    return tuple(np.concatenate(part) for part in zip(*found, strict=True))  # type: ignore[return-value]


def _coupled(first: Rows, second: Rows, law: Law, luck: float) -> bool:
    """Whether two successive releases of one log, or the same release of both logs, depend on each other.

    A number is then equal too often, or a product of any two numbers is not zero on average.
    """
    pairs = [(each[start:-1:2], each[start + 1 :: 2]) for each in (first, second) for start in (0, 1)]
    pairs.append((first, second))
    agree, luck = float(law[1] @ law[1]), luck / len(pairs) / 2
    for one, other in pairs:
        both = min(len(one), len(other))
        if both == 0:
            continue
        products = one[:both].T.astype(np.float64) @ other[:both].astype(np.float64) / both
        if (np.abs(products) > _mean_product(law, both, luck / products.size)).any():
            return True
        if _unlikely((one[:both] == other[:both]).sum(axis=0), both, agree, luck):
            return True
    return False


def _parameter(law: Law) -> float:
    """σ² by p(1)/p(0) = exp(−1/2σ²). It is slightly larger than the variance."""
    middle = len(law[1]) // 2
    return float(-1 / (2 * math.log(law[1][middle + 1] / law[1][middle])))


CHECKS: dict[str, NoiseCheck] = {
    "the noise of a number does not have the stated distribution": _misfits,
    "the noise of a number is not centred": _off_centre,
    "a number has less noise than is stated": _too_small,
    "two numbers share noise": _go_together,
    "two numbers share the size of their noise": _are_alike,
}
