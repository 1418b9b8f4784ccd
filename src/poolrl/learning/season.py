"""Rounds of a season are alike, until they show that they are not.

One round has few rows, and the best bid of a noisy law is too often the best of its noise. But the same kind of people
come to all rounds. So the trees of all steps are added up, and tell the law F of the season. A step has this law at a
size of its own:

    F_h(x) = F(x e^{−m_h}),    m_h ~ N(0, τ²)

with τ learned from all steps (empirical Bayes). Where rounds do not differ, τ is zero, and all have the law of the
season. What else a step shows is then learned around that law, against the sampling of its rows (`consistent_masses`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poolrl.checks import BoolArray, FloatArray
from poolrl.geometry.bins import bin_edges
from poolrl.geometry.resolution import SHAPE_BINS
from poolrl.learning.cell_laws import coarser
from poolrl.learning.likelihood import LEAST_LEAF_VARIANCE, MISFIT, Observed, expected_shares
from poolrl.learning.outcomes import share_up_to

# Sizes m of a step that are looked at: from less than half to more than twice the season's.
STEP_SIZES = 0.05 * np.arange(-16, 17)
SAME_SIZE = len(STEP_SIZES) // 2
# How far the sizes of steps may differ, and how far they usually do, before any data.
SIZE_SPREADS, USUAL_SIZE_SPREAD = np.array([0.0, 0.03, 0.06, 0.1, 0.16, 0.25, 0.4]), 0.15
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
    observed = Observed.of(list(levels), variance, resolved)
    tried = coarser(cutoffs, resolved)
    scores = np.empty((len(totals), len(STEP_SIZES)))
    for start in range(0, len(totals), STEPS_AT_ONCE):
        some = slice(start, start + STEPS_AT_ONCE)
        laws = np.stack([resized(season[some], size, resolved, higher=higher) for size in STEP_SIZES], axis=1)
        given = np.broadcast_to(tried[some, None], laws.shape)
        sides = np.broadcast_to(status[some, None], laws.shape[:-1])
        expected = totals[some, None, None, None] * expected_shares(laws, given, sides)
        scores[some] = _log_likelihoods_of_sizes(observed, some, expected)
    weights = weights_of_sizes(scores)
    return np.asarray(
        sum(
            weight[:, None] * resized(season, size, season.shape[-1], higher=higher)
            for size, weight in zip(STEP_SIZES, weights.T, strict=True)
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
    likelihood = np.exp(scores - scores.max(axis=1, keepdims=True))
    log_joint, posteriors = np.empty(len(SIZE_SPREADS)), []
    for i, spread in enumerate(SIZE_SPREADS):
        prior = np.eye(len(STEP_SIZES))[SAME_SIZE] if spread == 0 else np.exp(-((STEP_SIZES / spread) ** 2) / 2)
        joint = likelihood * prior / prior.sum()
        total = np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
        log_joint[i] = np.log(total).sum() - spread / USUAL_SIZE_SPREAD
        posteriors.append(joint / total)
    chance = np.exp(log_joint - log_joint.max())
    return np.einsum("t,tcs->cs", chance / chance.sum(), np.stack(posteriors))


def _log_likelihoods_of_sizes(observed: Observed, some: slice, expected: FloatArray) -> FloatArray:
    """Up to a constant of each cell, (cells, S), of expected leaves (cells, S, kinds, B); noise as in `likelihood`."""
    inverse = np.linalg.inv(observed.precision)
    leaves = observed.sums[some] @ inverse
    usual = expected[:, SAME_SIZE]
    sampled = usual + LEAST_LEAF_VARIANCE + (MISFIT * usual) ** 2
    covariance = observed.variance * inverse + sampled[..., None] * np.eye(sampled.shape[-1])  # (cells, kinds, B, B)
    off = np.moveaxis(leaves[:, None] - expected, 1, -1)  # (cells, kinds, B, S)
    return np.asarray(-0.5 * (off * np.linalg.solve(covariance, off)).sum(axis=(1, 2)))
