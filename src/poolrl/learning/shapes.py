"""A public dictionary of laws: the shapes that demand usually has, at every size.

A law is a distribution between the outcome's public bounds, in shares of the bound. Most laws are *located*: a shape
(family and relative spread) with its mean on an even grid of log-means. Two laws have no size of their own: uniform
between the bounds, which is the public prior, and always zero, as on days when the shop is closed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from poolrl.checks import FloatArray
from poolrl.geometry.bins import bin_edges
from poolrl.geometry.resolution import LOG_MEAN_STEP, PLANNING_BINS

# Coefficients of variation of single-peaked laws: from deliveries to a fixed list of customers to intermittent demand.
SPREADS_OF_SHAPES = (0.08, 0.13, 0.2, 0.3, 0.42, 0.6, 0.85, 1.2)
# Two peaks: the higher one's place in multiples of the lower one's, and the lower one's share.
PEAK_RATIOS, PEAK_SHARES, PEAK_SPREADS = (1.7, 2.2, 2.8, 3.6, 4.8, 6.5), (0.3, 0.4, 0.5, 0.6, 0.7), (0.08, 0.16)
# Even between two limits, as orders of somebody who tries things out: half the width, in multiples of the mean.
EVEN_WIDTHS = (0.3, 0.6, 1.0)
# Nothing on some days, else a gamma law: the share of such days.
IDLE_SHARES, IDLE_SPREADS = (0.2, 0.5, 0.8), (0.4, 0.8)
# How common one peak, two peaks, idle days and even laws are, before any data.
USUAL = (0.8, 0.1, 0.05, 0.05)
# Cells seen before any data, of each class.
LOCATED_AND_UNIFORM, ALWAYS_ZERO = (24.0, 1.2), 2.4
# Laws without a size stand at the end of the table: the uniform one, then zero.
WITHOUT_SIZE, UNIFORM = 2, 0
# Single precision.
SingleArray = NDArray[np.float32]
# Means below this part of a bin cannot be told apart, means above this many bounds hardly.
LOWEST_MEAN, HIGHEST_MEAN = 0.35, 1.6
# Nor are means below this share of the bound looked for: shops a thousand times smaller than the bound.
LOWEST_SHARE = 5e-4


@dataclass(frozen=True)
class Laws:
    """All laws as shares of B bins, (M · S + 2, B): M log-means times S shapes, then the two without a size.

    In single precision, because a likelihood has cells × laws numbers.
    """

    log_means: FloatArray  # (M,)
    usual: FloatArray  # (S,) how common each shape is, before any data
    table: SingleArray
    classes: FloatArray  # (3,) cells seen before any data: located, uniform, zero

    @cached_property
    def beyond(self) -> SingleArray:
        """S(i) = P(X beyond bin i) + half of bin i, of every law."""
        return beyond(self.table.astype(np.float64)).astype(np.float32)

    @property
    def located(self) -> SingleArray:
        """The laws with a size, (M, S, B)."""
        return self.table[:-WITHOUT_SIZE].reshape(len(self.log_means), len(self.usual), -1)

    @property
    def uniform(self) -> FloatArray:
        """The public prior, (B,)."""
        return self.table[len(self.table) - WITHOUT_SIZE + UNIFORM].astype(np.float64)


def beyond(law: FloatArray) -> FloatArray:
    """S(i) = P(X beyond bin i) + half of bin i."""
    # A cumulative sum may pass one by a rounding error, and shares are never negative.
    return np.maximum(1.0 - np.cumsum(law, axis=-1) + law / 2, 0.0)


@lru_cache(maxsize=16)
def dictionary(resolved: int, bins: int, *, higher: bool = False, closes: bool = True) -> Laws:
    """The laws on `bins` bins, with means down to what `resolved` bins can tell from zero.

    Bins are in the order in which outcomes are lost from sight: from the top on the `higher` side. Shops close on some
    days. Where nothing ever `closes`, no law is always zero.

    What a law has beyond the bound stands in the last bin: demand is at most the bound, by public knowledge.
    """
    low, high = math.log(max(LOWEST_MEAN * bin_edges(resolved)[1], LOWEST_SHARE)), math.log(HIGHEST_MEAN)
    log_means = low + LOG_MEAN_STEP * np.arange(math.ceil((high - low) / LOG_MEAN_STEP) + 1)
    mean, edge = np.exp(log_means)[:, None], bin_edges(bins)
    single = [_gamma_below(edge, mean, cv) for cv in SPREADS_OF_SHAPES]
    single += [_normal_below(edge, mean, cv * mean) for cv in SPREADS_OF_SHAPES]
    single += [_lognormal_below(edge, mean, cv) for cv in SPREADS_OF_SHAPES]
    # Mirrored at the mean: a long tail towards zero.
    single += [1 - _gamma_below(2 * mean - edge, mean, cv) for cv in SPREADS_OF_SHAPES]
    peaks = []
    for ratio in PEAK_RATIOS:
        for share in PEAK_SHARES:
            lower = mean / (share + (1 - share) * ratio)
            for cv in PEAK_SPREADS:
                low_peak, high_peak = (_normal_below(edge, place, cv * mean) for place in (lower, ratio * lower))
                peaks.append(share * low_peak + (1 - share) * high_peak)
    idle = [p + (1 - p) * _gamma_below(edge, mean / (1 - p), cv) for p in IDLE_SHARES for cv in IDLE_SPREADS]
    even = [np.clip((edge / mean - 1 + width) / (2 * width), 0.0, 1.0) for width in EVEN_WIDTHS]
    kinds = (single, peaks, idle, even)
    usual = np.concatenate([np.full(len(kind), share / len(kind)) for kind, share in zip(kinds, USUAL, strict=True)])
    cumulative = [*single, *peaks, *idle, *even]
    below = np.stack(cumulative, axis=1)  # (M, S, B + 1)
    below[..., 0], below[..., -1] = 0.0, 1.0
    located = np.maximum(np.diff(below, axis=-1), 0.0).reshape(-1, bins)
    table = np.concatenate([located, np.diff(edge)[None], np.eye(1, bins)]).astype(np.float32)
    if higher:
        table = np.ascontiguousarray(table[:, ::-1])
    classes = np.array([*LOCATED_AND_UNIFORM, ALWAYS_ZERO * closes])
    return Laws(np.asarray(log_means, dtype=np.float64), usual, table, classes)


def fine_bins(bins: int) -> int:
    """How finely laws are planned on."""
    return max(bins, PLANNING_BINS)


def _gamma_below(edge: FloatArray, mean: FloatArray, cv: float) -> FloatArray:
    return np.asarray(special.gammainc(cv**-2, np.maximum(edge, 0.0) / (mean * cv**2)))


def _normal_below(edge: FloatArray, mean: FloatArray, deviation: FloatArray) -> FloatArray:
    return np.asarray(special.ndtr((edge - mean) / deviation))


def _lognormal_below(edge: FloatArray, mean: FloatArray, cv: float) -> FloatArray:
    variance = math.log1p(cv**2)
    with np.errstate(divide="ignore"):
        return np.asarray(special.ndtr((np.log(edge) - np.log(mean) + variance / 2) / math.sqrt(variance)))
