"""From noisy dyadic trees to consistent, non-negative masses: least squares upwards, shrinkage downwards.

Upwards, a node's own count and the sum of its children are combined by inverse variance. Downwards, from the public
total, each parent's mass is split between its children. A noise-dominated split is moved towards one that is better
known: the split of one step towards that of all steps, this towards that of all coordinates, and this towards the
public prior's. How far is learned from the released numbers too (empirical Bayes), at no cost in ρ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from poolrl.checks import FloatArray, IntArray
from poolrl.privacy.released import PrivateOutcomes

# Masses and the variance of each.
NodeEstimate = tuple[FloatArray, float]
# The odds, before any data, that the public prior is right.
PRIOR_ODDS = 4.0
# The standard deviations τ that a split may have around its centre, from zero to any split.
SPREADS = np.concatenate([[0.0], 0.01 * 2.0 ** np.arange(0.0, 6.5, 0.5)])


def consistent_masses(released: PrivateOutcomes, prior: FloatArray, shrinkage: Shrinkage) -> FloatArray:
    """Masses of every leaf, (H, k, kinds, bins), from the trees and the prior's masses (kinds, bins).

    If the released numbers hardly contradict the prior, the prior stays. Its weight would be its posterior probability,
    at prior odds of PRIOR_ODDS to one, if the Bayes factors of the splits were independent. But these share estimated
    centres, so the weight is a rule of caution and not a probability.
    """
    estimates, variances = upward(released.levels, released.variance)
    total = np.full(released.levels[0].shape[:2], float(released.total))
    top, top_variance = estimates[0][..., 0], variances[0]  # (H, k, kinds)
    evidence = 0.0
    if released.unobserved is not None:
        observed = top.sum(axis=-1), top_variance * top.shape[-1]
        missing = released.unobserved.astype(np.float64), released.variance
        # The observed share of a log is not public, and is no evidence for or against the prior.
        total, _ = shrinkage.split(total, observed, missing, prior_share=np.array(0.5))
    if top.shape[-1] == 2:
        seen, cut = ((top[..., kind], top_variance) for kind in (0, 1))
        seen_mass, evidence = shrinkage.split(total, seen, cut, prior_share=prior[0].sum() / prior.sum())
        mass = np.stack([seen_mass, total - seen_mass], axis=-1)[..., None]
    else:
        mass = total[..., None, None]
    for level, (estimate, variance) in enumerate(zip(estimates[1:], variances[1:], strict=True), start=1):
        left, right = (estimate[..., 0::2], variance), (estimate[..., 1::2], variance)
        expected = prior.reshape(len(prior), 2**level, -1).sum(axis=-1)
        parents = expected[:, 0::2] + expected[:, 1::2]
        prior_share = np.where(parents > 0, expected[:, 0::2] / np.where(parents > 0, parents, 1.0), 0.5)
        left_mass, more = shrinkage.split(mass, left, right, prior_share=prior_share)
        mass = np.stack([left_mass, mass - left_mass], axis=-1).reshape(estimate.shape)
        evidence += more
    weight = expit(evidence - np.log(PRIOR_ODDS))
    return weight * mass + (1 - weight) * total[..., None, None] * prior


def upward(levels: tuple[IntArray, ...], variance: float) -> tuple[list[FloatArray], list[float]]:
    """Best linear estimate of every node from its own subtree, root first, with its variance.

    v_s = 2 v_child,   w = v_s / (v_s + σ²),   z = w n′ + (1 − w)(z_left + z_right),   v = σ² w
    """
    estimates, variances = [levels[-1].astype(np.float64)], [variance]
    for level in levels[-2::-1]:
        children, sum_variance = estimates[0], 2 * variances[0]
        weight = sum_variance / (sum_variance + variance) if variance > 0 else 1.0
        from_children = children[..., 0::2] + children[..., 1::2]
        estimates.insert(0, weight * level + (1 - weight) * from_children)
        variances.insert(0, variance * weight)
    return estimates, variances


@dataclass(frozen=True)
class Shrinkage:
    """How far splits may differ, before any data: the pooled split from the prior, and a step's from the pooled one."""

    spread: float
    step_spread: float

    def split(
        self, parent: FloatArray, left: NodeEstimate, right: NodeEstimate, *, prior_share: FloatArray
    ) -> tuple[FloatArray, float]:
        """The left child's mass, between 0 and the parent's, (H, k, ...), and the log Bayes factor against the prior.

        Given the parent m, the children's estimates z leave x = z_l + (m − z_l − z_r) v_l / (v_l + v_r)
        with variance v_x = v_l v_r / (v_l + v_r).
        """
        (left_estimate, left_variance), (right_estimate, right_variance) = left, right
        both = left_variance + right_variance
        weight = left_variance / both if both > 0 else 0.5
        x = left_estimate + (parent - left_estimate - right_estimate) * weight
        variance = right_variance * weight
        steps, coordinates = parent.shape[:2]
        centre, evidence = prior_share, np.zeros(3)
        if coordinates > 1:
            everywhere = parent.mean(axis=(0, 1)), x.mean(axis=(0, 1)), variance / (steps * coordinates)
            centre, evidence[0] = borrowed_share(*everywhere, centre, self.spread)
        all_steps = parent.mean(axis=0), x.mean(axis=0), variance / steps
        centre, evidence[1] = borrowed_share(*all_steps, centre, self.spread)
        share, evidence[2] = borrowed_share(parent, x, variance, centre, self.step_spread)
        return parent * share, float(evidence.sum())


def borrowed_share(
    parent: FloatArray, x: FloatArray, variance: float, centre: FloatArray, spread: float
) -> tuple[FloatArray, float]:
    """The posterior mean of shares x/m around their centre θ, clipped to [0, 1], and the log Bayes factor against θ.

        share ~ N(θ, τ²),   x | share ~ N(m · share, v):   E = θ + g (x/m − θ),   g = m²τ² / (m²τ² + v)

    with τ unknown but common to all, weighted by its likelihood and by e^{−τ / spread}. Without noise the share is x/m.
    """
    deviation = x - centre * parent
    if variance == 0:
        gain, evidence = np.ones_like(parent), np.inf
    else:
        squares = parent**2
        prior = -SPREADS / spread
        likelihood = np.empty(len(SPREADS))
        for i, tau in enumerate(SPREADS):
            expected = squares * tau**2 + variance
            likelihood[i] = -0.5 * np.sum(np.log(expected) + deviation**2 / expected)
        joint = likelihood + prior - np.logaddexp.reduce(prior)
        total = np.logaddexp.reduce(joint)
        evidence = total - likelihood[0]
        gain = np.zeros_like(parent)
        for weight, tau in zip(np.exp(joint - total), SPREADS, strict=True):
            gain += weight * squares * tau**2 / (squares * tau**2 + variance)
    safe = np.where(parent > 0, parent, 1.0)
    share = np.clip(centre + gain * deviation / safe, 0.0, 1.0)
    return np.where(parent > 0, share, centre), float(evidence)
