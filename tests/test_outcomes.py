"""From noisy trees to distributions: each step against an independent oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from poolrl import Backlog, LostSales, Outcomes, SeededNoise, Trajectories
from poolrl.learning.outcomes import estimate_outcomes, kaplan_meier, prior_masses, refined
from poolrl.learning.trees import Shrinkage, borrowed_share, consistent_masses, upward
from poolrl.privacy.release import release_outcomes
from poolrl.privacy.sensitivity import every_level
from poolrl.privacy.zcdp import budget

SHRINKAGE = Shrinkage(0.3, 0.1)


def noisy_tree(rng: np.random.Generator, depth: int, variance: float) -> tuple[np.ndarray, ...]:
    leaves = rng.integers(0, 50, (2, 3, 1, 2**depth))
    levels = [leaves]
    while levels[0].shape[-1] > 1:
        levels.insert(0, levels[0][..., 0::2] + levels[0][..., 1::2])
    return tuple(level + np.rint(rng.normal(0, math.sqrt(variance), level.shape)).astype(int) for level in levels)


def test_the_upward_pass_is_weighted_least_squares() -> None:
    """Each node's estimate equals the direct least-squares solve on all measurements of its subtree."""
    depth, variance = 3, 7.0
    levels = noisy_tree(np.random.default_rng(0), depth, variance)
    estimates, variances = upward(levels, variance)
    for top in range(depth + 1):
        height = depth - top
        rows = [np.kron(np.eye(2**level), np.ones(2 ** (height - level))) for level in range(height + 1)]
        design = np.concatenate(rows)  # every node of the subtree as a sum of its leaves
        ones = np.ones(2**height)
        spread = ones @ np.linalg.inv(design.T @ design) @ ones * variance
        assert variances[top] == pytest.approx(spread)
        for node in range(2**top):
            measured = np.concatenate(
                [levels[top + k][1, 2, 0, node * 2**k : (node + 1) * 2**k] for k in range(height + 1)]
            )
            leaves = np.linalg.lstsq(design, measured, rcond=None)[0]
            assert estimates[top][1, 2, 0, node] == pytest.approx(leaves.sum())


def test_a_share_is_the_posterior_mean() -> None:
    """Against brute-force integration over share and τ for a single split."""
    parent, x, variance, centre, spread = 40.0, 31.0, 60.0, 0.5, 0.3
    from poolrl.learning.trees import SPREADS

    weights = np.exp(-SPREADS / spread)
    shares = np.linspace(-6, 7, 200_001)
    numerator = denominator = 0.0
    for weight, tau in zip(weights, SPREADS, strict=True):
        if tau == 0:
            joint = stats.norm.pdf(x, parent * centre, math.sqrt(variance))
            numerator, denominator = numerator + weight * joint * centre, denominator + weight * joint
            continue
        density = stats.norm.pdf(shares, centre, tau) * stats.norm.pdf(x, parent * shares, math.sqrt(variance))
        numerator += weight * np.trapezoid(shares * density, shares)
        denominator += weight * np.trapezoid(density, shares)
    found, evidence = borrowed_share(np.array(parent), np.array(x), variance, np.array(centre), spread)
    assert found == pytest.approx(numerator / denominator, rel=1e-6)
    null = stats.norm.pdf(x, parent * centre, math.sqrt(variance))
    assert evidence == pytest.approx(math.log(denominator / weights.sum() / null), rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.01, 1.0, 100.0]),
    st.sampled_from([LostSales, Backlog]),
    st.sampled_from([1.0, 0.5]),
)
def test_masses_are_never_negative_and_add_up(seed: int, rho: float, kind: type, share: float) -> None:
    problem = kind(horizon=2, products=2, holding=1, shortage=1, demand_max=10.0, boundary=share)
    rng = np.random.default_rng(seed)
    log = problem.simulate_log(
        rng.uniform(0, 10, (30, 2, 2)), rng=rng, behaviour=lambda h, x, r: r.uniform(0, 10, x.shape)
    )
    released = release_outcomes(
        log, problem, level_sizes=every_level(16), rho=budget(rho), noise=SeededNoise(seed % 1000)
    )
    prior = prior_masses(kinds=released.levels[0].shape[2], bins=16)
    masses = consistent_masses(released, prior, SHRINKAGE)
    assert (masses >= 0).all()
    totals = masses.sum(axis=(2, 3))
    if released.unobserved is None:
        assert totals == pytest.approx(30)
    else:
        assert (totals <= 30 + 1e-9).all()
    weights = kaplan_meier(masses, prior)
    assert (weights >= 0).all()
    assert weights.sum(axis=-1) == pytest.approx(1)


def test_without_noise_the_masses_are_the_counts() -> None:
    problem = LostSales(horizon=3, products=2, holding=1, shortage=1, demand_max=10.0)
    rng = np.random.default_rng(1)
    log = problem.simulate_log(rng.uniform(0, 10, (40, 3, 2)), rng=rng)
    released = release_outcomes(log, problem, level_sizes=every_level(32), rho=math.inf, noise=SeededNoise(0))
    masses = consistent_masses(released, prior_masses(kinds=2, bins=32), SHRINKAGE)
    assert masses == pytest.approx(released.levels[-1].astype(float), abs=1e-9)


def test_kaplan_meier_agrees_with_scipy_on_censored_data() -> None:
    """ρ = ∞, every observation in a bin of its own: the textbook estimator, at every time."""
    rng = np.random.default_rng(2)
    bins, n = 1024, 300
    values = rng.permutation(bins - 100)[:n] + 0.5  # distinct bins; the last observation is not at the end
    cut = rng.random(n) < 0.4
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=float(bins))
    # Seen: sales of `values` with stock left. Cut off: sold out at `values`.
    actions = np.where(cut, values, bins).reshape(n, 1, 1)
    next_states = np.where(cut, 0.0, bins - values).reshape(n, 1, 1)
    log = Trajectories(states=np.zeros((n, 1, 1)), actions=actions, next_states=next_states)
    released = release_outcomes(log, problem, level_sizes=every_level(bins), rho=math.inf, noise=SeededNoise(0))
    weights = estimate_outcomes(released, problem, Outcomes()).weights[0, 0]
    survival = 1 - np.cumsum(weights)
    oracle = stats.ecdf(stats.CensoredData(uncensored=values[~cut], right=values[cut])).sf
    at = np.floor(oracle.quantiles).astype(int)
    assert survival[at] == pytest.approx(oracle.probabilities, abs=1e-4)


def test_the_priors_expected_counts_give_the_prior_back() -> None:
    for kinds in (1, 2):
        prior = prior_masses(kinds=kinds, bins=16)
        assert prior.sum() == pytest.approx(1)
        assert kaplan_meier(prior * 1000, prior) == pytest.approx(np.full(16, 1 / 16))


@pytest.mark.parametrize("reach", [0.25, 0.5, 0.75])
def test_the_prior_knows_the_boundary(reach: float) -> None:
    """Nothing is counted beyond λ, so nothing is expected there; up to λ the prior gives itself back."""
    prior = prior_masses(kinds=2, bins=16, reaches=np.full(6, reach))
    inside = int(16 * reach)
    assert prior.sum() == pytest.approx(1)
    assert prior[:, inside:].sum() == pytest.approx(0)
    weights = kaplan_meier(prior * 1000, prior_masses(kinds=2, bins=16))
    assert weights == pytest.approx(np.full(16, 1 / 16), rel=1e-3)


def test_rows_that_tell_nothing_do_not_bend_the_estimate() -> None:
    """A third of the rows beyond λ, units with one or two trajectories of at most three: F is still found."""
    problem = LostSales(horizon=3, products=1, holding=1, shortage=1, demand_max=10.0, boundary=[[0.8], [0.5], [1.0]])
    rng = np.random.default_rng(4)
    log = problem.simulate_log(
        rng.beta(2, 3, (9000, 3, 1)) * 10, rng=rng, behaviour=lambda h, x, r: np.maximum(x, r.uniform(0, 10, x.shape))
    )
    parts = {"states": log.states, "actions": log.actions, "next_states": log.next_states}
    owner = rng.integers(0, 6000, 9000)
    owned = Trajectories(**parts, unit=owner, max_per_unit=3)
    released = release_outcomes(owned, problem, level_sizes=every_level(64), rho=budget(20.0), noise=SeededNoise(0))
    assert released.unobserved is not None
    assert (released.unobserved / released.total > 0.35).all()
    cumulative = np.cumsum(estimate_outcomes(released, problem, Outcomes()).weights[:, 0], axis=-1)
    for step, reach in enumerate((0.8, 0.5, 1.0)):
        for at in (0.2, 0.4, 0.45):
            if at < reach:
                index = int(at * cumulative.shape[-1]) - 1
                edge = (index + 1) / cumulative.shape[-1]
                assert cumulative[step, index] == pytest.approx(stats.beta.cdf(edge, 2, 3), abs=0.03)


def test_steps_and_products_lean_on_each_other_and_on_the_prior() -> None:
    """One split, hand-made: the same counts everywhere speak louder than one of them alone."""
    variance, shape = 400.0, (8, 5, 1)
    parent = np.full(shape, 100.0)
    alone = np.full(shape, 50.0)
    alone[0, 0] = 80.0  # one step of one product differs
    together = np.full(shape, 80.0)
    prior = np.array(0.5)

    def seen(left: np.ndarray) -> tuple[np.ndarray, float]:
        return SHRINKAGE.split(parent, (left, variance), (parent - left, variance), prior_share=prior)

    lonely, weak = seen(alone)
    common, strong = seen(together)
    assert lonely[0, 0] < 60
    assert (common > 75).all()
    assert strong > 10 > weak
    product = np.full(shape, 50.0)
    product[:, 0] = 80.0  # all steps of one product differ
    own, _ = seen(product)
    assert (own[:, 0] > 70).all()
    assert (own[:, 1:] < 56).all()


def test_weak_evidence_leaves_the_prior_alone() -> None:
    """Trees drawn from the prior itself at a small budget: the masses hardly move from it."""
    problem = LostSales(horizon=4, products=3, holding=1, shortage=1, demand_max=10.0)
    rng = np.random.default_rng(5)
    prior = prior_masses(kinds=2, bins=16)
    moved = []
    for seed in range(10):
        log = problem.simulate_log(rng.uniform(0, 10, (100, 4, 3)), rng=rng)
        released = release_outcomes(
            log, problem, level_sizes=every_level(16), rho=budget(0.02), noise=SeededNoise(seed)
        )
        masses = consistent_masses(released, prior, SHRINKAGE) / 100
        moved.append(np.abs(masses - prior).sum(axis=(2, 3)).mean())
    assert np.mean(moved) < 0.1


def test_the_hazard_is_exact_for_even_bins() -> None:
    """Two bins, hazards a = 0.3 and b = 0.5 in the first: of 1,000 at risk 225 are seen and 425 cut off in it."""
    masses = np.array([[225.0, 100.0], [425.0, 250.0]])
    weights = kaplan_meier(masses, np.full((2, 2), 0.25))
    assert weights[0] == pytest.approx(0.3, abs=1e-5)


def test_vanishing_budget_gives_the_prior() -> None:
    problem = LostSales(horizon=4, products=2, holding=1, shortage=1, demand_max=10.0)
    rng = np.random.default_rng(3)
    log = problem.simulate_log(rng.uniform(0, 2, (500, 4, 2)), rng=rng)  # far from uniform on [0, 10]
    released = release_outcomes(log, problem, level_sizes=every_level(16), rho=budget(1e-9), noise=SeededNoise(0))
    weights = estimate_outcomes(released, problem, Outcomes()).weights
    assert weights == pytest.approx(np.full_like(weights, 1 / weights.shape[-1]), rel=1e-2)


@settings(max_examples=50, deadline=None)
@example([1.1125369292536007e-308, 1.0], 2)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=12).filter(lambda w: sum(w) > 0.01), st.sampled_from([2, 4, 16]))
def test_refining_moves_nothing_between_bins(weights: list[float], parts: int) -> None:
    coarse = np.array(weights) / sum(weights)
    fine = refined(coarse, parts)
    assert fine.shape == (len(coarse) * parts,)
    assert (fine >= 0).all()
    assert fine.reshape(-1, parts).sum(axis=1) == pytest.approx(coarse, abs=1e-12)


def test_refining_is_smooth_and_leaves_the_prior_alone() -> None:
    assert refined(np.full(8, 1 / 8), 4) == pytest.approx(np.full(32, 1 / 32))
    rising = refined(np.array([1.0, 2.0, 3.0, 4.0]) / 10, 4)
    assert (np.diff(rising[4:12]) > 0).all()  # not a staircase
    assert refined(np.array([1.0, 0.0, 0.0]), 2)[2:] == pytest.approx(np.zeros(4))  # closed on Sundays


def test_bins_follow_public_quantities() -> None:
    """The power of two nearest to (1/r)^(5/4) / 2 with r = c √(Hk/ρ)/n, within 16 and 1024."""
    settings = Outcomes()
    base = {"steps": 10, "coordinates": 8, "slots": 1000, "per_unit": 1, "rho": 0.1}
    assert settings.bins_for(**base) == 32  # 1/r = 35.4, 43 wanted
    assert settings.bins_for(**base | {"slots": 2000}) == 128  # 1/r = 70.7, 103 wanted
    assert settings.bins_for(**base | {"per_unit": 2}) == 16
    assert settings.bins_for(**base | {"slots": 10**6}) == 1024
    assert settings.bins_for(**base | {"rho": 1e-9}) == 16
    assert settings.bins_for(**base | {"rho": math.inf}) == 1024
    assert Outcomes(bins=32).bins_for(**base) == 32


@pytest.mark.parametrize(("bins", "message"), [(3, "power of two, got 3"), (1, "at least 2, got 1"), (2.0, "whole")])
def test_bad_settings(bins: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Outcomes(bins=bins)
    with pytest.raises(ValueError, match=r"spread must be positive, got -0\.1"):
        Outcomes(spread=-0.1)
