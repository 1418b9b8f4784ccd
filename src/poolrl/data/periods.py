"""The rows of one period: which trajectories lie in it is decided by their own rows, before anything is counted.

A trajectory lies at the smallest place that its rows have in the period's column: the date on which it begins, or a
number. A row whose place is missing or cannot be read has none. A trajectory without any place is in no period. So each
trajectory is in one period at most, with all its rows, in whatever spelling they name it (`data/ids.py`).
"""

from __future__ import annotations

from functools import reduce
from operator import and_

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.types as ir

from poolrl.data.expressions import finite
from poolrl.data.ids import LARGEST_WHOLE_FLOAT, canonical
from poolrl.data.log import Columns

# A date as text, perhaps with a time behind it.
_DATE_TEXT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}($|[ T])"
_WHOLE_TEXT = "^[+-]?[0-9]{1,15}$"


def rows_of_period(rows: ir.Table, columns: Columns, *, first: str | int, before: str | int) -> ir.Table:
    """The rows of all trajectories that begin in [first, before): two dates like 2025-01-31, or two whole numbers."""
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
    # Selected by name, because what a join gives cannot be joined again.
    return rows.semi_join(members, reduce(and_, same)).select(rows.columns)


def check_period_column(kind: dt.DataType, name: str, *, dated: bool) -> None:
    """Refuse a column by its type alone."""
    fits = kind.is_string() or (kind.is_date() or kind.is_timestamp() if dated else kind.is_numeric())
    if not fits:
        wanted = "dates, or text like 2025-01-31" if dated else "whole numbers"
        raise ValueError(f"column {name!r} of [period] must hold {wanted}, but has type {kind}")


def _begins(column: ir.Column, *, dated: bool) -> ir.IntegerColumn:
    """A date as the number 20250131, or a whole number; NULL where there is none. No row can make it fail."""
    kind = column.type()
    check_period_column(kind, column.get_name(), dated=dated)
    if kind.is_date() or kind.is_timestamp():
        parts = column.year().cast("int64"), column.month().cast("int64"), column.day().cast("int64")
        return parts[0] * 10_000 + parts[1] * 100 + parts[2]
    if kind.is_string():
        # Text that is none gets a number that can be read too, because engines may read it first.
        readable = column.re_search(_DATE_TEXT if dated else _WHOLE_TEXT)
        text = ibis.ifelse(readable, column, "2000-01-01" if dated else "0")
        digits = text.substr(0, 10).replace("-", "") if dated else text.replace("+", "")
        return ibis.ifelse(readable, digits.cast("int64"), ibis.null("int64"))
    number = column.cast("float64")
    usable = finite(number) & number.between(-LARGEST_WHOLE_FLOAT, LARGEST_WHOLE_FLOAT)
    return ibis.ifelse(usable, ibis.ifelse(usable, number, 0.0).floor().cast("int64"), ibis.null("int64"))
