"""How long does a fit take, and how much memory? Each contender runs in a process of its own.

    python -m benchmarks.speed

Ratios are to the first row; times are the best of three fits (of one where the job is largest); memory is the peak
of the whole process, with the log.
"""

from __future__ import annotations

import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from rich.console import Console
from rich.table import Table

from poolrl import Grid, LostSales, Outcomes, Pool, SeededNoise, Visits, Zones
from poolrl.paper.baselines import dp_apvi


@dataclass(frozen=True)
class Contender:
    """A learner and the size of its job."""

    name: str
    pool: Pool
    trajectories: int
    horizon: int = 10
    products: int = 1
    secure: bool = False
    fits: int = 3


CONTENDERS = [
    Contender("Pool(rho=1)", Pool(1.0), 100_000, products=8),
    Contender("Pool(rho=1), secure noise", Pool(1.0), 100_000, products=8, secure=True),
    Contender("Pool(rho=1)", Pool(1.0), 10_000, products=8),
    Contender("Pool(rho=1)", Pool(1.0), 100_000),
    Contender("Pool.published(rho=1, zones=200)", Pool.published(1.0, 200), 10_000),
    Contender("Pool.published(rho=1, zones=200), secure noise", Pool.published(1.0, 200), 10_000, secure=True),
    Contender("Pool.published(rho=1, zones=100)", Pool.published(1.0, 100), 10_000, products=4),
    Contender("Pool.published(rho=1, zones=800)", Pool.published(1.0, 800), 10_000, horizon=40, products=8, fits=1),
    Contender("Visits + Grid(800) + Bernstein", dp_apvi(1.0, 800), 10_000),
    Contender("Outcomes + Zones(100)", Pool(1.0, Outcomes(), Zones(100)), 10_000),
    Contender("Visits + Grid(20)", Pool(1.0, Visits(), Grid(20)), 10_000),
]


def measure(contender: Contender) -> tuple[float, float]:
    """Seconds of the best fit, and the peak memory of the process in MiB."""
    rng = np.random.default_rng(0)
    shape = (contender.horizon, contender.products)
    problem = LostSales(
        horizon=shape[0],
        products=shape[1],
        holding=rng.uniform(0, 0.5, shape),
        shortage=rng.uniform(0, 0.5, shape),
        demand_max=100.0,
    )
    log = problem.simulate_log(rng.uniform(0, 100, (contender.trajectories, *shape)), rng=rng)
    times = []
    for _ in range(contender.fits):
        start = time.perf_counter()
        contender.pool.fit(problem, log, noise=None if contender.secure else SeededNoise(0))
        times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return min(times), peak / (1024 if sys.platform != "darwin" else 1024**2)


def main() -> None:
    """One process after the other, so that they do not compete."""
    table = Table(title="One fit: best time, peak memory of the process", title_justify="left")
    for column in ("learner", "n", "H", "products", "seconds", "ratio", "log MiB", "peak MiB"):
        table.add_column(column, justify="left" if column == "learner" else "right")
    first = None
    for contender in CONTENDERS:
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            seconds, memory = pool.submit(measure, contender).result()
        first = first or seconds
        size = f"{contender.trajectories:,}", str(contender.horizon), str(contender.products)
        log_size = 3 * 8 * contender.trajectories * contender.horizon * contender.products / 2**20
        row = f"{seconds:.2f}", f"{seconds / first:.2f}", f"{log_size:.0f}", f"{memory:.0f}"
        table.add_row(contender.name, *size, *row)
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
