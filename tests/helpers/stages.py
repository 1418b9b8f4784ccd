"""The kernel of a step as one table."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from poolrl.learning.backward_induction import Stage


def joined(blocks: Iterable[Stage]) -> Stage:
    """All rows of a step, in the order of its nodes."""
    parts = list(blocks)
    order = np.argsort(np.concatenate([part.rows for part in parts]))
    reward, kernel, visits = (
        np.concatenate([getattr(part, name) for part in parts])[order] for name in ("reward", "kernel", "visits")
    )
    return Stage(reward, kernel, visits, parts[0].noise_bound)
