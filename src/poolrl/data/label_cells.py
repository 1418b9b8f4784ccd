"""The label cell of every row of a table, and its coordinate where it has one, found by its engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ibis
import ibis.expr.operations as ops
import ibis.expr.types as ir
import pyarrow as pa

from poolrl.data.row_rules import has_own_bounds
from poolrl.data.sources.engine import engine_of
from poolrl.problems.labels import Labels, LabelValue
from poolrl.problems.problem import OutcomeProblem, Problem

# The columns that are added to a table. A user's own column is hardly called so.
CELL, PLACE, SHARE = "poolrl_cell", "poolrl_place_{}", "poolrl_share_{}"
COORDINATE = "poolrl_coordinate"


def with_label_cells(
    rows: ir.Table, columns: Mapping[str, str], problem: Problem, *, by_coordinate: bool = False
) -> ir.Table:
    """The rows whose labels were all declared, with their cell, and with the cell's share of the bound.

    That is a share for each coordinate or, where a row shows one coordinate, for this one.
    """
    labels, found = problem.labels, rows
    cell: Any = None
    for i, (name, values) in enumerate(zip(labels.names, labels.values, strict=True)):
        places = {f"poolrl_value_{i}": _as_compared(values), PLACE.format(i): list(range(len(values)))}
        declared = small_table(rows, places)
        found = found.inner_join(declared, comparable(found[columns[name]], labels, name) == declared[0])
    for i, size in enumerate(labels.shape):
        place = found[PLACE.format(i)].cast("int64")
        cell = cell * size + place if i else place
    found = found.mutate(**{CELL: cell})
    if isinstance(problem, OutcomeProblem) and has_own_bounds(problem):
        found = _with_shares(found, problem, by_coordinate=by_coordinate)
    return found


def _with_shares(rows: ir.Table, problem: OutcomeProblem, *, by_coordinate: bool) -> ir.Table:
    shares = problem.bound_share.reshape(problem.labels.count, problem.outcome_dim)
    place, by_place = rows[CELL], {SHARE.format(i): part.tolist() for i, part in enumerate(shares.T)}
    if by_coordinate:
        place = place * problem.outcome_dim + rows[COORDINATE]
        by_place = {SHARE.format(0): shares.ravel().tolist()}
    places = list(range(len(by_place[SHARE.format(0)])))
    bound = small_table(rows, {"poolrl_bound_cell": places, **by_place})
    return rows.inner_join(bound, place == bound["poolrl_bound_cell"].cast("int64"))


def with_coordinates(
    rows: ir.Table, column: str, coordinates: Labels, facts: Mapping[str, Sequence[float]]
) -> ir.Table:
    """The rows whose coordinate was declared, with its place, and with the `facts` of each coordinate."""
    (values,) = coordinates.values
    places = {"poolrl_coordinate_value": _as_compared(values), "poolrl_coordinate_place": list(range(len(values)))}
    declared = small_table(rows, {**places, **{name: list(numbers) for name, numbers in facts.items()}})
    found = rows.inner_join(declared, comparable(rows[column], coordinates, "") == declared[0])
    return found.mutate(**{COORDINATE: found["poolrl_coordinate_place"].cast("int64")})


def _as_compared(values: Sequence[LabelValue]) -> list[Any]:
    """Values as an engine compares them: −0 is 0, and a large whole number is the nearest double, as in a column."""
    return [value if isinstance(value, str) else float(value) + 0.0 for value in values]


def comparable(column: ir.Column, labels: Labels, name: str) -> ir.Value:
    """A column of labels or coordinates as what their values were declared as: doubles or text."""
    kind, is_text = column.type(), isinstance(labels.values[labels.names.index(name)][0], str)
    if kind.is_null():
        # A column of nothing but missing values: its type must not tell.
        return ibis.null("string" if is_text else "float64")
    if is_text and (kind.is_string() or kind.is_integer()):
        return column.cast("string")
    if not is_text and kind.is_numeric():
        return column.cast("float64") + 0.0
    if not is_text and kind.is_boolean():
        return ibis.cases((column, 1.0), (~column, 0.0), else_=ibis.null("float64"))
    engine = engine_of(column)
    if not is_text and kind.is_string() and (engine is None or engine.has_operation(ops.TryCast)):
        return number_of_text(column)
    wanted, what = "text" if is_text else "numbers", f"label {name!r}" if name else "coordinate"
    raise ValueError(f"{what} must hold {wanted}, as declared, but its column has type {kind}")


def number_of_text(column: ir.Column) -> ir.Value:
    """Every column of a CSV file is text. Text that is not a number becomes NULL."""
    return column.try_cast("float64") + 0.0


def small_table(rows: ir.Table, columns: dict[str, list[Any]]) -> ir.Table:
    """A table of public values, where the engine can see it."""
    engine = engine_of(rows)
    if engine is None or engine.name != "postgres":
        return ibis.memtable(pa.table(columns))
    # Nothing can be written in a read-only transaction of PostgreSQL, so the values stand in the query.
    length = len(next(iter(columns.values())))
    place = ibis.range(length).unnest().name("poolrl_at").as_table()
    kinds = {name: "string" if isinstance(v[0], str) else "float64" for name, v in columns.items()}
    lists = {name: ibis.literal(values, f"array<{kinds[name]}>") for name, values in columns.items()}
    return place.select(**{name: values[place["poolrl_at"]] for name, values in lists.items()})
