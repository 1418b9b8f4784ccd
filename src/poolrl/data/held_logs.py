"""Does a problem of your own hold a log? Its formulas must know public facts and their own row, and nothing else.

What a formula does with its row is recorded (`row_by_row`). What it brings along is not: a mean of the log in a
formula looks like any number. So whatever a formula can reach by name is looked at, and a table of rows among it is
refused. Code that reads a file by itself is not found: the code of a problem is trusted not to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

from poolrl.problems.problem import Problem

# Classes whose objects are rows of somebody: (module, class), by the first part of the module's name.
TABLE_CLASSES = {
    ("poolrl", "Trajectories"),
    ("poolrl", "Table"),
    ("pandas", "DataFrame"),
    ("pandas", "Series"),
    ("polars", "DataFrame"),
    ("polars", "LazyFrame"),
    ("polars", "Series"),
    ("pyarrow", "Table"),
    ("pyarrow", "RecordBatch"),
    ("pyarrow", "ChunkedArray"),
    ("ibis", "Table"),
    ("ibis", "Column"),
    ("duckdb", "DuckDBPyRelation"),
    ("duckdb", "DuckDBPyConnection"),
    ("_duckdb", "DuckDBPyRelation"),
    ("_duckdb", "DuckDBPyConnection"),
}


def refuse_held_logs(problem: Problem, formulas: tuple[str, ...]) -> None:
    """Refuse a problem that can reach a table of rows: in itself, or by a name in one of its formulas."""
    kind = type(problem).__name__
    for name, value in vars(problem).items():
        if _holds_rows(value):
            raise ValueError(f"{name} of {kind} holds a table of rows: a problem may hold public facts only")
    for formula in formulas:
        for owner in type(problem).__mro__:
            plain = vars(owner).get(formula)
            if isinstance(plain, FunctionType) and not owner.__module__.startswith("poolrl."):
                for name, value in _reached(plain):
                    if _holds_rows(value):
                        raise ValueError(
                            f"{formula}() of {kind} reads {name}, a table of rows: what a row shows must follow from "
                            "that row and from public facts"
                        )


def _reached(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function can reach by name: globals that it names, what it encloses, and its defaults."""
    code = function.__code__
    yield from ((name, function.__globals__[name]) for name in code.co_names if name in function.__globals__)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from ((f"a default of {function.__name__}", value) for value in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()


def _holds_rows(value: Any, depth: int = 2) -> bool:
    if any((each.__module__.split(".")[0], each.__name__) in TABLE_CLASSES for each in type(value).__mro__):
        return True
    if depth and isinstance(value, Mapping):
        return any(_holds_rows(each, depth - 1) for each in value.values())
    return bool(depth) and isinstance(value, list | tuple | set) and any(_holds_rows(e, depth - 1) for e in value)
