"""Discrete Gaussian noise from a generator, for tests of tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from poolrl.audit.noise import NUMBERS_AT_ONCE, added, judge_noise, look_at_noise, noise_parts
from poolrl.privacy.noise.source import discrete_gaussian


def discrete(shape: tuple[int, ...], variance: float, rng: np.random.Generator) -> NDArray[np.int32]:
    """Independent draws."""
    support, weights = discrete_gaussian(math.sqrt(variance))
    return rng.choice(support, p=weights, size=shape).astype(np.int32)


def noise_faults(
    first: NDArray[np.int32],
    second: NDArray[np.int32],
    variance: float | Sequence[float],
    shapes: Sequence[tuple[int, ...]] = (),
) -> list[str]:
    """The faults of the noise in the two logs' releases; `shapes` are those of the tables, with a variance each."""
    shapes = shapes or (first.shape[1:],)
    variances = [variance] * len(shapes) if isinstance(variance, float) else variance
    parts = noise_parts(shapes, variances, len(first) + len(second))
    length = max(2, NUMBERS_AT_ONCE // parts[-1].where.stop // 2 * 2)
    found = None
    for start in range(0, max(len(first), len(second)), length):
        blocks = [each[start : start + length] for each in (first, second)]
        seen = look_at_noise(blocks[0], blocks[1], parts, (start, len(first) + start))
        found = seen if found is None else added(found, seen)
    assert found is not None
    return judge_noise(found, parts)
