"""Pieces of the expressions by which a table is counted; each gives the same bits on every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np

from poolrl.checks import FloatArray
from poolrl.data.column_vector import ColumnVector
from poolrl.data.row_rules import Numbers, Row, bounds, moved_inside, possible, within
from poolrl.problems.problem import Problem, SeparableProblem

# Names of the harmless columns of a row.
COLUMNS_OF = ("state", "action", "next_state")
# What a row (state, action, next state) of a step says, and where it may be used.
Formulas = Callable[[int, Row, Numbers], list[ir.Value]]
# Beyond it a number is as good as infinite, and squaring it would overflow.
LARGEST_NUMBER = 1e150


def finite(number: Numbers) -> Numbers:
    """Whether a number is neither NULL, NaN nor infinite; such a rule is NULL or false.

    By x − x = 0, because DuckDB believes Parquet's statistics, which pass over NaN: x ≤ 100 is true for a NaN in a
    column whose largest number is 100, and "not isnan(x)" for every row.
    """
    return number - number == 0.0


def says_something(column: ir.Column) -> list[ir.BooleanColumn]:
    """An id that is NULL, NaN or blank is nobody's: one unit of everybody without a name would protect nobody."""
    kind = column.type()
    if kind.is_floating():
        return [finite(column)]
    if kind.is_string():
        return [column.notnull(), column.strip() != ""]
    return [column.notnull()]


def binary_ones(number: ir.IntegerValue, bits: int) -> ir.IntegerValue:
    """How many of the lowest bits are one; not every engine has a name for it."""
    return reduce(add, [(number >> place) & 1 for place in range(bits)])


def harmless(problem: Problem, parts: Sequence[Sequence[ir.Column]], *, clip: bool) -> dict[str, ir.Column]:
    """The numbers of a row as doubles with which every formula can be computed, and whether they are meant.

    Where one is missing or outside, all of its coordinate (all of the row, if coordinates belong together) stand at
    their lower bounds, so that nothing overflows and every cast fits; the columns `fine_0`, ... say where.
    """
    known: dict[Any, Any] = {}
    rows: list[Numbers] = [ColumnVector([column.cast("float64") for column in part], known) for part in parts]
    together = not isinstance(problem, SeparableProblem)
    there: Numbers = None
    inside: Numbers = True
    for numbers, (low, high) in zip(rows, bounds(problem), strict=True):
        held = (numbers >= -LARGEST_NUMBER) & (numbers <= LARGEST_NUMBER) if clip else within(numbers, low, high)
        gap = numbers - numbers  # 0, unless the number is none
        if together:
            held, gap = held.all(axis=-1, keepdims=True), sum(gap[i : i + 1] for i in range(len(gap)))
        inside = held if inside is True else inside & held
        there = gap if there is None else there + gap
    fine: Numbers = (there == 0.0) & inside
    columns = {f"fine_{i}": column.fill_null(False) for i, column in enumerate(fine.columns())}
    for name, numbers, (low, _) in zip(COLUMNS_OF, rows, bounds(problem), strict=True):
        safe: Numbers = np.where(fine, numbers, low)
        columns |= {f"{name}_{i}": column for i, column in enumerate(safe.columns())}
    return columns


def cells_by_step(problem: Problem, rows: ir.Table, formulas: Formulas, *, clip: bool) -> list[ir.Value]:
    """The expressions of `formulas(step, row, usable)` on `harmless` rows, told apart by step only where they differ.

    `usable` is (k,) coordinate by coordinate, or (1,). A column that the rows do not have is of another coordinate
    and stands at its lower bound.
    """

    known: dict[Any, Any] = {}

    def vector(name: str, otherwise: Sequence[float]) -> ColumnVector:
        names = [f"{name}_{i}" for i in range(len(otherwise))]
        return ColumnVector([rows[n] if n in rows.columns else o for n, o in zip(names, otherwise, strict=True)], known)

    state, action, next_state = (
        vector(n, low.tolist()) for n, (low, _) in zip(COLUMNS_OF, bounds(problem), strict=True)
    )
    values: Row = (state, action, next_state)
    coordinates = problem.outcome_dim if isinstance(problem, SeparableProblem) else 1
    fine = vector("fine", [False] * coordinates)
    by_step = []
    try:
        for step in range(problem.horizon):
            row = moved_inside(problem, step, values) if clip else values
            by_step.append(formulas(step, row, fine & possible(problem, step, row)))
    except (TypeError, AttributeError) as error:  # about the formulas: no row has been looked at
        raise ValueError(
            f"{type(problem).__name__} says what a row tells in a way that no engine can be given ({error}); use "
            "NumPy's arithmetic, comparisons, where, clip, minimum and maximum, or give the log as Trajectories"
        ) from None
    return [_told_apart(rows.step, choices) for choices in zip(*by_step, strict=True)]


def _told_apart(step: ir.Column, choices: Sequence[ir.Value]) -> ir.Value:
    """choices[h] at step h; one expression where all are the same."""
    distinct: list[tuple[ir.Value, list[int]]] = []
    for number, choice in enumerate(choices):
        for known, steps in distinct:
            if choice is known or choice.equals(known):
                steps.append(number)
                break
        else:
            distinct.append((choice, [number]))
    if len(distinct) == 1:
        return choices[0]
    return ibis.cases(*((step.isin(steps), choice) for choice, steps in distinct))


def at_nearest(
    rows: ir.Table,
    cell: str,
    directions: Sequence[FloatArray | None],
    point: Sequence[str],
    nearest: Callable[[Numbers, Numbers], Numbers],
) -> ir.Table:
    """Replace a cell's number by that of the node inside it whose direction is nearest to the point.

    `directions` (cells, J, D) of each step, or of all steps alike, are joined as a small table; where there are none
    the cell is the node.
    """
    if directions[0] is None or directions[0].shape[1] == 1:
        return rows
    known = np.stack([part for part in directions if part is not None])  # (steps, cells, J, D)
    steps, cells, count, dimensions = known.shape
    names = [f"{cell}_direction_{j}_{i}" for j in range(count) for i in range(dimensions)]
    lookup: dict[str, Any] = {
        f"{cell}_cell": np.tile(np.arange(cells), steps),
        f"{cell}_step": np.repeat(np.arange(steps), cells),
    }
    lookup |= dict(zip(names, known.reshape(steps * cells, -1).T, strict=True))
    table = ibis.memtable(lookup, schema=_schema(lookup))
    on = [rows[cell] == table[f"{cell}_cell"]]
    if steps > 1:
        on.append(rows.step.cast("int64") == table[f"{cell}_step"])
    joined = rows.join(table, on)
    corners = np.empty((count, dimensions), dtype=object)
    for place, name in zip(np.ndindex(corners.shape), names, strict=True):
        corners[place] = joined[name]
    (chosen,) = nearest(ColumnVector(corners), ColumnVector([joined[name] for name in point])).columns()
    kept = [name for name in rows.columns if name != cell]
    return joined.select(*kept, **{cell: joined[cell] * count + chosen})


def _schema(lookup: dict[str, Any]) -> ibis.Schema:
    return ibis.schema({name: "int64" if values.dtype.kind == "i" else "float64" for name, values in lookup.items()})
