"""Compiled inner loops: one pass, row by row, where NumPy would need many passes over large arrays.

Rows are independent and the functions release the interpreter's lock. So `in_blocks` may give blocks of rows to
threads, and results do not depend on the number of threads.

Numba takes half a second to import. This module is therefore imported where it is needed: a person who only asks a
policy for decisions does not wait for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit

from poolrl.checks import FloatArray, IntArray
from poolrl.problems.problem import ROUNDING

# A pool of our own, because Numba's threads do not survive a fork. The variable is Numba's; joblib sets it.
THREADS = int(os.environ.get("NUMBA_NUM_THREADS") or len(os.sched_getaffinity(0)))
# With fewer rows than this, a second thread costs more than it saves.
FEWEST_ROWS = 32


class SearchSpace(NamedTuple):
    """The candidates of a search for the best action, and where they lie. All of it is public."""

    candidates: FloatArray  # (c, d) as shares of the allowed box
    low: FloatArray  # (d,) bounds of the actions
    span: FloatArray  # (d,)
    mirrored: bool  # feedback on the higher side
    reach: FloatArray  # (w + d,) λ_h


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="poolrl")


# A forked child has the pool but none of its threads.
os.register_at_fork(after_in_child=_threads.cache_clear)


def in_blocks(work: Callable[[slice], None], rows: int) -> None:
    """Call `work` on slices that together cover all rows, on as many threads as there are cores."""
    if THREADS == 1 or rows < 2 * FEWEST_ROWS:
        work(slice(0, rows))
        return
    size = max(FEWEST_ROWS, -(-rows // (4 * THREADS)))
    list(_threads().map(work, [slice(start, min(start + size, rows)) for start in range(0, rows, size)]))


# "contract" multiplies and adds in one operation, as matrix products do.
@njit(nogil=True, cache=True, fastmath={"contract"})
def _coefficient(unit: FloatArray, inverse: FloatArray, ring: int, j: int) -> float:
    total = 0.0
    for i in range(unit.shape[0]):
        total += unit[i] * inverse[ring, i, j]
    return total


@njit(nogil=True, cache=True)
def _place(
    row: int, c: int, state: FloatArray, low: FloatArray, high: FloatArray, space: SearchSpace, unit: FloatArray
) -> None:
    """The pair of a state and a candidate in oriented unit coordinates, into `unit`; at `reach` if it is beyond."""
    states, inside = state.shape[1], True
    for i in range(len(unit)):
        if i < states:
            unit[i] = state[row, i]
        else:
            a = i - states
            action = low[row, a] + space.candidates[c, a] * (high[row, a] - low[row, a])
            unit[i] = (action - space.low[a]) / space.span[a]
            if space.mirrored:
                unit[i] = 1.0 - unit[i]
        inside = inside and unit[i] <= space.reach[i] + ROUNDING
    if not inside:
        unit[:] = space.reach


@njit(nogil=True, cache=True)
def best_in_rings(
    inverse: FloatArray,
    radius: float,
    q: FloatArray,
    space: SearchSpace,
    state: FloatArray,
    low: FloatArray,
    high: FloatArray,
    chosen: IntArray,
    values: FloatArray,
) -> None:
    """The best candidate action in each state and its value; the first of equals.

    States (m, w) are in oriented unit coordinates, the allowed box `low` .. `high` (m, d) is in the user's units. Rings
    are read as `Rings.weights` does. No ring gives more than its best point, so most rings need not be read.
    """
    rings, size = inverse.shape[0], inverse.shape[1]
    unit, raw, most = np.empty(size), np.empty(size), np.empty(rings)
    for ring in range(rings):
        most[ring] = q[ring * size : (ring + 1) * size].max()
    for row in range(state.shape[0]):
        best, where = -np.inf, 0
        for c in range(len(space.candidates)):
            _place(row, c, state, low, high, space, unit)
            square = unit[0] * unit[0]
            for i in range(1, size):
                square = square + unit[i] * unit[i]
            ring = min(max(int(np.floor(np.sqrt(square) * rings / radius)), 0), rings - 1)
            if most[ring] + ROUNDING * abs(most[ring]) < best:
                continue
            total = 0.0
            for j in range(size):
                raw[j] = max(_coefficient(unit, inverse, ring, j), 0.0)
                total += raw[j]
            found = 0.0
            for j in range(size):
                found += q[ring * size + j] * (raw[j] / total if total > 0.0 else 1.0 / size)
            if found > best:
                best, where = found, c
        chosen[row], values[row] = where, best
