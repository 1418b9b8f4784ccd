"""Distributions of outcomes: how finely they are released, and what a plan knows of them (`estimation` learns them).

Above the levels that shops tried, demand is not seen, and the few rows that reach further are no sample. So the law
goes on by its shape where fewer than one slot in ten looked further (docs/departures.md, 27).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from poolrl.checks import BoolArray, FloatArray, whole
from poolrl.geometry.bins import bin_edges, outward_edges
from poolrl.geometry.resolution import FEWEST_BINS, MOST_BINS, PLANNING_BINS
from poolrl.learning import priors
from poolrl.learning.law import Law, cumulative, places_of
from poolrl.problems.problem import OutcomeProblem


def looked_at(tried: FloatArray, least: float = priors.EXPLORED) -> BoolArray:
    """Which bins lie in the explored range, by the law of cut-off levels (..., bins)."""
    reached = np.cumsum(tried[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(reached >= least)


def continued(
    weights: FloatArray, tried: FloatArray, *, higher: bool = False, least: float = priors.EXPLORED
) -> FloatArray:
    """Weights (cells, F) on the bins of `outward_edges`, with another tail beyond the explored range.

    A lognormal law is a line, Φ⁻¹(F(x)) = (ln x − m) / s. One through the range's end e and some x_i below goes on:

        s = Σ Δz_i Δl_i / Σ Δz_i²,    Δz_i = Φ⁻¹(F(e)) − Φ⁻¹(F(x_i)),    Δl_i = ln e − ln x_i

    On the higher side F counts from the top, edges fall, and the line falls with them: s is negative.
    """
    bins, sign = weights.shape[-1], -1.0 if higher else 1.0
    edges = outward_edges(bins, higher=higher)
    below = cumulative(weights)
    below /= below[:, -1:]
    end = looked_at(tried, least).sum(axis=-1)  # the number of explored bins, so the edge where they end
    seen = np.take_along_axis(below, end[:, None], -1)  # (cells, 1)
    shares = seen * priors.POINTS
    places = np.stack([np.interp(wanted, law, edges) for wanted, law in zip(shares, below, strict=True)])
    usable = (seen > priors.LEAST_SEEN) & (seen < priors.MOST_SEEN)
    usable &= (places.min(axis=1) > 0)[:, None] & (end < bins)[:, None]
    e, x = edges[np.where(usable, end[:, None], 1)], np.where(usable, places, edges[1] / 2)
    z_e = ndtri(np.where(usable, seen, 0.5))
    rises, widths = z_e - ndtri(np.where(usable, shares, 0.25)), sign * np.log(e / x)
    slope = (rises * widths).sum(axis=1, keepdims=True) / (rises**2).sum(axis=1, keepdims=True)
    spread = sign * np.clip(slope, priors.NARROWEST, priors.WIDEST)
    with np.errstate(divide="ignore"):
        tail = ndtr(np.log(edges / e) / spread + z_e)
    beyond = usable & (np.arange(bins + 1) > end[:, None])
    below = np.where(beyond, np.maximum(tail, seen), below)
    # Demand is at most the bound, so what the tail has beyond it stands in the last bin.
    below[:, -1] = 1.0
    return np.diff(below, axis=-1)


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Learn from private outcome counts, the default where the problem declares outcomes.

    `bins` are the leaves of each tree, a power of two, by default as many as the noise allows (`level_sizes`).
    """

    bins: int | None = None

    def __post_init__(self) -> None:
        if self.bins is not None:
            whole(bins=self.bins, at_least=2)
            if self.bins & (self.bins - 1):
                raise ValueError(f"bins must be a power of two, got {self.bins}")

    def level_sizes(self, problem: OutcomeProblem, *, slots: int, per_unit: int, rho: float) -> tuple[int, ...]:
        """How many nodes the released levels of each tree have, from public quantities alone.

        Here r = c √(Hk/ρ) / n is the noise of one level as a share of an average cell's slots. Bins narrower than r
        measure noise. Levels of fewer than four nodes are left out: their children tell them.
        """
        trees = problem.horizon * problem.outcome_dim
        noise_share = per_unit * math.sqrt(trees / rho) / (slots / problem.labels.count)
        wanted = BINS_AT_FULL_NOISE * noise_share**-BINS_GROWTH if noise_share > 0 else MOST_BINS
        affordable = 2 ** round(math.log2(min(max(wanted, FEWEST_BINS), MOST_BINS)))
        bins = self.bins or int(affordable)
        return tuple(2**level for level in range(bins.bit_length()) if 2**level >= min(bins, COARSEST_LEVEL))


@dataclass(frozen=True)
class OutcomeDistribution:
    """Independent outcomes per step and coordinate: weights (*labels, H, k, B) on points, in the user's units.

    Points (*labels, k, B) reach as far as outcomes do. `cutoffs`, of the weights' shape, is the distribution of past
    order-up-to levels on the same points. `observed` is the observed share of the log. Plans need neither.
    """

    points: FloatArray
    weights: FloatArray
    cutoffs: FloatArray | None = None
    observed: float = 1.0
    slots: FloatArray | None = None  # (*labels, H, k) estimated numbers of observed slots: how common each cell is
    left: FloatArray | None = None  # (2, *labels, H, k) mean of what was left, and its error, if it was released
    higher: bool = False  # whether outcomes are seen above the levels that were tried, and not below
    variance: float = 0.0  # of every noisy count that it was learned from

    @property
    def tops(self) -> FloatArray:
        """Where the laws end, (*labels, k)."""
        return np.asarray(self.points[..., -1] + self.points[..., 0])

    @property
    def by_cell(self) -> tuple[FloatArray, FloatArray]:
        """Weights (C, H, k, B) and points (C, k, B) of the label cells, one after another."""
        return self.weights.reshape(-1, *self.weights.shape[-3:]), self.points.reshape(-1, *self.points.shape[-2:])

    @property
    def rows(self) -> FloatArray:
        """How common each label cell is at each step, (*labels, H); never quite zero."""
        slots = np.zeros(self.weights.shape[:-1]) if self.slots is None else self.slots
        return np.maximum(slots.sum(axis=-1), 0.0) + priors.LEAST_WEIGHT

    @property
    def explored(self) -> FloatArray:
        """Up to which level the log looked often enough, (*labels, H, k); infinite where nothing is cut off."""
        if self.cutoffs is None:
            return np.full(self.weights.shape[:-1], np.inf)
        points, last = np.broadcast_to(self.points[..., None, :, :], self.weights.shape), self.weights.shape[-1] - 1
        if self.higher:
            first = np.minimum((~looked_at(self.cutoffs[..., ::-1])).sum(axis=-1), last)
            return np.take_along_axis(points, first[..., None], -1)[..., 0] - points[..., 0]
        place = np.maximum(looked_at(self.cutoffs).sum(axis=-1) - 1, 0)
        end = np.take_along_axis(points, place[..., None], -1)[..., 0] + points[..., 0]
        # Levels beyond the last point looked further than outcomes reach.
        return np.where(place == last, np.inf, end)

    def arrays(self) -> dict[str, FloatArray]:
        """What goes into a file."""
        parts = {name: getattr(self, name) for name in STORED}
        return {name: np.asarray(part, dtype=np.float64) for name, part in parts.items() if part is not None}


# Fields of a distribution that a file holds. The side of the feedback is that of the problem.
STORED = ("points", "weights", "cutoffs", "observed", "slots", "left", "variance")


def outcomes_from_arrays(arrays: Mapping[str, FloatArray], problem: OutcomeProblem) -> OutcomeDistribution:
    """The inverse of `arrays`."""
    labels, coordinates = problem.labels.shape, problem.outcome_dim
    bins = arrays["points"].shape[-1]
    cells = (*labels, problem.horizon, coordinates)
    shapes = ((*labels, coordinates, bins), (*cells, bins), (*cells, bins), (), cells, (2, *cells), ())
    parts = {name: arrays[name] for name in STORED if name in arrays}
    for name, shape in zip(STORED, shapes, strict=True):
        if name in parts and parts[name].shape != shape:
            raise ValueError(f"the estimate of outcomes has another shape than the problem: {name}")
    numbers: dict[str, Any] = {name: float(part) if part.ndim == 0 else part for name, part in parts.items()}
    return OutcomeDistribution(**numbers, higher=problem.boundary.side == "higher")


# The number of bins is about the first of these times r to the minus second (`Outcomes.level_sizes`).
BINS_AT_FULL_NOISE, BINS_GROWTH = 2.65, 0.6
# The coarsest level that is released.
COARSEST_LEVEL = 4
# What is left out beyond the last point of a distribution; it stands at that point.
NEGLIGIBLE = 1e-6


def reaches(weights: FloatArray) -> FloatArray:
    """How far outcomes reach, over all steps, (*labels, k) in unit coordinates; weights are on `bin_edges`."""
    rest = 1.0 - np.cumsum(weights, axis=-1)  # beyond each bin, (*labels, H, k, F)
    last = np.max((rest > NEGLIGIBLE).sum(axis=-1), axis=-2)
    return bin_edges(weights.shape[-1])[np.minimum(last + 1, weights.shape[-1])]


def equal_bins(weights: FloatArray, tops: FloatArray) -> FloatArray:
    """Weights (*labels, H, k, F) of the bins of `bin_edges`, moved to PLANNING_BINS equal bins from 0 to `tops`.

    Inside a bin outcomes are spread evenly. The last bin also holds all that lies beyond the top.
    """
    wanted = tops[..., None, :, None] * (np.arange(PLANNING_BINS + 1) / PLANNING_BINS)
    return Law(weights).between(places_of(wanted, weights.shape[-1]))


def known_outcomes(problem: OutcomeProblem, probabilities: FloatArray) -> OutcomeDistribution:
    """Probabilities (*labels, H, k, bins) of equal bins between the public bounds."""
    return OutcomeDistribution(bin_middles(problem, probabilities.shape[-1]), probabilities)


def uniform_outcomes(problem: OutcomeProblem, bins: int) -> OutcomeDistribution:
    """The public prior: all outcomes between the bounds are equally likely."""
    shape = (*problem.labels.shape, problem.horizon, problem.outcome_dim, bins)
    return known_outcomes(problem, np.full(shape, 1.0 / bins))


def bin_middles(problem: OutcomeProblem, bins: int, tops: FloatArray | None = None) -> FloatArray:
    """The middles of equal bins between the public bounds, or up to `tops` (*labels, k), (*labels, k, bins)."""
    unit = (np.ones(1) if tops is None else tops[..., None]) * (np.arange(bins) + 0.5) / bins
    width = (problem.outcome_high - problem.outcome_low) * problem.bound_share
    return problem.outcome_low[:, None] + width[..., None] * unit
