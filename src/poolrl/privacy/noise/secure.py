"""Secure noise: exact discrete Gaussians from a stream that cannot be predicted or repeated, tested before its use.

The stream is AES-256 in counter mode. The operating system draws a key for one release, and it is not kept. An attacker
who can distinguish its words from uniform ones has broken AES. A stream belongs to the process that began it: a forked
child would draw the same words again, and two tables with the same noise reveal their difference. The sampler turns
words into discrete Gaussian numbers by an exact table.

The self-test: known answers, once in a process, before anything is released. A library may be built wrongly, a compiled
cache may be old, memory may fail. Noise that is not what the guarantee says looks like noise all
the same. So a process shows once that its sampler works, and refuses to release otherwise.
"""

import math
import os
import re
import threading
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from os import urandom

import numpy as np

from poolrl.checks import IntArray
from poolrl.privacy.noise.source import RandomWords, Sampler, discrete_gaussian, in_cell_blocks, scale_above

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


class Stream:
    """Uniform 64-bit words, each given once."""

    def __init__(self) -> None:
        # Straight from the system: nothing in between can make the key shorter.
        self._key = urandom(KEY_BYTES)
        self._process = _this_process()
        self._taken = 0
        self._lock = threading.Lock()

    def take(self, count: int) -> int:
        """Reserve `count` words, and return the place of the first. Any thread may read them with `words`."""
        self._refuse_forks()
        with self._lock:
            first = self._taken
            # A block of AES is two words, so the next place is even.
            self._taken += count + count % 2
        return first

    def words(self, first: int, count: int) -> RandomWords:
        """The words at first, first + 1, ...; `first` is even."""
        # Here too: a fork may come between `take` and this.
        self._refuse_forks()
        return key_stream(self._key, first // 2, count)

    def _refuse_forks(self) -> None:
        if _this_process() != self._process:
            raise RuntimeError("a release belongs to the process that began it: begin another after a fork")

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


class _SecureSampler:
    """One release: a stream with a key of its own, which every table of the release continues.

    OpenDP draws what no table is made for, or all of it.
    """

    def __init__(self, *, by_opendp: bool = False) -> None:
        self._stream, self._by_opendp = Stream(), by_opendp

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        if variance == 0:
            return counts.copy()
        # For OpenDP's sampler too, because `take` refuses to continue after a fork.
        first = self._stream.take(counts.size)
        if self._by_opendp or not TABLED[0] <= variance <= TABLED[1]:
            require_sampler(variance)
            return _add_by_opendp(counts, variance)
        # Here, because Numba takes half a second to import.
        from poolrl.privacy.noise.inversion import inversion

        table, noisy = inversion(variance), counts.astype(np.int64).ravel()

        def some(part: slice) -> None:
            table.add(self._stream.words(first + part.start, part.stop - part.start), noisy[part])

        in_cell_blocks(some, noisy.size, SECURE_BLOCK)
        return noisy.reshape(counts.shape)


# SHA-256 of all thresholds ⌊2⁶⁴ P(X ≤ k)⌋ as words of 8 bytes, lowest byte first. They were computed by mpmath's theta
# function with 600 bits, which shares no line with our own arithmetic. tests/privacy/test_inversion.py does it again.
KNOWN_TABLES = {
    Fraction(41, 3): "244209de0276d02eb8ee3ed2804e1aae4f671d4ce06a8e8aa00ddabe06bb6fda",
    Fraction(1001, 2): "f2ae78a1eb8258b6c981b5d71efc250789bcb28cab1b4f67e8a0b267f51f67a1",
}
# Of this many keys every bit is 0 in some and 1 in others, but for a chance of 256 · 2 / 2⁶⁴.
KEYS = 64
# SHA-256 of the noise that a key draws for tables of these sizes and this variance, in the same words. It was computed
# from single blocks of AES and mpmath's thresholds (tests/privacy/test_inversion.py).
KNOWN_KEY, KNOWN_SIZES, KNOWN_VARIANCE = bytes(range(KEY_BYTES)), (5, 1, 8, 2, 2**17), Fraction(41, 3)
KNOWN_NOISE = "0bd05f0a3538ed49e822a8e306d08d16968eaf82c55839e52961a35ef5e0dedd"


@cache
def _faults_of_process() -> list[str]:
    return sampler_faults()


# A fork tests its own sampler.
os.register_at_fork(after_in_child=_faults_of_process.cache_clear)


def require_sound_sampler() -> None:
    """Refuse a process whose sampler does not work. Call it before anything is paid for."""
    if faults := _faults_of_process():
        raise RuntimeError(
            f"the noise of this process failed its self-test ({'; '.join(faults)}): nothing may be released with it. "
            "Install poolrl and cryptography again, delete compiled caches (__pycache__), or use another machine"
        )


def sampler_faults() -> list[str]:
    """What is wrong with the sampler of this process; nothing, on a sound machine."""
    return [fault for fault, sound in SELF_TESTS.items() if not sound()]


def _keys_are_whole() -> bool:
    keys = [Stream()._key for _ in range(KEYS)]
    if len(set(keys)) < KEYS or any(len(key) != KEY_BYTES for key in keys):
        return False
    ones = np.unpackbits(np.frombuffer(b"".join(keys), dtype=np.uint8)).reshape(KEYS, -1).sum(axis=0)
    return bool(((ones > 0) & (ones < KEYS)).all())


def _tables_are_exact() -> bool:
    from poolrl.privacy.noise.inversion import inversion

    tables = {variance: inversion(variance).thresholds.astype("<u8").tobytes() for variance in KNOWN_TABLES}
    return all(sha256(tables[variance]).hexdigest() == known for variance, known in KNOWN_TABLES.items())


def _noise_follows_from_key() -> bool:
    """AES-256, its blocks one after the other in whatever way they are cut, and the search in a table, all at once."""
    sampler, digest = _SecureSampler(), sha256()
    sampler._stream._key = KNOWN_KEY
    for size in KNOWN_SIZES:
        digest.update(sampler.add(np.zeros(size, dtype=np.int64), KNOWN_VARIANCE).astype("<i8").tobytes())
    return digest.hexdigest() == KNOWN_NOISE


SELF_TESTS: dict[str, Callable[[], bool]] = {
    "keys repeat, or have bits that never change": _keys_are_whole,
    "tables of the distribution differ from known ones": _tables_are_exact,
    "a known key does not draw its noise": _noise_follows_from_key,
}


# Cells drawn by one thread at a time: enough that the start of a thread does not matter.
OPENDP_BLOCK = 2**12
# Draws by which OpenDP is tested, in a third of a second, and how often sound ones may fail.
OPENDP_DRAWS, BAD_LUCK = 2**15, 1e-9
# Variances for which a table is made, in at most three seconds. OpenDP, an extra, draws the others.
TABLED = Fraction(1, 100), Fraction(2**28)
# OpenDP's discrete Gaussian was biased before this version, at σ = 2 by 5% of P(X = 0) (opendp/opendp#2639).
UNBIASED = (0, 14, 2)


def refuse_biased(opendp: str) -> None:
    """Refuse a version of OpenDP whose noise is biased."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", opendp)[:3])
    if numbers < UNBIASED:
        raise ImportError(f"OpenDP {opendp} draws biased noise: install opendp >= {'.'.join(map(str, UNBIASED))}")


def opendp_version() -> str | None:
    """The version of OpenDP that is installed, if any."""
    try:
        return version("opendp")
    except PackageNotFoundError:
        return None


if (_installed := opendp_version()) is not None:
    refuse_biased(_installed)


def require_sampler(variance: Fraction) -> None:
    """Refuse a variance that no installed sampler can draw. Call it before anything is paid for."""
    if variance and not TABLED[0] <= variance <= TABLED[1]:
        _require_opendp(f"noise of variance {float(variance):.3g}")


def _require_opendp(what: str) -> None:
    if opendp_version() is None:
        raise ValueError(f"{what} needs OpenDP's sampler: pip install 'poolrl[opendp]', or choose another rho")
    if not _opendp_fits():
        raise RuntimeError("OpenDP's draws do not have the stated distribution: nothing may be released with them")


@cache
def _opendp_fits() -> bool:
    """Whether some draws of OpenDP are discrete Gaussian, once in a process."""
    drawn = _add_by_opendp(np.zeros(OPENDP_DRAWS, dtype=np.int64), KNOWN_VARIANCE)
    return fits_law(drawn, KNOWN_VARIANCE, BAD_LUCK)


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


class SecureNoise:
    """Exact noise from a stream that cannot be predicted or repeated: what a private release uses."""

    # No attribute of it can be replaced.
    __slots__ = ()

    def begin(self) -> Sampler:
        """A stream with a new key. A process whose sampler fails its self-test is refused."""
        require_sound_sampler()
        return _SecureSampler()


class OpenDPNoise:
    """The same distribution drawn by OpenDP (an extra), a thousand times slower, for people who prefer its sampler."""

    __slots__ = ()

    def begin(self) -> Sampler:
        """A new release; OpenDP keeps no state between releases."""
        _require_opendp("OpenDPNoise")
        return _SecureSampler(by_opendp=True)


def _add_by_opendp(counts: IntArray, variance: Fraction) -> IntArray:
    import opendp.prelude as dp

    # T=int would mean 32 bits in OpenDP, and these saturate without an error.
    cells = dp.vector_domain(dp.atom_domain(T="i64"))
    dp.enable_features("contrib")
    measurement = dp.m.make_gaussian(cells, dp.l2_distance(T="f64"), scale=scale_above(variance))
    flat = counts.ravel()
    noisy = np.empty_like(flat)

    def some(part: slice) -> None:
        noisy[part] = measurement(flat[part].tolist())

    in_cell_blocks(some, flat.size, OPENDP_BLOCK)
    return noisy.reshape(counts.shape)


# Only the noise of these classes protects, and not that of their subclasses.
SECURE = (SecureNoise, OpenDPNoise)
