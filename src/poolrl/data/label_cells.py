"""The label cell of every row of a table, found by its engine: joins with small tables of the declared values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ibis
import ibis.expr.operations as ops
import ibis.expr.types as ir
import pyarrow as pa
from ibis.common.exceptions import IbisError

from poolrl.problems.labels import Labels
from poolrl.problems.problem import OutcomeProblem, Problem

# The columns that are added to a table. A user's own column is hardly called so.
CELL, SHARE = "poolrl_cell", "poolrl_share_{}"


def with_label_cells(rows: ir.Table, columns: Mapping[str, str], problem: Problem) -> ir.Table:
    """The rows whose labels were all declared, with their cell, and with the cell's share of the bound."""
    labels, found = problem.labels, rows
    cell: Any = ibis.literal(0, "int64")
    for i, (name, values) in enumerate(zip(labels.names, labels.values, strict=True)):
        # −0 is 0, and a large whole number is the nearest double, as in the column.
        plain = list(values) if isinstance(values[0], str) else [float(value) + 0.0 for value in values]
        declared = _small_table(rows, {f"poolrl_value_{i}": plain, f"poolrl_place_{i}": list(range(len(plain)))})
        found = found.inner_join(declared, comparable(found[columns[name]], labels, name) == declared[0])
    for i, size in enumerate(labels.shape):
        cell = cell * size + found[f"poolrl_place_{i}"].cast("int64")
    found = found.mutate(**{CELL: cell})
    if isinstance(problem, OutcomeProblem) and (problem.bound_share != 1).any():
        shares = problem.bound_share.reshape(labels.count, problem.outcome_dim)
        by_cell = {SHARE.format(i): shares[:, i].tolist() for i in range(problem.outcome_dim)}
        bound = _small_table(rows, {"poolrl_bound_cell": list(range(labels.count)), **by_cell})
        found = found.inner_join(bound, found[CELL] == bound["poolrl_bound_cell"].cast("int64"))
    return found


def comparable(column: ir.Column, labels: Labels, name: str) -> ir.Value:
    """A label's column as what its values were declared as: doubles or text."""
    kind, is_text = column.type(), isinstance(labels.values[labels.names.index(name)][0], str)
    if is_text and (kind.is_string() or kind.is_integer()):
        return column.cast("string")
    if not is_text and kind.is_numeric():
        return column.cast("float64") + 0.0
    if not is_text and kind.is_boolean():
        return ibis.cases((column, 1.0), (~column, 0.0), else_=ibis.null("float64"))
    if not is_text and kind.is_string() and _has(column, ops.TryCast):
        # Every column of a CSV file is text. What is not a number becomes NULL.
        return column.try_cast("float64") + 0.0
    wanted = "text" if is_text else "numbers"
    raise ValueError(f"label {name!r} must hold {wanted}, as declared, but its column has type {kind}")


def _small_table(rows: ir.Table, columns: dict[str, list[Any]]) -> ir.Table:
    """A table of public values, where the engine can see it."""
    if _backend(rows) != "postgres":
        return ibis.memtable(pa.table(columns))
    # Nothing can be written in a read-only transaction of PostgreSQL, so the values stand in the query.
    length = len(next(iter(columns.values())))
    place = ibis.range(length).unnest().name("poolrl_at").as_table()
    kinds = {name: "string" if isinstance(v[0], str) else "float64" for name, v in columns.items()}
    lists = {name: ibis.literal(values, f"array<{kinds[name]}>") for name, values in columns.items()}
    return place.select(**{name: values[place["poolrl_at"]] for name, values in lists.items()})


def _backend(rows: ir.Table) -> str | None:
    """The name of a table's engine; None for a table that has none yet."""
    try:
        return str(rows.get_backend().name)
    except IbisError:
        return None


def _has(column: ir.Column, operation: type[ops.Node]) -> bool:
    try:
        return bool(column.get_backend().has_operation(operation))
    except IbisError:
        return True
