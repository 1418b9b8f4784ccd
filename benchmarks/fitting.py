"""Times of the published algorithm: against plain NumPy, against its noise, against a grid, and how they grow.

    python -m benchmarks.fitting

Every measurement runs in its own process. Times are the best of some calls, after one call that warms up.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from scipy import stats

from benchmarks import transcription
from benchmarks.report import Report, apart, run
from poolrl import LostSales, Pool, SeededNoise, Trajectories
from poolrl.checks import IntArray
from poolrl.paper.trials import dp_apvi
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.noise.source import NoiseSource, Sampler


def a_shop(products: int, horizon: int, trajectories: int) -> tuple[LostSales, Trajectories]:
    """A shop with random costs and a log of uniform demand."""
    rng = np.random.default_rng(0)
    costs = rng.uniform(0, 0.5, (2, horizon, products))
    problem = LostSales(horizon=horizon, products=products, holding=costs[0], shortage=costs[1], demand_max=100.0)
    return problem, problem.simulate_log(rng.uniform(0, 100, (trajectories, horizon, products)), rng=rng)


def best(work: Callable[[], object], times: int, *, warm: bool = True) -> float:
    """Seconds of the fastest call."""
    if warm:
        work()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


class TimedNoise:
    """Noise that measures how long its drawing takes."""

    def __init__(self, source: NoiseSource) -> None:
        self.source, self.seconds, self.cells = source, 0.0, 0

    def begin(self) -> Sampler:
        """The sampler itself, with a clock."""
        self.sampler = self.source.begin()
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """What the sampler adds."""
        began = time.perf_counter()
        noisy = self.sampler.add(counts, variance)
        self.seconds += time.perf_counter() - began
        self.cells += counts.size
        return noisy


def seconds_of_published(zones: int, products: int, horizon: int, trajectories: int, times: int = 3) -> float:
    """The library's fit, with seeded noise, the lower bound of a fit's time."""
    problem, log = a_shop(products, horizon, trajectories)
    pool = Pool.published(1.0, zones)
    return best(lambda: pool.fit(problem, log, noise=SeededNoise(0)), times, warm=times > 1)


def seconds_of_grid(bins: int, horizon: int, trajectories: int) -> float:
    """The same learner on a grid of cells."""
    problem, log = a_shop(1, horizon, trajectories)
    return best(lambda: dp_apvi(1.0, bins).fit(problem, log, noise=SeededNoise(0)), 3)


def seconds_of_transcription(zones: int, products: int, horizon: int, trajectories: int, times: int = 3) -> float:
    """The plain NumPy of benchmarks/transcription.py."""
    problem, log = a_shop(products, horizon, trajectories)
    rng = np.random.default_rng(0)
    return best(lambda: transcription.published(problem, log, zones=zones, rho=1.0, rng=rng), times, warm=times > 1)


def share_of_noise(
    zones: int, products: int, horizon: int, trajectories: int, secure: bool
) -> tuple[float, float, int]:
    """Seconds of one fit, of drawing its noise, and the cells drawn."""
    problem, log = a_shop(products, horizon, trajectories)
    pool = Pool.published(1.0, zones)
    pool.fit(problem, log, noise=SeededNoise(0))
    noise = TimedNoise(SecureNoise() if secure else SeededNoise(0))
    began = time.perf_counter()
    pool.fit(problem, log, noise=noise)
    return time.perf_counter() - began, noise.seconds, noise.cells


BASE = {"zones": 200, "products": 4, "horizon": 10, "trajectories": 10_000}
GROWTH: dict[str, tuple[int, ...]] = {
    "zones": (100, 200, 400, 800),
    "products": (1, 2, 4, 8),
    "horizon": (5, 10, 20, 40),
    "trajectories": (2_500, 10_000, 40_000, 160_000),
}


def against_the_transcription(report: Report) -> None:
    """The library and plain NumPy on the same jobs."""
    rows = []
    for zones, products, horizon in ((100, 1, 5), (200, 1, 10), (100, 4, 10), (200, 4, 10), (200, 8, 10)):
        job = (zones, products, horizon, 10_000)
        mine, memory = apart(seconds_of_published, *job)
        plain, plain_memory = apart(seconds_of_transcription, *job, 2)
        size = str(zones), str(2 * products), str(horizon)
        rows.append(
            [*size, f"{mine:.3f}", f"{plain:.2f}", f"{plain / mine:.1f}", f"{memory:.0f}", f"{plain_memory:.0f}"]
        )
    header = ("M", "w + d", "H", "library s", "plain NumPy s", "plain / library", "library MiB", "plain MiB")
    report.table(
        header, rows, title="`Pool.published(1.0, M)` and Algorithm 1 as plain NumPy, n = 10,000, seeded noise"
    )
    seconds, memory = apart(seconds_of_published, 800, 8, 40, 10_000, 1)
    report.text(
        f"M = 800, w + d = 16, H = 40, n = 10,000: {seconds:.1f} s, peak {memory:,.0f} MiB of the whole process."
    )


def against_its_noise(report: Report) -> None:
    """How much of a fit is the drawing of its noise."""
    rows = []
    for secure in (True, False):
        (whole, noise, cells), _ = apart(share_of_noise, *BASE.values(), secure)
        kind = "exact, unseeded (private)" if secure else "seeded (not private)"
        rows.append([kind, f"{cells:,}", f"{noise:.2f}", f"{whole:.2f}", f"{whole / noise:.2f}"])
    header = ("noise", "cells drawn", "noise s", "fit s", "fit / noise")
    report.table(header, rows, title="`Pool.published(1.0, 200)`, w = d = 4, H = 10, n = 10,000")


def growth(report: Report) -> None:
    """Exponents of the published fit, one dimension at a time."""
    rows = []
    for name, sizes in GROWTH.items():
        seconds = [apart(seconds_of_published, *(BASE | {name: size}).values())[0] for size in sizes]
        rows.append(
            [name, ", ".join(map(str, sizes)), ", ".join(f"{s:.2f}" for s in seconds), exponent(sizes, seconds)]
        )
    header = ("grows", "sizes", "seconds", "exponent")
    report.table(header, rows, title="How `Pool.published` grows around M = 200, w = d = 4, H = 10, n = 10,000")


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> str:
    """The slope of log time over log size with its 95% interval."""
    fit = stats.linregress(np.log(sizes), np.log(seconds))
    half = stats.t.ppf(0.975, len(sizes) - 2) * fit.stderr
    return f"{fit.slope:.2f} ± {half:.2f}"


def work(report: Report, _: argparse.Namespace) -> None:
    """All three."""
    against_the_transcription(report)
    against_its_noise(report)
    growth(report)


if __name__ == "__main__":
    run(Report("fitting", "The published algorithm", ("geometry", "learning", "privacy")), work)
