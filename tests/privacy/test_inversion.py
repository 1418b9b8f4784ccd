"""The exact sampler: thresholds against other arithmetic, words on a threshold, and a self-test that sees faults."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Iterator
from fractions import Fraction
from hashlib import sha256
from itertools import accumulate, chain, repeat
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from mpmath import mp, mpf

from poolrl.audit.faults import in_child, thresholds
from poolrl.privacy.noise import inversion as tables
from poolrl.privacy.noise import secure
from poolrl.privacy.noise.inversion import (
    LAST,
    Inversion,
    distribution,
    exponential,
    inversion,
    upper_tails,
)
from poolrl.privacy.noise.secure import OpenDPNoise, SecureNoise, Stream, key_stream
from poolrl.privacy.noise.source import discrete_gaussian

VARIANCES = [Fraction(1, 50), Fraction(49, 100), Fraction(1), Fraction(10, 3), Fraction(81, 4), Fraction(2500)]
LARGEST = pytest.param(VARIANCES[-1], marks=pytest.mark.slow)
Plant = pytest.MonkeyPatch
OTHER_NOISE = "a known key does not draw its noise"
STUCK = "keys repeat, or have bits that never change"


@pytest.fixture(autouse=True)
def many_bits() -> Iterator[None]:
    """The arithmetic of the oracles, and of no test elsewhere, which it would make slow."""
    with mp.workprec(600):
        yield


@pytest.fixture
def untested() -> Iterator[None]:
    """As in a process that has released nothing, before the test and after it."""
    secure._faults_of_process.cache_clear()
    yield
    secure._faults_of_process.cache_clear()


def test_a_sound_process_passes() -> None:
    assert secure.sampler_faults() == []
    secure.require_sound_sampler()


def all_thresholds(variance: Fraction) -> np.ndarray:
    """⌊2⁶⁴ P(X ≤ k)⌋ for all k of a table, by Jacobi's theta function in mpmath's arithmetic of 600 bits."""
    q = mp.exp(-mpf(variance.denominator) / (2 * variance.numerator))
    total, weights = mp.jtheta(3, 0, q), [q ** (j * j) for j in range(int(40 * float(variance) ** 0.5) + 5)]
    tails = [*accumulate(reversed(weights))][::-1]  # P(X ≥ k), summed from the far end
    floors = [int(mp.floor(tail / total * 2**64)) for tail in tails[1:]]
    lower = floors[: floors.index(0) + 1]
    upper = [int(mp.floor((1 - tail / total) * 2**64)) for tail in tails[1 : len(lower) + 1]]
    return np.array(lower[::-1] + upper, dtype=np.uint64)


@pytest.mark.parametrize("variance", [*secure.KNOWN_TABLES, *VARIANCES])
def test_every_threshold_is_the_floor_of_the_distribution(variance: Fraction) -> None:
    exact, table = all_thresholds(variance), inversion(variance)
    assert np.array_equal(table.thresholds, exact)
    assert (exact[0], exact[-1]) == (0, LAST)
    if variance in secure.KNOWN_TABLES:
        assert sha256(exact.astype("<u8").tobytes()).hexdigest() == secure.KNOWN_TABLES[variance]
    # The audit's own decimals are a third arithmetic.
    lowest, by_decimals = thresholds(variance)
    assert np.array_equal(by_decimals, exact)
    assert lowest == table.lowest


def test_known_noise_is_that_of_another_arithmetic() -> None:
    """Single blocks of AES, in their order, and a search in the thresholds above. Every table begins at a block."""
    blocks = b"".join(number.to_bytes(16, "big") for number in range(2**16 + 20))
    words = np.frombuffer(Cipher(algorithms.AES256(secure.KNOWN_KEY), modes.ECB()).encryptor().update(blocks), "<u8")
    exact, first, drawn = all_thresholds(secure.KNOWN_VARIANCE), 0, b""
    for size in secure.KNOWN_SIZES:
        numbers = np.searchsorted(exact, words[first : first + size], side="right") - len(exact) // 2
        drawn, first = drawn + numbers.astype("<i8").tobytes(), first + size + size % 2
    assert sha256(drawn).hexdigest() == secure.KNOWN_NOISE


def forever(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def draws_of(variance: Fraction) -> Callable[..., Any]:
    honest = secure._SecureSampler.add
    return lambda self, counts, _: honest(self, counts, variance)


def little_endian_counter(key: bytes, block: int, count: int) -> Any:
    swapped = int.from_bytes(block.to_bytes(16, "little"), "big")
    return key_stream(key, swapped, count)


honest_words = Stream.words


def wrong_last_word(self: Stream, first: int, count: int) -> Any:
    found = honest_words(self, first, count).copy()
    found[-1] ^= np.uint64((first == 16) << 63)
    return found


def moved_on(by: Callable[[int], int]) -> Callable[..., int]:
    return lambda self, count: setattr(self, "_taken", self._taken + by(count)) or self._taken - by(count)


@pytest.mark.parametrize(
    ("where", "name", "plant", "fault"),
    [
        (secure, "key_stream", little_endian_counter, OTHER_NOISE),
        (secure, "urandom", bytes, STUCK),
        (Stream, "take", forever(0), OTHER_NOISE),
        (Stream, "take", moved_on(lambda count: 2), OTHER_NOISE),  # some words twice
        (Stream, "words", wrong_last_word, OTHER_NOISE),
        (secure._SecureSampler, "add", draws_of(Fraction(41, 3) * Fraction(93, 100)), OTHER_NOISE),
    ],
)
@pytest.mark.usefixtures("untested")
def test_a_fault_is_found_and_nothing_is_released(
    monkeypatch: Plant, where: Any, name: str, plant: Any, fault: str
) -> None:
    monkeypatch.setattr(where, name, plant)
    assert any(fault in found for found in secure.sampler_faults())
    with pytest.raises(RuntimeError, match=r"failed its self-test .*nothing may be released"):
        SecureNoise().begin()
    # A process that failed once stays refused: what fails now and then is not sound.
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match=fault):
        SecureNoise().begin()


@pytest.mark.usefixtures("untested")
def test_a_table_that_differs_in_one_threshold(monkeypatch: Plant) -> None:
    honest = inversion

    def wrong(variance: Fraction) -> Inversion:
        table = honest(variance)
        edges = table.thresholds.copy()
        edges[len(edges) // 2] += np.uint64(1)
        return Inversion(table.variance, table.lowest, edges, table.guide)

    monkeypatch.setattr(tables, "inversion", wrong)
    assert secure.sampler_faults() == ["tables of the distribution differ from known ones"]


@pytest.mark.usefixtures("untested")
def test_it_runs_once_in_a_process_and_again_in_a_fork(monkeypatch: Plant) -> None:
    calls: list[int] = []
    monkeypatch.setattr(secure, "sampler_faults", lambda: calls.append(1) or [])
    for _ in range(3):
        SecureNoise().begin()
    assert len(calls) == 1

    def in_fork() -> bytes:
        for _ in range(2):
            SecureNoise().begin()
        return bytes([len(calls)])

    assert in_child(in_fork) == bytes([2])


def first_byte(key: bytes, value: int) -> bytes:
    return bytes([value]) + key[1:]


# What becomes of 64 keys, and whether they are sound.
KEYS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], bool]] = {
    "drawn": (lambda keys: keys, True),
    "long": (lambda keys: [key + b"x" for key in keys], False),
    "stuck at 1": (lambda keys: [first_byte(key, key[0] | 1) for key in keys], False),
    "stuck at 0": (lambda keys: [key[:-1] + bytes([key[-1] & 0x7F]) for key in keys], False),
    "twice": (lambda keys: [*keys[:-1], keys[0]], False),
    "one short": (lambda keys: [*keys[:5], keys[5][:-1], *keys[6:]], False),
    # A bit that one key alone has, or lacks, does change.
    "one has a bit": (lambda keys: [first_byte(key, key[0] & 0xFE | (n == 7)) for n, key in enumerate(keys)], True),
    "one lacks a bit": (lambda keys: [first_byte(key, key[0] & 0xFE | (n != 7)) for n, key in enumerate(keys)], True),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_are_too_short_or_stuck_are_seen(monkeypatch: Plant, name: str) -> None:
    change, sound = KEYS[name]
    waiting = iter(change([secure.os.urandom(32) for _ in range(64)]))
    monkeypatch.setattr(secure, "urandom", lambda _: next(waiting))
    assert secure._keys_are_whole() is sound
    assert secure.KEYS == 64
    assert next(waiting, None) is None


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
            if -600 < (bound := log_bound(drawn.tolist(), float(variance))) < 0:
                # And close to the bound, on both of its sides.
                near = [secure.fits_law(drawn, variance, math.exp(bound + small)) for small in (-1e-6, 1e-6)]
                assert near == [True, False]
    assert 20 < sum(answers) < len(answers) - 20
    # All at one value, and far beyond all values.
    assert not secure.fits_law(np.zeros(500, dtype=np.int64), Fraction(41, 3), 1e-9)
    assert not secure.fits_law(np.full(500, 10**6), Fraction(41, 3), 1e-9)


def below(variance: Fraction, k: int) -> mpf:
    """P(X ≤ k) by Jacobi's theta function and a sum from the far end, in mpmath's arithmetic of 600 bits."""
    q = mp.exp(-mpf(variance.denominator) / (2 * variance.numerator))
    total = mp.jtheta(3, 0, q)
    reach = int(30 * mp.sqrt(mpf(variance.numerator) / variance.denominator)) + 5
    tail = mp.fsum(q ** (j * j) for j in range(abs(k) + (k >= 0), reach + abs(k)))
    return 1 - tail / total if k >= 0 else tail / total


@pytest.mark.parametrize("bits", [*range(1, 13), 128, 320])
def test_bounds_enclose_and_are_tight(bits: int) -> None:
    """Also with few bits: with many, roundings hide whether the terms that are left out were counted."""
    for x in {*(Fraction(n, d) for n in range(1, 25) for d in range(1, 25)), Fraction(1, 1000), Fraction(79, 2)}:
        found, exact = exponential(x, bits), mp.exp(-mpf(x.numerator) / x.denominator) * mpf(2) ** bits
        assert found.low <= exact <= found.high
        assert found.high - found.low < 2**12
        assert found.bits == bits


@pytest.mark.parametrize("variance", [*VARIANCES[:-1], LARGEST])
@pytest.mark.parametrize("bits", [128, 256])
def test_tails_enclose(variance: Fraction, bits: int) -> None:
    tails = upper_tails(variance, bits)
    for k in range(-len(tails), len(tails), max(1, len(tails) // 6)):
        found = distribution(tails, k)
        assert found.low <= below(variance, k) * mpf(2) ** bits <= found.high
        assert found.high - found.low < 2**40


def number(table: Inversion, words: list[int]) -> int:
    """What a stream that begins with these words, and goes on with zeros, stands for."""
    further = chain(words[1:], repeat(0))
    counts = np.zeros(1, dtype=np.int64)
    table.add(np.array(words[:1], dtype=np.uint64), counts, further=lambda: next(further))
    return int(counts[0])


@pytest.mark.parametrize("variance", [*VARIANCES[:-1], LARGEST])
def test_the_number_is_the_least_whose_distribution_exceeds_u(variance: Fraction) -> None:
    table, rng = inversion(variance), np.random.default_rng(0)
    for word in rng.integers(0, 2**64, 60 if variance < 100 else 12, dtype=np.uint64):
        found, u = number(table, [int(word)]), mpf(int(word)) / 2**64
        assert below(variance, found - 1) <= u < below(variance, found)


@pytest.mark.parametrize("variance", VARIANCES[1:])
def test_a_word_on_a_threshold_is_settled_by_further_words(variance: Fraction) -> None:
    """Just below P(X ≤ k) the number is k, just above it is k + 1: to 128, and to 192 bits."""
    table = inversion(variance)
    for k in (-3, -1, 0, 1, 2):
        exact = below(variance, k)
        for words in (2, 3):
            cut = int(mp.floor(exact * mpf(2) ** (64 * words)))
            split = [(cut + d) >> (64 * place) & LAST for d in (0, 1) for place in reversed(range(words))]
            assert split[0] == int(table.thresholds[k - table.lowest])
            assert [number(table, split[:words]), number(table, split[words:])] == [k, k + 1]


def test_tails_never_end() -> None:
    """A first word of zeros or ones leaves everything open beyond the table."""
    variance = Fraction(9)
    table = inversion(variance)
    for words in ([0, 1], [0, 0, 7], [0, 0, 0, 0, 5], [LAST, LAST - 3], [LAST, LAST, LAST, 9]):
        found = number(table, words)
        u = sum(mpf(word) / mpf(2) ** (64 * (place + 1)) for place, word in enumerate(words))
        assert below(variance, found - 1) <= u < below(variance, found)
        assert abs(found) > 27


def test_noise_does_not_depend_on_how_it_is_cut_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, sampler = np.arange(30_001), SecureNoise().begin()
    monkeypatch.setattr(sampler._stream, "take", lambda count: 0)
    whole = sampler.add(counts, Fraction(30))
    monkeypatch.setattr("poolrl.privacy.noise.secure.SECURE_BLOCK", 128)
    assert np.array_equal(sampler.add(counts, Fraction(30)), whole)


def test_a_stream_has_no_copies() -> None:
    sampler = SecureNoise().begin()
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="neither copied nor saved"):
            make(sampler._stream)


def test_forked_processes_never_share_noise() -> None:
    """Eight children and their parent, who has begun a release: its noise is refused to them."""
    counts = np.zeros(30, dtype=np.int64)

    def begun_anew(source: Any, begun: Any) -> bytes:
        with pytest.raises(RuntimeError, match="begin another after a fork"):
            begun.add(counts, Fraction(100))
        return source.begin().add(counts, Fraction(100)).tobytes()

    for source in (SecureNoise(), OpenDPNoise()):
        begun = source.begin()
        begun.add(counts, Fraction(100))  # all state has been made by now
        drawn = [in_child(lambda source=source, begun=begun: begun_anew(source, begun)) for _ in range(8)]
        drawn += [sampler.add(counts, Fraction(100)).tobytes() for sampler in (begun, source.begin())]
        assert {len(each) for each in drawn} == {8 * 30}
        assert len({*drawn}) == 10
