"""Discrete Gaussian noise from a generator, for tests of tests; and bugs that are planted into the secure one."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial, reduce

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrl.audit.noise import NUMBERS_AT_ONCE, added, judge_noise, look_at_noise, noise_parts
from poolrl.checks import FloatArray, IntArray
from poolrl.privacy.noise import secure
from poolrl.privacy.noise.source import discrete_gaussian

Add = Callable[[IntArray, Fraction], IntArray]


def spoil_noise(plant: pytest.MonkeyPatch, spoilt: Callable[[Add, IntArray, Fraction], IntArray]) -> None:
    """A planted bug: what the secure sampler adds is made of how it adds, of the counts and of the variance."""
    honest = secure._SecureSampler.add
    plant.setattr(secure._SecureSampler, "add", lambda self, counts, v: spoilt(partial(honest, self), counts, v))


def discrete(shape: tuple[int, ...], variance: float, rng: np.random.Generator) -> NDArray[np.int32]:
    """Independent draws."""
    support, weights = discrete_gaussian(math.sqrt(variance))
    return rng.choice(support, p=weights, size=shape).astype(np.int32)


def noise_faults(first: NDArray[np.int32], second: NDArray[np.int32], variance: float | FloatArray) -> list[str]:
    """The faults of the noise in the two logs' releases, whose numbers have this variance, or one each."""
    parts = noise_parts(np.broadcast_to(variance, first.shape[1:]))
    length = max(2, NUMBERS_AT_ONCE // first.shape[1])
    blocks = [(first[at : at + length], second[at : at + length]) for at in range(0, len(first), length)]
    seen = reduce(added, (look_at_noise(*block, parts, len(first) + len(second)) for block in blocks))
    return judge_noise(seen, parts)
