"""How far the log looked, and how demand goes on beyond.

Below the levels that shops tried, demand is seen. Above them it is not, and no amount of data tells it. The few rows
that reach further are no sample: most of them had stock left over from a slow day. So the explored range ends where
fewer than one slot in ten looked further, and beyond it the law goes on by its shape: as the lognormal law that best
continues what was seen.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from poolrl.checks import BoolArray, FloatArray
from poolrl.geometry.bins import outward_edges

EXPLORED = 0.1
# Beyond the explored range outcomes are extrapolated. No decision lies further beyond it than by this factor
# (docs/departures.md, 27).
CLIMB = 1.5
# A price or a bid is named freely: whoever named a low one did not do so because of what was left.
EXPLORED_BY_CHOICE = 0.02
# Less than this share of demand inside the explored range says nothing about the rest, and more leaves no rest.
LEAST_SEEN, MOST_SEEN = 0.02, 0.999
# Points below the end of the range, by their shares of what was seen. Nearer ones would have the noise of one bin.
POINTS = np.array([0.35, 0.5, 0.65])
# The lognormal's spread: neither a spike nor a law without end.
NARROWEST, WIDEST = 0.05, 1.0


def looked_at(tried: FloatArray, least: float = EXPLORED) -> BoolArray:
    """Which bins lie in the explored range, by the law of cut-off levels (..., bins)."""
    reached = np.cumsum(tried[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(reached >= least)


def continued(weights: FloatArray, tried: FloatArray, *, higher: bool = False, least: float = EXPLORED) -> FloatArray:
    """Weights (cells, F) on the bins of `outward_edges`, with another tail beyond the explored range.

    A lognormal law is a line: Φ⁻¹(F(x)) = (ln x − m) / s. The line through the end e of the range, fitted to some
    points x_i below it, is followed beyond:

        s = Σ Δz_i Δl_i / Σ Δz_i²,    Δz_i = Φ⁻¹(F(e)) − Φ⁻¹(F(x_i)),    Δl_i = ln e − ln x_i

    On the higher side F counts from the top, edges fall, and the line falls with them: s is negative.
    """
    bins, sign = weights.shape[-1], -1.0 if higher else 1.0
    edges = outward_edges(bins, higher=higher)
    below = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights, axis=-1)], axis=-1)
    below /= below[:, -1:]
    end = looked_at(tried, least).sum(axis=-1)  # the number of explored bins, so the edge where they end
    seen = np.take_along_axis(below, end[:, None], -1)  # (cells, 1)
    shares = seen * POINTS
    places = _quantiles(below, edges, shares)
    usable = (seen > LEAST_SEEN) & (seen < MOST_SEEN) & (places.min(axis=1) > 0)[:, None] & (end < bins)[:, None]
    e, x = edges[np.where(usable, end[:, None], 1)], np.where(usable, places, edges[1] / 2)
    z_e = ndtri(np.where(usable, seen, 0.5))
    rises, widths = z_e - ndtri(np.where(usable, shares, 0.25)), sign * np.log(e / x)
    spread = sign * np.clip((rises * widths).sum(axis=1) / (rises**2).sum(axis=1), NARROWEST, WIDEST)[:, None]
    with np.errstate(divide="ignore"):
        tail = ndtr(np.log(edges / e) / spread + z_e)
    beyond = usable & (np.arange(bins + 1) > end[:, None])
    below = np.where(beyond, np.maximum(tail, seen), below)
    # Demand is at most the bound, so what the tail has beyond it stands in the last bin.
    below[:, -1] = 1.0
    return np.diff(below, axis=-1)


def _quantiles(below: FloatArray, edges: FloatArray, shares: FloatArray) -> FloatArray:
    """Where distribution functions (cells, F + 1) on the edges reach shares (cells, P), linear between edges."""
    upper = np.stack([(below < share[:, None]).sum(axis=-1) for share in shares.T], axis=-1)
    upper = np.clip(upper, 1, below.shape[-1] - 1)
    low, high = np.take_along_axis(below, upper - 1, -1), np.take_along_axis(below, upper, -1)
    part = np.clip((shares - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    return edges[upper - 1] + part * (edges[upper] - edges[upper - 1])
