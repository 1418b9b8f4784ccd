"""What no statistics can see: whether noise follows, bit by bit, from a whole key and the exact distribution.

A key of 40 bits makes words that look uniform, and anyone can try all such keys. A variance of 20 for 20.5 takes a
million releases to see. So the audit gives the sampler a known key, in a process of its own, and computes by other
means what it must draw.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np

from poolrl.checks import IntArray
from poolrl.privacy.noise import randomness
from poolrl.privacy.noise.inversion import inversion
from poolrl.privacy.noise.randomness import Stream
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.noise.self_test import sampler_faults
from poolrl.privacy.noise.source import RandomWords

# No two bytes are equal, so none can be left out or come twice unseen.
KNOWN_KEY = bytes(range(101, 133))
# Besides the audited variances: fractions, which must not be rounded to whole numbers.
PROBED_VARIANCES = Fraction(41, 2), Fraction(1001, 3)
PROBED_DRAWS = 2**14
DIGITS = 60


def construction_faults(*stated: Fraction) -> list[str]:
    """The faults of the sampler of secure noise, for these variances and some others."""
    failed = [f"the sampler fails its self-test: {fault}" for fault in sampler_faults()]
    if failed:
        return failed
    faults = []
    variances = dict.fromkeys((*stated, *PROBED_VARIANCES))
    if not all(np.array_equal(inversion(each).thresholds, thresholds(each)[1]) for each in variances):
        faults.append("the table of a distribution is not exact")
    if not all(_follows_from_key(each) for each in variances):
        faults.append("noise does not follow from the key that the system drew and the stated variance")
    if can_be_continued():
        faults.append("a forked process can continue a release")
    return faults


def in_child(work: Callable[[], bytes]) -> bytes:
    """What some work in a forked process returns; nothing, if it fails there."""
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(end)
            with os.fdopen(start, "wb") as pipe:
                pipe.write(work())
        finally:
            os._exit(0)
    os.close(start)
    with os.fdopen(end, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def _follows_from_key(variance: Fraction) -> bool:
    def draw() -> bytes:
        SecureNoise().begin()  # its self-test needs real keys
        asked: list[int] = []

        def known(size: int) -> bytes:
            asked.append(size)
            return KNOWN_KEY[:size]

        vars(randomness)["urandom"] = known  # in this process alone
        noise = SecureNoise().begin().add(np.zeros(PROBED_DRAWS, dtype=np.int64), variance)
        return noise.tobytes() if asked == [len(KNOWN_KEY)] else b""

    return in_child(draw) == drawn_with(KNOWN_KEY, variance, PROBED_DRAWS).tobytes()


def drawn_with(key: bytes, variance: Fraction, count: int) -> IntArray:
    """The first numbers that a release with this key draws: AES block by block, decimals, and a search."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    blocks = b"".join(number.to_bytes(16, "big") for number in range((count + 1) // 2))
    words = np.frombuffer(Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update(blocks), dtype="<u8")
    lowest, edges = thresholds(variance)
    # A word on an edge, which would not decide, comes up once in 2⁵⁰.
    return np.asarray(lowest + np.searchsorted(edges, words[:count], side="right"), dtype=np.int64)


@lru_cache(maxsize=8)
def thresholds(variance: Fraction) -> tuple[int, RandomWords]:
    """The least k, and ⌊2⁶⁴ P(X ≤ k)⌋ from the last k where it is 0 to the first where it is 2⁶⁴ − 1, by decimals."""
    with localcontext() as context:
        context.prec = DIGITS
        ratio = (Decimal(-variance.denominator) / Decimal(2 * variance.numerator)).exp()
        weights, step, square = [Decimal(1)], ratio, ratio * ratio
        # Beyond 14σ a tail is below 2⁻¹⁴⁰.
        for _ in range(math.ceil(14 * math.sqrt(variance)) + 3):
            weights.append(weights[-1] * step)
            step *= square
        tails = [Decimal(0)]  # Σ_{j>k} from the far end
        for weight in reversed(weights[1:]):
            tails.append(tails[-1] + weight)
        tails.reverse()
        total, scale = 1 + 2 * tails[0], Decimal(2**64)
        upper = [tail / total for tail in tails]
        below = [int(scale * tail) for tail in upper]
        end = below.index(0) + 1
        above = [int(scale * (1 - tail)) for tail in upper[:end]]
    return -end, np.array(below[:end][::-1] + above, dtype=np.uint64)


def can_be_continued() -> bool:
    """Whether a fork can go on where its parent's stream is, by any of its methods."""
    stream = Stream()
    stream.take(2)

    def go_on() -> bytes:
        went_on = b""
        for method in (lambda: stream.take(2), lambda: stream.words(0, 2)):
            try:
                method()
                went_on += b"!"
            except RuntimeError:
                went_on += b"."
        return went_on

    return in_child(go_on) != b".."
