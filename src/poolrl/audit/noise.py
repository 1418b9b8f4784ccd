"""Tests of the noise: of single values, of each number, of numbers at every lag, and of pairs of releases.

An attack sees only the sum of what one unit moves. Noise of the right variance can still be useless: even numbers only,
nothing beyond 3σ, the same for two products or two releases. Such noise is found here, over all cells jointly. Limits
follow from exponential moments (Chernoff), so they hold for few releases and for little noise. A sound release fails
once in a million times.

The noise of a block is (releases, numbers), in the order of the released tables. Blocks are added up, in sums
that fit into memory however many releases there are. A *lag* is a distance at which noise might come again: in flat
order, or along one axis of a table (label, step, product, kind, node).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import xlogy

from poolrl.audit.faults import Rows
from poolrl.checks import FloatArray, IntArray
from poolrl.privacy.noise.seeded import discrete_gaussian

# How often a sound release may fail, and the share of each of the twelve checks: eleven here, one of several tables.
LUCK = 1e-6
EACH = LUCK / 12
# Numbers that are looked at together: a block of them needs some 100 MB.
NUMBERS_AT_ONCE = 2**20
# Up to this many numbers every pair is compared, beyond them every lag.
MOST_PAIRED = 400
# Lags along an axis, and cells of all numbers' histograms together.
MOST_LAGS, MOST_CELLS = 16, 2**17
# For windows of neighbouring numbers: the most that are compared, and odd factors to hash them.
MOST_WINDOWS, FACTORS = 2**20, (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)
# How the releases of one log, or of both, are paired: each of the first with the same one of the second.
PAIRINGS = ("even with odd", "odd with even", "first with second")
Sums = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Noise:
    """Noise as it should be: its tables, their variance, and how many releases are looked at in all."""

    shapes: tuple[tuple[int, ...], ...]
    variance: float
    releases: int

    @cached_property
    def numbers(self) -> int:
        """All numbers of a release."""
        return sum(math.prod(shape) for shape in self.shapes)

    @cached_property
    def law(self) -> tuple[IntArray, FloatArray]:
        """Values from −reach to reach, and their probabilities."""
        return discrete_gaussian(math.sqrt(self.variance))

    @cached_property
    def reach(self) -> int:
        """Nothing lies further out: a value that does is counted here."""
        return int(self.law[0][-1])

    @cached_property
    def bucket_of(self) -> IntArray:
        """In which bucket of a number's histogram each value is counted; with few numbers every value has its own."""
        most = max(16, MOST_CELLS // self.numbers)
        if len(self.law[0]) <= most:
            return np.arange(len(self.law[0]))
        edges = np.cumsum(self.law[1]) - self.law[1] / 2
        return np.unique(np.minimum((edges * most).astype(np.int64), most - 1), return_inverse=True)[1]

    @cached_property
    def large(self) -> tuple[int, float]:
        """The value beyond which noise counts as large, and how often it is: about every other time."""
        middle = self.reach
        beyond = 2 * self.law[1][middle + 1 :][::-1].cumsum()[::-1]
        cut = int(np.argmin(np.abs(beyond - 0.5)))
        return cut, float(beyond[cut])

    def inside(self, rows: Rows) -> Rows:
        """Values within reach."""
        return np.clip(rows, -self.reach, self.reach)

    def sizes(self, rows: Rows) -> NDArray[np.float32]:
        """Whether values are large, less how often they should be."""
        return (np.abs(rows) > self.large[0]).astype(np.float32) - np.float32(self.large[1])

    @cached_property
    def largest_size(self) -> float:
        """The largest of these sizes."""
        return max(self.large[1], 1 - self.large[1])

    @cached_property
    def paired(self) -> bool:
        """Whether every pair of numbers is compared."""
        return self.numbers <= MOST_PAIRED

    @cached_property
    def width(self) -> int:
        """Two releases agree in this many neighbouring numbers, at any places, by a chance of less than 10⁻⁸ in all."""
        agree = float(self.law[1] @ self.law[1])
        ways = max(1, self.releases * (self.releases - 1) / 2) * self.numbers**2
        return math.ceil(math.log(1e-8 / ways) / math.log(agree)) if agree < 1 else self.numbers + 1

    @cached_property
    def lags(self) -> list[tuple[slice, tuple[int, ...], int, int]]:
        """(where the table lies, its shape, axis, lag) of every lag along an axis."""
        lags, start = [], 0
        for shape in merged(self.shapes):
            where = slice(start, start + math.prod(shape))
            start = where.stop
            for axis, length in enumerate(shape):
                # Along the last axis of a large table the flat lags see as much.
                if axis < len(shape) - 1 or len(shape) < 3:
                    lags += [(where, shape, axis, lag) for lag in range(1, min(length, MOST_LAGS + 1))]
        return lags


def merged(shapes: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    """Tables of one shape that follow each other are one table: the transitions of every step."""
    runs = [(shape, len(list(same))) for shape, same in groupby(shapes)]
    return [shape if often == 1 else (often, *shape) for shape, often in runs]


def matchings(length: int, lag: IntArray | int) -> IntArray:
    """How many of the pairs (i, i + lag) are in each of two sets in which no i comes twice: ⌊i/lag⌋ is even or odd.

    The products of a set are independent, so each sum over one set has a limit of its own. (lags, 2) for many lags.
    """
    pairs = length - np.asarray(lag)
    even = pairs // (2 * lag) * lag + np.minimum(pairs % (2 * lag), lag)
    return np.stack([even, pairs - even], axis=-1)


def tally(noise: Rows, about: Noise) -> Sums:
    """The sums of one log's block."""
    releases, numbers = noise.shape
    inside, size = about.inside(noise), about.sizes(noise)
    values = inside.astype(np.float64)
    place, buckets = inside + about.reach, int(about.bucket_of[-1]) + 1
    bucket = about.bucket_of[place] + np.arange(numbers) * buckets
    squares = values**2
    sums: Sums = {
        "releases": np.array(releases),
        "values": np.bincount(place.ravel(), minlength=len(about.law[0])),
        "buckets": np.bincount(bucket.ravel(), minlength=numbers * buckets).reshape(numbers, buckets),
        "sum": noise.sum(axis=0, dtype=np.float64),
        "squares": squares.sum(axis=0),
        "fourths": (squares**2).sum(axis=0),
    }
    waves = {"products": spectrum(values, numbers), "sizes": spectrum(size, numbers)}
    for name, of in (("products", values), ("sizes", size)):
        sums[f"flat {name}"] = (waves[name].real ** 2 + waves[name].imag ** 2).sum(axis=0, dtype=np.float64)
        sums[f"axis {name}"] = _along_axes(of.astype(np.float32), about)
        if about.paired:
            sums[f"pairs of {name}"] = of.T.astype(np.float64) @ of
    for start, pairing in enumerate(PAIRINGS[:2]):
        left, right = slice(start, releases - 1, 2), slice(start + 1, releases, 2)
        sums |= _paired(pairing, inside[left], inside[right], waves["products"][left], waves["products"][right])
    return sums


def tally_of_both(first: Rows, second: Rows, about: Noise) -> Sums:
    """The same release of both logs, number by number and at every lag."""
    both = min(len(first), len(second))
    inside = [about.inside(rows[:both]) for rows in (first, second)]
    return _paired(PAIRINGS[2], *inside, *(spectrum(rows, about.numbers) for rows in inside))


def added(one: Sums, other: Sums) -> Sums:
    """The sums of two blocks."""
    return {name: one[name] + other[name] for name in one} if one else other


def spectrum(values: NDArray[Any], other: int) -> NDArray[np.complex64]:
    """Rows at each frequency, long enough that no lag to a row of `other` numbers comes round again."""
    # Single precision errs by less than a millionth of a variance.
    length = fft.next_fast_len(values.shape[1] + other, real=True)
    return np.asarray(fft.rfft(values.astype(np.float32), n=length, axis=1), dtype=np.complex64)


def _along_axes(values: NDArray[np.float32], about: Noise) -> FloatArray:
    found = []
    for where, shape, axis, lag in about.lags:
        table = np.moveaxis(values[:, where].reshape(-1, *shape), axis + 1, 0)
        found.append(float(np.vdot(np.ascontiguousarray(table[:-lag]), np.ascontiguousarray(table[lag:]))))
    return np.array(found)


def _paired(pairing: str, one: Any, other: Any, first: Any, second: Any) -> Sums:
    """The evidence of pairs of releases, by their spectra: products, and how often each number is equal."""
    both = min(len(one), len(other))
    equal = {f"{pairing}: equal": (one[:both] == other[:both]).sum(axis=0)}
    return equal | products(pairing, one[:both], other[:both], first[:both], second[:both])


def products(name: str, one: Any, other: Any, first: Any, second: Any) -> Sums:
    """Sums of products of paired rows, by their spectra: at every lag, and of every two places if there are few."""
    sums: Sums = {
        f"{name}: releases": np.array(len(one)),
        f"{name}: lags": (first.conj() * second).sum(axis=0, dtype=np.complex128),
    }
    if one.shape[1] * other.shape[1] <= MOST_PAIRED**2:
        sums[f"{name}: pairs"] = one.T.astype(np.float64) @ other.astype(np.float64)
    return sums


@dataclass(frozen=True)
class Windows:
    """Hashes (twice 64 bits) of stretches of noise, and to which release each belongs. Only some, if there are many.

    The hash itself decides which stretches are kept, so two equal ones are both kept or both left out.
    """

    hashes: NDArray[np.uint64]  # (kept, 2)
    release: IntArray

    @classmethod
    def of(cls, noise: Rows, about: Noise, *, first_release: int) -> Windows:
        """Those of a block, whose releases have the numbers first_release, first_release + 1, ..."""
        numbers = noise.shape[1]
        width, starts = about.width, numbers - about.width + 1
        if starts < 1:
            # With as little noise as this, equal numbers are no evidence.
            return cls(np.empty((0, 2), dtype=np.uint64), np.empty(0, dtype=np.int64))
        limit = np.uint64(min(2**64 - 1, 2**64 * MOST_WINDOWS // (about.releases * starts)))
        hashes = [_window_hashes(noise, width, factor) for factor in FACTORS]
        kept = np.nonzero(_mixed(hashes[0]) < limit)
        return cls(np.stack([each[kept] for each in hashes], axis=-1), kept[0] + first_release)

    @staticmethod
    def repeated(blocks: list[Windows]) -> bool:
        """Whether two releases share a stretch."""
        hashes = np.concatenate([each.hashes for each in blocks])
        release = np.concatenate([each.release for each in blocks])
        order = np.argsort(hashes[:, 0])
        hashes, release = hashes[order], release[order]
        same = (hashes[1:] == hashes[:-1]).all(axis=1) & (release[1:] != release[:-1])
        return bool(same.any())


def _window_hashes(noise: Rows, width: int, factor: int) -> NDArray[np.uint64]:
    """Σⱼ x[start + j] factorʲ modulo 2⁶⁴ for every start, by differences of running sums."""
    numbers = noise.shape[1]
    powers = np.cumprod(np.full(numbers, factor, dtype=np.uint64)) * np.uint64(pow(factor, -1, 2**64))
    inverse = np.cumprod(np.full(numbers, pow(factor, -1, 2**64), dtype=np.uint64)) * np.uint64(factor)
    running = np.cumsum(noise.astype(np.int64).view(np.uint64) * powers, axis=1)
    before = np.concatenate([np.zeros((len(noise), 1), dtype=np.uint64), running[:, :-width]], axis=1)
    return (running[:, width - 1 :] - before) * inverse[: numbers - width + 1]


def _mixed(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hashes in another order (the finaliser of MurmurHash3): those of small numbers must not all be small."""
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, 1)):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    return hashes


NoiseCheck = Callable[[Sums, Noise, float], bool]
Limit = Callable[[NDArray[Any], float], FloatArray]
Limits = Callable[[Noise, NDArray[Any], float], FloatArray]


def judge_noise(
    first: Sums, second: Sums, twins: Sums, windows: list[Windows], about: Noise, *, parts: int = 1
) -> list[str]:
    """The faults by the sums of all blocks: of each log, and of the same release of both. One of several `parts`."""
    luck = EACH / parts
    # In each log, because faults of the two logs may cancel; and in both together, because more releases show more.
    looks = first, second, added(first, second)
    faults = [fault for fault, check in CHECKS.items() if any(check(sums, about, luck / len(looks)) for sums in looks)]
    if Windows.repeated(windows):
        faults.append("two releases have the same noise")
    pairs = [(sums, name) for sums in (first, second) for name in PAIRINGS[:2]] + [(twins, PAIRINGS[2])]
    if any(_coupled(sums, name, about, luck / len(pairs)) for sums, name in pairs):
        faults.append("two releases share the noise of a number")
    return faults


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
    return _outside(sums["squares"].sum(keepdims=True), about, 2, int(sums["releases"]) * about.numbers, luck)


def _wrong_fourth(sums: Sums, about: Noise, luck: float) -> bool:
    """The fourth moment: of one number, and of all together."""
    fourths, releases = sums["fourths"], int(sums["releases"])
    together = _outside(fourths.sum(keepdims=True), about, 4, releases * about.numbers, luck / 2)
    return together or _outside(fourths, about, 4, releases, luck / 2)


def _outside(powers: FloatArray, about: Noise, power: int, draws: int, luck: float) -> bool:
    """Whether any of these sums of xᵖ, over `draws` each, is smaller or larger than its limit."""
    low, high = moment_limits(about, power, draws, luck / powers.size)
    return bool(((powers / draws < low) | (powers / draws > high)).any())


def moment_limits(about: Noise, power: int, draws: int, luck: float) -> tuple[float, float]:
    """Limits between which the mean of xᵖ over these draws nearly always lies, for p = 2 or 4.

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


def _pairwise(name: str, limits: Limits) -> NoiseCheck:
    def check(sums: Sums, about: Noise, luck: float) -> bool:
        """Whether two numbers go together, where every pair is looked at."""
        if not about.paired:
            return False
        releases, pairs = int(sums["releases"]), np.triu_indices(about.numbers, 1)
        limit = limits(about, np.array(releases), luck / max(1, len(pairs[0])))
        return bool((np.abs(sums[f"pairs of {name}"][pairs]) / releases > limit).any())

    return check


def mean_products(about: Noise, draws: NDArray[Any], luck: float) -> FloatArray:
    """A limit that the mean of xy over these draws rarely exceeds, if all x and y are independent.

    E exp(txy) ≤ E exp(t²x²σ²/2), because y is sub-Gaussian.
    """
    return chernoff(*_product_curve(about), draws, luck)


def chernoff(tried: FloatArray, moments: FloatArray, draws: NDArray[Any], luck: float) -> FloatArray:
    """s of P(|mean| ≥ s) ≤ luck, for variables with log E exp(±tx) ≤ moments at every tried t > 0."""
    needed = math.log(2 / luck) / np.maximum(draws, 1)
    return np.asarray(np.min((moments + needed[..., None]) / tried, axis=-1))


def hoeffding(most: float, draws: NDArray[Any], luck: float) -> FloatArray:
    """The same for variables between −most and most that are zero on average."""
    return np.asarray(most * np.sqrt(2 * math.log(2 / luck) / np.maximum(draws, 1)))


@lru_cache(maxsize=4)
def _product_curve(about: Noise) -> tuple[FloatArray, FloatArray]:
    """t, and the bound on log E exp(txy)."""
    support, weights = about.law
    variance = _parameter(about)
    # Beyond 0.7 the sum over x would not end within the support.
    tried = np.geomspace(1e-6, 0.7, 200) / variance
    squares = support.astype(np.float64) ** 2
    return tried, np.array([math.log(weights @ np.exp(t**2 * variance / 2 * squares)) for t in tried])


def _mean_of_sizes(about: Noise, draws: NDArray[Any], luck: float) -> FloatArray:
    """The limit for whether two numbers are large, less how often they should be: with any signs."""
    return hoeffding(about.largest_size**2, draws, luck)


def _lagged(name: str, limits: Limits) -> NoiseCheck:
    def check(sums: Sums, about: Noise, luck: float) -> bool:
        """Whether numbers at the same lag go together, summed over all cells: few releases show what they all share."""
        releases, numbers = int(sums["releases"]), about.numbers
        flat = by_lag(sums[f"flat {name}"], numbers, numbers)[0][numbers:]
        pairs = matchings(numbers, np.arange(1, numbers))
        along = sums[f"axis {name}"]
        more = [matchings(s[axis], lag) * (math.prod(s) // s[axis]) for _, s, axis, lag in about.lags]
        found = np.concatenate([flat, along])
        draws = np.concatenate([pairs.reshape(-1, 2), np.array(more).reshape(-1, 2)]) * releases
        # One limit for each of the two sets of independent products.
        limit = (limits(about, draws, luck / 2 / max(1, len(found))) * draws).sum(axis=-1)
        return bool((np.abs(found) > limit).any())

    return check


def by_lag(spectrum: NDArray[Any], one: int, other: int) -> tuple[FloatArray, NDArray[Any]]:
    """Σ x[i] y[i + lag] for every lag from 1 − one to other − 1, and of how many products each is the sum."""
    lag = np.arange(1 - one, other)
    sums = fft.irfft(spectrum, n=fft.next_fast_len(one + other, real=True))[lag]
    return sums, np.minimum(one, other - lag) - np.maximum(0, -lag)


def _coupled(sums: Sums, pairing: str, about: Noise, luck: float) -> bool:
    """Whether paired releases depend on each other: numbers are equal too often, or products not zero on average."""
    equal, both = sums[f"{pairing}: equal"], int(sums[f"{pairing}: releases"])
    if _unlikely(equal, both, float(about.law[1] @ about.law[1]), luck / 3):
        return True
    return linked(sums, pairing, (about.numbers, about.numbers), partial(mean_products, about), 2 * luck / 3)


def linked(sums: Sums, name: str, sizes: tuple[int, int], limit: Limit, luck: float) -> bool:
    """Whether a sum of products of paired numbers, at a lag or of two places, is larger than its limit."""
    releases = int(sums[f"{name}: releases"])
    lags, overlap = by_lag(sums[f"{name}: lags"], *sizes)
    looks = [(lags, overlap * releases)]
    if f"{name}: pairs" in sums:
        looks.append((sums[f"{name}: pairs"], np.array(releases)))
    for products, draws in looks:
        if releases and (np.abs(products) > limit(draws, luck / len(looks) / products.size) * draws).any():
            return True
    return False


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
    "two numbers share noise": _pairwise("products", mean_products),
    "two numbers share the size of their noise": _pairwise("sizes", _mean_of_sizes),
    "numbers at a lag share noise": _lagged("products", mean_products),
    "numbers at a lag share the size of their noise": _lagged("sizes", _mean_of_sizes),
}
