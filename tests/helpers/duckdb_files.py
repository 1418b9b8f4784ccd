"""DuckDB files with a log in them, and with names that are not theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb


def write_file(path: Path, log: Path, *statements: str) -> None:
    """A DuckDB file with the log as the table x."""
    path.unlink(missing_ok=True)
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE x AS FROM read_parquet('{log}')")
        for statement in statements:
            database.execute(statement)
        # Faster than a file that every statement is written to.
        database.execute(f"ATTACH '{path}' AS poolrl_to; COPY FROM DATABASE memory TO poolrl_to")


def hostile() -> Iterator[str]:
    """Macros for the names of all functions that DuckDB has, in two schemas, and views with the names that we use."""
    with duckdb.connect() as database:
        found = database.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    same = ", ".join(f"({', '.join('abcd'[:count])}) AS 1000" for count in range(1, 5))
    yield "CREATE SCHEMA other"
    for schema in ("main", "other"):
        yield from (f'CREATE MACRO {schema}."{name}"{same}' for (name,) in found if name.isidentifier())
    yield from (f"CREATE VIEW {name} AS SELECT 1 AS step" for name in ("log", "poolrl_answer", "poolrl_log"))
    yield from (f"CREATE MACRO {name}_ids() AS TABLE SELECT 1 AS a" for name in ("poolrl_unit", "poolrl_trajectory"))
