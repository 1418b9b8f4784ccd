"""From noisy outcome trees to outcome distributions: shapes, consistent masses, Kaplan-Meier. All is post-processing.

Much noise leaves the shape, little noise the tree, and σ² = 0 plain Kaplan-Meier on the bins. As ρ → 0 the result
becomes the public prior, which is uniform between the outcome's bounds.

*Rounds of a season* are alike, until they show that they are not: one round has few rows. The trees of all steps, added
up, tell the law F of the season. A step has it at a size of its own, with τ learned from all steps, as far as it
explains the steps as well as laws of their own do (`shared_part`):

    F_h(x) = F(x e^{−m_h}),    m_h ~ N(0, τ²)

*Only the side of an outcome* is seen where somebody bought at this price or did not (current-status data). The share of
those who did not buy estimates F(price), and F cannot fall: isotonic regression (Ayer et al. 1955). It converges at
n^(−1/3). So it only corrects the law of the shapes. Prices must not follow values that only the seller knows.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import expit, logsumexp, softmax
from threadpoolctl import ThreadpoolController

from poolrl.checks import FloatArray, IntArray
from poolrl.geometry.bins import bin_edges
from poolrl.geometry.resolution import PLANNING_BINS
from poolrl.learning import priors
from poolrl.learning.cell_laws import CellLaws, coarser, explain
from poolrl.learning.law import Law, cumulative, places_of
from poolrl.learning.outcomes import OutcomeDistribution, bin_middles, continued, equal_bins, reaches
from poolrl.learning.shapes import Observed, beyond, expected_shares
from poolrl.learning.trees import Cells, consistent_masses, kaplan_meier, mean_left, observed_slots, refined, upward
from poolrl.privacy.released import PrivateOutcomes
from poolrl.problems.problem import OutcomeProblem

# Our matrices are small. Threads that share them wait for each other, ten times as long where others use the cores.
LINEAR_ALGEBRA = ThreadpoolController()


def estimate_outcomes(released: PrivateOutcomes, problem: OutcomeProblem) -> OutcomeDistribution:
    """Trees → shapes → consistent masses around them → Kaplan-Meier → equal bins, as far as outcomes reach.

    Where rows show only on which side an outcome lies, isotonic regression stands in the place of Kaplan-Meier.
    """
    totals = observed_slots(released)
    cells, season = Cells.of(released, problem, totals), None
    if problem.counts_down and problem.horizon > 1:
        whole = cells.whole_season()
        laws = _explained(whole, problem)
        together, _ = _by_kaplan_meier(whole, problem, laws)
        # Where only sides are seen, steps correct the shape together anyway (`isotonic_laws`).
        together[whole.status] = laws.outcomes[whole.status]
        season = cells.of_each_step(together)
    weights, tried = _step_laws(cells, problem, season)
    # From here on bins lie in their natural order.
    order = -1 if cells.higher else 1
    weights = weights.reshape(*cells.shape, -1)[..., ::order]
    if tried is not None:
        tried = tried.reshape(*cells.shape, -1)[..., ::order]
    tops = reaches(weights)
    every_slot = released.total if released.totals is None else released.totals.mean() * problem.labels.count
    observed = float(np.clip(totals.reshape(-1, *totals.shape[-2:]).sum(axis=0).mean() / max(every_slot, 1), 0.0, 1.0))
    return OutcomeDistribution(
        bin_middles(problem, PLANNING_BINS, tops),
        equal_bins(weights, tops),
        None if tried is None else equal_bins(tried, tops),
        observed,
        totals,
        mean_left(released, problem, totals),
        cells.higher,
        released.variance,
    )


def _step_laws(
    cells: Cells, problem: OutcomeProblem, season: FloatArray | None
) -> tuple[FloatArray, FloatArray | None]:
    """Laws of outcomes and of values that were tried, (cells, F), around the laws of their season (cells, F)."""
    laws = _explained(cells, problem)
    weights, tried = _around(laws, cells, problem)
    if season is None or tried is None or laws.cutoffs is None:
        return weights, tried
    sized = at_own_size(season, laws.cutoffs, cells)
    part = shared_part(sized, laws.outcomes, laws.cutoffs, cells)[:, None]
    shared, tried_too = _around(replace(laws, outcomes=sized), cells, problem, around_season=True)
    assert tried_too is not None
    return part * shared + (1 - part) * weights, part * tried_too + (1 - part) * tried


def _around(
    laws: CellLaws, cells: Cells, problem: OutcomeProblem, *, around_season: bool = False
) -> tuple[FloatArray, FloatArray | None]:
    """The trees around their shapes: Kaplan-Meier, or isotonic regression where only sides are seen."""
    weights, tried = _by_kaplan_meier(cells, problem, laws, around_season=around_season)
    if tried is not None and (sides := cells.status).any():
        assert laws.cutoffs is not None
        tried[sides] = laws.cutoffs[sides]
        known = laws.outcomes[sides], laws.cutoffs[sides], cells.same_season[sides]
        weights[sides] = isotonic_laws(cells.some(sides), *known)
    return weights, tried


def _explained(cells: Cells, problem: OutcomeProblem) -> CellLaws:
    """The shapes of all cells."""
    reach = np.concatenate([problem.cutoff_reach(step) for step in range(problem.horizon)])
    # Zeros are lost from sight first on the higher side, and nobody sees them where only sides are seen.
    closes = not (cells.higher or problem.current_status or problem.counts_down)
    with LINEAR_ALGEBRA.limit(limits=1, user_api="blas"):
        return explain(cells, reach=reach, closes=closes)


def _by_kaplan_meier(
    cells: Cells, problem: OutcomeProblem, laws: CellLaws, *, around_season: bool = False
) -> tuple[FloatArray, FloatArray | None]:
    """Laws of outcomes and of cut-off levels, (cells, F): the trees around their shapes, or around their season."""
    bins = cells.levels[-1].shape[-1]
    masses = consistent_masses(cells, laws.expected(bins), a_sample=around_season)
    weights = refined(kaplan_meier(masses, coarser(laws.outcomes, bins)), laws.outcomes)
    if laws.cutoffs is None:
        return weights, None
    # Outcome and cut-off level censor each other, so the same estimate works with their roles exchanged.
    tried = refined(kaplan_meier(masses[:, ::-1], coarser(laws.cutoffs, bins)), laws.cutoffs)
    if not around_season:  # a season has its tail already
        least = priors.EXPLORED_BY_CHOICE if problem.counts_down else priors.EXPLORED
        further = continued(weights, tried, higher=cells.higher, least=least)
        # The public prior knows its own tail.
        weights = laws.learned * further + (1 - laws.learned) * weights
    return weights, tried


# Steps whose likelihoods are computed at once.
STEPS_AT_ONCE = 256


def at_own_size(season: FloatArray, cutoffs: FloatArray, cells: Cells) -> FloatArray:
    """The posterior mean law of every step, (cells, F), given the laws of its season and of tried values (cells, F)."""

    def laws_of(some: slice) -> tuple[FloatArray, FloatArray]:
        laws = [resized(season[some], size, cells.resolved, higher=cells.higher) for size in priors.SIZES_IN_LOGS]
        return np.stack(laws, axis=1), laws[priors.SAME_SIZE]

    weights = weights_of_sizes(_log_likelihoods_of(laws_of, cutoffs, cells))
    likely = (
        (size, weight[:, None]) for size, weight in zip(priors.SIZES_IN_LOGS, weights.T, strict=True) if weight.any()
    )
    bins, higher = season.shape[-1], cells.higher
    return np.asarray(sum(weight * resized(season, size, bins, higher=higher) for size, weight in likely))


def resized(laws: FloatArray, size: float, bins: int, *, higher: bool) -> FloatArray:
    """Laws (..., F) of outcomes e^size times as large, on `bins` bins; what exceeds the bound is in the last one."""
    natural = laws[..., ::-1] if higher else laws
    found = Law(natural).between(places_of(np.minimum(bin_edges(bins) * np.exp(-size), 1.0), natural.shape[-1]))
    return found[..., ::-1] if higher else found


def weights_of_sizes(scores: FloatArray) -> FloatArray:
    """How likely each step has each size, (cells, S), by log-likelihoods of the same shape and a spread for all."""
    log_joint, posteriors = np.empty(len(priors.SIZE_SPREADS)), []
    for i, spread in enumerate(priors.SIZE_SPREADS):
        # A spread of zero leaves one size.
        prior = np.exp(-((priors.SIZES_IN_LOGS / max(spread, 1e-9)) ** 2) / 2)
        with np.errstate(divide="ignore"):
            joint = scores + np.log(prior / prior.sum())
        total = logsumexp(joint, axis=1, keepdims=True)
        log_joint[i] = total.sum() - spread / priors.USUAL_SIZE_SPREAD
        posteriors.append(np.exp(joint - total))
    return np.einsum("t,tcs->cs", softmax(log_joint), np.stack(posteriors))


def shared_part(sized: FloatArray, own: FloatArray, cutoffs: FloatArray, cells: Cells) -> FloatArray:
    """How likely the laws of a season, (cells, F), explain its steps, (cells,), and not laws of their own.

    These were chosen for their trees, and explain them better by luck.
    """
    laws = np.stack([coarser(sized, cells.resolved), coarser(own, cells.resolved)], axis=1)
    scores = _log_likelihoods_of(lambda some: (laws[some], laws[some].mean(axis=1)), cutoffs, cells)
    better = scores[:, 0] - scores[:, 1] + priors.LUCK_OF_A_STEP
    return np.asarray(expit(np.bincount(cells.same_season, better)[cells.same_season]))


def _log_likelihoods_of(
    laws_of: Callable[[slice], tuple[FloatArray, FloatArray]], cutoffs: FloatArray, cells: Cells
) -> FloatArray:
    """Of every cell's trees under its laws, (cells, S), up to a constant of each cell, as in `log_likelihoods`.

    `laws_of` gives laws (cells, S, B) of some cells, and the usual ones (cells, B) of which slots are a sample.
    """
    observed, tried = Observed.of(cells.levels, cells.variance, cells.resolved), coarser(cutoffs, cells.resolved)
    (leaves, noise), found = observed.leaves, []
    for start in range(0, len(cells.totals), STEPS_AT_ONCE):
        some = slice(start, start + STEPS_AT_ONCE)
        laws, usual = laws_of(some)
        every = np.concatenate([usual[:, None], laws], axis=1)
        status = np.broadcast_to(cells.status[some, None], every.shape[:-1])
        shares = expected_shares(every, np.broadcast_to(tried[some, None], every.shape), status)
        expected = cells.totals[some, None, None, None] * shares  # (cells, 1 + S, kinds, B)
        mean = expected[:, 0]
        sampled = mean + priors.LEAST_VARIANCE + (priors.MISFIT * mean) ** 2
        # (cells, kinds, B, B)
        covariance = noise + sampled[..., None] * np.eye(len(noise))
        off = np.moveaxis(leaves[some, None] - expected[:, 1:], 1, -1)
        found.append(-0.5 * (off * np.linalg.solve(covariance, off)).sum(axis=(1, 2)))
    return np.concatenate(found)


def isotonic_laws(cells: Cells, laws: FloatArray, tried: FloatArray, alike: IntArray) -> FloatArray:
    """Laws (cells, F) from trees whose kinds are outcomes before and beyond the values that were tried.

    `laws` (cells, F) are what the shapes explain, and `tried` (cells, F) those of tried values. Cells of one number in
    `alike` (cells,) miss their shapes in the same way, until they show that they do not. From few bins to many the laws
    are moved to the isotonic regression of the shares of each bin, while bins have more rows than noise.
    """
    totals, found = cells.totals, np.array(laws)
    for counts, noise in zip(*upward(cells.levels, cells.variance), strict=True):
        bins, least = counts.shape[-1], max(priors.ROWS_OF_BIN, priors.NOISES_OF_BIN * noise**0.5)
        if bins >= priors.FEWEST_STATUS_BINS and totals.mean() / bins >= least:
            found = _corrected(found, replace(cells, levels=[counts], variance=noise), tried, alike)
    return found


def _corrected(laws: FloatArray, cells: Cells, tried: FloatArray, alike: IntArray) -> FloatArray:
    """Laws (cells, F), moved to the shares of the bins of one level, with counts (cells, 2, bins)."""
    (counts,), totals, variance = cells.levels, cells.totals, cells.variance
    bins, fine = counts.shape[-1], laws.shape[-1]
    # What a law expects of a bin: its mean over the values that were tried there.
    weights = tried.reshape(len(laws), bins, -1) + priors.LEAST_WEIGHT
    below = (1 - beyond(laws)).reshape(weights.shape)
    expected = (below * weights).sum(axis=-1) / weights.sum(axis=-1)
    rows = totals[:, None] * weights.sum(axis=-1)
    known = np.maximum(rows, 1.0)
    sampled = np.maximum(known * expected * (1 - expected), priors.LEAST_VARIANCE)
    error = (variance * (expected**2 + (1 - expected) ** 2) + sampled) / known**2
    off = np.where(rows >= 1, (counts[:, 0] - expected * counts.sum(axis=1)) / known, 0.0)
    groups, group = np.unique(alike, return_inverse=True)
    together = (alike == groups[:, None]).astype(np.float64)  # (groups, cells)
    precision = together @ (1 / error)
    common = _leaning(together @ (off / error) / precision, 1 / precision)[group]
    share = np.clip(expected + common + _leaning(off - common, error), 0.0, 1.0)
    moved = np.stack([_rising(each, weight) for each, weight in zip(share, rows, strict=True)]) - expected
    place, middles, even = (np.arange(fine + 1) / fine) * bins, np.arange(bins) + 0.5, np.ones(fine + 1)
    moves = zip(cumulative(laws), moved, strict=True)
    rising = np.stack([_rising(law + np.interp(place, middles, move), even) for law, move in moves]).clip(0.0, 1.0)
    rising[:, 0], rising[:, -1] = 0.0, 1.0
    return np.diff(rising, axis=-1)


def _leaning(off: FloatArray, error: FloatArray) -> FloatArray:
    """How far shares really lie off, where off by `off` with variance `error` was measured.

        real ~ Σ_j π_j N(0, τ_j²),    off | real ~ N(real, error)

    The weights π are learned from all bins (empirical Bayes), so a few bins may lie far off where most do not.
    """
    total = priors.SPLIT_SPREADS**2 + error[..., None]
    likelihood = np.exp(-0.5 * (off[..., None] ** 2 / total)) / np.sqrt(total)
    first = np.exp(-priors.SPLIT_SPREADS / priors.USUAL_SPLIT_SPREAD)
    usual = weights = first / first.sum()
    for _ in range(priors.EM_ROUNDS):
        each = weights * likelihood
        each /= np.maximum(each.sum(axis=-1, keepdims=True), 1e-300)
        weights = each.reshape(-1, len(priors.SPLIT_SPREADS)).sum(axis=0) + priors.USUAL_BINS * usual
        weights /= weights.sum()
    return np.asarray((each * (priors.SPLIT_SPREADS**2 / total)).sum(axis=-1) * off)


def _rising(values: FloatArray, weights: FloatArray) -> FloatArray:
    # It takes a quarter of a second to import, and only prices need it.
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(values, weights=np.maximum(weights, priors.LEAST_WEIGHT)).x)
