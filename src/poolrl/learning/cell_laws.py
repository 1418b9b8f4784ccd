"""The laws of every cell: what demand and past order levels are like there, by their shapes and by all other cells.

Outcome and cut-off level censor each other. So their laws are found in turn, each given the other, and the weights of
the dictionary's laws by all cells together (empirical Bayes). A cell's law is located with weight w, else uniform or
zero. A located law has a shape, of weight q, and a log-mean

    m ~ N( μ + Σ_f e_f[value of factor f in the cell],  τ² ),      e_f ~ N(0, τ_f²)

where the factors are the step, the coordinate, each label, and pairs of them. Everything but the cell's own law is
shared, and found in turn. So a thousand thin cells say together what none could say alone.

A few days on which nothing happens (a holiday) are too few to be seen in one shop's trees. But in all cells c of a step
h together the first leaves hold more than their laws explain, which is e_c. That part z_h is taken out of the trees,
and put back at zero (`idle_shares`):

    seen first leaf ≈ n_c ((1 − z_h) e_c + z_h S_G(0)),   so   z_h = Σ_c (seen − n_c e_c) / Σ_c n_c (S_G(0) − e_c)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.geometry.bins import outward_edges
from poolrl.geometry.resolution import PLANNING_BINS
from poolrl.learning import priors, shapes
from poolrl.learning.shapes import UNIFORM, Laws, Observed, SingleArray, expected_shares, log_likelihoods, sums_by
from poolrl.learning.trees import Cells, consistent_masses, refined

TURNS = 3


@dataclass(frozen=True)
class CellLaws:
    """For every cell the law of outcomes and, where they can be cut off, of cut-off levels, (cells, fine bins).

    `learned` is the part of the outcomes' laws that rests on the trees; the rest is the public prior.
    """

    outcomes: FloatArray
    cutoffs: FloatArray | None
    learned: float
    status: BoolArray  # (cells,) where only the side of an outcome is seen

    def expected(self, bins: int) -> FloatArray:
        """The shares that each node of a tree is expected to have, (cells, kinds, bins)."""
        cutoffs = None if self.cutoffs is None else coarser(self.cutoffs, bins)
        return expected_shares(coarser(self.outcomes, bins), cutoffs, self.status)


def coarser(law: FloatArray, bins: int) -> FloatArray:
    """A law on fewer bins."""
    return law.reshape(*law.shape[:-1], bins, -1).sum(axis=-1)


def explain(cells: Cells, *, reach: FloatArray, closes: bool = True) -> CellLaws:
    """The laws that explain the trees of cells.

    Before any data, cut-off levels are uniform up to a λ of `reach`. Where the world never `closes`, no step is idle.
    """
    levels, variance, totals, sides, resolved = cells.levels, cells.variance, cells.totals, cells.status, cells.resolved
    factors, steps, higher = cells.factors, cells.steps, cells.higher
    kinds, bins = levels[-1].shape[1:]
    fine = shapes.dictionary(resolved, max(bins, PLANNING_BINS), higher=higher, closes=closes)
    laws = shapes.dictionary(resolved, resolved, higher=higher, closes=closes)
    observed = Observed.of(levels, variance, resolved)
    prior = np.tile(laws.uniform, (len(totals), 1))
    # Cut-off levels before any data, (bins,).
    edges = np.abs(outward_edges(fine.table.shape[1], higher=higher) - float(higher))
    limits = np.diff(np.minimum(edges / np.atleast_1d(reach).reshape(-1, 1), 1.0).mean(axis=0))
    outcomes, cutoffs = prior, np.broadcast_to(coarser(limits, resolved), prior.shape) if kinds == 2 else None
    first_leaves, leaf_variance = coarser(levels[-1][:, 0], resolved)[:, 0], variance * bins / resolved
    idle = np.zeros(len(totals))

    def weigh(**which: bool) -> Posterior:
        slots = totals * (1 - idle)
        found = log_likelihoods(observed, laws, law=outcomes, cutoffs=cutoffs, totals=slots, sides=sides, **which)
        return posterior(found, laws, factors)

    turn, turns = 0, TURNS if cutoffs is not None else 1
    settled = max(1, turns - 1)
    while turn < turns:
        turn += 1
        if cutoffs is not None:
            order_laws = weigh(of_cutoffs=True)
            cutoffs = cautious(order_laws, laws, coarser(limits, resolved))
            if sides.any():
                cutoffs[sides] = _levels_tried(cells.some(sides), cutoffs[sides])
        found = weigh()
        outcomes = cautious(found, laws, prior[0])
        if turn < settled or not closes:
            continue
        shares = idle_shares(first_leaves, leaf_variance, outcomes, cutoffs, totals, steps)
        if turn == settled and shares.any():
            # Laws lean towards idle slots that they were to explain. Two more turns, and they no longer do.
            turns = settled + 2
        if turn < turns:
            idle, rest = shares, [level.copy() for level in levels]
            for level in rest:
                level[:, 0, 0] -= idle * totals * zeros_seen(cutoffs)
            observed = Observed.of(rest, variance, resolved)
    tried = None
    if cutoffs is not None:
        tried = cautious(order_laws, fine, limits)
        if sides.any():
            tried[sides] = refined(cutoffs[sides], tried[sides])
    mixed = cautious(found, fine, fine.uniform) * (1 - idle)[:, None]
    mixed[:, 0] += idle
    return CellLaws(mixed, tried, found.learned, sides)


def _levels_tried(cells: Cells, laws: FloatArray) -> FloatArray:
    """Which values were tried, for cells whose rows all show it: both kinds together, around their shape."""
    both = [level.sum(axis=1, keepdims=True) for level in cells.levels]
    fine, bins = both[-1].shape[-1], laws.shape[-1]
    even = np.repeat(laws, fine // bins, axis=-1)[:, None] * bins / fine
    masses = consistent_masses(replace(cells, levels=both, variance=2 * cells.variance), even)
    found = coarser(masses[:, 0], bins)
    total = found.sum(axis=-1, keepdims=True)
    # A cell without a slot has tried nothing, and its shape remains.
    return np.divide(found, total, out=laws.copy(), where=total > 0)


def cautious(found: Posterior, laws: Laws, prior: FloatArray) -> FloatArray:
    """The posterior mean law of every cell; the public prior (bins,) as far as the trees hardly contradict it."""
    learned = (found.weights @ laws.table[found.likely]).astype(np.float64)
    learned /= learned.sum(axis=1, keepdims=True)
    return found.learned * learned + (1 - found.learned) * prior


ROUNDS = 4
# Log-likelihoods below this are as good as impossible. Processors are slow with numbers much smaller than its power.
IMPOSSIBLE = -60.0
# A law of so little weight in every cell is left out of the mean of laws.
NEGLIGIBLE = 1e-13


@dataclass(frozen=True)
class Posterior:
    """The weight of every `likely` law in every cell, and the part of them that is learned.

    `learned` is 1 − 1/K for a Bayes factor K against "all uniform": zero without evidence. K has fitted weights, so it
    is a rule of caution and not a probability.
    """

    weights: SingleArray  # (cells, likely laws)
    likely: IntArray  # their numbers in the dictionary
    learned: float


def posterior(log_likelihood: SingleArray, laws: Laws, factors: Sequence[IntArray]) -> Posterior:
    """Learn the prior from all cells, then weigh every cell's laws by it.

    `factors` give the value's number of each factor in each cell, (cells,). A cell's effects are those that the other
    cells of the same value would give, so its own trees never count twice. The likelihoods, whose largest are zero,
    become the weights in place: there are cells × laws of them.
    """
    means, per_mean = len(laws.log_means), len(laws.usual)
    cells, uniform = len(log_likelihood), log_likelihood[:, means * per_mean + UNIFORM].astype(np.float64)
    for of_cell in log_likelihood:
        np.exp(np.maximum(of_cell, IMPOSSIBLE, out=of_cell), out=of_cell)
    likelihood = log_likelihood
    located = likelihood[:, : means * per_mean].reshape(cells, means, per_mean)
    others = likelihood[:, means * per_mean :]
    sizes = _Sizes(laws, factors, cells)
    q, w = laws.usual, laws.classes / laws.classes.sum()
    for turn in range(ROUNDS):
        by_mean = (located @ q.astype(np.float32)).astype(np.float64)
        without_size = others @ w[1:]
        prior = w[0] * sizes.prior(by_mean, without_size, w[0])
        total = (prior * by_mean).sum(axis=1) + without_size
        shared = (prior / total[:, None]).astype(np.float32)
        if turn == ROUNDS - 1:
            break
        of_shapes = q * (shared[:, None] @ located).sum(axis=(0, 1), dtype=np.float64)
        of_classes = np.append(of_shapes.sum(), w[1:] * (others / total[:, None]).sum(axis=0))
        q = (of_shapes + priors.FIRST_SHAPES * laws.usual) / (of_shapes.sum() + priors.FIRST_SHAPES)
        w = (of_classes + laws.classes) / (of_classes + laws.classes).sum()
    for by_shape, of_means in zip(located, shared, strict=True):
        by_shape *= of_means[:, None] * q.astype(np.float32)
    others *= (w[1:] / total[:, None]).astype(np.float32)
    likely = np.flatnonzero(likelihood.max(axis=0) > NEGLIGIBLE)
    return Posterior(likelihood[:, likely], likely, max(0.0, -float(np.expm1(-(np.log(total) - uniform).sum()))))


class _Sizes:
    """μ, the effects of every factor and their spreads: where the log-means of cells are expected."""

    def __init__(self, laws: Laws, factors: Sequence[IntArray], cells: int) -> None:
        self.laws, self.grid, self.factors = laws, laws.log_means, factors
        self.effects = [np.zeros(int(factor.max()) + 1) for factor in factors]
        self.effect_spreads = [priors.FIRST_EFFECT_SPREAD] * len(factors)
        self.shift = np.zeros(cells)  # the sum of the effects, in every cell
        self.spread = priors.USUAL_SPREAD
        self._sums, self._rows = [sums_by(factor) for factor in factors], np.arange(cells)[:, None]

    def prior(self, by_mean: FloatArray, without_size: FloatArray, weight: float) -> FloatArray:
        """One round: the probability of each log-mean of the grid in every cell, (cells, M), before its own trees."""
        grid, width = self.grid, self.grid[1] - self.grid[0]
        curve = _log_mixture(by_mean @ self.laws.smoothed(self.spread), without_size, weight)
        everywhere = self._read(curve, grid[0] + self.shift, len(grid))
        joint = everywhere.sum(axis=0) - ((grid - priors.USUAL_CENTRE) / priors.CENTRE_SPREAD) ** 2 / 2
        # Of all cells, and in each cell without its own curve.
        (centres, _), (location, variance) = _moments(joint[None], grid), _moments(joint - everywhere, grid)
        for i, factor in enumerate(self.factors):
            farthest = min(priors.FARTHEST_EFFECT, priors.FARTHEST_SPREADS * self.effect_spreads[i] + 0.5)
            steps = round(farthest / width)
            offsets = width * np.arange(-steps, steps + 1)
            others = self.shift - self.effects[i][factor]
            given = self._read(curve, centres[0] + others + offsets[0], len(offsets))
            of_values = self._sums[i] @ given - offsets**2 / (2 * self.effect_spreads[i] ** 2)
            (self.effects[i], doubt), (mean, more) = (
                _moments(log_weights, offsets) for log_weights in (of_values, of_values[factor] - given)
            )
            spread = float(np.sqrt((self.effects[i] ** 2 + doubt).mean()))
            self.effect_spreads[i] = max(spread, priors.LEAST_EFFECT_SPREAD)
            self.shift = others + self.effects[i][factor]
            location, variance = location + mean, variance + more
        self.spread = self._likely_spread(by_mean, without_size, weight, centres[0] + self.shift)
        inside = np.clip(location, grid[0], grid[-1])[:, None]
        near = np.exp(-((grid - inside) ** 2) / (2 * (variance + self.spread**2)[:, None]))
        return (1 - priors.OUTLIERS) * near / near.sum(axis=1, keepdims=True) + priors.OUTLIERS / len(grid)

    def _likely_spread(self, by_mean: FloatArray, without_size: FloatArray, weight: float, at: FloatArray) -> float:
        """τ, by its likelihood over all cells and a broad prior around the usual one."""
        columns, part = self._places(at, 1)
        located = (by_mean @ self.laws.smoothed_by_spreads)[:, self._rows, columns]  # (T, cells, 2)
        curve = _log_mixture(located, without_size, weight)
        score = (curve[..., 0] + part[:, 0] * (curve[..., 1] - curve[..., 0])).sum(axis=1)
        score -= np.log(priors.CELL_SPREADS / priors.USUAL_SPREAD) ** 2 / 2
        chance = np.exp(score - score.max())
        return float(np.exp((chance @ np.log(priors.CELL_SPREADS)) / chance.sum()))

    def _read(self, curve: FloatArray, start: FloatArray, many: int) -> FloatArray:
        """Curves (cells, M) on the grid, read from `start` (cells,) on at `many` steps of it; constant beyond it."""
        columns, part = self._places(start, many)
        found = curve[self._rows, columns]
        return np.asarray(found[:, :-1] * (1 - part) + found[:, 1:] * part)

    def _places(self, start: FloatArray, many: int) -> tuple[IntArray, FloatArray]:
        """The columns that are read for that, (cells, many + 1), and how far from each to the next, (cells, 1)."""
        place = ((start - self.grid[0]) / (self.grid[1] - self.grid[0]))[:, None]
        lower = np.floor(place)
        return np.clip(lower.astype(np.int64) + np.arange(many + 1), 0, len(self.grid) - 1), place - lower


def _log_mixture(located: FloatArray, without_size: FloatArray, weight: float) -> FloatArray:
    """A cell without a size says nothing about the sizes of others, so its curve is flat."""
    return np.log(weight * located + without_size[:, None] + priors.LEAST_LIKELIHOOD)


def _moments(log_weights: FloatArray, places: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each row's law on the places."""
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    mean = weights @ places
    return mean, weights @ places**2 - mean**2


def idle_shares(
    first_leaves: FloatArray,
    variance: float,
    law: FloatArray,
    cutoffs: FloatArray | None,
    totals: FloatArray,
    steps: IntArray,
) -> FloatArray:
    """The share of idle slots of every cell (cells,), the same for all cells of a step; only what is no accident.

    `first_leaves` (cells,) are seen, of noise `variance`. `law` and `cutoffs` (cells, B) are those of other slots.
    """
    over_cells = partial(np.bincount, steps)
    expected = totals * expected_shares(law, cutoffs)[:, 0, 0]
    room = np.maximum(over_cells(totals * zeros_seen(cutoffs) - expected), 1.0)
    share = np.clip(over_cells(first_leaves - expected) / room, 0.0, priors.MOST_IDLE)
    error = np.sqrt(variance * np.bincount(steps) + np.maximum(over_cells(expected), 1.0)) / room
    return np.asarray(np.where(share > priors.NO_ACCIDENT * error, share, 0.0)[steps])


def zeros_seen(cutoffs: FloatArray | None) -> FloatArray | float:
    """S_G(0) of every cell: a zero is seen unless nothing was ordered either."""
    return 1.0 if cutoffs is None else np.asarray(1.0 - cutoffs[:, 0] / 2)
