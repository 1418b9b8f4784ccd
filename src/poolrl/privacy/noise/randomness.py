"""Randomness: AES-256 in counter mode. The operating system draws a key for one release, and it is not kept.

An attacker who can distinguish its words from uniform ones has broken AES. A stream belongs to the process that began
it: a forked child would draw the same words again, and two tables with the same noise reveal their difference. The
sampler of a private release turns words into discrete Gaussian numbers by an exact table.
"""

from __future__ import annotations

import os
import threading
from fractions import Fraction
from os import urandom

import numpy as np

from poolrl.checks import IntArray
from poolrl.privacy.noise.source import RandomWords, in_cell_blocks

# 256 bits, all of them from the operating system.
KEY_BYTES = 32
# Cells drawn by one thread at a time: enough that the start of a thread does not matter.
SECURE_BLOCK = 2**16

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def _this_process() -> tuple[int, int]:
    # Forks are counted too, because the system may give the number of an ended process to a new one.
    return os.getpid(), _forks


class OneProcess:
    """A guard for what must not be continued in a fork of the process that made it."""

    def __init__(self) -> None:
        self._process = _this_process()

    def check(self) -> None:
        """Refuse any other process."""
        if _this_process() != self._process:
            raise RuntimeError("a release belongs to the process that began it: begin another after a fork")


class Stream:
    """Uniform 64-bit words, each given once."""

    def __init__(self) -> None:
        # Straight from the system: nothing in between can make the key shorter.
        self._key = urandom(KEY_BYTES)
        self._owner = OneProcess()
        self._taken = 0
        self._lock = threading.Lock()

    def take(self, count: int) -> int:
        """Reserve `count` words, and return the place of the first. Any thread may read them with `words`."""
        self._owner.check()
        with self._lock:
            first = self._taken
            # A block of AES is two words, so the next place is even.
            self._taken += count + count % 2
        return first

    def words(self, first: int, count: int) -> RandomWords:
        """The words at first, first + 1, ...; `first` is even."""
        # Here too: a fork may come between `take` and this.
        self._owner.check()
        return key_stream(self._key, first // 2, count)

    def __reduce_ex__(self, protocol: object) -> str:
        """Refuse: a copy would draw the same words."""
        raise TypeError("a stream of noise can be neither copied nor saved")


def key_stream(key: bytes, block: int, count: int) -> RandomWords:
    """`count` words of AES-256 in counter mode, from the block with this number on."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    cipher = Cipher(algorithms.AES256(key), modes.CTR(block.to_bytes(16, "big"))).encryptor()
    drawn = np.zeros(count, dtype=np.uint64)
    # Encrypted zeros are the key stream itself.
    room = np.empty(drawn.nbytes + 15, dtype=np.uint8)
    written = cipher.update_into(drawn.view(np.uint8).data, room.data)
    return room[:written].view(np.uint64)


class TabledSampler:
    """One release: a stream with a key of its own, which every table of the release continues."""

    def __init__(self) -> None:
        self._stream = Stream()

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """Counts plus independent numbers of exactly this variance's distribution."""
        # Here, because Numba takes half a second to import.
        from poolrl.privacy.noise.inversion import inversion

        first = self._stream.take(counts.size)
        table, noisy = inversion(variance), counts.astype(np.int64).ravel()

        def some(part: slice) -> None:
            table.add(self._stream.words(first + part.start, part.stop - part.start), noisy[part])

        in_cell_blocks(some, noisy.size, SECURE_BLOCK)
        return noisy.reshape(counts.shape)
