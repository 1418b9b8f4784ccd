"""From noisy outcome trees to outcome distributions: consistency, shrinkage, Kaplan-Meier.

Every step is post-processing of released numbers. With σ² = 0 the result is plain Kaplan-Meier on the bins;
as ρ → 0 it is the public prior, uniform between the outcome's bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.arrays import FloatArray, positive, whole
from poolrl.privacy.released import PrivateOutcomes
from poolrl.problems.problem import OutcomeProblem


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Learn from privatised outcomes (what the world did), the default where the problem declares them.

    `bins` leaves of each tree, a power of two; `spread` τ is the prior standard deviation of a split of the
    tree around the public prior's, `step_spread` τ_pool of one step's split around that of all steps.
    """

    bins: int = 256
    spread: float = 0.5
    step_spread: float = 0.2

    def __post_init__(self) -> None:
        whole(bins=self.bins, at_least=2)
        if self.bins & (self.bins - 1):
            raise ValueError(f"bins must be a power of two, got {self.bins}")
        positive(spread=self.spread, step_spread=self.step_spread)


@dataclass(frozen=True)
class OutcomeDistribution:
    """Independent outcomes per step and coordinate: weights (H, k, B) on points (k, B), in the user's units."""

    points: FloatArray
    weights: FloatArray


def estimate_outcomes(
    released: PrivateOutcomes, problem: OutcomeProblem, settings: Outcomes
) -> OutcomeDistribution:
    """Trees → consistent masses → Kaplan-Meier, mirrored back for problems with feedback on the higher side."""
    masses = consistent_masses(released, settings)  # (H, k, kinds, bins)
    prior = prior_masses(kinds=masses.shape[2], bins=settings.bins)
    weights = kaplan_meier(masses, prior)
    if problem.boundary.side == "higher":
        weights = weights[..., ::-1]
    return OutcomeDistribution(bin_middles(problem, settings.bins), weights)


def uniform_outcomes(problem: OutcomeProblem, bins: int) -> OutcomeDistribution:
    """The public prior: any outcome between the bounds is as likely as another."""
    weights = np.full((problem.horizon, problem.outcome_dim, bins), 1.0 / bins)
    return OutcomeDistribution(bin_middles(problem, bins), weights)


def bin_middles(problem: OutcomeProblem, bins: int) -> FloatArray:
    """The middles of equal bins between the outcome's public bounds, (k, bins)."""
    unit = (np.arange(bins) + 0.5) / bins
    width = problem.outcome_high - problem.outcome_low
    middles: FloatArray = problem.outcome_low[:, None] + width[:, None] * unit
    return middles


def prior_masses(*, kinds: int, bins: int) -> FloatArray:
    """Expected shares of (seen, cut off) × bins if outcome and cut-off level were both uniform, (kinds, bins).

    Two uniform draws meet in the same bin with the outcome below the cut-off half of the time.
    """
    if kinds == 1:
        return np.full((1, bins), 1.0 / bins)
    share = (bins - np.arange(bins) - 0.5) / bins**2  # P(bin) · P(the other one is larger)
    return np.stack([share, share])


def consistent_masses(released: PrivateOutcomes, settings: Outcomes) -> FloatArray:
    """Non-negative masses of every leaf, (H, k, kinds, bins), that add up along the trees.

    Upwards each node's noisy count is combined with its children's sum by inverse variance; downwards from the
    public total each parent's mass is split between its children, which steps do together and then each alone.
    """
    estimates, variances = upward(released.levels, released.variance)
    prior = prior_masses(kinds=released.levels[0].shape[2], bins=settings.bins)
    prior_levels = [prior.reshape(prior.shape[0], 2**level, -1).sum(axis=-1) for level in range(len(estimates))]
    pool = _Pooled(settings)
    total = np.full(released.levels[0].shape[:2], float(released.total))

    top, top_variance = estimates[0][..., 0], variances[0]  # (H, k, kinds)
    if released.unobserved is not None:
        observed = (top.sum(axis=-1), top_variance * top.shape[-1])
        missing = (released.unobserved.astype(np.float64), released.variance)
        # How much of a log is observed is nobody's public knowledge: one half, before looking.
        total = pool.split(total, *observed, *missing, prior_share=0.5)
    if top.shape[-1] == 2:
        seen = pool.split(total, top[..., 0], top_variance, top[..., 1], top_variance, prior_share=0.5)
        mass = np.stack([seen, total - seen], axis=-1)[..., None]
    else:
        mass = total[..., None, None]
    for estimate, variance, share in zip(estimates[1:], variances[1:], prior_levels[1:], strict=True):
        left, right = estimate[..., 0::2], estimate[..., 1::2]
        prior_share = share[:, 0::2] / (share[:, 0::2] + share[:, 1::2])
        left_mass = pool.split(mass, left, variance, right, variance, prior_share=prior_share)
        mass = np.stack([left_mass, mass - left_mass], axis=-1).reshape(estimate.shape)
    return mass


def upward(levels: tuple[FloatArray, ...], variance: float) -> tuple[list[FloatArray], list[float]]:
    """Best linear estimate of every node from its own subtree, root level first, with its variance.

        v_s = 2 v_child,   w = v_s / (v_s + σ²),   z = w n′ + (1 − w)(z_left + z_right),   v = σ² w
    """
    estimates, variances = [levels[-1].astype(np.float64)], [variance]
    for level in levels[-2::-1]:
        children, child_variance = estimates[0], 2 * variances[0]
        own_weight = child_variance / (child_variance + variance) if variance > 0 else 1.0
        from_children = children[..., 0::2] + children[..., 1::2]
        estimates.insert(0, own_weight * level + (1 - own_weight) * from_children)
        variances.insert(0, variance * own_weight)
    return estimates, variances


@dataclass(frozen=True)
class _Pooled:
    """Splits of parents' masses in which the steps (axis 0) borrow strength from each other."""

    settings: Outcomes

    def split(
        self,
        parent: FloatArray,
        left: FloatArray,
        left_variance: float,
        right: FloatArray,
        right_variance: float,
        *,
        prior_share: FloatArray | float,
    ) -> FloatArray:
        """The left child's mass, between 0 and the parent's.

        Given the parent m, the two children's estimates leave x = z_l + (m − z_l − z_r) v_l / (v_l + v_r)
        with variance v_x = v_l v_r / (v_l + v_r).
        """
        both = left_variance + right_variance
        share = left_variance / both if both > 0 else 0.5
        x = left + (parent - left - right) * share
        variance = right_variance * share
        pooled = _shrunk_share(
            parent.mean(axis=0), x.mean(axis=0), variance / len(parent), prior_share, self.settings.spread
        )
        return parent * _shrunk_share(parent, x, variance, pooled, self.settings.step_spread)


def _shrunk_share(
    parent: FloatArray, x: FloatArray, variance: float, centre: FloatArray | float, spread: float
) -> FloatArray:
    """g x/m + (1 − g) θ with g = m² τ² / (m² τ² + v_x), clipped to [0, 1]; θ where there is no mass to split."""
    signal = (parent * spread) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (signal * (x / parent) + variance * np.asarray(centre)) / (signal + variance)
    return np.where(parent > 0, np.clip(share, 0.0, 1.0), centre)


# So little prior mass that data always outweighs it, enough to continue where nobody was left at risk.
WHISPER = 1e-6


def kaplan_meier(masses: FloatArray, prior: FloatArray) -> FloatArray:
    """Probabilities (..., bins) from masses (..., kinds, bins) of seen and cut-off outcomes.

    Outcome and cut-off level are independent and both spread evenly inside a bin. With hazards a and b, of those
    at risk the share s = a − ab/2 is seen and c = b − ab/2 cut off in the bin; solved for a,

        a = u − √(u² − 2s) = 2s / (u + √(u² − 2s)),   u = 1 + (s − c)/2

    which is s/R as ever where a bin has no cut-off. Close to s / (1 − c/2), the actuarial rule, it is exact in
    the last bins too, so that the prior's expected counts give the prior back.
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
    # Whoever outlives the last bin exceeds every level that was ever tried: only "at least that" is known.
    weights[..., -1] += survival[..., -1]
    return np.asarray(weights)
