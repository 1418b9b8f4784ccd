"""Which rows of a table count: those with ids, a step and a coordinate, of the first trajectories of each unit.

Every rule looks at one unit at a time. So no unit decides which rows of another one count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Self

import ibis
import ibis.expr.types as ir

from poolrl.data.expressions import count_steps, finite
from poolrl.data.ids import canonical
from poolrl.data.label_cells import COORDINATE, with_coordinates
from poolrl.data.log import Columns
from poolrl.data.sealed import Sealed
from poolrl.data.sources.engine import NoRowsError, answer
from poolrl.problems.labels import Labels, LabelValue


class KeptRows(Sealed):
    """Rows of a long table, their ids in one spelling (`data/ids.py`)."""

    def __init__(
        self, rows: ir.Table, columns: Columns, *, coordinates: Labels | None, max_per_unit: int, first_step: int
    ) -> None:
        self.rows = rows
        self.columns = columns
        self.first_step = first_step
        self._coordinates = coordinates
        self._is_placed = False  # known here, and not by a column's name, which may be a user's
        self._max_per_unit = max_per_unit
        # From all rows, whatever is selected from them later, so that an engine reads each spelling once.
        self._readings = {key: _readings(rows[name], key) for key, name in self._id_columns().items()}

    @property
    def has_coordinates(self) -> bool:
        """Whether a row shows one coordinate only."""
        return self._coordinates is not None

    @property
    def coordinates(self) -> tuple[LabelValue, ...]:
        """The declared values of a row's coordinate, in the order of the problem's; none where a row shows all."""
        return () if self._coordinates is None else self._coordinates.values[0]

    @property
    def has_units(self) -> bool:
        """Whether a unit may own several trajectories."""
        return self.columns.unit is not None

    @property
    def max_per_unit(self) -> int:
        """c. Read-only, because both the counts and the noise depend on it."""
        return self._max_per_unit

    @cached_property
    def units(self) -> int:
        """How many units the log holds. This is public, because neighbours replace one unit."""
        named = self._named(self.rows.select(self._id_columns()))
        number = int(answer(named.aggregate(units=named[self._keys[0]].nunique()))["units"][0].as_py())
        if number == 0:
            raise NoRowsError("the table must not be empty: no row names a trajectory and its unit")
        return number

    @property
    def slots(self) -> int:
        """units × max_per_unit."""
        return self.units * self.max_per_unit

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
        """What identifies a trajectory: equal ids in two units are two trajectories."""
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
