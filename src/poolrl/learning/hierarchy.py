"""Which law does each cell have? A prior over laws, learned from all cells together (empirical Bayes).

A cell's law is located with weight w, else uniform or zero. A located law has a shape, of weight q, and a log-mean

    m ~ N( μ + Σ_f e_f[value of factor f in the cell],  τ² ),      e_f ~ N(0, τ_f²)

where the factors are the step, the coordinate and each label. Everything but the cell's own law is shared: w, q, μ, the
effects and their spreads. They are found in turn, each from its likelihood on the grid of log-means, given the others.
So a thousand thin cells say together what none could say alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from poolrl.checks import FloatArray, IntArray
from poolrl.learning.shapes import UNIFORM, Laws, SingleArray

ROUNDS = 4
# Spreads of log-means: τ between cells, from equal to unrelated, and its most likely value before any data.
CELL_SPREADS = np.array([0.03, 0.06, 0.1, 0.16, 0.25, 0.4, 0.65, 1.2])
USUAL_SPREAD = 0.2
# Before any data: people declare bounds a few times what they usually sell, sometimes ten times.
USUAL_CENTRE, CENTRE_SPREAD = float(np.log(0.3)), 1.2
# A few cells are like no other, and may have any log-mean.
OUTLIERS = 0.01
# Effects are looked for up to this many units of log-mean away, for shops that differ by a factor of 150, and up to so
# many times their own spread.
FARTHEST_EFFECT, FARTHEST_SPREADS = 5.0, 12.0
LEAST_EFFECT_SPREAD, FIRST_EFFECT_SPREAD = 0.05, 0.5
# Cells seen before any data: all shapes together.
FIRST_SHAPES = 24.0
# A law this unlikely is as good as impossible. It bounds what one cell can say about the others.
LEAST_LIKELIHOOD = 1e-30


@dataclass(frozen=True)
class Posterior:
    """The weight of every law in every cell, (cells, J), and how much better than "all uniform" they explain the trees.

    `evidence` is a log Bayes factor with fitted weights, so a rule of caution and not a probability.
    """

    weights: SingleArray
    evidence: float


def posterior(log_likelihood: SingleArray, laws: Laws, factors: Sequence[IntArray]) -> Posterior:
    """Learn the prior from all cells, then weigh every cell's laws by it.

    `factors` give the value's number of each factor in each cell, (cells,). A cell's prior never counts the cell's own
    trees twice: its effects are those that the other cells of the same value would give.
    """
    grid, means, shapes = laws.log_means, len(laws.log_means), len(laws.usual)
    cells = len(log_likelihood)
    best = log_likelihood.max(axis=1, keepdims=True)
    likelihood = np.exp(log_likelihood - best)
    located = likelihood[:, : means * shapes].reshape(cells * means, shapes)
    others = likelihood[:, means * shapes :]
    sizes = _Sizes(grid, factors, cells)
    q, w = laws.usual, laws.classes / laws.classes.sum()
    for turn in range(ROUNDS):
        by_mean = (located @ q.astype(np.float32)).reshape(cells, means).astype(np.float64)
        without_size = others @ w[1:]
        prior = w[0] * sizes.prior(by_mean, without_size, w[0])
        total = (prior * by_mean).sum(axis=1) + without_size
        shared = (prior / total[:, None]).astype(np.float32)
        if turn == ROUNDS - 1:
            break
        of_shapes = q * (shared.ravel() @ located)
        of_classes = np.append(of_shapes.sum(), w[1:] * (others / total[:, None]).sum(axis=0))
        q = (of_shapes + FIRST_SHAPES * laws.usual) / (of_shapes.sum() + FIRST_SHAPES)
        w = (of_classes + laws.classes) / (of_classes + laws.classes).sum()
    likelihood[:, : means * shapes] *= (shared[:, :, None] * q.astype(np.float32)).reshape(cells, -1)
    likelihood[:, means * shapes :] *= (w[1:] / total[:, None]).astype(np.float32)
    uniform = log_likelihood[:, means * shapes + UNIFORM] - best[:, 0]
    return Posterior(likelihood, float((np.log(total) - uniform).sum()))


class _Sizes:
    """μ, the effects of every factor and their spreads: where the log-means of cells are expected."""

    def __init__(self, grid: FloatArray, factors: Sequence[IntArray], cells: int) -> None:
        self.grid, self.factors = grid, factors
        self.effects = [np.zeros(int(factor.max()) + 1) for factor in factors]
        self.effect_spreads = [FIRST_EFFECT_SPREAD] * len(factors)
        self.spread = USUAL_SPREAD
        self._sums = [sparse.csr_array((np.ones(cells), (factor, np.arange(cells)))) for factor in factors]

    def prior(self, by_mean: FloatArray, without_size: FloatArray, weight: float) -> FloatArray:
        """One round: the probability of each log-mean of the grid in every cell, (cells, M), before its own trees."""
        grid, cells = self.grid, len(by_mean)
        curve = _log_mixture(by_mean @ _smoothing(grid, self.spread), without_size, weight)
        shift = _total(self.effects, self.factors, cells)
        everywhere = _read(curve, grid, grid + shift[:, None])
        joint = everywhere.sum(axis=0) - ((grid - USUAL_CENTRE) / CENTRE_SPREAD) ** 2 / 2
        (centres, _), (location, variance) = _mean_and_cavity(joint[None], everywhere, np.zeros(cells, np.int64), grid)
        for i, factor in enumerate(self.factors):
            farthest = min(FARTHEST_EFFECT, FARTHEST_SPREADS * self.effect_spreads[i] + 0.5)
            steps = round(farthest / (grid[1] - grid[0]))
            offsets = (grid[1] - grid[0]) * np.arange(-steps, steps + 1)
            start = centres[0] + shift - self.effects[i][factor]
            given = _read(curve, grid, start[:, None] + offsets)
            of_values = self._sums[i] @ given - offsets**2 / (2 * self.effect_spreads[i] ** 2)
            (self.effects[i], doubt), (mean, more) = _mean_and_cavity(of_values, given, factor, offsets)
            self.effect_spreads[i] = max(float(np.sqrt((self.effects[i] ** 2 + doubt).mean())), LEAST_EFFECT_SPREAD)
            shift = _total(self.effects, self.factors, cells)
            location, variance = location + mean, variance + more
        self.spread = _likely_spread(by_mean, without_size, weight, grid, centres[0] + shift)
        inside = np.clip(location, grid[0], grid[-1])[:, None]
        near = np.exp(-((grid - inside) ** 2) / (2 * (variance + self.spread**2)[:, None]))
        return (1 - OUTLIERS) * near / near.sum(axis=1, keepdims=True) + OUTLIERS / len(grid)


def _log_mixture(located: FloatArray, without_size: FloatArray, weight: float) -> FloatArray:
    """A cell without a size says nothing about the sizes of others, so its curve is flat."""
    return np.log(weight * located + without_size[:, None] + LEAST_LIKELIHOOD)


def _smoothing(grid: FloatArray, spread: float) -> FloatArray:
    """Column η holds N(m; η, τ²) on the grid of m."""
    kernel = np.exp(-((grid[:, None] - grid) ** 2) / (2 * spread**2))
    return np.asarray(kernel / kernel.sum(axis=0))


def _likely_spread(
    by_mean: FloatArray, without_size: FloatArray, weight: float, grid: FloatArray, location: FloatArray
) -> float:
    """τ, by its likelihood over all cells and a broad prior around the usual one."""
    score = np.empty(len(CELL_SPREADS))
    for i, tau in enumerate(CELL_SPREADS):
        curve = _log_mixture(by_mean @ _smoothing(grid, tau), without_size, weight)
        score[i] = _read(curve, grid, location[:, None]).sum() - np.log(tau / USUAL_SPREAD) ** 2 / 2
    chance = np.exp(score - score.max())
    return float(np.exp((chance @ np.log(CELL_SPREADS)) / chance.sum()))


def _read(curve: FloatArray, grid: FloatArray, places: FloatArray) -> FloatArray:
    """Curves (cells, M) on the even grid, read at (cells, D) places; constant beyond the grid."""
    position = np.clip((places - grid[0]) / (grid[1] - grid[0]), 0.0, len(grid) - 1 - 1e-9)
    lower = position.astype(np.int64)
    part = position - lower
    rows = np.arange(len(curve))[:, None]
    return np.asarray((1 - part) * curve[rows, lower] + part * curve[rows, lower + 1])


Moments = tuple[FloatArray, FloatArray]


def _mean_and_cavity(
    joint: FloatArray, given: FloatArray, owner: IntArray, places: FloatArray
) -> tuple[Moments, Moments]:
    """Mean and variance of each value's effect, and of the same effect in each cell without the cell's own curve."""
    return _moments(joint, places), _moments(joint[owner] - given, places)


def _moments(log_weights: FloatArray, places: FloatArray) -> Moments:
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    mean = weights @ places
    return mean, weights @ places**2 - mean**2


def _total(effects: Sequence[FloatArray], factors: Sequence[IntArray], cells: int) -> FloatArray:
    return sum((effect[factor] for effect, factor in zip(effects, factors, strict=True)), np.zeros(cells))
