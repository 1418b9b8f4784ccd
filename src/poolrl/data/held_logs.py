"""Does a problem of your own hold a log? Its formulas must know public facts and their own row, and nothing else.

What a formula does with its row is recorded (`row_by_row`). What it brings along is not: a mean of the log in a
formula looks like any number. So whatever a formula can reach by name is looked at, and a table of rows among it is
refused. This finds mistakes, not malice: an array of numbers may be a public fact, and code can read a file by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from poolrl.problems.problem import Problem

# How many functions deep names are followed; and modules whose entries are nobody's rows.
CALLS_DEEP, LIBRARIES = 2, {"numpy", "scipy", "poolrl", "math"}
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


def refuse_held_logs(problem: Problem) -> None:
    """Refuse a problem that can reach a table of rows: in itself, in its class, or by a name in what it calls."""
    kind = type(problem).__name__
    for name, value in vars(problem).items():
        if _holds_rows(value):
            raise ValueError(f"{name} of {kind} holds a table of rows: a problem may hold public facts only")
    for owner in type(problem).__mro__:
        if owner.__module__.startswith("poolrl.") or owner is object:
            continue
        for name, value in vars(owner).items():
            if _holds_rows(value):
                raise ValueError(f"{name} of {kind} holds a table of rows: a problem may hold public facts only")
            for function in _functions_of(value):
                if (found := _reached_rows(function, CALLS_DEEP)) is not None:
                    raise ValueError(
                        f"{name}() of {kind} reads {found}, a table of rows: what a row shows must follow from "
                        "that row and from public facts"
                    )


def _functions_of(value: Any) -> list[FunctionType]:
    """The functions of a class's entry: a method, a property or a class method."""
    if isinstance(value, property):
        return [each for each in (value.fget, value.fset, value.fdel) if isinstance(each, FunctionType)]
    plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return [plain] if isinstance(plain, FunctionType) else []


def _reached_rows(function: FunctionType, deep: int) -> str | None:
    """The name of a table that a function can reach, also through functions that it names."""
    for name, value in _reached(function):
        if _holds_rows(value):
            return name
        ours = isinstance(value, FunctionType) and not value.__module__.startswith(("poolrl.", "numpy"))
        if deep and ours and (found := _reached_rows(value, deep - 1)) is not None:
            return found
    return None


def _reached(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function can reach by name: globals, entries of modules, what it encloses, and its defaults."""
    names = set(_names_in(function.__code__))
    for name in names & set(function.__globals__):
        value = function.__globals__[name]
        yield name, value
        if isinstance(value, ModuleType) and value.__name__.split(".")[0] not in LIBRARIES:
            yield from ((f"{name}.{entry}", vars(value)[entry]) for entry in names & set(vars(value)))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from ((f"a default of {function.__name__}", value) for value in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()


def _names_in(code: CodeType) -> Iterator[str]:
    """Names in a function's code, and in functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _holds_rows(value: Any, depth: int = 2) -> bool:
    if any((each.__module__.split(".")[0], each.__name__) in TABLE_CLASSES for each in type(value).__mro__):
        return True
    if depth and isinstance(value, Mapping):
        return any(_holds_rows(each, depth - 1) for each in value.values())
    return bool(depth) and isinstance(value, list | tuple | set) and any(_holds_rows(e, depth - 1) for e in value)
