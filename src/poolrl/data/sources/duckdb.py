"""A query on a log in DuckDB: one SELECT, tried where there are no rows, then run where they are.

That a query fails at rows may tell of one of them, and so it has its price (`app/fit.py`). What is wrong with the query
itself must cost nothing, and is found where nothing can be told: on empty tables of the same columns, with no file in
reach. To let DuckDB explain the query would not do, for functions that read files read them for that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import ibis

from poolrl.data.sources.engine import RowError, interruptible, refused
from poolrl.data.sources.sql import quoted_name, quoted_text

ANSWER = "poolrl_answer"
INTERRUPTED = "Query interrupted"  # how DuckDB says that a signal came while it worked


@contextmanager
def connected(file: str, settings: dict[str, Any]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection, closed at the end; a signal that comes while DuckDB works is one."""
    try:
        database = duckdb.connect(file, config=settings)
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", error)) from None
    try:
        database.execute("SET enable_progress_bar = false")  # the command line has its own
        yield database
    except RuntimeError as error:
        if str(error) == INTERRUPTED:
            raise KeyboardInterrupt from None
        raise
    finally:
        # A thread that was interrupted may still hold the connection, which then refuses to be closed.
        with suppress(duckdb.Error):
            database.close()


def try_query(query: str, names: Collection[str], empty: duckdb.DuckDBPyConnection) -> None:
    """Refuse a query that cannot give these columns, on a copy of the tables that has no rows; shuts it first."""
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise ValueError(f"the query is not SQL that DuckDB reads: {error}") from None  # it has seen the query alone
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise ValueError("the query must be one SELECT (or WITH ... SELECT)")
    shut(empty)
    try:
        _keep_answer(query, empty)
        found = [row[0] for row in empty.execute(f"DESCRIBE {ANSWER}").fetchall()]
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", error, _missing_name(str(error), query))) from None
    require_columns(names, found)


def copy_log_without_rows(database: duckdb.DuckDBPyConnection, empty: duckdb.DuckDBPyConnection) -> None:
    """The table `log`, with the same columns."""
    try:
        kinds = [f"{quoted_name(name)} {kind}" for name, kind, *_ in database.execute("DESCRIBE log").fetchall()]
        empty.execute(f"CREATE TABLE poolrl_rows ({', '.join(kinds)})")
        empty.execute("CREATE VIEW log AS FROM poolrl_rows")
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", error)) from None


def copy_without_rows(file: Path, folder: Path, settings: dict[str, Any]) -> Path:
    """A file's tables, views and functions, in a file of the same name, which is the name of the database too.

    To be done before the file is opened for its rows: what is closed here would end a lock on it there.
    """
    copy = folder / file.resolve().name  # of a link DuckDB takes the name of what it leads to
    with connected(":memory:", settings) as database:
        try:
            database.execute(f"ATTACH {quoted_text(str(file))} AS poolrl_from (READ_ONLY)")
            database.execute(f"ATTACH {quoted_text(str(copy))} AS poolrl_to")
            database.execute("COPY FROM DATABASE poolrl_from TO poolrl_to (SCHEMA)")
        except duckdb.Error as error:
            raise ValueError(refused("DuckDB", error)) from None
    return copy


def shut(database: duckdb.DuckDBPyConnection) -> ibis.BaseBackend:
    """From here on no file is in reach, and no setting can be changed; Ibis's door to what there is."""
    database.execute("SET enable_external_access = false")
    backend = ibis.duckdb.from_connection(database)  # which has settings of its own
    database.execute("SET lock_configuration = true")
    return backend


def run_query(query: str, database: duckdb.DuckDBPyConnection) -> None:
    """Keep the answer, so that every question about the log sees the same rows, whatever the query draws."""
    try:
        _keep_answer(query, database)
    except duckdb.Error as error:
        raise RowError(refused("DuckDB", error)) from None


def _keep_answer(query: str, database: duckdb.DuckDBPyConnection) -> None:
    rows = query.rstrip().rstrip(";")
    interruptible(lambda: database.execute(f"CREATE TEMP TABLE {ANSWER} AS {rows}\n"), database.interrupt)


def require_columns(names: Collection[str], found: Collection[str]) -> None:
    """The names that a query gives are not told, for they may come from anywhere."""
    for name in names:
        if name not in found:
            raise ValueError(f"the query must give a column {name!r}")


def _missing_name(message: str, query: str) -> str:
    """The column or table that a query asks for in vain: a word of the query, so it tells nothing of the log."""
    found = re.search(r'Referenced column "([^"]+)"|Table with name (\S+) does not exist', message)
    name = next(filter(None, found.groups()), "") if found else ""
    if not name or name not in query:
        return ""
    return f": it asks for {name!r}, which is not there"
