"""A query on a log in DuckDB: one SELECT, first tried on empty tables, then run on the rows.

A query that fails at rows may reveal one of them, so such a failure costs rho (`workflow/release_folder.py`). A fault
of the query itself must be free. It is found where nothing can be revealed: on empty tables with the same columns, with
no access to files. EXPLAIN would not do, because functions that read files would read them for it.

A file is attached to a database in memory, the answer is stored there, and the file is detached. So a query may use
the file's views and macros, and no count does.

The certificate tells the views, macros and functions that a query can come through, and no others: these may hold what
is nobody's business. One is in reach if its name stands anywhere in the query, or in what is in reach.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import ibis
import sqlglot

from poolrl.data.ids import canonical
from poolrl.data.sources.engine import ID_FUNCTION, RowError, interruptible, quoted_name, quoted_text, refused, refusing

ANSWER = "poolrl_answer"
# Names of catalogues that every database in memory has, and one that DuckDB gives to none.
RESERVED = ("memory", "system", "temp", "main")
# DuckDB's message when an interrupt signal comes while it works.
INTERRUPTED = "Query interrupted"
_IDENTIFIER = r'(?:"(?:[^"]|"")*"|[^\s."(]+)'
_CREATED = re.compile(rf"CREATE (?P<kind>VIEW|MACRO|TABLE) (?:{_IDENTIFIER}\.)*(?P<name>{_IDENTIFIER})\s*[\s(]")
# The only tables that compute something.
_COMPUTED = "GENERATED ALWAYS AS"


@contextmanager
def connected(file: str, settings: dict[str, Any]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection, closed at the end. An interrupt signal while DuckDB works becomes KeyboardInterrupt."""
    with refusing("DuckDB", duckdb.Error):
        database = duckdb.connect(file, config=settings)
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


def attach(file: Path, name: str, database: duckdb.DuckDBPyConnection) -> None:
    """Add a file to a database in memory, to be read only. Its names are not in reach before `_keep_answer`."""
    with refusing("DuckDB", duckdb.Error):
        database.execute(f"ATTACH {quoted_text(str(file))} AS {quoted_name(name)} (READ_ONLY)")


def catalogue_of(file: Path) -> str:
    """The name by which a query may call a file: that of the file. For a link DuckDB uses the name of its target."""
    name = file.resolve().stem
    return "poolrl_file" if name.lower() in RESERVED else name


def try_query(
    query: str, names: Collection[str], empty: duckdb.DuckDBPyConnection, inside: str | None = None
) -> dict[str, str]:
    """The columns of a query and their types; refuses one that cannot give the named columns.

    `empty` has the tables without rows, in the catalogue `inside` if one is named. It is shut off first.
    """
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        # DuckDB has read the query only, so its message is safe.
        raise ValueError(f"the query is not SQL that DuckDB reads: {error}") from None
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise ValueError("the query must be one SELECT (or WITH ... SELECT)")
    shut(empty)
    try:
        _keep_answer(query, empty, inside)
        found = columns_of(ANSWER, empty)
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", error, _missing_name(str(error), query))) from None
    require_columns(names, found)
    return found


def columns_of(table: str, database: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The names and types of a table's columns."""
    return {name: kind for name, kind, *_ in database.execute(f"DESCRIBE {table}").fetchall()}


def copy_log_without_rows(database: duckdb.DuckDBPyConnection, empty: duckdb.DuckDBPyConnection) -> None:
    """Make an empty table `log` with the same columns."""
    with refusing("DuckDB", duckdb.Error):
        kinds = [f"{quoted_name(name)} {kind}" for name, kind in columns_of("log", database).items()]
        empty.execute(f"CREATE TABLE poolrl_rows ({', '.join(kinds)})")
        empty.execute("CREATE VIEW log AS FROM poolrl_rows")


def copy_without_rows(file: Path, folder: Path, settings: dict[str, Any]) -> tuple[Path, list[tuple[str, str]]]:
    """A file's tables, views and macros without rows, in another file; the names and the SQL of those that compute.

    Call it before the file is opened for its rows: closing this copy would release a lock on the file.
    """
    copy, schema = folder / "poolrl_empty.duckdb", folder / "poolrl_schema"
    with connected(":memory:", settings) as database, refusing("DuckDB", duckdb.Error):
        database.execute(f"ATTACH {quoted_text(str(file))} AS poolrl_from (READ_ONLY)")
        database.execute(f"ATTACH {quoted_text(str(copy))} AS poolrl_to")
        database.execute("COPY FROM DATABASE poolrl_from TO poolrl_to (SCHEMA)")
        # DuckDB's catalogue does not have the defaults of macros, but this SQL has.
        database.execute(f"EXPORT DATABASE poolrl_to TO {quoted_text(str(schema))}")
        return copy, list(_computing((schema / "schema.sql").read_text(encoding="utf-8")))


def _computing(schema: str) -> Iterator[tuple[str, str]]:
    """The name and the SQL of each view, macro and table that computes columns."""
    for statement in duckdb.extract_statements(schema):
        sql = statement.query.strip()
        made = _CREATED.match(sql)
        if made and (made["kind"] != "TABLE" or _COMPUTED in sql):
            name = made["name"]
            yield (name[1:-1].replace('""', '"') if name.startswith('"') else name), sql


def shut(database: duckdb.DuckDBPyConnection) -> ibis.BaseBackend:
    """Forbid access to files and changes of settings from now on; the connection as an Ibis backend."""
    database.execute("SET enable_external_access = false")
    # Ibis changes settings itself, so they are locked after it.
    backend = ibis.duckdb.from_connection(database)
    database.execute("SET lock_configuration = true")
    return backend


def run_query(
    query: str, database: duckdb.DuckDBPyConnection, expected: dict[str, str], inside: str | None = None
) -> None:
    """Store the answer, so that every count sees the same rows even if the query draws at random.

    A failure from here on may be due to a row. That is so for other columns than without rows, too.
    """
    with refusing("DuckDB", duckdb.Error, RowError):
        _keep_answer(query, database, inside)
        kinds = columns_of(ANSWER, database)
    if kinds != expected:
        raise RowError("the query gives other columns, or columns of other types, than it gives without rows")


def _keep_answer(query: str, database: duckdb.DuckDBPyConnection, inside: str | None) -> None:
    """Store the answer to a query, and leave the catalogue for good whose names it may use."""
    rows = query.rstrip().rstrip(";")
    if ID_FUNCTION in query.lower():
        database.execute(f"CREATE TEMP MACRO {ID_FUNCTION}(given) AS {_id_formula()}")
    if inside is not None:
        database.execute(f"USE {quoted_name(inside)}.main")
    interruptible(lambda: database.execute(f"CREATE TEMP TABLE {ANSWER} AS {rows}\n"), database.interrupt)
    if inside is not None:
        # With its schema, because a file may have a schema called memory.
        database.execute("USE memory.main")
        database.execute(f"DETACH {quoted_name(inside)}")


@cache
def _id_formula() -> str:
    """The rule of `data/ids.py` as SQL of DuckDB, on what is `given`."""
    texts = ibis.table({"spelling": "string"}, name="texts")
    query = ibis.to_sql(texts.select(id=canonical(texts.spelling)), dialect="duckdb")
    (formula,) = sqlglot.parse_one(str(query), dialect="duckdb").expressions
    spelled = sqlglot.parse_one("CAST(given AS VARCHAR)", dialect="duckdb")
    read = formula.this.transform(lambda node: spelled.copy() if isinstance(node, sqlglot.exp.Column) else node)
    return str(read.sql(dialect="duckdb"))


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


def in_reach(query: str, made: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The SQL of what a query can come through, of all that users have made: its names with their SQL."""
    texts, found = [query], set[str]()
    while texts:
        text = texts.pop().casefold()
        new = {sql for name, sql in made if _stands_in(text, name.casefold())} - found
        found |= new
        texts += new
    return tuple(sorted(found))


def _stands_in(text: str, name: str) -> bool:
    if re.fullmatch(r"\w+", name):
        return re.search(rf"\b{name}\b", text) is not None
    return name in text or name.replace('"', '""') in text
