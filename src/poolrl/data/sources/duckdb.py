"""A query on a log in DuckDB: one SELECT, first tried on empty tables, then run on the rows.

A query that fails at rows may reveal one of them, so such a failure costs rho (`shop/fit.py`). A fault of the query
itself must be free. It is found where nothing can be revealed: on empty tables with the same columns, with no access to
files. EXPLAIN would not do, because functions that read files would read them for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import ibis

from poolrl.data.sources.engine import RowError, interruptible, quoted_name, quoted_text, refused

ANSWER = "poolrl_answer"
# DuckDB's message when an interrupt signal comes while it works.
INTERRUPTED = "Query interrupted"


@contextmanager
def connected(file: str, settings: dict[str, Any]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection, closed at the end. An interrupt signal while DuckDB works becomes KeyboardInterrupt."""
    try:
        database = duckdb.connect(file, config=settings)
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", error)) from None
    try:
        # The command line shows its own progress.
        database.execute("SET enable_progress_bar = false")
        yield database
    except RuntimeError as error:
        if str(error) == INTERRUPTED:
            raise KeyboardInterrupt from None
        raise
    finally:
        # An interrupted thread may still hold the connection, which then cannot be closed.
        with suppress(duckdb.Error):
            database.close()


def try_query(query: str, names: Collection[str], empty: duckdb.DuckDBPyConnection) -> None:
    """Refuse a query that cannot give these columns. `empty` has the tables without rows, and is shut off first."""
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        # DuckDB has read the query only, so its message is safe.
        raise ValueError(f"the query is not SQL that DuckDB reads: {error}") from None
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
    """Make an empty table `log` with the same columns."""
    try:
        kinds = [f"{quoted_name(name)} {kind}" for name, kind, *_ in database.execute("DESCRIBE log").fetchall()]
        empty.execute(f"CREATE TABLE poolrl_rows ({', '.join(kinds)})")
        empty.execute("CREATE VIEW log AS FROM poolrl_rows")
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", error)) from None


def copy_without_rows(file: Path, folder: Path, settings: dict[str, Any]) -> Path:
    """A file's tables, views and functions, without rows, in a file of the same name.

    Call it before the file is opened for its rows: closing this copy would release a lock on the file.
    """
    # The file's name is the name of the database. For a link DuckDB uses the name of its target.
    copy = folder / file.resolve().name
    with connected(":memory:", settings) as database:
        try:
            database.execute(f"ATTACH {quoted_text(str(file))} AS poolrl_from (READ_ONLY)")
            database.execute(f"ATTACH {quoted_text(str(copy))} AS poolrl_to")
            database.execute("COPY FROM DATABASE poolrl_from TO poolrl_to (SCHEMA)")
        except duckdb.Error as error:
            raise ValueError(refused("DuckDB", error)) from None
    return copy


def shut(database: duckdb.DuckDBPyConnection) -> ibis.BaseBackend:
    """Forbid access to files and changes of settings from now on; the connection as an Ibis backend."""
    database.execute("SET enable_external_access = false")
    # Ibis changes settings itself, so they are locked after it.
    backend = ibis.duckdb.from_connection(database)
    database.execute("SET lock_configuration = true")
    return backend


def run_query(query: str, database: duckdb.DuckDBPyConnection) -> None:
    """Store the answer, so that every count sees the same rows even if the query draws at random."""
    try:
        _keep_answer(query, database)
    except duckdb.Error as error:
        raise RowError(refused("DuckDB", error)) from None


def _keep_answer(query: str, database: duckdb.DuckDBPyConnection) -> None:
    rows = query.rstrip().rstrip(";")
    interruptible(lambda: database.execute(f"CREATE TEMP TABLE {ANSWER} AS {rows}\n"), database.interrupt)


def require_columns(names: Collection[str], found: Collection[str]) -> None:
    """Refuse an answer without these columns. The names that it has are not repeated: they may come from the log."""
    for name in names:
        if name not in found:
            raise ValueError(f"the query must give a column {name!r}")


def _missing_name(message: str, query: str) -> str:
    """The missing column or table that a query names: a word of the query, so it reveals nothing of the log."""
    found = re.search(r'Referenced column "([^"]+)"|Table with name (\S+) does not exist', message)
    name = next(filter(None, found.groups()), "") if found else ""
    if not name or name not in query:
        return ""
    return f": it asks for {name!r}, which is not there"
