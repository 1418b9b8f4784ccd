"""Asking an engine: every answer comes this way, and no message of an engine about the log is repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import ibis
import ibis.expr.types as ir
import pyarrow as pa
from ibis.common.exceptions import IbisError

Answer = TypeVar("Answer")
_NAMES = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "pyspark": "Spark"}
# The method of a connection that stops its work. Spark has none that would not stop other people's work too.
_STOPS = {"duckdb": "interrupt", "postgres": "cancel_safe"}


@dataclass(frozen=True)
class Source:
    """A log where it lies, and the SQL texts of its database that it may have come through besides the query."""

    rows: ir.Table
    definitions: tuple[str, ...] = ()


class RowError(ValueError):
    """An engine failed at the rows of a log. One single row may be the cause."""


class NoRowsError(ValueError):
    """A log without rows. The number of units is public, but not how many of them a user's query has kept."""


def _through_bytes(encode: str, decode: str, *encoding: str) -> Callable[[ir.Column], ir.Column]:
    """From a text to its bytes and back, by two functions of an engine: the result has no collation."""
    function: Callable[..., Any] = (lambda given, encoding: None) if encoding else (lambda given: None)
    more = ("string",) * len(encoding)
    there = ibis.udf.scalar.builtin(function, name=encode, signature=(("string", *more), "binary"))
    back = ibis.udf.scalar.builtin(function, name=decode, signature=(("binary", *more), "string"))
    return lambda text: back(there(text, *encoding), *encoding)


_BY_BYTES = {
    "duckdb": _through_bytes("encode", "decode"),
    "pyspark": _through_bytes("encode", "decode", "UTF-8"),
    "postgres": _through_bytes("convert_to", "convert_from", "UTF8"),
}


def by_bytes(rows: ir.Table, names: Iterable[str]) -> ir.Table:
    """The rows with these texts as their bytes: by a collation one may equal others. BigQuery and Snowflake keep it."""
    engine: Any = engine_of(rows)
    if engine is None or engine.name not in _BY_BYTES:
        return rows
    if engine.name == "duckdb":
        # A text that comes back from bytes has the collation of the connection.
        ((collation,),) = engine.con.execute("SELECT current_setting('default_collation')").fetchall()
        if str(collation or "binary").lower() != "binary":
            raise ValueError(
                "DuckDB's default_collation must be binary: by another one, texts of two units may be equal"
            )
    texts = [name for name in dict.fromkeys(names) if rows[name].type().is_string()]
    return rows.mutate(**{name: _BY_BYTES[engine.name](rows[name]) for name in texts})


def in_memory(table: pa.Table) -> ir.Table:
    """A table for an engine of its own. The user's default one may be a server, or may compare texts in another way."""
    import duckdb  # here, because a plan needs none

    # A column of nothing but missing values has no type, which Ibis does not know.
    typed = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in table.schema]
    table = table.cast(pa.schema(typed))
    with refusing("DuckDB", duckdb.Error):
        database = duckdb.connect(":memory:")
        database.register("poolrl_rows", table)
        return ibis.duckdb.from_connection(database).table("poolrl_rows")


def read_texts(texts: Sequence[str | None], reading: Callable[[ir.Column], ir.Value]) -> pa.ChunkedArray:
    """What an engine in memory reads from each text."""
    table = in_memory(pa.table({"place": range(len(texts)), "text": pa.array(texts, pa.string())}))
    return answer(table.select("place", found=reading(table.text)).order_by("place"))["found"]


def engine_of(rows: ir.Table | ir.Column) -> ibis.BaseBackend | None:
    """The engine of a table; None for a table that has none yet."""
    try:
        return rows.get_backend()
    except IbisError:
        return None


def answer(question: ir.Table) -> pa.Table:
    """Run an expression where its table is. Ctrl-C stops the work of DuckDB and PostgreSQL, not only the waiting."""
    backend = question.get_backend()
    name = _NAMES.get(backend.name, backend.name)
    stop = getattr(backend.con, _STOPS[backend.name]) if backend.name in _STOPS else None
    try:
        return interruptible(question.to_pyarrow, stop)
    except IbisError as error:
        # Its message is about the expression, not about the log.
        raise ValueError(f"{name} cannot count this: {error}") from None
    except Exception as error:
        if isinstance(_first(error), KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise RowError(refused(name, error)) from None


def interruptible(work: Callable[[], Answer], stop: Callable[[], None] | None) -> Answer:
    """Let an engine work in a thread that can be interrupted, because engines ignore signals while they work."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(work)
        try:
            return waiting.result()
        except KeyboardInterrupt:
            # Again and again, because one call would be lost on a query that is about to begin.
            while stop is not None and not waiting.done():
                # A server may not answer.
                with suppress(Exception):
                    stop()
                wait([waiting], timeout=0.05)
            raise


def refused(engine: str, error: BaseException) -> str:
    """A message without the engine's own words: the class of the first error in a chain, and its SQLSTATE."""
    kind, state = type(_first(error)).__name__, getattr(_first(error), "sqlstate", None)
    return (
        f"{engine} refused the connection or the query ({kind}{f' SQLSTATE {state}' if state else ''}). Its "
        f"message may quote the log and is not repeated here; run the query in {engine} itself to read it"
    )


@contextmanager
def refusing(engine: str, errors: type[Exception], refusal: type[ValueError] = ValueError) -> Iterator[None]:
    """Raise a refusal without the engine's own words where the engine raises one of its errors."""
    try:
        yield
    except errors as error:
        raise refusal(refused(engine, error)) from None


def _first(error: BaseException) -> BaseException:
    """The error that a chain began with."""
    return error if error.__context__ is None else _first(error.__context__)
