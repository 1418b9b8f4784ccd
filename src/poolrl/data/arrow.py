"""From long tables to trajectory arrays: one row per (trajectory, step), columns named by the user.

Column names are public, but their content is not. So messages name columns and rules only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from poolrl.checks import FloatArray
from poolrl.data.ids import LARGEST_WHOLE_FLOAT, canonical_text
from poolrl.data.log import Columns, missing_column
from poolrl.data.log_labels import LogLabel
from poolrl.data.row_rules import PARTS


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
    except pa.ArrowException:
        # Arrow's message quotes the entry that it cannot convert.
        raise ValueError("the table has a column of mixed types: give each column one type") from None


def to_arrays(table: pa.Table, columns: Columns, *, first_step: int) -> dict[str, Any]:
    """The rows as (trajectory, step) arrays; refuses a table that breaks a rule."""
    if columns.coordinate is not None:
        raise ValueError("one row per coordinate is counted by Table; for arrays name a column for each coordinate")
    # A row without a scale or a label is unobserved.
    needed = {columns.trajectory, columns.unit, columns.step, *columns.states, *columns.actions, *columns.next_states}
    may_be_missing = {*columns.scale, *columns.labels.values()} - needed
    for name in columns.names():
        if table.column_names.count(name) != 1:
            raise ValueError(missing_column(name, table.column_names))
        if table[name].null_count and name not in may_be_missing:
            raise ValueError(
                f"column {name!r} must not have missing values, nor text that is no number where one is due"
            )
    if table.num_rows == 0:
        raise ValueError("the table must not be empty")
    trajectory = _codes(table, columns.trajectory)
    numbers = _numbers(table, columns.step)
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any() or np.abs(numbers).max() > 2**53:
        raise ValueError(f"column {columns.step!r} must hold whole numbers")
    step = numbers.astype(np.int64) - first_step
    trajectories, horizon = int(trajectory.max()) + 1, int(step.max()) + 1
    if step.min() < 0:
        raise ValueError(f"column {columns.step!r} must not lie below first_step = {first_step}")
    # Checked before the steps are counted: a step of 10⁹ would ask for that much memory.
    if trajectories * horizon > table.num_rows:
        raise ValueError(
            f"every trajectory must have every step: {columns.step!r} must run {first_step}, {first_step + 1}, ... "
            "to the horizon without gaps (first_step says where yours start)"
        )
    order = np.lexsort((step, trajectory))
    if not np.array_equal(step[order], np.tile(np.arange(horizon), trajectories)):
        raise ValueError(f"each ({columns.trajectory!r}, {columns.step!r}) must stand in one row, but some repeat")

    def in_order(values: NDArray[Any]) -> NDArray[Any]:
        return values[order].reshape(trajectories, horizon)

    def gather(names: tuple[str, ...]) -> FloatArray:
        """(n, H, k), but each coordinate by itself in memory: columns are copied in one piece, and so counted."""
        return np.stack([in_order(_numbers(table, name)) for name in names]).transpose(1, 2, 0)

    arrays: dict[str, Any] = {part: gather(getattr(columns, part)) for part in PARTS}
    if columns.scale:
        arrays["scale"] = gather(columns.scale)
    if columns.labels:
        labels = {name: _label(table, column) for name, column in columns.labels.items()}
        arrays["labels"] = {name: replace(label, codes=in_order(label.codes)) for name, label in labels.items()}
    if columns.unit is not None:
        unit = in_order(_codes(table, columns.unit))
        if (unit != unit[:, :1]).any():
            raise ValueError(f"each trajectory must belong to one {columns.unit!r}, but some name several")
        arrays["unit"] = unit[:, 0]
    return arrays


def long_table(
    numbers: Mapping[str, FloatArray], before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]
) -> pa.Table:
    """Arrays (n, H, k) as columns name_i of a long table, with columns (n,) or (n, H) before and after them."""
    trajectories, horizon, _ = next(iter(numbers.values())).shape

    def flat(values: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(values, horizon) if values.ndim == 1 else values.ravel()

    columns = {"trajectory": flat(np.arange(trajectories)), "step": np.tile(np.arange(horizon), trajectories)}
    columns |= {name: flat(values) for name, values in before.items()}
    for name, array in numbers.items():
        columns |= {f"{name}_{i}": array[:, :, i].ravel() for i in range(array.shape[2])}
    return pa.table(columns | {name: flat(values) for name, values in after.items()})


def _codes(table: pa.Table, name: str) -> NDArray[np.int64]:
    """Ids of any type as 0, 1, ... in the order of the ids; equal ids get equal numbers.

    Never in the order of rows. In a database other units' rows may decide that order, but which of a unit's
    trajectories are kept must not depend on other units.
    """
    column, refusal = table[name], f"column {name!r} must hold ids (numbers, text, dates), but has type "
    if pa.types.is_dictionary(column.type):
        # A dictionary may hold a value twice.
        column = column.cast(column.type.value_type)
    if isinstance(column.type, pa.BaseExtensionType) and str(column.type) == "extension<arrow.uuid>":
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    elif not any(is_kind(column.type) for is_kind in _ID_KINDS):
        raise ValueError(f"{refusal}{column.type}")
    try:
        if pa.types.is_string_view(column.type):
            column = column.cast(pa.large_string())
        encoded = pc.dictionary_encode(column.combine_chunks())
        array = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        ids = _canonical(array.dictionary)
        if ids.null_count:
            raise ValueError(f"column {name!r} must not have missing values, or values that are not ids")
        order = np.asarray(pc.array_sort_indices(pc.unique(ids)), dtype=np.int64)
    except pa.ArrowException:
        raise ValueError(f"{refusal}{column.type}") from None
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    # Several spellings may be one id.
    reading = np.asarray(pc.dictionary_encode(ids).indices, dtype=np.int64)
    return rank[reading][np.asarray(array.indices, dtype=np.int64)]


_IS_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_ID_KINDS = (
    *(pa.types.is_integer, pa.types.is_decimal, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null),
    *(pa.types.is_date, pa.types.is_timestamp, pa.types.is_time, *_IS_TEXT),
)


def _canonical(spellings: pa.Array) -> pa.Array:
    """The ids that distinct values spell, by the rule of `data/ids.py`; null for none."""
    if pa.types.is_floating(spellings.type):
        numbers = np.asarray(spellings.cast(pa.float64()))
        whole = (np.abs(numbers) <= LARGEST_WHOLE_FLOAT) & (numbers == np.floor(numbers))
        return pa.array(np.where(whole, numbers, 0.0).astype(np.int64), mask=~whole)
    if not any(is_text(spellings.type) for is_text in _IS_TEXT):
        return spellings
    return pa.array([canonical_text(text) for text in spellings.to_pylist()], pa.large_string())


def _label(table: pa.Table, name: str) -> LogLabel:
    """A label of every row, from a column of text, numbers or truth values."""
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        # A column of nothing but missing values: its type must not tell.
        column = column.cast(pa.string())
    if any(is_text(column.type) for is_text in _IS_TEXT):
        return LogLabel.of_texts(column.cast(pa.large_string()))
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return replace(LogLabel.of(name, _numbers(pa.table({name: column}), name)), one_type=False)


def _numbers(table: pa.Table, name: str) -> FloatArray:
    column = table[name]
    if not any(is_kind(column.type) for is_kind in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)):
        raise ValueError(f"column {name!r} must hold numbers, but has type {column.type}")
    try:
        # Not `safe`, because Arrow's message about a large integer would quote it.
        return np.asarray(column.cast(pa.float64(), safe=False), dtype=np.float64)
    except pa.ArrowException:
        raise ValueError(f"column {name!r} must hold numbers, but has type {column.type}") from None
