"""Where a log lies: files, a DuckDB file or a PostgreSQL server, each read into one Arrow table.

    sales.csv   log.parquet   folder/   logs/*.parquet      files; a query sees them as the table `log`
    shop.duckdb                                             needs a query
    postgresql://user@host/shop                             needs a query, and the extra poolrl[postgres]

What a database says about a failed query may quote the log, so it is not repeated: its kind is.
"""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poolrl.data import frames

DUCKDB_ENDINGS = (".duckdb", ".ddb", ".db")
POSTGRES = ("postgresql://", "postgres://")
# No extension is fetched from anywhere, a query cannot ask for it either, and it sees no variable of this program.
DUCKDB_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}


def read_table(source: str, *, query: str | None = None, folder: Path = Path(), ids: Collection[str] = ()) -> pa.Table:
    """Read a log; paths are relative to `folder`, and `ids` are the columns whose values are names, not numbers."""
    if source.startswith(POSTGRES):
        return _from_postgres(source, _needed(query, "a PostgreSQL server"), ids)
    where = folder / Path(source).expanduser()
    if where.suffix in DUCKDB_ENDINGS:
        if not where.is_file():
            raise FileNotFoundError(f"there is no file {where}")
        return _from_duckdb(where, _needed(query, "a DuckDB file"))
    files = _read_files(where, ids)
    return files if query is None else _from_duckdb(files, query)


def is_postgres(source: str) -> bool:
    """Whether a source is a server rather than a file."""
    return source.startswith(POSTGRES)


def digests(arrays: dict[str, Any]) -> list[bytes]:
    """SHA-256 of all trajectories of each product, whatever the order of rows and products and the kind of file.

    As sensitive as the log, for whoever guesses a product's log can confirm it: they leave this house under a key only.
    """
    rows = np.stack([arrays[part] for part in ("states", "actions", "next_states")], axis=2) + 0.0  # (n, H, 3, k)
    found = []
    for product in np.moveaxis(rows, 3, 0):
        flat = np.ascontiguousarray(product.reshape(len(product), -1))
        counted = hashlib.sha256(f"poolrl log {product.shape[1:]}".encode())
        counted.update(flat[np.lexsort(flat.T[::-1])].tobytes())
        found.append(counted.digest())
    return found


def _needed(query: str | None, what: str) -> str:
    if not query:
        raise ValueError(f"{what} needs a query: say which rows are the log")
    return query


def _read_files(where: Path, ids: Collection[str]) -> pa.Table:
    if where.is_dir():
        files = sorted(path for path in where.rglob("*") if path.is_file() and not path.name.startswith((".", "_")))
        if files and all(_is_parquet(path) for path in files):
            return frames.read_parquet(where)  # as one data set: folder names like year=2025 are columns
    elif not where.is_file() and any(sign in str(where) for sign in "*?["):
        files = sorted(Path(path) for path in glob.glob(str(where), recursive=True))
    else:
        files = [where]
    if not files:
        raise FileNotFoundError(f"there is no file {where}")
    for path in files:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
    if all(_is_parquet(path) for path in files):
        tables = [frames.read_parquet(path) for path in files]
    elif all(".csv" in path.suffixes for path in files):
        # Ids stay text: guessed as numbers, one unit's id would decide whether another's 007 is 7.
        tables = [frames.read_csv(path, text=ids) for path in files]
    else:
        raise ValueError(f"{where} must be Parquet (.parquet) or CSV (.csv, .csv.gz) files, all of one kind")
    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        raise ValueError(f"the files of {where} must have the same columns with the same types") from None


def _is_parquet(path: Path) -> bool:
    return path.suffix in (".parquet", ".pq")


def _from_duckdb(source: Path | pa.Table, query: str) -> pa.Table:
    """Run one SELECT on a database file, or on files that it sees as the table `log` and nothing else."""
    import duckdb

    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise ValueError(f"the query is not SQL that DuckDB reads: {error}") from None  # it has seen the query alone
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise ValueError("the query must be one SELECT (or WITH ... SELECT)")
    try:
        if isinstance(source, Path):
            with duckdb.connect(str(source), read_only=True, config=dict(DUCKDB_SETTINGS)) as database:
                table = database.sql(query).to_arrow_table()
        else:
            closed: dict[str, Any] = DUCKDB_SETTINGS | {"enable_external_access": "false"}
            with duckdb.connect(":memory:", config=closed) as database:
                database.register("log", source)
                table = database.sql(query).to_arrow_table()
    except duckdb.Error as error:
        raise ValueError(_failed("DuckDB", type(error).__name__, _missing_name(str(error), query))) from None
    if table.num_rows == 0:
        raise ValueError("the query gave no row: look whether names, dates and the number of days in it fit the table")
    return table


def _missing_name(message: str, query: str) -> str:
    """The column or table that a query asks for in vain: a word of the query, so it tells nothing of the log."""
    found = re.search(r'Referenced column "([^"]+)"|Table with name (\S+) does not exist', message)
    name = next(filter(None, found.groups()), "") if found else ""
    if not name or name not in query:
        return ""
    return f": it asks for {name!r}, which is not there"


def _from_postgres(server: str, query: str, ids: Collection[str]) -> pa.Table:
    try:
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi
    except ModuleNotFoundError:
        raise ValueError("reading from PostgreSQL needs its ADBC driver: pip install 'poolrl[postgres]'") from None
    try:
        with dbapi.connect(server) as connection, connection.cursor() as cursor:
            # A log is read, whatever the query says.
            cursor.execute("SET TRANSACTION READ ONLY")
            cursor.execute(query)
            table = cursor.fetch_arrow_table()
    except Error as error:
        kind = " ".join(filter(None, [type(error).__name__, error.sqlstate and f"SQLSTATE {error.sqlstate}"]))
        raise ValueError(_failed("PostgreSQL", kind, "")) from None
    try:
        columns = [_plain(table[name], is_id=name in ids) for name in table.column_names]
    except pa.ArrowException:
        raise ValueError("PostgreSQL gave a numeric that is no finite number: cast it in the query") from None
    return pa.table(columns, names=table.column_names)


def _failed(engine: str, kind: str, detail: str) -> str:
    return (
        f"{engine} refused the connection or the query ({kind}){detail}. Its message may quote the log and is not "
        f"repeated here; run the query in {engine} itself to read it"
    )


def _plain(column: pa.ChunkedArray, *, is_id: bool) -> pa.ChunkedArray:
    """A column without PostgreSQL's wrapping; `numeric` comes as text and becomes a number, or one text per value."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    wrapped = column.type
    stored = pa.chunked_array([chunk.storage for chunk in column.chunks], wrapped.storage_type)
    if getattr(wrapped, "type_name", "") != "numeric":
        return stored
    if not is_id:
        return pc.cast(stored, pa.float64())
    # 7 and 7.00 are one id.
    bare = pc.replace_substring_regex(stored, r"(\.\d*?)0+$", r"\1")
    return pc.replace_substring_regex(bare, r"\.$", "")
