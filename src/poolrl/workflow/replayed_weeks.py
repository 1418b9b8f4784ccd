"""The weeks of a log as arrays (weeks, steps, products), to replay a policy on. For the data holder's eyes.

Products are judged one by one: a week lacks a product whose days are not all there, and keeps the others. The engine
gives plain rows, wide or long, and its question does not grow with the products of a long table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from itertools import chain
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
# Why a product of a week is not replayed, the first that holds; `read_weeks` finds them in this order.
LEFT_OUT = (
    "a day stands twice",
    "the shop was closed on a day",
    "a field of a day cannot be read",
    "a day has no row",
    "numbers of a day do not fit each other",
    "a label of a day was not declared",
    "a day has no scale",
)


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
    shop: IntArray  # (n,), of a sales export
    number: IntArray  # (n,), which calendar week


@dataclass(frozen=True)
class _Rows:
    """Rows of the log, one for each product that a row shows, to be laid out as `shape` = (weeks, steps, products)."""

    shape: tuple[int, int, int]
    week: IntArray
    place: IntArray  # of the week, step and product
    amounts: dict[str, FloatArray]
    code: dict[str, tuple[IntArray, list[Any]]]  # numbers of values, and the values

    def laid_out(self, values: Any, missing: Any) -> Any:
        """One value of each row, (n, H, k)."""
        table = np.full(self.shape, missing)
        table.reshape(-1)[self.place] = values
        return table

    def cells(self, problem: Inventory) -> IntArray:
        """Label cells (n, H, k); −1 where a label was not declared."""
        cell = np.zeros(len(self.place), dtype=np.int64)
        for name, size in zip(problem.labels.names, problem.labels.shape, strict=True):
            codes, values = self.code[f"label {name}"]
            places = np.append(problem.labels.places(name, values), -1) if values else np.array([-1])
            cell = np.where((cell < 0) | (places[codes] < 0), -1, cell * size + places[codes])
        return np.asarray(self.laid_out(cell, -1))

    def told(self, reason: str) -> BoolArray:
        """Where the query of a sales export gave this reason."""
        codes, values = self.code.get("why", (0, []))
        return np.asarray(self.laid_out(codes == values.index(reason) if reason in values else False, False))

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
    amounts = {part: rows.laid_out(values, np.nan) for part, values in rows.amounts.items()}
    opening, level, left = (amounts[part] for part in ("states", "actions", "next_states"))
    scale = amounts.get("scale")
    cells, sold = rows.cells(problem), level - left
    seen = np.bincount(rows.place, minlength=cells.size).reshape(rows.shape)
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
    broken = [
        (seen > 1) | rows.told(TWICE),
        rows.told(SHUT),
        (seen == 1) & ~number,
        seen == 0,
        ~fits,
        cells < 0,
        ~scaled,
    ]
    why = np.select([days.any(axis=1) for days in broken], range(1, len(LEFT_OUT) + 1), 0)
    chosen = np.ones(len(why), dtype=bool)
    if since is not None:
        chosen &= rows.in_every_row(_not_before(*rows.code[by or columns.trajectory], since=since))
    shop, number_of_week = np.zeros((2, len(why)), dtype=np.int64)
    if rows.code.keys() >= {"shop", "monday"}:
        codes, mondays = rows.code["monday"]
        days = np.array([day.toordinal() if isinstance(day, date) else 0 for day in mondays], dtype=np.int64)
        # All rows of a week say the same.
        shop[rows.week], number_of_week[rows.week] = rows.code["shop"][0], days[codes] // 7
        if period is not None:
            inside = np.array([isinstance(day, date) and period.holds(day.isoformat()) for day in mondays])
            chosen &= rows.in_every_row(inside[codes])
    return Weeks(opening, level, left, sold, scale, cells, why, chosen, shop, number_of_week)


def _asked(log: Table, problem: Inventory, by: str | None) -> _Rows:
    """Ask the engine. Texts come back as numbers and a list of their values, for there are millions of rows."""
    columns, rows, parts = log.columns, log.rows, ("states", "actions", "next_states", "scale")
    names = {part: getattr(columns, part) for part in parts if getattr(columns, part)}
    numbers = {name: rows[name].cast("float64") for name in (columns.step, *chain(*names.values()))}
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
    step = number[columns.step] - log.first_step
    product = np.arange(problem.products)[None]  # a row of a wide table shows all of them
    if columns.coordinate is not None:
        codes, values = code.pop(columns.coordinate)
        places = {str(name): place for place, name in enumerate(log.coordinates)}
        product = np.array([*(places.get(value, -1) for value in values), -1], dtype=np.int64)[codes, None]
    known = ((week >= 0) & np.isin(step, np.arange(problem.horizon)))[:, None] & (product >= 0)
    place = (week * problem.horizon + np.where(known[:, 0], step, 0).astype(np.int64))[:, None] * problem.products

    def shown(values: Any) -> Any:
        return np.broadcast_to(values, known.shape)[known]

    amounts = {part: shown(np.stack([number[name] for name in of], axis=1)) for part, of in names.items()}
    code = {name: (shown(codes[:, None]), values) for name, (codes, values) in code.items()}
    shape = len(ids), problem.horizon, problem.products
    return _Rows(shape, shown(week[:, None]), shown(place + product), amounts, code)


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
        return np.array([*late, False])[codes]
    try:
        # Every column of a CSV file is text, and "9" is no later than "40".
        late = [*(np.array(values, dtype=np.float64) >= float(since))]
    except (TypeError, ValueError):
        if any(isinstance(value, int | float) for value in values):
            raise ValueError(f"--from must be a number, as its column is, got {since!r}") from None
        late = [str(value) >= since for value in values]
    return np.array([*late, False])[codes]
