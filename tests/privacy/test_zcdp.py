"""Budget arithmetic against hand-worked cases and dp-accounting."""

from __future__ import annotations

import math
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon

from poolrl.privacy import zcdp


def test_variance_and_cost_are_inverse_and_exact() -> None:
    rho = zcdp.budget(0.1)
    assert rho == Fraction(1, 10)
    variance = zcdp.noise_variance(sensitivity_squared=Fraction(20), rho=rho)
    assert variance == 100  # Δ² / 2ρ = 20 / 0.2
    assert zcdp.spent(sensitivity_squared=Fraction(20), variance=variance) == rho
    assert zcdp.compose([rho, rho, Fraction(1, 3)]) == Fraction(8, 15)
    assert zcdp.noise_variance(sensitivity_squared=Fraction(20), rho=zcdp.budget(math.inf)) == 0
    assert zcdp.spent(sensitivity_squared=Fraction(20), variance=Fraction(0)) == math.inf


@pytest.mark.parametrize("rho", [-1.0, 0.0, math.nan, "1", None])
def test_a_bad_budget_is_refused_with_its_value(rho: float) -> None:
    with pytest.raises(ValueError, match=r"rho must be positive, got"):
        zcdp.budget(rho)


@pytest.mark.parametrize("delta", [1e-6, *(pytest.param(delta, marks=pytest.mark.slow) for delta in (1e-9, 1e-3))])
@pytest.mark.parametrize("rho", [0.001, 0.01, 0.1, 1.0, 5.0, 40.0])
def test_epsilon_agrees_with_dp_accounting(rho: float, delta: float) -> None:
    orders = 1 + np.geomspace(1e-3, 1e5, 200_000)
    oracle, _ = compute_epsilon(orders, rho * orders, delta)
    assert zcdp.epsilon(rho, delta) == pytest.approx(oracle, rel=1e-6, abs=1e-9)
    classic = rho + 2 * math.sqrt(rho * math.log(1 / delta))  # the paper's Lemma 2, looser
    assert zcdp.epsilon(rho, delta) < classic


@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0, 5.0])
def test_the_gaussian_curve_agrees_with_dp_accounting(rho: float) -> None:
    for delta in (1e-9, 1e-6, 1e-3):
        oracle = dp_accounting.get_epsilon_gaussian(1 / math.sqrt(2 * rho), delta)
        assert zcdp.gaussian_epsilon(rho, delta) == pytest.approx(oracle, rel=1e-3, abs=1e-3)
        assert zcdp.gaussian_epsilon(rho, delta) <= zcdp.epsilon(rho, delta) + 1e-9


def test_the_papers_budgets_are_weak() -> None:
    """DESIGN's figures at δ = 1e-6."""
    stated = {0.1: 2.1, 1: 7.8, 5: 20.6, 10: 32, 20: 52, 40: 85}
    for rho, eps in stated.items():
        assert zcdp.epsilon(rho, 1e-6) == pytest.approx(eps, rel=0.03)


def test_noise_bound_is_the_papers_e_rho() -> None:
    horizon, zones, w, d, rho, delta = 10, 100, 2, 3, 0.5, 0.05
    printed = 4 * math.sqrt(horizon * math.log(4 * horizon * zones**2 * w * (w + d) / delta) / rho)
    cells = horizon * zones * (w + d) * zones * w
    assert zcdp.noise_bound(variance=2 * horizon / rho, cells=cells, failure=delta) == pytest.approx(printed)


def test_attacks_by_simulation() -> None:
    """The likelihood-ratio attack on Gaussian noise reaches what is shown and stays below what is claimed."""
    rng = np.random.default_rng(0)
    for rho in (0.1, 1.0):
        shift = math.sqrt(2 * rho)  # in standard deviations
        threshold = np.quantile(rng.normal(size=400_000), 0.95)
        hits = (rng.normal(shift, size=400_000) > threshold).mean()
        assert hits == pytest.approx(zcdp.gaussian_attack_power(rho), abs=0.005)
        assert hits < zcdp.attack_power(rho)


@pytest.mark.parametrize("rho", [0.001, 0.1, 1.0, 5.0])
def test_the_bound_on_attacks_is_the_loosest_that_renyi_allows(rho: float) -> None:
    """A little below the bound every order allows it, a little above one does not; other orders than the code's."""
    q, p = zcdp.attack_power(rho), 0.05
    orders = 1 + np.geomspace(2e-5, 60, 7777)

    def divergence(a: float, b: float) -> np.ndarray:
        moments = a**orders * b ** (1 - orders) + (1 - a) ** orders * (1 - b) ** (1 - orders)
        return np.log(moments) / (orders - 1)

    def slack(q: float) -> float:
        return float(np.minimum(orders * rho - divergence(q, p), orders * rho - divergence(p, q)).min())

    assert slack(q - 1e-3 * (1 - q)) > 0
    assert slack(q + 1e-3 * (1 - q)) < 0
    assert p < zcdp.gaussian_attack_power(rho) < q <= 1


@pytest.mark.parametrize("end", [0.0, 0.25, 1 / 3, 0.999, 7.5])
def test_what_is_searched_for_is_claimed_from_above(end: float) -> None:
    """A bound that is too small by a rounding error is no bound."""
    found = zcdp._last_true(lambda x: x <= end, 0.0, 10.0)
    assert end < found <= end + 1e-8
