"""Tables wherever they lie: the same log from every source, and no value of it in any message."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.helpers.shops import Facts
from tests.helpers.sources import SECRET, seen, units_in


def with_secret(table: pa.Table, column: str = "action_0") -> pa.Table:
    values = table[column].to_pylist()
    values[4] = SECRET
    return table.set_column(table.column_names.index(column), column, pa.array(values))


@pytest.fixture
def everywhere(tmp_path: Path, facts: Facts) -> dict[str, dict[str, Any]]:
    """The small shop's table, written in every way; sources and queries."""
    table = pq.read_table(tmp_path / "log.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "log.csv")
    (tmp_path / "parts" / "deeper").mkdir(parents=True)
    (tmp_path / "texts").mkdir()
    half = 450
    pq.write_table(table[half:], tmp_path / "parts" / "a.parquet")  # the order of rows does not matter
    pq.write_table(table[:half], tmp_path / "parts" / "deeper" / "b.parquet")
    pyarrow.csv.write_csv(table[:half], tmp_path / "texts" / "1.csv")
    pyarrow.csv.write_csv(table[half:], tmp_path / "texts" / "2.csv")
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as file:
        file.register("frame", table)
        file.sql("CREATE TABLE log AS FROM frame")
    return {
        "parquet": {"source": "log.parquet"},
        "csv": {"source": "log.csv"},
        "folder of parquet": {"source": "parts"},
        "glob of parquet": {"source": "parts/**/*.parquet"},
        "folder of csv": {"source": "texts"},
        "glob of csv": {"source": "texts/?.csv"},
        "duckdb": {"source": "shop.duckdb", "query": "SELECT * FROM log ORDER BY random()"},
        "query over a file": {"source": "log.csv", "query": "FROM log"},
    }


@pytest.mark.parametrize("sources", ["typical", pytest.param("all", marks=pytest.mark.slow)])
def test_every_source_gives_the_same_log(tmp_path: Path, facts: Facts, everywhere: Facts, sources: str) -> None:
    found = {
        name: seen(tmp_path, facts, **log)
        for name, log in everywhere.items()
        if sources == "all" or name in ("parquet", "glob of csv", "duckdb")
    }
    assert set(found.values()) == {found["parquet"]}, found
    table = pq.read_table(tmp_path / "log.parquet")
    values = table["state_0"].to_pylist()
    values[7] += 1e-9
    pq.write_table(table.set_column(2, "state_0", pa.array(values)), tmp_path / "log.parquet")
    assert seen(tmp_path, facts).marks != found["parquet"].marks


def test_ids_of_a_csv_are_text(tmp_path: Path, facts: Facts) -> None:
    """Twenty digits stay twenty digits, and no row decides how another one's id is read."""
    table = pq.read_table(tmp_path / "log.parquet")
    for name in ("123456789012345678{:02d}", "{}", "x{}"):
        ids = [name.format(i) for i in range(30)] + [f"{i:03d}" for i in range(1000, 1070)]
        rows = pa.array(ids).take(table["trajectory"].combine_chunks()[:300])
        pyarrow.csv.write_csv(table[:300].set_column(0, "trajectory", rows), tmp_path / "log.csv")
        assert units_in(tmp_path, facts, source="log.csv") == 100


def test_what_cannot_be_read_is_said_without_quoting_the_log(tmp_path: Path, facts: Facts) -> None:
    table = with_secret(pq.read_table(tmp_path / "log.parquet"))
    text = table.set_column(0, "trajectory", pa.array([f"id {SECRET}"] * 900))
    pq.write_table(table, tmp_path / "log.parquet")
    pq.write_table(text, tmp_path / "text.parquet")
    (tmp_path / "short.csv").write_text(f"trajectory,step\n1,2\n{SECRET}\n")
    (tmp_path / "none.csv").write_text(f"{SECRET},{SECRET}\n1,2\n")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "log.parquet").read_bytes()[:-20])
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    shutil.copy(tmp_path / "log.parquet", tmp_path / "mixed")
    shutil.copy(tmp_path / "short.csv", tmp_path / "mixed")
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as file:
        file.register("frame", text)
        file.sql("CREATE TABLE log AS FROM frame")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"source": "nowhere.csv"}, "there is no file"),
        ({"source": "*.nothing"}, "there is no file"),
        ({"source": "empty"}, "there is no file"),
        ({"source": "nowhere.duckdb", "query": "FROM log"}, "there is no file"),
        ({"source": "mixed"}, "all of one format"),
        ({"source": "short.csv"}, "must have one column 'state_0'"),
        ({"source": "none.csv"}, "not a readable CSV file"),
        ({"source": "cut.parquet"}, "not a readable Parquet or CSV file"),
        ({"source": "shop.duckdb"}, "a DuckDB file needs a query"),
        (
            {"source": "shop.duckdb", "query": "SELECT * REPLACE (trajectory::INT AS trajectory) FROM log"},
            "DuckDB refused .*ConversionException",
        ),
        ({"source": "short.csv", "query": "SELECT nothing FROM log"}, "DuckDB refused .*BinderException"),
        ({"source": "shop.duckdb", "query": "SELECT * FRM log"}, "not SQL that DuckDB reads"),
        ({"source": "shop.duckdb", "query": "DROP TABLE log"}, "must be one SELECT"),
        ({"source": "log.parquet", "query": "INSTALL spatial"}, "must be one SELECT"),
        ({"source": "log.parquet", "opening": ["state_0", "stat_1"]}, "must have one column 'stat_1'"),
    ]
    for log, message in cases:
        with pytest.raises((ValueError, OSError), match=message) as caught:
            seen(tmp_path, facts, **log)
        assert "31337" not in str(caught.value), log


def test_a_query_is_one_select_and_sees_the_log_alone(tmp_path: Path, facts: Facts) -> None:
    pq.write_table(with_secret(pq.read_table(tmp_path / "log.parquet")), tmp_path / "log.parquet")
    leak = "SET VARIABLE x = (SELECT 'SECRET '||max(action_0) FROM log); SELECT * FROM query(getvariable('x'))"
    for query, message in (
        (leak, "must be one SELECT"),
        ("COPY log TO 'leaked.csv'; SELECT * FROM log", "must be one SELECT"),
        ("", "must be one SELECT"),
        ("SELECT * FROM query('nonsense ' || (SELECT max(action_0) FROM log))", "DuckDB refused"),
        ("SELECT * FROM source", "DuckDB refused"),  # a variable of the program
        ("SELECT * FROM read_csv('poolrl.toml')", "DuckDB refused"),
        ("SELECT nowhere FROM log", "DuckDB refused"),
        ("SELECT * FROM log WHERE step > 99", "the table must not be empty"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            seen(tmp_path, facts, source="log.parquet", query=query or " ")
        assert "31337" not in str(caught.value), query
    assert not (tmp_path / "leaked.csv").exists()


def test_no_memory_is_taken_by_numbers_of_the_log(tmp_path: Path, facts: Facts) -> None:
    """The number of the row taken for the step, and for the trajectory."""
    table = pq.read_table(tmp_path / "log.parquet")
    wide = table.set_column(1, "step", pa.array(range(900))).set_column(0, "trajectory", pa.array(range(900)))
    pq.write_table(wide, tmp_path / "log[1].parquet")  # a file's name, not a pattern
    found = seen(tmp_path, facts, source="log[1].parquet")
    assert (found.units, found.counts().sum()) == (900, 3 * 2)


def test_products_are_recognised_in_any_order_and_company(tmp_path: Path, facts: Facts) -> None:
    both = set(seen(tmp_path, facts).marks)
    turned = {name: facts["log"][name][::-1] for name in ("opening", "order_up_to", "left")}
    assert set(seen(tmp_path, facts, **turned).marks) == both
    facts["problem"] |= {"products": ["bread"], "shortage": 0.5, "demand_max": 40.0}
    alone = {name: facts["log"][name][:1] for name in turned}
    alone_marks = set(seen(tmp_path, facts, **alone).marks)
    assert len(alone_marks & both) > 200  # the sketch of both has room for 512 of 600
