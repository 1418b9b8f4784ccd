"""How far products sell much or little together: one number for all of them, from released sums of pairs.

A common cause f (the one-factor Gaussian copula): at a step product i sells the quantile Φ(z_i) of its own law, where

    z_i = √r f + √(1 − r) e_i

so that every two products have the correlation r. With T pairs, of which P are beyond their edges and M below, and a
share p of products beyond their edges, the right side grows with r, so it is solved for r:

    (2P + 2M − T) / T = (2p − 1)² + 4 (Φ₂(p, p; r) − p²),     Φ₂(p, p; r) the chance that both are beyond

Edges near the middle of each law say most, and make an error in p matter least. Everything here is post-processing.
"""

import math

import numpy as np
from scipy.special import ndtr, ndtri

from poolrl.checks import FloatArray, IntArray
from poolrl.geometry.bins import outward_edges
from poolrl.geometry.resolution import TOGETHER_BANDS, TOGETHER_PARTS
from poolrl.learning.law import Law
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.stored import MOST_TOGETHER, Together
from poolrl.privacy.released import PrivateTable
from poolrl.problems.problem import OutcomeProblem

# Points of the common cause at which its integral is taken.
FACTOR_POINTS = 64
# An edge is worth nothing where fewer rows than this lie on one of its sides.
LEAST_SIDE = 0.05
# With a larger error than this a correlation helps no plan, and its share of ρ is better spent on the trees.
USEFUL_ERROR = 0.1
# The share of pairs that show both sides, as a rule of thumb before anything is released.
USUALLY_SHOWN = 0.5


def choose_edges(problem: OutcomeProblem, outcomes: OutcomeDistribution) -> IntArray:
    """For every law (*labels, H, k) the edge that tells most: F (1 − F), where levels reached it, squared for pairs."""
    below, reached = _at_edges(problem, outcomes)
    inside = (below > LEAST_SIDE) & (below < 1 - LEAST_SIDE)
    # Where no edge is inside, the one nearest to the middle.
    worth = np.where(inside, 1.0, 1e-3) * below * (1 - below) * reached**2
    return np.asarray(worth.argmax(axis=-1) + 1, dtype=np.int64)


def _at_edges(problem: OutcomeProblem, outcomes: OutcomeDistribution) -> tuple[FloatArray, FloatArray]:
    """The share of outcomes below each inner edge, and of levels that reach it, (*labels, H, k, bands − 1)."""
    width = (problem.outcome_high - problem.outcome_low) * problem.bound_share
    # Points are the middles of equal bins from zero.
    unit = (outcomes.points - problem.outcome_low[:, None]) / width[..., None]
    edges = outward_edges(TOGETHER_BANDS, higher=outcomes.higher)[1:-1]
    place = edges / (2 * unit[..., :1])  # (*labels, k, edges), in bins from zero
    place = np.broadcast_to(place[..., None, :, :], (*outcomes.weights.shape[:-1], TOGETHER_BANDS - 1))

    def before(law: FloatArray) -> FloatArray:
        """What lies before each edge, in the order of edges."""
        share = Law(law).share_up_to(place)
        return 1 - share if outcomes.higher else share

    below = before(outcomes.weights)
    return below, np.ones_like(below) if outcomes.cutoffs is None else 1 - before(outcomes.cutoffs)


def measure_together(released: PrivateTable, problem: OutcomeProblem, outcomes: OutcomeDistribution) -> Together:
    """Post-processing of the released sums. The correlation is drawn to zero by its error: r (1 − error² / r²)⁺."""
    beyond, below, mixed = released.counts.sum(axis=0).astype(np.float64)
    pairs, products = beyond + below + mixed, problem.outcome_dim
    # Noise alone must not be taken for pairs.
    doubt = math.sqrt(3 * problem.horizon * released.variance)
    if pairs <= 4 * doubt or pairs <= 0:
        return Together(0.0, 0.0, 1.0)
    share = min(max((beyond + mixed / 2) / pairs, LEAST_SIDE), 1 - LEAST_SIDE)
    # Laws whose edges lie at different shares agree a little less than p says.
    assert released.edges is not None
    below_edges, _ = _at_edges(problem, outcomes)
    expected = 1 - np.take_along_axis(below_edges, released.edges[..., None] - 1, -1)[..., 0]
    side = 2 * expected - 1
    of_pairs = (np.square(side.sum(axis=-1)) - np.square(side).sum(axis=-1)) / (products * (products - 1))
    uneven = float(np.mean(of_pairs) - np.mean(side) ** 2)
    agreeing = (beyond + below - mixed) / pairs - (2 * share - 1) ** 2 - uneven
    tried = np.linspace(0.0, MOST_TOGETHER, 96)
    curve = 4 * (both_beyond(share, tried) - share**2)
    measured = float(np.interp(agreeing, curve, tried))
    slope = float(np.gradient(curve, tried)[min(np.searchsorted(tried, measured), len(tried) - 1)])
    rows = max(pairs / TOGETHER_PARTS, 1.0)
    error = math.sqrt(_row_variance(products, measured) / rows + (doubt / pairs) ** 2) / slope
    used = max(measured - error**2 / measured, 0.0) if measured > 0 else 0.0
    return Together(used, measured, min(error, 1.0))


def both_beyond(share: float, correlation: FloatArray) -> FloatArray:
    """Φ₂(p, p; r): the chance that two products are beyond edges with the share p beyond, by the common cause."""
    points, weights = np.polynomial.hermite_e.hermegauss(FACTOR_POINTS)
    r = np.minimum(correlation, 1 - 1e-9)[..., None]
    beyond = ndtr((ndtri(share) + np.sqrt(r) * points) / np.sqrt(1 - r))
    return np.asarray((beyond**2) @ (weights / weights.sum()))


def _row_variance(products: int, correlation: float) -> float:
    """Of the mean agreement of one row's pairs, about: pairs by themselves, and what they share."""
    return 2 / (products * (products - 1)) * (1 - correlation**2) + 2 * correlation**2


def expected_error(*, steps: int, products: int, slots: float, moved: int, rho: float) -> float:
    """The error of the correlation that a share ρ would buy, from public quantities alone: near r = 0."""
    rows = USUALLY_SHOWN * slots * steps
    noise = 0.0 if rho == math.inf else math.sqrt(3 * steps * steps / rho) * moved / rows
    # Near r = 0 the agreement is 2 r / π.
    return math.pi / 2 * math.sqrt(_row_variance(products, 0.0) / rows + noise**2)


def quasi_together(products: int, many: int, correlation: float) -> FloatArray:
    """The same as `drawn_together`, (many, k), spread evenly instead of at random (Sobol); `many` is a power of two."""
    # It takes a third of a second to import, and single products do not need it.
    from scipy.stats import qmc

    factors = int(correlation > 0)
    even = (qmc.Sobol(products + factors, scramble=False).random(many) + 0.5 / many) % 1.0
    normal = ndtri(even)
    return _moved_together(normal[:, :1], normal[:, 1:], correlation) if factors else np.asarray(even)


def drawn_together(rng: np.random.Generator, shape: tuple[int, ...], correlation: float) -> FloatArray:
    """Uniform numbers (..., k) whose last axis moves together; plain ones without a correlation."""
    if correlation <= 0:
        return rng.random(shape)
    return _moved_together(rng.standard_normal((*shape[:-1], 1)), rng.standard_normal(shape), correlation)


def _moved_together(common: FloatArray, own: FloatArray, correlation: float) -> FloatArray:
    return np.asarray(ndtr(math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own))
