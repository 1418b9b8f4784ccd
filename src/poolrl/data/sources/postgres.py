"""A log on a PostgreSQL server: what a query there gives, read only, and counted there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import ibis
import ibis.expr.types as ir

from poolrl.data.log import Columns
from poolrl.data.sources.duckdb import require_columns
from poolrl.data.sources.engine import interruptible, refused
from poolrl.data.sources.sql import quoted_name

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult

# PostgreSQL's numbers for its types.
_INTEGERS, _FLOATS, _NUMERIC, _DATE, _TIMES = (20, 21, 23), (700, 701), 1700, 1082, (1114, 1184)


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
        # A log is read, whatever the query says, and every question about it sees the same rows.
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        kinds = _described(connection, f"SELECT * FROM {rows}")
        require_columns(columns.names(), kinds)
        ids = {name for name in (columns.trajectory, columns.unit) if name is not None}
        names = list(dict.fromkeys(columns.names()))
        chosen = [_id_column(n, kinds[n]) if n in ids else _double_column(n) for n in names]
        schema = {n: "float64" if n not in ids else _type(kinds[n]) for n in names}
        backend = ibis.postgres.from_connection(connection)
        table = backend.sql(f"SELECT {', '.join(chosen)} FROM {rows}", schema=ibis.schema(schema))
        _described(connection, str(backend.compile(table)))  # Ibis may say it in other words
        yield table
    finally:
        with suppress(psycopg.Error):  # nothing was changed, so nothing is lost with a session that is gone
            connection.close()


def _described(connection: Connection, query: str) -> dict[str, int]:
    """The columns of a query, and the types of each: what the server knows before it plans, let alone runs, it.

    As one prepared statement. A server that plans a query may run functions of it already, and meet rows.
    """
    from psycopg import Error
    from psycopg.errors import error_from_result
    from psycopg.pq import ExecStatus

    def describe() -> PGresult:
        connection.execute("SELECT 1")  # begins a transaction, so that both go to one session of a server behind a pool
        found = connection.pgconn.prepare(b"", query.encode())
        if found.status == ExecStatus.COMMAND_OK:
            found = connection.pgconn.describe_prepared(b"")
        connection.rollback()  # rows are to be seen as they are after somebody's lock was waited for, not before
        return found

    try:
        found = interruptible(describe, connection.cancel_safe)  # the server may wait for somebody's lock on a table
        if found.status != ExecStatus.COMMAND_OK:
            raise error_from_result(found)
    except Error as error:
        raise ValueError(refused("PostgreSQL", error)) from None
    return {(found.fname(i) or b"").decode(): found.ftype(i) for i in range(found.nfields)}


def _id_column(name: str, kind: int) -> str:
    """Whole numbers and times as they are; anything else as text in the order of its bytes, as engines have it."""
    column = quoted_name(name)
    if kind in (*_INTEGERS, _DATE, *_TIMES):
        return column
    value = f"trim_scale({column})" if kind == _NUMERIC else column  # 7 and 7.00 are one id
    if kind in (*_FLOATS, _NUMERIC):
        value = f"nullif({value}, 'NaN')"
    return f'CAST({value} AS text) COLLATE "C" AS {column}'


def _type(kind: int) -> str:
    return "int64" if kind in _INTEGERS else "date" if kind == _DATE else "timestamp" if kind in _TIMES else "string"


def _double_column(name: str) -> str:
    # A numeric may be larger or smaller than any double, and PostgreSQL's arithmetic fails where others round to 0.
    column = quoted_name(name)
    return (
        f"CASE WHEN {column} BETWEEN -1e-200 AND 1e-200 THEN 0 WHEN {column} BETWEEN -1e300 AND 1e300 "
        f"THEN CAST({column} AS double precision) END AS {column}"
    )
