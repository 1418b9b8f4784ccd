"""The most charitable scale of Γ, chosen on seeds that judge nothing."""

from __future__ import annotations

import math
from dataclasses import replace

from poolrl.paper.sweeps import SCALES, TUNED, TUNING_SEEDS, Setting
from poolrl.paper.trials import Run


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
