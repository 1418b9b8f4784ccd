"""A log on a PostgreSQL server: the answer to a query, which is read and counted there.

Query and counts are one statement, and so find functions along one search path. A function in a schema of that path may
have the name of PostgreSQL's own and fit the counts better. A server where one could is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import ibis
import ibis.expr.types as ir

from poolrl.data.log import Columns
from poolrl.data.sources.definitions import in_reach
from poolrl.data.sources.duckdb import require_columns
from poolrl.data.sources.engine import interruptible, quoted_name, refused

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult

# PostgreSQL's own numbers (OIDs) for its types.
_INTEGERS, _FLOATS, _NUMERIC, _BOOLEAN, _DATE, _TIMES = (20, 21, 23), (700, 701), 1700, 16, 1082, (1114, 1184)
_TEXTS, _UUID = (19, 25, 1042, 1043), 2950
# Functions, operators and casts for PostgreSQL's own types that are not its own, but might be taken for such.
# Casts with numbers from 16384 on are a user's. An operator on text like % of pg_trgm is none that we use.
_SHADOWS = """
WITH own AS (SELECT oid, typcategory FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace),
  others AS (SELECT oid, nspname FROM pg_namespace WHERE nspname = ANY (%s) AND nspname <> 'pg_catalog')
SELECT nspname || '.' || proname FROM pg_proc f JOIN others ON f.pronamespace = others.oid
WHERE NOT EXISTS (SELECT FROM unnest(f.proargtypes) AS kind WHERE kind NOT IN (SELECT oid FROM own))
  AND EXISTS (SELECT FROM pg_proc g WHERE g.proname = f.proname AND g.pronamespace = 'pg_catalog'::regnamespace)
UNION ALL
SELECT nspname || '.' || oprname FROM pg_operator o JOIN others ON o.oprnamespace = others.oid
  JOIN own AS kind ON o.oprright = kind.oid
WHERE (o.oprleft = 0 OR o.oprleft IN (SELECT oid FROM own))
  AND (o.oprname IN ('=', '<>', '<', '<=', '>', '>=', '||', '~')
    OR (kind.typcategory = 'N' AND o.oprname IN ('+', '-', '*', '/', '%%', '^', '&', '|', '#', '<<', '>>')))
UNION ALL
SELECT 'a cast' FROM pg_cast c
WHERE c.oid >= 16384 AND c.castsource IN (SELECT oid FROM own) AND c.casttarget IN (SELECT oid FROM own)
"""
# What users and extensions have made that computes: views, functions, and the functions behind operators.
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


@contextmanager
def open_postgres(server: str, query: str, columns: Columns) -> Iterator[tuple[ir.Table, tuple[str, ...]]]:
    """The answer to a query, as a table that stays on the server, and the SQL that it may come through there."""
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
        _refuse_shadows(connection)
        kinds = _described(connection, f"SELECT * FROM {rows}")
        require_columns(columns.names(), kinds)
        ids, as_they_are = {columns.trajectory, columns.unit} - {None}, columns.as_they_are()
        _refuse_ids(connection, {name: kinds[name] for name in ids if name is not None})
        names = list(dict.fromkeys(columns.names()))
        # A label that is not text is a number like others.
        numbers = {n for n in names if n not in as_they_are or (n not in ids and kinds[n] in (*_FLOATS, _NUMERIC))}
        chosen = [_double_column(n) if n in numbers else _as_it_is(n, kinds[n]) for n in names]
        schema = {n: "float64" if n in numbers else _type(kinds[n]) for n in names}
        backend = ibis.postgres.from_connection(connection)
        table = backend.sql(f"SELECT {', '.join(chosen)} FROM {rows}", schema=ibis.schema(schema))
        # Ibis may have rewritten the query, so the server checks it again.
        _described(connection, str(backend.compile(table)))
        yield table, _definitions(connection, query)
    finally:
        # The session changed nothing, so nothing is lost if it is already gone.
        with suppress(psycopg.Error):
            connection.close()


def _refuse_shadows(connection: Connection) -> None:
    """Refuse a search path along which our counts might find anything but PostgreSQL's own functions."""
    from psycopg import Error

    def look() -> tuple[list[str], list[str]]:
        (path,) = connection.execute("SELECT pg_catalog.current_schemas(true)::pg_catalog.text[]").fetchone() or ([],)
        # No name below is found in another schema.
        connection.execute("SET LOCAL search_path = pg_catalog")
        found = [name for (name,) in connection.execute(_SHADOWS, [path]).fetchall()]
        connection.rollback()
        return path, found

    try:
        path, found = interruptible(look, connection.cancel_safe)
    except Error as error:
        raise ValueError(refused("PostgreSQL", error)) from None
    if next((schema for schema in path if not schema.startswith("pg_temp")), "") != "pg_catalog":
        found.append("search_path, where pg_catalog does not come first")
    if found:
        raise ValueError(
            f"PostgreSQL has something that counts might take for its own: {found[0]}. Add "
            "?options=-c%20search_path%3Dpg_catalog to the server's address, and name schemas in the query"
        )


def _definitions(connection: Connection, query: str) -> tuple[str, ...]:
    """What the query can come through besides itself. The server's catalogue is read, and no row of a table."""
    from psycopg import Error

    def look() -> list[tuple[str, str]]:
        connection.execute("SET LOCAL search_path = pg_catalog")
        found: list[tuple[str, str]] = connection.execute(_MADE_BY_USERS).fetchall()
        connection.rollback()
        return found

    try:
        return in_reach(query, interruptible(look, connection.cancel_safe))
    except Error as error:
        raise ValueError(refused("PostgreSQL", error)) from None


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
    """Numbers, truth values and times unchanged; others as text in the order of its bytes, as engines have it."""
    column = quoted_name(name)
    if kind in (*_INTEGERS, *_FLOATS, _BOOLEAN, _DATE, *_TIMES):
        return column
    # 7 and 7.00 are one id. NaN and infinity are none.
    value = f"CASE WHEN abs({column}) < 1e100 THEN trim_scale({column}) END" if kind == _NUMERIC else column
    return f'CAST({value} AS text) COLLATE "C" AS {column}'


def _type(kind: int) -> str:
    names = {_BOOLEAN: "boolean", _DATE: "date"}
    names |= dict.fromkeys(_INTEGERS, "int64") | dict.fromkeys(_FLOATS, "float64") | dict.fromkeys(_TIMES, "timestamp")
    return names.get(kind, "string")


def _double_column(name: str) -> str:
    # A numeric may be too large or too small for a double. PostgreSQL's cast then fails where others round to 0.
    column = quoted_name(name)
    return (
        f"CASE WHEN {column} BETWEEN -1e-200 AND 1e-200 THEN 0 WHEN {column} BETWEEN -1e300 AND 1e300 "
        f"THEN CAST({column} AS double precision) END AS {column}"
    )
