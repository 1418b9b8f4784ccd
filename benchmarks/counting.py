"""Counting a log's outcomes: `Table` beside DuckDB's SQL by hand, `Trajectories` beside NumPy by hand.

    python -m benchmarks.counting            # up to 1e7 rows; some minutes
    python -m benchmarks.counting --rows 1e6

Logs are made on the fly: 4 products, 10 steps, numbers that are multiples of 0.05. Every contender runs in its own
process and reads the same Parquet file. It drops the rows that `data/table.py` leaves unobserved, and must find the
same counts.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import numpy as np

from benchmarks.report import Report, apart, run
from poolrl import LostSales, Table, Trajectories
from poolrl.data.log import Columns
from poolrl.data.sources.opening import DUCKDB_SETTINGS, open_source

PRODUCTS, STEPS, BINS, BOUND = 4, 10, 512, 100.0
# What DuckDB may use before it works on disk, as in our own connection.
MEMORY = DUCKDB_SETTINGS["memory_limit"]


def make_log(path: Path, rows: int, *, messy: bool) -> None:
    """Make a log. In a messy one, one trajectory in a thousand has a step twice, and one number in 1000 is missing."""
    missing = "CASE WHEN random() < 0.001 THEN NULL ELSE {} END" if messy else "{}"
    orders = ", ".join(f"floor(random() * 2001) * 0.05 AS a{i}" for i in range(PRODUCTS))
    left = [missing.format(f"greatest(a{i} - floor(random() * 2001) * 0.05, 0)") for i in range(PRODUCTS)]
    others = ", ".join(f"{left[i]} AS n{i}, a{i} / 2 AS s{i}" for i in range(PRODUCTS))
    step = f"CASE WHEN i % {1000 * STEPS} = 3 THEN 2 ELSE i % {STEPS} END" if messy else f"i % {STEPS}"
    with duckdb.connect() as database:
        database.execute("SET enable_progress_bar = false")
        database.execute("SELECT setseed(0.5)")
        database.execute(
            f"COPY (SELECT *, {others} FROM (SELECT i // {STEPS} AS trajectory, {step} AS step, {orders} "
            f"FROM range({rows}) AS r(i))) TO '{path}' (FORMAT parquet)"
        )


def _job() -> tuple[LostSales, Columns]:
    parts = [tuple(f"{part}{i}" for i in range(PRODUCTS)) for part in "san"]
    problem = LostSales(horizon=STEPS, products=PRODUCTS, holding=0.2, shortage=0.4, demand_max=BOUND)
    return problem, Columns("trajectory", "step", parts[0], parts[1], parts[2])


def ours(path: str) -> Any:
    """The expression of `Table`, as `poolrl fit` runs it."""
    problem, columns = _job()
    with open_source(path, columns) as opened:
        names: dict[str, Any] = {s: getattr(columns, s) for s in ("states", "actions", "next_states")}
        return Table(opened.rows, trajectory="trajectory", step="step", **names).outcome_leaves(problem, bins=BINS)


def arrays(path: str) -> Any:
    """The library's NumPy path: the log as arrays in memory, every row checked."""
    problem, columns = _job()
    names = {"states": columns.states, "actions": columns.actions, "next_states": columns.next_states}
    log = Trajectories.from_parquet(path, trajectory="trajectory", step="step", **names)
    log.check(problem)
    return log.outcome_leaves(problem, bins=BINS)


def guarded(path: str) -> Any:
    """The SQL by hand with our own settings: DuckDB then makes no use of statistics, which leave out NaN."""
    return sql(path, DUCKDB_SETTINGS)


def sql(path: str, settings: Mapping[str, str] = MappingProxyType({"memory_limit": MEMORY})) -> Any:
    """What a DuckDB expert would write for exactly these columns."""

    def tally(i: int) -> str:
        s, a, n = f"s{i}", f"a{i}", f"n{i}"
        fine = " AND ".join(f"{x} - {x} = 0 AND {x} BETWEEN -1e-7 AND 100.0000001" for x in (s, a, n))
        leaf = f"least(floor(sqrt(greatest(({a} - {n}) / 100.0, 0)) * {BINS}), {BINS - 1})"
        cell = f"{leaf}::INT + ({n} <= 1e-7)::INT * {BINS}"
        possible = f"{fine} AND {a} >= {s} - 1e-7 AND {a} - {n} BETWEEN -1e-7 AND 100.0000001"
        return (
            f"SELECT {i} AS i, step, CASE WHEN {possible} THEN {cell} ELSE -1 END AS cell, count(*) AS rows "
            f"FROM '{path}' ANTI JOIN dropped USING (trajectory) "
            f"WHERE trajectory IS NOT NULL AND step BETWEEN 0 AND {STEPS - 1} GROUP BY ALL"
        )

    dropped = (
        f"SELECT trajectory FROM '{path}' WHERE trajectory IS NOT NULL AND step BETWEEN 0 AND {STEPS - 1} "
        "GROUP BY trajectory HAVING sum(1 << step) <> bit_or(1 << step)"
    )
    with tempfile.TemporaryDirectory() as spill, duckdb.connect(config={**settings}) as database:
        database.execute("SET enable_progress_bar = false")
        database.execute(f"SET temp_directory = '{spill}'")
        union = " UNION ALL ".join(tally(i) for i in range(PRODUCTS))
        found = database.execute(f"WITH dropped AS MATERIALIZED ({dropped}) {union}").fetchnumpy()
    return _scattered(found["step"], found["i"], found["cell"], found["rows"])


def numpy(path: str) -> Any:
    """The columns as arrays, two passes for each product."""
    import pyarrow.parquet as pq

    def column(name: str) -> Any:
        return pq.read_table(path, columns=[name])[name].to_numpy()  # NULL becomes NaN

    step = column("step")
    ids, trajectory = np.unique(column("trajectory"), return_inverse=True)  # ids may be any numbers
    kept = (step >= 0) & (step < STEPS)
    repeated = np.bincount((trajectory * STEPS + step)[kept], minlength=len(ids) * STEPS) > 1
    spoilt: Any = repeated.reshape(len(ids), STEPS).any(axis=1)
    kept &= ~spoilt[trajectory]
    leaves = np.zeros((STEPS, PRODUCTS, 2 * BINS), dtype=np.int64)
    for i in range(PRODUCTS):
        s, a, n = (column(f"{part}{i}") for part in "san")
        usable = kept & (a >= s - 1e-7) & (a - n >= -1e-7) & (a - n <= BOUND + 1e-7)
        for x in (s, a, n):
            usable &= (x >= -1e-7) & (x <= BOUND + 1e-7)
        with np.errstate(invalid="ignore"):
            leaf = np.minimum(np.floor(np.sqrt(np.maximum((a - n) / BOUND, 0)) * BINS), BINS - 1)
        cell = (step * 2 + (n <= 1e-7)) * BINS + np.where(usable, leaf, 0).astype(np.int64)
        leaves[:, i] = np.bincount(cell[usable], minlength=STEPS * 2 * BINS).reshape(STEPS, -1)
    return leaves


def _scattered(step: Any, product: Any, cell: Any, rows: Any) -> Any:
    leaves = np.zeros((STEPS, PRODUCTS, 2 * BINS), dtype=np.int64)
    seen = cell >= 0
    leaves[step[seen], product[seen], cell[seen]] = rows[seen]
    return leaves


ROUNDS = 3
# Ours, then the contender by hand that it is compared with.
PAIRS: dict[str, tuple[Callable[[str], Any], Callable[[str], Any]]] = {
    "Table / DuckDB SQL": (ours, sql),
    "Table / the same SQL, our settings": (ours, guarded),
    "Trajectories / NumPy": (arrays, numpy),
}


def timed(contender: Callable[[str], Any], path: str) -> tuple[float, str]:
    """The better of two calls, and a digest of what was found."""
    best, found = np.inf, b""
    for _ in range(2):
        start = time.perf_counter()
        found = np.ascontiguousarray(contender(path)).tobytes()
        best = min(best, time.perf_counter() - start)
    return best, hashlib.sha256(found).hexdigest()


def work(report: Report, arguments: argparse.Namespace) -> None:
    """Every size up to the one asked for."""
    rows = []
    for size, messy in ((10**6, False), (10**7, False), (10**7, True)):
        if size > arguments.rows:
            continue
        shown = f"{size:.0e}" + (", messy" if messy else "")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.parquet"
            make_log(path, size, messy=messy)
            # Arrays are complete: a messy log is refused.
            pairs = {name: pair for name, pair in PAIRS.items() if not (messy and arrays in pair)}
            measured = {
                contender: list[tuple[tuple[float, str], float]]() for pair in pairs.values() for contender in pair
            }
            # In rounds, so that a slow minute of the machine affects all contenders.
            for _ in range(ROUNDS):
                for contender, runs in measured.items():
                    runs.append(apart(timed, contender, str(path)))
        if len({digest for runs in measured.values() for (_, digest), _ in runs}) > 1:
            raise SystemExit(f"the contenders disagree on {size:,} rows")
        for name, pair in pairs.items():
            (ours_took, ours_needed), (hand_took, hand_needed) = (
                (min(seconds for (seconds, _), _ in measured[one]), max(memory for _, memory in measured[one]))
                for one in pair
            )
            took = [f"{ours_took:.2f}", f"{hand_took:.2f}", f"{ours_took / hand_took:.2f}"]
            rows.append([name, shown, *took, f"{ours_needed:,.0f}", f"{hand_needed:,.0f}"])
    report.table(("poolrl / by hand", "rows", "poolrl s", "by hand s", "ratio", "poolrl MiB", "by hand MiB"), rows)
    report.text(
        f"{PRODUCTS} products, {STEPS} steps, {BINS} bins, from Parquet to counts; best of {2 * ROUNDS}; all found the "
        "same counts. Code by hand is written for exactly these columns. In a messy log one number in a thousand is "
        f"missing, and one trajectory in a thousand has a step twice. DuckDB may use {MEMORY} in all of its columns. "
        "Our settings forbid DuckDB to use a file's statistics: they leave out NaN, so that one row would decide how "
        "others are read."
    )


if __name__ == "__main__":
    run(Report("counting", "Counting a log's outcomes", ("data", "geometry")), work, rows=(1e7, "largest log"))
