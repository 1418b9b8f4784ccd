"""The rows of one period, chosen before anything is counted, and marks that tell a ledger it has seen rows before."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import reduce
from operator import add, and_

import ibis
import ibis.expr.types as ir
import numpy as np

from poolrl.data.expressions import finite
from poolrl.data.ids import LARGEST_WHOLE_FLOAT, canonical
from poolrl.data.log import Columns
from poolrl.data.row_rules import PARTS
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table

_DATE_TEXT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}($|[ T])"  # a date as text, perhaps with a time behind it
_WHOLE_TEXT = "^[+-]?[0-9]{1,15}$"
# Factors of numbers; only the fraction of their sum is kept. Any factors but simple fractions would do.
_MULTIPLES = (
    (1.6180339887498949, 1.4142135623730951, 1.7320508075688772),
    (2.6457513110645907, 1.8392867552141612, 1.3247179572447460),
)
_PLACES = 2**31
_LARGEST = 2.0**50
# How many marks a ledger keeps, and about how many trajectories are looked at for the chance of equal ones.
MOST_MARKS, LOOKED_AT = 512, 2**16


def rows_of_period(rows: ir.Table, columns: Columns, *, first: str | int, before: str | int) -> ir.Table:
    """The rows of all trajectories that begin in [first, before): two dates like 2025-01-31, or two whole numbers.

    A trajectory lies at the smallest place that its rows have in the period's column, where it can be read. So each
    trajectory is in one period at most, with all its rows, in whatever spelling they name it (`data/ids.py`).
    """
    if columns.period is None:
        raise ValueError("a period needs a column: say by what a trajectory belongs to it")
    dated = isinstance(first, str)
    low, high = (int(str(end).replace("-", "")) if dated else int(end) for end in (first, before))
    ids = [name for name in (columns.unit, columns.trajectory) if name is not None]
    place = _begins(rows[columns.period], dated=dated)
    # Spellings are grouped before they are read, because to read one takes longer than to group many.
    spelt = {f"spelt_{i}": rows[name] for i, name in enumerate(ids)}
    spellings = rows.select(**spelt, place=place).group_by(list(spelt)).aggregate(place=ibis._.place.min())
    read = spellings.mutate(**{f"id_{i}": canonical(spellings[name]) for i, name in enumerate(spelt)})
    keys = [f"id_{i}" for i in range(len(ids))]
    lives = read.group_by(keys).aggregate(begins=read.place.min())
    inside = lives.filter((lives.begins >= low) & (lives.begins < high))
    members = read.semi_join(inside, keys).select(list(spelt))
    same = [rows[name] == members[f"spelt_{i}"] for i, name in enumerate(ids)]
    # Selected by name, because the result of a join cannot be joined again.
    return rows.semi_join(members, reduce(and_, same)).select(rows.columns)


def _begins(column: ir.Column, *, dated: bool) -> ir.IntegerColumn:
    """A date as the number 20250131, or a whole number; NULL for anything else. No row can make it fail."""
    kind = column.type()
    if not (kind.is_string() or (kind.is_date() or kind.is_timestamp() if dated else kind.is_numeric())):
        wanted = "dates, or text like 2025-01-31" if dated else "whole numbers"
        raise ValueError(f"column {column.get_name()!r} of [period] must hold {wanted}, but has type {kind}")
    if kind.is_date() or kind.is_timestamp():
        return column.year().cast("int64") * 10_000 + column.month().cast("int64") * 100 + column.day().cast("int64")
    if kind.is_string():
        # Other text gets a number that can be read too, because engines may read it first.
        readable = column.re_search(_DATE_TEXT if dated else _WHOLE_TEXT)
        text = ibis.ifelse(readable, column, "2000-01-01" if dated else "0")
        digits = text.substr(0, 10).replace("-", "") if dated else text.replace("+", "")
        return ibis.ifelse(readable, digits.cast("int64"), ibis.null("int64"))
    number = column.cast("float64")
    usable = finite(number) & number.between(-LARGEST_WHOLE_FLOAT, LARGEST_WHOLE_FLOAT)
    return ibis.ifelse(usable, ibis.ifelse(usable, number, 0.0).floor().cast("int64"), ibis.null("int64"))


def sketch_of(log: Table) -> tuple[bytes, tuple[bytes, ...], float]:
    """A hash of all trajectories, the smallest marks, and the chance that another log of this kind has one of them.

    A mark stands for what one trajectory shows of one product: the numbers of all its rows, but no id, name or step. So
    a part of a log has a part of its marks. Marks are as sensitive as the log: a person who guesses a trajectory can
    confirm the guess. So they go into the ledger only encrypted (`ledger/ledger.py`).

    By Good and Turing a trajectory that was seen once is expected 2 N₂ / N₁ times in another log like this one, where
    N₁ were seen once and N₂ twice. One that was seen more often is expected there.
    """
    columns = log.columns
    numbers = {}
    for part in PARTS:
        for i, name in enumerate(getattr(columns, part)):
            number = log.counted[name].cast("float64")
            usable = finite(number) & number.between(-_LARGEST, _LARGEST)
            numbers[f"{part}_{i}"] = ibis.ifelse(usable, number, _LARGEST)
    rows = log.named_rows(**numbers)
    sums = {}
    for i in range(len(columns.states)):
        # A problem may have more actions than states, or show more; the last state has all that is left.
        last = i == len(columns.states) - 1
        row = [rows[name] for name in numbers if (at := int(name.rsplit("_")[-1])) == i or (last and at > i)]
        for j, multiples in enumerate(_MULTIPLES):
            factors = [multiples[k % 3] * math.sqrt(1 + 2 * (k // 3)) for k in range(len(row))]
            sums[f"sum_{i}_{j}"] = _scattered(row, factors).sum().cast("float64")
    # Where a row shows one product, each product of a trajectory is a group. So a log has the same marks in both forms.
    keys = [name for name in ("unit", "trajectory", "coordinate") if name in rows.columns]
    lives = rows.group_by(keys).aggregate(**sums)
    shown = [lives.select(one=lives[f"sum_{i}_0"], other=lives[f"sum_{i}_1"]) for i in range(len(columns.states))]
    each = ibis.union(*shown) if len(shown) > 1 else shown[0]
    # The place in the order of marks; equal trajectories have one place, so all of them are looked at, or none.
    places = [_scattered([each.one, each.other], multiples[:2]).cast("int64") for multiples in _MULTIPLES]
    each = each.mutate(place=places[0] * _PLACES + places[1])
    most = LOOKED_AT / max(LOOKED_AT, log.slots * (len(log.coordinates) or len(columns.states)))
    looked_at = each.filter(each.place <= int(most * (_PLACES**2 - 1)))
    kinds = looked_at.group_by(["place", "one", "other"]).aggregate(times=looked_at.count())
    # A unit may own more trajectories than slots, so that more are found than were expected.
    found = answer(kinds.order_by(["place", "one", "other"]).limit(4 * LOOKED_AT))
    place, one, other, times = (np.asarray(found[name]) for name in ("place", "one", "other", "times"))
    whole = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in (place, one, other, times)))
    shown_by = zip(*(part[:MOST_MARKS].tolist() for part in (place, one, other)), strict=True)
    every, once, twice = len(times), int((times == 1).sum()), int((times == 2).sum())
    by_chance = (every - once + min(once, 2 * twice)) / max(1, every)
    marks = (
        place.to_bytes(8, "big") + hashlib.sha256(f"poolrl mark 1: {one} {other}".encode()).digest()[:8]
        for place, one, other in shown_by
    )
    return whole.digest()[:16], tuple(marks), by_chance


def _scattered(numbers: Sequence[ir.FloatingColumn], multiples: Sequence[float]) -> ir.IntegerColumn:
    """⌊2³¹ frac(2³¹ frac(Σ c x)²)⌋, added from left to right, so that every engine finds the same bits."""
    total = reduce(add, [number * multiple for number, multiple in zip(numbers, multiples, strict=True)])
    part = total - total.floor().cast("float64")
    # Squared, because a sum of plain fractions hardly depends on how numbers are spread over rows.
    mixed = part * part * float(_PLACES)
    return ((mixed - mixed.floor().cast("float64")) * float(_PLACES)).floor()
