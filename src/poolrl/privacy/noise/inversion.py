"""Exact discrete Gaussian numbers by inversion: the least k with U < P(X ≤ k), U uniform in [0, 1).

    U = 0.u₁u₂u₃...      in words of 64 bits; nearly always the first word decides
    u₁ ≠ ⌊2⁶⁴ P(X ≤ k)⌋  for every k: then k follows from u₁ alone
    otherwise            further words are drawn and compared with bounds of more bits, until they decide

Nothing is rounded and no tail is cut, so the distribution is exact. A guide table by the word's first bits (Chen and
Asau 1974) starts the search close to its end. Bounds on P(X ≤ k) are proved in integers that are rounded to a known
side, without floating point:

    P(X = k) = q^(k²) / Z   with   q = e^(−1/2σ²),  Z = Σⱼ q^(j²)

One exponential and products are enough, because q^((k+1)²) = q^(k²) q^(2k+1).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numba import njit
from numpy.typing import NDArray

from poolrl.checks import IntArray
from poolrl.privacy.noise.source import RandomWords

WORD = 64
# All thresholds close to 1 round to it, so a word that equals it does not decide.
LAST = 2**WORD - 1
# A larger guide table would not stay in a core's cache.
MOST_GUIDE_BITS = 16


@dataclass(frozen=True)
class Inversion:
    """The table of one variance. `thresholds[i]` is ⌊2⁶⁴ P(X ≤ lowest + i)⌋, from 0 to LAST."""

    variance: Fraction
    lowest: int
    thresholds: RandomWords
    guide: NDArray[np.int32]  # by a word's first bits: the first threshold above the least such word

    def add(
        self, words: RandomWords, counts: IntArray, *, further: Callable[[], int] = lambda: secrets.randbits(WORD)
    ) -> None:
        """Add to each count, in place, the number of its word; `further` draws more words."""
        shift = np.uint64(WORD + 1 - len(self.guide).bit_length())
        at = 0
        while (at := _invert(words, self.thresholds, self.guide, shift, self.lowest, counts, at)) < len(words):
            counts[at] += self.settle(int(words[at]), further)
            at += 1

    def settle(self, word: int, further: Callable[[], int]) -> int:
        """The number for a first word that equals a threshold, by drawing further words."""
        bits = WORD
        while True:
            word, bits = word << WORD | further(), bits + WORD
            tails = _refined_tails(self.variance, bits + WORD)
            low, high = word << WORD, (word + 1) << WORD  # U, in the units of the tails
            for k in range(1 - len(tails), len(tails)):
                if distribution(tails, k - 1).high <= low and high <= distribution(tails, k).low:
                    return k


@lru_cache(maxsize=32)
def inversion(variance: Fraction) -> Inversion:
    """The table, with as many bits as it takes to prove every threshold."""
    bits, proved = 2 * WORD, None
    while proved is None:
        proved = _proved(variance, bits)
        bits *= 2
    thresholds = np.array(proved, dtype=np.uint64)
    guide_bits = min(len(thresholds).bit_length() + 2, MOST_GUIDE_BITS)
    starts = np.arange(2**guide_bits, dtype=np.uint64) << np.uint64(WORD - guide_bits)
    guide = np.searchsorted(thresholds, starts, side="right").astype(np.int32)
    return Inversion(variance, -len(thresholds) // 2, thresholds, guide)


def _proved(variance: Fraction, bits: int) -> list[int] | None:
    """⌊2⁶⁴ P(X ≤ k)⌋ from the last k where it is 0 to the first where it is LAST; None if `bits` are too few."""
    tails = upper_tails(variance, bits)
    drop = bits - WORD
    lower = []  # ⌊2⁶⁴ P(X ≤ −k−1)⌋ for k = 0, 1, ...
    for tail in tails:
        floor = tail.high >> drop
        if (tail.low - 1) >> drop != floor and floor > 0:
            return None
        lower.append(floor)
        if floor == 0:
            # As no tail is a multiple of 2⁻⁶⁴ (the −1 above), ⌊2⁶⁴ (1 − tail)⌋ is one less than 2⁶⁴ − ⌊2⁶⁴ tail⌋.
            return lower[::-1] + [LAST - below for below in lower]
    return None


@njit(nogil=True, cache=True)
def _invert(
    words: RandomWords,
    thresholds: RandomWords,
    guide: NDArray[np.int32],
    shift: np.uint64,
    lowest: int,
    counts: IntArray,
    start: int,
) -> int:
    """Add the numbers of the words from `start` on; returns the place of the first undecided word, or the end."""
    for at in range(start, len(words)):
        word = words[at]
        if word == LAST:
            return at
        k = guide[word >> shift]
        while word >= thresholds[k]:
            k += 1
        if word == thresholds[k - 1]:
            return at
        counts[at] += lowest + k
    return len(words)


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


# Needed about once in 2⁵⁰ draws.
_refined_tails = lru_cache(maxsize=4)(upper_tails)


def distribution(tails: tuple[Interval, ...], k: int) -> Interval:
    """P(X ≤ k), by symmetry from the upper tails."""
    if k < 0:
        return tails[-k - 1]
    tail, one = tails[k], 1 << tails[k].bits
    return Interval(one - tail.high, one - tail.low, tail.bits)


def _up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
