"""Compiled inner loops of learning. Rows are independent of each other (see `geometry.compiled_nodes`)."""

from __future__ import annotations

from numba import njit

from poolrl.checks import FloatArray


@njit(nogil=True, cache=True)
def lower_to(counts: FloatArray, high: FloatArray) -> None:
    """Lower each row of non-negative counts evenly, down to zero, until its sum is at most `high`, in place.

    Σ (n_s − t)⁺ = high is solved by Newton's method from t = 0. The function is convex and piecewise linear, so t grows
    towards the solution and reaches it after one step per piece, mostly three or four.
    """
    for row in range(counts.shape[0]):
        t = 0.0
        while True:
            total, active = 0.0, 0
            for count in counts[row]:
                if count > t:
                    total += count
                    active += 1
            if active == 0:
                break
            further = (total - high[row]) / active
            if further <= t:
                break
            t = further
        if t > 0.0:
            for s in range(counts.shape[1]):
                counts[row, s] = max(counts[row, s] - t, 0.0)


@njit(nogil=True, cache=True)
def expected_sums(
    arrived: FloatArray,
    reward: FloatArray,
    weights: FloatArray,
    low: FloatArray,
    high: FloatArray,
    value: FloatArray,
    sums: FloatArray,
) -> None:
    """Σ_b w_b (r + V(s′)) of each row and coordinate, V piecewise linear between evenly spaced points.

    `arrived` and `reward` (rows, B, k), `weights` (k, B), `value` (k, P) from `low` to `high` (k,), `sums` (rows, k).
    """
    rows, outcomes, coordinates = arrived.shape
    points = value.shape[1]
    for i in range(coordinates):
        scale = (points - 1) / (high[i] - low[i])
        for row in range(rows):
            total = 0.0
            for b in range(outcomes):
                position = min(max((arrived[row, b, i] - low[i]) * scale, 0.0), points - 1.0)
                lower = min(int(position), points - 2)
                part = position - lower
                future = (1.0 - part) * value[i, lower] + part * value[i, lower + 1]
                total += weights[i, b] * (reward[row, b, i] + future)
            sums[row, i] = total
