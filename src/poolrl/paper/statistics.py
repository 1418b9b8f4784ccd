"""Paired statistics over seeds, with bootstrap intervals. No assumption about how gaps are distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from poolrl.arrays import FloatArray
from poolrl.paper import sweeps
from poolrl.paper.results import resolved
from poolrl.paper.sweeps import Setting
from poolrl.paper.trials import Run

RESAMPLES = 10_000
ROUNDING = 1e-9  # differences below this are equality


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
    """An estimate with its bootstrap 95% interval, and what it is about."""

    estimate: float
    low: float
    high: float
    about: str = ""


def bootstrap(values: FloatArray, statistic: Callable[[FloatArray], FloatArray], about: str = "") -> Interval:
    """Resample seeds, the first axis of `values` (seeds, …); `statistic` takes (resamples, seeds, …)."""
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(statistic(values[picks]), (0.025, 0.975))
    return Interval(float(statistic(values[None])[0]), float(low), float(high), about)


def mean_difference(pairs: FloatArray, about: str = "") -> Interval:
    """Mean over seeds of second minus first."""
    return bootstrap(pairs[:, 1] - pairs[:, 0], lambda sample: sample.mean(axis=1), about)


def mean_slope(values: FloatArray, at: FloatArray, about: str = "") -> Interval:
    """Mean over seeds of the least-squares slope of `values` (seeds, points) against `at` (points,)."""
    centred = at - at.mean()
    slopes = values @ centred / (centred @ centred)
    return bootstrap(slopes, lambda sample: sample.mean(axis=1), about)


def slope_of_means(values: FloatArray, at: FloatArray, about: str = "") -> Interval:
    """The slope of log mean gap against `at`: single gaps may be negative by luck, their means hardly ever are."""
    centred = at - at.mean()

    def slope(sample: FloatArray) -> FloatArray:
        means = np.log(np.maximum(sample.mean(axis=1), 1e-7))
        return np.asarray(means @ centred / (centred @ centred))

    return bootstrap(values, slope, about)


def judge(comparisons: Sequence[Interval]) -> tuple[str, Interval]:
    """Whether every comparison is positive, and the one that decided.

    *holds*: every interval lies above zero. *does not hold*: one lies at or below zero. Else *undecided*.
    """
    worst = min(comparisons, key=lambda interval: interval.low)
    against = [interval for interval in comparisons if interval.high <= ROUNDING]
    if against:
        return "does not hold", min(against, key=lambda interval: interval.high)
    return ("holds" if worst.low > ROUNDING else "undecided"), worst
