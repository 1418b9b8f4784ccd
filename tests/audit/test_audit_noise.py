"""The audit's tests of noise: what they must see, sound noise that they must pass, and sums against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poolrl.audit.noise import FACTORS, largest_sum, noise_parts, products, stretch_hashes, stretches
from tests.helpers.noisy import discrete, noise_faults

SHARED = "two numbers share noise, or its size"
COUPLED, REPEATED = "two releases share noise, or its size", "a stretch of noise comes twice"


def test_noise_is_looked_at_number_by_number() -> None:
    """Also where no unit moves anything: a number without noise, with less, off centre, or with another's."""
    rng = np.random.default_rng(5)
    first, second = discrete((2, 10_000, 30), 9.0, rng)
    assert noise_faults(first, second, 9.0) == []
    sign = rng.choice([-1, 1], 20_000)
    both = np.concatenate([first, second])
    for column, fault in (
        (np.zeros(20_000), "the noise has another variance than is stated"),
        (discrete((20_000,), 8.1, rng), "the noise has another variance than is stated"),  # a tenth of its variance
        (both[:, 7] + 1, "the noise of a number does not have the stated distribution"),
        (2 * (both[:, 7] // 2), "the noise of a number does not have the stated distribution"),
        (np.clip(both[:, 7], -8, 8), "the noise of a number does not have the stated distribution"),
        (both[:, 0], SHARED),
        (np.where(rng.random(20_000) < 0.8, both[:, 1], -both[:, 1]), SHARED),
        (sign * both[:, 1], SHARED),
        (np.repeat(both[::2, 7], 2), COUPLED),
    ):
        spoilt = both.copy()
        spoilt[:, 7] = column
        assert fault in noise_faults(spoilt[:10_000], spoilt[10_000:], 9.0), fault
    again = second.copy()
    again[17] = first[4]
    assert noise_faults(first, again, 9.0) == [REPEATED]
    twins = second.copy()
    twins[:, 7] = first[:, 7]
    assert noise_faults(first, twins, 9.0) == [COUPLED]


def test_noise_that_comes_back_at_another_place_is_seen() -> None:
    """A stream that is not moved on far enough, or cut in other places for the other log."""
    rng = np.random.default_rng(6)
    stream = discrete((2000 * 15 + 30,), 9.0, rng)
    overlapping = np.stack([stream[15 * i : 15 * i + 30] for i in range(2000)])
    assert COUPLED in noise_faults(overlapping[:1000], overlapping[1000:], 9.0)
    first, second = discrete((2, 1000, 30), 9.0, rng)
    second[:, 1:] = first[::-1, :-1]
    assert noise_faults(first, second, 9.0) == [REPEATED]
    first, second = discrete((2, 1000, 30), 9.0, rng)
    first[1:, 20] = first[:-1, 5]
    assert noise_faults(first, second, 9.0) == [COUPLED]
    first, second = discrete((2, 1000, 30), 9.0, rng)
    second[400, 9:] = first[700, 2:23]  # one stretch, once
    assert noise_faults(first, second, 9.0) == [REPEATED]


def test_of_many_stretches_equal_ones_are_kept_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, (part,) = discrete((500, 30), 9.0, np.random.default_rng(7)), noise_parts(np.full(30, 9.0))
    monkeypatch.setattr("poolrl.audit.noise.MOST_STRETCHES", 2000)
    once, again = (stretches(rows, [part], 1000).tolist() for _ in range(2))
    assert once == again
    assert 700 < len(once) < 1300 < 500 * (30 - 20 + 1)
    assert len({tuple(hashes) for hashes in once}) == len(once)


def test_a_stretch_s_hash_depends_on_its_numbers_alone() -> None:
    stretch = discrete((1, 12), 9.0, np.random.default_rng(8))
    rows = discrete((3, 40), 9.0, np.random.default_rng(9))
    rows[0, 3:15] = rows[1, 20:32] = stretch
    hashes = stretch_hashes(rows, 12, FACTORS[0])
    assert hashes.shape == (3, 40 - 12 + 1)
    assert hashes[0, 3] == hashes[1, 20] == stretch_hashes(stretch, 12, FACTORS[0])[0, 0]
    assert len(np.unique(hashes)) == hashes.size - 1


def test_noise_that_comes_back_in_its_own_release_is_seen() -> None:
    rng = np.random.default_rng(10)
    first, second = discrete((2, 10, 60), 9.0, rng)
    assert noise_faults(first, second, 9.0) == []
    second[4, 31:55] = second[4, 2:26]
    assert noise_faults(first, second, 9.0) == [REPEATED]


def test_sums_of_products_are_those_of_plain_loops() -> None:
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(2, 2, 5, 7)).astype(np.float32)
    sums = products(x, y, [])
    for kind in (0, 1):
        for lag, total in zip(range(-6, 7), sums["lags"][kind], strict=True):
            pairs = [(i, i + lag) for i in range(7) if 0 <= i + lag < 7]
            assert total == pytest.approx(sum(float(x[kind, :, i] @ y[kind, :, j]) for i, j in pairs), abs=1e-4)
    assert sums["places"] == pytest.approx(np.einsum("kri,krj->kij", x, y), abs=1e-4)


def test_of_many_numbers_each_is_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poolrl.audit.noise.MOST_PAIRED", 20)
    rng = np.random.default_rng(12)
    first, second = discrete((2, 500, 30), 9.0, rng)
    assert noise_faults(first, second, 9.0) == []
    second[1::2, 7] = second[::2, 7]
    assert noise_faults(first, second, 9.0) == [COUPLED]


@pytest.mark.parametrize("many", [380, 1000])
@pytest.mark.parametrize("late", [0, 1])
def test_one_draw_that_two_tables_share_is_seen_among_many(many: int, late: int) -> None:
    """Of the same release, or of the next one; every lag by itself hides it in the noise of the others."""
    rng, variances = np.random.default_rng(13), np.repeat([100.0, 10_000.0], [many, 6])
    logs = [np.concatenate([discrete((500, n), v, rng) for n, v in ((many, 100.0), (6, 1e4))], axis=1) for _ in (0, 1)]
    assert noise_faults(logs[0], logs[1], variances) == []
    for rows in logs:
        rows[late:, many] = 10 * rows[: 500 - late, many - 1] + rng.integers(-5, 6, 500 - late)
    assert noise_faults(logs[0], logs[1], variances) == [COUPLED if late else SHARED]


def test_limits_of_products_hold_and_are_close() -> None:
    """Exactly, for products of normal numbers along a path: P(S ≥ s) by the eigenvalues of its matrix."""
    numbers, luck = 400, 1e-3
    largest = float(largest_sum(np.array(numbers - 1), luck))
    rng = np.random.default_rng(11)
    x = rng.normal(size=(100_000, numbers)).astype(np.float32)
    sums = np.abs((x[:, 1:] * x[:, :-1]).sum(axis=1))
    assert (sums > largest).mean() <= luck
    assert (sums > 0.7 * largest).mean() > luck


def test_limits_of_squares_hold_and_are_close() -> None:
    """A sound mean lies between them; and they are no further off than eight standard errors, for many draws."""
    (part,), draws = noise_parts(np.full(30, 9.0)), 200_000
    support, weights = part.law
    mean = float(weights @ support.astype(float) ** 2)
    error = math.sqrt((float(weights @ support.astype(float) ** 4) - mean**2) / draws)
    low, high = part.mean_square(draws, 1e-7)
    assert mean - 8 * error < low < mean - 5 * error
    assert mean + 5 * error < high < mean + 8 * error


def test_what_one_log_has_too_much_of_does_not_make_up_for_the_other() -> None:
    rng = np.random.default_rng(8)
    first, second = discrete((5000, 30), 7.2, rng), discrete((5000, 30), 10.8, rng)
    assert "the noise has another variance than is stated" in noise_faults(first, second, 9.0)
    # Signs that agree in one log and differ in the other tell them apart, and are no correlation of both together.
    first, second = discrete((2, 5000, 30), 9.0, rng)
    for rows, way in ((first, 1), (second, -1)):
        rows[:, 7] = way * np.sign(rows[:, 3]) * np.abs(rows[:, 7])
    assert SHARED in noise_faults(first, second, 9.0)


@pytest.mark.parametrize("variance", [0.01, 0.04, 0.1, 0.25, 1.0, 30.0])
@pytest.mark.parametrize("releases", [50, pytest.param(2000, marks=pytest.mark.slow)])
def test_sound_noise_fails_no_oftener_than_it_may(
    variance: float, releases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A millionth cannot be counted: each check may be wrong once in 25 times, and sound noise comes in.

    More than five of 25 come by chance once in 2,600 times.
    """
    monkeypatch.setattr("poolrl.audit.noise.EACH", 0.04)
    rng = np.random.default_rng(9)
    found = [noise_faults(*discrete((2, releases, 30), variance, rng), variance) for _ in range(25)]
    for check in {fault for faults in found for fault in faults}:
        assert sum(check in faults for faults in found) <= 5, check
