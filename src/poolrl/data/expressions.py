"""Parts of the expressions that count a table. Each gives the same bits on every engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import ibis
import ibis.expr.operations as ops
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from poolrl.checks import FloatArray
from poolrl.data.on_columns import OnColumns, as_columns
from poolrl.data.row_rules import Numbers, bounds, has_own_bounds
from poolrl.data.sources.engine import engine_of
from poolrl.data.trace import Recording
from poolrl.geometry.partition import Partition
from poolrl.problems.labels import Labels, LabelValue
from poolrl.problems.problem import OutcomeProblem, Problem

COLUMNS_OF = ("state", "action", "next_state")  # names of the harmless columns of a row
# Steps are collected as bits of 64-bit numbers, this many in each number.
STEPS_PER_NUMBER = 30
# The columns that are added to a table. A user's own column is hardly called so.
CELL, SHARE = "poolrl_cell", "poolrl_share_{}"
COORDINATE = "poolrl_coordinate"


def finite(number: Numbers) -> Numbers:
    """True for a finite number; NULL or false for NULL, NaN and infinity.

    By x − x = 0, because DuckDB trusts Parquet's statistics, which ignore NaN: "not isnan(x)" would always be true.
    """
    return number - number == 0.0


def count_steps(rows: ir.Table, keys: list[str], horizon: int) -> ir.Table:
    """One row per trajectory: its keys, its number of rows as `count`, and whether a step is `repeated`."""
    sums, any_of = {}, {}
    for first in range(0, horizon, STEPS_PER_NUMBER):
        here = None if horizon <= STEPS_PER_NUMBER else rows.step.between(first, first + STEPS_PER_NUMBER - 1)
        bit = ibis.literal(1, "int64") << (rows.step % STEPS_PER_NUMBER)
        # As doubles, which do not overflow. With at most `horizon` rows the sums are exact.
        sums[f"sum_from_{first}"] = bit.cast("float64").sum(where=here)
        any_of[f"bits_from_{first}"] = bit.bit_or(where=here)
    lives = rows.group_by(keys).aggregate(**sums, **any_of, count=rows.count())
    # A sum of different powers of two is the number that has all their bits.
    twice = [lives[name] != lives[bits].cast("float64") for name, bits in zip(sums, any_of, strict=True)]
    repeated = reduce(or_, [each.fill_null(False) for each in twice])
    return lives.select(*keys, "count", repeated=repeated | (lives["count"] > horizon))


def harmless(
    checks: tuple[Recording, Recording],
    parts: Sequence[Sequence[ir.Column]],
    evaluator: OnColumns,
    divisors: Sequence[ir.Column] = (),
) -> dict[str, ir.Column]:
    """The multiples of `multiples_of`, as doubles, and columns `fine_0`, ... that say where they can be used."""
    row = [[column.cast("float64") for column in part] for part in parts]
    (fine,) = evaluator(checks[0], *row, *([list(divisors)] if divisors else []))
    # One choice for the unit costs less than one for each number, and tells where they hold.
    units = divisors or [ibis.literal(1.0)] * len(fine)
    unit = [ibis.ifelse(held, each, ibis.null("float64")) for held, each in zip(fine, units, strict=False)]
    columns = {f"fine_{i}": each.notnull() for i, each in enumerate(unit)}
    for name, numbers in zip(COLUMNS_OF, evaluator(checks[1], *row, unit), strict=True):
        columns |= {f"{name}_{i}": column for i, column in enumerate(as_columns(numbers))}
    return columns


def cells_by_step(
    problem: Problem, rows: ir.Table, recordings: Sequence[Recording], evaluator: OnColumns
) -> list[ir.Value]:
    """The expressions of `recorded_counts` on `harmless` rows; cases by step only where steps differ."""
    widths = [*(len(low) for low, _ in bounds(problem)), recordings[0].inputs[3].shape[0]]
    row = [
        [rows[f"{name}_{i}"] for i in range(1 if evaluator.coordinates else width)]
        for name, width in zip((*COLUMNS_OF, "fine"), widths, strict=True)
    ]
    try:
        known = {
            number: [column for part in evaluator(each, *row) for column in as_columns(part)]
            for number, each in {id(each): each for each in recordings}.items()
        }
    except TypeError as error:
        # The error is about the formulas: no row has been read yet.
        raise ValueError(
            f"the formulas of {type(problem).__name__} cannot run inside an engine ({error}); use NumPy's arithmetic, "
            "comparisons, where, clip, minimum and maximum, or give the log as Trajectories"
        ) from None
    by_step = [known[id(each)] for each in recordings]
    return [_by_step(rows.step, choices) for choices in zip(*by_step, strict=True)]


def _by_step(step: ir.Column, choices: Sequence[ir.Value]) -> ir.Value:
    """choices[h] at step h; one expression if all are the same."""
    steps: dict[Any, list[int]] = {}
    for number, choice in enumerate(choices):
        steps.setdefault(choice.op(), []).append(number)
    if len(steps) == 1:
        return choices[0]
    return ibis.cases(*((step.isin(numbers), operation.to_expr()) for operation, numbers in steps.items()))


def at_nearest(rows: ir.Table, cell: str, directions: Sequence[FloatArray | None], point: Sequence[str]) -> ir.Table:
    """Replace a cell's number by that of its node whose direction is nearest to the point.

    `directions` are (cells, J, D), one per step or one for all steps. Without directions the cell is the node.
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
    table = ibis.memtable(pa.table(lookup))
    on = [rows[cell] == table[f"{cell}_cell"]]
    if steps > 1:
        on.append(rows.step.cast("int64") == table[f"{cell}_step"])
    joined = rows.join(table, on)
    corners = np.empty((count, dimensions), dtype=object)
    for at, name in zip(np.ndindex(corners.shape), names, strict=True):
        corners[at] = joined[name]
    nearest = Recording(Partition.nearest, [corners.shape, (dimensions,)])
    (chosen,) = OnColumns()(nearest, corners, [joined[name] for name in point])
    kept = [name for name in rows.columns if name != cell]
    return joined.select(*kept, **{cell: joined[cell] * count + chosen[()]})


def with_places(
    rows: ir.Table,
    columns: Mapping[str, str],
    labels: Labels,
    place: str,
    facts: Mapping[str, Sequence[float]] | None = None,
) -> ir.Table:
    """The rows whose values were all declared, with their cell in a column `place`, and with the `facts` of a value."""
    found = rows
    for i, (name, values) in enumerate(zip(labels.names, labels.values, strict=True)):
        known: dict[str, list[Any]] = {f"{place}_value_{i}": _as_compared(values)}
        known[f"{place}_{i}"] = list(range(len(values)))
        declared = small_table(rows, known | {fact: [*numbers] for fact, numbers in (facts or {}).items()})
        found = found.inner_join(declared, comparable(found[columns[name]], labels, name) == declared[0])
        at = found[f"{place}_{i}"].cast("int64")
        found = found.mutate(**{place: found[place] * len(values) + at if i else at})
    return found


def with_label_cells(
    rows: ir.Table, columns: Mapping[str, str], problem: Problem, *, by_coordinate: bool = False
) -> ir.Table:
    """The rows whose labels were all declared, with their cell, and its share of the bound for what a row shows."""
    labels = problem.labels
    found = with_places(rows, columns, labels, CELL)
    if isinstance(problem, OutcomeProblem) and has_own_bounds(problem):
        shares = problem.bound_share.reshape(labels.count, problem.outcome_dim)
        place, by_place = found[CELL], {SHARE.format(i): part.tolist() for i, part in enumerate(shares.T)}
        if by_coordinate:
            place = place * problem.outcome_dim + found[COORDINATE]
            by_place = {SHARE.format(0): shares.ravel().tolist()}
        by_place["poolrl_bound_cell"] = list(range(len(by_place[SHARE.format(0)])))
        bound = small_table(rows, by_place)
        found = found.inner_join(bound, place == bound["poolrl_bound_cell"].cast("int64"))
    return found


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
