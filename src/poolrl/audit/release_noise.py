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
from functools import cached_property, lru_cache, partial

import numpy as np

from poolrl.audit import noise
from poolrl.audit.faults import Rows
from poolrl.audit.noise import Noise, Sums, Windows, added
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
        windows = tuple(here + there for here, there in zip(self.windows, other.windows, strict=True))
        return NoiseEvidence(tuple(looks), windows, added(self.across, other.across))


def look_at_noise(first: Rows, second: Rows, parts: Parts, places: tuple[int, int]) -> NoiseEvidence:
    """A block of both logs' noise, (releases, numbers) each, whose releases have numbers from these `places` on."""
    looks, windows = [], []
    for where, about in zip(parts.slices, parts.noises, strict=True):
        rows = first[:, where], second[:, where]
        both = noise.tally_of_both(rows[0], rows[1], about)
        looks.append((noise.tally(rows[0], about), noise.tally(rows[1], about), both))
        windows.append([Windows.of(n, about, first_release=at) for n, at in zip(rows, places, strict=True)])
    return NoiseEvidence(tuple(looks), tuple(windows), _tally_across(first, second, parts))


def judge_parts(seen: NoiseEvidence, parts: Parts) -> list[str]:
    """The faults of all parts, and whether two of them share noise."""
    faults = [
        fault
        for look, windows, about in zip(seen.looks, seen.windows, parts.noises, strict=True)
        for fault in noise.judge_noise(*look, windows, about, parts=len(parts.noises))
    ]
    faults += [SHARED] if _share_noise(seen.across, parts) else []
    return list(dict.fromkeys(faults))


def _tally_across(first: Rows, second: Rows, parts: Parts) -> Sums:
    """Products of a number of one part with a number of another: at every lag, and of every pair if there are few."""
    sums: Sums = {}
    both = min(len(first), len(second))
    units, sizes = [], []  # of each log, the numbers of every part: in units of their σ, and whether they are large
    for rows in (first, second):
        of_parts = [(about, rows[:, where]) for about, where in zip(parts.noises, parts.slices, strict=True)]
        in_units = [about.inside(n).astype(np.float32) / np.float32(math.sqrt(about.variance)) for about, n in of_parts]
        units.append(in_units)
        sizes.append([about.sizes(n) for about, n in of_parts])
    for one, other in itertools.combinations(range(len(parts.noises)), 2):
        x1, y1, x2, y2 = units[0][one], units[0][other], units[1][one], units[1][other]
        looks = {"1": (x1, y1), "2": (x2, y2)}
        # Of a release with the next, and of the same release of the other log: no number is in two of these products.
        looks |= {"1, next": (x1[:-1], y1[1:]), "1, last": (x1[1:], y1[:-1])}
        looks |= {"2, next": (x2[:-1], y2[1:]), "2, last": (x2[1:], y2[:-1])}
        looks |= {"1 with 2": (x1[:both], y2[:both]), "2 with 1": (x2[:both], y1[:both])}
        looks |= {f"{log + 1}, sizes": (sizes[log][one], sizes[log][other]) for log in (0, 1)}
        for name, (x, y) in looks.items():
            waves = noise.spectrum(x, y.shape[1]), noise.spectrum(y, x.shape[1])
            sums |= noise.products(f"{one} {other} {name}", x, y, *waves)
    return sums


def _share_noise(across: Sums, parts: Parts) -> bool:
    names = [name.removesuffix(": releases") for name in across if name.endswith(": releases")]
    for name in names:
        one, other = (parts.noises[int(number)] for number in name.split()[:2])
        if name.endswith("sizes"):
            limit = partial(noise.hoeffding, one.largest_size * other.largest_size)
        else:
            limit = partial(noise.chernoff, *_curve_across())
        if noise.linked(across, name, (one.numbers, other.numbers), limit, noise.EACH / len(names)):
            return True
    return False


@lru_cache(maxsize=1)
def _curve_across() -> tuple[FloatArray, FloatArray]:
    """t, and −½ log(1 − t²)."""
    tried = np.geomspace(1e-5, 0.999, 300)
    return tried, -np.log1p(-(tried**2)) / 2
