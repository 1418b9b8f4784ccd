"""Steps on which nothing happens: a holiday, a shop that stays closed, a till that is switched off.

A few such days in a hundred are too few to be seen in one shop's noisy trees, and no law of the dictionary has them.
But all cells of a step together show them: their first leaves hold more than their laws explain. So that part is taken
out of the trees, the rest is explained by its shape, and the part is put back at zero (`cell_laws.explain`).

    seen first leaf ≈ n_c ((1 − z_h) e_c + z_h S_G(0)),   so   z_h = Σ_c (seen − n_c e_c) / Σ_c n_c (S_G(0) − e_c)

over the cells c of step h, where e_c is the share that the law of all other days expects there, and S_G(0) the chance
that a zero is seen at all. Only what clearly exceeds noise and sampling counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.learning.likelihood import expected_shares

# Standard errors beyond which a share is no accident.
NO_ACCIDENT = 3.0
# A step is not idle altogether: then there would be nothing left to explain.
MOST_IDLE = 0.9


def idle_shares(
    first_leaves: FloatArray,
    variance: float,
    law: FloatArray,
    cutoffs: FloatArray | None,
    totals: FloatArray,
    steps: IntArray,
) -> FloatArray:
    """The share of idle slots of every cell (cells,), the same for all cells of a step.

    `first_leaves` (cells,) are the seen ones, of noise `variance`. `law` and `cutoffs` (cells, B) are the laws of slots
    that are not idle, and `steps` says which step a cell belongs to.
    """

    def over_cells(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(steps, values), dtype=np.float64)

    expected = totals * expected_shares(law, cutoffs)[:, 0, 0]
    room = np.maximum(over_cells(totals * zeros_seen(cutoffs) - expected), 1.0)
    share = np.clip(over_cells(first_leaves - expected) / room, 0.0, MOST_IDLE)
    error = np.sqrt(variance * np.bincount(steps) + np.maximum(over_cells(expected), 1.0)) / room
    return np.asarray(np.where(share > NO_ACCIDENT * error, share, 0.0)[steps])


def zeros_seen(cutoffs: FloatArray | None) -> FloatArray | float:
    """S_G(0) of every cell: a zero is seen unless nothing was ordered either."""
    return 1.0 if cutoffs is None else np.asarray(1.0 - cutoffs[:, 0] / 2)


def without_zeros(levels: Sequence[FloatArray], zeros: FloatArray) -> list[FloatArray]:
    """Trees of levels (cells, kinds, size) without so many seen zeros (cells,)."""
    rest = [level.copy() for level in levels]
    for level in rest:
        level[:, 0, 0] -= zeros
    return rest


def with_zeros(laws: FloatArray, idle: FloatArray) -> FloatArray:
    """Laws (cells, B) of slots of which a share (cells,) is idle."""
    mixed = laws * (1 - idle)[:, None]
    mixed[:, 0] += idle
    return mixed
