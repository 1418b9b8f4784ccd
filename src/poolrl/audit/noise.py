"""What noise must look like: value by value, number by number, two by two, release by release.

An attack sees what one unit moves, and sees it as a sum. Noise of the right variance can be useless all the same (even
numbers alone, nothing beyond 3σ, the same for two releases): that is found here. Limits are binomial, or follow from
exponential moments (Chernoff), and so they hold for however few releases and however little noise. A sound release
fails any of them once in a million times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from poolrl.arrays import FloatArray, IntArray
from poolrl.audit.evidence import Rows
from poolrl.privacy.noise import discrete_gaussian

# How often a sound release may fail, and the share of each of the seven checks.
LUCK = 1e-6
EACH = LUCK / 7
Law = tuple[IntArray, FloatArray]
Check = Callable[[Rows, Law, float], bool]


def noise_faults(first: Rows, second: Rows, variance: float) -> list[str]:
    """What is wrong with the noise of the two logs' releases, (releases, numbers) each."""
    law, both = discrete_gaussian(math.sqrt(variance)), np.concatenate([first, second])
    # In each log, for what is too much in one and too little in the other makes up for it; in both, to see more.
    looks = first, second, both
    found = [fault for fault, check in CHECKS.items() if any(check(each, law, EACH / len(looks)) for each in looks)]
    if _coupled(first, second, law, EACH):
        found.append("two releases share the noise of a number")
    return found


def _misfits(noise: Rows, law: Law, luck: float) -> bool:
    """Whether a value, or whatever lies so far out, is too frequent or too rare: for a number, or for all together."""
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
    """Whether any of these counts is too small or too large for a binomial one."""
    rarest = np.minimum(binom.cdf(seen, trials, chance), binom.sf(seen - 1, trials, chance))
    return bool((rarest < luck / 2 / max(1, seen.size)).any())


def _at_least(of: NDArray[Any]) -> NDArray[Any]:
    """Out of what there is of each value, what there is of |value| ≥ 1, 2, ..."""
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
    """Whether the product of two numbers is not zero on average: E exp(txy) ≤ E exp(t²x²σ²/2)."""
    support, weights = law
    releases, numbers = noise.shape
    pairs, variance = np.triu_indices(numbers, 1), _parameter(law)
    needed = math.log(2 * max(1, len(pairs[0])) / luck) / releases
    # Beyond 0.7 the sum over x would not end within the support.
    tried = np.geomspace(1e-4, 0.7, 200) / variance
    squares = support.astype(np.float64) ** 2
    moments = [math.log(float(weights @ np.exp(t**2 * variance / 2 * squares))) for t in tried]
    limit = min((moment + needed) / t for t, moment in zip(tried, moments, strict=True))
    values = noise.astype(np.float64)
    return bool((np.abs((values.T @ values / releases)[pairs]) > limit).any())


def _are_alike(noise: Rows, law: Law, luck: float) -> bool:
    """Whether two numbers are large, or small, at the same time, whatever their signs."""
    releases, numbers = noise.shape
    beyond = _at_least(law[1])
    cut = int(np.argmin(np.abs(beyond - 0.5)))
    large = (np.abs(noise) > cut).astype(np.float64)
    alone = large.sum(axis=0)
    alike = np.rint(releases - alone[:, None] - alone + 2 * (large.T @ large))[np.triu_indices(numbers, 1)]
    return _unlikely(alike, releases, float(beyond[cut] ** 2 + (1 - beyond[cut]) ** 2), luck)


def _repeated(noise: Rows, law: Law, luck: float) -> bool:
    """Whether any two releases agree in so many neighbouring numbers that it can hardly be chance."""
    releases, numbers = noise.shape
    agree = float(law[1] @ law[1])
    ways = releases * (releases - 1) / 2 * numbers
    width = math.ceil(math.log(luck / ways) / math.log(agree)) if agree < 1 else numbers + 1
    if width > numbers:  # too little noise to tell
        return False
    for start in range(0, numbers - width + 1, max(1, width // 3)):
        block = np.ascontiguousarray(noise[:, start : start + width])
        if len(set(block.view(f"V{block.itemsize * width}").ravel().tolist())) < releases:
            return True
    return False


def _coupled(first: Rows, second: Rows, law: Law, luck: float) -> bool:
    """Whether a number is equal too often in two releases of which one followed the other, or is its log's twin."""
    pairs = [(each[start:-1:2], each[start + 1 :: 2]) for each in (first, second) for start in (0, 1)]
    agree = float(law[1] @ law[1])
    for one, other in (*pairs, (first, second)):
        both = min(len(one), len(other))
        if _unlikely((one[:both] == other[:both]).sum(axis=0), both, agree, luck / (len(pairs) + 1)):
            return True
    return False


def _parameter(law: Law) -> float:
    """σ², which is a little more than the variance: p(1)/p(0) = exp(−1/2σ²)."""
    middle = len(law[1]) // 2
    return float(-1 / (2 * math.log(law[1][middle + 1] / law[1][middle])))


CHECKS: dict[str, Check] = {
    "the noise of a number has another distribution than is stated": _misfits,
    "the noise of a number is not centred": _off_centre,
    "a number has less noise than is stated": _too_small,
    "two numbers share noise": _go_together,
    "two numbers share the size of their noise": _are_alike,
    "two releases have the same noise": _repeated,
}
