"""Macros and views of a DuckDB file do not run inside our counts, and a certificate tells those in reach."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from poolrl.data.sources import duckdb as duckdb_files
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.open_log import open_log
from tests.helpers.duckdb_files import hostile, write_file
from tests.helpers.ledgers import spent
from tests.helpers.shops import Facts, Run, message_of_failed_fit, write_config
from tests.helpers.sources import seen, units_in, usually_seen

pytestmark = pytest.mark.usefixtures("no_page")

QUERY = "SELECT * FROM x"


@pytest.mark.slow
def test_no_macro_of_a_file_runs_in_a_count(tmp_path: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is called. This many would be refused by their size, which is not what is tested here."""
    monkeypatch.setattr("poolrl.data.sources.duckdb.MOST_DEFINITIONS", 2**30)
    expected = usually_seen(tmp_path, facts)
    statements = list(hostile())
    assert len(statements) > 1000
    write_file(tmp_path / "shop.duckdb", tmp_path / "log.parquet", *statements)
    assert seen(tmp_path, facts, source="shop.duckdb", query=QUERY) == expected


def test_a_macro_called_floor_does_not_run_in_a_count(
    tmp_path: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting where the file's names are known, as before, gives other counts."""
    expected, log = usually_seen(tmp_path, facts), {"source": "shop.duckdb", "query": QUERY}

    def stay(query: str, database: duckdb.DuckDBPyConnection, inside: str | None, *_: object) -> None:
        database.execute(f"USE {inside}")
        database.execute(f"CREATE TEMP TABLE {duckdb_files.ANSWER} AS {query}")

    write_file(tmp_path / "shop.duckdb", tmp_path / "log.parquet", "CREATE MACRO floor(v) AS 0")
    assert seen(tmp_path, facts, **log) == expected
    monkeypatch.setattr(duckdb_files, "_keep_answer", stay)
    assert seen(tmp_path, facts, **log) != expected


def test_a_query_still_uses_the_files_own_names(tmp_path: Path, facts: Facts) -> None:
    """Its macros, views and enumerations mean what the file says, wherever the query names them."""
    expected = usually_seen(tmp_path, facts)
    write_file(
        tmp_path / "shop.duckdb",
        tmp_path / "log.parquet",
        "CREATE MACRO floor(v) AS v + 0",
        "CREATE SCHEMA till",
        "CREATE TYPE place AS ENUM ('Here', 'there')",
        "CREATE VIEW till.v AS SELECT * REPLACE (floor(step) AS step), 'Here'::place AS shop FROM x",
    )
    for query in ("FROM till.v", "FROM shop.till.v", "SELECT * REPLACE (shop.main.floor(step) AS step) FROM till.v"):
        assert seen(tmp_path, facts, source="shop.duckdb", query=query) == expected
    facts["privacy"] |= {"unit": "shop", "max_per_unit": 300}
    assert units_in(tmp_path, facts, source="shop.duckdb", query="FROM till.v") == 1


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        *((name, []) for name in ("memory", "temp", "poolrl_file", "two words")),
        ("shop", ["CREATE SCHEMA memory.shop"]),
    ],
)
def test_a_file_of_any_name(tmp_path: Path, facts: Facts, name: str, statements: list[str]) -> None:
    """And a schema of the name of a catalogue."""
    write_file(tmp_path / f"{name}.duckdb", tmp_path / "log.parquet", *statements)
    assert units_in(tmp_path, facts, source=f"{name}.duckdb", query=QUERY) == 300


def told(folder: Path, facts: Facts, query: str) -> tuple[str, ...]:
    """What the certificate would tell."""
    facts["log"] |= {"source": "shop.duckdb", "query": query}
    with open_log(load_config(write_config(folder, facts))) as log:
        return log.definitions


SALES = "CREATE VIEW sales AS SELECT * FROM x WHERE (step < most(3));"
MOST = "CREATE MACRO most (v, extra := 1) AS ((v + extra));"
OTHERS = (
    "CREATE VIEW angry AS SELECT * FROM x WHERE 'Bob Miller' <> ''",
    "CREATE MACRO few(n) AS TABLE SELECT * FROM x LIMIT n",
)


def test_views_and_macros_that_a_query_can_use_are_told(tmp_path: Path, facts: Facts) -> None:
    """With the defaults of macros, through views of views, and no others."""
    write_file(
        tmp_path / "shop.duckdb",
        tmp_path / "log.parquet",
        *(MOST, SALES, *OTHERS),
        'CREATE VIEW "Two ""words" AS FROM sales',
        # What would hide them, if it were asked. Its name is one of DuckDB's.
        "CREATE MACRO duckdb_views() AS TABLE SELECT 'nothing' AS sql, false AS internal, 'shop' AS database_name",
    )
    hides, *known = told(tmp_path, facts, "FROM SALES")
    assert hides.startswith("CREATE MACRO duckdb_views")
    assert known == [MOST, SALES]
    assert list(told(tmp_path, facts, "FROM x")) == [hides]
    wide = told(tmp_path, facts, 'FROM "two ""Words"')
    assert {MOST, SALES} < {*wide}
    assert len(wide) == 4  # and none of Bob's
    assert [text.split(" (")[0] for text in told(tmp_path, facts, "FROM few(900)")][1:] == ["CREATE MACRO few"]
    # Names that are put together: anything may be used.
    assert len(told(tmp_path, facts, "FROM query('FROM sal' || 'es')")) == 6


def test_macros_that_run_without_their_names_are_told(tmp_path: Path, facts: Facts) -> None:
    plus, count = 'CREATE MACRO "+" (a, b) AS (a);', "CREATE MACRO count_star () AS (5);"
    write_file(tmp_path / "shop.duckdb", tmp_path / "log.parquet", plus, count, *OTHERS)
    assert told(tmp_path, facts, "SELECT * REPLACE (step+0 AS step) FROM x") == (plus, count)


def test_definitions_that_are_too_long_cost_nothing(tmp_path: Path, facts: Facts, run: Run) -> None:
    long = f"CREATE VIEW long AS SELECT *, '{'y' * 2**18}' AS note FROM x"
    write_file(tmp_path / "shop.duckdb", tmp_path / "log.parquet", long)
    assert "more than 262,144 bytes" in message_of_failed_fit(tmp_path, shop(facts), "FROM long", run)
    assert spent(tmp_path) == 0
    assert told(tmp_path, facts, "FROM x") == ()


def shop(facts: Facts) -> Facts:
    facts["log"]["source"] = "shop.duckdb"
    return facts
