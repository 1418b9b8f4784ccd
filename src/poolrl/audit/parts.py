"""Noise of a release whose tables have different variances: every part by itself, and each part against the others.

A part is what `noise` can test: tables that follow each other and have one variance. Two parts must not share draws
either. A number x of one and y of another are divided by their σ. Then E exp(sx²) ≤ (1 − 2s)^(−1/2), as for a Gaussian,
because Σ exp(−k²/2σ²) / σ falls with σ. So E exp(txy) ≤ (1 − t²)^(−1/2), whatever their variances.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from poolrl.audit.evidence import Rows
from poolrl.audit.noise import EACH, NUMBERS_AT_ONCE, judge_noise
from poolrl.audit.tally import MOST_PAIRED, Noise, Sums, Windows, added, tally, tally_of_both
from poolrl.checks import FloatArray

SHARED = "two tables share noise"
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Parts:
    """The parts of a release, in the order of its tables."""

    noises: tuple[Noise, ...]

    @classmethod
    def of(cls, shapes: Sequence[Shape], variances: Sequence[float], releases: int) -> Parts:
        """Those of tables with these shapes and variances."""
        tables = itertools.groupby(zip(variances, shapes, strict=True), key=lambda table: table[0])
        return cls(tuple(Noise(tuple(shape for _, shape in some), v, releases) for v, some in tables))

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where each part lies in a release."""
        ends = [0, *itertools.accumulate(each.numbers for each in self.noises)]
        return tuple(slice(*ends_of) for ends_of in itertools.pairwise(ends))

    @cached_property
    def numbers(self) -> int:
        """All numbers of a release."""
        return self.slices[-1].stop


@dataclass(frozen=True)
class NoiseEvidence:
    """What some releases show of their noise."""

    looks: tuple[tuple[Sums, Sums, Sums], ...]  # of each part: the first log, the second, and the same release of both
    windows: tuple[list[Windows], ...]
    across: Sums

    def __add__(self, other: NoiseEvidence) -> NoiseEvidence:
        looks = [
            (added(a[0], b[0]), added(a[1], b[1]), added(a[2], b[2]))
            for a, b in zip(self.looks, other.looks, strict=True)
        ]
        windows = tuple(mine + theirs for mine, theirs in zip(self.windows, other.windows, strict=True))
        return NoiseEvidence(tuple(looks), windows, added(self.across, other.across))


def look_at_noise(first: Rows, second: Rows, parts: Parts, places: tuple[int, int]) -> NoiseEvidence:
    """A block of both logs' noise, (releases, numbers) each, whose releases have numbers from these `places` on."""
    looks, windows = [], []
    for where, about in zip(parts.slices, parts.noises, strict=True):
        rows = first[:, where], second[:, where]
        looks.append((tally(rows[0], about), tally(rows[1], about), tally_of_both(rows[0], rows[1], about)))
        windows.append([Windows.of(n, about, first_release=at) for n, at in zip(rows, places, strict=True)])
    return NoiseEvidence(tuple(looks), tuple(windows), _tally_across(first, second, parts))


def judge_parts(found: NoiseEvidence, parts: Parts) -> list[str]:
    """The faults of all parts, and whether two of them share noise."""
    many = len(parts.noises)
    faults = [
        fault
        for look, windows, about in zip(found.looks, found.windows, parts.noises, strict=True)
        for fault in judge_noise(*look, windows, about, parts=many)
    ]
    faults += [SHARED] if _share_noise(found.across, parts, EACH) else []
    return list(dict.fromkeys(faults))


def noise_faults(
    first: Rows, second: Rows, variance: float | Sequence[float], shapes: Sequence[Shape] = ()
) -> list[str]:
    """The faults of the noise in the two logs' releases; `shapes` are those of the tables, with a variance each."""
    shapes = shapes or (first.shape[1:],)
    variances = [variance] * len(shapes) if isinstance(variance, float) else variance
    parts = Parts.of(shapes, variances, len(first) + len(second))
    length = max(2, NUMBERS_AT_ONCE // parts.numbers // 2 * 2)
    found = None
    for start in range(0, max(len(first), len(second)), length):
        blocks = [each[start : start + length] for each in (first, second)]
        seen = look_at_noise(blocks[0], blocks[1], parts, (start, len(first) + start))
        found = seen if found is None else found + seen
    assert found is not None
    return judge_parts(found, parts)


def _tally_across(first: Rows, second: Rows, parts: Parts) -> Sums:
    """Products of a number of one part with a number of another: at every lag, and of every pair if there are few."""
    sums: Sums = {}
    both = min(len(first), len(second))
    for one, other in _couples(parts):
        (x1, y1), (x2, y2) = (_in_units(rows, parts, (one, other), "products") for rows in (first, second))
        looks = {"1": (x1, y1), "2": (x2, y2)}
        # Of a release with the next, and of the same release of the other log: no number is in two of these products.
        looks |= {"1, next": (x1[:-1], y1[1:]), "1, last": (x1[1:], y1[:-1])}
        looks |= {"2, next": (x2[:-1], y2[1:]), "2, last": (x2[1:], y2[:-1])}
        looks |= {"1 with 2": (x1[:both], y2[:both]), "2 with 1": (x2[:both], y1[:both])}
        for name, rows in (("1, sizes", first), ("2, sizes", second)):
            looks[name] = _in_units(rows, parts, (one, other), "sizes")
        for name, (x, y) in looks.items():
            sums |= {f"{one} {other} {name}: {what}": value for what, value in _products(x, y).items()}
    return sums


def _couples(parts: Parts) -> list[tuple[int, int]]:
    return list(itertools.combinations(range(len(parts.noises)), 2))


def _in_units(rows: Rows, parts: Parts, which: tuple[int, int], kind: str) -> tuple[Any, Any]:
    """The numbers of two parts in units of their σ; or whether they are large, less how often that should be."""
    found = []
    for number in which:
        about, values = parts.noises[number], rows[:, parts.slices[number]]
        inside = np.clip(values, -about.reach, about.reach).astype(np.float32)
        cut, chance = about.large
        found.append(inside / math.sqrt(about.variance) if kind == "products" else (np.abs(inside) > cut) - chance)
    return found[0].astype(np.float32), found[1].astype(np.float32)


def _products(x: NDArray[np.float32], y: NDArray[np.float32]) -> Sums:
    length = fft.next_fast_len(x.shape[1] + y.shape[1], real=True)
    spectra = [fft.rfft(each, n=length, axis=1) for each in (x, y)]
    found: Sums = {"releases": np.array(len(x)), "lags": (spectra[0].conj() * spectra[1]).sum(axis=0, dtype=complex)}
    if x.shape[1] * y.shape[1] <= MOST_PAIRED**2:
        found["pairs"] = (x.T @ y).astype(np.float64)
    return found


def _share_noise(across: Sums, parts: Parts, luck: float) -> bool:
    names = [name.removesuffix(": releases") for name in across if name.endswith(": releases")]
    for name in names:
        one, other = (parts.noises[int(number)] for number in name.split()[:2])
        releases, limit = int(across[f"{name}: releases"]), _limit_of(name, one, other)
        lags, overlap = _by_lag_across(across[f"{name}: lags"], one.numbers, other.numbers)
        looks = [(lags, overlap * releases)]
        if f"{name}: pairs" in across:
            looks.append((across[f"{name}: pairs"], np.array(releases)))
        for found, draws in looks:
            each = luck / len(names) / len(looks) / found.size
            if releases and (np.abs(found) > limit(draws, each) * draws).any():
                return True
    return False


def _by_lag_across(spectrum: NDArray[Any], one: int, other: int) -> tuple[FloatArray, NDArray[Any]]:
    """Σ x[i] y[i + lag] for every lag from 1 − one to other − 1, and of how many products each is the sum."""
    lag = np.arange(1 - one, other)
    sums = fft.irfft(spectrum, n=fft.next_fast_len(one + other, real=True))[lag]
    return sums, np.minimum(one, other - lag) - np.maximum(0, -lag)


def _limit_of(name: str, one: Noise, other: Noise) -> Any:
    """A limit that the mean of so many products of independent numbers rarely exceeds."""
    if not name.endswith("sizes"):
        return _mean_across
    most = math.prod(max(about.large[1], 1 - about.large[1]) for about in (one, other))
    # They are bounded, and zero on average (Hoeffding).
    return lambda draws, luck: most * np.sqrt(2 * math.log(2 / luck) / np.maximum(draws, 1))


def _mean_across(draws: NDArray[Any], luck: float) -> FloatArray:
    tried, moments = _curve_across()
    needed = math.log(2 / luck) / np.maximum(draws, 1)
    return np.asarray(np.min((moments + needed[..., None]) / tried, axis=-1))


@lru_cache(maxsize=1)
def _curve_across() -> tuple[FloatArray, FloatArray]:
    """t, and −½ log(1 − t²)."""
    tried = np.geomspace(1e-5, 0.999, 300)
    return tried, -np.log1p(-(tried**2)) / 2
