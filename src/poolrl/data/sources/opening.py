"""Where a log is: files, a DuckDB file or a PostgreSQL server, each opened as a table that stays there.

    sales.csv   log.parquet   folder/   logs/*.parquet      files; a query sees them as the table `log`
    shop.duckdb                                             needs a query
    postgresql://user@host/shop                             needs a query, and the extra poolrl[postgres]

A database's message about a failed query may quote the log. So only the kind of error is repeated.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import ibis.expr.types as ir

from poolrl.data.log import Columns, missing_column
from poolrl.data.sources.duckdb import (
    ANSWER,
    connected,
    copy_log_without_rows,
    copy_without_rows,
    run_query,
    shut,
    try_query,
)
from poolrl.data.sources.engine import quoted_name, refused
from poolrl.data.sources.files import csv_reader, files_of, parquet_reader, sql_list
from poolrl.data.sources.postgres import open_postgres

DUCKDB_ENDINGS = (".duckdb", ".ddb", ".db")
POSTGRES = ("postgresql://", "postgres://")
# No extension is downloaded, and a query sees no variable of this program. Beyond 1 GB DuckDB works on disk.
DUCKDB_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "1GB",
}


@contextmanager
def open_table(
    source: str,
    columns: Columns,
    *,
    query: str | None = None,
    folder: Path = Path(),
    before_rows: Callable[[], object] = lambda: None,
) -> Iterator[ir.Table]:
    """Open a log with the named columns; paths are relative to `folder`.

    `before_rows` is called if a query is about to see rows while the log is opened. That is so in DuckDB, which stores
    the query's answer.
    """
    if source.startswith(POSTGRES):
        with open_postgres(source, _needed(query, "a PostgreSQL server"), columns) as table:
            yield table
        return
    where = folder / Path(source).expanduser()
    # DuckDB writes what does not fit into memory to a folder that only this user can read. It is deleted at the end.
    with tempfile.TemporaryDirectory(prefix="poolrl.") as spill:
        settings: dict[str, Any] = DUCKDB_SETTINGS | {"temp_directory": spill}
        if where.suffix in DUCKDB_ENDINGS:
            query = _needed(query, "a DuckDB file")
            if not where.is_file():
                raise FileNotFoundError(f"there is no file {where}")
            settings["access_mode"] = "read_only"
            with connected(str(copy_without_rows(where, Path(spill), DUCKDB_SETTINGS)), settings) as empty:
                try_query(query, columns.names(), empty)
            with connected(str(where), settings) as database:
                before_rows()
                yield _table(database, query, columns, numbers_are_text=False)
        else:
            files, is_csv = files_of(where)
            with connected(":memory:", settings) as database:
                reader = csv_reader(files) if is_csv else parquet_reader(where, files)
                _make_log(database, where, files, reader)
                if query is not None:
                    with connected(":memory:", settings) as empty:
                        copy_log_without_rows(database, empty)
                        try_query(query, columns.names(), empty)
                    before_rows()
                # Text in CSV files and in names of folders is read as numbers row by row. Other text becomes NULL.
                yield _table(database, query, columns, numbers_are_text=is_csv or where.is_dir())


def _needed(query: str | None, what: str) -> str:
    if not query:
        raise ValueError(f"{what} needs a query: say which rows are the log")
    return query


def _make_log(database: duckdb.DuckDBPyConnection, where: Path, files: Sequence[str], reader: str) -> None:
    """Give the files the name `log`, and forbid access to other files."""
    try:
        database.execute(f"SET allowed_paths = {sql_list(files)}")
        database.execute(f"CREATE VIEW log AS {reader}")
    except duckdb.Error:
        raise ValueError(
            f"{where} is not a readable Parquet or CSV file (truncated, another format, or files of different columns?)"
        ) from None


def _table(
    database: duckdb.DuckDBPyConnection, query: str | None, columns: Columns, *, numbers_are_text: bool
) -> ir.Table:
    """The log, or the answer to one SELECT on it. Numbers given as text are read row by row; ids and labels are not."""
    backend = shut(database)
    if query is not None:
        run_query(query, database)
    try:
        if query is None:
            database.execute(f"CREATE TEMP VIEW {ANSWER} AS FROM log")
        kinds = {row[0]: row[1] for row in database.execute(f"DESCRIBE {ANSWER}").fetchall()}
        for name in columns.names():
            if name not in kinds:
                raise ValueError(missing_column(name, list(kinds)))
        chosen = [
            f"TRY_CAST({quoted_name(name)} AS DOUBLE) AS {quoted_name(name)}"
            if numbers_are_text and kinds[name] == "VARCHAR" and name not in columns.as_they_are()
            else quoted_name(name)
            for name in dict.fromkeys(columns.names())
        ]
        database.execute(f"CREATE TEMP VIEW poolrl_log AS SELECT {', '.join(chosen)} FROM {ANSWER}")
        return backend.table("poolrl_log")
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", error)) from None
