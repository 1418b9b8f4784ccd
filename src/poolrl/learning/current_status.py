"""Laws of outcomes of which a log shows only the side: bought at this price or not (current-status data).

The value of a buyer is never seen, so there is nothing that Kaplan-Meier could count. At each price that was tried the
share of those who did not buy estimates F(price), and F cannot fall: the most likely law is the isotonic regression of
these shares (Ayer et al. 1955). It converges slowly, at n^(−1/3). So it only corrects the law that the dictionary's
shapes explain, from few bins to many, as far as noise and sampling allow. Where no price was tried, that law remains.

Prices must not follow values that only the seller knows. Then a share at a price is the share of all buyers, and F is
known between the lowest and the highest price that were tried. Elsewhere it goes on by its shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import isotonic_regression

from poolrl.checks import FloatArray, IntArray
from poolrl.learning.shapes import beyond
from poolrl.learning.trees import SPREADS, upward

# The first bins, and how many rows the last ones have, at least and beside the noise of their counts.
FEWEST_STATUS_BINS, ROWS_OF_BIN, NOISES_OF_BIN = 4, 40, 10
# Bins seen before any data, when it is learned how far shares lie off; and how often that is learned anew.
USUAL_BINS, EM_ROUNDS = 4.0, 20
# Of a count that is sampled: a share that is sure to be zero is not infinitely well known.
LEAST_SAMPLED = 0.25
# Where nothing was tried, a share still has some weight, so that every share has a place in the regression.
LEAST_WEIGHT = 1e-9


def isotonic_laws(
    levels: Sequence[FloatArray],
    variance: float,
    totals: FloatArray,
    laws: FloatArray,
    tried: FloatArray,
    alike: IntArray,
    spread: float,
) -> FloatArray:
    """Laws (cells, F) from trees of levels (cells, 2, size): outcomes before and beyond the values that were tried.

    `variance` is the noise of a node, `totals` (cells,) are slots. `laws` (cells, F) are what the shapes explain, and
    `tried` (cells, F) are the laws of tried values. Cells of one number in `alike` (cells,), such as the steps of a
    trajectory, miss their shapes in the same way, until they show that they do not. From few bins to many the laws are
    moved to the isotonic regression of the shares of each bin, while bins have more rows than noise.
    """
    nodes, noise = upward(levels, variance)
    found = np.array(laws)
    for counts, own in zip(nodes, noise, strict=True):
        bins = counts.shape[-1]
        if bins >= FEWEST_STATUS_BINS and totals.mean() / bins >= max(ROWS_OF_BIN, NOISES_OF_BIN * own**0.5):
            found = _corrected(found, counts, totals, tried, alike, own, spread)
    return found


def _corrected(
    laws: FloatArray,
    counts: FloatArray,
    totals: FloatArray,
    tried: FloatArray,
    alike: IntArray,
    variance: float,
    spread: float,
) -> FloatArray:
    """Laws (cells, F), moved to the shares of bins with counts (cells, 2, bins)."""
    bins, fine = counts.shape[-1], laws.shape[-1]
    # What a law expects of a bin: its mean over the values that were tried there.
    weights = tried.reshape(len(laws), bins, -1) + LEAST_WEIGHT
    below = (1 - beyond(laws)).reshape(weights.shape)
    expected = (below * weights).sum(axis=-1) / weights.sum(axis=-1)
    rows = totals[:, None] * weights.sum(axis=-1)
    known = np.maximum(rows, 1.0)
    sampled = np.maximum(known * expected * (1 - expected), LEAST_SAMPLED)
    error = (variance * (expected**2 + (1 - expected) ** 2) + sampled) / known**2
    off = np.where(rows >= 1, (counts[:, 0] - expected * counts.sum(axis=1)) / known, 0.0)
    groups, group = np.unique(alike, return_inverse=True)
    together = (alike == groups[:, None]).astype(np.float64)  # (groups, cells)
    precision = together @ (1 / error)
    common = _leaning(together @ (off / error) / precision, 1 / precision, spread)[group]
    share = np.clip(expected + common + _leaning(off - common, error, spread), 0.0, 1.0)
    moved = np.stack([_rising(each, weight) for each, weight in zip(share, rows, strict=True)]) - expected
    place, middles = (np.arange(fine + 1) / fine) * bins, np.arange(bins) + 0.5
    found = np.empty_like(laws)
    for cell, law in enumerate(laws):
        cumulative = np.append(0.0, np.cumsum(law)) + np.interp(place, middles, moved[cell])
        rising = np.clip(_rising(cumulative, np.ones(fine + 1)), 0.0, 1.0)
        rising[0], rising[-1] = 0.0, 1.0
        found[cell] = np.diff(rising)
    return found


def _leaning(off: FloatArray, error: FloatArray, spread: float) -> FloatArray:
    """How far shares really lie off, where off by `off` with variance `error` was measured.

        real ~ Σ_j π_j N(0, τ_j²),    off | real ~ N(real, error)

    The weights π are learned from all bins (empirical Bayes), so a few bins may lie far off where most do not.
    """
    total = SPREADS**2 + error[..., None]
    likelihood = np.exp(-0.5 * (off[..., None] ** 2 / total)) / np.sqrt(total)
    first = np.exp(-SPREADS / spread)
    usual = weights = first / first.sum()
    for _ in range(EM_ROUNDS):
        each = weights * likelihood
        each /= np.maximum(each.sum(axis=-1, keepdims=True), 1e-300)
        weights = each.reshape(-1, len(SPREADS)).sum(axis=0) + USUAL_BINS * usual
        weights /= weights.sum()
    return np.asarray((each * (SPREADS**2 / total)).sum(axis=-1) * off)


def _rising(values: FloatArray, weights: FloatArray) -> FloatArray:
    return np.asarray(isotonic_regression(values, weights=np.maximum(weights, LEAST_WEIGHT)).x)
