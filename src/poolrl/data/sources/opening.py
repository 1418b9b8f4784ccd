"""Where a log is: files, a DuckDB file or a PostgreSQL server, each opened as a table that stays there.

A query sees files as the table `log`. A database's message about a failed query may quote the log. So only the kind of
error is repeated.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import ibis
import ibis.expr.types as ir

from poolrl.data.log import Columns, missing_column
from poolrl.data.sources import duckdb as queries
from poolrl.data.sources import log_files
from poolrl.data.sources.engine import Answer, Source, interruptible, refusing
from poolrl.data.sources.log_files import quoted_name, sql_list

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult


DUCKDB_ENDINGS = (".duckdb", ".ddb", ".db")
POSTGRES = ("postgresql://", "postgres://")
# No extension is downloaded, and a query sees no variable of this program. Beyond 1 GB DuckDB works on disk.
DUCKDB_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "1GB",
    # A Parquet file's statistics leave out NaN. With them, one row would decide how DuckDB reads a NaN of another.
    "disabled_optimizers": "statistics_propagation",
}


class _Wanted:
    """The columns to read: which of them are ids, and which are not to be read as numbers."""

    def __init__(self, log: Columns | None, also: Sequence[str]) -> None:
        names = [] if log is None else log.names()
        self.names = list(dict.fromkeys([*names, *also]))
        self.ids = set() if log is None else {name for name in (log.trajectory, log.unit) if name is not None}
        self.as_they_are = ({*also} - {*names}) | (set() if log is None else log.as_they_are())


@contextmanager
def open_source(
    source: str,
    columns: Columns | None,
    *,
    also: Sequence[str] = (),
    query: str | None = None,
    export: str | None = None,
    reads: Sequence[str] = (),
    folder: Path = Path(),
    csv: log_files.CsvFormat = log_files.COMMAS,
    before_rows: Callable[[], object] = lambda: None,
) -> Iterator[Source]:
    """Open a log with the named columns; paths are relative to `folder`.

    Columns that no count uses may be taken `also`, as they are. An answer that is no log has these columns alone.
    `export` goes with a DuckDB file and a query of ours: it says which rows are the table `log`, and is all that sees
    the file's own names. Other files must have the columns that the query `reads`. `before_rows` is called if a query
    is about to see rows while the log is opened: DuckDB stores its answer.
    """
    wanted = _Wanted(columns, also)
    if source.startswith(POSTGRES):
        yield from _open_postgres(source, _needed(query, "a PostgreSQL server"), wanted)
        return
    where = folder / Path(source).expanduser()
    if where.suffix in DUCKDB_ENDINGS:
        yield from _open_database(where, _needed(query, "a DuckDB file"), wanted, export, before_rows)
        return
    files, is_csv = log_files.files_of(where)
    yield from _open_files(where, files, csv if is_csv else None, wanted, query, reads, before_rows)


@contextmanager
def open_columns(path: str, columns: Columns, *, is_csv: bool) -> Iterator[Source]:
    """The named columns of files, whatever these are called: as `open_source` reads them."""
    where, form = Path(path).expanduser(), log_files.COMMAS if is_csv else None
    files = [str(path.resolve()) for path in log_files.files_in(where)]
    yield from _open_files(where, files, form, _Wanted(columns, ()))


@contextmanager
def _spilling() -> Iterator[tuple[Path, dict[str, Any]]]:
    """A folder for what does not fit into memory, which only this user can read. It is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="poolrl.") as spill:
        yield Path(spill), DUCKDB_SETTINGS | {"temp_directory": spill}


def _open_database(
    where: Path, query: str, wanted: _Wanted, export: str | None, before_rows: Callable[[], object]
) -> Iterator[Source]:
    """The answer to a query on a DuckDB file."""
    if not where.is_file():
        raise FileNotFoundError(f"there is no file {where}")
    stem = where.resolve().stem  # by which a query may call it; for a link DuckDB uses the name of its target
    name = "poolrl_file" if stem.lower() in queries.RESERVED else stem
    with _spilling() as (spill, settings):
        with queries.connected(":memory:", settings) as empty:
            queries.attach(queries.copy_without_rows(where, spill, DUCKDB_SETTINGS), empty, name)
            kinds = queries.try_query(query, wanted.names, empty, name, export)
        with queries.connected(":memory:", settings) as database:
            definitions = queries.definitions_in_reach(export or query, spill / queries.SCHEMAS, database)
            queries.attach(where, database, name)
            before_rows()
            backend = queries.shut(database)
            queries.run_query(query, database, kinds, name, export)
            yield Source(_table(backend, database, wanted, name=queries.ANSWER, text_numbers=False), definitions)


def _open_files(
    where: Path,
    files: list[str],
    csv: log_files.CsvFormat | None,
    wanted: _Wanted,
    query: str | None = None,
    reads: Sequence[str] = (),
    before_rows: Callable[[], object] = lambda: None,
) -> Iterator[Source]:
    """Files, or the answer to a query on them. Without a `csv` format they are Parquet files."""
    with _spilling() as (spill, settings), queries.connected(":memory:", settings) as database:
        if csv is not None:
            files, csv = log_files.as_utf8(files, csv, spill)
        reader = log_files.parquet_reader(where, files) if csv is None else log_files.csv_reader(files, csv)
        try:
            # Other files are out of reach from now on.
            database.execute(f"SET allowed_paths = {sql_list(files)}")
            database.execute(f"CREATE VIEW log AS {reader}")
        except duckdb.Error:
            what = "a readable Parquet or CSV file (truncated, another format, or files of different columns?)"
            raise ValueError(f"{where} is not {what}") from None
        header = {name.casefold(): name for name in queries.columns_of("log", database)}
        for name in reads:
            if name.casefold() not in header:  # DuckDB does not tell names by their case
                between = repr((csv or log_files.COMMAS).delimiter)
                raise ValueError(missing_column(name, list(header.values()), between))
        if query is not None:
            with queries.connected(":memory:", settings) as empty:
                queries.copy_log_without_rows(database, empty)
                kinds = queries.try_query(query, wanted.names, empty)
            before_rows()
        backend = queries.shut(database)
        if query is not None:
            queries.run_query(query, database, kinds)
        # Text in CSV files and in names of folders is read as numbers row by row. Other text becomes NULL.
        name, as_text = "log" if query is None else queries.ANSWER, csv is not None or where.is_dir()
        yield Source(_table(backend, database, wanted, name=name, text_numbers=as_text))


def count_lines(source: str, folder: Path) -> int | None:
    """How many lines the CSV files of a source have behind their headers; None if it has no such files."""
    where = folder / Path(source).expanduser()
    is_database = source.startswith(POSTGRES) or where.suffix in DUCKDB_ENDINGS
    files, is_csv = ([], False) if is_database else log_files.files_of(where)
    return log_files.line_count(files) if is_csv else None


def _needed(query: str | None, what: str) -> str:
    if not query:
        raise ValueError(f"{what} needs a query: say which rows are the log")
    return query


def _table(
    backend: ibis.BaseBackend, database: queries.Database, wanted: _Wanted, *, name: str, text_numbers: bool
) -> ir.Table:
    """The wanted columns of a table. Numbers given as text are read row by row; ids and labels are not."""

    def read(column: str) -> str:
        quoted = quoted_name(column)
        if text_numbers and kinds[column] == "VARCHAR" and column not in wanted.as_they_are:
            return f"TRY_CAST({quoted} AS DOUBLE) AS {quoted}"
        return queries.plain_column(column, kinds[column])

    with refusing("DuckDB", duckdb.Error):
        kinds = queries.columns_of(name, database)
        for column in wanted.names:
            if column not in kinds:
                raise ValueError(missing_column(column, list(kinds)))
        database.execute(f"CREATE TEMP VIEW poolrl_log AS SELECT {', '.join(map(read, wanted.names))} FROM {name}")
        table = backend.table("poolrl_log")
    return table


# PostgreSQL's own numbers (OIDs) for its types.
_INTEGERS, _FLOATS, _NUMERIC, _BOOLEAN, _DATE, _TIMES = (20, 21, 23), (700, 701), 1700, 16, 1082, (1114, 1184)
_TEXTS, _UUID = (19, 25, 1042, 1043), 2950
# What Ibis calls them. Others are text.
_IBIS_TYPES = {_BOOLEAN: "boolean", _DATE: "date", **dict.fromkeys(_INTEGERS, "int64")}
_IBIS_TYPES |= dict.fromkeys(_FLOATS, "float64") | dict.fromkeys(_TIMES, "timestamp")
# Everything that computes and that users or extensions have made: views, functions, and the functions behind operators.
_MADE_BY_USERS = """
WITH mine AS (SELECT oid, nspname FROM pg_namespace WHERE nspname NOT IN ('pg_catalog', 'information_schema')),
  functions AS (SELECT p.oid, proname FROM pg_proc p JOIN mine ON pronamespace = mine.oid WHERE prokind IN ('f', 'w'))
SELECT relname::text, format('CREATE VIEW %I.%I AS %s', nspname, relname, pg_get_viewdef(c.oid))
FROM pg_class c JOIN mine ON relnamespace = mine.oid WHERE relkind IN ('v', 'm')
UNION ALL
SELECT proname::text, pg_get_functiondef(oid) FROM functions
UNION ALL
SELECT oprname::text, pg_get_functiondef(functions.oid) FROM pg_operator JOIN functions ON oprcode = functions.oid
"""


def _open_postgres(server: str, query: str, wanted: _Wanted) -> Iterator[Source]:
    """The answer to a query, as a table that stays on the server."""
    try:
        import psycopg
    except ModuleNotFoundError:
        raise ValueError("reading from PostgreSQL needs its driver: pip install 'poolrl[postgres]'") from None
    rows = f"({query.rstrip().rstrip(';')}\n) AS poolrl_answer"
    with refusing("PostgreSQL", psycopg.Error):
        connection = psycopg.connect(server)
    try:
        # Whatever the query does, it cannot write, and every count sees the same rows.
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        kinds = _described(connection, f"SELECT * FROM {rows}")
        queries.require_columns(wanted.names, kinds)
        _refuse_ids(connection, {name: kinds[name] for name in wanted.names if name in wanted.ids})
        # A label that is not text is a number like others.
        like_numbers = {name for name in wanted.names if kinds[name] in (*_FLOATS, _NUMERIC)} - wanted.ids
        numbers = {*wanted.names} - wanted.as_they_are | like_numbers
        chosen = [_double_column(n) if n in numbers else _as_it_is(n, kinds[n]) for n in wanted.names]
        schema = {n: "float64" if n in numbers else _IBIS_TYPES.get(kinds[n], "string") for n in wanted.names}
        backend = ibis.postgres.from_connection(connection)
        table = backend.sql(f"SELECT {', '.join(chosen)} FROM {rows}", schema=ibis.schema(schema))
        # Ibis may have rewritten the query, so the server checks it again.
        _described(connection, str(backend.compile(table)))
        # The server's catalogue is read, and no row of a table.
        made = _asked(connection, lambda: _made_by_users(connection))
        yield Source(table, queries.in_reach(query, made))
    finally:
        # The session changed nothing, so nothing is lost if it is already gone.
        with suppress(psycopg.Error):
            connection.close()


def _asked(connection: Connection, work: Callable[[], Answer]) -> Answer:
    """The answer of a server. It can be interrupted, and its own words are not repeated."""
    from psycopg import Error

    with refusing("PostgreSQL", Error):
        answered = interruptible(work, connection.cancel_safe)
    return answered


def _made_by_users(connection: Connection) -> list[Any]:
    # No name in the question is found in another schema.
    connection.execute("SET LOCAL search_path = pg_catalog")
    found = connection.execute(_MADE_BY_USERS).fetchall()
    connection.rollback()
    return found


def _refuse_ids(connection: Connection, kinds: dict[str, int]) -> None:
    """Refuse ids by their type: those that no rule brings into one spelling (`data/ids.py`)."""
    plain = (*_INTEGERS, *_FLOATS, _NUMERIC, _BOOLEAN, _DATE, *_TIMES, _UUID)
    for name, kind in kinds.items():
        if kind not in (*plain, *_TEXTS):
            raise ValueError(f"column {name!r} must hold ids (numbers, text, dates): cast it to text in the query")
        if kind in _TEXTS and connection.info.parameter_status("server_encoding") != "UTF8":
            raise ValueError(f"column {name!r} holds text, and ids in text need a database with the encoding UTF8")


def _described(connection: Connection, query: str) -> dict[str, int]:
    """The columns of a query and their types, by a prepared statement, which is not planned or run.

    A server that plans a query may already run functions of it on rows.
    """
    from psycopg.errors import error_from_result
    from psycopg.pq import ExecStatus

    def describe() -> PGresult:
        # It begins a transaction, so that a connection pool sends both statements to one session.
        connection.execute("SELECT 1")
        found = connection.pgconn.prepare(b"", query.encode())
        if found.status == ExecStatus.COMMAND_OK:
            found = connection.pgconn.describe_prepared(b"")
        # Counts must see the rows as they are after a wait for a lock, not before. So the transaction ends here.
        connection.rollback()
        if found.status != ExecStatus.COMMAND_OK:
            raise error_from_result(found)
        return found

    # The server may have to wait for a lock on a table.
    found = _asked(connection, describe)
    return {(found.fname(i) or b"").decode(): found.ftype(i) for i in range(found.nfields)}


def _as_it_is(name: str, kind: int) -> str:
    """Numbers, truth values and times unchanged; others as text in the order of its bytes, as engines have it."""
    column = quoted_name(name)
    if kind in (*_INTEGERS, *_FLOATS, _BOOLEAN, _DATE, *_TIMES):
        return column
    # 7 and 7.00 are one id. NaN and infinity are no ids.
    value = f"CASE WHEN abs({column}) < 1e100 THEN trim_scale({column}) END" if kind == _NUMERIC else column
    return f'CAST({value} AS text) COLLATE "C" AS {column}'


def _double_column(name: str) -> str:
    # A numeric may be too large or too small for a double. PostgreSQL's cast then fails where others round to 0.
    column = quoted_name(name)
    return (
        f"CASE WHEN {column} BETWEEN -1e-200 AND 1e-200 THEN 0 WHEN {column} BETWEEN -1e300 AND 1e300 "
        f"THEN CAST({column} AS double precision) END AS {column}"
    )
