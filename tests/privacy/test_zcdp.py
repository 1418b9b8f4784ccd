"""Budget arithmetic: by hand, against dp-accounting, and at its edges; what is shown is never too small."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from hypothesis import given
from hypothesis import strategies as st

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
    # Exact also where there is no noise: a float would not survive a file.
    for each in (0.1, 7, Fraction(1, 3), math.inf):
        assert isinstance(zcdp.noise_variance(sensitivity_squared=Fraction(3), rho=each), Fraction)


@pytest.mark.parametrize("delta", [1e-6, *(pytest.param(delta, marks=pytest.mark.slow) for delta in (1e-9, 1e-3))])
@pytest.mark.parametrize("rho", [0.001, 0.1, 40.0])
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


def test_noise_bound_is_the_papers_e_rho() -> None:
    horizon, zones, w, d, rho, delta = 10, 100, 2, 3, 0.5, 0.05
    printed = 4 * math.sqrt(horizon * math.log(4 * horizon * zones**2 * w * (w + d) / delta) / rho)
    cells = horizon * zones * (w + d) * zones * w
    assert zcdp.noise_bound(variance=2 * horizon / rho, cells=cells, failure=delta) == pytest.approx(printed)
    # Of one cell: √(8 · 2 · log(4 / 0.5)) = √(16 log 8).
    assert zcdp.noise_bound(variance=2.0, cells=1, failure=0.5) == pytest.approx(math.sqrt(16 * math.log(8)))


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


DECIMALS = st.decimals(min_value="0.0001", max_value=1000, places=4).map(float)


def test_a_budget_is_the_number_that_was_written() -> None:
    assert zcdp.budget(Fraction(1, 3)) == Fraction(1, 3)
    assert zcdp.budget(0.3) == Fraction(3, 10)
    assert zcdp.budget(2) == 2
    assert zcdp.budget(math.inf) == math.inf
    for wrong in (Fraction(0), Fraction(-1, 3), -1.0, 0.0, math.nan, "1", None):
        with pytest.raises(ValueError, match="rho must be positive, got"):
            zcdp.budget(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="budget must be finite, got inf"):
        zcdp.finite_budget(budget=math.inf)


@given(rho=DECIMALS, share=st.decimals(min_value=0, max_value="0.999", places=3).map(float))
def test_two_shares_are_exactly_the_whole(rho: float, share: float) -> None:
    rest, parts = zcdp.shares_of(rho, dependence=share)
    part = parts["dependence"]
    assert part == Fraction(str(share)) * Fraction(str(rho))
    assert rest + part == Fraction(str(rho))
    assert isinstance(part, Fraction)


def test_shares_of_every_kind_of_number() -> None:
    """Of an infinite budget they are infinite, or none."""
    for rho, share, parts in (
        (math.inf, 0.25, (math.inf, math.inf)),
        (math.inf, 0, (math.inf, 0)),
        (1, np.int64(0), (1, 0)),
        (1, np.float32(0.25), (Fraction(3, 4), Fraction(1, 4))),
    ):
        rest, found = zcdp.shares_of(rho, dependence=share)
        assert (rest, found["dependence"]) == parts


@pytest.mark.parametrize("share", [-0.01, 1, math.nan, True, "0.5", [0.5]])
def test_a_wrong_share_is_refused_by_its_own_name(share: float) -> None:
    with pytest.raises(ValueError, match="dependence must be a share of rho"):
        zcdp.shares_of(1.0, dependence=share)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("1/3", Fraction(1, 3)), ("007", 7), ("9" * 400, 10**400 - 1)],
)
def test_numbers_of_files(text: str, number: Fraction) -> None:
    assert zcdp.written(text) == number


@pytest.mark.parametrize(
    "text",
    ["", "-1", "+1", "1.5", "1e9", " 3", "3 ", "3\n", "1/3\n", "1/0", "1/00", "3/", "/3", "1/2/3", "1_000", "٣", "３"]
    + ["9" * 401, "1/" + "9" * 401, "x", "nan", "inf", 3, 0.5, None, b"3", Fraction(3)],
)
def test_other_texts_are_no_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="not a number written as a fraction"):
        zcdp.written(text)


@pytest.mark.parametrize(
    "conversion", [zcdp.epsilon, zcdp.gaussian_epsilon, zcdp.attack_power, zcdp.gaussian_attack_power]
)
def test_no_conversion_takes_a_wrong_number(conversion: Callable[[float, float], float]) -> None:
    for rho in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="rho must be positive"):
            conversion(rho, 0.01)
    for rate in (0.0, 1.0, -0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"(delta|false_positives) must"):
            conversion(1.0, rate)


def test_conversions_at_their_ends() -> None:
    """Without noise nothing is protected, and attacks on much budget are certain. No ε is negative."""
    assert zcdp.epsilon(math.inf, 1e-6) == zcdp.gaussian_epsilon(math.inf, 1e-6) == math.inf
    assert zcdp.attack_power(math.inf) == zcdp.gaussian_attack_power(math.inf) == zcdp.attack_power(2000.0) == 1.0
    assert zcdp.attack_power(1.0) < 0.999
    assert zcdp.epsilon(1e-6, 0.9) == zcdp.gaussian_epsilon(1e-6, 0.5) == 0.0
    # The default is five false alarms in a hundred.
    assert zcdp.attack_power(0.1) == zcdp.attack_power(0.1, 0.05)
    assert zcdp.gaussian_attack_power(0.1) == zcdp.gaussian_attack_power(0.1, 0.05)


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
@pytest.mark.parametrize("rho", [1e-12, 1e-3, 1.0, 1e14])
def test_the_best_order_is_found_for_budgets_of_any_size(rho: float, delta: float) -> None:
    """Against the bound at many orders, in 40 digits: none of them is better, and none is needed."""
    with mpmath.workdps(40):

        def bound(log_excess: mpmath.mpf) -> mpmath.mpf:
            excess = mpmath.exp(log_excess)
            order = 1 + excess
            return order * rho + mpmath.log(1 / (order * mpmath.mpf(delta))) / excess + mpmath.log(1 - 1 / order)

        near = float(mpmath.log(mpmath.log(1 / mpmath.mpf(delta)) / rho)) / 2
        oracle = max(mpmath.mpf(0), min(bound(mpmath.mpf(near + step / 50)) for step in range(-300, 301)))
    found = zcdp.epsilon(rho, delta)
    assert found <= float(oracle) * (1 + 1e-9) + 1e-12
    assert found == pytest.approx(float(oracle), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("rho", [1e-3, 0.1, 2.0])
@pytest.mark.parametrize("eps", [0.0, 0.01, 1.0])
def test_the_gaussian_curve_is_the_integral_of_what_exceeds_it(rho: float, eps: float) -> None:
    """δ(ε) = ∫ max(0, p(x) − e^ε q(x)) dx for two normal densities √(2ρ) apart."""
    shift = mpmath.sqrt(2 * mpmath.mpf(rho))
    start = eps / shift + shift / 2  # where p = e^ε q

    def exceeds(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.npdf(x - shift) - mpmath.exp(eps) * mpmath.npdf(x)

    oracle = float(mpmath.quad(exceeds, [start, start + 3, start + 12]))
    assert zcdp.gaussian_delta(rho, eps) == pytest.approx(oracle, rel=1e-6, abs=1e-12)
    if 0 < oracle < 1 and eps:
        assert zcdp.gaussian_epsilon(rho, oracle) == pytest.approx(eps, rel=1e-4)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.inf, "inf"),
        (0.0, "0.00"),
        (2.001, "2.01"),
        (1.051, "1.06"),
        (0.07, "0.070"),  # 0.07 · 1000 is a little more than 70
        (0.1, "0.10"),
        (0.0999, "0.100"),
        (0.001, "0.0010"),
    ],
)
def test_what_is_shown_of_an_epsilon(value: float, shown: str) -> None:
    assert zcdp.rounded_up(value) == shown


@given(value=st.floats(1e-9, 1e4), decimals=st.integers(0, 6))
def test_rounding_up_never_claims_less(value: float, decimals: int) -> None:
    unit = Fraction(1, 10**decimals)
    shown = Fraction(str(zcdp.ceiling(value, decimals)))
    assert shown % unit == 0
    # A value that is a multiple but for the last bits of a double stays what it is.
    assert shown >= Fraction(value) - unit / 10**8
    assert shown < Fraction(value) + unit
