"""Draws per second of every sampler, against NumPy's normal, which is neither exact nor secure.

python -m benchmarks.noise
"""

from __future__ import annotations

import argparse
from fractions import Fraction

import numpy as np

from benchmarks.fitting import best
from benchmarks.report import Report, run
from poolrl import SeededNoise
from poolrl.privacy import noise
from poolrl.privacy.noise import SecureNoise

DRAWS = {"secure": 200_000, "seeded": 5_000_000}


def work(report: Report, _: argparse.Namespace) -> None:
    """Every sampler at a small, a usual and a large scale."""
    rng = np.random.default_rng(0)
    normal = DRAWS["seeded"] / best(lambda: rng.normal(size=DRAWS["seeded"]), 3)
    rows = [["NumPy normal, insecure and inexact", "any", f"{normal / 1e6:.2f}", "1"]]
    for scale in (2, 20, 1000):
        for kind, source in (("secure", SecureNoise()), ("seeded", SeededNoise(0))):
            counts, variance = np.zeros(DRAWS[kind], dtype=np.int64), Fraction(scale) ** 2
            seconds = best(lambda c=counts, s=source, v=variance: s.begin().add(c, v), 2)  # type: ignore[misc]
            speed = DRAWS[kind] / seconds
            name = {"secure": "exact and unseeded (OpenDP), every core", "seeded": "seeded, not private"}[kind]
            rows.append([name, str(scale), f"{speed / 1e6:.3f}", f"{normal / speed:,.0f}"])
    report.table(("discrete Gaussian", "σ", "million draws / s", "times slower than NumPy"), rows)
    blocks = f"{noise.SECURE_BLOCK:,} and {noise.SEEDED_BLOCK:,}"
    report.text(f"Tables of {DRAWS['secure']:,} (exact) and {DRAWS['seeded']:,} cells, drawn in blocks of {blocks}.")


if __name__ == "__main__":
    run(Report("noise", "Noise"), work)
