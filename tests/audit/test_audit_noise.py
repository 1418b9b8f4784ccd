"""The audit's tests of noise: what they must see, sound noise that they must pass, and sums against plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from poolrl.audit.noise import largest_sum, noise_parts, stretches
from poolrl.privacy.noise.source import discrete_gaussian
from tests.helpers.noisy import discrete, noise_faults

SHARED = "two numbers share noise, or its size"
COUPLED, REPEATED = "two releases share noise, or its size", "a stretch of noise comes twice"
TOO_LITTLE = "the noise has another variance than is stated"
MISSHAPEN = "the noise of a number does not have the stated distribution"
VARIANCES = np.repeat([9.0, 900.0], [48, 6])


def from_words(words: Any, variance: float) -> Any:
    """The discrete Gaussian number of each uniform word."""
    support, weights = discrete_gaussian(math.sqrt(variance))
    return support[np.searchsorted(np.cumsum(weights)[:-1], words, side="right")].astype(np.int32)


def of_parts(rng: np.random.Generator, releases: int, numbers: tuple[int, ...], variances: tuple[float, ...]) -> Any:
    """Sound noise of both logs, (2, releases, numbers): so many numbers with each variance."""
    parts = [discrete((2, releases, many), variance, rng) for many, variance in zip(numbers, variances, strict=True)]
    return np.concatenate(parts, axis=2)


def test_noise_is_looked_at_number_by_number() -> None:
    """Also where no unit moves anything: a number without noise, with less, off centre, or with another's."""
    rng = np.random.default_rng(5)
    both = discrete((20_000, 10), 9.0, rng)
    assert noise_faults(both[:10_000], both[10_000:], 9.0) == []
    sign = rng.choice([-1, 1], 20_000)
    for column, fault in (
        (np.zeros(20_000), TOO_LITTLE),
        (discrete((20_000,), 8.1, rng), TOO_LITTLE),  # a tenth of its variance
        (both[:, 7] + 1, MISSHAPEN),
        (2 * (both[:, 7] // 2), MISSHAPEN),
        (np.clip(both[:, 7], -8, 8), MISSHAPEN),
        (both[:, 0], SHARED),
        (np.where(rng.random(20_000) < 0.8, both[:, 1], -both[:, 1]), SHARED),
        (sign * both[:, 1], SHARED),
        (np.repeat(both[::2, 7], 2), COUPLED),
    ):
        spoilt = both.copy()
        spoilt[:, 7] = column
        assert fault in noise_faults(spoilt[:10_000], spoilt[10_000:], 9.0), fault


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
    twins = second.copy()
    twins[:, 7] = first[:, 7]
    assert noise_faults(first, twins, 9.0) == [COUPLED]
    second[400, 9:] = first[700, 2:23]  # one stretch, once
    assert noise_faults(first, second, 9.0) == [REPEATED]
    first, second = discrete((2, 10, 60), 9.0, rng)
    assert noise_faults(first, second, 9.0) == []
    second[4, 31:55] = second[4, 2:26]  # in its own release
    assert noise_faults(first, second, 9.0) == [REPEATED]


def test_of_many_stretches_equal_ones_are_kept_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, (part,) = discrete((500, 30), 9.0, np.random.default_rng(7)), noise_parts(np.full(30, 9.0))
    monkeypatch.setattr("poolrl.audit.noise.MOST_STRETCHES", 2000)
    once, again = (stretches(rows, [part], 1000).tolist() for _ in range(2))
    assert once == again
    assert 700 < len(once) < 1300 < 500 * (30 - 20 + 1)
    assert len({tuple(hashes) for hashes in once}) == len(once)


def test_of_many_numbers_each_is_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poolrl.audit.noise.MOST_PAIRED", 20)
    rng = np.random.default_rng(12)
    first, second = discrete((2, 500, 30), 9.0, rng)
    assert noise_faults(first, second, 9.0) == []
    second[1::2, 7] = second[::2, 7]
    assert noise_faults(first, second, 9.0) == [COUPLED]


@pytest.mark.parametrize("late", [0, 1])
def test_one_draw_that_two_tables_share_is_seen_among_many(late: int) -> None:
    """Of the same release, or of the next one; every lag by itself hides it in the noise of the others."""
    rng, many = np.random.default_rng(13), 600
    logs, variances = of_parts(rng, 500, (many, 6), (100.0, 10_000.0)), np.repeat([100.0, 10_000.0], [many, 6])
    assert noise_faults(logs[0], logs[1], variances) == []
    for rows in logs:
        rows[late:, many] = 10 * rows[: 500 - late, many - 1] + rng.integers(-5, 6, 500 - late)
    assert noise_faults(logs[0], logs[1], variances) == [COUPLED if late else SHARED]


def test_limits_of_products_hold_and_are_close() -> None:
    """Exactly, for products of normal numbers along a path: P(S ≥ s) by the eigenvalues of its matrix."""
    numbers, luck = 400, 1e-3
    largest = float(largest_sum(np.array(numbers - 1), luck))
    rng = np.random.default_rng(11)
    x = rng.standard_normal((40_000, numbers), dtype=np.float32)
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
    first, second = discrete((2000, 30), 7.2, rng), discrete((2000, 30), 10.8, rng)
    assert TOO_LITTLE in noise_faults(first, second, 9.0)
    # Signs that agree in one log and differ in the other tell them apart, and are no correlation of both together.
    first, second = discrete((2, 2000, 30), 9.0, rng)
    for rows, way in ((first, 1), (second, -1)):
        rows[:, 7] = way * np.sign(rows[:, 3]) * np.abs(rows[:, 7])
    assert SHARED in noise_faults(first, second, 9.0)


@pytest.mark.parametrize(
    ("many", "change", "fault"),
    [
        pytest.param(6, lambda drawn: drawn, SHARED, id="the same words"),
        pytest.param(1, lambda drawn: drawn, SHARED, id="one word"),
        pytest.param(
            6, lambda drawn: drawn * np.random.default_rng(1).choice([-1, 1], drawn.shape), SHARED, id="the same size"
        ),
        pytest.param(6, lambda drawn: np.roll(drawn, 1, axis=1), COUPLED, id="of the next release"),
        pytest.param(6, lambda drawn: drawn[::-1], COUPLED, id="of the other log"),
    ],
)
def test_tables_that_share_draws_are_seen(many: int, change: Callable[[Any], Any], fault: str) -> None:
    """Each table by itself is sound: another variance hides the draws from every test of one table."""
    rng = np.random.default_rng(3)
    rows = of_parts(rng, 1000, (48, 6), (9.0, 900.0))
    assert noise_faults(*rows, VARIANCES) == []
    words = rng.random((2, 1000, many))
    rows[..., 10 : 10 + many], rows[..., 48 : 48 + many] = from_words(words, 9.0), change(from_words(words, 900.0))
    assert noise_faults(*rows, VARIANCES) == [fault]


LITTLE_AND_MUCH = (0.01,), (0.04,), (0.1,), (0.25,), (1.0,), (30.0,), (0.02, 0.1)


@pytest.mark.parametrize(
    ("variances", "releases"),
    [
        *((variances, 50) for variances in ((0.01,), (0.25,), (0.1, 30.0), (9.0, 900.0))),
        *(pytest.param(each, many, marks=pytest.mark.slow) for each in LITTLE_AND_MUCH for many in (50, 2000)),
    ],
)
def test_sound_noise_fails_no_oftener_than_it_may(
    variances: tuple[float, ...], releases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A millionth cannot be counted: each check may be wrong once in 25 times, and sound noise comes in.

    More than five of 25 come by chance once in 2,600 times.
    """
    monkeypatch.setattr("poolrl.audit.noise.EACH", 0.04)
    rng, found, numbers = np.random.default_rng(9), list[str](), (30,) if len(variances) == 1 else (20, 4)
    for _ in range(25):
        found += noise_faults(*of_parts(rng, releases, numbers, variances), np.repeat(variances, numbers))
    assert all(found.count(fault) <= 5 for fault in found)
