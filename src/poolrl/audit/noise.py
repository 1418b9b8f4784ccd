"""Tests of the noise: of single values, of each number, of numbers at every lag, and of pairs of releases.

An attack sees only the sum of what one unit moves. Noise of the right variance can still be useless: even numbers only,
nothing beyond 3σ, the same for two products or two releases. Such noise is found here, over all cells jointly. Limits
follow from exponential moments (Chernoff), so they hold for few releases and for little noise. A sound release fails
once in a million times.

The noise of a block is (releases, numbers), in the order of the released tables. Blocks are added up, in sums
that fit into memory however many releases there are. A *lag* is a distance at which noise might come again: in flat
order, or along one axis of a table (label, step, product, kind, node).

Tables that follow each other and have one variance are one part of a release, and every part is tested by itself. Two
parts must not share draws either. A number x of one and y of another are divided by their σ. Then
E exp(sx²) ≤ (1 − 2s)^(−1/2), as for a Gaussian, because Σ exp(−k²/2σ²) / σ falls with σ. So E exp(txy) ≤
(1 − t²)^(−1/2), whatever their variances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import combinations, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import xlogy

from poolrl.checks import FloatArray, IntArray
from poolrl.privacy.noise.source import RandomWords, discrete_gaussian

# How often a sound release may fail, and the share of each of the eleven checks: ten here, one of several tables.
LUCK = 1e-6
EACH = LUCK / 11
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
SHARED = "two tables share noise"
# Sums by name, lists of what is kept, and further such dictionaries.
Sums = dict[str, Any]
Limit = Callable[[NDArray[Any], float], FloatArray]
# Rows of released numbers, (releases, numbers).
Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Noise:
    """The noise of a part as it should be: its tables, their variance, and how many releases are looked at."""

    shapes: tuple[tuple[int, ...], ...]
    variance: float
    releases: int
    start: int = 0  # the place of its first number in a release

    @cached_property
    def numbers(self) -> int:
        """All numbers of a release."""
        return sum(math.prod(shape) for shape in self.shapes)

    @cached_property
    def where(self) -> slice:
        """The places of its numbers in a release."""
        return slice(self.start, self.start + self.numbers)

    @cached_property
    def law(self) -> tuple[IntArray, FloatArray]:
        """Values from −reach to reach, and their probabilities."""
        return discrete_gaussian(math.sqrt(self.variance))

    @cached_property
    def reach(self) -> int:
        """Nothing lies further out: a value that does is counted here."""
        return int(self.law[0][-1])

    @cached_property
    def parameter(self) -> float:
        """σ² by p(1)/p(0) = exp(−1/2σ²). It is slightly larger than the variance."""
        weights, middle = self.law[1], self.reach
        return float(-1 / (2 * math.log(weights[middle + 1] / weights[middle])))

    @cached_property
    def limits(self) -> dict[str, Limit]:
        """Limits that the mean of xy rarely exceeds if all x and y are independent: of values, and of sizes.

        E exp(txy) ≤ E exp(t²x²σ²/2) for values, because y is sub-Gaussian. Sizes are bounded, and zero on average.
        """
        # Beyond 0.7 the sum over x would not end within the support.
        tried = np.geomspace(1e-6, 0.7, 200) / self.parameter
        squares = self.law[0].astype(np.float64) ** 2
        moments = np.array([math.log(self.law[1] @ np.exp(t**2 * self.parameter / 2 * squares)) for t in tried])
        return {"products": partial(chernoff, tried, moments), "sizes": partial(hoeffding, self.largest_size**2)}

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
        beyond = 2 * self.law[1][self.reach + 1 :][::-1].cumsum()[::-1]
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
    def width(self) -> int:
        """Two releases agree in this many neighbouring numbers, at any places, by a chance of less than 10⁻⁸ in all."""
        agree = float(self.law[1] @ self.law[1])
        ways = max(1, self.releases * (self.releases - 1) / 2) * self.numbers**2
        return math.ceil(math.log(1e-8 / ways) / math.log(agree)) if agree < 1 else self.numbers + 1

    @cached_property
    def lags(self) -> list[tuple[slice, tuple[int, ...], int, int]]:
        """(where the table lies, its shape, axis, lag) of every lag along an axis."""
        lags, start = [], 0
        for table, same in groupby(self.shapes):
            # Tables of one shape that follow each other are one table: the transitions of every step.
            often = len(list(same))
            shape = table if often == 1 else (often, *table)
            where = slice(start, start + math.prod(shape))
            start = where.stop
            for axis, length in enumerate(shape):
                # Along the last axis of a large table the flat lags see as much.
                if axis < len(shape) - 1 or len(shape) < 3:
                    lags += [(where, shape, axis, lag) for lag in range(1, min(length, MOST_LAGS + 1))]
        return lags


def noise_parts(shapes: Sequence[tuple[int, ...]], variances: Sequence[float], releases: int) -> list[Noise]:
    """The parts of a release whose tables have these shapes and variances."""
    parts: list[Noise] = []
    for variance, tables in groupby(zip(variances, shapes, strict=True), key=lambda table: table[0]):
        start = parts[-1].where.stop if parts else 0
        parts.append(Noise(tuple(shape for _, shape in tables), variance, releases, start))
    return parts


def look_at_noise(first: Rows, second: Rows, parts: list[Noise], places: tuple[int, int]) -> Sums:
    """A block of both logs' noise, (releases, numbers) each, whose releases have numbers from these `places` on."""
    seen: Sums = {"across": _tally_across(first, second, parts)}
    for number, about in enumerate(parts):
        one, other = first[:, about.where], second[:, about.where]
        seen[f"part {number}"] = {
            "logs": {"first": tally(one, about), "second": tally(other, about)},
            "both": _paired(PAIRINGS[2], about.inside(one), about.inside(other)),
            "windows": [windows(rows, about, first_release=at) for rows, at in zip((one, other), places, strict=True)],
        }
    return seen


def added(one: Any, other: Any) -> Any:
    """What two blocks show together. Of a name that only one of them has, its own."""
    if not isinstance(one, dict):
        return one + other
    return one | other | {name: added(one[name], other[name]) for name in one if name in other}


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
    for name, of in (("products", values), ("sizes", size)):
        sums |= products(name, of, of) | {f"{name}: axes": _along_axes(of.astype(np.float32), about)}
    for start, pairing in enumerate(PAIRINGS[:2]):
        sums |= _paired(pairing, inside[start::2], inside[start + 1 :: 2])
    return sums


def _along_axes(values: NDArray[np.float32], about: Noise) -> FloatArray:
    sums = []
    for where, shape, axis, lag in about.lags:
        table = np.moveaxis(values[:, where].reshape(-1, *shape), axis + 1, 0)
        sums.append(float(np.vdot(np.ascontiguousarray(table[:-lag]), np.ascontiguousarray(table[lag:]))))
    return np.array(sums)


def _paired(pairing: str, one: Rows, other: Rows) -> Sums:
    """The evidence of pairs of releases: products, and how often each number is equal."""
    both = min(len(one), len(other))
    one, other = one[:both], other[:both]
    return {f"{pairing}: equal": (one == other).sum(axis=0)} | products(pairing, one, other)


def products(name: str, one: NDArray[Any], other: NDArray[Any]) -> Sums:
    """Sums of products of paired rows: at every lag, and of every two places if there are few."""
    # Long enough that no lag comes round again. Single precision errs by less than a millionth of a variance.
    length = fft.next_fast_len(one.shape[1] + other.shape[1], real=True)
    first, second = (fft.rfft(rows.astype(np.float32), n=length, axis=1) for rows in (one, other))
    sums: Sums = {
        f"{name}: releases": np.array(len(one)),
        f"{name}: lags": (first.conj() * second).sum(axis=0, dtype=np.complex128),
    }
    if one.shape[1] * other.shape[1] <= MOST_PAIRED**2:
        sums[f"{name}: pairs"] = one.T.astype(np.float64) @ other.astype(np.float64)
    return sums


def _tally_across(first: Rows, second: Rows, parts: list[Noise]) -> Sums:
    """Products of a number of one part with a number of another: at every lag, and of every pair if there are few."""
    sums: Sums = {}
    both = min(len(first), len(second))
    # Of each log, the numbers of every part: in units of their σ, and whether they are large.
    tables = [[(about, rows[:, about.where]) for about in parts] for rows in (first, second)]
    units = [[about.inside(rows) / math.sqrt(about.variance) for about, rows in of_log] for of_log in tables]
    sizes = [[about.sizes(rows) for about, rows in of_log] for of_log in tables]
    for one, other in combinations(range(len(parts)), 2):
        x, y = [of_log[one] for of_log in units], [of_log[other] for of_log in units]
        looks: Sums = {"1 with 2": (x[0][:both], y[1][:both]), "2 with 1": (x[1][:both], y[0][:both])}
        for log in (0, 1):
            looks |= {f"{log}": (x[log], y[log]), f"{log}, sizes": (sizes[log][one], sizes[log][other])}
            # Of a release with the next: no number is in two of these products.
            looks |= {f"{log}, next": (x[log][:-1], y[log][1:]), f"{log}, last": (x[log][1:], y[log][:-1])}
        for name, rows in looks.items():
            sums |= products(f"{one} {other} {name}", *rows)
    return sums


def windows(noise: Rows, about: Noise, *, first_release: int) -> RandomWords:
    """Two hashes of stretches of a block's noise, and the number of the release of each, (kept, 3).

    Only some are kept, if there are many. The hash itself decides, so two equal ones are both kept or both left out.
    """
    starts = noise.shape[1] - about.width + 1
    if starts < 1:  # with as little noise as this, equal numbers are no evidence
        return np.empty((0, 3), dtype=np.uint64)
    limit = np.uint64(min(2**64 - 1, 2**64 * MOST_WINDOWS // (about.releases * starts)))
    hashes = [_window_hashes(noise, about.width, factor) for factor in FACTORS]
    kept = np.nonzero(_mixed(hashes[0]) < limit)
    release = (kept[0] + first_release).astype(np.uint64)
    return np.stack([*(hashed[kept] for hashed in hashes), release], axis=-1)


def repeated(blocks: list[RandomWords]) -> bool:
    """Whether two releases share a stretch."""
    stretches = np.concatenate(blocks)
    stretches = stretches[np.argsort(stretches[:, 0])]
    here, before = stretches[1:], stretches[:-1]
    return bool(((here[:, :2] == before[:, :2]).all(axis=1) & (here[:, 2] != before[:, 2])).any())


def _window_hashes(noise: Rows, width: int, factor: int) -> RandomWords:
    """Σⱼ x[start + j] factorʲ modulo 2⁶⁴ for every start, by differences of running sums."""
    numbers = noise.shape[1]
    powers = np.cumprod(np.full(numbers, factor, dtype=np.uint64)) * np.uint64(pow(factor, -1, 2**64))
    inverse = np.cumprod(np.full(numbers, pow(factor, -1, 2**64), dtype=np.uint64)) * np.uint64(factor)
    running = np.cumsum(noise.astype(np.int64).view(np.uint64) * powers, axis=1)
    before = np.concatenate([np.zeros((len(noise), 1), dtype=np.uint64), running[:, :-width]], axis=1)
    return (running[:, width - 1 :] - before) * inverse[: numbers - width + 1]


def _mixed(hashes: RandomWords) -> RandomWords:
    """Hashes in another order (the finaliser of MurmurHash3): those of small numbers must not all be small."""
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, 1)):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    return hashes


def judge_noise(seen: Sums, parts: list[Noise]) -> list[str]:
    """The faults of all parts by the sums of all blocks, and whether two parts share noise."""
    faults = []
    for number, about in enumerate(parts):
        part, luck = seen[f"part {number}"], EACH / len(parts)
        first, second = part["logs"].values()
        # In each log, because faults of the two logs may cancel; and in both together: more releases show more.
        looks = first, second, added(first, second)
        faults += [name for name, check in CHECKS.items() if any(check(sums, about, luck / 3) for sums in looks)]
        if repeated(part["windows"]):
            faults.append("two releases have the same noise")
        pairs = [(sums, name) for sums in (first, second) for name in PAIRINGS[:2]] + [(part["both"], PAIRINGS[2])]
        if any(_coupled(sums, name, about, luck / len(pairs)) for sums, name in pairs):
            faults.append("two releases share the noise of a number")
    faults += [SHARED] if _share_noise(seen["across"], parts) else []
    return list(dict.fromkeys(faults))


def _misfits(sums: Sums, about: Noise, luck: float) -> bool:
    """Whether a value, or all values beyond it, are too frequent or too rare: for one number, or for all together."""
    releases, weights = int(sums["releases"]), about.law[1]
    pooled = np.concatenate([sums["values"], _at_least(sums["values"])])
    chance = np.concatenate([weights, _at_least(weights)])
    together = _unlikely(pooled, releases * about.numbers, chance, luck / 2)
    return together or _unlikely(sums["buckets"], releases, np.bincount(about.bucket_of, weights=weights), luck / 2)


def _unlikely(seen: NDArray[Any], trials: int, chance: NDArray[Any] | float, luck: float) -> bool:
    """Whether any of these counts is too small or too large to be binomial: P ≤ exp(−n KL(seen/n ‖ chance))."""
    if trials == 0:
        return False
    share, chance = seen / trials, np.clip(chance, 1e-300, 1 - 1e-16)
    surprise = xlogy(share, share / chance) + xlogy(1 - share, (1 - share) / (1 - chance))
    return bool((trials * surprise > math.log(2 * max(1, seen.size) / luck)).any())


def _at_least(of: NDArray[Any]) -> NDArray[Any]:
    """Counts or probabilities of |value| ≥ 1, 2, ... from those of each value."""
    middle = len(of) // 2
    return (of[middle + 1 :] + of[:middle][::-1])[::-1].cumsum()[::-1]


def _off_centre(sums: Sums, about: Noise, luck: float) -> bool:
    """E exp(tx) ≤ exp(t²σ²/2) for discrete Gaussians as well (Canonne, Kamath and Steinke 2020)."""
    releases = int(sums["releases"])
    limit = math.sqrt(2 * about.parameter * math.log(2 * about.numbers / luck) / releases)
    return bool((np.abs(sums["sum"]) / releases > limit).any())


def _wrong_moment(name: str, power: int, sums: Sums, about: Noise, luck: float) -> bool:
    """Whether the mean of xᵖ is off: of one number, or of all, where some thousand releases show a percent."""
    powers, releases = sums[name], int(sums["releases"])
    for total, draws in ((powers, releases), (powers.sum(keepdims=True), powers.size * releases)):
        low, high = moment_limits(about, power, draws, luck / 2 / total.size)
        if ((total / draws < low) | (total / draws > high)).any():
            return True
    return False


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


def _pairwise(name: str, sums: Sums, about: Noise, luck: float) -> bool:
    """Whether two numbers go together, where every pair is looked at."""
    if f"{name}: pairs" not in sums:
        return False
    releases, pairs = int(sums["releases"]), np.triu_indices(about.numbers, 1)
    limit = about.limits[name](np.array(releases), luck / max(1, len(pairs[0])))
    return bool((np.abs(sums[f"{name}: pairs"][pairs]) / releases > limit).any())


def chernoff(tried: FloatArray, moments: FloatArray, draws: NDArray[Any], luck: float) -> FloatArray:
    """s of P(|mean| ≥ s) ≤ luck, for variables with log E exp(±tx) ≤ moments at every tried t > 0."""
    needed = math.log(2 / luck) / np.maximum(draws, 1)
    return np.asarray(np.min((moments + needed[..., None]) / tried, axis=-1))


def hoeffding(most: float, draws: NDArray[Any], luck: float) -> FloatArray:
    """The same for variables between −most and most that are zero on average."""
    return np.asarray(most * np.sqrt(2 * math.log(2 / luck) / np.maximum(draws, 1)))


def _lagged(name: str, sums: Sums, about: Noise, luck: float) -> bool:
    """Whether numbers at the same lag go together, summed over all cells: few releases show what they all share."""
    numbers = about.numbers
    flat = by_lag(sums[f"{name}: lags"], numbers, numbers)[0][numbers:]
    along = [matchings(shape[axis], lag) * (math.prod(shape) // shape[axis]) for _, shape, axis, lag in about.lags]
    products = np.concatenate([flat, sums[f"{name}: axes"]])
    pairs = np.concatenate([matchings(numbers, np.arange(1, numbers)).reshape(-1, 2), np.reshape(along, (-1, 2))])
    draws = pairs.astype(np.int64) * int(sums["releases"])
    # One limit for each of the two sets of independent products.
    limit = (about.limits[name](draws, luck / 2 / max(1, len(products))) * draws).sum(axis=-1)
    return bool((np.abs(products) > limit).any())


def by_lag(spectrum: NDArray[Any], one: int, other: int) -> tuple[FloatArray, NDArray[Any]]:
    """Σ x[i] y[i + lag] for every lag from 1 − one to other − 1, and of how many products each is the sum."""
    lag = np.arange(1 - one, other)
    sums = fft.irfft(spectrum, n=fft.next_fast_len(one + other, real=True))[lag]
    return sums, np.minimum(one, other - lag) - np.maximum(0, -lag)


def _coupled(sums: Sums, pairing: str, about: Noise, luck: float) -> bool:
    """Whether paired releases depend on each other: numbers are equal too often, or products not zero on average."""
    equal, both = sums[f"{pairing}: equal"], int(sums[f"{pairing}: releases"])
    alike = _unlikely(equal, both, float(about.law[1] @ about.law[1]), luck / 3)
    return alike or linked(sums, pairing, (about.numbers, about.numbers), about.limits["products"], luck / 3)


def _share_noise(across: Sums, parts: list[Noise]) -> bool:
    names = [name.removesuffix(": releases") for name in across if name.endswith(": releases")]
    tried = np.geomspace(1e-5, 0.999, 300)  # t; and log E exp(txy) is at most −½ log(1 − t²)
    for name in names:
        one, other = (parts[int(number)] for number in name.split()[:2])
        limit: Limit = partial(chernoff, tried, -np.log1p(-(tried**2)) / 2)
        if name.endswith("sizes"):
            limit = partial(hoeffding, one.largest_size * other.largest_size)
        luck = EACH / len(names) / (1 + (f"{name}: pairs" in across))
        if linked(across, name, (one.numbers, other.numbers), limit, luck):
            return True
    return False


def linked(sums: Sums, name: str, sizes: tuple[int, int], limit: Limit, luck: float) -> bool:
    """Whether a sum of products of paired numbers is larger than its limit. Lags have this `luck`, and places again."""
    releases = int(sums[f"{name}: releases"])
    lags, overlap = by_lag(sums[f"{name}: lags"], *sizes)
    looks = [(lags, overlap * releases)]
    if f"{name}: pairs" in sums:
        looks.append((sums[f"{name}: pairs"], np.array(releases)))
    return releases > 0 and any(
        (np.abs(products) > limit(draws, luck / products.size) * draws).any() for products, draws in looks
    )


CHECKS: dict[str, Callable[[Sums, Noise, float], bool]] = {
    "the noise of a number does not have the stated distribution": _misfits,
    "the noise of a number is not centred": _off_centre,
    "the noise has another variance than is stated": partial(_wrong_moment, "squares", 2),
    "the noise has another fourth moment than is stated": partial(_wrong_moment, "fourths", 4),
    "two numbers share noise": partial(_pairwise, "products"),
    "two numbers share the size of their noise": partial(_pairwise, "sizes"),
    "numbers at a lag share noise": partial(_lagged, "products"),
    "numbers at a lag share the size of their noise": partial(_lagged, "sizes"),
}
