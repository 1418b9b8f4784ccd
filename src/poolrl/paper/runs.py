"""Finished runs by setting and seed, and the scale of Γ that suits Pool.published best.

The scale is chosen on seeds that judge nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from poolrl.checks import FloatArray
from poolrl.paper.sweeps import SCALES, TUNED, TUNING_SEEDS, Setting
from poolrl.paper.trials import Run


class Runs:
    """Finished runs by setting and seed. Seeds that tuned a scale judge nothing."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = {(run.setting, run.seed): run for run in runs}
        self._by_setting: dict[Setting, dict[int, Run]] = {}
        for run in runs:
            if run.seed not in TUNING_SEEDS:
                self._by_setting.setdefault(run.setting, {})[run.seed] = run

    def chosen(self, setting: Setting) -> Setting:
        """A TUNED setting with the scale that the tuning seeds chose."""
        return resolved(setting, self._runs)

    def of(self, setting: Setting) -> dict[int, Run]:
        """Its runs by seed, none if it was not run."""
        return self._by_setting.get(self.chosen(setting), {})

    def measured(self, setting: Setting, measure: str) -> FloatArray:
        """One measure of its runs, a number per seed."""
        return np.array([getattr(run, measure) for run in self.of(setting).values()])

    @property
    def seeds(self) -> int:
        """How many seeds judge."""
        return len({seed for runs in self._by_setting.values() for seed in runs})

    def paired(self, settings: Sequence[Setting], measure: str = "gap") -> FloatArray:
        """One row per seed that all settings share, one column per setting."""
        found = [self.of(setting) for setting in settings]
        seeds = sorted(set.intersection(*map(set, found))) if found else []
        values = [[getattr(runs[seed], measure) for runs in found] for seed in seeds]
        return np.array(values, dtype=np.float64).reshape(len(seeds), len(settings))

    def present(self, settings: Sequence[Setting]) -> list[Setting]:
        """Those that were run."""
        return [setting for setting in settings if self.of(setting)]


def tuning(settings: list[Setting]) -> list[tuple[Setting, int]]:
    """The runs from which the scale of every TUNED setting is chosen."""
    tuned = [setting for setting in settings if setting.scale == TUNED]
    return [(replace(setting, scale=scale), seed) for seed in TUNING_SEEDS for setting in tuned for scale in SCALES]


def resolved(setting: Setting, runs: dict[tuple[Setting, int], Run]) -> Setting:
    """A TUNED setting with its scale filled in: the least mean gap over the tuning seeds; ties go to the smallest."""
    if setting.scale != TUNED:
        return setting
    best, least = SCALES[0], math.inf
    for scale in SCALES:
        gaps = [runs[key].gap for seed in TUNING_SEEDS if (key := (replace(setting, scale=scale), seed)) in runs]
        mean = sum(gaps) / len(gaps) if gaps else math.inf
        if mean < least:
            best, least = scale, mean
    return replace(setting, scale=best)
