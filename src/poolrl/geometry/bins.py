"""Where the bins of an outcome lie: narrow near zero, wide near the bound.

Shops of one chain sell from 4 to 650 of a thing a day, and a public bound is often ten times too large. Equal bins
would then put a small shop into the first of them. The i-th of B edges is (i/B)², in shares of the public range: every
engine has a correctly rounded square root, so a row falls into the same bin everywhere.
"""

from typing import Any

import numpy as np

from poolrl.checks import FloatArray


def bin_edges(bins: int) -> FloatArray:
    """The B + 1 edges, from 0 to 1."""
    return (np.arange(bins + 1) / bins) ** 2


def outward_edges(bins: int, *, higher: bool) -> FloatArray:
    """The same edges in the order in which an outcome is lost from sight: upwards, or downwards on the higher side."""
    return bin_edges(bins)[::-1] if higher else bin_edges(bins)


def bin_of(unit: Any, bins: int) -> Any:
    """The bin of each outcome in unit coordinates, for arrays or symbols of rows; no number has a bin too."""
    # The least of both first: engines cast what they floor, and a cast of a huge number fails.
    return np.floor(np.minimum(np.sqrt(np.fmax(unit, 0.0)) * bins, bins - 1)).astype(np.int64)
