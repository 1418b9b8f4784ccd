"""From noisy outcome trees to outcome distributions: consistency, shrinkage, Kaplan-Meier.

Every step is post-processing of released numbers. With σ² = 0 the result is plain Kaplan-Meier on the bins. As ρ → 0 it
becomes the public prior, which is uniform between the outcome's bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import PchipInterpolator

from poolrl.checks import FloatArray, positive, whole
from poolrl.geometry.resolution import FEWEST_BINS, MOST_BINS, PLANNING_BINS
from poolrl.learning.trees import Shrinkage, consistent_masses
from poolrl.privacy.released import PrivateOutcomes
from poolrl.problems.problem import OutcomeProblem


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Learn from private outcome counts, the default where the problem declares outcomes.

    `bins` leaves of each tree, a power of two, by default as many as the noise allows (`bins_for`). `spread` is how far
    a split is expected to differ from the public prior's split, before any data. `step_spread` is how far the split of
    one step is expected to differ from that of all steps.
    """

    bins: int | None = None
    spread: float = 0.5
    step_spread: float = 0.2

    def __post_init__(self) -> None:
        if self.bins is not None:
            whole(bins=self.bins, at_least=2)
            if self.bins & (self.bins - 1):
                raise ValueError(f"bins must be a power of two, got {self.bins}")
        positive(spread=self.spread, step_spread=self.step_spread)

    def bins_for(self, *, steps: int, coordinates: int, slots: int, per_unit: int, rho: float) -> int:
        """The number of bins, from public quantities alone: about (1/r)^(5/4) / 2.

        Here r = c √(Hk/ρ) / n is the noise of one level as a share of the log. Bins narrower than r measure noise, and
        each level takes its share of the budget. But one more level takes little if there are many, and a loose public
        bound needs fine bins.
        """
        if self.bins is not None:
            return self.bins
        noise_share = per_unit * math.sqrt(steps * coordinates / rho) / slots
        wanted = noise_share**-1.25 / 2 if noise_share > 0 else MOST_BINS
        affordable = min(max(wanted, FEWEST_BINS), MOST_BINS)
        return int(2 ** round(math.log2(affordable)))


@dataclass(frozen=True)
class OutcomeDistribution:
    """Independent outcomes per step and coordinate: weights (H, k, B) on points (k, B), in the user's units.

    `cutoffs` (H, k, B), where outcomes could be cut off, is the distribution of past order-up-to levels: how far the
    log looked. `observed` is the observed share of the log. Plans need neither, but forecasts of another log do.
    """

    points: FloatArray
    weights: FloatArray
    cutoffs: FloatArray | None = None
    observed: float = 1.0

    def arrays(self) -> dict[str, FloatArray]:
        """What goes into a file."""
        always = {"points": self.points, "weights": self.weights, "observed": np.array(self.observed)}
        return always if self.cutoffs is None else always | {"cutoffs": self.cutoffs}


def outcomes_from_arrays(arrays: Mapping[str, FloatArray], horizon: int) -> OutcomeDistribution:
    """The inverse of `arrays`. Files before version 0.4 have no `observed`."""
    points, weights, cutoffs = (arrays.get(name) for name in ("points", "weights", "cutoffs"))
    observed = np.asarray(arrays.get("observed", 1.0))
    if points is None or weights is None or points.ndim != 2 or weights.shape != (horizon, *points.shape):
        raise ValueError("the estimate of outcomes has another shape than the problem")
    if cutoffs is not None and cutoffs.shape != weights.shape:
        raise ValueError("the estimate of cut-off levels has another shape than that of outcomes")
    parts = [part for part in (points, weights, cutoffs, observed) if part is not None]
    if observed.ndim or not all(part.dtype == np.float64 and np.isfinite(part).all() for part in parts):
        raise ValueError("the estimate of outcomes must hold finite numbers")
    return OutcomeDistribution(points, weights, cutoffs, float(observed))


def estimate_outcomes(released: PrivateOutcomes, problem: OutcomeProblem, settings: Outcomes) -> OutcomeDistribution:
    """Trees → consistent masses → Kaplan-Meier, mirrored back if feedback is on the higher side."""
    bins = released.levels[-1].shape[-1]
    kinds = released.levels[0].shape[2]
    reaches = np.concatenate([problem.cutoff_reach(step) for step in range(problem.horizon)])
    expected = prior_masses(kinds=kinds, bins=bins, reaches=reaches)
    masses = consistent_masses(released, expected, Shrinkage(settings.spread, settings.step_spread))
    # Beyond λ nothing is observed, so the estimate continues with the prior that has no boundary.
    prior = prior_masses(kinds=kinds, bins=bins)
    parts = max(1, PLANNING_BINS // bins)

    def distribution(counted: FloatArray, expected: FloatArray) -> FloatArray:
        weights = kaplan_meier(counted, expected)
        return refined(weights[..., ::-1] if problem.boundary.side == "higher" else weights, parts)

    # Outcome and cut-off level censor each other, so the same estimate works with their roles exchanged.
    cutoffs = distribution(masses[..., ::-1, :], prior[::-1]) if kinds == 2 else None
    observed = float(np.clip(masses.sum(axis=(-2, -1)).mean() / released.total, 0.0, 1.0))
    return OutcomeDistribution(bin_middles(problem, bins * parts), distribution(masses, prior), cutoffs, observed)


def refined(weights: FloatArray, parts: int) -> FloatArray:
    """Share every bin's weight (..., bins) between `parts` finer ones, (..., bins · parts), along a smooth curve.

    Monotone cubics join the cumulative weights at the bins' edges. So no bin gains or loses weight, and no part is
    negative. Equal weights, as in the prior, stay equal.
    """
    if parts == 1:
        return weights
    cumulative = np.concatenate([np.zeros_like(weights[..., :1]), np.cumsum(weights, axis=-1)], axis=-1)
    bins = weights.shape[-1]
    # Next to a weight of 1e-308 a slope may overflow. The curve is then flat, as it should be.
    with np.errstate(over="ignore"):
        curve = PchipInterpolator(np.arange(bins + 1), cumulative, axis=-1)
    return np.maximum(np.diff(curve(np.linspace(0, bins, bins * parts + 1)), axis=-1), 0.0)


def uniform_outcomes(problem: OutcomeProblem, bins: int) -> OutcomeDistribution:
    """The public prior: all outcomes between the bounds are equally likely."""
    weights = np.full((problem.horizon, problem.outcome_dim, bins), 1.0 / bins)
    return OutcomeDistribution(bin_middles(problem, bins), weights)


def bin_middles(problem: OutcomeProblem, bins: int) -> FloatArray:
    """The middles of equal bins between the outcome's public bounds, (k, bins)."""
    unit = (np.arange(bins) + 0.5) / bins
    width = problem.outcome_high - problem.outcome_low
    return problem.outcome_low[:, None] + width[:, None] * unit


def prior_masses(*, kinds: int, bins: int, reaches: FloatArray | float = 1.0) -> FloatArray:
    """Expected shares of (seen, cut off) × bins before any data, (kinds, bins).

    Outcomes are uniform, cut-off levels uniform up to one of the `reaches` (λ of some step and coordinate). Where both
    fall into the same bin, the outcome is below the cut-off half of the time.
    """
    if kinds == 1:
        return np.full((1, bins), 1.0 / bins)
    edges = np.arange(bins + 1) / bins
    reach = np.atleast_1d(reaches).reshape(-1, 1)
    below = np.minimum(edges / reach, 1.0).mean(axis=0)  # P(cut-off ≤ edge)
    cut = np.diff(below)
    seen_share = (1 - below[1:] + cut / 2) / bins
    cut_share = cut * (1 - edges[1:] + 0.5 / bins)
    return np.stack([seen_share, cut_share])


# Prior mass so small that data always outweighs it, but enough to continue where no mass is at risk any more.
WHISPER = 1e-6


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
