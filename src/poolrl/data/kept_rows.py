"""Which rows of a table count: those with ids, a step and a coordinate, of the first trajectories of each unit.

Every rule looks at one unit at a time. So no unit decides which rows of another one count. The rows of one period are
chosen before anything is counted, and marks of rows tell a ledger that it has seen them before.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property, reduce
from operator import add, and_
from typing import Self

import ibis
import ibis.expr.types as ir
import numpy as np

from poolrl.checks import whole
from poolrl.data.expressions import count_steps, finite
from poolrl.data.ids import LARGEST_WHOLE_FLOAT, can_be_ids, canonical
from poolrl.data.label_cells import COORDINATE, comparable, with_coordinates
from poolrl.data.log import Columns, Log, missing_column
from poolrl.data.sources.engine import NoRowsError, answer
from poolrl.problems.labels import Labels, LabelValue

# A date as text, perhaps with a time behind it.
_DATE_TEXT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}($|[ T])"
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


class KeptRows(Log):
    """Rows of a long table, their ids in one spelling (`data/ids.py`)."""

    def _keep(self, rows: ir.Table, columns: Columns, *, coordinates: Iterable[LabelValue], first_step: int) -> None:
        """Keep the rows, and refuse them by the names and types of their columns."""
        whole(at_least=-(2**31), first_step=first_step)
        check_columns(rows, columns)
        self.rows, self.columns, self.first_step = rows, columns, int(first_step)
        self._coordinates = checked_coordinates(rows, columns, coordinates)
        self.has_coordinates = self._coordinates is not None
        self._is_placed = False  # known here, and not by a column's name, which may be a user's
        # From all rows, whatever is selected from them later, so that an engine reads each spelling once.
        self._readings = {key: _readings(rows[name], key) for key, name in self._id_columns().items()}

    @property
    def coordinates(self) -> tuple[LabelValue, ...]:
        """The declared values of a row's coordinate, in the order of the problem's; none where a row shows all."""
        return () if self._coordinates is None else self._coordinates.values[0]

    @cached_property
    def units(self) -> int:
        """How many units the log holds. This is public, because neighbours replace one unit."""
        named = self._named(self.rows.select(self._id_columns()))
        number = int(answer(named.aggregate(units=named[self._keys[0]].nunique()))["units"][0].as_py())
        if number == 0:
            raise NoRowsError("the table must not be empty: no row names a trajectory and its unit")
        return number

    def rows_of_steps(self, horizon: int, **columns: ir.Value) -> ir.Table:
        """Keys, step, coordinate and further columns of the rows that have ids, a step in 0 .. H−1 and a coordinate.

        `columns` are expressions on the table as it was given.
        """
        rows = self.placed().rows
        step = rows[self.columns.step]
        steps = step.between(self.first_step, self.first_step + horizon - 1)
        if not step.type().is_integer():
            number = step.cast("float64")
            steps = finite(number) & steps
            # Engines may compute a floor as a whole number, so it must not see what no whole number can hold.
            near = ibis.ifelse(steps, number, float(self.first_step))
            steps = steps & (near == near.floor())
        # Rows that the filter removes get a step that can be cast too, because engines may filter later.
        place = (ibis.ifelse(steps, step, self.first_step).cast("int64") - self.first_step).cast("int32")
        return self._named(rows.filter(steps).select(**self._id_columns(), step=place, **self._place(rows), **columns))

    def named_rows(self, **columns: ir.Value) -> ir.Table:
        """Keys, coordinate and further columns of all rows that have ids and a coordinate, whatever their step."""
        rows = self.placed().rows
        return self._named(rows.select(**self._id_columns(), **self._place(rows), **columns))

    def placed(self, facts: Mapping[str, Sequence[float]] | None = None) -> Self:
        """The table without rows of other coordinates than the declared ones, and with their places and `facts`."""
        if self._coordinates is None or self.columns.coordinate is None or self._is_placed:
            return self
        rows = with_coordinates(self.rows, self.columns.coordinate, self._coordinates, facts or {})
        return self.with_rows(rows, _is_placed=True)

    def with_rows(self, rows: ir.Table, **more: bool) -> Self:
        """The same table with other rows, which were made from its own."""
        found = copy(self)
        for name, value in {"rows": rows, **more}.items():
            object.__setattr__(found, name, value)
        return found

    def _place(self, rows: ir.Table) -> dict[str, ir.Value]:
        return {"coordinate": rows[COORDINATE].cast("int32")} if self.has_coordinates else {}

    def lives(self, horizon: int) -> ir.Table:
        """One row per trajectory: its keys and number of rows, whether a step is repeated, whether it is surplus.

        With coordinates there is one row per trajectory and coordinate.
        """
        lives = count_steps(self.rows_of_steps(horizon), self._life, horizon)
        surplus = self._rank(lives) >= self.max_per_unit if self.has_units else ibis.literal(False)
        return lives.mutate(surplus=surplus)

    @staticmethod
    def _rank(lives: ir.Table) -> ir.IntegerColumn:
        """The place of a trajectory in its unit, by id. The order of rows may depend on other units."""
        return ibis.dense_rank().over(group_by=lives.unit, order_by=lives.trajectory)

    def dropped(self, horizon: int) -> ir.Table:
        """The keys of what is not used, trajectories or coordinates of them, under a name: engines find them once."""
        lives = self.lives(horizon)
        return lives.filter(lives.repeated | lives.surplus).select(self._life).alias("poolrl_dropped")

    def surplus(self, horizon: int) -> ir.Table:
        """The keys of trajectories that their unit has no slot for."""
        lives = self.lives(horizon)
        return lives.filter(lives.surplus).select(self._keys).distinct()

    def _named(self, rows: ir.Table) -> ir.Table:
        """The rows that have ids, with their ids in one spelling."""
        for key in self._keys:
            readings = self._readings[key]
            if readings is None:
                rows = rows.mutate(**{key: canonical(rows[key])})
                rows = rows.filter(rows[key].notnull())
            else:
                others = [rows[name] for name in rows.columns if name != key]
                joined = rows.inner_join(readings, rows[key] == readings.spelling)
                rows = joined.filter(readings.reading.notnull()).select(readings.reading.name(key), *others)
        return rows

    @property
    def _keys(self) -> list[str]:
        """The identity of a trajectory: equal ids in two units are two trajectories."""
        return ["unit", "trajectory"] if self.has_units else ["trajectory"]

    @property
    def _life(self) -> list[str]:
        """In what no step may come twice: a trajectory, or what it shows of one coordinate."""
        return [*self._keys, "coordinate"] if self.has_coordinates else self._keys

    def _id_columns(self) -> dict[str, str]:
        names = {"unit": self.columns.unit, "trajectory": self.columns.trajectory}
        return {key: name for key, name in names.items() if name is not None}


def _readings(column: ir.Column, key: str) -> ir.Table | None:
    """Each text of a column beside the id that it spells; None where ids need no reading.

    Texts are grouped first, because to read one takes longer than to group many. They are read from the answer of an
    aggregate, because engines move a condition on a group's own key to before the grouping.
    """
    if not column.type().is_string():
        return None
    texts = column.name("spelling").as_table()
    found = texts.group_by("spelling").aggregate(text=texts.spelling.max())
    return found.select("spelling", reading=canonical(found.text)).alias(f"poolrl_{key}_ids")


def check_columns(rows: ir.Table, columns: Columns) -> None:
    """Refuse a column that is not there, or whose type cannot hold what it is named for."""
    schema = rows.schema()
    for name in columns.names():
        if name not in schema:
            raise ValueError(missing_column(name, schema.names))
        kind = schema[name]
        if name in (columns.trajectory, columns.unit) and not can_be_ids(kind):
            raise ValueError(f"column {name!r} must hold ids (numbers, text, dates), but has type {kind}")
        # The problem's declared values say what a label's column may hold.
        if name not in columns.as_they_are() and not kind.is_numeric():
            raise ValueError(f"column {name!r} must hold numbers, but has type {kind}")


def checked_coordinates(rows: ir.Table, columns: Columns, given: Iterable[LabelValue]) -> Labels | None:
    """The declared coordinates as the values of a label without a name; None where a row shows all coordinates."""
    values = () if isinstance(given, str) else tuple(given)
    if columns.coordinate is None:
        if given:
            raise ValueError("coordinates needs coordinate: name the column that says which coordinate a row shows")
        return None
    try:
        declared = Labels({"": values})
    except ValueError as error:
        raise ValueError(str(error).replace("label ''", "coordinates")) from None
    comparable(rows[columns.coordinate], declared, "")
    return declared


def rows_of_period(rows: ir.Table, columns: Columns, *, first: str | int, before: str | int) -> ir.Table:
    """The rows of all trajectories that begin in [first, before): two dates like 2025-01-31, or two whole numbers.

    A trajectory lies at the smallest place that its rows have in the period's column: the date on which it begins, or a
    number. A row whose place is missing or cannot be read has none. A trajectory without any place is in no period. So
    each trajectory is in one period at most, with all its rows, in whatever spelling they name it (`data/ids.py`).
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
        parts = column.year().cast("int64"), column.month().cast("int64"), column.day().cast("int64")
        return parts[0] * 10_000 + parts[1] * 100 + parts[2]
    if kind.is_string():
        # Other text gets a number that can be read too, because engines may read it first.
        readable = column.re_search(_DATE_TEXT if dated else _WHOLE_TEXT)
        text = ibis.ifelse(readable, column, "2000-01-01" if dated else "0")
        digits = text.substr(0, 10).replace("-", "") if dated else text.replace("+", "")
        return ibis.ifelse(readable, digits.cast("int64"), ibis.null("int64"))
    number = column.cast("float64")
    usable = finite(number) & number.between(-LARGEST_WHOLE_FLOAT, LARGEST_WHOLE_FLOAT)
    return ibis.ifelse(usable, ibis.ifelse(usable, number, 0.0).floor().cast("int64"), ibis.null("int64"))


def sketch_of(log: KeptRows) -> tuple[bytes, tuple[bytes, ...], float]:
    """A hash of all trajectories, the smallest marks, and the chance that another log of this kind has one of them.

    A mark stands for what one trajectory shows of one product: the numbers of all its rows, but no id, name or step. So
    the order of rows and products, the horizon, the names of things and the kind of file do not matter, and a part of a
    log has a part of its marks. Marks are as sensitive as the log: a person who guesses a trajectory can confirm the
    guess. So they go into the ledger only encrypted (`ledger/overlap.py`).

    Chance by Good and Turing: a trajectory that was seen once is expected 2 N₂ / N₁ times in another log like this one,
    where N₁ different trajectories were seen once and N₂ twice. One that was seen more often is expected there.
    """
    columns, placed = log.columns, log.placed()
    numbers = {
        f"{part}_{i}": _finite_number(placed.rows[name])
        for part in ("states", "actions", "next_states")
        for i, name in enumerate(getattr(columns, part))
    }
    rows = placed.named_rows(**numbers)
    sums = {}
    for i in range(len(columns.states)):
        # A problem may have more actions than states, or show more; the last state has all that is left.
        last = i == len(columns.states) - 1
        row = [rows[name] for name in numbers if (number := int(name.rsplit("_")[-1])) == i or (last and number > i)]
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
    return whole.digest()[:16], tuple(_mark(*each) for each in shown_by), by_chance


def _mark(place: int, one: float, other: float) -> bytes:
    return place.to_bytes(8, "big") + hashlib.sha256(f"poolrl mark 1: {one} {other}".encode()).digest()[:8]


def _finite_number(column: ir.Column) -> ir.FloatingColumn:
    number = column.cast("float64")
    return ibis.ifelse(finite(number) & number.between(-_LARGEST, _LARGEST), number, _LARGEST)


def _scattered(numbers: Sequence[ir.FloatingColumn], multiples: Sequence[float]) -> ir.IntegerColumn:
    """⌊2³¹ frac(2³¹ frac(Σ c x)²)⌋, added from left to right, so that every engine finds the same bits."""
    total = reduce(add, [number * multiple for number, multiple in zip(numbers, multiples, strict=True)])
    part = total - total.floor().cast("float64")
    # Squared, because a sum of plain fractions hardly depends on how numbers are spread over rows.
    mixed = part * part * float(_PLACES)
    return ((mixed - mixed.floor().cast("float64")) * float(_PLACES)).floor()
