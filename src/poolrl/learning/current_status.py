"""Laws of outcomes of which a log shows only the side: bought at this price or not (current-status data).

The value of a buyer is never seen, so there is nothing that Kaplan-Meier could count. At each price that was tried the
share of those who did not buy estimates F(price), and F cannot fall: the most likely law is the isotonic regression of
these shares (Ayer et al. 1955). It converges slowly, at n^(−1/3), so it stands on about n^(1/3) bins, and only
corrects the law that the dictionary's shapes explain. Where no price was tried, that law remains.

Prices must not follow values that only the seller knows. Then a share at a price is the share of all buyers, and F is
known between the lowest and the highest price that were tried. Elsewhere it goes on by its shape.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression

from poolrl.checks import FloatArray
from poolrl.learning.shapes import beyond
from poolrl.learning.trees import borrowed_share

# Fewer bins than this say nothing about a shape.
FEWEST_STATUS_BINS = 4
# Where nothing was tried, a share still has some weight, so that every share has a place in the regression.
LEAST_WEIGHT = 1e-9


def isotonic_laws(masses: FloatArray, laws: FloatArray, *, variance: float, spread: float) -> FloatArray:
    """Laws (cells, F) from masses (cells, 2, B) of outcomes before and beyond the tried values of each bin.

    `laws` (cells, F) are what the shapes explain, on finer bins. `variance` is the noise of a leaf.
    """
    bins, fine = status_bins(float(masses.sum(axis=(1, 2)).mean()), masses.shape[-1]), laws.shape[-1]
    leaves = masses.reshape(*masses.shape[:2], bins, -1)
    before, tried = leaves[:, 0].sum(axis=-1), leaves.sum(axis=(1, 3))  # (cells, bins)
    # What the law expects of a bin: its mean over the values that were tried there.
    below = 1 - beyond(laws.reshape(len(laws), masses.shape[-1], -1).sum(axis=-1))
    weights = leaves.sum(axis=1) + LEAST_WEIGHT
    expected = (below.reshape(weights.shape) * weights).sum(axis=-1) / weights.sum(axis=-1)
    noise = variance * masses.shape[-1] / bins / 2
    share = borrowed_share(tried, before, noise, expected, spread, sampled_too=True)
    moved = np.stack([_rising(each, weight) for each, weight in zip(share, tried, strict=True)]) - expected
    place, middles = (np.arange(fine + 1) / fine) * bins, np.arange(bins) + 0.5
    found = np.empty_like(laws)
    for cell, law in enumerate(laws):
        cumulative = np.concatenate([[0.0], np.cumsum(law)]) + np.interp(place, middles, moved[cell])
        rising = np.clip(_rising(cumulative, np.ones(fine + 1)), 0.0, 1.0)
        rising[0], rising[-1] = 0.0, 1.0
        found[cell] = np.diff(rising)
    return found


def status_bins(slots: float, most: int) -> int:
    """About the cube root of the number of rows, as a power of two."""
    return int(np.clip(2 ** round(np.log2(max(slots, 1.0)) / 3), min(FEWEST_STATUS_BINS, most), most))


def _rising(values: FloatArray, weights: FloatArray) -> FloatArray:
    return np.asarray(isotonic_regression(values, weights=np.maximum(weights, LEAST_WEIGHT)).x)
