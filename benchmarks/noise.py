"""Draws per second of every sampler on one core, beside NumPy's normal, which is neither exact nor secure.

python -m benchmarks.noise
"""

from __future__ import annotations

import argparse
import os
from fractions import Fraction

import numpy as np

from benchmarks.fitting import best
from benchmarks.report import Report, run
from poolrl import SeededNoise
from poolrl.privacy.noise import secure as noise
from poolrl.privacy.noise.inversion import inversion
from poolrl.privacy.noise.secure import SECURE_BLOCK, OpenDPNoise, SecureNoise
from poolrl.privacy.noise.seeded import SEEDED_BLOCK
from poolrl.privacy.noise.source import NoiseSource

SAMPLERS: dict[str, tuple[NoiseSource, int]] = {
    "exact and unseeded: tables and AES (`SecureNoise`)": (SecureNoise(), 20_000_000),
    "exact and unseeded: OpenDP (`OpenDPNoise`)": (OpenDPNoise(), 100_000),
    "seeded, not private (`SeededNoise`)": (SeededNoise(0), 5_000_000),
}


def work(report: Report, _: argparse.Namespace) -> None:
    """Every sampler at a small, a usual and a large scale."""
    cores = os.sched_getaffinity(0)
    # Samplers use every core that they get.
    os.sched_setaffinity(0, {min(cores)})
    rng, size = np.random.default_rng(0), 5_000_000
    normal = size / best(lambda: rng.normal(size=size), 3)
    rows = [["NumPy normal, insecure and inexact", "any", f"{size:,}", f"{normal / 1e6:.1f}", f"{1:.2f}", ""]]
    for scale in (2, 20, 1000):
        variance = Fraction(scale) ** 2
        # The table is made once for a variance. Its time is reported below.
        inversion(variance)
        speeds = {}
        for name, (source, draws) in SAMPLERS.items():
            counts = np.zeros(draws, dtype=np.int64)
            speeds[name] = draws / best(lambda c=counts, s=source, v=variance: s.begin().add(c, v), 2)  # type: ignore[misc]
        slowest = min(speeds.values())
        for name, speed in speeds.items():
            times = f"{normal / speed:,.2f}", f"{speed / slowest:,.0f}"
            rows.append([name, str(scale), f"{SAMPLERS[name][1]:,}", f"{speed / 1e6:,.3f}", *times])
    header = (
        "discrete Gaussian",
        "σ",
        "cells",
        "million draws / s",
        "times slower than NumPy",
        "times faster than OpenDP",
    )
    report.table(header, rows, title="One core")
    os.sched_setaffinity(0, cores)
    tables = []
    for scale in (2, 20, 200, 1000, 4095):
        # A variance that has no table yet.
        fresh = Fraction(scale) ** 2 + Fraction(1, 1000 + scale)
        seconds = best(lambda v=fresh: inversion(v), 1, warm=False)  # type: ignore[misc]
        tables.append(f"{seconds:.3f} s at σ = {scale:,}")
    blocks = f"{SECURE_BLOCK:,}, {noise.OPENDP_BLOCK:,} and {SEEDED_BLOCK:,}"
    report.text(f"A table is made once for a variance: {', '.join(tables)}. Cells are drawn in blocks of {blocks}.")


if __name__ == "__main__":
    run(Report("noise", "Noise", ("privacy/noise",)), work)
