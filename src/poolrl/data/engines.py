"""Asking an engine: one door for every answer, which repeats nothing that an engine says of the log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import ibis.expr.types as ir
import pyarrow as pa
from ibis.common.exceptions import IbisError

_NAMES = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "pyspark": "Spark"}


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
            raise ValueError(refused(name, kind_of(error))) from None


def refused(engine: str, kind: str, detail: str = "") -> str:
    """A complaint without the engine's own words."""
    return (
        f"{engine} refused the connection or the query ({kind}){detail}. Its message may quote the log and is not "
        f"repeated here; run the query in {engine} itself to read it"
    )


def kind_of(error: BaseException) -> str:
    """The class of the first error of a chain, and the state that SQL's standard has for it."""
    while error.__context__ is not None:
        error = error.__context__
    state = getattr(error, "sqlstate", None)
    return type(error).__name__ + (f" SQLSTATE {state}" if state else "")
