"""A query on a log in DuckDB: one SELECT, first tried on empty tables, then run on the rows.

A query that fails at rows may reveal one of them, so such a failure costs rho (`workflow/release_folder.py`). A fault
of the query itself must be free. It is found on empty tables with the same columns, with no access to files. EXPLAIN
would not do, because functions that read files would read them for it.

A file's views and macros may have the names of DuckDB's own functions. A query that uses them means them, but our
counts do not. So a file is attached to a database in memory, the answer is stored there, and the file is detached. Of a
query of ours only the part that names a table of the file runs before that: `export`.

The certificate tells the views, macros and functions that a query can come through, and no others: one is in reach if
its name stands anywhere in the query, or in what is in reach. So too many may be told, but never too few.
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
from poolrl.data.sources.engine import RowError, interruptible, refused, refusing
from poolrl.data.sources.log_files import ID_FUNCTION, quoted_name, quoted_text

Database = duckdb.DuckDBPyConnection
ANSWER, EXPORT = "poolrl_answer", "poolrl_export"
SCHEMAS = "poolrl_schema"
# Names of catalogues that every database in memory has, and one that DuckDB gives to none.
RESERVED = ("memory", "system", "temp", "main")
INTERRUPTED = "Query interrupted"  # DuckDB's message when an interrupt signal comes while it works
MOST_DEFINITIONS = 2**18  # bytes in reach; they stand in every certificate
SCHEMA_FILE = "schema.sql"
# What runs SQL that a query puts together, in DuckDB and in PostgreSQL. The names in it can then be anything.
_RUN_TEXT = ("query", "query_table", "json_execute_serialized_sql", "query_to_xml", "cursor_to_xml", "execute")
_IDENTIFIER = r'(?:"(?:[^"]|"")*"|[^\s."(]+)'
_CREATED = re.compile(rf"CREATE (?P<kind>VIEW|MACRO|TABLE) (?:{_IDENTIFIER}\.)*(?P<name>{_IDENTIFIER})\s*[\s(]")
_COMPUTED = "GENERATED ALWAYS AS"  # the only tables that compute something


@contextmanager
def connected(file: str, settings: dict[str, Any]) -> Iterator[Database]:
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


def attach(file: Path, database: Database, name: str) -> None:
    """Add a file to a database in memory, to be read only. Its names are not in reach before `_keep_answer`."""
    with refusing("DuckDB", duckdb.Error):
        database.execute(f"ATTACH {quoted_text(str(file))} AS {quoted_name(name)} (READ_ONLY)")


def try_query(
    query: str, names: Collection[str], empty: Database, inside: str | None = None, export: str | None = None
) -> dict[str, str]:
    """The columns of a query and their types; refuses one that cannot give the named columns.

    `empty` has the tables without rows, in the catalogue `inside` if one is named. The answer to `export` is the table
    `log` of the query, which then sees nothing else of that catalogue.
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
        _keep_answer(query, empty, inside, export)
        found = columns_of(ANSWER, empty)
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", error)) from None
    require_columns(names, found)
    return found


def columns_of(table: str, database: Database) -> dict[str, str]:
    """The names and types of a table's columns."""
    return {name: kind for name, kind, *_ in database.execute(f"DESCRIBE {table}").fetchall()}


def plain_column(column: str, kind: str) -> str:
    """A column in SQL. Of a text its bytes count, because by a collation of its table others may be equal to it."""
    quoted = quoted_name(column)
    if kind.startswith("ENUM"):
        # Texts like others, also if a file has a list of them.
        quoted = f"CAST({quoted} AS VARCHAR)"
    elif kind != "VARCHAR":
        return quoted
    return f'{quoted} COLLATE "binary" AS {quoted_name(column)}'


def copy_log_without_rows(database: Database, empty: Database) -> None:
    """Make an empty table `log` with the same columns."""
    with refusing("DuckDB", duckdb.Error):
        kinds = [f"{quoted_name(name)} {kind}" for name, kind in columns_of("log", database).items()]
        empty.execute(f"CREATE TABLE poolrl_rows ({', '.join(kinds)})")
        empty.execute("CREATE VIEW log AS FROM poolrl_rows")


def copy_without_rows(file: Path, folder: Path, settings: dict[str, Any]) -> Path:
    """A file's tables, views and functions, without rows, in another file. Their SQL goes to `folder / SCHEMAS`."""
    # Called before the file is opened for its rows: closing this copy would release a lock on the file.
    copy = folder / "poolrl_empty.duckdb"
    with connected(":memory:", settings) as database, refusing("DuckDB", duckdb.Error):
        database.execute(f"ATTACH {quoted_text(str(file))} AS poolrl_from (READ_ONLY)")
        database.execute(f"ATTACH {quoted_text(str(copy))} AS poolrl_to")
        database.execute("COPY FROM DATABASE poolrl_from TO poolrl_to (SCHEMA)")
        # DuckDB's catalogue does not have the defaults of macros, but this SQL has.
        database.execute(f"EXPORT DATABASE poolrl_to TO {quoted_text(str(folder / SCHEMAS))}")
    return copy


def shut(database: Database) -> ibis.BaseBackend:
    """Forbid access to files and changes of settings from now on; the connection as an Ibis backend."""
    database.execute("SET enable_external_access = false")
    # Ibis changes settings itself, so they are locked after it.
    backend = ibis.duckdb.from_connection(database)
    database.execute("SET lock_configuration = true")
    return backend


def run_query(
    query: str, database: Database, expected: dict[str, str], inside: str | None = None, export: str | None = None
) -> None:
    """Store one answer for all counts, even of a query that draws at random. A failure may be due to a row."""
    with refusing("DuckDB", duckdb.Error, RowError):
        _keep_answer(query, database, inside, export)
        kinds = columns_of(ANSWER, database)
    if kinds != expected:
        raise RowError("the query gives other columns, or columns of other types, than it gives without rows")


def _keep_answer(query: str, database: Database, inside: str | None, export: str | None = None) -> None:
    """Store the answer to a query, and leave the catalogue for good whose names it, or its export, may use."""
    if export is not None:
        _store(EXPORT, export, database, inside)
        columns = ", ".join(plain_column(*column) for column in columns_of(EXPORT, database).items())
        database.execute(f"CREATE TEMP VIEW log AS SELECT {columns} FROM {EXPORT}")
        inside = None
    _store(ANSWER, query, database, inside)


def _store(table: str, query: str, database: Database, inside: str | None) -> None:
    rows = query.rstrip().rstrip(";")
    if ID_FUNCTION in query.lower():
        database.execute(f"CREATE TEMP MACRO {ID_FUNCTION}(given) AS {_id_formula()}")
    if inside is not None:
        database.execute(f"USE {quoted_name(inside)}.main")
    interruptible(lambda: database.execute(f"CREATE TEMP TABLE {table} AS {rows}\n"), database.interrupt)
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


def definitions_in_reach(query: str, folder: Path, database: Database) -> tuple[str, ...]:
    """The SQL that a query can come through, of the schema that was written to a folder.

    `database` says which functions DuckDB has itself, before the names of a file are in reach. A macro looks its names
    up where it is called, so with `ID_FUNCTION` in its query a file is refused that has that name or one in it.
    """
    with refusing("DuckDB", duckdb.Error):
        functions = database.execute("SELECT function_name FROM duckdb_functions() WHERE internal").fetchall()
        created = list(_created((folder / SCHEMA_FILE).read_text(encoding="utf-8")))
    own = {name.casefold() for (name,) in functions}
    definitions = in_reach(query, created, own)
    shadows = [name for name, _ in created if name.casefold() in {*own, ID_FUNCTION}]
    if shadows and ID_FUNCTION in query.lower():
        raise ValueError(
            f"the query uses {ID_FUNCTION}, and the file defines {shadows[0]!r}, which {ID_FUNCTION} would then call "
            "instead of DuckDB's own function: give it another name"
        )
    return definitions


def in_reach(query: str, created: Collection[tuple[str, str]], own: Collection[str] = ()) -> tuple[str, ...]:
    """The SQL of what a query can come through, of all names with their SQL. `own` are names that run unwritten."""
    # Operators, count(*) and lists are functions too, so that a macro with such a name runs where no name is written.
    found = {sql for name, sql in created if name.casefold() in own}
    texts = [query, *found]
    while texts:
        text = texts.pop().casefold()
        everything = any(_stands_in(text, word) for word in _RUN_TEXT)
        new = {sql for name, sql in created if everything or _stands_in(text, name.casefold())} - found
        found |= new
        texts += new
    if sum(len(sql.encode()) for sql in found) > MOST_DEFINITIONS:
        raise ValueError(
            f"the views, macros and functions that the query may use have more than {MOST_DEFINITIONS:,} bytes, and "
            "each certificate would repeat them: shorten them, or give those that it does not need another name"
        )
    return tuple(sorted(found))


def _created(schema: str) -> Iterator[tuple[str, str]]:
    """The name and the SQL of each view, macro and table that computes columns."""
    for statement in duckdb.extract_statements(schema):
        sql = statement.query.strip()
        made = _CREATED.match(sql)
        if made and (made["kind"] != "TABLE" or _COMPUTED in sql):
            name = made["name"]
            yield (name[1:-1].replace('""', '"') if name.startswith('"') else name), sql


def _stands_in(text: str, name: str) -> bool:
    if not re.fullmatch(r"\w+", name):
        return name in text or name.replace('"', '""') in text
    # A digit may stand before it: LIMIT 1sales is LIMIT 1 and a name.
    return name in text and re.search(rf"(?<![^\W\d]){name}(?!\w)", text) is not None
