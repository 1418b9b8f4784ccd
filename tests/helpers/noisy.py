"""Discrete Gaussian noise from a generator, for tests of tests."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from poolrl.privacy.noise.seeded import discrete_gaussian


def discrete(shape: tuple[int, ...], variance: float, rng: np.random.Generator) -> NDArray[np.int32]:
    """Independent draws."""
    support, weights = discrete_gaussian(math.sqrt(variance))
    return rng.choice(support, p=weights, size=shape).astype(np.int32)
