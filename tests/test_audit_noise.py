"""The audit's tests of noise: what they must see, sound noise that they must pass, and sums against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poolrl.audit.noise import (
    FACTORS,
    Noise,
    _window_hashes,
    by_lag,
    matchings,
    moment_limits,
    repeated,
    tally,
    windows,
)
from tests.helpers.noisy import discrete, noise_faults


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
        (both[:, 7] + 1, "the noise of a number is not centred"),
        (2 * (both[:, 7] // 2), "the noise of a number does not have the stated distribution"),
        (np.clip(both[:, 7], -8, 8), "the noise of a number does not have the stated distribution"),
        (both[:, 0], "two numbers share noise"),
        (np.where(rng.random(20_000) < 0.8, both[:, 1], -both[:, 1]), "two numbers share noise"),
        (sign * both[:, 1], "two numbers share the size of their noise"),
        (np.repeat(both[::2, 7], 2), "two releases share the noise of a number"),
    ):
        spoilt = both.copy()
        spoilt[:, 7] = column
        assert fault in noise_faults(spoilt[:10_000], spoilt[10_000:], 9.0), fault
    again = second.copy()
    again[17] = first[4]
    assert noise_faults(first, again, 9.0) == ["two releases have the same noise"]
    twins = second.copy()
    twins[:, 7] = first[:, 7]
    assert noise_faults(first, twins, 9.0) == ["two releases share the noise of a number"]


def test_noise_that_comes_back_at_another_place_is_seen() -> None:
    """A stream that is not moved on far enough, or cut in other places for the other log."""
    rng = np.random.default_rng(6)
    stream = discrete((2000 * 15 + 30,), 9.0, rng)
    overlapping = np.stack([stream[15 * i : 15 * i + 30] for i in range(2000)])
    assert "two releases share the noise of a number" in noise_faults(overlapping[:1000], overlapping[1000:], 9.0)
    first, second = discrete((2, 1000, 30), 9.0, rng)
    second[:, 1:] = first[::-1, :-1]
    assert noise_faults(first, second, 9.0) == ["two releases have the same noise"]
    first, second = discrete((2, 1000, 30), 9.0, rng)
    first[1:, 20] = first[:-1, 5]
    assert noise_faults(first, second, 9.0) == ["two releases share the noise of a number"]
    first, second = discrete((2, 1000, 30), 9.0, rng)
    second[400, 9:] = first[700, 2:23]  # one stretch, once
    assert noise_faults(first, second, 9.0) == ["two releases have the same noise"]


def test_of_many_windows_equal_ones_are_kept_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.tile(discrete((500, 30), 9.0, np.random.default_rng(7)), (2, 1))
    monkeypatch.setattr("poolrl.audit.noise.MOST_WINDOWS", 2000)
    about = Noise(((30,),), 9.0, 1000)
    starts = 1000 * (30 - about.width + 1)
    found = windows(rows, about, first_release=0)
    assert 1400 < len(found) < 2600 < starts
    first = found[:, 2] < 500
    kept = [sorted((release % 500, *hashes) for *hashes, release in found[side].tolist()) for side in (first, ~first)]
    assert kept[0] == kept[1]
    assert repeated([found])
    apart = windows(rows[:500], about, first_release=0)
    assert not repeated([apart])
    assert repeated([apart, windows(rows[500:], about, first_release=500)])


def test_a_window_s_hash_depends_on_its_numbers_alone() -> None:
    stretch = discrete((1, 12), 9.0, np.random.default_rng(8))
    rows = discrete((3, 40), 9.0, np.random.default_rng(9))
    rows[0, 3:15] = rows[1, 20:32] = stretch
    hashes = _window_hashes(rows, 12, FACTORS[0])
    assert hashes[0, 3] == hashes[1, 20]
    powers = [pow(FACTORS[0], j, 2**64) for j in range(12)]
    assert int(hashes[0, 3]) == sum(int(x) * p for x, p in zip(stretch[0], powers, strict=True)) % 2**64
    assert len(np.unique(hashes)) == hashes.size - 1


SHAPES = ((3, 2, 2, 4), (3, 2))


def test_sums_at_lags_are_those_of_plain_loops() -> None:
    about = Noise(SHAPES, 9.0, 7)
    rows = discrete((7, about.numbers), 9.0, np.random.default_rng(10))
    sums = tally(rows, about)
    flat = by_lag(sums["products: lags"], about.numbers, about.numbers)[0][about.numbers - 1 :]
    for lag in (0, 1, 4, 17, about.numbers - 1):
        by_hand = sum(int(row[i]) * int(row[i + lag]) for row in rows for i in range(about.numbers - lag))
        assert flat[lag] == pytest.approx(by_hand, abs=1e-2)
    for (where, shape, axis, lag), found in zip(about.lags, sums["products: axes"], strict=True):
        table = rows[:, where].reshape(-1, *shape).astype(int)
        ends = [np.delete(table, np.s_[:lag] if side else np.s_[shape[axis] - lag :], axis + 1) for side in (0, 1)]
        assert found == (ends[0] * ends[1]).sum()
    assert {(shape, axis) for _, shape, axis, _ in about.lags} == {
        *((SHAPES[0], axis) for axis in range(3)),
        *((SHAPES[1], axis) for axis in range(2)),
    }


@pytest.mark.parametrize(("length", "lag"), [(10, 1), (10, 3), (7, 6), (12, 4), (5, 5)])
def test_no_number_is_twice_in_a_matching(length: int, lag: int) -> None:
    """Products that share no number are independent, so that their sum has a limit."""
    sets = [[i for i in range(length - lag) if i // lag % 2 == side] for side in (0, 1)]
    assert matchings(length, lag).tolist() == [len(each) for each in sets]
    for each in sets:
        assert len({*each, *(i + lag for i in each)}) == 2 * len(each)


@pytest.mark.parametrize("power", [2, 4])
def test_limits_of_moments_hold_and_are_close(power: int) -> None:
    """A sound mean lies between them; and they are no further off than eight standard errors, for many draws."""
    about, draws = Noise(((30,),), 9.0, 1), 200_000
    support, weights = about.law
    mean = float(weights @ support.astype(float) ** power)
    error = math.sqrt((float(weights @ support.astype(float) ** (2 * power)) - mean**2) / draws)
    low, high = moment_limits(about, power, draws, 1e-7)
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
    assert "two numbers share noise" in noise_faults(first, second, 9.0)


@pytest.mark.parametrize("variance", [0.01, 0.04, 0.1, 0.25, 1.0, 30.0])
@pytest.mark.parametrize("releases", [50, pytest.param(2000, marks=pytest.mark.slow)])
def test_sound_noise_fails_no_oftener_than_it_may(
    variance: float, releases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A millionth cannot be counted: each check may be wrong once in fifty times, and sound noise comes in."""
    monkeypatch.setattr("poolrl.audit.noise.EACH", 0.02)
    rng = np.random.default_rng(9)
    found = [noise_faults(*discrete((2, releases, 30), variance, rng), variance) for _ in range(50)]
    for check in {fault for faults in found for fault in faults}:
        assert sum(check in faults for faults in found) <= 5, check
