"""What noise must look like: value by value, number by number, two by two, release by release.

An attack sees what one unit moves, and sees it as a sum. Noise of the right variance can be useless all the same (even
numbers alone, nothing beyond 3σ, the same for two releases): that is found here. Limits are binomial, or follow from
exponential moments (Chernoff), and so they hold for however few releases and however little noise. A sound release
fails any of them once in a million times.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from poolrl.arrays import FloatArray, IntArray
from poolrl.audit.evidence import Rows
from poolrl.privacy.noise import discrete_gaussian

# How often a sound release may fail, and the share of each of the five checks.
LUCK = 1e-6
EACH = LUCK / 5
Law = tuple[IntArray, FloatArray]


def noise_faults(first: Rows, second: Rows, variance: float) -> list[str]:
    """What is wrong with the noise of the two logs' releases, (releases, numbers) each."""
    law, both = discrete_gaussian(math.sqrt(variance)), np.concatenate([first, second])
    # Values are looked at in each log, for what is too much in one and too little in the other would make up for it.
    checks = {
        "the noise of a number has another distribution than is stated": any(_misfits(e, law) for e in (first, second)),
        "the noise of a number is not centred": _off_centre(both, variance),
        "a number has less noise than is stated": _too_small(both, law),
        "two numbers share noise": _related(both, law, variance),
        "two releases have the same noise": _repeated(both, law),
    }
    return [fault for fault, found in checks.items() if found]


def _misfits(noise: Rows, law: Law) -> bool:
    """Whether a value, or whatever lies so far out, is too frequent or too rare: for a number, or for all together."""
    support, weights = law
    reach, (releases, numbers) = int(support[-1]), noise.shape
    places = np.clip(noise, -reach, reach) + reach
    histogram = np.stack([np.bincount(column, minlength=len(support)) for column in places.T])
    histogram = np.concatenate([histogram, histogram.sum(axis=0, keepdims=True)])
    trials = np.append(np.full(numbers, releases), releases * numbers)[:, None]
    seen = np.concatenate([histogram, _at_least(histogram)], axis=1)
    chance = np.minimum(np.concatenate([weights, _at_least(weights)]), 1.0)
    rarest = np.minimum(binom.cdf(seen, trials, chance), binom.sf(seen - 1, trials, chance))
    return bool(rarest.min() < EACH / 2 / 2 / seen.size)  # two logs, two sides


def _at_least(of: NDArray[Any]) -> NDArray[Any]:
    """Out of what there is of each value, what there is of |value| ≥ 1, 2, ..."""
    middle = of.shape[-1] // 2
    folded = of[..., middle + 1 :] + of[..., :middle][..., ::-1]
    return folded[..., ::-1].cumsum(axis=-1)[..., ::-1]


def _off_centre(noise: Rows, variance: float) -> bool:
    """E exp(tx) ≤ exp(t²σ²/2) for discrete Gaussians as well (Canonne, Kamath and Steinke 2020)."""
    releases, numbers = noise.shape
    limit = math.sqrt(2 * variance * math.log(2 * numbers / EACH) / releases)
    return bool((np.abs(noise.mean(axis=0)) > limit).any())


def _too_small(noise: Rows, law: Law) -> bool:
    """P(mean x² ≤ s) ≤ exp(n (ts + log E exp(−tx²))) for every t > 0."""
    support, weights = law
    releases, numbers = noise.shape
    needed = math.log(numbers / EACH) / releases
    squares = support.astype(np.float64) ** 2
    tried = np.geomspace(1e-4, 10, 200) / float(weights @ squares)
    limits = [(-math.log(float(weights @ np.exp(-t * squares))) - needed) / t for t in tried]
    return bool(((noise.astype(np.float64) ** 2).mean(axis=0) < max(limits)).any())


def _related(noise: Rows, law: Law, variance: float) -> bool:
    """Whether two numbers go together: in sign and size, by their product, or in size alone."""
    support, weights = law
    releases, numbers = noise.shape
    pairs = np.triu_indices(numbers, 1)
    luck = EACH / 2 / 2 / max(1, len(pairs[0]))
    # E exp(txy) ≤ E exp(t²x²σ²/2); beyond 0.7 the sum over x would not end within the support.
    tried = np.geomspace(1e-4, 0.7, 200) / variance
    squares = support.astype(np.float64) ** 2
    moments = [math.log(float(weights @ np.exp(t**2 * variance / 2 * squares))) for t in tried]
    limit = min((moment - math.log(luck) / releases) / t for t, moment in zip(tried, moments, strict=True))
    values = noise.astype(np.float64)
    if (np.abs((values.T @ values / releases)[pairs]) > limit).any():
        return True
    beyond = _at_least(weights)
    cut = int(np.argmin(np.abs(beyond - 0.5)))
    large = (np.abs(noise) > cut).astype(np.float64)
    together, one = large.T @ large, large.sum(axis=0)
    alike = np.rint(releases - one[:, None] - one + 2 * together)[pairs]
    chance = beyond[cut] ** 2 + (1 - beyond[cut]) ** 2
    rarest = np.minimum(binom.cdf(alike, releases, chance), binom.sf(alike - 1, releases, chance))
    return bool((rarest < luck).any())


def _repeated(noise: Rows, law: Law) -> bool:
    """Whether two releases agree in as many numbers as can hardly be chance."""
    _, weights = law
    releases, numbers = noise.shape
    ways = releases * (releases - 1) / 2 * numbers
    agree = float(weights @ weights)
    width = math.ceil(math.log(EACH / ways) / math.log(agree)) if agree < 1 else math.inf
    if width > numbers:  # too little noise to tell
        return False
    blocks = np.array_split(noise, numbers // width, axis=1)
    as_bytes = (np.ascontiguousarray(block).view(f"V{block.itemsize * block.shape[1]}").ravel() for block in blocks)
    return any(len(set(rows.tolist())) < releases for rows in as_bytes)
