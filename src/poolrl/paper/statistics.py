"""Paired statistics over seeds, with bootstrap intervals. No assumption about how gaps are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from poolrl.checks import FloatArray, IntArray

RESAMPLES = 10_000
EQUAL_WITHIN = 1e-9  # smaller differences are rounding
FEWEST_SEEDS = 5  # fewer decide nothing


@dataclass(frozen=True)
class Estimate:
    """A value with its bootstrap distribution, and what it is about."""

    value: float
    plausible: FloatArray = field(repr=False, compare=False)  # sorted; its quantiles bound the truth
    seeds: int
    about: str = ""

    @property
    def low(self) -> float:
        """The lower end of the 95% interval."""
        return float(np.quantile(self.plausible, 0.025))

    @property
    def high(self) -> float:
        """Its upper end."""
        return self.upper(1)

    def upper(self, comparisons: int) -> float:
        """The upper end when this is one of several comparisons, any of which may fail by chance (Bonferroni)."""
        return float(np.quantile(self.plausible, 1 - 0.025 / comparisons))

    def within(self, room: float, about: str) -> Estimate:
        """The interval of room − |x|: how far x is from being larger than `room` on either side."""
        return Estimate(room - abs(self.value), np.sort(room - np.abs(self.plausible)), self.seeds, about)

    def moved(self, times: float, plus: float, about: str) -> Estimate:
        """The interval of times · x + plus."""
        return Estimate(times * self.value + plus, np.sort(times * self.plausible + plus), self.seeds, about)


def of_mean(values: FloatArray, about: str = "") -> Estimate:
    """The mean over seeds, with a bootstrap-t interval. With few seeds a percentile interval would be too short.

    The truth is m − t* s, with t* = (m* − m) / s* over resamples of the seeds and s the standard error.
    """
    count, mean = len(values), float(values.mean())
    error = values.std(ddof=1) / np.sqrt(count) if count > 1 else 0.0
    if error <= EQUAL_WITHIN:
        return Estimate(mean, np.full(2, mean), count, about)
    sample = values[_picks(count)]
    spread = np.maximum(sample.std(axis=1, ddof=1) / np.sqrt(count), 1e-3 * error)  # a resample may be all one seed
    return Estimate(mean, np.sort(mean - (sample.mean(axis=1) - mean) / spread * error), count, about)


def mean_difference(pairs: FloatArray, about: str = "") -> Estimate:
    """Mean over seeds of second minus first."""
    return of_mean(pairs[:, 1] - pairs[:, 0], about)


def mean_slope(values: FloatArray, at: FloatArray, about: str = "") -> Estimate:
    """Mean over seeds of the least-squares slope of `values` (seeds, points) against `at` (points,)."""
    centred = at - at.mean()
    return of_mean(values @ centred / (centred @ centred), about)


def slope_of_means(values: FloatArray, at: FloatArray, about: str = "") -> Estimate:
    """The slope of log mean gap against `at`: single gaps may be zero, their means are not.

    This slope is not a mean over seeds. The jackknife makes it one: n θ − (n − 1) θ₋ᵢ stands for seed i.
    """
    centred = at - at.mean()

    def slope(gaps: FloatArray) -> float:
        return float(np.log(np.maximum(gaps.mean(axis=0), 1e-9)) @ centred / (centred @ centred))

    count, every = len(values), slope(values)
    if count < 2:
        return Estimate(every, np.full(2, every), count, about)
    without = np.array([slope(np.delete(values, seed, axis=0)) for seed in range(count)])
    return replace(of_mean(count * every - (count - 1) * without, about), value=every)


def _picks(count: int) -> IntArray:
    return np.random.default_rng(0).integers(0, count, (RESAMPLES, count))


def judge(comparisons: Sequence[Estimate]) -> tuple[str, Estimate]:
    """Whether every comparison is positive, and the one that decided.

    *holds*: every 95% interval lies above zero. *does not hold*: one lies at or below zero, at a level that allows for
    their number. Otherwise, or with fewer than FEWEST_SEEDS, the claim is *undecided*.
    """
    worst = min(comparisons, key=lambda estimate: estimate.low)
    if min(estimate.seeds for estimate in comparisons) < FEWEST_SEEDS:
        return "undecided", worst
    against = [estimate for estimate in comparisons if estimate.upper(len(comparisons)) <= EQUAL_WITHIN]
    if against:
        return "does not hold", min(against, key=lambda estimate: estimate.high)
    return ("holds" if worst.low > EQUAL_WITHIN else "undecided"), worst
