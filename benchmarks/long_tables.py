"""Counting products: a table with one row per product against the same log with three columns per product.

    python -m benchmarks.long_tables                  # 40 products, 200 weeks, both forms; then 500 products, long
    python -m benchmarks.long_tables --weeks 20000    # 70 million rows for the second table

Logs are made on the fly in Parquet files: weeks of seven days, ids and products as text, a bound and a boundary of its
own for every product. Each count runs in its own process and opens the file as `poolrl fit` does. Both forms must give
the same counts.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.report import Report, apart, run
from poolrl import LostSales, Outcomes, Table
from poolrl.data.log import Columns
from poolrl.data.periods import sketch_of
from poolrl.data.sources.opening import DUCKDB_SETTINGS, open_source

DAYS, RHO, ROUNDS = 7, 1.0, 2
SMALL, LARGE = (40, 200), 500
LONG, WIDE = "one row per product", "three columns per product"


def make_long(path: Path, products: int, weeks: int) -> None:
    """Write a log with one row per week, day and product; fifty weeks belong to a shop."""
    order = "((i * 2654435761) % 4294967296 // 65536 % 2001) * 0.05::DOUBLE"
    left = "greatest(a - ((i * 40503 + 17) % 65536 % 2001) * 0.05::DOUBLE, 0)"
    week = f"i // {products * DAYS}"
    ids = f"'shop ' || ({week} // 50) AS shop, 'w' || ({week}) AS week, (i // {products}) % {DAYS} AS day"
    number = (
        f"SELECT {ids}, 'p' || (i % {products}) AS product, {order} AS a, i FROM range({weeks * DAYS * products}) r(i)"
    )
    _write(path, f"SELECT shop, week, day, product, a / 2 AS s, a, {left} AS n FROM ({number})")


def make_wide(path: Path, long: Path, products: int) -> None:
    """Write the same log with three columns per product."""
    names = ", ".join(
        f"max({part}) FILTER (product = 'p{i}') AS {part}{i}" for part in ("s", "a", "n") for i in range(products)
    )
    _write(path, f"SELECT shop, week, day, {names} FROM '{long}' GROUP BY shop, week, day")


def _write(path: Path, query: str) -> None:
    with duckdb.connect() as database:
        database.execute("SET enable_progress_bar = false")
        database.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")


def a_shop(products: int) -> LostSales:
    """A bound between 50 and 150 and a boundary from 0.7 to 1 for the products, in turn."""
    share = np.linspace(0.7, 1.0, products)
    return LostSales(
        horizon=DAYS,
        products=products,
        holding=0.2,
        shortage=0.4,
        demand_max=np.linspace(50.0, 150.0, products),
        boundary=np.broadcast_to(share, (DAYS, products)),
    )


def count(form: str, path: str, products: int, weeks: int, by_shop: bool) -> tuple[float, float, str]:
    """Seconds for units and outcome counts, seconds for the ledger's marks, and a digest of the counts."""
    parts: dict[str, Any] = {"states": ("s",), "actions": ("a",), "next_states": ("n",), "coordinate": "product"}
    more: dict[str, Any] = {"coordinates": [f"p{i}" for i in range(products)]}
    if form == WIDE:
        parts = {
            name: tuple(f"{part}{i}" for i in range(products))
            for name, part in zip(("states", "actions", "next_states"), "san", strict=True)
        }
        more = {}
    bins = Outcomes().level_sizes(a_shop(products), slots=weeks, per_unit=1, rho=RHO)[-1]
    named: dict[str, Any] = {"trajectory": "week", "step": "day", **parts} | ({"unit": "shop"} if by_shop else {})
    began = time.perf_counter()
    with open_source(path, Columns(**named)) as opened:
        log = Table(opened.rows, **named, **more, max_per_unit=50 if by_shop else 1)
        if not log.slots:
            raise SystemExit("the log has no units")
        leaves = log.outcome_leaves(a_shop(products), bins=bins)
        counted = time.perf_counter()
        sketch_of(log)
    return counted - began, time.perf_counter() - counted, hashlib.sha256(leaves.tobytes()).hexdigest()


def work(report: Report, arguments: argparse.Namespace) -> None:
    """Both forms of a small log, then the long form of a large one."""
    products, weeks = SMALL
    with tempfile.TemporaryDirectory() as folder:
        paths = {LONG: Path(folder) / "long.parquet", WIDE: Path(folder) / "wide.parquet"}
        make_long(paths[LONG], products, weeks)
        make_wide(paths[WIDE], paths[LONG], products)
        found = {form: _best(form, path, products, weeks) for form, path in paths.items()}
        if len({digest for *_, digest in found.values()}) > 1:
            raise SystemExit("the two forms have other counts")
        slow = found[WIDE]
        rows = [
            [
                form,
                f"{seconds:.2f}",
                f"{seconds / slow[0]:.3f}",
                f"{marks:.2f}",
                f"{marks / slow[1]:.3f}",
                f"{mib:,.0f}",
            ]
            for form, (seconds, marks, mib, _) in found.items()
        ]
        header = ("form", "counts s", "/ wide", "marks s", "/ wide", "peak MiB")
        report.table(header, rows, title=f"{products} products, {weeks} weeks of {DAYS} days: the same counts")
        make_long(paths[LONG], LARGE, arguments.weeks)
        rows = []
        for by_shop in (False, True):
            seconds, marks, mib, _ = _best(LONG, paths[LONG], LARGE, arguments.weeks, by_shop)
            unit = "shop" if by_shop else "week"
            rows.append([unit, f"{seconds:.2f}", f"{marks:.2f}", f"{mib:,.0f}"])
        size = f"{LARGE} products, {arguments.weeks:,} weeks: {LARGE * arguments.weeks * DAYS / 1e6:g} million rows"
        report.table(("protected", "counts s", "marks s", "peak MiB"), rows, title=size)
    report.text(
        "Seconds from opening the file to the counts that noise is added to, then for the marks that a ledger keeps of "
        f"a log. Best of {ROUNDS} processes. Every product has a bound and a boundary of its own. DuckDB may use "
        f"{DUCKDB_SETTINGS['memory_limit']} of memory, and the disk beyond it."
    )


def _best(form: str, path: Path, products: int, weeks: int, by_shop: bool = False) -> tuple[float, float, float, str]:
    """The best seconds of some processes, their peak memory in MiB, and the digest."""
    runs = [apart(count, form, str(path), products, weeks, by_shop) for _ in range(ROUNDS)]
    seconds, marks = (min(found[place] for found, _ in runs) for place in (0, 1))
    return seconds, marks, max(memory for _, memory in runs), runs[0][0][2]


if __name__ == "__main__":
    run(Report("long_tables", "Counting products: rows or columns"), work, weeks=(2_000, "weeks of the large log"))
