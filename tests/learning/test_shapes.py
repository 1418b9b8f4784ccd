"""The dictionary of laws: probabilities, means, and the same laws on fewer bins."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from poolrl.checks import FloatArray
from poolrl.geometry.bins import bin_edges, bin_of
from poolrl.learning.priors import EVEN_WIDTHS, IDLE_SHARES, IDLE_SPREADS, SPREADS_OF_SHAPES
from poolrl.learning.shapes import Laws, dictionary

LAWS = dictionary(64, 512)
EDGES = bin_edges(512)
GAMMA, NORMAL, LOGNORMAL, MIRRORED = (slice(i * 8, i * 8 + 8) for i in range(4))
OTHERS = len(IDLE_SHARES) * len(IDLE_SPREADS) + len(EVEN_WIDTHS)


def law_near(mean: float, family: slice, cv: float, laws: Laws = LAWS) -> tuple[float, FloatArray]:
    """A law of the dictionary with its exact mean, which is on the grid."""
    place = int(np.abs(laws.log_means - np.log(mean)).argmin())
    return float(np.exp(laws.log_means[place])), laws.located[place, family][SPREADS_OF_SHAPES.index(cv)]


def test_every_law_is_a_distribution() -> None:
    for bins in (8, 64, 512):
        table = dictionary(min(bins, 64), bins).table
        assert (table >= 0).all()
        assert table.sum(axis=-1) == pytest.approx(1, abs=1e-5)  # single precision
    assert LAWS.table.shape == (len(LAWS.log_means) * LAWS.located.shape[1] + 2, 512)
    assert LAWS.usual.sum() == pytest.approx(1)
    assert np.cumsum(LAWS.uniform) == pytest.approx(EDGES[1:], abs=1e-6)
    assert LAWS.table[-1, 0] == 1  # always zero


def test_laws_have_the_mean_that_they_claim() -> None:
    """Where next to nothing lies beyond the bound. The part of a normal law below zero adds to zero."""
    middles = (EDGES[1:] + EDGES[:-1]) / 2
    ratio = LAWS.located @ middles / np.exp(LAWS.log_means)[:, None]
    inside = (LAWS.located[..., -1] < 1e-7) & (LAWS.log_means > np.log(0.01))[:, None]
    assert inside.sum() > 2000
    assert (ratio[inside] > 0.999).all()
    positive = np.zeros(LAWS.located.shape[1], dtype=bool)
    for never_below_zero in (GAMMA, LOGNORMAL, slice(-OTHERS, None)):
        positive[never_below_zero] = True
    positive[NORMAL][:4] = positive[MIRRORED][:4] = True  # up to three deviations below the mean
    assert ratio[inside & positive] == pytest.approx(np.ones(int((inside & positive).sum())), abs=2e-3)


@pytest.mark.parametrize("cv", [0.13, 0.6])
def test_laws_agree_with_scipy(cv: float) -> None:
    mean, gamma = law_near(0.2, GAMMA, cv)
    deviation = np.sqrt(np.log1p(cv**2))
    oracles = [
        (gamma, stats.gamma(cv**-2, scale=mean * cv**2)),
        (law_near(0.2, NORMAL, cv)[1], stats.norm(mean, cv * mean)),
        (law_near(0.2, LOGNORMAL, cv)[1], stats.lognorm(deviation, scale=mean * np.exp(-(deviation**2) / 2))),
    ]
    for law, oracle in oracles:
        # Outcomes outside the bounds stand in the outer bins.
        assert np.cumsum(law)[:-1] == pytest.approx(oracle.cdf(EDGES[1:-1]), abs=1e-5)


@pytest.mark.parametrize("bins", [8, 64])
def test_coarser_laws_are_the_same_laws(bins: int) -> None:
    """Every edge of B bins is an edge of 8B bins."""
    fine, direct = dictionary(bins, 512), dictionary(bins, bins)
    assert np.allclose(fine.table.reshape(len(fine.table), bins, -1).sum(axis=-1), direct.table, rtol=0, atol=1e-5)
    assert np.array_equal(fine.log_means, direct.log_means)


def test_bins_are_narrow_near_zero() -> None:
    """An outcome u lies in bin i iff (i/B)² ≤ u < ((i+1)/B)²; what is outside the bounds in the outer ones."""
    u = np.random.default_rng(0).uniform(0, 1, 2000) ** 3
    place = bin_of(u, 64)
    assert (bin_edges(64)[place] <= u).all()
    assert (u < bin_edges(64)[place + 1]).all()
    assert bin_of(np.array([-0.1, 0.0, 1.0, 1.7]), 64).tolist() == [0, 0, 63, 63]
