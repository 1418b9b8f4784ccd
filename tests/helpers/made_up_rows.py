"""Results that were not measured: rows of every setting whose gaps follow a formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from poolrl.paper import sweeps
from poolrl.paper.results import Runs
from poolrl.paper.sweeps import SCALES, TUNED, TUNING_SEEDS, Setting, settings_of
from poolrl.paper.trials import Run

Formula = Callable[[Setting, np.random.Generator], float]


def made_up(gap: Formula, *, seeds: int = 10, seconds: Formula = lambda s, rng: 1.0) -> Runs:
    """A table of all settings whose gaps follow a formula."""
    rng = np.random.default_rng(0)
    runs = []
    for setting in sorted(settings_of(sweeps.SWEEPS)):  # so that the order of the sweeps changes no draw
        scales = SCALES if setting.scale == TUNED else (setting.scale,)
        for scale in scales:
            for seed in (*TUNING_SEEDS, *range(seeds)) if setting.scale == TUNED else range(seeds):
                fixed = replace(setting, scale=scale)
                found = gap(fixed, rng)
                time = seconds(fixed, rng)
                runs.append(Run(fixed, seed, 1.0, 1.0, found, found, found, found, time, 0.5, 0.5, 0.1))
    return Runs(runs)


def as_the_paper_says(setting: Setting, rng: np.random.Generator) -> float:
    """Every claim is true of every learner here; the scale 1e-6 is best."""
    base = 0.02 * (1 + 0.001 * rng.normal())
    base *= math.log2(setting.horizon) * (3 - 2 * setting.boundary) * (1 + math.log2(2 * setting.products))
    weeks = setting.data == "rossmann"  # too few for a law in n, and nothing claims one there
    base *= (setting.granularity / 100) ** -0.5 * (1 if weeks else (10_000 / setting.trajectories) ** 0.8)
    base *= 1.0 if math.isinf(setting.rho) else 1 + 0.1 * (40 / setting.rho) ** 0.1 - 0.1
    if setting.method in ("published", "grid"):
        base *= {1e-6: 0.9, 1.0: 1.0}.get(setting.scale, 1.5)
    return base * {"input": 30, "output": 40, "grid": 3}.get(setting.method, 1)


def superlinear_grid(setting: Setting, rng: np.random.Generator) -> float:
    """Times that grow as M², on a grid; as M elsewhere."""
    return float(setting.granularity ** (2.0 if setting.method == "grid" else 1.0) * (1 + 0.01 * rng.normal()))
