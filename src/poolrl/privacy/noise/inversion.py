"""Exact discrete Gaussian numbers by inversion: the least k with U < P(X ≤ k), U uniform in [0, 1).

    U = 0.u₁u₂u₃...      in words of 64 bits; nearly always the first word decides
    u₁ ≠ ⌊2⁶⁴ P(X ≤ k)⌋  for every k: then k follows from u₁ alone
    otherwise            further words are drawn and compared with bounds of more bits, until they decide

Nothing is rounded and no tail is cut, so the distribution is exact. A guide table by the word's first bits (Chen and
Asau 1974) starts the search close to its end.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from poolrl.checks import IntArray
from poolrl.privacy.noise.randomness import RandomWords
from poolrl.privacy.noise.thresholds import distribution, upper_tails

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


# Needed about once in 2⁵⁰ draws.
_refined_tails = lru_cache(maxsize=4)(upper_tails)


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
