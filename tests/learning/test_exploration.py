"""Beyond the explored range a law goes on as the lognormal that best continues what was seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from poolrl import LostSales, Pool
from poolrl.checks import FloatArray
from poolrl.geometry.bins import bin_edges
from poolrl.learning.outcomes import continued, looked_at
from poolrl.learning.priors import EXPLORED, POINTS

BINS = 512
EDGES = bin_edges(BINS)


def on_bins(law: stats.rv_continuous) -> FloatArray:
    """Shares of the bins; all beyond the bound in the last one."""
    below = law.cdf(EDGES)
    below[-1] = 1.0
    return np.diff(below)


def tried_up_to(end: int) -> FloatArray:
    """Levels that are never below bin `end` − 1, and one in twenty beyond: the explored range has `end` bins."""
    tried = np.zeros(BINS)
    tried[end - 1] += 0.95
    tried[-1] += 0.05
    return tried


def below(weights: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(weights)])


@pytest.mark.parametrize("seen", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("cv", [0.3, 0.6])
def test_a_lognormal_tail_is_found_again(seen: float, cv: float) -> None:
    """Demand is known below its quantile `seen` only; above it everything was put at the bound."""
    deviation = np.sqrt(np.log1p(cv**2))
    law = stats.lognorm(deviation, scale=0.1)
    truth = on_bins(law)
    end = int(np.searchsorted(EDGES, law.ppf(seen)))
    cut = truth.copy()
    cut[end:] = 0.0
    cut[-1] = 1 - cut.sum()
    found = continued(cut[None], tried_up_to(end)[None])[0]
    # Quantiles inside a bin are read off a straight line.
    assert below(found) == pytest.approx(below(truth), abs=2e-4)


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
    found = below(continued(truth[None], tried_up_to(end)[None])[0])
    seen = below(truth)[end]
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


def test_the_explored_range_ends_where_one_slot_in_ten_looked_further() -> None:
    tried = np.full(10, 0.1)
    assert looked_at(tried).tolist() == [True] * 10
    tried = np.array([0.5, 0.35, 0.1, 0.05])
    assert EXPLORED == 0.1
    assert looked_at(tried).tolist() == [True, True, True, False]


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
