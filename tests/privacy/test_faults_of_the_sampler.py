"""Every fault that the sampler's self-test looks for, planted one by one, and its test of draws by plain sums."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from poolrl.privacy.noise import secure
from poolrl.privacy.noise.secure import Stream
from poolrl.privacy.noise.source import discrete_gaussian

Plant = pytest.MonkeyPatch


@pytest.mark.parametrize(
    ("key", "sound"),
    [
        (lambda n, key: key, True),
        (lambda n, key: key[:-1], False),
        (lambda n, key: key + b"x", False),
        (lambda n, key: bytes([key[0] | 1]) + key[1:], False),
        (lambda n, key: key[:-1] + bytes([key[-1] & 0x7F]), False),
    ],
)
def test_keys_that_are_too_short_or_stuck_are_seen(monkeypatch: Plant, key: Any, sound: bool) -> None:
    drawn: list[bytes] = []

    def urandom(size: int) -> bytes:
        drawn.append(key(len(drawn), secure.os.urandom(size)))
        return drawn[-1]

    monkeypatch.setattr(secure, "urandom", urandom)
    assert secure._keys_are_whole() is sound
    assert len(drawn) == secure.KEYS == 64


def planted_keys(monkeypatch: Plant, change: Any) -> None:
    """64 keys of the system, some of them changed."""
    keys = [secure.os.urandom(32) for _ in range(64)]
    waiting = iter(change(keys))
    monkeypatch.setattr(secure, "urandom", lambda _: next(waiting))


@pytest.mark.parametrize(
    ("change", "sound"),
    [
        (lambda keys: keys, True),
        (lambda keys: [*keys[:-1], keys[0]], False),
        (lambda keys: [*keys[:5], keys[5][:-1], *keys[6:]], False),
        # A bit that one key alone has, or lacks, does change.
        (lambda keys: [bytes([key[0] & 0xFE | (n == 7)]) + key[1:] for n, key in enumerate(keys)], True),
        (lambda keys: [bytes([key[0] | (n != 7)]) + key[1:] for n, key in enumerate(keys)], True),
    ],
    ids=["as drawn", "one key twice", "one key too short", "one key has a bit", "one key lacks a bit"],
)
def test_one_key_among_many(monkeypatch: Plant, change: Any, sound: bool) -> None:
    def cleared(keys: list[bytes]) -> list[bytes]:
        # The seventh key's first bit is 0, so that exactly one lacks it in the last case.
        return change([*keys[:7], bytes([keys[7][0] & 0xFE]) + keys[7][1:], *keys[8:]])

    planted_keys(monkeypatch, cleared)
    assert secure._keys_are_whole() is sound


@pytest.mark.parametrize(
    "take",
    [
        lambda self, count: setattr(self, "_taken", self._taken + count) or self._taken - count,  # odd places
        lambda self, count: setattr(self, "_taken", self._taken + 2) or self._taken - 2,  # some words twice
    ],
)
def test_places_that_overlap_or_are_odd_are_seen(monkeypatch: Plant, take: Any) -> None:
    assert secure._noise_follows_from_key()
    monkeypatch.setattr(Stream, "take", take)
    assert not secure._noise_follows_from_key()


def test_a_last_word_that_is_wrong_is_seen(monkeypatch: Plant) -> None:
    honest = Stream.words

    def words(self: Stream, first: int, count: int) -> Any:
        found = honest(self, first, count).copy()
        found[-1] ^= np.uint64((first == 16) << 63)
        return found

    monkeypatch.setattr(Stream, "words", words)
    assert not secure._noise_follows_from_key()


def log_bound(drawn: list[int], variance: float) -> float:
    """The logarithm of the bound by sums in plain Python: values beyond three deviations are one."""
    reach = math.ceil(3 * math.sqrt(variance))
    weight = {k: math.exp(-k * k / (2 * variance)) for k in range(-60 * reach, 60 * reach + 1)}
    total = sum(weight.values())
    law, seen = dict.fromkeys(range(-reach, reach + 1), 0.0), dict.fromkeys(range(-reach, reach + 1), 0)
    for k, w in weight.items():
        law[max(-reach, min(reach, k))] += w / total
    for k in drawn:
        seen[max(-reach, min(reach, k))] += 1
    found = sum(n * math.log(n / (len(drawn) * law[k])) for k, n in seen.items() if n)
    freedom = 2 * reach
    return 0.0 if found <= freedom else -found + freedom * math.log(math.e * found / freedom)


def test_the_law_of_draws_by_plain_sums() -> None:
    """Draws of nearby variances, so that both answers come, for several degrees of luck."""
    rng, answers = np.random.default_rng(3), []
    for variance in (Fraction(1, 2), Fraction(2), Fraction(41, 3), Fraction(9)):
        for share in (0.2, 0.6, 0.8, 0.9, 1.0, 1.2, 1.5, 3.0):
            support, weights = discrete_gaussian(math.sqrt(float(variance) * share))
            drawn = rng.choice(support, p=weights, size=600)
            for luck in (0.5, 1e-2, 1e-9):
                answers.append(secure.fits_law(drawn.reshape(20, 30), variance, luck))
                assert answers[-1] == (log_bound(drawn.tolist(), float(variance)) > math.log(luck))
    assert 20 < sum(answers) < len(answers) - 20
    # All at one value, and far beyond all values.
    assert not secure.fits_law(np.zeros(500, dtype=np.int64), Fraction(41, 3), 1e-9)
    assert not secure.fits_law(np.full(500, 10**6), Fraction(41, 3), 1e-9)


def test_a_value_that_is_seen_once_counts() -> None:
    """At σ² = 1/45 a single 1 has a chance of e^(−22.5), and the bound is e^(−22.5) (22.5 e / 2)², about e^(−15.7)."""
    once, variance = np.array([1]), Fraction(1, 45)
    assert secure.fits_law(once, variance, math.exp(-15.8))
    assert not secure.fits_law(once, variance, math.exp(-15.5))
    assert secure.fits_law(np.array([0]), variance, 0.5)


@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(41, 3)])
def test_the_bound_of_every_value_to_a_hundredth(variance: Fraction) -> None:
    """Thirty draws that are all the same say what chance that one value has."""
    for value in range(-14, 15):
        drawn = [value] * 30
        bound = log_bound(drawn, float(variance))
        assert bound < -4
        assert secure.fits_law(np.array(drawn), variance, math.exp(bound - 0.01)), value
        assert not secure.fits_law(np.array(drawn), variance, math.exp(bound + 0.01)), value
