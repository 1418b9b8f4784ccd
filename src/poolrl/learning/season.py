"""Rounds of a season are alike, until they show that they are not.

One round has few rows, and the best bid of a noisy law is too often the best of its noise. But the same kind of people
come to all rounds. So the trees of all steps are added up, and tell the law F of the season. A step has this law at a
size of its own:

    F_h(x) = F(x e^{−m_h}),    m_h ~ N(0, τ²)

with τ learned from all steps (empirical Bayes). Where rounds do not differ, τ is zero, and all have the law of the
season. What else a step shows is then learned around that law, against the sampling of its rows (`consistent_masses`).
A season of rounds that differ much is wider than each of them. So it counts as far as it explains the trees of the
steps as well as laws of their own do (`shared_part`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit, logsumexp, softmax

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.geometry.bins import bin_edges
from poolrl.geometry.resolution import SHAPE_BINS
from poolrl.learning.cell_laws import coarser
from poolrl.learning.likelihood import LEAST_LEAF_VARIANCE, MISFIT, Observed, expected_shares
from poolrl.learning.outcomes import share_up_to

# Sizes m of a step that are looked at: from less than half to more than twice the season's.
SIZES_IN_LOGS = 0.05 * np.arange(-16, 17)
SAME_SIZE = len(SIZES_IN_LOGS) // 2
# How far the sizes of steps may differ, and how far they usually do, before any data.
SIZE_SPREADS, USUAL_SIZE_SPREAD = np.array([0.0, 0.03, 0.06, 0.1, 0.16, 0.25, 0.4]), 0.15
# By so much, in nats, a law that was chosen for a step explains its trees better by luck: about a shape and a size.
LUCK_OF_A_STEP = 1.0
# Steps whose likelihoods are computed at once.
STEPS_AT_ONCE = 256


def at_own_size(
    season: FloatArray,
    cutoffs: FloatArray,
    levels: Sequence[FloatArray],
    variance: float,
    totals: FloatArray,
    *,
    status: BoolArray,
    higher: bool,
) -> FloatArray:
    """The posterior mean law of every step, (cells, F), given the laws of its season and of tried values (cells, F).

    `levels` (cells, kinds, size) are the steps' own trees, with noise of `variance` and `totals` (cells,) slots.
    `status` (cells,) says where only the side of an outcome is seen. On the `higher` side bins count from the top.
    """
    resolved = min(levels[-1].shape[-1], SHAPE_BINS)
    trees = Observed.of(list(levels), variance, resolved), coarser(cutoffs, resolved), totals, status
    scores = np.empty((len(totals), len(SIZES_IN_LOGS)))
    for start in range(0, len(totals), STEPS_AT_ONCE):
        some = slice(start, start + STEPS_AT_ONCE)
        laws = np.stack([resized(season[some], size, resolved, higher=higher) for size in SIZES_IN_LOGS], axis=1)
        scores[some] = _log_likelihoods_of(laws, *trees, some, usual=laws[:, SAME_SIZE])
    weights = weights_of_sizes(scores)
    return np.asarray(
        sum(
            weight[:, None] * resized(season, size, season.shape[-1], higher=higher)
            for size, weight in zip(SIZES_IN_LOGS, weights.T, strict=True)
            if weight.any()
        )
    )


def resized(laws: FloatArray, size: float, bins: int, *, higher: bool) -> FloatArray:
    """Laws (..., F) of outcomes e^size times as large, on `bins` bins; what exceeds the bound is in the last one."""
    natural = laws[..., ::-1] if higher else laws
    reached = share_up_to(natural, np.minimum(bin_edges(bins) * np.exp(-size), 1.0))
    reached[..., -1] = 1.0
    found = np.diff(reached, axis=-1)
    return found[..., ::-1] if higher else found


def weights_of_sizes(scores: FloatArray) -> FloatArray:
    """How likely each step has each size, (cells, S), by log-likelihoods of the same shape and a spread for all."""
    log_joint, posteriors = np.empty(len(SIZE_SPREADS)), []
    for i, spread in enumerate(SIZE_SPREADS):
        prior = np.eye(len(SIZES_IN_LOGS))[SAME_SIZE] if spread == 0 else np.exp(-((SIZES_IN_LOGS / spread) ** 2) / 2)
        with np.errstate(divide="ignore"):
            joint = scores + np.log(prior / prior.sum())
        total = logsumexp(joint, axis=1, keepdims=True)
        log_joint[i] = total.sum() - spread / USUAL_SIZE_SPREAD
        posteriors.append(np.exp(joint - total))
    return np.einsum("t,tcs->cs", softmax(log_joint), np.stack(posteriors))


def shared_part(
    sized: FloatArray,
    own: FloatArray,
    cutoffs: FloatArray,
    levels: Sequence[FloatArray],
    variance: float,
    totals: FloatArray,
    *,
    status: BoolArray,
    same_season: IntArray,
) -> FloatArray:
    """How likely the laws of a season explain its steps, (cells,), and not laws of their own; both are (cells, F).

    A law of its own has a shape and a size for each step. Having been chosen for its trees, it explains them a bit
    better by luck, which is taken off. `same_season` (cells,) numbers the seasons.
    """
    resolved = min(levels[-1].shape[-1], SHAPE_BINS)
    trees = Observed.of(list(levels), variance, resolved), coarser(cutoffs, resolved), totals, status
    laws = np.stack([coarser(sized, resolved), coarser(own, resolved)], axis=1)
    better = np.empty(len(totals))
    for start in range(0, len(totals), STEPS_AT_ONCE):
        some = slice(start, start + STEPS_AT_ONCE)
        found = _log_likelihoods_of(laws[some], *trees, some, usual=laws[some].mean(axis=1))
        better[some] = found[:, 0] - found[:, 1] + LUCK_OF_A_STEP
    return np.asarray(expit(np.bincount(same_season, better)[same_season]))


def _log_likelihoods_of(
    laws: FloatArray,
    observed: Observed,
    tried: FloatArray,
    totals: FloatArray,
    status: BoolArray,
    some: slice,
    *,
    usual: FloatArray,
) -> FloatArray:
    """Of `some` cells' trees under laws (cells, S, B), (cells, S), up to a constant of each cell.

    Noise is as in `likelihood`, sampling that of the `usual` laws (cells, B).
    """
    inverse = np.linalg.inv(observed.precision)
    leaves = observed.sums[some] @ inverse

    def expected(of: FloatArray) -> FloatArray:
        given, sides = np.broadcast_to(tried[some, None], of.shape), np.broadcast_to(status[some, None], of.shape[:-1])
        return totals[some, None, None, None] * expected_shares(of, given, sides)

    mean = expected(usual[:, None])[:, 0]
    sampled = mean + LEAST_LEAF_VARIANCE + (MISFIT * mean) ** 2
    covariance = observed.variance * inverse + sampled[..., None] * np.eye(sampled.shape[-1])  # (cells, kinds, B, B)
    off = np.moveaxis(leaves[:, None] - expected(laws), 1, -1)  # (cells, kinds, B, S)
    return np.asarray(-0.5 * (off * np.linalg.solve(covariance, off)).sum(axis=(1, 2)))
