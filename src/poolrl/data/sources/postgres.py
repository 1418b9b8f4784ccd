"""A log on a PostgreSQL server: the answer to a query, which is read and counted there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import ibis
import ibis.expr.types as ir

from poolrl.data.log import Columns
from poolrl.data.sources.duckdb import require_columns
from poolrl.data.sources.engine import interruptible, quoted_name, refused

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult

# PostgreSQL's own numbers (OIDs) for its types.
_INTEGERS, _FLOATS, _NUMERIC, _BOOLEAN, _DATE, _TIMES = (20, 21, 23), (700, 701), 1700, 16, 1082, (1114, 1184)


@contextmanager
def open_postgres(server: str, query: str, columns: Columns) -> Iterator[ir.Table]:
    """The answer to a query, as a table that stays on the server."""
    try:
        import psycopg
    except ModuleNotFoundError:
        raise ValueError("reading from PostgreSQL needs its driver: pip install 'poolrl[postgres]'") from None
    rows = f"({query.rstrip().rstrip(';')}\n) AS poolrl_answer"
    try:
        connection = psycopg.connect(server)
    except psycopg.Error as error:
        raise ValueError(refused("PostgreSQL", error)) from None
    try:
        # Whatever the query does, it cannot write, and every count sees the same rows.
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        kinds = _described(connection, f"SELECT * FROM {rows}")
        require_columns(columns.names(), kinds)
        ids, as_they_are = {columns.trajectory, columns.unit}, columns.as_they_are()
        names = list(dict.fromkeys(columns.names()))
        # A label that is not text is a number like others.
        numbers = {n for n in names if n not in as_they_are or (n not in ids and kinds[n] in (*_FLOATS, _NUMERIC))}
        chosen = [_double_column(n) if n in numbers else _as_it_is(n, kinds[n]) for n in names]
        schema = {n: "float64" if n in numbers else _type(kinds[n]) for n in names}
        backend = ibis.postgres.from_connection(connection)
        table = backend.sql(f"SELECT {', '.join(chosen)} FROM {rows}", schema=ibis.schema(schema))
        # Ibis may have rewritten the query, so the server checks it again.
        _described(connection, str(backend.compile(table)))
        yield table
    finally:
        # The session changed nothing, so nothing is lost if it is already gone.
        with suppress(psycopg.Error):
            connection.close()


def _described(connection: Connection, query: str) -> dict[str, int]:
    """The columns of a query and their types, by a prepared statement, which is not planned or run.

    A server that plans a query may already run functions of it on rows.
    """
    from psycopg import Error
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
        return found

    try:
        # The server may have to wait for a lock on a table.
        found = interruptible(describe, connection.cancel_safe)
        if found.status != ExecStatus.COMMAND_OK:
            raise error_from_result(found)
    except Error as error:
        raise ValueError(refused("PostgreSQL", error)) from None
    return {(found.fname(i) or b"").decode(): found.ftype(i) for i in range(found.nfields)}


def _as_it_is(name: str, kind: int) -> str:
    """Whole numbers, truth values and times unchanged; others as text in the order of its bytes, as engines have it."""
    column = quoted_name(name)
    if kind in (*_INTEGERS, _BOOLEAN, _DATE, *_TIMES):
        return column
    # 7 and 7.00 are one id.
    value = f"trim_scale({column})" if kind == _NUMERIC else column
    if kind in (*_FLOATS, _NUMERIC):
        value = f"nullif({value}, 'NaN')"
    return f'CAST({value} AS text) COLLATE "C" AS {column}'


def _type(kind: int) -> str:
    names = {_BOOLEAN: "boolean", _DATE: "date"}
    names |= dict.fromkeys(_INTEGERS, "int64") | dict.fromkeys(_TIMES, "timestamp")
    return names.get(kind, "string")


def _double_column(name: str) -> str:
    # A numeric may be too large or too small for a double. PostgreSQL's cast then fails where others round to 0.
    column = quoted_name(name)
    return (
        f"CASE WHEN {column} BETWEEN -1e-200 AND 1e-200 THEN 0 WHEN {column} BETWEEN -1e300 AND 1e300 "
        f"THEN CAST({column} AS double precision) END AS {column}"
    )
