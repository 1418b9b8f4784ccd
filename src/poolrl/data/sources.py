"""Where a log lies: files, a DuckDB file or a PostgreSQL server, each opened as a table that stays there.

    sales.csv   log.parquet   folder/   logs/*.parquet      files; a query sees them as the table `log`
    shop.duckdb                                             needs a query
    postgresql://user@host/shop                             needs a query, and the extra poolrl[postgres]

What a database says about a failed query may quote the log, so it is not repeated: its kind is.
"""

from __future__ import annotations

import glob
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import ibis
import ibis.expr.types as ir

from poolrl.data.engines import kind_of, refused
from poolrl.data.frames import Columns, missing_column

DUCKDB_ENDINGS = (".duckdb", ".ddb", ".db")
POSTGRES = ("postgresql://", "postgres://")
# No extension is fetched from anywhere, and a query sees no variable of this program.
DUCKDB_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "1GB",  # beyond it DuckDB works on disk
}


@contextmanager
def open_table(source: str, columns: Columns, *, query: str | None = None, folder: Path = Path()) -> Iterator[ir.Table]:
    """Open a log with the named columns; paths are relative to `folder`."""
    if source.startswith(POSTGRES):
        with _postgres(source, _needed(query, "a PostgreSQL server"), columns) as table:
            yield table
        return
    where = folder / Path(source).expanduser()
    # What does not fit into memory is written where only this user can read it, and deleted.
    with tempfile.TemporaryDirectory(prefix="poolrl.") as spill:
        settings: dict[str, Any] = DUCKDB_SETTINGS | {"temp_directory": spill}
        if where.suffix in DUCKDB_ENDINGS:
            query = _needed(query, "a DuckDB file")
            if not where.is_file():
                raise FileNotFoundError(f"there is no file {where}")
            with _connected(str(where), settings | {"access_mode": "read_only"}) as database:
                yield _view(database, query, columns)
        else:
            files, is_csv = _files(where)
            with _connected(":memory:", settings) as database:
                reader = _csv(database, files, columns, guess=query is not None) if is_csv else _parquet(where, files)
                _make_log(database, where, files, reader, is_csv)
                yield _view(database, query or "SELECT * FROM log", columns)


def _needed(query: str | None, what: str) -> str:
    if not query:
        raise ValueError(f"{what} needs a query: say which rows are the log")
    return query


def _files(where: Path) -> tuple[list[str], bool]:
    """The files of a source, and whether they are CSV."""
    if where.is_dir():
        files = sorted(path for path in where.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
    elif not where.is_file() and any(sign in str(where) for sign in "*?["):
        files = sorted(Path(path) for path in glob.glob(str(where), recursive=True))
    else:
        files = [where]
    if not files:
        raise FileNotFoundError(f"there is no file {where}")
    for path in files:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
    names = [str(path.resolve()) for path in files]
    if all(path.suffix in (".parquet", ".pq") for path in files):
        return names, False
    if all(".csv" in path.suffixes for path in files):
        return names, True
    raise ValueError(f"{where} must be Parquet (.parquet) or CSV (.csv, .csv.gz) files, all of one kind")


def _parquet(where: Path, files: Sequence[str]) -> str:
    # Folder names like year=2025 are columns, where a folder was named.
    hive = "true" if where.is_dir() else "false"
    return f"SELECT * FROM read_parquet({_texts(files)}, union_by_name=true, hive_partitioning={hive})"


def _csv(database: duckdb.DuckDBPyConnection, files: Sequence[str], columns: Columns, *, guess: bool) -> str:
    """Rows of CSV files, every column as text, or for a query with guessed types; ids are text in any case.

    Guessed as numbers, one unit's id would decide whether another's 007 is 7.
    """
    options = "delim=',', quote='\"', header=true, union_by_name=true, ignore_errors=true, null_padding=true"
    text = f"read_csv({_texts(files)}, {options}, all_varchar=true)"
    try:
        names = [row[0] for row in database.execute(f"DESCRIBE SELECT * FROM {text}").fetchall()]
    except duckdb.Error:
        raise ValueError(f"{files[0]} is not a readable CSV file: UTF-8, with a header line") from None
    ids = [name for name in (columns.trajectory, columns.unit) if name is not None]
    if guess:
        kinds = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in ids if name in names)
        return f"SELECT * FROM read_csv({_texts(files)}, {options}" + (f", types={{{kinds}}})" if kinds else ")")
    for name in columns.names():
        if name not in names:
            raise ValueError(missing_column(name, names))
    chosen = [
        _name(name) if name in ids else f"TRY_CAST({_name(name)} AS DOUBLE) AS {_name(name)}"
        for name in dict.fromkeys(columns.names())
    ]
    return f"SELECT {', '.join(chosen)} FROM {text}"


def _make_log(
    database: duckdb.DuckDBPyConnection, where: Path, files: Sequence[str], reader: str, is_csv: bool
) -> None:
    """Give the files the name `log`, and shut everything else."""
    try:
        database.execute(f"SET allowed_paths = {_texts(files)}")
        database.execute(f"CREATE VIEW log AS {reader}")
    except duckdb.Error:
        kind = "CSV" if is_csv else "Parquet"
        raise ValueError(
            f"{where} is not a readable {kind} file (truncated, another format, or files of different columns?)"
        ) from None
    database.execute("SET enable_external_access = false")


@contextmanager
def _connected(file: str, settings: dict[str, Any]) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        database = duckdb.connect(file, config=settings)
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", kind_of(error))) from None
    with database:
        database.execute("SET enable_progress_bar = false")  # the command line has its own
        yield database


def _view(database: duckdb.DuckDBPyConnection, query: str, columns: Columns) -> ir.Table:
    """One SELECT on the database, as a table."""
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise ValueError(f"the query is not SQL that DuckDB reads: {error}") from None  # it has seen the query alone
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise ValueError("the query must be one SELECT (or WITH ... SELECT)")
    backend = ibis.duckdb.from_connection(database)
    try:
        database.execute("SET lock_configuration = true")  # Ibis has set its own by now
        database.execute(f"CREATE TEMP VIEW the_log AS {query.rstrip().rstrip(';')}\n")
        return backend.table("the_log")
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", kind_of(error), _missing_name(str(error), query))) from None


def _missing_name(message: str, query: str) -> str:
    """The column or table that a query asks for in vain: a word of the query, so it tells nothing of the log."""
    found = re.search(r'Referenced column "([^"]+)"|Table with name (\S+) does not exist', message)
    name = next(filter(None, found.groups()), "") if found else ""
    if not name or name not in query:
        return ""
    return f": it asks for {name!r}, which is not there"


# PostgreSQL's numbers for its types.
_INTEGERS, _NUMERIC, _TIMES = (20, 21, 23), 1700, (1082, 1114, 1184)


@contextmanager
def _postgres(server: str, query: str, columns: Columns) -> Iterator[ir.Table]:
    try:
        import psycopg
    except ModuleNotFoundError:
        raise ValueError("reading from PostgreSQL needs its driver: pip install 'poolrl[postgres]'") from None
    rows = f"({query.rstrip().rstrip(';')}\n) AS the_log"
    try:
        with psycopg.connect(server) as connection:
            connection.read_only = True  # a log is read, whatever the query says
            described = connection.execute(f"SELECT * FROM {rows} LIMIT 0").description or []
            kinds = {column.name: column.type_code for column in described}
            for name in columns.names():
                if name not in kinds:
                    raise ValueError(missing_column(name, list(kinds)))
            ids = {name for name in (columns.trajectory, columns.unit) if name is not None}
            names = list(dict.fromkeys(columns.names()))
            chosen = [_postgres_id(n, kinds[n]) if n in ids else _postgres_number(n) for n in names]
            schema = {n: "float64" if n not in ids else _postgres_type(kinds[n]) for n in names}
            backend = ibis.postgres.from_connection(connection)
            yield backend.sql(f"SELECT {', '.join(chosen)} FROM {rows}", schema=ibis.schema(schema))
    except psycopg.Error as error:
        raise ValueError(refused("PostgreSQL", kind_of(error))) from None


def _postgres_id(name: str, kind: int) -> str:
    """Whole numbers and times as they are; anything else as text in the order of its bytes, as engines have it."""
    column = _name(name)
    if kind in (*_INTEGERS, *_TIMES):
        return column
    value = f"trim_scale({column})" if kind == _NUMERIC else column  # 7 and 7.00 are one id
    return f'CAST({value} AS text) COLLATE "C" AS {column}'


def _postgres_type(kind: int) -> str:
    return "int64" if kind in _INTEGERS else "date" if kind == 1082 else "timestamp" if kind in _TIMES else "string"


def _postgres_number(name: str) -> str:
    # A numeric may be larger than any double, and the cast would fail.
    column = _name(name)
    return f"CASE WHEN {column} BETWEEN -1e300 AND 1e300 THEN CAST({column} AS double precision) END AS {column}"


def _texts(values: Sequence[str]) -> str:
    return "[" + ", ".join(_text(value) for value in values) + "]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
