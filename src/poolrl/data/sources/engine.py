"""Asking an engine: one door for every answer, which repeats nothing that an engine says of the log."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeVar

import ibis.expr.types as ir
import pyarrow as pa
from ibis.common.exceptions import IbisError

Answer = TypeVar("Answer")
_NAMES = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "pyspark": "Spark"}


class RowError(ValueError):
    """An engine failed at the rows of a log, which may be the doing of one of them."""


class NoRowsError(ValueError):
    """There are none. How many units a log has is public, but not what a query of the user's left of them."""


def answer(question: ir.Table) -> pa.Table:
    """Run an expression where its table lies. Ctrl-C stops DuckDB and PostgreSQL, not only the waiting."""
    backend = question.get_backend()
    name = _NAMES.get(backend.name, backend.name)
    try:
        return interruptible(question.to_pyarrow, _stopping(backend))
    except IbisError as error:  # about the expression, not about the log
        raise ValueError(f"{name} cannot count this: {error}") from None
    except Exception as error:
        if isinstance(_first(error), KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise RowError(refused(name, error)) from None


def _stopping(backend: Any) -> Callable[[], None] | None:
    """What makes an engine give up what it does, if that stops nobody else's work (as it would in a Spark session)."""
    match backend.name:
        case "duckdb":
            return backend.con.interrupt
        case "postgres":
            return backend.con.cancel_safe
    return None


def interruptible(work: Callable[[], Answer], stop: Callable[[], None] | None) -> Answer:
    """Engines do not look at signals while they work, so they work in a thread that another may interrupt."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(work)
        try:
            return waiting.result()
        except KeyboardInterrupt:
            while stop is not None and not waiting.done():
                with suppress(Exception):  # a server may not answer for once
                    stop()  # once would be lost on a query that is about to begin
                wait([waiting], timeout=0.05)
            raise


def refused(engine: str, error: BaseException, detail: str = "") -> str:
    """A complaint without the engine's own words: the class of the first error of a chain, and SQL's state for it."""
    kind, state = type(_first(error)).__name__, getattr(_first(error), "sqlstate", None)
    return (
        f"{engine} refused the connection or the query ({kind}{f' SQLSTATE {state}' if state else ''}){detail}. Its "
        f"message may quote the log and is not repeated here; run the query in {engine} itself to read it"
    )


def _first(error: BaseException) -> BaseException:
    """The error that a chain began with."""
    return error if error.__context__ is None else _first(error.__context__)
