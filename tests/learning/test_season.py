"""Rounds of a season: one law for all, a size of its own for each, and what else a round shows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from poolrl import DynamicPricing, FirstPriceBidding, SeededNoise, simulate_log
from poolrl.checks import FloatArray
from poolrl.geometry.bins import bin_edges
from poolrl.learning import estimation
from poolrl.learning.by_count import tried_range
from poolrl.learning.cell_laws import coarser
from poolrl.learning.estimation import (
    at_own_size,
    estimate_outcomes,
    shared_part,
    weights_of_sizes,
)
from poolrl.learning.outcomes import OutcomeDistribution, outcomes_from_arrays
from poolrl.learning.priors import (
    SAME_SIZE,
    SIZE_SPREADS,
    SIZES_IN_LOGS,
    USUAL_SIZE_SPREAD,
)
from poolrl.learning.shapes import expected_shares
from poolrl.learning.trees import Cells
from poolrl.privacy.release import release_outcomes
from poolrl.privacy.zcdp import budget

ROUNDS = 6


def lognormal(size: float, bins: int = 512, *, higher: bool = False, deviation: float = 0.4) -> FloatArray:
    """A lognormal law of median e^size / 5, in shares of the bound, as poolrl orders its bins."""
    with np.errstate(divide="ignore"):
        below = stats.norm.cdf((np.log(bin_edges(bins)) - math.log(0.2) - size) / deviation)
    below[-1] = 1.0
    law = np.diff(below)
    return law[::-1] if higher else law


def trees(sizes: list[float], rows: float, *, status: bool, higher: bool) -> tuple[list[FloatArray], FloatArray]:
    """Expected trees of steps whose outcomes have these sizes, and the law of tried values."""
    laws = np.stack([lognormal(size, 16, higher=higher) for size in sizes])
    tried = np.tile(lognormal(0.2, higher=higher), (len(sizes), 1))
    sides = np.full(len(sizes), status)
    return [rows * expected_shares(laws, coarser(tried, 16), sides)], tried


@pytest.mark.parametrize("higher", [False, True])
@pytest.mark.parametrize("status", [False, True])
def test_sizes_of_rounds_are_found(status: bool, higher: bool) -> None:
    season = np.tile(lognormal(0.0, higher=higher), (ROUNDS, 1))

    def medians(sizes: list[float], rows: float, variance: float) -> FloatArray:
        levels, tried = trees(sizes, rows, status=status, higher=higher)
        cells = Cells(levels, variance, np.full(ROUNDS, rows), np.full(ROUNDS, status), (ROUNDS, 1), higher)
        found = at_own_size(season, tried, cells)
        assert found.sum(axis=1) == pytest.approx(1.0)
        natural = found[:, ::-1] if higher else found
        return np.array([np.interp(0.5, np.cumsum(law), bin_edges(512)[1:]) for law in natural])

    alike = medians([0.0] * ROUNDS, 400.0, 25.0)
    assert np.log(alike / 0.2) == pytest.approx(0.0, abs=0.02)
    different = [-0.4, -0.25, -0.1, 0.1, 0.25, 0.4]
    assert np.log(medians(different, 50_000.0, 25.0) / 0.2) == pytest.approx(different, abs=0.08)
    # Under noise that hides everything, no round leaves its season.
    assert np.log(medians(different, 400.0, 1e8) / 0.2) == pytest.approx(0.0, abs=0.02)


def test_the_spread_of_sizes_is_learned_from_all_rounds() -> None:
    """By hand: the posterior over (τ, sizes), summed over both for two steps."""
    scores = -((SIZES_IN_LOGS - np.array([[0.2], [0.3]])) ** 2) / (2 * 0.1**2)
    total, found = 0.0, np.zeros(scores.shape)
    for spread in SIZE_SPREADS:
        prior = stats.norm.pdf(SIZES_IN_LOGS, 0, spread) if spread > 0 else (SIZES_IN_LOGS == 0).astype(float)
        prior /= prior.sum()
        joint = np.exp(scores[0])[:, None] * prior[:, None] * np.exp(scores[1]) * prior
        weight = math.exp(-spread / USUAL_SIZE_SPREAD)
        total += weight * joint.sum()
        found += weight * np.stack([joint.sum(axis=1), joint.sum(axis=0)])
    assert weights_of_sizes(scores) == pytest.approx(found / total, abs=1e-9)
    assert weights_of_sizes(np.zeros((2, len(SIZES_IN_LOGS)))).argmax(axis=1).tolist() == [SAME_SIZE, SAME_SIZE]
    # One round that is far off keeps a law.
    scores = np.full((3_000, len(SIZES_IN_LOGS)), -1e4)
    scores[1:, SAME_SIZE], scores[0, -1] = 0.0, 0.0
    assert weights_of_sizes(scores).sum(axis=1) == pytest.approx(1.0)


def test_a_season_counts_as_far_as_it_explains_its_rounds() -> None:
    """Rounds alike: the season. Rounds whose season is twice as wide as each of them: laws of their own."""
    sizes = [-0.5, -0.3, -0.1, 0.1, 0.3, 0.5]
    status = np.zeros(ROUNDS, dtype=bool)
    for rounds, part in (([0.0] * ROUNDS, 1.0), (sizes, 0.0)):
        own = np.stack([lognormal(size, deviation=0.2) for size in rounds])
        season = np.tile(own.mean(axis=0), (ROUNDS, 1))
        tried = np.tile(lognormal(0.2), (ROUNDS, 1))
        shares = expected_shares(coarser(own, 16), coarser(tried, 16), status)
        cells = Cells([2_000.0 * shares], 25.0, np.full(ROUNDS, 2_000.0), status, (ROUNDS, 1))
        found = shared_part(season, own, tried, cells)
        assert found == pytest.approx(part, abs=0.01)


@pytest.mark.parametrize(("feedback", "part"), [("lost", 0.75), ("never", 0.9)])
def test_a_season_knows_more_than_its_rounds(feedback: str, part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearer to the truth where rounds are alike; where they differ, as near as each round by itself."""
    problem = FirstPriceBidding(horizon=ROUNDS, wins=3, worth=2.0, bid_max=4.0, feedback=feedback)
    places = np.linspace(0.3, 2.0, 18)

    def off(sizes: FloatArray, seasons: int, seed: int) -> float:
        rng = np.random.default_rng(seed)
        outcomes = (rng.lognormal(-0.1, 0.45, (seasons, ROUNDS, 1)) * sizes[:, None]).clip(0, 4)
        log = simulate_log(problem, outcomes, rng=rng)
        noise = SeededNoise(seed)
        released = release_outcomes(log, problem, level_sizes=(4, 8, 16, 32), rho=budget(1.0), noise=noise)
        found = estimate_outcomes(released, problem)
        truth = stats.lognorm.cdf(places / sizes[:, None], 0.45, scale=math.exp(-0.1))  # (H, places)
        below = [np.interp(places, found.points[0], np.cumsum(law)) for law in found.weights[:, 0]]
        return float(np.abs(np.array(below) - truth).mean())

    worlds = (np.ones(ROUNDS), 300), (np.linspace(0.5, 1.5, ROUNDS), 1_000)
    together, different = (np.mean([off(sizes, many, seed) for seed in range(2)]) for sizes, many in worlds)
    with monkeypatch.context() as without:
        # The planted bug: every round by itself.
        original = estimation._step_laws
        without.setattr(estimation, "_step_laws", lambda cells, one, season: original(cells, one, None))
        apart, by_itself = (np.mean([off(sizes, many, seed) for seed in range(2)]) for sizes, many in worlds)
    assert together < part * apart
    assert different < 1.1 * by_itself


def test_noise_is_not_taken_for_something_tried() -> None:
    """One row in twenty lies in the outer bins; noise of a tenth of all rows could have made it so."""
    won = FirstPriceBidding(horizon=1, wins=1, worth=1.0, bid_max=4.0, feedback="never")
    price = DynamicPricing(price_max=4.0)
    points, tried = np.array([[0.5, 1.5, 2.5, 3.5]]), np.array([[[0.05, 0.45, 0.45, 0.05]]])
    slots = np.full((1, 1), 100.0)
    exact = OutcomeDistribution(points, tried, tried, slots=slots)
    noisy = OutcomeDistribution(points, tried, tried, slots=slots, variance=50.0)  # √(2 · 50) / 100
    # Caution at the end where rounds fail: low bids, high prices.
    for problem, careful in ((won, [1.0, 4.0]), (price, [0.0, 3.0])):
        assert tried_range(exact, problem).ravel() == pytest.approx([0.0, 4.0])
        assert tried_range(noisy, problem).ravel() == pytest.approx(careful)
    assert outcomes_from_arrays(noisy.arrays(), won).variance == 50.0
    assert outcomes_from_arrays(exact.arrays(), won).variance == 0.0
