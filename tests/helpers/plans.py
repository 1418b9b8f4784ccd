"""Laws of demand as planners take them, and a small private model."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.planning import whole_laws

from poolrl import LostSales, Pool, PrivateModel, SeededNoise
from poolrl.checks import FloatArray
from poolrl.plans.orders import UnitLaws
from poolrl.problems.operations import Operations


def laws_of(chance: FloatArray, operations: Operations, **costs: Any) -> UnitLaws:
    """Laws (k, H, N + 1) of whole units, with usual costs where none are given."""
    return whole_laws(chance, operations, **({"holding": 0.2, "shortage": 1.0} | costs))


def drawn_laws(rng: np.random.Generator, products: int, horizon: int, size: int) -> FloatArray:
    """Any laws of 0 .. size."""
    chance = rng.random((products, horizon, size + 1)) ** 3
    return np.asarray(chance / chance.sum(axis=-1, keepdims=True))


def small_model() -> PrivateModel:
    """Two products, three days, gamma demand; seeded, so not private."""
    problem = LostSales(horizon=3, products=2, holding=0.2, shortage=1.0, demand_max=30.0)
    rng = np.random.default_rng(1)
    log = problem.simulate_log(rng.gamma(4, 2.5, (800, 3, 2)).clip(0, 30), rng=rng)
    return Pool(1.0).model(problem, log, noise=SeededNoise(1))
