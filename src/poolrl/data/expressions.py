"""Recorded formulas as expressions of an engine, and the parts of those that count a table.

Each operation on numbers becomes an expression. Floating-point operations come in the same order as on arrays, so every
engine gives the same bits, and no second version of a formula could differ. A value of many coordinates is an array of
entries: expressions, or constants where no column is involved.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import ibis
import ibis.expr.operations as ops
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolrl.data.row_rules import Numbers, bounds, has_own_bounds
from poolrl.data.sources.engine import engine_of
from poolrl.data.trace import Recording, RowOperation, Take, cast_to, joined
from poolrl.problems.labels import Labels
from poolrl.problems.problem import OutcomeProblem, Problem

COLUMNS_OF = ("state", "action", "next_state")  # names of the harmless columns of a row
# Steps are collected as bits of 64-bit numbers, this many in each number.
STEPS_PER_NUMBER = 30
# The columns that are added to a table. A user's own column is hardly called so.
CELL, SHARE = "poolrl_cell", "poolrl_share_{}"
COORDINATE = "poolrl_coordinate"
# The columns of public numbers that differ by coordinate. A user's own column is hardly called so.
FACT = "poolrl_fact_{}"
LARGEST_CAST = 2.0**53  # engines cast what they floor. Doubles up to here are exact whole numbers, and fit


def _castable(value: Any) -> Any:
    """A number that every engine can make whole. Otherwise one row with a huge number would stop the count."""
    return ibis.least(ibis.greatest(value, -LARGEST_CAST), LARGEST_CAST) if value.type().is_floating() else value


# Engines compute these exactly as NumPy does (IEEE 754). That is not so for sines and powers.
_RULES: dict[RowOperation, Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.negative: operator.neg,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.bitwise_and: operator.and_,
    np.logical_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.logical_or: operator.or_,
    np.invert: operator.invert,
    np.logical_not: operator.invert,
    np.maximum: ibis.greatest,
    # Of no number and another one an engine may give no number. `bin_of` then takes the least of it and a number.
    np.fmax: ibis.greatest,
    np.minimum: ibis.least,
    np.absolute: operator.methodcaller("abs"),
    np.sqrt: operator.methodcaller("sqrt"),
    np.floor: lambda value: _castable(value).floor(),
    np.where: ibis.ifelse,
    cast_to(np.dtype(np.int64)): lambda value: _castable(value).cast("int64"),
    cast_to(np.dtype(np.float64)): operator.methodcaller("cast", "float64"),
}


class OnColumns:
    """Evaluates recordings on rows with a column, or a constant, for each coordinate."""

    coordinates = 0  # that one column stands for, if any

    def __init__(self) -> None:
        # Expressions made before from the same parts. Formulas repeat themselves at every step.
        self._known: dict[Any, Any] = {}
        # Arrays of numbers that differ by coordinate, and their columns: none, where each coordinate has a column.
        self._numbers: dict[Any, NDArray[Any]] = {}
        self._columns: dict[Any, ir.Value] = {}

    @property
    def facts(self) -> dict[str, list[float]]:
        """What must be joined with the rows: a column for each array of numbers that differ by coordinate."""
        return {FACT.format(i): array.astype(np.float64).tolist() for i, array in enumerate(self._numbers.values())}

    def read_from(self, rows: ir.Table) -> None:
        """From now on facts are columns of these rows."""
        # Each is made once, because expressions are recognised by their parts. Engines know no number as a condition.
        self._columns = {
            key: rows[name] != 0.0 if array.dtype.kind == "b" else rows[name]
            for (key, array), name in zip(self._numbers.items(), self.facts, strict=True)
        }

    def __call__(self, recording: Recording, *vectors: Sequence[Any] | NDArray[Any]) -> list[NDArray[Any]]:
        """The entries of each answer."""
        found = recording.evaluated([_entries(vector) for vector in vectors], self._applied)
        return [_entries(part) for part in found]

    def _applied(self, rule: RowOperation, parts: list[NDArray[Any]]) -> NDArray[Any]:
        if rule is joined or isinstance(rule, Take):
            return np.asarray(rule(*parts))
        if rule not in _RULES:
            raise TypeError(f"{getattr(rule, '__name__', 'it')} is not what every engine computes alike")
        return _entries(np.frompyfunc(partial(self._expression, rule), len(parts), 1)(*parts))

    def _expression(self, rule: RowOperation, *entries: Any) -> Any:
        """A rule of single entries. A result of constants stays a constant."""
        plain = [entry.item() if isinstance(entry, np.generic) else entry for entry in entries]
        if not any(isinstance(entry, ir.Value) for entry in plain):
            return rule(*map(np.asarray, plain))[()]
        name = (rule, *((type(e), id(e) if isinstance(e, ir.Value) else e) for e in plain))
        if name not in self._known:
            # The parts are kept too, so that their ids are not used again.
            self._known[name] = (_RULES[rule](*plain), plain)
        return self._known[name][0]


def as_columns(entries: NDArray[Any]) -> list[ir.Value]:
    """Every entry as an expression."""
    return [entry if isinstance(entry, ir.Value) else ibis.literal(entry) for entry in entries.ravel()]


def _entries(vector: Any) -> NDArray[Any]:
    """A list of entries, or one of them, as an array."""
    if isinstance(vector, np.ndarray):
        return vector
    entries = vector if isinstance(vector, list) else [vector]
    found = np.empty(len(entries), dtype=object)
    for i, entry in enumerate(entries):
        found[i] = entry  # one by one, because NumPy would look for arrays inside a column
    return found if isinstance(vector, list) else found.reshape(())


class OnOneColumn(OnColumns):
    """Evaluates recordings on rows that show one coordinate: a value of k coordinates has one entry, one of 2k has two.

    A public number that differs between coordinates becomes a column of a small table (`facts`), which rows are joined
    with. An expression does not grow with k, and its floating-point operations are those of k columns, in their order.
    """

    def __init__(self, coordinates: int, recordings: Iterable[Recording]) -> None:
        super().__init__()
        self.coordinates = coordinates
        self._numbers = {
            _key(numbers): numbers
            for recording in recordings
            for symbol, _ in recording.order
            for part in symbol.parts
            if isinstance(part, np.ndarray)
            for numbers in self._by_coordinate(part)
            if (numbers != numbers[0]).any()
        }

    def _applied(self, rule: RowOperation, parts: list[NDArray[Any]]) -> NDArray[Any]:
        if isinstance(rule, Take):
            if len(rule.place) != 2 or not isinstance(rule.place[1], slice):
                raise TypeError("it picks out a coordinate")
            start, stop, stride = rule.place[1].indices(len(parts[0]) * self.coordinates)
            if stride != 1 or start % self.coordinates or stop % self.coordinates:
                raise TypeError("it picks out coordinates")
            return parts[0][start // self.coordinates : stop // self.coordinates]
        return super()._applied(rule, [part if part.dtype == object else self._lined_up(part) for part in parts])

    def _by_coordinate(self, array: NDArray[Any]) -> NDArray[Any]:
        """Numbers for each coordinate (entries, k); none for a single number."""
        fits = array.size > 1 and array.size % self.coordinates == 0
        return array.reshape(-1, self.coordinates) if fits else np.empty((0, self.coordinates))

    def _lined_up(self, array: NDArray[Any]) -> NDArray[Any]:
        """One entry for each k. A single number stays as it is."""
        numbers = self._by_coordinate(array)
        same = [each[0].item() if (each == each[0]).all() else self._columns[_key(each)] for each in numbers]
        return _entries(same) if same else array


def _key(numbers: NDArray[Any]) -> tuple[str, bytes]:
    return numbers.dtype.str, numbers.tobytes()


def finite(number: Numbers) -> Numbers:
    """True for a finite number; NULL or false for NULL, NaN and infinity.

    By x − x = 0, because DuckDB trusts Parquet's statistics, which ignore NaN: "not isnan(x)" would always be true.
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
    numbers = [ibis.ifelse(few, lives[name].fill_null(0.0), 0.0).cast("int64") for name in sums]
    places = range(min(horizon, STEPS_PER_NUMBER))  # bit by bit, because not every engine can count them
    ones = reduce(operator.add, [(number >> place) & 1 for number in numbers for place in places])
    return lives.select(*keys, "count", repeated=ones != lives["count"])


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
    columns = {f"fine_{i}": each for i, each in enumerate(fine)}
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


def with_places(rows: ir.Table, columns: Sequence[ir.Column], labels: Labels, place: str) -> ir.Table:
    """The rows whose values, one of these columns for each label, were all declared; their cell in a column `place`."""
    found = rows
    for i, (name, values) in enumerate(zip(labels.names, labels.values, strict=True)):
        # As engines compare them: −0 is 0, and a large whole number is the nearest double, as in a column.
        compared = [value if isinstance(value, str) else float(value) + 0.0 for value in values]
        declared = small_table(rows, {f"{place}_value_{i}": compared, f"{place}_{i}": list(range(len(values)))})
        found = found.inner_join(declared, comparable(columns[i], labels, name) == declared[0])
        at = found[f"{place}_{i}"].cast("int64")
        found = found.mutate(**{place: found[place] * len(values) + at if i else at})
    return found


def with_label_cells(
    rows: ir.Table, columns: Sequence[ir.Column], problem: Problem, *, by_coordinate: bool
) -> ir.Table:
    """The rows whose labels were all declared, with their cell, and its share of the bound for what a row shows."""
    labels = problem.labels
    found = with_places(rows, columns, labels, CELL)
    if isinstance(problem, OutcomeProblem) and has_own_bounds(problem):
        place, shares = found[CELL], problem.bound_share.reshape(labels.count, problem.outcome_dim)
        if by_coordinate:
            place, shares = place * problem.outcome_dim + found[COORDINATE], shares.reshape(-1, 1)
        found = beside(found, place, {SHARE.format(i): part.tolist() for i, part in enumerate(shares.T)})
    return found


def beside(rows: ir.Table, place: ir.Value, numbers: Mapping[str, Sequence[float]]) -> ir.Table:
    """The rows with public numbers beside them: those of their place, from 0 on."""
    if not numbers:
        return rows
    places = range(len(next(iter(numbers.values()))))
    known = small_table(rows, {"poolrl_place": list(places)} | {name: [*of] for name, of in numbers.items()})
    return rows.inner_join(known, place == known["poolrl_place"].cast("int64")).drop("poolrl_place")


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
