"""The production sampler, tested as a distribution: the declared variance passes, others do not."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from poolrl import SeededNoise
from poolrl.privacy.noise.secure import OpenDPNoise, SecureNoise
from poolrl.privacy.noise.source import NoiseSource, discrete_gaussian

SIGMAS = (0.7, 1.0, 2.0, 3.0, 5.0, 20.0, 50.0)


def p_value(draws: np.ndarray, sigma: float) -> float:
    """χ² of the whole probability mass function, tails pooled until every cell expects at least 8."""
    support, weights = discrete_gaussian(sigma)
    order = np.argsort(-weights, kind="stable")
    kept = order[weights[order] * len(draws) >= 8]
    low, high = support[kept].min(), support[kept].max()
    inside = (support >= low) & (support <= high)
    cells = np.bincount(np.clip(draws, low - 1, high + 1) - (low - 1), minlength=high - low + 3)
    below, above = weights[support < low].sum(), weights[support > high].sum()
    expected = np.concatenate([[below], weights[inside], [above]]) * len(draws)
    # Fold the two thin tails into their neighbours.
    cells[1] += cells[0]
    cells[-2] += cells[-1]
    expected[1] += expected[0]
    expected[-2] += expected[-1]
    return float(stats.chisquare(cells[1:-1], expected[1:-1] * cells[1:-1].sum() / expected[1:-1].sum()).pvalue)


@pytest.mark.parametrize(
    ("source", "sigma"),
    [
        *(pytest.param(SecureNoise(), sigma, id=f"secure-{sigma}") for sigma in SIGMAS),
        pytest.param(SeededNoise(11), 3.0, id="seeded-3.0"),
        *(
            pytest.param(SeededNoise(11), sigma, id=f"seeded-{sigma}", marks=pytest.mark.slow)
            for sigma in SIGMAS
            if sigma != 3.0
        ),
    ],
)
def test_the_declared_variance_is_accepted_and_others_are_rejected(source: NoiseSource, sigma: float) -> None:
    """2/3 and 3/2 of the variance are far off; 1% is what this many draws can tell."""
    variance = Fraction(str(sigma)) ** 2
    draws = 12_000_000 if sigma == 50 else 6_000_000  # over more cells a difference is harder to see
    drawn = source.begin().add(np.zeros(draws, dtype=np.int64), variance)
    assert p_value(drawn, sigma) > 1e-6
    for share in (2 / 3, 0.99, 1.01, 3 / 2):
        assert p_value(drawn, sigma * share**0.5) < 1e-6


@pytest.mark.parametrize("variance", [Fraction(41, 2), Fraction(62, 3)])
def test_a_fractional_variance_is_not_rounded(variance: Fraction) -> None:
    """Two percent are seen in as many draws as a few hundred releases of a usual size have."""
    drawn = SecureNoise().begin().add(np.zeros(4_000_000, dtype=np.int64), variance)
    assert p_value(drawn, float(variance) ** 0.5) > 1e-6
    for whole in (20, 21):
        assert p_value(drawn, whole**0.5) < 1e-6


@pytest.mark.parametrize(
    ("sigma", "draws"),
    [(2.0, 50_000), *(pytest.param(sigma, 200_000, marks=pytest.mark.slow) for sigma in (2.0, 50.0))],
)
def test_opendp_draws_the_same_distribution(sigma: float, draws: int) -> None:
    """The cross-check of the one sampler by the other, and of the version that is installed."""
    drawn = OpenDPNoise().begin().add(np.zeros(draws, dtype=np.int64), Fraction(sigma) ** 2)
    assert p_value(drawn, sigma) > 1e-6
    ours = SecureNoise().begin().add(np.zeros(draws, dtype=np.int64), Fraction(sigma) ** 2)
    # Numbers that were drawn: between two of them lies nothing, and no test can tell nothing from nothing.
    edges = np.unique(np.quantile(ours, np.linspace(0, 1, 40)[1:-1], method="lower"))
    table = [np.bincount(np.searchsorted(edges, each), minlength=len(edges) + 1) for each in (drawn, ours)]
    assert stats.chi2_contingency(table).pvalue > 1e-6


RECORDED = json.loads((Path(__file__).parents[1] / "recorded/opendp_0.14.1.json").read_text())


@pytest.mark.parametrize("sigma", RECORDED["histograms"])
def test_the_bias_of_old_versions_of_opendp_would_be_seen(sigma: str) -> None:
    """300,000 draws of version 0.14.1 at each scale, as it made them; the tests above look at more than that."""
    histogram = RECORDED["histograms"][sigma]
    drawn = np.repeat(np.array([int(k) for k in histogram]), list(histogram.values()))
    assert len(drawn) == RECORDED["draws"]
    assert p_value(drawn, float(sigma)) < 1e-6


def test_noise_beyond_32_bits_does_not_saturate() -> None:
    for source in (SecureNoise(), OpenDPNoise()):
        draws = source.begin().add(np.zeros(4000, dtype=np.int64), Fraction(10**20))
        assert np.abs(draws).max() > 2**33
        assert draws.std() == pytest.approx(1e10, rel=0.15)


def test_noise_is_added_to_every_cell_independently() -> None:
    counts = np.arange(20_000).reshape(2, 100, 100)
    noisy = SecureNoise().begin().add(counts, Fraction(100)) - counts
    assert noisy.shape == counts.shape
    first, second = noisy[0].ravel(), noisy[1].ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.06  # six standard errors
    assert not np.array_equal(first, second)


def test_two_tables_of_one_release_never_share_noise() -> None:
    """And secure noise differs between releases, where seeded noise does not."""
    counts = np.zeros(200, dtype=np.int64)
    for source in (SecureNoise(), OpenDPNoise(), SeededNoise(5)):
        sampler = source.begin()
        assert not np.array_equal(sampler.add(counts, Fraction(50)), sampler.add(counts, Fraction(50)))

    def draw(source: NoiseSource) -> np.ndarray:
        return source.begin().add(counts, Fraction(50))

    for source in (SecureNoise(), OpenDPNoise()):
        assert not np.array_equal(draw(source), draw(source))
    assert np.array_equal(draw(SeededNoise(3)), draw(SeededNoise(3)))
    assert not np.array_equal(draw(SeededNoise(3)), draw(SeededNoise(4)))


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7"])
def test_a_seed_is_a_whole_number(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must be a whole number"):
        SeededNoise(seed)
