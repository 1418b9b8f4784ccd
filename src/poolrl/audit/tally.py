"""What a block of releases adds to the evidence about its noise: sums that fit into memory however many releases.

The noise of a block is (releases, numbers), in the order of the released tables. A *lag* is a distance at which noise
might come again: in flat order, or along one axis of a table (label, step, product, kind, node).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from poolrl.audit.evidence import Rows
from poolrl.checks import FloatArray, IntArray
from poolrl.privacy.noise.seeded import discrete_gaussian

# Up to so many numbers every pair is compared, beyond them every lag.
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
    """What noise should be: its tables, their variance, and how many releases are looked at in all."""

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

    @cached_property
    def paired(self) -> bool:
        """Whether every pair of numbers is compared."""
        return self.numbers <= MOST_PAIRED

    @cached_property
    def width(self) -> int:
        """Two releases agree in so many neighbouring numbers, at any places, by a chance of less than 10⁻⁸ in all."""
        agree = float(self.law[1] @ self.law[1])
        ways = max(1, self.releases * (self.releases - 1) / 2) * self.numbers**2
        return math.ceil(math.log(1e-8 / ways) / math.log(agree)) if agree < 1 else self.numbers + 1

    @cached_property
    def lags(self) -> list[tuple[slice, tuple[int, ...], int, int]]:
        """(where the table lies, its shape, axis, lag) of every lag along an axis."""
        found, start = [], 0
        for shape in merged(self.shapes):
            where = slice(start, start + math.prod(shape))
            start = where.stop
            for axis, length in enumerate(shape):
                # Along the last axis of a large table the flat lags see as much.
                if axis < len(shape) - 1 or len(shape) < 3:
                    found += [(where, shape, axis, lag) for lag in range(1, min(length, MOST_LAGS + 1))]
        return found


def merged(shapes: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    """Tables of one shape that follow each other are one table: the transitions of every step."""
    found: list[tuple[int, ...]] = []
    times: list[int] = []
    for shape in shapes:
        if found and found[-1] == shape:
            times[-1] += 1
        else:
            found, times = [*found, shape], [*times, 1]
    return [shape if often == 1 else (often, *shape) for shape, often in zip(found, times, strict=True)]


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
    cut, chance = about.large
    inside = np.clip(noise, -about.reach, about.reach)
    values = inside.astype(np.float64)
    size = (np.abs(inside) > cut).astype(np.float32) - np.float32(chance)
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
    for name, given in (("products", values), ("sizes", size)):
        spectrum = _spectrum(given, numbers)
        sums[f"flat {name}"] = (spectrum.real**2 + spectrum.imag**2).sum(axis=0, dtype=np.float64)
        sums[f"axis {name}"] = _along_axes(given.astype(np.float32), about)
        if about.paired:
            sums[f"pairs of {name}"] = given.T.astype(np.float64) @ given
        if name == "products":
            starts = zip(PAIRINGS[:2], (0, 1), strict=True)
            for pairing, start in starts:
                left, right = slice(start, releases - 1, 2), slice(start + 1, releases, 2)
                sums |= _paired(pairing, inside[left], inside[right], spectrum[left], spectrum[right], about)
    return sums


def tally_of_both(first: Rows, second: Rows, about: Noise) -> Sums:
    """The same release of both logs, number by number and at every lag."""
    both = min(len(first), len(second))
    inside = [np.clip(each[:both], -about.reach, about.reach) for each in (first, second)]
    spectra = [_spectrum(each, about.numbers) for each in inside]
    return _paired(PAIRINGS[2], inside[0], inside[1], spectra[0], spectra[1], about)


def added(one: Sums, other: Sums) -> Sums:
    """The sums of two blocks."""
    return {name: one[name] + other[name] for name in one} if one else other


def _spectrum(values: NDArray[Any], numbers: int) -> NDArray[np.complex64]:
    # Twice as long, so that no lag comes round again. Single precision errs by less than a millionth of a variance.
    found = fft.rfft(values.astype(np.float32), n=fft.next_fast_len(2 * numbers, real=True), axis=1)
    return np.asarray(found, dtype=np.complex64)


def _along_axes(values: NDArray[np.float32], about: Noise) -> FloatArray:
    found = []
    for where, shape, axis, lag in about.lags:
        table = np.moveaxis(values[:, where].reshape(-1, *shape), axis + 1, 0)
        found.append(float(np.vdot(np.ascontiguousarray(table[:-lag]), np.ascontiguousarray(table[lag:]))))
    return np.array(found)


def _paired(pairing: str, one: Any, other: Any, first: Any, second: Any, about: Noise) -> Sums:
    """Products at every lag, and how often each number is equal, in pairs of releases."""
    both = min(len(one), len(other))
    found: Sums = {
        f"{pairing}: releases": np.array(both),
        f"{pairing}: equal": (one[:both] == other[:both]).sum(axis=0),
        f"{pairing}: lags": (first[:both].conj() * second[:both]).sum(axis=0, dtype=np.complex128),
    }
    if about.paired:
        found[f"{pairing}: pairs"] = one[:both].T.astype(np.float64) @ other[:both].astype(np.float64)
    return found


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
            # With so little noise, equal numbers are no evidence.
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
