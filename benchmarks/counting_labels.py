"""Counting a log with labels and a scale: our expression against DuckDB's SQL by hand, for the same counts.

    python -m benchmarks.counting_labels            # up to 1e7 rows, from a Parquet file
    python -m benchmarks.counting_labels --rows 1e9 # ... and ours on 1e9 rows that are never stored: 30 GB of disk

One product, 10 steps, a thousand stores. A formula of the row's number gives every column, so that a log that the
engine makes on the fly is the same at every scan. A few trajectories have a step twice, a few stores were not declared,
and a few scales are zero or missing.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import ibis.expr.types as ir
import numpy as np

from benchmarks.report import Report, apart, run
from poolrl import LostSales, Outcomes, Table
from poolrl.data.log import Columns
from poolrl.data.sources.duckdb import connected, shut
from poolrl.data.sources.opening import DUCKDB_SETTINGS, open_source

STEPS, STORES, BOUND, RHO = 10, 1000, 8.0, 1.0
COLUMNS = Columns("trajectory", "step", ("s",), ("a",), ("n",), scale=("expected",), labels={"store": "store"})
STORED, ROUNDS = (10**6, 10**7), 3


def log_query(rows: int) -> str:
    """A SELECT that makes the log: stores 0 .. 1003, of which 1 .. 1000 are declared."""
    mixed = "(i * 2654435761) % 4294967296"
    left = "greatest(a - ((h // 4096) % 2001) * 0.05::DOUBLE, 0)"
    number = (
        f"SELECT i, {mixed} AS h, i // {STEPS} AS trajectory, ((i // {STEPS}) * 7919) % 1004 AS store, "
        f"CASE WHEN i % {1000 * STEPS} = 3 THEN 2 ELSE i % {STEPS} END AS step FROM range({rows}) AS r(i)"
    )
    amounts = "SELECT *, (h % 2001) * 0.05::DOUBLE AS a, 4 + (h // 1048576) % 29 AS size"
    expected = "CASE h % 1009 WHEN 0 THEN NULL WHEN 1 THEN 0.0 ELSE size::DOUBLE END AS expected"
    return f"SELECT trajectory, step, store, {expected}, a / 2 AS s, a, {left} AS n FROM ({amounts} FROM ({number}))"


def make_log(path: Path, rows: int) -> None:
    """Store the log as a Parquet file."""
    with duckdb.connect() as database:
        database.execute("SET enable_progress_bar = false")
        database.execute(f"COPY ({log_query(rows)}) TO '{path}' (FORMAT parquet)")


def bins_of(rows: int) -> int:
    """The number that `Pool` would choose for this number of rows."""
    return Outcomes().level_sizes(a_chain(), slots=rows // STEPS, per_unit=1, rho=RHO)[-1]


def a_chain() -> LostSales:
    """Many stores of one product."""
    stores = {"store": range(1, STORES + 1)}
    return LostSales(horizon=STEPS, holding=0.2, shortage=0.4, demand_max=BOUND, labels=stores)


@contextmanager
def _opened(path: str | None, rows: int) -> Iterator[ir.Table]:
    """The file as `poolrl fit` opens it, or a log that is made on the fly by a connection with the same settings."""
    if path is not None:
        with open_source(path, COLUMNS) as opened:
            yield opened.rows
        return
    with (
        tempfile.TemporaryDirectory() as spill,
        connected(":memory:", DUCKDB_SETTINGS | {"temp_directory": spill}) as database,
    ):
        database.execute(f"CREATE VIEW log AS {log_query(rows)}")
        yield shut(database).table("log")


def ours(path: str | None, rows: int) -> Any:
    """The expression of `Table`."""
    problem = a_chain()
    names: dict[str, Any] = {part: getattr(COLUMNS, part) for part in ("states", "actions", "next_states", "scale")}
    with _opened(path, rows) as table:
        log = Table(table, trajectory="trajectory", step="step", labels=["store"], **names)
        log.check(problem)
        return log.outcome_leaves(problem, bins=bins_of(rows))


def sql(path: str | None, rows: int) -> Any:
    """What a DuckDB expert would write for exactly these columns."""
    bins = bins_of(rows)
    log = f"'{path}'" if path is not None else "log"
    amounts = ("s", "a", "n")
    finite = " AND ".join(f"{x} - {x} = 0 AND {x} BETWEEN -1e100 AND 1e100" for x in amounts)
    fine = f"expected - expected = 0 AND expected BETWEEN 1e-50 AND 1e50 AND {finite}"
    positive = " AND ".join(f"{x} / expected >= -8e-9" for x in amounts)
    seen = "(a / expected - n / expected)"
    possible = f"{fine} AND {positive} AND a / expected >= s / expected - 8e-9 AND {seen} >= -8e-9"
    leaf = f"least(floor(sqrt(greatest({seen} / 8.0, 0)) * {bins}), {bins - 1})::INT"
    cell = f"{leaf} + (n / expected <= 8e-9 OR {seen} >= 8.0)::INT * {bins}"
    named = f"trajectory IS NOT NULL AND step BETWEEN 0 AND {STEPS - 1}"
    dropped = (
        f"SELECT trajectory FROM {log} WHERE {named} "
        "GROUP BY trajectory HAVING count(*) <> bit_count(bit_or(1 << step))"
    )
    counted = (
        f"SELECT store, step, {cell} AS cell, count(*) AS rows FROM {log} ANTI JOIN dropped USING (trajectory) "
        f"WHERE {named} AND store BETWEEN 1 AND {STORES} AND {possible} GROUP BY ALL"
    )
    leaves = np.zeros((STORES, STEPS, 1, 2 * bins), dtype=np.int64)
    with (
        tempfile.TemporaryDirectory() as spill,
        duckdb.connect(config={**DUCKDB_SETTINGS, "temp_directory": spill}) as database,
    ):
        database.execute("SET enable_progress_bar = false")
        if path is None:
            database.execute(f"CREATE VIEW log AS {log_query(rows)}")
        answer = database.sql(f"WITH dropped AS MATERIALIZED ({dropped}) {counted}")
        for batch in answer.to_arrow_reader(10**6):
            store, step, leaf_of, many = (batch[name].to_numpy() for name in ("store", "step", "cell", "rows"))
            leaves[store - 1, step, 0, leaf_of] = many
    return leaves


OURS, HAND = "poolrl Table (Ibis, DuckDB)", "DuckDB SQL by hand"
CONTENDERS: dict[str, Callable[[str | None, int], Any]] = {OURS: ours, HAND: sql}


def timed(name: str, path: str | None, rows: int, times: int) -> tuple[float, str, int]:
    """The best of some calls, a digest of what was found, and how many rows were counted."""
    best, found = np.inf, np.zeros(0)
    for _ in range(times):
        start = time.perf_counter()
        found = CONTENDERS[name](path, rows)
        best = min(best, time.perf_counter() - start)
    return best, hashlib.sha256(found.tobytes()).hexdigest(), int(found.sum())


def _stored(rows: int) -> list[list[str]]:
    """The lines of the table for a log in a file."""
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    digests = set()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        make_log(path, rows)
        # In rounds, so that a slow minute of the machine affects both.
        for _ in range(ROUNDS):
            for name in CONTENDERS:
                (seconds, digest, _), memory = apart(timed, name, str(path), rows, 2)
                measured[name].append((seconds, memory))
                digests.add(digest)
    if len(digests) > 1:
        raise SystemExit(f"the contenders disagree on {rows:,} rows")
    best = {name: min(runs)[0] for name, runs in measured.items()}
    peak = {name: max(memory for _, memory in runs) for name, runs in measured.items()}
    return [_line(name, f"{rows:.0e}", rows, best[name], f"{best[name] / best[HAND]:.2f}", peak[name]) for name in best]


def _on_the_fly(rows: int) -> list[str]:
    """The line of the table for a log that is never stored."""
    (seconds, _, counted), memory = apart(timed, OURS, None, rows, 1)
    if not 0.99 * rows < counted < rows:
        raise SystemExit(f"{counted:,} of {rows:,} rows were counted")
    return _line(OURS, f"{rows:.0e}, on the fly", rows, seconds, "", memory)


def _line(name: str, shown: str, rows: int, seconds: float, ratio: str, memory: float) -> list[str]:
    return [name, shown, f"{bins_of(rows)}", f"{seconds:.2f}", ratio, f"{memory:,.0f}"]


def work(report: Report, arguments: argparse.Namespace) -> None:
    """Every size of a file up to the one asked for; a larger log is made on the fly."""
    lines = [line for rows in STORED if rows <= arguments.rows for line in _stored(rows)]
    if arguments.rows > max(STORED):
        lines.append(_on_the_fly(int(arguments.rows)))
    report.table(("contender", "rows", "bins", "seconds", "time / by hand", "peak MiB"), lines)
    report.text(
        f"One product, {STEPS} steps, {STORES:,} stores, a scale. Stored logs: best of {2 * ROUNDS}, and both found "
        "the same counts. On the fly (`--rows 1e9`): ours alone, once; of its counts only the sum is checked. Bins are "
        f"as many as `Pool` would choose. DuckDB may use {DUCKDB_SETTINGS['memory_limit']} of memory, and the disk "
        "beyond it."
    )


if __name__ == "__main__":
    run(
        Report("counting_labels", "Counting a log with labels and a scale", ("data", "geometry")),
        work,
        rows=(1e7, "largest log"),
    )
