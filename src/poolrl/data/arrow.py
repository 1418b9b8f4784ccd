"""Long tables as trajectory arrays, and back: one row per (trajectory, step), columns named by the user.

Column names are public, but their content is not. So messages name columns and rules only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from poolrl.checks import FloatArray
from poolrl.data.log import NUMBERS, Columns
from poolrl.data.log_labels import LogLabel
from poolrl.data.sources.engine import answer

if TYPE_CHECKING:
    from poolrl.data.table import Table
    from poolrl.data.trajectories import Trajectories


def as_arrow(table: Any, columns: Columns) -> pa.Table:
    """The named columns of an Arrow, pandas or polars table (anything with the Arrow C stream interface)."""
    if isinstance(table, pa.Table):
        return table
    if not hasattr(table, "__arrow_c_stream__"):
        raise ValueError(f"table must be an Arrow, pandas or polars table, got {type(table).__name__}")
    if hasattr(table, "columns"):
        # Only the named columns, because others may hold what Arrow cannot convert.
        table = table[[name for name in dict.fromkeys(columns.names()) if name in list(table.columns)]]
    try:
        return pa.table(table)
    except (pa.ArrowException, UnicodeError, OverflowError):
        # Their messages may quote the entry that cannot be converted.
        raise ValueError("the table has a column of mixed types: give each column one type") from None


def to_arrays(log: Table) -> dict[str, Any]:
    """The rows that have ids as (trajectory, step) arrays; refuses a table that breaks a rule."""
    columns, first_step = log.columns, log.first_step
    named = {part: getattr(columns, part) for part in NUMBERS} | {"step": (columns.step,)}
    numbers = {f"{part}_{i}": name for part, names in named.items() for i, name in enumerate(names)}
    read = {place: log.rows[name].cast("float64") for place, name in numbers.items()}
    labels = {f"label_{i}": _as_label(log.rows[name], name) for i, name in enumerate(columns.labels.values())}
    table = answer(log.named_rows(**read, **labels))
    if table.num_rows == 0:
        raise ValueError("the table must not be empty")
    for place, name in numbers.items():
        # A row without a scale or a label is unobserved.
        if table[place].null_count and not place.startswith("scale"):
            raise ValueError(f"column {name!r} must not have missing values (nor text where a number is due)")
    trajectory, steps = _codes(table["trajectory"]), table["step_0"].to_numpy()
    if not np.isfinite(steps).all() or (steps != np.floor(steps)).any() or np.abs(steps).max() > 2**53:
        raise ValueError(f"column {columns.step!r} must hold whole numbers")
    step = steps.astype(np.int64) - first_step
    trajectories, horizon = int(trajectory.max()) + 1, int(step.max()) + 1
    if step.min() < 0:
        raise ValueError(f"column {columns.step!r} must not lie below first_step = {first_step}")
    # Checked before the steps are counted: a step of 10⁹ would ask for that much memory.
    if trajectories * horizon > table.num_rows:
        raise ValueError(
            f"every trajectory must have every step: {columns.step!r} must run {first_step}, {first_step + 1}, ... "
            "to the horizon without gaps (first_step says where yours start)"
        )
    where = trajectory * horizon + step
    if (np.bincount(where) != 1).any():
        raise ValueError(f"each ({columns.trajectory!r}, {columns.step!r}) must stand in one row, but some repeat")

    # Most tables are in order, and are then copied in one piece.
    scattered = (where != np.arange(len(where))).any()

    def in_order(chunks: Iterable[Any], found: NDArray[Any] | None = None) -> NDArray[Any]:
        found, begin = np.empty(len(where), dtype=np.int64) if found is None else found, 0
        for chunk in chunks:  # one by one, because a copy of all would take as much memory again
            end = begin + len(chunk)
            found[where[begin:end] if scattered else slice(begin, end)] = np.asarray(chunk)
            begin = end
        return found.reshape(trajectories, horizon)

    def gather(part: str) -> FloatArray:
        """(n, H, k), but each coordinate by itself in memory: columns are copied in one piece, and so counted."""
        found = np.empty((len(named[part]), len(where)))
        for i, column in enumerate(found):
            in_order(table[f"{part}_{i}"].iterchunks(), column)
        return found.reshape(-1, trajectories, horizon).transpose(1, 2, 0)

    arrays: dict[str, Any] = {part: gather(part) for part in NUMBERS if named[part]}
    if columns.labels:
        given = {name: _label(name, table[f"label_{i}"]) for i, name in enumerate(columns.labels)}
        arrays["labels"] = {name: replace(label, codes=in_order([label.codes])) for name, label in given.items()}
    if columns.unit is not None:
        unit = in_order([_codes(table["unit"])])
        if (unit != unit[:, :1]).any():
            raise ValueError(f"each trajectory must belong to one {columns.unit!r}, but some name several")
        arrays["unit"] = unit[:, 0]
    return arrays


def long_table(log: Trajectories) -> pa.Table:
    """One row for each step: trajectory, step, (unit,) state_i, action_i, next_state_i, (scale_i,) and labels."""
    numbers = {"state": log.states, "action": log.actions, "next_state": log.next_states}
    numbers |= {} if log.scale is None else {"scale": log.scale}
    trajectories, horizon = len(log), log.horizon

    def flat(values: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(values, horizon) if values.ndim == 1 else values.ravel()

    columns = {"trajectory": flat(np.arange(trajectories)), "step": np.tile(np.arange(horizon), trajectories)}
    columns |= {"unit": flat(log.owner)} if log.facts.has_units else {}
    for name, array in numbers.items():
        columns |= {f"{name}_{i}": array[:, :, i].ravel() for i in range(array.shape[2])}
    try:
        return pa.table(columns | {name: flat(values) for name, values in log.labels.items()})
    except (pa.ArrowException, UnicodeError):
        raise ValueError("labels must hold numbers, or text, to become columns: one holds both") from None


def _codes(ids: pa.ChunkedArray) -> NDArray[np.int64]:
    """Ids as 0, 1, ... in their own order: that of rows may depend on other units, and must not say what is kept."""
    return np.asarray(pc.rank(ids, sort_keys="ascending", tiebreaker="dense")).astype(np.int64) - 1


def _as_label(column: ir.Column, name: str) -> ir.Column:
    kind = column.type()
    if kind.is_string() or kind.is_null():
        # A column of nothing but missing values: its type must not tell.
        return column.cast("string")
    if not (kind.is_numeric() or kind.is_boolean()):
        raise ValueError(f"column {name!r} must hold numbers or text, but has type {kind}")
    return column.cast("float64")


def _label(name: str, column: pa.ChunkedArray) -> LogLabel:
    if pa.types.is_floating(column.type):
        return replace(LogLabel.of(name, column.to_numpy()), holds="")
    return LogLabel.of_texts(column)
