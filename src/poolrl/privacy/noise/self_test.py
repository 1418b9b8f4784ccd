"""The sampler's self-test: known answers and a test of its draws, once in a process, before anything is released.

A library may be built wrongly, a compiled cache may be old, memory may fail. Noise that is not what the guarantee says
looks like noise all the same. So a process shows once that its sampler works, and refuses to release otherwise.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256

import numpy as np

from poolrl.checks import IntArray
from poolrl.privacy.noise.randomness import KEY_BYTES, Stream, TabledSampler, key_stream
from poolrl.privacy.noise.source import discrete_gaussian

# NIST SP 800-38A, F.5.5 (CTR-AES256.Encrypt), the first two blocks: plaintext ⊕ ciphertext is the key stream.
NIST_KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
NIST_COUNTER = 0xF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF
NIST_PLAIN = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
NIST_CIPHER = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5")
# SHA-256 of all thresholds ⌊2⁶⁴ P(X ≤ k)⌋ as words of 8 bytes, lowest byte first. They were computed by mpmath's theta
# function with 600 bits, which shares no line with our own arithmetic (tests/test_self_test.py computes them again).
KNOWN_TABLES = {
    Fraction(41, 3): "244209de0276d02eb8ee3ed2804e1aae4f671d4ce06a8e8aa00ddabe06bb6fda",
    Fraction(1001, 2): "f2ae78a1eb8258b6c981b5d71efc250789bcb28cab1b4f67e8a0b267f51f67a1",
}
# Of this many keys every bit is 0 in some and 1 in others, but for a chance of 256 · 2 / 2⁶⁴.
KEYS = 64
# Draws of the last test, their variance, and how often a sound sampler may fail it.
DRAWS, DRAWN_VARIANCE, BAD_LUCK = 2**17, Fraction(41, 3), 1e-9

_lock = threading.Lock()
_found: list[str] | None = None


def _forget() -> None:
    """A fork tests its own sampler. A lock that another thread held at the fork would never be opened in the child."""
    global _lock, _found
    _lock, _found = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)


def require_sound_sampler() -> None:
    """Refuse a process whose sampler does not work. Call it before anything is paid for."""
    global _found
    with _lock:
        if _found is None:
            _found = sampler_faults()
    if _found:
        raise RuntimeError(
            f"the noise of this process failed its self-test ({'; '.join(_found)}): nothing may be released with it. "
            "Install poolrl and cryptography again, delete compiled caches (__pycache__), or use another machine"
        )


def sampler_faults() -> list[str]:
    """What is wrong with the sampler of this process; nothing, on a sound machine."""
    return [fault for fault, sound in SELF_TESTS.items() if not sound()]


def _aes_is_standard() -> bool:
    wanted = bytes(plain ^ cipher for plain, cipher in zip(NIST_PLAIN, NIST_CIPHER, strict=True))
    return key_stream(NIST_KEY, NIST_COUNTER, len(wanted) // 8).tobytes() == wanted


def _keys_are_whole() -> bool:
    keys = [Stream()._key for _ in range(KEYS)]
    if len(set(keys)) < KEYS or any(len(key) != KEY_BYTES for key in keys):
        return False
    ones = np.unpackbits(np.frombuffer(b"".join(keys), dtype=np.uint8)).reshape(KEYS, -1).sum(axis=0)
    return bool(((ones > 0) & (ones < KEYS)).all())


def _words_are_aes() -> bool:
    """Words at place p are halves of block p/2, whichever way they are cut, and none comes twice."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    stream = Stream()
    taken = [(stream.take(count), count) for count in (5, 1, 8, 2)]
    places = [place for first, count in taken for place in range(first, first + count)]
    if len(set(places)) < len(places) or any(first % 2 for first, _ in taken):
        return False
    blocks = b"".join(number.to_bytes(16, "big") for number in range(max(places) // 2 + 1))
    by_block = Cipher(algorithms.AES256(stream._key), modes.ECB()).encryptor().update(blocks)
    words = np.frombuffer(by_block, dtype=np.uint64)
    return all(np.array_equal(stream.words(first, count), words[first : first + count]) for first, count in taken)


def _tables_are_exact() -> bool:
    from poolrl.privacy.noise.inversion import inversion

    tables = {variance: inversion(variance).thresholds.astype("<u8").tobytes() for variance in KNOWN_TABLES}
    return all(sha256(tables[variance]).hexdigest() == known for variance, known in KNOWN_TABLES.items())


def _draws_fit() -> bool:
    drawn = TabledSampler().add(np.zeros(DRAWS, dtype=np.int64), DRAWN_VARIANCE)
    return fits_law(drawn, DRAWN_VARIANCE, BAD_LUCK)


def fits_law(drawn: IntArray, variance: Fraction, luck: float) -> bool:
    """Whether draws are discrete Gaussian, by the χ² test of likelihood ratios; wrong with a chance of at most `luck`.

    P(n KL(p̂ ‖ p) ≥ x) ≤ e^(−x) (ex/(m−1))^(m−1) for m values and x ≥ m − 1 (Agrawal 2020), for every n.
    """
    reach = math.ceil(3 * math.sqrt(variance))
    support, weights = discrete_gaussian(math.sqrt(variance))
    # A draw further out counts as the last value.
    law = np.bincount(np.clip(support, -reach, reach) + reach, weights=weights)
    seen = np.bincount(np.clip(drawn.ravel(), -reach, reach) + reach, minlength=len(law))
    some = seen > 0
    surprise = float((seen[some] * np.log(seen[some] / (drawn.size * law[some]))).sum())
    freedom = len(law) - 1
    if surprise <= freedom:
        return True
    return -surprise + freedom * math.log(math.e * surprise / freedom) > math.log(luck)


SELF_TESTS: dict[str, Callable[[], bool]] = {
    "AES-256 does not give the standard's answer": _aes_is_standard,
    "keys repeat, or have bits that never change": _keys_are_whole,
    "words are not the blocks of AES, or come twice": _words_are_aes,
    "tables of the distribution differ from known ones": _tables_are_exact,
    "draws do not have the stated distribution": _draws_fit,
}
