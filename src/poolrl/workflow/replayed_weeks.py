"""The weeks of a log as arrays (weeks, steps, products), to replay a policy on. For the data holder's eyes.

Products are judged one by one: a week lacks a product whose days are not all there, and keeps the others. The engine
gives plain rows, wide or long, and its question does not grow with the products of a long table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.data.label_cells import comparable
from poolrl.data.row_rules import LARGEST_SCALE, SMALLEST_SCALE
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table
from poolrl.ledger.accounts import Period
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import ROUNDING
from poolrl.workflow.sales import SHUT, TWICE

ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
# Why a product of a week is not replayed, the first that holds.
LEFT_OUT = (
    "a day stands twice",
    "the shop was closed on a day",
    "a field of a day cannot be read",
    "a day has no row",
    "numbers of a day do not fit each other",
    "a label of a day was not declared",
    "a day has no scale",
)
_DOUBLE, _CLOSED, _UNREADABLE, _MISSING, _IMPOSSIBLE, _UNLABELLED, _UNSCALED = range(1, len(LEFT_OUT) + 1)


@dataclass(frozen=True)
class Weeks:
    """Amounts (n, H, k), NaN where one is missing; `why` (n, k) is 0 where all days of a product can be replayed."""

    opening: FloatArray
    level: FloatArray
    left: FloatArray
    sold: FloatArray
    scale: FloatArray | None
    cells: IntArray  # (n, H, k), the label cell of each row
    why: IntArray  # a place in LEFT_OUT, counted from 1
    chosen: BoolArray  # (n,), the weeks that were asked for
    shop: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # (n,), of a sales export
    number: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # (n,), which calendar week


@dataclass
class _Rows:
    """Rows of the log: which week, step and product each shows, and columns of numbers and codes."""

    weeks: int
    week: IntArray
    step: IntArray
    product: IntArray | None
    number: dict[str, FloatArray]
    code: dict[str, tuple[IntArray, list[Any]]]  # numbers of values, and the values


def read_weeks(
    log: Table, problem: Inventory, since: str | None = None, by: str | None = None, period: Period | None = None
) -> Weeks:
    """All weeks of a log. Chosen are those of the period, and from `since` on in the column `by` (the id, if left out).

    `since` is a date, a number or a text. Of an id that holds a date, as 'shop 7, week of 2025-03-03', the date counts.
    """
    columns = log.columns
    if by is not None and by not in log.rows.columns:
        raise ValueError(f"--by names a column that the log does not have: {by!r}")
    for name in problem.labels.names:
        if name not in log.label_names:
            raise ValueError(f"the policy knows the label {name!r}, but the log has none of that name")
    rows = _asked(log, problem, by)
    filled = _Filled(rows, (rows.weeks, problem.horizon, problem.products), long=log.has_coordinates)
    opening, level, left = (filled.numbers(part) for part in (columns.states, columns.actions, columns.next_states))
    scale = filled.numbers(columns.scale) if columns.scale else None
    cells = filled.cells(problem, columns.labels)
    seen, sold = filled.seen, level - left
    if log.clip:
        opening = np.maximum(opening, problem.state_low.min() if not problem.censored else 0.0)
        level = np.maximum(level, opening)
        left = np.clip(left, 0.0, level) if problem.censored else np.minimum(left, level)
    number = np.isfinite(opening) & np.isfinite(level) & np.isfinite(left)
    slack = ROUNDING * (1.0 + np.abs(level))
    with np.errstate(invalid="ignore"):
        fits = (level >= opening - slack) & (level >= left - slack)
        if problem.censored:
            fits &= (opening >= -slack) & (left >= -slack)
        scaled = np.ones_like(fits) if scale is None else (scale >= SMALLEST_SCALE) & (scale <= LARGEST_SCALE)
    rules = {
        _DOUBLE: (seen > 1) | filled.told(TWICE),
        _CLOSED: filled.told(SHUT),
        _UNREADABLE: (seen == 1) & ~number,
        _MISSING: seen == 0,
        _IMPOSSIBLE: ~fits,
        _UNLABELLED: cells < 0,
        _UNSCALED: ~scaled,
    }
    why = np.select([broken.any(axis=1) for broken in rules.values()], list(rules), 0)
    chosen = np.ones(rows.weeks, dtype=bool)
    if since is not None:
        chosen &= filled.in_every_row(_not_before(*rows.code[by or columns.trajectory], since=since))
    own: dict[str, IntArray] = {}
    if "shop" in rows.code and "monday" in rows.code:
        codes, mondays = rows.code["monday"]
        days = np.array([day.toordinal() if isinstance(day, date) else 0 for day in mondays], dtype=np.int64)
        own = {"shop": filled.of_week(rows.code["shop"][0]), "number": filled.of_week(days[codes] // 7)}
        if period is not None:
            inside = np.array([isinstance(day, date) and period.holds(day.isoformat()) for day in mondays])
            chosen &= filled.in_every_row(inside[codes])
    return Weeks(opening, level, left, sold, scale, cells, why, chosen, **own)


def _asked(log: Table, problem: Inventory, by: str | None) -> _Rows:
    """Ask the engine. Texts come back as numbers and a list of their values, for there are millions of rows."""
    columns, rows = log.columns, log.rows
    amounts = dict.fromkeys([*columns.states, *columns.actions, *columns.next_states, *columns.scale])
    numbers: dict[str, ir.Value] = {name: rows[name].cast("float64") for name in (columns.step, *amounts)}
    texts: dict[str, ir.Value] = {columns.trajectory: rows[columns.trajectory]}
    if columns.coordinate is not None:
        texts[columns.coordinate] = rows[columns.coordinate].cast("string")
    for name in ("why", "shop", "monday"):
        if log.has_coordinates and name in rows.columns:
            texts.setdefault(name, rows[name])
    for label in problem.labels.names:
        column = columns.labels[label]
        texts[_key_of_label(label)] = comparable(rows[column], problem.labels, label)
    if by is not None:
        texts.setdefault(by, rows[by])
    asked = {f"n{i}": column for i, column in enumerate(numbers.values())}
    asked |= {f"t{i}": column for i, column in enumerate(texts.values())}
    table = answer(rows.select(**asked))
    number = {name: _floats(table[f"n{i}"]) for i, name in enumerate(numbers)}
    code = {name: _coded(table[f"t{i}"]) for i, name in enumerate(texts)}
    del table
    spelt, ids = code[columns.trajectory]
    # Engines give rows in any order. In the order of ids, the same weeks always get the same draws.
    week = np.append(np.argsort(np.argsort(np.array(ids, dtype=str), kind="stable")), -1)[spelt]
    step = number.pop(columns.step) - log.first_step
    known = (week >= 0) & np.isin(step, np.arange(problem.horizon))
    product = None
    if columns.coordinate is not None:
        codes, values = code.pop(columns.coordinate)
        places = {str(name): place for place, name in enumerate(log.coordinates)}
        product = np.array([*(places.get(value, -1) for value in values), -1], dtype=np.int64)[codes]
        known &= product >= 0
    weeks = len(ids)
    if not known.all():
        number = {name: values[known] for name, values in number.items()}
        code = {name: (codes[known], values) for name, (codes, values) in code.items()}
        product = None if product is None else product[known]
    return _Rows(weeks, week[known], step[known].astype(np.int64), product, number, code)


class _Filled:
    """Rows laid out as (weeks, steps, products)."""

    def __init__(self, rows: _Rows, shape: tuple[int, int, int], *, long: bool) -> None:
        self._rows, self._shape, self._long = rows, shape, long
        weeks, horizon, products = shape
        self._place = rows.week * horizon + rows.step
        if rows.product is not None:
            self._place = self._place * products + rows.product
        places = weeks * horizon * (products if long else 1)
        self.seen = self._spread(np.bincount(self._place, minlength=places))

    def _spread(self, values: Any) -> Any:
        """In a wide table, a fact of a step holds for all products."""
        if self._long:
            return values.reshape(self._shape)
        return np.broadcast_to(values.reshape(*self._shape[:2], 1), self._shape)

    def numbers(self, names: tuple[str, ...]) -> FloatArray:
        """Columns of amounts, (n, H, k); NaN where one is missing."""
        amounts = np.full(self._shape, np.nan)
        if self._long:
            amounts.reshape(-1)[self._place] = self._rows.number[names[0]]
        else:
            for place, name in enumerate(names):
                amounts.reshape(-1, self._shape[-1])[self._place, place] = self._rows.number[name]
        return amounts

    def cells(self, problem: Inventory, labels: Mapping[str, str]) -> IntArray:
        """Label cells (n, H, k); −1 where a label was not declared."""
        cell = np.zeros(len(self._place), dtype=np.int64)
        for name, size in zip(problem.labels.names, problem.labels.shape, strict=True):
            codes, values = self._rows.code[_key_of_label(name)]
            places = np.append(problem.labels.places(name, values), -1) if values else np.array([-1])
            cell = np.where((cell < 0) | (places[codes] < 0), -1, cell * size + places[codes])
        places = np.full(self.seen.size if self._long else self.seen[..., 0].size, -1, dtype=np.int64)
        places[self._place] = cell
        spread: IntArray = self._spread(places)
        return spread

    def told(self, reason: str) -> BoolArray:
        """Where the query of a sales export gave this reason."""
        rows = np.zeros(self._shape, dtype=bool)
        codes, values = self._rows.code.get("why", (np.zeros(0, dtype=np.int64), []))
        if reason in values:
            rows.reshape(-1)[self._place[codes == values.index(reason)]] = True
        return rows

    def in_every_row(self, held: BoolArray) -> BoolArray:
        """Of which weeks no row fails."""
        every = np.zeros(self._shape[0], dtype=bool)
        every[self._rows.week] = True
        every[self._rows.week[~held]] = False
        return every

    def of_week(self, values: IntArray) -> IntArray:
        """What all rows of a week say alike."""
        by_week = np.full(self._shape[0], -1, dtype=np.int64)
        by_week[self._rows.week] = values
        return by_week


def _key_of_label(name: str) -> str:
    return f"label {name}"


def _floats(column: pa.ChunkedArray) -> FloatArray:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _coded(column: pa.ChunkedArray) -> tuple[IntArray, list[Any]]:
    """Numbers of the values, −1 for NULL, and the values."""
    coded = column.dictionary_encode().unify_dictionaries()
    codes = [np.asarray(chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)) for chunk in coded.chunks]
    values = coded.chunk(0).dictionary.to_pylist() if coded.num_chunks else []
    return (np.concatenate(codes) if codes else np.zeros(0)).astype(np.int64), values


def _not_before(codes: IntArray, values: list[Any], *, since: str) -> BoolArray:
    """In which rows the value is at least `since`."""
    if ISO_DATE.fullmatch(since):
        date.fromisoformat(since)
        dates = [ISO_DATE.search(str(value)) for value in values]
        if not any(dates):
            raise ValueError("--from is a date, but no value of its column holds one: name a column of dates with --by")
        late = [match is not None and match.group() >= since for match in dates]
    elif (first := _number(since)) is not None and all(_number(value) is not None for value in values):
        # Every column of a CSV file is text, and "9" is no later than "40".
        late = [float(value) >= first for value in values]
    elif any(isinstance(value, int | float) for value in values):
        raise ValueError(f"--from must be a number, as its column is, got {since!r}")
    else:
        late = [str(value) >= since for value in values]
    return np.array([*late, False])[codes]


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
