"""Parts of the expressions that count a table. Each gives the same bits on every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, or_
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from poolrl.checks import FloatArray
from poolrl.data.column_vector import ColumnVector, CoordinateFacts
from poolrl.data.row_rules import Numbers, Row, as_counted, bounds, part_divisors, usable_amount, usable_divisor, within
from poolrl.geometry.partition import Partition
from poolrl.problems.problem import OutcomeProblem, Problem, SeparableProblem

# Names of the harmless columns of a row.
COLUMNS_OF = ("state", "action", "next_state")
# (step, row, where the row is usable) → expressions.
Formulas = Callable[[int, Row, Numbers], list[ir.Value]]
# Larger numbers count as infinite, because their squares would overflow.
LARGEST_NUMBER = 1e150
# Steps are collected as bits of 64-bit numbers, this many in each number.
STEPS_PER_NUMBER = 30


def finite(number: Numbers) -> Numbers:
    """True for a finite number; NULL or false for NULL, NaN and infinity.

    By x − x = 0. DuckDB trusts Parquet's statistics, and these ignore NaN. So x ≤ 100 would be true for a NaN in a
    column whose largest number is 100, and "not isnan(x)" would be true for every row.
    """
    return number - number == 0.0


def count_steps(rows: ir.Table, keys: list[str], horizon: int) -> ir.Table:
    """One row per trajectory: its keys, its number of rows as `count`, and whether a step is `repeated`."""
    sums = {}
    for first in range(0, horizon, STEPS_PER_NUMBER):
        here = None if horizon <= STEPS_PER_NUMBER else rows.step.between(first, first + STEPS_PER_NUMBER - 1)
        bit = ibis.literal(1, "int64") << (rows.step % STEPS_PER_NUMBER)
        # As doubles, which do not overflow. With at most `horizon` rows the sums are exact.
        sums[f"from_{first}"] = bit.cast("float64").sum(where=here)
    lives = rows.group_by(keys).aggregate(**sums, count=rows.count())
    # A sum of n different powers of two has n ones. A power that comes twice leaves fewer.
    few = lives["count"] <= horizon
    found = [lives[name].fill_null(0.0) for name in sums]
    numbers = [ibis.ifelse(few, number, 0.0).cast("int64") for number in found]
    ones = reduce(add, [_binary_ones(number, min(horizon, STEPS_PER_NUMBER)) for number in numbers])
    # Most trajectories have as many rows as there are steps. Then one comparison tells.
    sizes = [min(STEPS_PER_NUMBER, horizon - first) for first in range(0, horizon, STEPS_PER_NUMBER)]
    incomplete = reduce(or_, [number != 2.0**size - 1 for number, size in zip(found, sizes, strict=True)])
    repeated = ibis.ifelse(lives["count"] == horizon, incomplete, ones != lives["count"])
    return lives.select(*keys, "count", repeated=repeated)


def _binary_ones(number: ir.IntegerValue, bits: int) -> ir.IntegerValue:
    """How many of the lowest bits are one. Not every engine has a function for it."""
    return reduce(add, [(number >> place) & 1 for place in range(bits)])


def harmless(
    problem: Problem,
    parts: Sequence[Sequence[ir.Column]],
    *,
    clip: bool,
    divisors: Sequence[ir.Column] = (),
    facts: CoordinateFacts | None = None,
) -> dict[str, ir.Column]:
    """The numbers of a row as doubles that every formula can take, and columns `fine_0`, ... that say where they hold.

    Where a number is missing or outside its bounds, all numbers of its coordinate are set to their lower bounds. If
    coordinates belong together, all numbers of the row are. So nothing overflows, and every cast fits. With `divisors`
    the numbers are multiples of them, may exceed their bounds, and are NULL where they do not hold. With `facts` each
    part is one column for all coordinates.
    """
    known: dict[Any, Any] = {}
    vector = ColumnVector if facts is None else facts.vector
    rows: list[Numbers] = [vector([column.cast("float64") for column in part], known) for part in parts]
    together = not isinstance(problem, SeparableProblem)
    there: Numbers = None
    inside: Numbers = True
    divisor: Numbers = None
    if divisors:
        divisor = vector(divisors, known)
        there, inside = divisor - divisor, usable_divisor(divisor)
    for numbers, (low, high) in zip(rows, bounds(problem), strict=True):
        if divisors:
            held = usable_amount(numbers)
        else:
            held = (numbers >= -LARGEST_NUMBER) & (numbers <= LARGEST_NUMBER) if clip else within(numbers, low, high)
        gap = numbers - numbers  # 0 for a finite number
        if together:
            held, gap = held.all(axis=-1, keepdims=True), sum(gap[i : i + 1] for i in range(len(gap)))
        inside = held if inside is True else inside & held
        there = gap if there is None else there + gap
    fine: Numbers = (there == 0.0) & inside
    # One choice for the divisor costs less than one for each number, and tells where they hold.
    unit: Numbers = np.where(fine, divisor, ibis.null("float64")) if divisors else None
    holds = [u.notnull() for u in unit.columns()] if divisors else [f.fill_null(False) for f in fine.columns()]
    columns = {f"fine_{i}": column for i, column in enumerate(holds)}
    units = part_divisors(problem, unit) if divisors else (None, None, None)
    for name, numbers, (low, _), each in zip(COLUMNS_OF, rows, bounds(problem), units, strict=True):
        safe: Numbers = numbers / each if divisors else np.where(fine, numbers, low)
        columns |= {f"{name}_{i}": column for i, column in enumerate(safe.columns())}
    return columns


def cells_by_step(
    problem: Problem,
    rows: ir.Table,
    formulas: Formulas,
    *,
    clip: bool,
    relative: bool,
    facts: CoordinateFacts | None = None,
) -> list[ir.Value]:
    """The expressions of `formulas(step, row, usable)` on `harmless` rows; cases by step only where steps differ.

    `usable` is (k,) coordinate by coordinate, or (1,). Columns of other coordinates may be missing from the rows. Their
    lower bounds are used instead. With `facts` each column is one for all coordinates.
    """
    known: dict[Any, Any] = {}

    def vector(name: str, otherwise: Sequence[float]) -> Numbers:
        if facts is not None:
            return facts.vector([rows[f"{name}_0"]], known)
        names = [f"{name}_{i}" for i in range(len(otherwise))]
        return ColumnVector([rows[n] if n in rows.columns else o for n, o in zip(names, otherwise, strict=True)], known)

    lows = [low.tolist() for low, _ in bounds(problem)]
    values: Row = vector("state", lows[0]), vector("action", lows[1]), vector("next_state", lows[2])
    fine = vector("fine", [False] * (problem.outcome_dim if isinstance(problem, SeparableProblem) else 1))
    by_step = []
    try:
        for step in range(problem.horizon):
            row, fits = as_counted(problem, step, values, relative=relative, clip=clip)
            by_step.append(formulas(step, row, fine & fits))
    except (TypeError, AttributeError) as error:
        # The error is about the formulas: no row has been read yet.
        raise ValueError(
            f"the formulas of {type(problem).__name__} cannot run inside an engine ({error}); use NumPy's arithmetic, "
            "comparisons, where, clip, minimum and maximum, or give the log as Trajectories"
        ) from None
    return [_by_step(rows.step, choices) for choices in zip(*by_step, strict=True)]


def facts_used(problem: OutcomeProblem, formulas: Formulas, *, clip: bool, relative: bool) -> CoordinateFacts:
    """The public numbers by coordinate that `harmless` and `cells_by_step` use, found on tables without rows."""
    facts = CoordinateFacts(problem.outcome_dim)
    given = ibis.table(dict.fromkeys(COLUMNS_OF, "float64"), name="given")
    # As if bounds were always looked at: a column that is not used costs nothing.
    harmless(problem, [[given[name]] for name in COLUMNS_OF], clip=False, facts=facts)
    numbers = dict.fromkeys((f"{name}_0" for name in COLUMNS_OF), "float64")
    rows = ibis.table({**numbers, "fine_0": "boolean", "step": "int32"}, name="rows")
    cells_by_step(problem, rows, formulas, clip=clip, relative=relative, facts=facts)
    return facts


def _by_step(step: ir.Column, choices: Sequence[ir.Value]) -> ir.Value:
    """choices[h] at step h; one expression if all are the same."""
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


def at_nearest(rows: ir.Table, cell: str, directions: Sequence[FloatArray | None], point: Sequence[str]) -> ir.Table:
    """Replace a cell's number by that of its node whose direction is nearest to the point.

    `directions` (cells, J, D), one per step or one for all steps, are joined as a small table. Without directions the
    cell is the node.
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
    both: list[Numbers] = [ColumnVector(corners), ColumnVector([joined[name] for name in point])]
    nearest: Numbers = Partition.nearest(*both)
    (chosen,) = nearest.columns()
    kept = [name for name in rows.columns if name != cell]
    return joined.select(*kept, **{cell: joined[cell] * count + chosen})
