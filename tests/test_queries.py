"""What a query of the user's costs when it fails: nothing, if no row decided that; its ρ, if one may have."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from poolrl.app.toml import write_toml
from poolrl.data.engines import interruptible
from poolrl.data.sources import _connected
from tests.test_fit import spent

Facts = dict[str, dict[str, Any]]
# Two questions about one row, which a failure would answer.
CAST = "(CASE WHEN trajectory = 7 AND step = 1 AND action_0 > 0 THEN 'x' ELSE '1' END)::DOUBLE"
NOBODY = "EXISTS (SELECT 1 FROM log WHERE trajectory = 7 AND step = 1 AND action_0 < 0)"


def fails(tmp_path: Path, facts: Facts, query: str, run: Callable[..., str]) -> str:
    facts["log"]["query"] = query
    (tmp_path / "poolrl.toml").write_text(write_toml(facts))
    with pytest.raises(ValueError, match="spent") as caught:
        run("fit", "--config", tmp_path / "poolrl.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * REPLACE (nowhere AS state_0) FROM log",
        "SELECT * EXCLUDE (state_0) FROM log",
        "SELECT * FROM elsewhere",
        "SELECT * FRM log",
        "SELECT * FROM log WHERE regexp_matches('a', '(')",
        "SELECT * FROM log LIMIT 'x'",
    ],
)
def test_what_no_row_decides_costs_nothing(tmp_path: Path, facts: Facts, query: str, run: Callable[..., str]) -> None:
    assert "Nothing was spent" in fails(tmp_path, facts, query, run)
    assert spent(tmp_path) == 0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"SELECT * REPLACE ({CAST} AS state_0) FROM log", "ConversionException"),
        (f"SELECT * FROM log WHERE {NOBODY}", "must not be empty"),
    ],
    ids=["a cast", "nobody left"],
)
def test_what_a_row_may_have_decided_is_paid_for(
    tmp_path: Path, facts: Facts, query: str, message: str, run: Callable[..., str]
) -> None:
    """Otherwise it would be a question about one row, answered for nothing, as often as one likes."""
    said = fails(tmp_path, facts, query, run)
    assert message in said
    assert "tells of them, so its rho = 0.5 stays spent" in said
    assert spent(tmp_path) == Fraction(1, 2)
    with pytest.raises(SystemExit):  # for the data holder's eyes, and free
        run("check", "--config", tmp_path / "poolrl.toml")
    assert spent(tmp_path) == Fraction(1, 2)


def test_a_log_without_rows_costs_nothing(tmp_path: Path, facts: Facts, run: Callable[..., str]) -> None:
    """How many units a log has is public, and a file is not a question."""
    table = pq.read_table(tmp_path / "log.parquet")
    pq.write_table(table.slice(0, 0), tmp_path / "log.parquet")
    (tmp_path / "poolrl.toml").write_text(write_toml(facts))
    with pytest.raises(ValueError, match=r"must not be empty.*Nothing was spent"):
        run("fit", "--config", tmp_path / "poolrl.toml")
    assert spent(tmp_path) == 0


LONG = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"


def test_a_signal_stops_a_query() -> None:
    """DuckDB would look up from it after minutes, if at all."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with _connected(":memory:", {}) as database:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                interruptible(lambda: database.execute(LONG), database.interrupt)
            assert database.execute("SELECT 1").fetchall() == [(1,)]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_duckdbs_own_word_for_a_signal_is_one() -> None:
    with pytest.raises(KeyboardInterrupt), _connected(":memory:", {}):
        raise RuntimeError("Query interrupted")
    with pytest.raises(RuntimeError, match="something else"), _connected(":memory:", {}):
        raise RuntimeError("something else")


def test_a_connection_that_another_thread_holds_hides_no_signal() -> None:
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt), _connected(":memory:", {}) as database:  # noqa: PT012
            waiting = pool.submit(database.execute, LONG)
            time.sleep(0.2)
            raise KeyboardInterrupt
        while not waiting.done():
            database.interrupt()
            wait([waiting], timeout=0.05)
    assert isinstance(waiting.exception(), duckdb.Error)
