"""Tests of the noise: of single values, of each number, of numbers at every lag, and of pairs of releases.

An attack sees only the sum of what one unit moves. Noise of the right variance can still be useless: even numbers only,
nothing beyond 3σ, the same for two products or two releases. Such noise is found here, over all cells jointly. Limits
follow from exponential moments (Chernoff), so they hold for few releases and for little noise. A sound release fails
once in a million times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import xlogy

from poolrl.audit.tally import PAIRINGS, Noise, Sums, Windows, added, matchings
from poolrl.checks import FloatArray
from poolrl.privacy.noise.seeded import discrete_gaussian

# How often a sound release may fail, and the share of each of the twelve checks: eleven here, one in `parts`.
LUCK = 1e-6
EACH = LUCK / 12
# Numbers that are looked at together: a block of them needs some 100 MB.
NUMBERS_AT_ONCE = 2**20
NoiseCheck = Callable[[Sums, Noise, float], bool]


def judge_noise(
    first: Sums, second: Sums, twins: Sums, windows: list[Windows], about: Noise, *, parts: int = 1
) -> list[str]:
    """The faults by the sums of all blocks: of each log, and of the same release of both. One of so many `parts`."""
    luck = EACH / parts
    # In each log, because faults of the two logs may cancel; and in both together, because more releases show more.
    looks = first, second, added(first, second)
    found = [fault for fault, check in CHECKS.items() if any(check(each, about, luck / len(looks)) for each in looks)]
    if Windows.repeated(windows):
        found.append("two releases have the same noise")
    pairs = [(sums, name) for sums in (first, second) for name in PAIRINGS[:2]] + [(twins, PAIRINGS[2])]
    if any(_coupled(sums, name, about, luck / len(pairs)) for sums, name in pairs):
        found.append("two releases share the noise of a number")
    return found


def _misfits(sums: Sums, about: Noise, luck: float) -> bool:
    """Whether a value, or all values beyond it, are too frequent or too rare: for one number, or for all together."""
    releases, weights = int(sums["releases"]), about.law[1]
    pooled = np.concatenate([sums["values"], _at_least(sums["values"])])
    chance = np.concatenate([weights, _at_least(weights)])
    if _unlikely(pooled, releases * about.numbers, chance, luck / 2):
        return True
    return _unlikely(sums["buckets"], releases, np.bincount(about.bucket_of, weights=weights), luck / 2)


def _unlikely(seen: NDArray[Any], trials: int, chance: NDArray[Any] | float, luck: float) -> bool:
    """Whether any of these counts is too small or too large to be binomial: P ≤ exp(−n KL(seen/n ‖ chance))."""
    if trials == 0:
        return False
    share, chance = seen / trials, np.clip(chance, 1e-300, 1 - 1e-16)
    surprise = xlogy(share, share / chance) + xlogy(1 - share, (1 - share) / (1 - chance))
    return bool((trials * surprise > math.log(2 * max(1, seen.size) / luck)).any())


def _at_least(of: NDArray[Any]) -> NDArray[Any]:
    """Counts or probabilities of |value| ≥ 1, 2, ... from those of each value."""
    middle = of.shape[-1] // 2
    folded = of[..., middle + 1 :] + of[..., :middle][..., ::-1]
    return folded[..., ::-1].cumsum(axis=-1)[..., ::-1]


def _off_centre(sums: Sums, about: Noise, luck: float) -> bool:
    """E exp(tx) ≤ exp(t²σ²/2) for discrete Gaussians as well (Canonne, Kamath and Steinke 2020)."""
    releases = int(sums["releases"])
    limit = math.sqrt(2 * _parameter(about) * math.log(2 * about.numbers / luck) / releases)
    return bool((np.abs(sums["sum"]) / releases > limit).any())


def _too_small(sums: Sums, about: Noise, luck: float) -> bool:
    """The variance of one number."""
    low, _ = moment_limits(about, 2, int(sums["releases"]), luck / about.numbers)
    return bool((sums["squares"] / int(sums["releases"]) < low).any())


def _wrong_variance(sums: Sums, about: Noise, luck: float) -> bool:
    """The variance of all numbers together, where a percent shows in some thousand releases."""
    draws = int(sums["releases"]) * about.numbers
    low, high = moment_limits(about, 2, draws, luck)
    return not low <= float(sums["squares"].sum()) / draws <= high


def _wrong_fourth(sums: Sums, about: Noise, luck: float) -> bool:
    """The fourth moment: of one number, and of all together."""
    releases = int(sums["releases"])
    for fourths, draws in ((sums["fourths"], releases), (sums["fourths"].sum(keepdims=True), releases * about.numbers)):
        low, high = moment_limits(about, 4, draws, luck / 2 / fourths.size)
        if ((fourths / draws < low) | (fourths / draws > high)).any():
            return True
    return False


def moment_limits(about: Noise, power: int, draws: int, luck: float) -> tuple[float, float]:
    """Between which the mean of xᵖ over so many draws nearly always lies, for p = 2 or 4.

    P(mean ≤ s) ≤ exp(n (ts + log E exp(−txᵖ))) and P(mean ≥ s) ≤ exp(n (log E exp(txᵖ) − ts)), for every t > 0.
    """
    needed, (down, falls, up, rises) = math.log(2 / luck) / draws, _moment_curves(about.variance, power)
    return float(((-falls - needed) / down).max()), float(((rises + needed) / up).min())


@lru_cache(maxsize=8)
def _moment_curves(variance: float, power: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """t and log E exp(−txᵖ), and t and log E exp(txᵖ)."""
    support, weights = discrete_gaussian(math.sqrt(variance))
    raised = support.astype(np.float64) ** power
    usual = max(float(weights @ raised), 1e-300)
    down = np.geomspace(1e-7, 10, 200) / usual
    # Beyond it exp(txᵖ) would overflow at the last value.
    up = np.geomspace(min(1e-7 / usual, 1e-7), 600 / float(raised[-1]), 200)
    falls, rises = (np.array([math.log(float(weights @ np.exp(t * raised))) for t in each]) for each in (-down, up))
    return down, falls, up, rises


def _go_together(sums: Sums, about: Noise, luck: float) -> bool:
    """Whether the mean product of two numbers is not zero, where every pair is looked at."""
    if not about.paired:
        return False
    releases, pairs = int(sums["releases"]), np.triu_indices(about.numbers, 1)
    products = sums["pairs of products"][pairs] / releases
    return bool((np.abs(products) > mean_products(about, np.array(releases), luck / max(1, len(pairs[0])))).any())


def mean_products(about: Noise, draws: NDArray[Any], luck: float) -> FloatArray:
    """A limit that the mean of xy over so many draws rarely exceeds, if all x and y are independent.

    E exp(txy) ≤ E exp(t²x²σ²/2), because y is sub-Gaussian.
    """
    tried, moments = _product_curve(about)
    needed = math.log(2 / luck) / np.maximum(draws, 1)
    return np.asarray(np.min((moments + needed[..., None]) / tried, axis=-1))


@lru_cache(maxsize=4)
def _product_curve(about: Noise) -> tuple[FloatArray, FloatArray]:
    """t, and the bound on log E exp(txy)."""
    support, weights = about.law
    variance = _parameter(about)
    # Beyond 0.7 the sum over x would not end within the support.
    tried = np.geomspace(1e-6, 0.7, 200) / variance
    squares = support.astype(np.float64) ** 2
    return tried, np.array([math.log(weights @ np.exp(t**2 * variance / 2 * squares)) for t in tried])


def _are_alike(sums: Sums, about: Noise, luck: float) -> bool:
    """Whether two numbers tend to be large, or small, at the same time, with any signs."""
    if not about.paired:
        return False
    releases, pairs = int(sums["releases"]), np.triu_indices(about.numbers, 1)
    limit = _mean_of_sizes(about, np.array(releases), luck / max(1, len(pairs[0])))
    return bool((np.abs(sums["pairs of sizes"][pairs]) / releases > limit).any())


def _mean_of_sizes(about: Noise, draws: NDArray[Any], luck: float) -> FloatArray:
    """The same limit for whether numbers are large, less how often: bounded, and zero on average (Hoeffding)."""
    most = max(about.large[1], 1 - about.large[1]) ** 2
    return np.asarray(most * np.sqrt(2 * math.log(2 / luck) / np.maximum(draws, 1)))


def _lagged(name: str, limits: Callable[[Noise, NDArray[Any], float], FloatArray]) -> NoiseCheck:
    def check(sums: Sums, about: Noise, luck: float) -> bool:
        """Whether numbers at the same lag go together, summed over all cells: few releases show what they all share."""
        releases, numbers = int(sums["releases"]), about.numbers
        flat = _by_lag(sums[f"flat {name}"], numbers)[1:numbers]
        pairs = matchings(numbers, np.arange(1, numbers))
        along = sums[f"axis {name}"]
        more = [matchings(s[axis], lag) * (math.prod(s) // s[axis]) for _, s, axis, lag in about.lags]
        found = np.concatenate([flat, along])
        draws = np.concatenate([pairs.reshape(-1, 2), np.array(more).reshape(-1, 2)]) * releases
        # One limit for each of the two sets of independent products.
        limit = (limits(about, draws, luck / 2 / max(1, len(found))) * draws).sum(axis=-1)
        return bool((np.abs(found) > limit).any())

    return check


def _by_lag(spectrum: NDArray[Any], numbers: int) -> FloatArray:
    """The sums of products at each lag, 0, 1, ..., from what rows have at each frequency."""
    return np.asarray(fft.irfft(spectrum, n=fft.next_fast_len(2 * numbers, real=True)))


def _coupled(sums: Sums, pairing: str, about: Noise, luck: float) -> bool:
    """Whether paired releases depend on each other.

    A number is then equal too often, or a product of two numbers, or of all numbers at a lag, is not zero on average.
    """
    both, numbers = int(sums[f"{pairing}: releases"]), about.numbers
    if both == 0:
        return False
    if _unlikely(sums[f"{pairing}: equal"], both, float(about.law[1] @ about.law[1]), luck / 3):
        return True
    lags = _by_lag(sums[f"{pairing}: lags"], numbers)
    there, back = lags[:numbers], lags[len(lags) - numbers + 1 :][::-1]
    found = np.concatenate([there, back])
    draws = both * np.concatenate([numbers - np.arange(numbers), numbers - np.arange(1, numbers)])
    if (np.abs(found) > mean_products(about, draws, luck / 3 / len(found)) * draws).any():
        return True
    if not about.paired:
        return False
    limit = mean_products(about, np.array(both), luck / 3 / numbers**2)
    return bool((np.abs(sums[f"{pairing}: pairs"]) / both > limit).any())


def _parameter(about: Noise) -> float:
    """σ² by p(1)/p(0) = exp(−1/2σ²). It is slightly larger than the variance."""
    weights, middle = about.law[1], about.reach
    return float(-1 / (2 * math.log(weights[middle + 1] / weights[middle])))


CHECKS: dict[str, NoiseCheck] = {
    "the noise of a number does not have the stated distribution": _misfits,
    "the noise of a number is not centred": _off_centre,
    "a number has less noise than is stated": _too_small,
    "the noise of all numbers together has another variance than is stated": _wrong_variance,
    "the noise has another fourth moment than is stated": _wrong_fourth,
    "two numbers share noise": _go_together,
    "two numbers share the size of their noise": _are_alike,
    "numbers at a lag share noise": _lagged("products", mean_products),
    "numbers at a lag share the size of their noise": _lagged("sizes", _mean_of_sizes),
}
