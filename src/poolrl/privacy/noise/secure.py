"""Secure noise: exact discrete Gaussians from a stream that cannot be predicted or repeated."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from poolrl.checks import IntArray
from poolrl.privacy.noise.randomness import OneProcess, TabledSampler
from poolrl.privacy.noise.self_test import BAD_LUCK, DRAWN_VARIANCE, fits_law, require_sound_sampler
from poolrl.privacy.noise.source import Sampler, in_cell_blocks, scale_above

# Cells drawn by one thread at a time: enough that the start of a thread does not matter.
OPENDP_BLOCK = 2**12
# Draws by which OpenDP is tested: a third of a second.
OPENDP_DRAWS = 2**15
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


if (_found := opendp_version()) is not None:
    refuse_biased(_found)


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
    drawn = _add_by_opendp(np.zeros(OPENDP_DRAWS, dtype=np.int64), DRAWN_VARIANCE)
    return fits_law(drawn, DRAWN_VARIANCE, BAD_LUCK)


class SecureNoise:
    """Exact noise from a stream that cannot be predicted or repeated: what a private release uses."""

    # No attribute of it can be replaced.
    __slots__ = ()

    def begin(self) -> Sampler:
        """A stream with a new key. A process whose sampler fails its self-test is refused."""
        require_sound_sampler()
        return _SecureSampler()


class _SecureSampler(TabledSampler):
    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        if variance == 0:
            return counts.copy()
        if TABLED[0] <= variance <= TABLED[1]:
            return super().add(counts, variance)
        require_sampler(variance)
        # For OpenDP's sampler, because `take` refuses to continue after a fork.
        self._stream.take(counts.size)
        return _add_by_opendp(counts, variance)


class OpenDPNoise:
    """The same distribution drawn by OpenDP (an extra), a thousand times slower, for people who prefer its sampler."""

    __slots__ = ()

    def begin(self) -> Sampler:
        """A new release; OpenDP keeps no state between releases."""
        _require_opendp("OpenDPNoise")
        return _OpenDPSampler()


class _OpenDPSampler:
    def __init__(self) -> None:
        self._owner = OneProcess()

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        self._owner.check()
        return counts.copy() if variance == 0 else _add_by_opendp(counts, variance)


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
