"""The audit's evidence: its bounds against exact distributions, and a sound release, which it must not flag."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from poolrl.audit.attack import (
    Errors,
    attack_case,
    best_threshold,
    discreteness,
    exceeds,
    joint_discreteness,
    rate_limit,
    releases_needed,
    stated_score,
)
from poolrl.audit.cases import CASES, AuditCase
from poolrl.cli.audit import _audit_table
from poolrl.privacy import zcdp
from poolrl.privacy.noise.source import discrete_gaussian
from tests.helpers.noisy import discrete


@pytest.mark.parametrize(("errors", "trials"), [(0, 10), (3, 50), (240, 1000), (10, 10)])
def test_the_limit_of_a_rate_is_where_so_few_errors_become_unlikely(errors: int, trials: int) -> None:
    chance = 1.0 if errors == trials else 0.05
    assert stats.binom.cdf(errors, trials, rate_limit(errors, trials, 0.05)) == pytest.approx(chance)


def test_bounds_hold_as_often_as_they_say() -> None:
    """Two normal distributions μ apart, exactly; a bound with 90% confidence is too large in at most one of ten."""
    rng, mu, above = np.random.default_rng(0), 1.2, 0
    epsilon = zcdp.gaussian_epsilon(mu**2 / 2, 1e-3)
    for _ in range(400):
        first, second = rng.normal(0, 1, 2000), rng.normal(mu, 1, 2000)
        above += Errors.of(first, second, mu / 2).mu(0.9) > mu
        assert Errors.of(first, second, 2.0).epsilon(1e-3, 0.9) < epsilon
    assert above <= 40


def test_bounds_approach_the_truth() -> None:
    rng, mu = np.random.default_rng(1), 1.5
    first, second = rng.normal(0, 1, 400_000), rng.normal(mu, 1, 400_000)
    assert 0.985 * mu < Errors.of(first, second, mu / 2).mu(0.95) < mu
    # Randomised response is the mechanism for which the bound for any release is tight: ε = log((1 − α) / β).
    answers = rng.random((2, 400_000)) < np.array([[0.2], [0.8]])
    proved = Errors.of(answers[0].astype(float), answers[1].astype(float), 0.5).epsilon(0.0, 0.95)
    assert 0.98 * math.log(4) < proved < math.log(4)


def test_the_score_is_the_likelihood_ratio() -> None:
    """Against the sum of the logarithms of normal densities."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 9, (2, 6))
    variances = np.array([4.0, 4.0, 4.0, 900.0, 900.0, 900.0])
    rows = rng.integers(-40, 60, (20, 6)).astype(np.int32)
    logs = [stats.norm.logpdf(rows, mean, np.sqrt(variances)).sum(axis=1) for mean in (first, second)]
    assert stated_score(rows, first, second, variances) == pytest.approx(logs[1] - logs[0])


def test_discreteness_of_two_variances() -> None:
    """Against every pair of values of two numbers: no test does better than the limit."""
    (one, p), (other, q) = discrete_gaussian(math.sqrt(0.25)), discrete_gaussian(math.sqrt(3.0))
    score = (one[:, None] / 0.25 + 2 * other / 3.0).ravel()
    weight, shift = np.outer(p, q).ravel(), 1 / 0.25 + 4 / 3.0
    best = 0.0
    for threshold in np.unique(np.round(score, 9)) + 1e-6:
        alpha, beta = weight[score > threshold].sum(), weight[score + shift <= threshold].sum()
        if min(alpha, beta) > 1e-7:
            best = max(best, -stats.norm.ppf(alpha) - stats.norm.ppf(beta) - math.sqrt(shift))
    limit = joint_discreteness(np.array([1, -2]), np.array([0.25, 3.0]))
    assert 0.05 < best <= limit
    # √Σ (μᵢ + aᵢ)² − √Σ μᵢ² ≤ Σ aᵢ, and for one variance it is a.
    alone = discreteness(np.array([1]), 0.25), discreteness(np.array([2]), 3.0)
    assert limit <= sum(alone)
    assert joint_discreteness(np.array([1]), np.array([0.25])) == pytest.approx(alone[0])


@pytest.mark.parametrize(("moved", "variance"), [([0, 1, 0], 0.25), ([6], 9.0)])
def test_discrete_noise_tells_a_little_more_than_a_gaussian(moved: list[int], variance: float) -> None:
    """A number that moves by s, by hand: α = P(X > t) and β = P(X + s ≤ t). The unit of the number plays no part."""
    shift, weights = max(moved), np.exp(-(np.arange(-40, 41) ** 2) / (2 * variance))
    below = np.cumsum(weights) / weights.sum()
    alpha, beta = 1 - below[shift:], below[:-shift]
    kept = (alpha > 1e-7) & (beta > 1e-7)
    by_hand = (-stats.norm.ppf(alpha[kept]) - stats.norm.ppf(beta[kept])).max() - shift / math.sqrt(variance)
    assert discreteness(np.array(moved), variance) == pytest.approx(by_hand)


def test_discreteness_matters_for_little_noise_only() -> None:
    assert discreteness(np.array([1]), 0.25) > 0.1
    assert abs(discreteness(np.array([3, -3, 3, -3]), 360.0)) < 1e-4


def test_more_than_a_gaussian_is_flagged_unless_it_is_discreteness() -> None:
    """One count that moves by one under σ² = 1/4: ρ = 2, and the best test reaches more than μ = 2."""
    rng, moved = np.random.default_rng(6), np.array([1])
    noise = discrete((2, 200_000), 0.25, rng)
    test = Errors.of(noise[0], noise[1] + 1, 0.5)
    silent = Errors(500, 1000, 500, 1000)
    assert exceeds(2.0, test, silent, allowance=0.0)
    assert not exceeds(2.0, test, silent, allowance=discreteness(moved, 0.25))


def test_a_release_that_seldom_tells_everything_is_flagged() -> None:
    """Right without fail when it speaks, one time in twenty: only the bound for any release sees that."""
    silent, seldom = Errors(500, 1000, 500, 1000), Errors(0, 10**6, 950_000, 10**6)
    assert exceeds(1.0, silent, seldom, allowance=0.0)
    assert not exceeds(1.0, silent, Errors(0, 10**4, 9500, 10**4), allowance=0.0)


@pytest.mark.parametrize("mu", [0.2, 1.4, 3.0])
def test_the_number_of_releases_that_is_asked_for_is_enough(mu: float) -> None:
    rng, each = np.random.default_rng(7), releases_needed(mu, 0.9, 0.95) // 2
    proved = [
        Errors.of(rng.normal(0, 1, each), rng.normal(mu, 1, each), mu / 2).mu(0.95) ** 2 / mu**2 for _ in range(20)
    ]
    assert np.median(proved) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("rho", [pytest.param(0.001, marks=pytest.mark.slow), 25.0, 300.0])
def test_budgets_at_which_little_can_be_seen(rho: float) -> None:
    """Noise of several hundred, or hardly any: nothing is flagged, and the verdict says that the audit was too weak."""
    found = attack_case(CASES[2], rho=rho, releases=400, noise="seeded")
    assert found.faults == ()
    assert found.verdict == "too weak"
    shown = io.StringIO()
    Console(width=120, file=shown).print(_audit_table([found]), markup=False)
    assert " too weak " in shown.getvalue()  # in words, whatever is done with markup


def test_the_best_threshold_is_far_out() -> None:
    rng = np.random.default_rng(4)
    first, second = rng.normal(0, 1, 20_000), rng.normal(1, 1, 20_000)
    far = best_threshold(first, second, delta=1e-6, confidence=0.95)
    tests = {at: Errors.of(first, second, at).epsilon(1e-6, 0.95) for at in (far, 0.5)}
    assert tests[far] > tests[0.5] > 0


@pytest.mark.parametrize(
    ("case", "noise"),
    [
        (CASES[0], "secure"),
        *(pytest.param(case, "secure", marks=pytest.mark.slow) for case in CASES[1:]),
        *(pytest.param(case, noise, marks=pytest.mark.slow) for noise in ("opendp", "seeded") for case in CASES[:3]),
    ],
)
def test_a_sound_release_is_not_flagged(case: AuditCase, noise: str) -> None:
    """Every case with the noise that is released, and every noise with three cases: neither knows the other."""
    found = attack_case(case, releases=800 if noise == "opendp" else 1600, noise=noise)
    assert found.faults == ()
    assert 0.2 < found.rho_bound < 1.2  # the attack works, and not too well
    assert found.epsilon_bound < found.epsilon
