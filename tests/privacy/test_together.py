"""Products that sell much or little together: what is learned of them. What their sums cost: test_what_is_paid.py."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import gamma, multivariate_normal

from poolrl import LostSales, Outcomes, Pool, PrivateModel, SeededNoise, Trajectories
from poolrl.checks import FloatArray
from poolrl.learning.together import both_beyond, drawn_together, expected_error, quasi_together


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_pairs_beyond_agree_with_the_normal_law_of_two(share: float) -> None:
    tried, edge = np.array([0.0, 0.3, 0.6, 0.9]), ndtri(share)
    oracle = [multivariate_normal(cov=[[1, r], [r, 1]]).cdf([edge, edge]) for r in tried]
    np.testing.assert_allclose(both_beyond(share, tried), oracle, atol=2e-3)


def moving_together(
    correlation: float, *, weeks: int = 1500, products: int = 4, seed: int = 0, follow: float = 0.0
) -> tuple[LostSales, Trajectories]:
    """Gamma demand with a common factor, and levels that rise and fall together, `follow` from week to week."""
    rng = np.random.default_rng(seed)
    shape = (weeks, 4, products)
    sizes = np.geomspace(4.0, 40.0, products)
    demand = gamma(3.0, scale=sizes / 3).ppf(drawn_together(rng, shape, correlation))
    bound = 6 * sizes
    level = np.minimum(
        sizes * rng.uniform(0.5, 2.0, shape) * np.exp(follow * rng.standard_normal((weeks, 1, 1))), bound
    )
    problem = LostSales(horizon=4, products=products, holding=0.2, shortage=1.0, demand_max=bound)
    left = np.maximum(level - demand, 0.0)
    return problem, Trajectories(states=np.zeros(shape), actions=level, next_states=left)


def learned(problem: LostSales, log: Trajectories, rho: float = 1.0, seed: int = 5) -> PrivateModel:
    return Pool(rho, Outcomes(), together=0.1).model(problem, log, noise=SeededNoise(seed))


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_the_correlation_is_found_under_censoring_and_noise(correlation: float) -> None:
    model = learned(*moving_together(correlation))
    said = model.report.together
    assert abs(said.measured - correlation) <= 4 * said.error + 0.01
    assert model.together < said.measured or said.measured == 0  # drawn to zero by its error
    assert 0.5 < said.error / expected_error(steps=4, products=4, slots=1500, moved=1, rho=0.1) < 2.0


def test_levels_that_rise_together_are_not_taken_for_demand_that_does() -> None:
    said = learned(*moving_together(0.0, follow=0.6)).report.together
    assert said.measured <= 3 * said.error


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_even_draws_have_the_same_law(correlation: float) -> None:
    even: FloatArray = quasi_together(3, 4096, correlation)
    np.testing.assert_allclose(np.quantile(even, [0.1, 0.5, 0.9], axis=0).T, [[0.1, 0.5, 0.9]] * 3, atol=0.01)
    assert np.corrcoef(ndtri(np.clip(even, 1e-9, 1 - 1e-9)).T)[0, 1] == pytest.approx(correlation, abs=0.02)
    both = float((ndtr(ndtri(even)) > 0.5).all(axis=1).mean())
    assert both == pytest.approx(0.125 if correlation == 0 else 0.25, abs=0.01)  # Sheppard: 1/8 + 3 asin(r) / 4π
