"""From noisy trees to laws, each step against an oracle; beyond the explored range the best lognormal goes on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from poolrl import Backlog, LostSales, Outcomes, Pool, SeededNoise, Trajectories
from poolrl.checks import FloatArray
from poolrl.geometry.bins import bin_edges
from poolrl.learning.estimation import estimate_outcomes
from poolrl.learning.law import Law
from poolrl.learning.outcomes import OutcomeDistribution, continued, equal_bins, looked_at
from poolrl.learning.priors import POINTS, SPLIT_SPREADS, USUAL_SPLIT_SPREAD
from poolrl.learning.shapes import expected_shares
from poolrl.learning.trees import (
    Cells,
    borrowed_share,
    consistent_masses,
    kaplan_meier,
    refined,
    upward,
)
from poolrl.privacy.release import release_outcomes
from poolrl.privacy.released import PrivateOutcomes
from poolrl.privacy.zcdp import budget
from tests.helpers.tables import every_level


def noisy_tree(rng: np.random.Generator, depth: int, variance: float) -> tuple[np.ndarray, ...]:
    leaves = rng.integers(0, 50, (6, 1, 2**depth))
    levels = [leaves]
    while levels[0].shape[-1] > 1:
        levels.insert(0, levels[0][..., 0::2] + levels[0][..., 1::2])
    return tuple(level + np.rint(rng.normal(0, math.sqrt(variance), level.shape)).astype(int) for level in levels)


def below(estimate: OutcomeDistribution, step: int, product: int, at: float) -> float:
    """P(D < at), between the edges of the estimate's equal bins."""
    points, weights = estimate.points[product], estimate.weights[step, product]
    edges = np.linspace(0.0, points[-1] + points[0], len(points) + 1)
    return float(np.interp(at, edges, np.concatenate([[0.0], np.cumsum(weights)])))


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_upward_pass_is_weighted_least_squares(first: int) -> None:
    """Each node's estimate equals the direct least-squares solve on all measurements of its subtree.

    Coarse levels may not have been released (first > 0). Then estimates are those of subtrees without them.
    """
    depth, variance = 3, 7.0
    levels = noisy_tree(np.random.default_rng(0), depth, variance)
    estimates, variances = upward(levels[first:], variance)
    for top in range(depth + 1):
        height = depth - top
        measured_levels = [level for level in range(height + 1) if top + level >= first]
        rows = [np.kron(np.eye(2**level), np.ones(2 ** (height - level))) for level in measured_levels]
        design = np.concatenate(rows)  # every measured node of the subtree as a sum of its leaves
        ones = np.ones(2**height)
        spread = ones @ np.linalg.inv(design.T @ design) @ ones * variance
        assert variances[top] == pytest.approx(spread)
        for node in range(2**top):
            measured = np.concatenate([levels[top + k][5, 0, node * 2**k : (node + 1) * 2**k] for k in measured_levels])
            leaves = np.linalg.lstsq(design, measured, rcond=None)[0]
            assert estimates[top][5, 0, node] == pytest.approx(leaves.sum())


@pytest.mark.parametrize(
    ("variance", "a_sample", "spread"), [(60.0, False, 60 + 60 * 10 / 70), (60.0, True, 70.0), (0.0, True, 10.0)]
)
def test_a_share_is_the_posterior_mean(variance: float, a_sample: bool, spread: float) -> None:
    """Against brute-force integration over share and τ for a single split.

    The parent's 40 slots are a sample around the law's split, of variance s = 40/4 = 10. It counts as far as noise
    exceeds it, 60 + 60 · 10 / (60 + 10), or in full where rows are a sample of what rounds share.
    """
    parent, x, centre = 40.0, 31.0, 0.5
    weights, shares = np.exp(-SPLIT_SPREADS / USUAL_SPLIT_SPREAD), np.linspace(-6, 7, 200_001)
    numerator = denominator = 0.0
    for weight, tau in zip(weights, SPLIT_SPREADS, strict=True):
        if tau == 0:
            joint = stats.norm.pdf(x, parent * centre, math.sqrt(spread))
            numerator, denominator = numerator + weight * joint * centre, denominator + weight * joint
            continue
        density = stats.norm.pdf(shares, centre, tau) * stats.norm.pdf(x, parent * shares, math.sqrt(spread))
        numerator += weight * np.trapezoid(shares * density, shares)
        denominator += weight * np.trapezoid(density, shares)
    found = borrowed_share(np.array([parent]), np.array([x]), variance, np.array([centre]), a_sample=a_sample)
    assert found == pytest.approx(numerator / denominator, rel=1e-5)


def release(
    problem: LostSales | Backlog, log: Trajectories, rho: float, *, bins: int, seed: int = 0
) -> PrivateOutcomes:
    """Levels from four nodes on, as the default releases them."""
    sizes = every_level(bins)[2:]
    return release_outcomes(log, problem, level_sizes=sizes, rho=budget(rho), noise=SeededNoise(seed))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.01, 10.0, 1e4]), st.sampled_from([1, 2]))
def test_masses_are_never_negative_and_add_up(seed: int, variance: float, kinds: int) -> None:
    rng = np.random.default_rng(seed)
    levels = [rng.normal(20 / size, variance**0.5, (4, kinds, size)) for size in (4, 8, 16)]
    centre = rng.dirichlet(np.ones(kinds * 16), size=4).reshape(4, kinds, 16)
    totals = rng.uniform(0, 40, 4)
    masses = consistent_masses(Cells(levels, variance, totals, np.zeros(4, dtype=bool)), centre)
    assert (masses >= 0).all()
    assert masses.sum(axis=(1, 2)) == pytest.approx(totals)
    weights = kaplan_meier(masses, np.full((4, 16), 1 / 16))
    assert (weights >= 0).all()
    assert weights.sum(axis=-1) == pytest.approx(1)


def test_kaplan_meier_agrees_with_scipy_on_censored_data() -> None:
    """Every observation in a bin of its own: the textbook estimator, at every time."""
    rng = np.random.default_rng(2)
    bins, n = 1024, 300
    values = rng.permutation(bins - 100)[:n]  # distinct bins; the last observation is not at the end
    cut = rng.random(n) < 0.4
    masses = np.zeros((2, bins))
    masses[cut.astype(int), values] = 1.0
    survival = 1 - np.cumsum(kaplan_meier(masses, np.full(bins, 1 / bins)))
    oracle = stats.ecdf(stats.CensoredData(uncensored=values[~cut], right=values[cut])).sf
    assert survival[oracle.quantiles.astype(int)] == pytest.approx(oracle.probabilities, abs=1e-4)


def plain_kaplan_meier(log: Trajectories, step: int, product: int, top: float, bins: int) -> FloatArray:
    """P(D < edge) on the edges of square-root bins, by a loop over bins and nothing of the library."""
    y, left = log.actions[:, step, product], log.next_states[:, step, product]
    leaf = np.minimum(np.sqrt((y - left) / top) * bins, bins - 1).astype(int)
    survival, alive, reached = 1.0, len(leaf), [0.0]
    for k in range(bins):
        seen, cut = int(((leaf == k) & (left > 0)).sum()), int(((leaf == k) & (left <= 0)).sum())
        if seen:
            s, c = seen / alive, cut / alive
            u = 1 + (s - c) / 2
            survival *= 1 - (u - math.sqrt(max(u * u - 2 * s, 0.0)))
        alive -= seen + cut
        reached.append(1 - survival)
    return np.array(reached)


def test_without_noise_it_is_kaplan_meier_as_far_as_the_log_looked() -> None:
    """ρ = ∞, with shapes that could say otherwise: nothing leans on them where demand was seen."""
    problem = LostSales(horizon=2, products=2, holding=1, shortage=1, demand_max=[10.0, 40.0])
    rng = np.random.default_rng(3)
    demand = rng.gamma(4, 0.6, (400, 2, 2)) * [1.0, 4.0]
    log = problem.simulate_log(
        demand.clip(0, [10, 40]), rng=rng, behaviour=lambda h, x, r: r.uniform(0, [6, 24], x.shape)
    )
    released = release(problem, log, math.inf, bins=1024)
    estimate = estimate_outcomes(released, problem)
    for step in range(2):
        for i, top in enumerate((10.0, 40.0)):
            oracle = plain_kaplan_meier(log, step, i, top, 1024)
            end = estimate.explored[step, i]
            assert 0.4 * top < end < 0.65 * top  # orders go up to 0.6
            # The two kinds of bins have different edges, so the estimate is read at its own.
            edges = np.concatenate([[0.0], estimate.points[i] + estimate.points[i, 0]])
            inside = edges < 0.98 * end
            found = np.concatenate([[0.0], np.cumsum(estimate.weights[step, i])])[inside]
            expected = np.interp(edges[inside], bin_edges(1024) * top, oracle)
            assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("reach", [0.25, 0.5, 1.0])
def test_expected_counts_give_the_law_back(kinds: int, reach: float) -> None:
    """Kaplan-Meier inverts `expected_shares` exactly; where nothing is at risk any more, the law itself goes on."""
    rng = np.random.default_rng(4)
    law = rng.dirichlet(np.ones(16))
    levels = np.where(np.arange(16) < 16 * reach, 1.0, 0.0)
    cutoffs = levels / levels.sum() if kinds == 2 else None
    masses = expected_shares(law, cutoffs) * 1e6
    assert (masses >= 0).all()
    assert masses.sum() == pytest.approx(1e6)
    assert kaplan_meier(masses, law) == pytest.approx(law, abs=1e-5)


def test_rows_that_tell_nothing_do_not_bend_the_estimate() -> None:
    """A third of the rows beyond λ, units with one or two trajectories of at most three: F is still found."""
    problem = LostSales(horizon=3, products=1, holding=1, shortage=1, demand_max=10.0, boundary=[[0.8], [0.5], [1.0]])
    rng = np.random.default_rng(4)
    log = problem.simulate_log(
        rng.beta(2, 3, (9000, 3, 1)) * 10, rng=rng, behaviour=lambda h, x, r: np.maximum(x, r.uniform(0, 10, x.shape))
    )
    parts = {"states": log.states, "actions": log.actions, "next_states": log.next_states}
    owned = Trajectories(**parts, unit=rng.integers(0, 6000, 9000), max_per_unit=3)
    released = release(problem, owned, 20.0, bins=64)
    assert released.unobserved is not None
    assert (released.unobserved / released.total > 0.35).all()
    estimate = estimate_outcomes(released, problem)
    for step, reach in enumerate((0.8, 0.5, 1.0)):
        for at in (0.2, 0.4, 0.45):
            if at < reach:
                assert below(estimate, step, 0, 10 * at) == pytest.approx(stats.beta.cdf(at, 2, 3), abs=0.03)


def test_vanishing_budget_gives_the_prior() -> None:
    """F → uniform between the bounds, whatever the log holds; as the signal-to-noise ratio, so as √ρ."""
    problem = LostSales(horizon=4, products=2, holding=1, shortage=1, demand_max=10.0)
    rng = np.random.default_rng(3)
    log = problem.simulate_log(rng.uniform(0, 2, (500, 4, 2)), rng=rng)
    prior = np.arange(1, 513) / 512

    def distance(rho: float, seed: int) -> float:
        estimate = estimate_outcomes(release(problem, log, rho, bins=8, seed=seed), problem)
        assert estimate.points[:, -1] == pytest.approx(10, abs=0.02)
        return float(np.abs(np.cumsum(estimate.weights, axis=-1) - prior).max())

    for seed in range(2):
        near, nearer = distance(1e-9, seed), distance(1e-12, seed)
        assert near < 0.02
        assert nearer < 1e-3
        assert nearer < near / 10


@settings(max_examples=25, deadline=None)
@example([1.1125369292536007e-308, 1.0], 2, 0)
@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=12).filter(lambda w: sum(w) > 0.01),
    st.sampled_from([2, 4, 16]),
    st.integers(0, 100),
)
def test_refining_moves_nothing_between_bins(weights: list[float], parts: int, seed: int) -> None:
    coarse = np.array(weights) / sum(weights)
    law = np.random.default_rng(seed).dirichlet(np.full(len(coarse) * parts, 0.1))
    fine = refined(coarse, law)
    assert fine.shape == law.shape
    assert (fine >= 0).all()
    assert fine.reshape(-1, parts).sum(axis=1) == pytest.approx(coarse, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([8, 64, 1024]), st.floats(0.01, 1.0))
def test_equal_bins_keep_the_distribution_function(seed: int, bins: int, top: float) -> None:
    """P(D < y) on the new edges is what straight lines between the old edges give; beyond the top all is at its bin."""
    weights = np.random.default_rng(seed).dirichlet(np.full(bins, 0.3))
    found = equal_bins(weights[None, None], np.array([top]))[0, 0]
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1)
    edges = np.linspace(0, top, len(found) + 1)
    expected = np.interp(edges, bin_edges(bins), np.concatenate([[0.0], np.cumsum(weights)]))
    assert np.cumsum(found)[:-1] == pytest.approx(expected[1:-1], abs=1e-9)


def test_bins_follow_public_quantities() -> None:
    """The power of two nearest to 2.65 r^(−0.6) with r = c √(Hk/ρ) / n, within 8 and 1024; from four nodes on."""
    facts = {"horizon": 10, "products": 8, "holding": 1, "shortage": 1, "demand_max": 1}
    shop, base = LostSales(**facts), {"slots": 1000, "per_unit": 1, "rho": 0.1}

    def finest(problem: LostSales = shop, **changes: float) -> int:
        sizes = Outcomes().level_sizes(problem, **base | changes)
        assert sizes == tuple(2**level for level in range(2, len(sizes) + 2))
        return sizes[-1]

    assert finest() == 16  # r = 28.3 / 1000: 22.5 wanted
    two_cells = LostSales(**facts, labels={"promo": [0, 1]})
    assert finest(two_cells, slots=2000) == 16  # the same slots in every cell as at first
    assert finest(per_unit=2) == 16  # 14.9 wanted
    assert finest(slots=10**7) == 1024
    assert finest(rho=1e-9) == 8
    assert Outcomes(bins=32).level_sizes(shop, **base) == (4, 8, 16, 32)
    assert Outcomes(bins=2).level_sizes(shop, **base) == (2,)


@pytest.mark.parametrize(("bins", "message"), [(3, "power of two, got 3"), (1, "at least 2, got 1"), (2.0, "whole")])
def test_bad_settings(bins: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Outcomes(bins=bins)


BINS = 512
EDGES = bin_edges(BINS)


def on_bins(law: stats.rv_continuous) -> FloatArray:
    """Shares of the bins; all beyond the bound in the last one."""
    cumulated = law.cdf(EDGES)
    cumulated[-1] = 1.0
    return np.diff(cumulated)


def tried_up_to(end: int) -> FloatArray:
    """Levels that are never cumulated bin `end` − 1, and one in twenty beyond: the explored range has `end` bins."""
    tried = np.zeros(BINS)
    tried[end - 1] += 0.95
    tried[-1] += 0.05
    return tried


def cumulated(weights: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(weights)])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, BINS), st.sampled_from([0.01, 0.3, 3.0]))
def test_a_continued_law_is_a_law_and_the_seen_part_stays(seed: int, end: int, roughness: float) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.full(BINS, roughness))
    tried = tried_up_to(end)
    found = continued(weights[None], tried[None])[0]
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1)
    explored = looked_at(tried)
    assert explored.sum() == end
    assert np.allclose(found[explored], weights[explored], rtol=0, atol=1e-12)


def test_the_tail_is_the_line_of_least_squares_through_the_end_of_the_range() -> None:
    """A gamma law, whose tail is another. In ln y and Φ⁻¹(F) a lognormal is a line, fitted with exact quantiles."""
    truth = on_bins(stats.gamma(5, scale=0.03))
    end = int(np.searchsorted(EDGES, 0.2))
    found = cumulated(continued(truth[None], tried_up_to(end)[None])[0])
    seen = cumulated(truth)[end]
    places = stats.gamma(5, scale=0.03).ppf(POINTS * seen)
    rises = stats.norm.ppf(seen) - stats.norm.ppf(POINTS * seen)
    spread = np.linalg.lstsq(rises[:, None], np.log(EDGES[end] / places), rcond=None)[0][0]
    beyond = slice(end, BINS)
    line = np.log(EDGES[beyond] / EDGES[end]) / spread + stats.norm.ppf(seen)
    assert found[end] == pytest.approx(seen, abs=1e-12)
    assert found[beyond] == pytest.approx(stats.norm.cdf(line), abs=1e-4)


@pytest.mark.parametrize(
    "weights",
    [
        np.eye(1, BINS, 0)[0],  # always zero: nothing to go on from
        np.eye(1, BINS, 400)[0],  # nothing seen in the explored range
        np.diff(np.minimum(EDGES / EDGES[100], 1.0)),  # all seen
    ],
)
def test_what_tells_nothing_about_a_tail_is_left_alone(weights: FloatArray) -> None:
    assert continued(weights[None], tried_up_to(200)[None])[0] == pytest.approx(weights)


def test_a_plan_climbs_beyond_the_log_but_not_far() -> None:
    """Shops sold out at 10 nearly always. Demand is higher, but nobody knows how much: at most half as much more."""
    problem = LostSales(horizon=1, holding=0.01, shortage=1.0, demand_max=100.0)
    rng = np.random.default_rng(0)
    demand = np.clip(rng.gamma(20, 0.9, (4000, 1, 1)), 0, 100)
    log = problem.simulate_log(demand, rng=rng, behaviour=lambda h, x, r: np.full_like(x, 10.0))
    policy = Pool(np.inf).fit(problem, log)
    assert policy.outcomes is not None
    explored = float(policy.outcomes.explored[0, 0])
    assert explored == pytest.approx(10, rel=0.03)
    assert 1.2 * explored < policy.levels[0, 0] <= 1.5 * explored * (1 + 1e-9)


def test_of_each_row_the_weight_beyond_a_bin_is_drawn_from_its_own_law() -> None:
    laws = Law(np.array([[4.0, 0.0, 3.0, 1.0], [1.0, 1.0, 2.0, 0.0]]))
    which, begin = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 3, 1, 2, 0])
    shares = np.array([0.49, 0.74, 0.99, 0.34, 0.99, 0.24])
    # Beyond bin 1 the first law holds 3 of 4 in bin 2; the second holds 1 of 3 in bin 1 itself.
    assert laws.bins_beyond(which, begin, shares).tolist() == [0, 2, 3, 2, 2, 0]
    found = laws.bins_beyond(np.zeros(1000, dtype=int), np.ones(1000, dtype=int), (np.arange(1000) + 0.5) / 1000)
    assert np.bincount(found, minlength=4).tolist() == [0, 0, 750, 250]
