"""Where a log is: files, a DuckDB file or a PostgreSQL server, each opened as a table that stays there.

    sales.csv   log.parquet   folder/   logs/*.parquet      files; a query sees them as the table `log`
    shop.duckdb                                             needs a query
    postgresql://user@host/shop                             needs a query, and the extra poolrl[postgres]

A database's message about a failed query may quote the log. So only the kind of error is repeated.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import ibis
import ibis.expr.types as ir

from poolrl.data.log import Columns, missing_column
from poolrl.data.sources.definitions import definitions_in_reach, refuse_shadows
from poolrl.data.sources.duckdb import (
    ANSWER,
    ID_FUNCTION,
    SCHEMAS,
    attach,
    catalogue_of,
    columns_of,
    connected,
    copy_log_without_rows,
    copy_without_rows,
    run_query,
    shut,
    try_query,
)
from poolrl.data.sources.engine import RowError, quoted_name, refused
from poolrl.data.sources.files import (
    COMMAS,
    CsvFormat,
    as_utf8,
    csv_reader,
    files_of,
    line_count,
    parquet_reader,
    sql_list,
)
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
    # A Parquet file's statistics leave out NaN. With them, one row would decide how DuckDB reads a NaN of another.
    "disabled_optimizers": "statistics_propagation",
}


@dataclass(frozen=True)
class Source:
    """A log where it lies, and the SQL texts of its database that it may have come through besides the query."""

    rows: ir.Table
    definitions: tuple[str, ...] = ()


@contextmanager
def open_table(source: str, columns: Columns, **options: Any) -> Iterator[ir.Table]:
    """The rows of `open_source`."""
    with open_source(source, columns, **options) as opened:
        yield opened.rows


@contextmanager
def open_source(
    source: str,
    columns: Columns,
    *,
    query: str | None = None,
    export: str | None = None,
    reads: Sequence[str] = (),
    folder: Path = Path(),
    csv: CsvFormat = COMMAS,
    before_rows: Callable[[], object] = lambda: None,
) -> Iterator[Source]:
    """Open a log with the named columns; paths are relative to `folder`.

    `export` goes with a DuckDB file and a query of ours: it says which rows are the table `log`, and is all that sees
    the file's own names. Other files must have the columns that the query `reads`, as far as they are known.
    `before_rows` is called if a query is about to see rows while the log is opened. That is so in DuckDB, which stores
    the query's answer.
    """
    if source.startswith(POSTGRES):
        with open_postgres(source, _needed(query, "a PostgreSQL server"), columns) as (table, definitions):
            yield Source(table, definitions)
        return
    where = folder / Path(source).expanduser()
    # DuckDB writes what does not fit into memory to a folder that only this user can read. It is deleted at the end.
    with tempfile.TemporaryDirectory(prefix="poolrl.") as spill:
        settings: dict[str, Any] = DUCKDB_SETTINGS | {"temp_directory": spill}
        if where.suffix in DUCKDB_ENDINGS:
            query = _needed(query, "a DuckDB file")
            if not where.is_file():
                raise FileNotFoundError(f"there is no file {where}")
            name = catalogue_of(where)
            with connected(":memory:", settings) as empty:
                attach(copy_without_rows(where, Path(spill), DUCKDB_SETTINGS), empty, name)
                kinds = try_query(query, columns.names(), empty, name, export)
            with connected(":memory:", settings) as database:
                of_file, schema = export or query, Path(spill) / SCHEMAS
                definitions = definitions_in_reach(of_file, schema, database)
                if ID_FUNCTION in of_file.lower():
                    refuse_shadows(ID_FUNCTION, schema, database)
                attach(where, database, name)
                before_rows()
                backend = shut(database)
                run_query(query, database, kinds, name, export)
                yield Source(_table(backend, database, columns, name=ANSWER, numbers_are_text=False), definitions)
        else:
            files, is_csv = files_of(where)
            with connected(":memory:", settings) as database:
                whole = True
                if is_csv:
                    files, csv, whole = as_utf8(files, csv, Path(spill))
                reader = csv_reader(files, csv) if is_csv else parquet_reader(where, files)
                _make_log(database, where, files, reader)
                _require_read(reads, list(columns_of("log", database)), csv.delimiter)
                if query is not None:
                    with connected(":memory:", settings) as empty:
                        copy_log_without_rows(database, empty)
                        kinds = try_query(query, columns.names(), empty)
                    before_rows()
                    if not whole:
                        raise RowError(f"{where} cannot be read to its end")
                backend = shut(database)
                if query is not None:
                    run_query(query, database, kinds)
                # Text in CSV files and in names of folders is read as numbers row by row. Other text becomes NULL.
                name, as_text = "log" if query is None else ANSWER, is_csv or where.is_dir()
                yield Source(_table(backend, database, columns, name=name, numbers_are_text=as_text))


def count_lines(source: str, folder: Path) -> int | None:
    """How many lines the CSV files of a source have behind their headers; None if it is none."""
    where = folder / Path(source).expanduser()
    if source.startswith(POSTGRES) or where.suffix in DUCKDB_ENDINGS:
        return None
    files, is_csv = files_of(where)
    if not is_csv:
        return None
    try:
        return line_count(files)
    except (OSError, EOFError, zlib.error):
        raise ValueError(f"{where} cannot be read to its end") from None


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


def _require_read(reads: Sequence[str], header: list[str], delimiter: str) -> None:
    """Refuse a header without columns that a query reads. DuckDB does not tell names by their case."""
    known = {name.casefold() for name in header}
    for name in reads:
        if name.casefold() not in known:
            raise ValueError(missing_column(name, header, f"{delimiter!r}"))


def _table(
    backend: ibis.BaseBackend,
    database: duckdb.DuckDBPyConnection,
    columns: Columns,
    *,
    name: str,
    numbers_are_text: bool,
) -> ir.Table:
    """The named columns of a table. Numbers given as text are read row by row; ids and labels are not."""
    try:
        kinds = columns_of(name, database)
        for column in columns.names():
            if column not in kinds:
                raise ValueError(missing_column(column, list(kinds)))
        chosen = [_as_column(each, kinds[each], columns, numbers_are_text) for each in dict.fromkeys(columns.names())]
        database.execute(f"CREATE TEMP VIEW poolrl_log AS SELECT {', '.join(chosen)} FROM {name}")
        return backend.table("poolrl_log")
    except duckdb.Error as error:
        raise ValueError(refused("DuckDB", error)) from None


def _as_column(name: str, kind: str, columns: Columns, numbers_are_text: bool) -> str:
    column = quoted_name(name)
    if numbers_are_text and kind == "VARCHAR" and name not in columns.as_they_are():
        return f"TRY_CAST({column} AS DOUBLE) AS {column}"
    # Ids are texts like others, also if a file has a list of them.
    return f"CAST({column} AS VARCHAR) AS {column}" if kind.startswith("ENUM") else column
