"""The columns of a table, refused by their names and types alone: their content is not looked at."""

from __future__ import annotations

from collections.abc import Iterable

import ibis.expr.types as ir

from poolrl.data.ids import can_be_ids
from poolrl.data.label_cells import comparable
from poolrl.data.log import Columns, missing_column
from poolrl.problems.labels import Labels, LabelValue


def check_columns(rows: ir.Table, columns: Columns) -> None:
    """Refuse a column that is not there, or whose type cannot hold what it is named for."""
    schema = rows.schema()
    for name in columns.names():
        if name not in schema:
            raise ValueError(missing_column(name, schema.names))
        kind = schema[name]
        if name in (columns.trajectory, columns.unit) and not can_be_ids(kind):
            raise ValueError(f"column {name!r} must hold ids (numbers, text, dates), but has type {kind}")
        # What a label's column may hold depends on the values that the problem declares.
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
