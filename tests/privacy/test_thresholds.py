"""Bounds on the distribution of the noise, where few bits leave no room for a mistake."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from mpmath import mp

from poolrl.privacy.noise.inversion import ERROR_BITS, Interval, distribution, exponential, upper_tails


@pytest.mark.parametrize("bits", range(1, 13))
def test_an_exponential_is_enclosed_however_few_bits_there_are(bits: int) -> None:
    """With many bits, roundings hide whether the terms that are left out were counted."""
    with mp.workdps(60):
        for x in {Fraction(n, d) for n in range(1, 25) for d in range(1, 25)}:
            found, exact = exponential(x, bits), mp.exp(-mp.mpf(x.numerator) / x.denominator) * 2**bits
            assert found.low <= exact <= found.high
            assert found.bits == bits


def test_arithmetic_rounds_to_the_known_side() -> None:
    """In quarters: 3/4 · 3/4 = 9/16 lies between 2/4 and 3/4, 3/4 : 5/4 = 3/5 between 2/4 and 3/4."""
    three, five, one = Interval(3, 3, 2), Interval(5, 5, 2), Interval(4, 4, 2)
    assert three * three == Interval(2, 3, 2)
    assert three / five == Interval(2, 3, 2)
    # What is exact stays exact.
    assert three * one == three / one == three
    assert Interval(1, 3, 2) * Interval(2, 5, 2) == Interval(0, 4, 2)
    assert Interval(1, 3, 2) / Interval(2, 5, 2) == Interval(0, 6, 2)


@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(1), Fraction(50, 7), Fraction(40)])
def test_tails_are_probabilities_until_nothing_is_left(variance: Fraction) -> None:
    """They fall from less than 1/2 to no more than a few errors, and none is negative."""
    bits = 96
    tails = upper_tails(variance, bits)
    assert tails[0].high < 1 << (bits - 1)
    assert all(0 <= after.low <= before.low and after.high <= before.high for before, after in pairwise(tails))
    assert tails[-1].low == 0
    assert tails[-1].high >> (ERROR_BITS + 4) == 0
    # The list ends where the weight has no bits but errors: q^(k²) < 2^(ERROR_BITS − bits).
    with mp.workdps(60):
        last = len(tails)
        weights = [mp.exp(-mp.mpf(k * k) * variance.denominator / (2 * variance.numerator)) for k in (last - 1, last)]
        limit = mp.mpf(2) ** (ERROR_BITS - bits)
        assert weights[1] < limit * 1.001
        assert weights[0] > limit * 0.999


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
