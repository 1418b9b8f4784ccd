"""Do orders follow demand? A test on joint counts of order-up-to levels and of what they showed.

Kaplan-Meier takes outcomes to be independent of the levels that cut them off, and outcomes alone cannot test it
(Tsiatis 1975). But two rows of one label cell, step and coordinate can be compared at an edge t that both levels reach:

    pairs        one outcome is below t, the other one is not
    agreeing     ... and the row whose outcome is beyond t has the higher level;   disagreeing   ... the lower level

    effect = (agreeing − disagreeing) / pairs               Somers' D, summed over all edges t between bands

The rows of a pair stand in different cells, whose noises are independent. So noise leaves every sum right on average.
"""

import math
from functools import cache

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.stored import Dependence
from poolrl.privacy.released import PrivateTable
from poolrl.problems.problem import OutcomeProblem

# Noisy ones may be sums of faded periods.
Counts = IntArray | FloatArray
# For reserves and bids of people who know their lots the effect was 0.3 to 0.5. With more error than this, z would miss
# them.
TELLING_ERROR = 0.1
# Shares of bands of levels and of outcomes where the public bound is a few times what is usual.
USUAL_BANDS = (0.0, 0.05, 0.25, 0.5, 0.2, 0.0, 0.0, 0.0)


def read_dependence(released: PrivateTable, problem: OutcomeProblem, _: OutcomeDistribution) -> Dependence:
    """Post-processing of the released joint table."""
    return compare_levels(compared(released.counts, problem), released.variance)


def compared(counts: Counts, problem: OutcomeProblem) -> Counts:
    """Of a joint table (*labels, H, k, bands, 2, bands) what has something of its own to compare.

    One decision cuts off all outcomes of a round, such as the two highest bids: the first seen on one side counts.
    """
    if problem.action_dim >= problem.outcome_dim:
        return counts
    first = min(set(range(problem.outcome_dim)) - set(problem.current_status))
    return counts[..., first, :, :, :]


def expected_error_of_effect(*, tables: int, slots: float, variance: float) -> float:
    """The error of the effect if each of `tables` (label cells and steps) had `slots`, from public quantities alone."""
    law, bands = np.array(USUAL_BANDS), len(USUAL_BANDS)
    counts = np.zeros((bands, 2, bands))
    counts[:, 0] = np.tril(np.outer(law, law))
    counts[np.arange(bands), 1, np.arange(bands)] = law * (1 - np.cumsum(law))
    cells = slots * counts.ravel()
    pairs_of, signs = _pairs_and_signs(bands)
    pull = cells @ signs
    one = float(cells @ np.square(pull)) + variance * float(np.square(pull).sum())
    one += variance**2 * float(np.square(signs).sum()) / 2
    pairs = float(cells @ pairs_of @ cells) / 2
    return min(1.0, math.sqrt(tables * one) / (tables * pairs)) if pairs > 0 else 1.0


def compare_levels(counts: Counts, variance: float) -> Dependence:
    """The test on counts (..., bands, 2, bands) with noise of `variance`; zero for exact counts.

    Let P(c, c′) be the number of edges at which a row of cell c and one of c′ are a pair, and S(c, c′) the same with
    the sign of agreement, zero for equal levels. With counts x of a label cell, step and coordinate,

        agreeing − disagreeing = ½ xᵀSx,   pairs = ½ xᵀPx.

    Sampling gives the first one the variance Σ x (Sx)²: under independence a row pulls evenly to both sides. Noise ε
    adds (Sx)ᵀε + ½ εᵀSε, of variance σ²‖Sx‖² + ½σ⁴‖S‖². Squares of noisy counts are too large, which is taken off.
    """
    bands = counts.shape[-1]
    cells = counts.reshape(-1, bands * 2 * bands).astype(np.float64)
    pairs_of, signs = _pairs_and_signs(bands)
    pull = cells @ signs
    difference = float((cells * pull).sum()) / 2
    pairs = float((cells * (cells @ pairs_of)).sum()) / 2

    squares = np.square(signs).sum(axis=0)
    noise_alone = variance**2 * len(cells) * float(squares.sum()) / 2  # ½σ⁴‖S‖²
    noise = max(variance * float(np.square(pull).sum()) - noise_alone, noise_alone)
    sampling = max(float((cells * (np.square(pull) - variance * squares)).sum()), 0.0)

    deviation = math.sqrt(noise + sampling)
    # Noise alone makes pairs too. Where it makes as many as there are, their number is not known.
    pairs = max(pairs, variance * math.sqrt(len(cells) * float(np.square(pairs_of).sum()) / 2))
    if pairs == 0:
        return Dependence(effect=0.0, error=1.0, z=0.0)
    effect = min(max(difference / pairs, -1.0), 1.0)
    return Dependence(effect, min(deviation / pairs, 1.0), difference / deviation if deviation else 0.0)


@cache
def _pairs_and_signs(bands: int) -> tuple[FloatArray, FloatArray]:
    """P and S."""
    level, kind, band = np.indices((bands, 2, bands)).reshape(3, -1)
    # A seen outcome lies within its level, and a censored one is cut off at it. Other cells hold noise only.
    possible = np.where(kind == 0, band <= level, band == level)
    higher = np.sign(level[None, :] - level[:, None])
    pairs = np.zeros((len(level), len(level)))
    for edge in range(1, bands):
        shows = possible & (level >= edge)
        below = shows & (kind == 0) & (band < edge)
        pairs += np.outer(below, shows & ~below)
    signs = pairs * higher
    return pairs + pairs.T, signs + signs.T
