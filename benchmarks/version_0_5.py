"""Version 0.5's learner, kept as a contender: equal bins, splits that lean on pooled splits, a uniform prior.

It counts a log without labels and scale on equal bins, adds the same noise, and plans with today's planner. So what is
compared is the estimator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import expit

from poolrl import LostSales, SeededNoise, Trajectories
from poolrl.checks import FloatArray, IntArray
from poolrl.learning.outcomes import OutcomeDistribution, bin_middles
from poolrl.learning.shops import plan_shops

NodeEstimate = tuple[FloatArray, float]
# The odds, before any data, that the public prior is right.
PRIOR_ODDS = 4.0
SPREADS = np.concatenate([[0.0], 0.01 * 2.0 ** np.arange(0.0, 6.5, 0.5)])
PLANNED_BINS = 512
WHISPER = 1e-6


@dataclass(frozen=True)
class Trees:
    """What 0.5 released: levels (H, k, kinds, 2^l) of every size, and the number of trajectories."""

    levels: tuple[IntArray, ...]
    total: int
    variance: float


def levels_of_0_5(problem: LostSales, log: Trajectories, *, rho: float, seed: int) -> FloatArray:
    """Order-up-to levels (H, products) as 0.5 would have learned them."""
    trees = _release(problem, log, rho=rho, seed=seed)
    bins = trees.levels[-1].shape[-1]
    expected = prior_masses(bins)
    weights = refined(kaplan_meier(consistent_masses(trees, expected, Shrinkage(0.5, 0.2)), expected), bins)
    return plan_shops(problem, OutcomeDistribution(bin_middles(problem, weights.shape[-1]), weights))


def _release(problem: LostSales, log: Trajectories, *, rho: float, seed: int) -> Trees:
    horizon, products, total = problem.horizon, problem.products, len(log)
    share = math.sqrt(horizon * products / rho) / total if rho < math.inf else 0.0
    bins = int(2 ** round(math.log2(min(max(share**-1.25 / 2 if share else 1024, 16), 1024))))
    sold = np.clip(log.actions - log.next_states, 0.0, problem.demand_max)
    leaf = np.minimum(np.floor(sold / problem.demand_max * bins), bins - 1).astype(np.int64)
    cut = (log.next_states <= 1e-9 * problem.demand_max).astype(np.int64)
    tree = np.arange(horizon)[:, None] * products + np.arange(products)
    cell = (tree * 2 + cut) * bins + leaf
    levels = [np.bincount(cell.ravel(), minlength=horizon * products * 2 * bins).reshape(horizon, products, 2, bins)]
    while levels[0].shape[-1] > 1:
        levels.insert(0, levels[0][..., 0::2] + levels[0][..., 1::2])
    variance = Fraction(horizon * products * len(levels)) / Fraction(rho) if rho < math.inf else Fraction(0)
    sampler = SeededNoise(seed).begin()
    noisy = tuple(sampler.add(level, variance) for level in levels) if variance else tuple(levels)
    return Trees(noisy, total, float(variance))


def consistent_masses(released: Trees, prior: FloatArray, shrinkage: Shrinkage) -> FloatArray:
    """Masses of every leaf, (H, k, kinds, bins), from the trees and the prior's masses (kinds, bins).

    If the released numbers hardly contradict the prior, the prior stays. Its weight would be its posterior probability,
    at prior odds of PRIOR_ODDS to one, if the Bayes factors of the splits were independent. But these share estimated
    centres, so the weight is a rule of caution and not a probability.
    """
    estimates, variances = upward(released.levels, released.variance)
    total = np.full(released.levels[0].shape[:2], float(released.total))
    top, top_variance = estimates[0][..., 0], variances[0]  # (H, k, kinds)
    evidence = 0.0
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


def refined(weights: FloatArray, bins: int) -> FloatArray:
    """Share every bin's weight (..., bins) between `parts` finer ones, (..., bins · parts), along a smooth curve.

    Monotone cubics join the cumulative weights at the bins' edges. So no bin gains or loses weight, and no part is
    negative. Equal weights, as in the prior, stay equal.
    """
    parts = max(1, PLANNED_BINS // bins)
    if parts == 1:
        return weights
    cumulative = np.concatenate([np.zeros_like(weights[..., :1]), np.cumsum(weights, axis=-1)], axis=-1)
    # Next to a weight of 1e-308 a slope may overflow. The curve is then flat, as it should be.
    with np.errstate(over="ignore"):
        curve = PchipInterpolator(np.arange(bins + 1), cumulative, axis=-1)
    return np.maximum(np.diff(curve(np.linspace(0, bins, bins * parts + 1)), axis=-1), 0.0)


def prior_masses(bins: int) -> FloatArray:
    """Expected shares of (seen, cut off) × bins before any data: outcome and cut-off level uniform up to the bound."""
    edges = np.arange(bins + 1) / bins
    return np.stack([(1 - edges[1:] + 0.5 / bins) / bins] * 2)


def kaplan_meier(masses: FloatArray, prior: FloatArray) -> FloatArray:
    """Probabilities (..., bins) from masses (..., kinds, bins) of seen and cut-off outcomes.

    Outcome and cut-off level are independent, and each is spread evenly inside a bin. With hazards a and b, the share
    s = a − ab/2 of those at risk is seen in the bin, and c = b − ab/2 is cut off. Solved for a,

        a = u − √(u² − 2s) = 2s / (u + √(u² − 2s)),   u = 1 + (s − c)/2

    Without a cut-off this is s, as usual. It is close to the actuarial rule s / (1 − c/2), but exact in the last bins
    too. So the prior's expected counts give the prior back.
    """
    total = masses.sum(axis=(-2, -1), keepdims=True)
    masses = masses + prior * np.maximum(total, 1.0) * WHISPER
    if masses.shape[-2] == 1:
        seen = masses[..., 0, :]
        return np.asarray(seen / seen.sum(axis=-1, keepdims=True))
    seen, cut = masses[..., 0, :], masses[..., 1, :]
    at_risk = np.cumsum((seen + cut)[..., ::-1], axis=-1)[..., ::-1]
    s, c = seen / at_risk, cut / at_risk
    u = 1 + (s - c) / 2
    hazard = np.clip(2 * s / (u + np.sqrt(np.maximum(u * u - 2 * s, 0.0))), 0.0, 1.0)
    survival = np.cumprod(1 - hazard, axis=-1)
    before = np.concatenate([np.ones_like(survival[..., :1]), survival[..., :-1]], axis=-1)
    weights = before * hazard
    # Outcomes beyond the last bin exceed every level that was tried. Only "at least that" is known of them.
    weights[..., -1] += survival[..., -1]
    return np.asarray(weights)
