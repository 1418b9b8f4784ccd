"""Asking an engine: one door for every answer, which repeats nothing that an engine says of the log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import ibis.expr.types as ir
import pyarrow as pa
from ibis.common.exceptions import IbisError

# What an engine finds before it looks at rows, or whatever they hold: names, syntax, rights, connections, disks.
KINDS_OF_NO_ROW = {
    *("BinderException", "CatalogException", "ParserException", "SyntaxException", "PermissionException"),
    *("ConnectionException", "IOException", "OperationalError"),
}
STATES_OF_NO_ROW = {"08", "25", "28", "3D", "42", "53", "57", "58"}
_NAMES = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "pyspark": "Spark"}


class RowError(ValueError):
    """An engine failed at its rows. If it was a query of the user's that did, the failure may tell of one of them."""


def answer(question: ir.Table) -> pa.Table:
    """Run an expression where its table lies. Ctrl-C stops the engine, not only the waiting for it."""
    backend = question.get_backend()
    # DuckDB does not look at signals while it works, so it works in a thread that another may interrupt.
    stop = backend.con.interrupt if backend.name == "duckdb" else None
    name = _NAMES.get(backend.name, backend.name)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(question.to_pyarrow)
        try:
            return waiting.result()
        except KeyboardInterrupt:
            if stop is not None:
                stop()
            raise
        except IbisError as error:  # about the expression, not about the log
            raise ValueError(f"{name} cannot count this: {error}") from None
        except Exception as error:
            raise refused(name, error) from None


def refused(engine: str, error: BaseException, detail: str = "") -> ValueError:
    """A complaint without the engine's own words: the class of the first error of a chain, and SQL's state for it."""
    while error.__context__ is not None:
        error = error.__context__
    kind, state = type(error).__name__, getattr(error, "sqlstate", None)
    message = (
        f"{engine} refused the connection or the query ({kind}{f' SQLSTATE {state}' if state else ''}){detail}. Its "
        f"message may quote the log and is not repeated here; run the query in {engine} itself to read it"
    )
    about_no_row = state[:2] in STATES_OF_NO_ROW if state else kind in KINDS_OF_NO_ROW
    return ValueError(message) if about_no_row else RowError(message)
