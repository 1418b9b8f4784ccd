"""The default fit of a log in Parquet, from file to policy: where its time goes, and how it grows.

    python -m benchmarks.growth

Sizes are large, so that constant times (starting an engine, building the expression) do not hide the growth. Every fit
runs in its own process. Times are the best of three.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fitting import TimedNoise, a_shop, exponent
from benchmarks.report import Report, apart, run
from poolrl import Pool, SeededNoise, Table
from poolrl.checks import IntArray
from poolrl.data.log import Columns
from poolrl.data.sources.opening import open_source
from poolrl.privacy.noise.secure import SecureNoise

BASE = {"trajectories": 1_000_000, "horizon": 10, "products": 4}
GROWTH: dict[str, tuple[int, ...]] = {
    "trajectories": (1_000_000, 2_000_000, 4_000_000),
    "horizon": (10, 20, 40),
    "products": (2, 4, 8),
}
PART = 100_000  # trajectories written at a time


@contextmanager
def timed_counting() -> Iterator[list[float]]:
    """How long engines take to count in the block, a number for each count. The door takes no subclass of a table."""
    seconds: list[float] = []
    plain = Table.outcome_leaves

    def counted(log: Table, problem: Any, *, bins: int) -> IntArray:
        began = time.perf_counter()
        leaves = plain(log, problem, bins=bins)
        seconds.append(time.perf_counter() - began)
        return leaves

    with patch.object(Table, "outcome_leaves", counted):
        yield seconds


def write_log(path: Path, *, trajectories: int, horizon: int, products: int) -> None:
    """Write a simulated log; its parts repeat, under new ids."""
    _, log = a_shop(products, horizon, PART)
    table = log.to_arrow()
    ids = np.asarray(table["trajectory"])
    with pq.ParquetWriter(path, table.schema) as writer:
        for start in range(0, trajectories, PART):
            writer.write_table(table.set_column(0, "trajectory", pa.array(ids + start)))


def fit(path: str, horizon: int, products: int, secure: bool, times: int) -> tuple[float, float, float]:
    """The fastest of some default fits: seconds in all, of the engine, and of noise."""
    problem, _ = a_shop(products, horizon, 1)
    parts = [tuple(f"{part}_{i}" for i in range(products)) for part in ("state", "action", "next_state")]
    names: dict[str, Any] = dict(zip(("states", "actions", "next_states"), parts, strict=True))
    found = []
    for _ in range(times):
        noise = TimedNoise(SecureNoise() if secure else SeededNoise(0))
        began = time.perf_counter()
        with open_source(path, Columns("trajectory", "step", parts[0], parts[1], parts[2])) as opened:
            log = Table(opened.rows, trajectory="trajectory", step="step", **names)
            asked = time.perf_counter()
            log.slots  # noqa: B018 - counted once, by the engine
            units = time.perf_counter() - asked
            with timed_counting() as counting:
                Pool(1.0).fit(problem, log, noise=noise)
            found.append((time.perf_counter() - began, units + sum(counting), noise.seconds))
    return min(found)


def work(report: Report, arguments: argparse.Namespace) -> None:
    """Shares of one fit, then exponents one dimension at a time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write_log(path, **BASE)
        rows = []
        for secure in (False, True):
            (whole, engine, noise), memory = apart(fit, str(path), BASE["horizon"], BASE["products"], secure, 3)
            kind = "exact, unseeded (private)" if secure else "seeded (not private)"
            shares = [f"{part / whole:.0%}" for part in (engine, noise, whole - engine - noise)]
            rows.append([kind, f"{whole:.2f}", *shares, f"{memory:.0f}"])
        parts = ("noise", "fit s", "reading and counting", "noise", "the rest", "peak MiB")
        report.table(
            parts, rows, title="`Pool(1.0).fit` of 10 million rows (1,000,000 trajectories, H = 10, 4 products)"
        )
        rows = []
        for name, sizes in GROWTH.items():
            seconds, peaks = [], []
            for size in sizes:
                job = BASE | {name: size}
                write_log(path, **job)
                (whole, _, _), memory = apart(fit, str(path), job["horizon"], job["products"], False, 3)
                seconds.append(whole)
                peaks.append(memory)
            listed = [
                ", ".join(f"{number:{kind}}" for number in many) for many, kind in ((seconds, ".2f"), (peaks, ".0f"))
            ]
            rows.append(
                [name, ", ".join(f"{size:,}" for size in sizes), listed[0], exponent(sizes, seconds), listed[1]]
            )
        header = ("grows", "sizes", "seconds", "exponent", "peak MiB")
        report.table(header, rows, title="How the default fit grows around that size, seeded noise")


if __name__ == "__main__":
    run(Report("growth", "The default fit", ("data", "geometry", "learning", "privacy")), work)
