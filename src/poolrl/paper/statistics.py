"""Paired statistics over seeds, with bootstrap intervals. No assumption about how gaps are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.paper import sweeps
from poolrl.paper.sweeps import Setting
from poolrl.paper.trials import Run
from poolrl.paper.tuning import resolved

RESAMPLES = 10_000
ROUNDING = 1e-9  # differences below this are equality
FEWEST_SEEDS = 5  # fewer decide nothing


class Table:
    """Runs by setting and seed; seeds that tuned a scale judge nothing."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = {(run.setting, run.seed): run for run in runs}
        self._by_setting: dict[Setting, dict[int, Run]] = {}
        for run in runs:
            if run.seed not in sweeps.TUNING_SEEDS:
                self._by_setting.setdefault(run.setting, {})[run.seed] = run

    def chosen(self, setting: Setting) -> Setting:
        """A TUNED setting with the scale that the tuning seeds chose."""
        return resolved(setting, self._runs)

    def runs(self, setting: Setting) -> dict[int, Run]:
        """Its runs by seed, none if it was not run."""
        return self._by_setting.get(self.chosen(setting), {})

    def paired(self, settings: Sequence[Setting], measure: str = "gap") -> FloatArray:
        """One row per seed that all settings share, one column per setting."""
        found = [self.runs(setting) for setting in settings]
        seeds = sorted(set.intersection(*map(set, found))) if found else []
        values = [[getattr(runs[seed], measure) for runs in found] for seed in seeds]
        return np.array(values, dtype=np.float64).reshape(len(seeds), len(settings))

    def present(self, settings: Sequence[Setting]) -> list[Setting]:
        """Those that were run."""
        return [setting for setting in settings if self.runs(setting)]


@dataclass(frozen=True)
class Interval:
    """An estimate with the bootstrap's idea of where the truth may lie, and what it is about."""

    estimate: float
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

    def within(self, room: float, about: str) -> Interval:
        """The interval of room − |x|: how far x is from being larger than `room` on either side."""
        return Interval(room - abs(self.estimate), np.sort(room - np.abs(self.plausible)), self.seeds, about)

    def moved(self, times: float, plus: float, about: str) -> Interval:
        """The interval of times · x + plus."""
        return Interval(times * self.estimate + plus, np.sort(times * self.plausible + plus), self.seeds, about)


def of_mean(values: FloatArray, about: str = "") -> Interval:
    """The mean over seeds, with a bootstrap-t interval: seeds are few, and the percentile bootstrap is too short then.

    The truth is m − t* s, with t* = (m* − m) / s* over resamples of the seeds and s the standard error.
    """
    count, mean = len(values), float(values.mean())
    error = values.std(ddof=1) / np.sqrt(count) if count > 1 else 0.0
    if error <= ROUNDING:
        return Interval(mean, np.full(2, mean), count, about)
    sample = values[_picks(count)]
    spread = np.maximum(sample.std(axis=1, ddof=1) / np.sqrt(count), 1e-3 * error)  # a resample may be all one seed
    return Interval(mean, np.sort(mean - (sample.mean(axis=1) - mean) / spread * error), count, about)


def mean_difference(pairs: FloatArray, about: str = "") -> Interval:
    """Mean over seeds of second minus first."""
    return of_mean(pairs[:, 1] - pairs[:, 0], about)


def mean_slope(values: FloatArray, at: FloatArray, about: str = "") -> Interval:
    """Mean over seeds of the least-squares slope of `values` (seeds, points) against `at` (points,)."""
    centred = at - at.mean()
    return of_mean(values @ centred / (centred @ centred), about)


def slope_of_means(values: FloatArray, at: FloatArray, about: str = "") -> Interval:
    """The slope of log mean gap against `at`: single gaps may be zero, their means are not.

    No mean over seeds itself, it becomes one by the jackknife: n θ − (n − 1) θ₋ᵢ stands for seed i.
    """
    centred = at - at.mean()

    def slope(gaps: FloatArray) -> float:
        return float(np.log(np.maximum(gaps.mean(axis=0), 1e-9)) @ centred / (centred @ centred))

    count, whole = len(values), slope(values)
    if count < 2:
        return Interval(whole, np.full(2, whole), count, about)
    without = np.array([slope(np.delete(values, seed, axis=0)) for seed in range(count)])
    return replace(of_mean(count * whole - (count - 1) * without, about), estimate=whole)


def _picks(count: int) -> IntArray:
    return np.random.default_rng(0).integers(0, count, (RESAMPLES, count))


def judge(comparisons: Sequence[Interval]) -> tuple[str, Interval]:
    """Whether every comparison is positive, and the one that decided.

    *holds*: every 95% interval lies above zero. *does not hold*: one lies at or below zero, at a level that allows for
    their number. Else, and wherever fewer than FEWEST_SEEDS were run, *undecided*.
    """
    worst = min(comparisons, key=lambda interval: interval.low)
    if min(interval.seeds for interval in comparisons) < FEWEST_SEEDS:
        return "undecided", worst
    against = [interval for interval in comparisons if interval.upper(len(comparisons)) <= ROUNDING]
    if against:
        return "does not hold", min(against, key=lambda interval: interval.high)
    return ("holds" if worst.low > ROUNDING else "undecided"), worst
