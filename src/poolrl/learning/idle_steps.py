"""Steps on which nothing happens: a holiday, a shop that stays closed, a till that is switched off.

A few such days in a hundred are too few to be seen in one shop's noisy trees, and no law of the dictionary has them.
But all cells of a step together show them: their first leaves hold more than their laws explain. So that part is taken
out of the trees, the rest is explained by its shape, and the part is put back at zero.

    z_h = Σ_c (seen first leaf − n_c × expected share) / Σ_c n_c S_G(0),      over the cells c of step h

Here S_G(0) is the chance that a zero is seen at all. Only what clearly exceeds noise and sampling counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.learning.cell_laws import CellLaws, coarser, explain

# Standard errors beyond which a share is no accident.
NO_ACCIDENT = 3.0
# A step is not idle altogether: then there would be nothing left to explain.
MOST_IDLE = 0.9
# The laws of the first turn lean towards the idle part; those of the second one no more.
IDLE_TURNS = 2


def explain_with_idle_steps(
    levels: Sequence[FloatArray],
    variance: float,
    totals: FloatArray,
    factors: Sequence[IntArray],
    *,
    steps: IntArray,
    reach: FloatArray,
) -> CellLaws:
    """`explain`, with a share of zeros for every step; `steps` (cells,) says which step a cell belongs to."""
    laws, idle = explain(levels, variance, totals, factors, reach=reach), np.zeros(len(totals))
    for _ in range(IDLE_TURNS):
        seen = _zeros_seen(laws, levels[-1].shape[-1])
        idle = idle_shares(laws, levels[-1], variance, totals, steps, already=idle)[steps]
        if not idle.any():
            break
        rest = explain(
            [_without_zeros(level, idle * totals * seen) for level in levels],
            variance,
            totals * (1 - idle),
            factors,
            reach=reach,
        )
        laws = CellLaws(_with_zeros(rest.outcomes, idle), rest.cutoffs, rest.learned)
    return laws


def idle_shares(
    laws: CellLaws, leaves: FloatArray, variance: float, totals: FloatArray, steps: IntArray, *, already: FloatArray
) -> FloatArray:
    """The share of zeros at each step (H,) beyond those of shapes, by leaves (cells, kinds, bins).

    The laws hold `already` (cells,) of them.
    """

    def over_cells(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(steps, values), dtype=np.float64)

    bins = leaves.shape[-1]
    expected = totals * laws.expected(bins)[:, 0, 0]
    slots = np.maximum(over_cells(totals * _zeros_seen(laws, bins)), 1.0)
    more = over_cells(leaves[:, 0, 0] - expected) / slots
    error = np.sqrt(variance * np.bincount(steps) + np.maximum(over_cells(expected), 1.0)) / slots
    before = over_cells(already * totals) / np.maximum(over_cells(totals), 1.0)
    share = np.clip(before + more, 0.0, MOST_IDLE)
    return np.where(share > NO_ACCIDENT * error, share, 0.0)


def _zeros_seen(laws: CellLaws, bins: int) -> FloatArray:
    """S_G(0) of every cell: a zero is seen unless nothing was ordered either."""
    if laws.cutoffs is None:
        return np.ones(len(laws.outcomes))
    return np.asarray(1.0 - coarser(laws.cutoffs, bins)[:, 0] / 2)


def _without_zeros(level: FloatArray, zeros: FloatArray) -> FloatArray:
    rest = level.copy()
    rest[:, 0, 0] -= zeros
    return rest


def _with_zeros(laws: FloatArray, idle: FloatArray) -> FloatArray:
    mixed = laws * (1 - idle)[:, None]
    mixed[:, 0] += idle
    return mixed
