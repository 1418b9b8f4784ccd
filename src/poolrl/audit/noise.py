"""Tests of the noise: of its values, its variance, products of two numbers, and stretches that come twice.

An attack sees only the sum of what one unit moves. Noise of the right variance can still be useless: even numbers only,
nothing beyond 3σ, the same for two products or two releases. Such noise is found here, over all cells jointly. A sound
release fails once in a million times. Every limit is Chernoff's, so it holds for few releases and for little noise:

    P(S ≥ s) ≤ exp(log E exp(tS) − ts)   for every t > 0

- Values are counted, and a count is binomial: P ≤ exp(−n KL(seen/n ‖ chance)).
- For squares log E exp(±tx²) is added up over all values.
- In products a number is divided by its σ, or only its size counts: 2 (1 if it is large, or 0, less how often it should
  be). Both have E exp(tx) ≤ exp(t²/2) (Canonne, Kamath and Steinke 2020 for discrete Gaussians; Hoeffding 1963).

A sum S of n products has each number in at most two of them, as (i, i + lag) and (i − lag, i). So the pairs form paths.
Let u have every second number of the paths and v the others, S = u′Cv, and g be standard normal. C has n ones, at most
two in a row or a column, so its singular values are cⱼ ≤ 2 with Σ cⱼ² = n:

    E exp(tS) ≤ E exp(t²|C′u|²/2) = E exp(t g′C′u) ≤ E exp(t²|Cg|²/2) = Πⱼ (1 − t²cⱼ²)^(−1/2)

Its logarithm is at most n t² / 2(1 − 2t), by −log(1 − z) ≤ z / (1 − √z). So |S| ≤ √(2nL) + 2L, but for a chance of
2 exp(−L) (Boucheron, Lugosi and Massart 2013, section 2.4).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import logsumexp, xlogy

from poolrl.checks import FloatArray, IntArray
from poolrl.privacy.noise.source import RandomWords, discrete_gaussian

# How often a sound release may fail, and the share of each of the five checks.
LUCK = 1e-6
EACH = LUCK / 5
# Numbers that are looked at together: a block of them needs some 100 MB.
NUMBERS_AT_ONCE = 2**20
# Up to this many numbers every pair is compared, beyond them every lag.
MOST_PAIRED = 400
# Cells of all numbers' histograms together, and the most stretches that are compared.
MOST_CELLS, MOST_STRETCHES = 2**17, 2**20
# Odd factors: each makes a hash of a stretch.
FACTORS = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
# Sums by name, lists of what is kept, and further such dictionaries.
Sums = dict[str, Any]
# Rows of released numbers, (releases, numbers).
Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Part:
    """The numbers of a release whose noise has one variance, and this noise as it should be."""

    places: IntArray
    variance: float

    @cached_property
    def law(self) -> tuple[IntArray, FloatArray]:
        """Values from −reach to reach, and their probabilities. Noise beyond is counted at the ends."""
        return discrete_gaussian(math.sqrt(self.variance))

    @cached_property
    def bucket_of(self) -> IntArray:
        """In which bucket of a number's histogram each value is counted; with few numbers most have their own."""
        most = max(16, MOST_CELLS // len(self.places))
        middles = np.cumsum(self.law[1]) - self.law[1] / 2
        return np.unique(np.minimum((middles * most).astype(np.int64), most - 1), return_inverse=True)[1]

    @cached_property
    def large(self) -> tuple[int, float]:
        """The value beyond which noise counts as large, and how often it is: about every other time."""
        beyond = _at_least(self.law[1])
        cut = int(np.argmin(np.abs(beyond - 0.5)))
        return cut, float(beyond[cut])

    @cached_property
    def square_curves(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Some t > 0, and for each log E exp(−tx²) and log E exp(tx²)."""
        squares = self.law[0].astype(np.float64) ** 2
        tried = np.geomspace(1e-7, 10, 200) / max(float(self.law[1] @ squares), 1e-300)
        falls, rises = (np.array([logsumexp(t * squares, b=self.law[1]) for t in way * tried]) for way in (-1, 1))
        return tried, falls, rises

    def mean_square(self, draws: int, luck: float) -> tuple[float, float]:
        """Limits between which the mean of x² over these draws nearly always lies."""
        needed, (tried, falls, rises) = math.log(2 / luck) / draws, self.square_curves
        return float(((-falls - needed) / tried).max()), float(((rises + needed) / tried).min())


def noise_parts(variances: FloatArray) -> list[Part]:
    """The parts of a release whose numbers have these variances."""
    return [Part(np.flatnonzero(variances == variance), float(variance)) for variance in np.unique(variances)]


def look_at_noise(first: Rows, second: Rows, parts: list[Part], releases: int) -> Sums:
    """A block of both logs' noise, (releases, numbers) each; all blocks together have this many `releases`."""
    units = [_in_units(rows, parts) for rows in (first, second)]
    logs = [_tally(rows, of_log, parts, releases) for rows, of_log in zip((first, second), units, strict=True)]
    return {"first": logs[0], "second": logs[1], "between": {"twin": products(units[0], units[1], parts)}}


def added(one: Any, other: Any) -> Any:
    """What two blocks show together. Of a name that only one of them has, its own."""
    if not isinstance(one, dict):
        return one + other
    return one | other | {name: added(one[name], other[name]) for name in one if name in other}


def judge_noise(seen: Sums, parts: list[Part]) -> list[str]:
    """The faults, by the sums of all blocks."""
    first, second = seen["first"], seen["second"]
    # In each log, because faults of the two logs may cancel; and in both together: more releases show more.
    looks = first, second, added(first, second) | seen["between"]
    return [name for name, check in CHECKS.items() if any(check(sums, parts, EACH / len(looks)) for sums in looks)]


def _tally(rows: Rows, units: NDArray[np.float32], parts: list[Part], releases: int) -> Sums:
    sums: Sums = {"releases": len(rows), "stretches": [stretches(rows, parts, releases)]}
    sums |= {"release": products(units, units, parts), "next": products(units[:, :-1], units[:, 1:], parts)}
    for number, part in enumerate(parts):
        reach, buckets = part.law[0][-1], int(part.bucket_of[-1]) + 1
        values = np.clip(rows[:, part.places], -reach, reach)
        bucket = part.bucket_of[values + reach] + np.arange(len(part.places)) * buckets
        sums[f"part {number}"] = {
            "values": np.bincount((values + reach).ravel(), minlength=len(part.law[0])),
            "buckets": np.bincount(bucket.ravel(), minlength=len(part.places) * buckets).reshape(-1, buckets),
            "squares": (values.astype(np.float64) ** 2).sum(axis=0),
        }
    return sums


def _in_units(rows: Rows, parts: list[Part]) -> NDArray[np.float32]:
    """Numbers divided by their σ, and their sizes: (2, releases, numbers)."""
    units = np.empty((2, *rows.shape), dtype=np.float32)
    for part in parts:
        of_part, (cut, chance) = rows[:, part.places], part.large
        units[0][:, part.places] = of_part / math.sqrt(part.variance)
        units[1][:, part.places] = 2 * ((np.abs(of_part) > cut) - chance)
    return units


def products(one: NDArray[np.float32], other: NDArray[np.float32], parts: list[Part]) -> Sums:
    """Sums of products of paired rows: at every lag, and of every two places.

    If there are many places, each is paired with itself, and with those of another part if these parts are not too
    large: tables may share a single draw. Both are (kinds, releases, numbers), and each kind has its own sums.
    """
    numbers = one.shape[2]
    # Long enough that no lag comes round again. Single precision errs by less than a millionth.
    length = fft.next_fast_len(2 * numbers, real=True)
    first, second = fft.rfft(one, n=length), fft.rfft(other, n=length)
    lags = fft.irfft((first.conj() * second).sum(axis=1, dtype=np.complex128), n=length)
    few = numbers <= MOST_PAIRED
    pairs = () if few else permutations([part.places for part in parts], 2)
    apart = [one[..., a].transpose(0, 2, 1) @ other[..., b] for a, b in pairs if len(a) * len(b) <= MOST_PAIRED**2]
    return {
        "rows": one.shape[1],
        "lags": lags[:, np.arange(1 - numbers, numbers)],
        "places": (one.transpose(0, 2, 1) @ other if few else np.einsum("krn,krn->kn", one, other)).astype(np.float64),
        "apart": np.concatenate([np.zeros(1), *map(np.ravel, apart)]),
    }


def stretches(rows: Rows, parts: list[Part], releases: int) -> RandomWords:
    """Two hashes of stretches of a block's noise, (kept, 2). They are so long that two are equal once in 10⁸ audits.

    A number equals an earlier one with at most the chance of the most frequent value, whatever came before. Only some
    stretches are kept, if there are many. The hash decides, so two equal ones are both kept or both left out.
    """
    frequent = max(float(part.law[1].max()) for part in parts)
    needed = math.log(1e-8 / (releases * rows.shape[1]) ** 2)
    # With as little noise as this, equal numbers are no evidence.
    if frequent ** rows.shape[1] > math.exp(needed):
        return np.empty((0, 2), dtype=np.uint64)
    one, other = (stretch_hashes(rows, math.ceil(needed / math.log(frequent)), factor) for factor in FACTORS)
    kept = one < np.uint64(min(2**64 - 1, 2**64 * MOST_STRETCHES // (releases * one.shape[1])))
    return np.stack([one[kept], other[kept]], axis=-1)


def stretch_hashes(rows: Rows, length: int, factor: int) -> RandomWords:
    """A hash of the numbers from every place on, by doubling: of two stretches that together cover a longer one."""
    hashes, covered = rows.astype(np.int64).view(np.uint64) * np.uint64(factor), 1
    while covered < length:
        step = min(covered, length - covered)
        hashes = (hashes[:, :-step] ^ (hashes[:, :-step] >> np.uint64(29))) * np.uint64(factor) + hashes[:, step:]
        covered += step
    return (hashes ^ (hashes >> np.uint64(32))) * np.uint64(factor)


def _misfits(sums: Sums, parts: list[Part], luck: float) -> bool:
    """Whether a value, or all values beyond it, are too frequent or too rare: for one number, or for all together."""
    for number, part in enumerate(parts):
        seen, weights, releases = sums[f"part {number}"], part.law[1], sums["releases"]
        pooled = np.concatenate([seen["values"], _at_least(seen["values"])])
        chance = np.concatenate([weights, _at_least(weights)])
        together = _unlikely(pooled, releases * len(part.places), chance, luck / 2 / len(parts))
        of_bucket = np.bincount(part.bucket_of, weights=weights)
        if together or _unlikely(seen["buckets"], releases, of_bucket, luck / 2 / len(parts)):
            return True
    return False


def _unlikely(seen: IntArray, trials: int, chance: NDArray[Any], luck: float) -> bool:
    """Whether any of these counts is too small or too large to be binomial."""
    share, chance = seen / trials, np.clip(chance, 1e-300, 1 - 1e-16)
    surprise = xlogy(share, share / chance) + xlogy(1 - share, (1 - share) / (1 - chance))
    return bool((trials * surprise > math.log(2 * seen.size / luck)).any())


def _at_least(of: NDArray[Any]) -> NDArray[Any]:
    """Counts or probabilities of |value| ≥ 1, 2, ... from those of each value."""
    middle = len(of) // 2
    return (of[middle + 1 :] + of[:middle][::-1])[::-1].cumsum()[::-1]


def _wrong_variance(sums: Sums, parts: list[Part], luck: float) -> bool:
    """Whether the mean square is off: of one number, or of all, where some thousand releases show a percent."""
    for number, part in enumerate(parts):
        squares, releases = sums[f"part {number}"]["squares"], sums["releases"]
        for total, draws in ((squares, releases), (squares.sum(keepdims=True), squares.size * releases)):
            low, high = part.mean_square(draws, luck / 2 / len(parts) / total.size)
            if ((total / draws < low) | (total / draws > high)).any():
                return True
    return False


def _linked(names: tuple[str, ...], sums: Sums, _: list[Part], luck: float) -> bool:
    """Whether two numbers go together, or all that are a lag apart, where few releases show what they share."""
    for name in [name for name in names if name in sums]:
        rows, lags, places, apart = (sums[name][part] for part in ("rows", "lags", "places", "apart"))
        numbers = places.shape[1]
        lag = np.arange(1 - numbers, numbers)
        if name == "release":
            # A number goes with itself.
            lags, places = lags * (lag != 0), np.triu(places, 1) if places.ndim == 3 else 0 * places
        draws = rows * (numbers - np.abs(lag)), np.array(rows), np.array(rows)
        for total, many in zip((lags, places, apart), draws, strict=True):
            if (np.abs(total) > largest_sum(many, luck / 6 / total.size)).any():
                return True
    return False


def largest_sum(draws: IntArray, luck: float) -> FloatArray:
    """√(2nL) + 2L: a sum of n products is larger in size with at most this chance."""
    surprise = math.log(2 / luck)
    return np.sqrt(2 * draws * surprise) + 2 * surprise


def _repeated(sums: Sums, _: list[Part], luck: float) -> bool:
    """Whether a stretch comes twice. By chance that is rarer than any `luck`."""
    found = np.concatenate(sums["stretches"])
    found = found[np.argsort(found[:, 0])]
    return bool((found[1:] == found[:-1]).all(axis=1).any())


# Whether the sums of a log, or of both, are beyond their limits; `luck` is how often they may be so by chance.
CHECKS: dict[str, Callable[[Sums, list[Part], float], bool]] = {
    "the noise of a number does not have the stated distribution": _misfits,
    "the noise has another variance than is stated": _wrong_variance,
    "two numbers share noise, or its size": partial(_linked, ("release",)),
    "two releases share noise, or its size": partial(_linked, ("next", "twin")),
    "a stretch of noise comes twice": _repeated,
}
