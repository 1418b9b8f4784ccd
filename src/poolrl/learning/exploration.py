"""How far the log looked, and how demand goes on beyond.

Below the levels that shops tried, demand is seen. Above them it is not, and no amount of data tells it. The few rows
that reach further are no sample: most of them had stock left over from a slow day. So the explored range ends where
fewer than one slot in ten looked further, and beyond it the law goes on by its shape: as the lognormal law through two
points of what was seen, its value at the end of the range and half of that.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from poolrl.checks import BoolArray, FloatArray
from poolrl.geometry.bins import bin_edges

EXPLORED = 0.1
# Less than this share of demand inside the explored range says nothing about the rest, and more leaves no rest.
LEAST_SEEN, MOST_SEEN = 0.02, 0.999
# The lognormal's spread: neither a spike nor a law without end.
NARROWEST, WIDEST = 0.05, 1.0


def looked_at(tried: FloatArray) -> BoolArray:
    """Which bins lie in the explored range, by the law of cut-off levels (..., bins)."""
    reached = np.cumsum(tried[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(reached >= EXPLORED)


def continued(weights: FloatArray, tried: FloatArray) -> FloatArray:
    """Weights (cells, F) on the bins of `bin_edges`, with another tail beyond the explored range.

    Through x with F(x) = F(e)/2 and the end e of the range,

        F(y) = Φ((ln y − m) / s),   s = (ln e − ln x) / (Φ⁻¹(F(e)) − Φ⁻¹(F(x))),   m = ln e − s Φ⁻¹(F(e))
    """
    bins = weights.shape[-1]
    edges, rows = bin_edges(bins), np.arange(len(weights))
    below = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights, axis=-1)], axis=-1)
    below /= below[:, -1:]
    end = looked_at(tried).sum(axis=-1)  # the number of explored bins, so the edge where they end
    seen = below[rows, end]
    half = (below < seen[:, None] / 2).sum(axis=-1)
    first = below[rows, half]
    usable = (seen > LEAST_SEEN) & (seen < MOST_SEEN) & (half > 0) & (half < end) & (first < seen) & (end < bins)
    x, e = edges[np.where(usable, half, 1)], edges[np.where(usable, end, 2)]
    z_x, z_e = ndtri(np.where(usable, first, 0.25)), ndtri(np.where(usable, seen, 0.5))
    spread = np.clip(np.log(e / x) / (z_e - z_x), NARROWEST, WIDEST)
    with np.errstate(divide="ignore"):
        tail = ndtr((np.log(edges) - np.log(e)[:, None]) / spread[:, None] + z_e[:, None])
    beyond = usable[:, None] & (np.arange(bins + 1) > end[:, None])
    below = np.where(beyond, np.maximum(tail, seen[:, None]), below)
    # Demand is at most the bound, so what the tail has beyond it stands in the last bin.
    below[:, -1] = 1.0
    return np.diff(below, axis=-1)
