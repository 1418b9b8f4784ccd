"""Proved bounds on the distribution function of the discrete Gaussian, in integers that are rounded to a known side.

    P(X = k) = q^(k²) / Z   with   q = e^(−1/2σ²),  Z = Σⱼ q^(j²)

It needs one exponential and then products, because q^((k+1)²) = q^(k²) q^(2k+1). No floating point is involved, so
every bound is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate


@dataclass(frozen=True)
class Interval:
    """A number known to lie between low and high, both in units of 2^−bits."""

    low: int
    high: int
    bits: int

    def __mul__(self, other: Interval) -> Interval:
        """The product of two numbers that are not negative."""
        return Interval((self.low * other.low) >> self.bits, _up(self.high * other.high, 1 << self.bits), self.bits)

    def __truediv__(self, other: Interval) -> Interval:
        """The quotient of two numbers that are not negative, the divisor positive."""
        low, high = (self.low << self.bits) // other.high, _up(self.high << self.bits, other.low)
        return Interval(low, high, self.bits)


def exponential(x: Fraction, bits: int) -> Interval:
    """e^(−x) for x > 0.

    Every term of e^x = Σ xⁿ/n! is rounded down and up. From n ≥ 2x on, each term is at most half the one before. So the
    terms that are left out add up to at most the last term kept.
    """
    one = 1 << bits
    low = high = total_low = total_high = one
    n = 0
    while n < 2 * x or high > 1:
        n += 1
        divisor = x.denominator * n
        low, high = low * x.numerator // divisor, _up(high * x.numerator, divisor)
        total_low, total_high = total_low + low, total_high + high
    return Interval(one, one, bits) / Interval(total_low, total_high + high, bits)


# After many products the last bits of a number are errors. A weight with no other bits is left out.
ERROR_BITS = 32


def upper_tails(variance: Fraction, bits: int) -> tuple[Interval, ...]:
    """P(X > k) for k = 0, 1, ..., as long as Z · P(X = k) is above 2^(ERROR_BITS − bits)."""
    q = exponential(1 / (2 * variance), bits)
    square = q * q
    cube = square * q
    # In plain integers, for a table may have 100,000 weights. ⌈a/2^bits⌉ is −⌊−a/2^bits⌋.
    lows, highs = [], []
    low, high, ratio_low, ratio_high = q.low, q.high, cube.low, cube.high  # q^(k²) and q^(2k+1) at k = 1
    while high >> ERROR_BITS:
        lows.append(low)
        highs.append(high)
        low, high = low * ratio_low >> bits, -(-high * ratio_high >> bits)
        ratio_low, ratio_high = ratio_low * square.low >> bits, -(-ratio_high * square.high >> bits)
    # Σ_{j>k} q^(j²) from the far end; beyond the last weight it is at most a geometric series.
    beyond = _up(high << bits, (1 << bits) - ratio_high)
    sums_low = [*accumulate(reversed(lows), initial=0)][::-1]
    sums_high = [*accumulate(reversed(highs), initial=beyond)][::-1]
    total_low, total_high = (1 << bits) + 2 * sums_low[0], (1 << bits) + 2 * sums_high[0]
    return tuple(
        Interval((low << bits) // total_high, _up(high << bits, total_low), bits)
        for low, high in zip(sums_low, sums_high, strict=True)
    )


def distribution(tails: tuple[Interval, ...], k: int) -> Interval:
    """P(X ≤ k), by symmetry from the upper tails."""
    if k < 0:
        return tails[-k - 1]
    tail, one = tails[k], 1 << tails[k].bits
    return Interval(one - tail.high, one - tail.low, tail.bits)


def _up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
