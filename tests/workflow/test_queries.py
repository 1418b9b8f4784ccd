"""The cost of a log that cannot be read: nothing, if no row decided that; its ρ, if one may have."""

from __future__ import annotations

import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from unittest.mock import Mock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl.data.sources.duckdb import connected
from poolrl.data.sources.engine import interruptible
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.open_log import open_log
from poolrl.workflow.release_folder import fit_release
from tests.helpers.interrupts import interrupted_soon
from tests.helpers.ledgers import spent
from tests.helpers.shops import Facts, Run, message_of_failed_fit, write_config

pytestmark = pytest.mark.usefixtures("no_page")

# A question about one row; two queries whose failure would answer it.
ASKED = "trajectory = 7 AND step = 1 AND action_0 > 0"
CAST = f"SELECT * REPLACE ((CASE WHEN {ASKED} THEN 'x' ELSE '1' END)::DOUBLE AS state_0) FROM log"
NOBODY = f"SELECT * FROM log WHERE NOT EXISTS (SELECT 1 FROM log WHERE {ASKED})"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * REPLACE (nowhere AS state_0) FROM log",
        "SELECT * EXCLUDE (state_0) FROM log",
        "SELECT * FROM elsewhere",
        "SELECT * FRM log",
        "SELECT * FROM log WHERE regexp_matches('a', '(')",
        # DuckDB would read the file in order to explain this, and its rows would be names and kinds of columns.
        "SELECT * FROM read_csv('log.csv', skip=23, header=true)",
        "SELECT * FROM read_parquet('log.parquet')",
        "SELECT *, getenv('HOME') FROM log",
    ],
)
def test_what_no_row_decides_costs_nothing(tmp_path: Path, facts: Facts, query: str, run: Run) -> None:
    assert "Nothing was spent" in message_of_failed_fit(tmp_path, facts, query, run)
    assert spent(tmp_path) == 0


@pytest.mark.parametrize(("query", "message"), [(CAST, "ConversionException"), (NOBODY, "must not be empty")])
def test_what_a_row_may_have_decided_is_paid_for(
    tmp_path: Path, facts: Facts, query: str, message: str, run: Run
) -> None:
    """Otherwise it would be a question about one row, answered at no cost, as often as one likes."""
    said = message_of_failed_fit(tmp_path, facts, query, run)
    assert message in said
    assert "One row may have caused that, so its rho = 0.5 stays spent" in said
    assert spent(tmp_path) == Fraction(1, 2)
    with pytest.raises(SystemExit):  # for the data holder's eyes, and free
        run("check", "--config", tmp_path / "poolrl.toml")
    assert spent(tmp_path) == Fraction(1, 2)
    # The same query works where the row says no.
    facts["log"]["query"] = query.replace("action_0 > 0", "action_0 < 0")
    with open_log(load_config(write_config(tmp_path, facts))) as log:
        assert log.units > 0


def test_that_rows_are_known_is_paid_for(released: Path, facts: Facts, run: Run) -> None:
    """Rows that have an account under another name are refused: an answer to whether they are the same."""
    shutil.rmtree(released / "release")
    facts["privacy"]["data_set"] = "renamed"
    said = message_of_failed_fit(released, facts, "SELECT * FROM log", run)
    assert "a new name gives no new budget. One row may have caused that" in said
    assert spent(released, "renamed") == Fraction(1, 2)


@pytest.mark.parametrize(
    ("query", "where", "cost"),
    [
        (None, "poolrl.workflow.release_folder.sketch_of", 0),  # counting a table does not take longer for one row
        ("SELECT * FROM log", "poolrl.workflow.release_folder.sketch_of", 1),
        ("SELECT * FROM log", "poolrl.data.sources.duckdb.run_query", 1),
        ("SELECT * FROM log", "poolrl.data.sources.duckdb.try_query", 0),  # which has seen no row
        ("SELECT * FROM log", "poolrl.data.sources.duckdb.duckdb.connect", 0),
    ],
)
def test_stopping_a_query_is_paid_for(
    tmp_path: Path, facts: Facts, query: str | None, where: str, cost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take long because of one row."""
    facts["log"]["query"] = query
    file = load_config(write_config(tmp_path, facts))
    monkeypatch.setattr(where, Mock(side_effect=KeyboardInterrupt))
    said = "stopped by KeyboardInterrupt. One row may have" if cost else None
    with pytest.raises(ValueError if cost else KeyboardInterrupt, match=said):
        fit_release(file, tmp_path / "release", new_account=True)
    assert spent(tmp_path) == Fraction(cost, 2)


def test_a_row_at_which_an_engine_fails_is_paid_for(tmp_path: Path, config: Path) -> None:
    """Text that is not UTF-8, in one row of a file that any writer may have made: no query has to ask."""
    table = pq.read_table(tmp_path / "log.parquet")
    ids = [str(i).encode() for i in table["trajectory"].to_pylist()]
    ids[5] = b"\xff\xfe"
    texts = pa.Array.from_buffers(pa.string(), len(ids), pa.array(ids, pa.binary()).buffers())
    # The number of units of a log is public, and a file is not a question: an empty one costs nothing.
    pq.write_table(table.slice(0, 0), tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=r"must not be empty.*Nothing was spent"):
        fit_release(load_config(config), tmp_path / "release", new_account=True)
    assert spent(tmp_path) == 0
    pq.write_table(table.set_column(0, "trajectory", texts), tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=r"InvalidInputException.*One row may have caused that.*stays spent"):
        fit_release(load_config(config), tmp_path / "release")
    assert spent(tmp_path) == Fraction(1, 2)


def test_a_query_on_a_duckdb_file_is_tried_on_its_tables_without_rows(tmp_path: Path, facts: Facts, run: Run) -> None:
    rows = f"FROM read_parquet('{tmp_path / 'log.parquet'}')"
    (tmp_path / "link.duckdb").symlink_to(tmp_path / "a shop's.duckdb")
    with duckdb.connect(tmp_path / "a shop's.duckdb") as database:
        database.execute(f"CREATE SCHEMA till; CREATE TABLE till.log AS {rows}; CREATE VIEW outside AS {rows}")
        database.execute("CREATE MACRO twice(x) AS x + x; CREATE VIEW sales AS FROM till.log; CREATE SEQUENCE numbers")
    facts["log"]["source"] = "link.duckdb"
    nothing = "SELECT * REPLACE (nextval('numbers') AS trajectory) FROM till.log"  # which a file that is read has not
    for query in ("SELECT * FROM log", "SELECT * FROM outside", f"SELECT * {rows}", "SELECT 1 AS state_0", nothing):
        assert "Nothing was spent" in message_of_failed_fit(tmp_path, facts, query, run), query
    assert spent(tmp_path) == 0
    assert "One row may" in message_of_failed_fit(tmp_path, facts, CAST.replace("FROM log", "FROM till.log"), run)
    assert spent(tmp_path) == Fraction(1, 2)
    facts["log"]["query"] = 'SELECT * REPLACE (twice(step) // 2 AS step) FROM "a shop\'s".sales'
    with open_log(load_config(write_config(tmp_path, facts))) as log:
        assert log.units == 300


def test_what_is_written_to_a_duckdb_file_later_changes_no_count(tmp_path: Path, facts: Facts) -> None:
    """The answer is stored, and the file is let go."""
    with duckdb.connect(tmp_path / "shop.duckdb") as database:
        database.execute(f"CREATE TABLE sales AS FROM read_parquet('{tmp_path / 'log.parquet'}')")
    facts["log"] |= {"source": "shop.duckdb", "query": "FROM sales"}
    program = "import duckdb, sys; duckdb.connect(sys.argv[1]).execute('DELETE FROM sales')"
    with open_log(load_config(write_config(tmp_path, facts))) as log:
        subprocess.run([sys.executable, "-c", program, tmp_path / "shop.duckdb"], check=True)
        assert log.units == 300


LONG = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"


def test_a_signal_stops_a_query() -> None:
    """DuckDB would look up from it after minutes, if at all. Its own word for a signal is one."""
    with connected(":memory:", {}) as database:
        with interrupted_soon(database.interrupt):
            interruptible(lambda: database.execute(LONG), database.interrupt)
        assert database.execute("SELECT 1").fetchall() == [(1,)]
    for words, error in (("Query interrupted", KeyboardInterrupt), ("something else", RuntimeError)):
        with pytest.raises(error), connected(":memory:", {}):
            raise RuntimeError(words)
