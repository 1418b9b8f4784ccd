"""The production sampler, tested as a distribution: the declared variance passes, others do not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from poolrl import SeededNoise
from poolrl.privacy.noise import NoiseSource, SecureNoise, discrete_gaussian, scale_above

DRAWS = 30_000


def p_value(draws: np.ndarray, variance: float) -> float:
    """χ² of the whole probability mass function, tails pooled until every cell expects at least 8."""
    support, weights = discrete_gaussian(float(np.sqrt(variance)))
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


@pytest.mark.parametrize("source", [SecureNoise(), SeededNoise(11)], ids=["secure", "seeded"])
@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(1), Fraction(10), Fraction(400), Fraction(3000)])
def test_the_declared_variance_is_accepted_and_others_are_rejected(source: NoiseSource, variance: Fraction) -> None:
    draws = source.begin().add(np.zeros(DRAWS, dtype=np.int64), variance)
    assert p_value(draws, float(variance)) > 1e-6
    assert p_value(draws, float(variance) * 2 / 3) < 1e-6
    assert p_value(draws, float(variance) * 3 / 2) < 1e-6


def test_noise_beyond_32_bits_does_not_saturate() -> None:
    draws = SecureNoise().begin().add(np.zeros(4000, dtype=np.int64), Fraction(10**20))
    assert np.abs(draws).max() > 2**33
    assert draws.std() == pytest.approx(1e10, rel=0.15)


def test_noise_is_added_to_every_cell_independently() -> None:
    counts = np.arange(20_000).reshape(2, 100, 100)
    noisy = SecureNoise().begin().add(counts, Fraction(100)) - counts
    assert noisy.shape == counts.shape
    first, second = noisy[0].ravel(), noisy[1].ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.06  # six standard errors
    assert not np.array_equal(first, second)


def test_no_variance_means_no_noise() -> None:
    counts = np.arange(6)
    for source in (SecureNoise(), SeededNoise(1)):
        assert np.array_equal(source.begin().add(counts, Fraction(0)), counts)


def test_secure_noise_differs_between_calls_and_seeded_noise_does_not() -> None:
    counts = np.zeros(200, dtype=np.int64)

    def draw(source: NoiseSource) -> np.ndarray:
        return source.begin().add(counts, Fraction(50))

    assert not np.array_equal(draw(SecureNoise()), draw(SecureNoise()))
    assert np.array_equal(draw(SeededNoise(3)), draw(SeededNoise(3)))
    assert not np.array_equal(draw(SeededNoise(3)), draw(SeededNoise(4)))


def test_two_tables_of_one_release_never_share_noise() -> None:
    sampler = SeededNoise(5).begin()
    counts = np.zeros(200, dtype=np.int64)
    assert not np.array_equal(sampler.add(counts, Fraction(50)), sampler.add(counts, Fraction(50)))


def test_the_scale_is_never_rounded_down() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        variance = Fraction(int(rng.integers(1, 10**9)), int(rng.integers(1, 10**6)))
        scale = Fraction(scale_above(variance))
        assert variance <= scale**2 < variance * (1 + Fraction(1, 10**14))


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7"])
def test_a_seed_is_a_whole_number(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must be a whole number"):
        SeededNoise(seed)


def test_seeded_noise_is_the_same_however_it_is_cut_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream: the same numbers as drawn in one go by one thread, and none twice."""
    counts, variance = np.arange(1000).reshape(20, 50), Fraction(9, 2)

    def two_tables() -> list[int]:
        sampler = SeededNoise(3).begin()
        return [*(sampler.add(counts, variance) - counts).ravel(), *(sampler.add(counts, variance) - counts).ravel()]

    found = []
    for block in (2**17, 333, 1):
        monkeypatch.setattr("poolrl.privacy.noise.SEEDED_BLOCK", block)
        found.append(two_tables())
    assert found[0] == found[1] == found[2]
    uniform = np.random.default_rng([3, 0x9E3779B9]).random(2000)
    support, weights = discrete_gaussian(scale_above(variance))
    assert found[0] == list(support[np.searchsorted(np.cumsum(weights)[:-1], uniform, side="right")])
