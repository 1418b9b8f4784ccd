"""The exact sampler: thresholds against other arithmetic and with few bits, words on a threshold, and who may draw."""

from __future__ import annotations

import copy
import pickle
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, repeat

import numpy as np
import pytest
from mpmath import mp, mpf

from poolrl.privacy.noise.inversion import (
    ERROR_BITS,
    LAST,
    Interval,
    Inversion,
    distribution,
    exponential,
    inversion,
    upper_tails,
)
from poolrl.privacy.noise.secure import SecureNoise
from tests.helpers.processes import program

VARIANCES = [Fraction(1, 50), Fraction(49, 100), Fraction(1), Fraction(10, 3), Fraction(81, 4), Fraction(2500)]
LARGEST = pytest.param(VARIANCES[-1], marks=pytest.mark.slow)


@pytest.fixture(autouse=True)
def many_bits() -> Iterator[None]:
    """The arithmetic of the oracles, and of no test elsewhere, which it would make slow."""
    with mp.workprec(600):
        yield


def below(variance: Fraction, k: int) -> mpf:
    """P(X ≤ k) by Jacobi's theta function and a sum from the far end, in mpmath's arithmetic of 600 bits."""
    q = mp.exp(-mpf(variance.denominator) / (2 * variance.numerator))
    total = mp.jtheta(3, 0, q)
    reach = int(30 * mp.sqrt(mpf(variance.numerator) / variance.denominator)) + 5
    tail = mp.fsum(q ** (j * j) for j in range(abs(k) + (k >= 0), reach + abs(k)))
    return 1 - tail / total if k >= 0 else tail / total


@pytest.mark.parametrize("variance", VARIANCES)
def test_every_threshold_is_the_floor_of_the_distribution(variance: Fraction) -> None:
    table = inversion(variance)
    assert table.thresholds[0] == 0
    assert table.thresholds[-1] == LAST
    ks = range(table.lowest, table.lowest + len(table.thresholds))
    for k in ks if len(ks) < 200 else ks[::37]:
        assert int(table.thresholds[k - table.lowest]) == int(mp.floor(below(variance, k) * 2**64)), k


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
    answer = subprocess.run(program("forked_noise"), capture_output=True, text=True, check=True)
    lines = answer.stdout.splitlines()
    assert len(lines) == len(set(lines)) == 2 * 10
    assert all(len(line.split()) == 30 for line in lines)


def test_arithmetic_rounds_to_the_known_side() -> None:
    """In quarters: 3/4 · 3/4 = 9/16 lies between 2/4 and 3/4, 3/4 : 5/4 = 3/5 between 2/4 and 3/4."""
    three, five, one = Interval(3, 3, 2), Interval(5, 5, 2), Interval(4, 4, 2)
    assert three * three == Interval(2, 3, 2)
    assert three / five == Interval(2, 3, 2)
    # What is exact stays exact.
    assert three * one == three / one == three
    assert Interval(1, 3, 2) * Interval(2, 5, 2) == Interval(0, 4, 2)
    assert Interval(1, 3, 2) / Interval(2, 5, 2) == Interval(0, 6, 2)


@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(50, 7), Fraction(900), Fraction(20_001, 2)])
@pytest.mark.parametrize("bits", [48, 128])
def test_tails_are_rounded_step_by_step_to_the_known_side(variance: Fraction, bits: int) -> None:
    """The same sums with an interval for every number: not one bit is lost or gained by plain integers."""
    q = exponential(1 / (2 * variance), bits)
    square = q * q
    weights, weight, ratio = [], q, square * q
    while weight.high >> ERROR_BITS:
        weights.append(weight)
        weight, ratio = weight * ratio, ratio * square
    rest = -(-(weight.high << bits) // ((1 << bits) - ratio.high))
    sums = [Interval(0, rest, bits)]
    for each in reversed(weights):
        sums.append(Interval(sums[-1].low + each.low, sums[-1].high + each.high, bits))
    sums.reverse()
    total = Interval((1 << bits) + 2 * sums[0].low, (1 << bits) + 2 * sums[0].high, bits)
    assert upper_tails(variance, bits) == tuple(tail / total for tail in sums)


def test_a_distribution_is_symmetric() -> None:
    tails = upper_tails(Fraction(3), 80)
    one = 1 << 80
    for k in range(4):
        below, upto = distribution(tails, -k - 1), distribution(tails, k)
        assert below == tails[k]
        assert (upto.low + below.high, upto.high + below.low) == (one, one)
