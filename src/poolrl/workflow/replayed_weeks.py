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
    """Rows of the log, to be laid out as `shape` = (weeks, steps, products); columns of numbers and codes.

    A row of a long table shows one product, and one of a wide table all of them.
    """

    shape: tuple[int, int, int]
    week: IntArray
    place: IntArray  # of the week and step, and of the product in a long table
    long: bool
    number: dict[str, FloatArray]
    code: dict[str, tuple[IntArray, list[Any]]]  # numbers of values, and the values

    @property
    def seen(self) -> IntArray:
        """How many rows show each place."""
        places = int(np.prod(self.shape if self.long else self.shape[:2]))
        return np.asarray(self._spread(np.bincount(self.place, minlength=places)))

    def _spread(self, values: Any) -> Any:
        """In a wide table, a fact of a step holds for all products."""
        return np.broadcast_to(values.reshape(*self.shape[:2], self.shape[2] if self.long else 1), self.shape)

    def numbers(self, names: tuple[str, ...]) -> FloatArray:
        """Columns of amounts, (n, H, k); NaN where one is missing."""
        amounts = np.full(self.shape, np.nan)
        if self.long:
            amounts.reshape(-1)[self.place] = self.number[names[0]]
        else:
            for place, name in enumerate(names):
                amounts.reshape(-1, self.shape[-1])[self.place, place] = self.number[name]
        return amounts

    def cells(self, problem: Inventory, labels: Mapping[str, str]) -> IntArray:
        """Label cells (n, H, k); −1 where a label was not declared."""
        cell = np.zeros(len(self.place), dtype=np.int64)
        for name, size in zip(problem.labels.names, problem.labels.shape, strict=True):
            codes, values = self.code[f"label {name}"]
            places = np.append(problem.labels.places(name, values), -1) if values else np.array([-1])
            cell = np.where((cell < 0) | (places[codes] < 0), -1, cell * size + places[codes])
        by_place = np.full(int(np.prod(self.shape if self.long else self.shape[:2])), -1, dtype=np.int64)
        by_place[self.place] = cell
        return np.asarray(self._spread(by_place))

    def told(self, reason: str) -> BoolArray:
        """Where the query of a sales export gave this reason."""
        rows = np.zeros(self.shape, dtype=bool)
        codes, values = self.code.get("why", (np.zeros(0, dtype=np.int64), []))
        if reason in values:
            rows.reshape(-1)[self.place[codes == values.index(reason)]] = True
        return rows

    def in_every_row(self, held: BoolArray) -> BoolArray:
        """Of which weeks no row fails."""
        every = np.zeros(self.shape[0], dtype=bool)
        every[self.week] = True
        every[self.week[~held]] = False
        return every


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
    opening, level, left = (rows.numbers(part) for part in (columns.states, columns.actions, columns.next_states))
    scale = rows.numbers(columns.scale) if columns.scale else None
    cells = rows.cells(problem, columns.labels)
    seen, sold = rows.seen, level - left
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
        _DOUBLE: (seen > 1) | rows.told(TWICE),
        _CLOSED: rows.told(SHUT),
        _UNREADABLE: (seen == 1) & ~number,
        _MISSING: seen == 0,
        _IMPOSSIBLE: ~fits,
        _UNLABELLED: cells < 0,
        _UNSCALED: ~scaled,
    }
    why = np.select([broken.any(axis=1) for broken in rules.values()], list(rules), 0)
    chosen = np.ones(len(why), dtype=bool)
    if since is not None:
        chosen &= rows.in_every_row(_not_before(*rows.code[by or columns.trajectory], since=since))
    own: dict[str, IntArray] = {}
    if "shop" in rows.code and "monday" in rows.code:
        codes, mondays = rows.code["monday"]
        days = np.array([day.toordinal() if isinstance(day, date) else 0 for day in mondays], dtype=np.int64)
        # All rows of a week say the same.
        own = {name: np.full(len(why), -1, dtype=np.int64) for name in ("shop", "number")}
        own["shop"][rows.week], own["number"][rows.week] = rows.code["shop"][0], days[codes] // 7
        if period is not None:
            inside = np.array([isinstance(day, date) and period.holds(day.isoformat()) for day in mondays])
            chosen &= rows.in_every_row(inside[codes])
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
        texts[f"label {label}"] = comparable(rows[columns.labels[label]], problem.labels, label)
    if by is not None:
        texts.setdefault(by, rows[by])
    asked = {f"n{i}": column for i, column in enumerate(numbers.values())}
    asked |= {f"t{i}": column for i, column in enumerate(texts.values())}
    table = answer(rows.select(**asked))
    number = {
        name: np.asarray(table[f"n{i}"].to_numpy(zero_copy_only=False), dtype=np.float64)
        for i, name in enumerate(numbers)
    }
    code = {name: _coded(table[f"t{i}"]) for i, name in enumerate(texts)}
    del table
    spelt, ids = code[columns.trajectory]
    # Engines give rows in any order. In the order of ids, the same weeks always get the same draws.
    week = np.append(np.argsort(np.argsort(np.array(ids, dtype=str), kind="stable")), -1)[spelt]
    step = number.pop(columns.step) - log.first_step
    known = (week >= 0) & np.isin(step, np.arange(problem.horizon))
    place = week * problem.horizon + np.where(known, step, 0).astype(np.int64)
    if columns.coordinate is not None:
        codes, values = code.pop(columns.coordinate)
        places = {str(name): place for place, name in enumerate(log.coordinates)}
        product = np.array([*(places.get(value, -1) for value in values), -1], dtype=np.int64)[codes]
        place = place * problem.products + product
        known &= product >= 0
    if not known.all():
        number = {name: values[known] for name, values in number.items()}
        code = {name: (codes[known], values) for name, (codes, values) in code.items()}
    shape = len(ids), problem.horizon, problem.products
    return _Rows(shape, week[known], place[known], log.has_coordinates, number, code)


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
