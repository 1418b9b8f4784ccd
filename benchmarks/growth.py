"""The default fit of arrays: CPU seconds of small shops and of a chain, and how they grow.

    python -m benchmarks.growth

CPU seconds count all threads, and say the same on a busy machine. Each is the least of some fits after a first one, in
a process of its own. It takes two minutes, and four on a busy machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.report import Report, apart, run
from poolrl import LostSales, Pool, SeededNoise, simulate_log

BASE = {"products": 2, "steps": 7, "cells": 1, "trajectories": 1_000}
GROWTH: dict[str, tuple[int, ...]] = {
    "products": (2, 4, 8, 16),
    "steps": (7, 14, 28, 56),
    "cells": (10, 40, 160, 640),
    "trajectories": (1_000, 10_000, 100_000, 1_000_000),
}
# What is fitted, its size, and ρ. A chain has 135 weeks of 935 stores, as Rossmann's.
FITS: dict[str, tuple[dict[str, int], float]] = {
    "2 products, 7 steps, n = 1,000": (BASE, 0.1),
    "8 products, 7 steps, n = 1,000": (BASE | {"products": 8}, 0.1),
    "935 stores, 7 steps, n = 126,225": (BASE | {"products": 1, "cells": 935, "trajectories": 935 * 135}, 1.0),
}


def cpu_seconds(products: int, steps: int, cells: int, trajectories: int, rho: float) -> float:
    """Of a fit, from counting to the plan, for label cells of different sizes."""
    rng, known = np.random.default_rng(0), dict[str, Any]()
    problem = LostSales(horizon=steps, products=products, holding=0.2, shortage=0.6, demand_max=100.0)
    sizes = rng.lognormal(3.0, 0.3, cells)
    store = rng.integers(cells, size=trajectories)
    if cells > 1:
        known, problem = {"labels": {"store": store}}, problem.changed(labels={"store": range(cells)})
    shares = rng.gamma(9, 1 / 9, (trajectories, steps, products))
    log = simulate_log(problem, np.minimum(shares * sizes[store][:, None, None], 100.0), rng=rng, **known)
    found = []
    for _ in range(2 if cells * products > 100 else 10):
        began = time.process_time()
        Pool(rho).fit(problem, log, noise=SeededNoise(0))
        found.append(time.process_time() - began)
    return min(found)


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> str:
    """The slope of log time over log size with its 95% interval."""
    fit = stats.linregress(np.log(sizes), np.log(seconds))
    half = stats.t.ppf(0.975, len(sizes) - 2) * fit.stderr
    return f"{fit.slope:.2f} ± {half:.2f}"


def work(report: Report, _: argparse.Namespace) -> None:
    """The sizes that a reader knows, then exponents one dimension at a time."""
    rows = []
    for name, (size, rho) in FITS.items():
        seconds, memory = apart(cpu_seconds, *size.values(), rho)
        rows.append([name, f"{rho:g}", f"{seconds:.3f}", f"{memory:,.0f}"])
    report.table(("fit", "ρ", "CPU s", "peak MiB"), rows, title="`Pool(ρ).fit` of `Trajectories`")
    rows = []
    for name, sizes in GROWTH.items():
        found = [apart(cpu_seconds, *(BASE | {name: size}).values(), 0.1) for size in sizes]
        seconds, peaks = ", ".join(f"{one:.3f}" for one, _ in found), ", ".join(f"{most:,.0f}" for _, most in found)
        slope = exponent(sizes, [one for one, _ in found])
        rows.append([name, ", ".join(f"{size:,}" for size in sizes), seconds, slope, peaks])
    header = ("grows", "sizes", "CPU s", "exponent", "peak MiB")
    report.table(header, rows, title="How it grows around 2 products, 7 steps, n = 1,000, at ρ = 0.1")


if __name__ == "__main__":
    run(Report("growth", "The default fit", ("data", "geometry", "learning", "privacy")), work)
