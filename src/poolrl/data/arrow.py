"""Long tables ↔ trajectory arrays: one row per (trajectory, step), columns named by the user.

Column names are public; what stands in them is not, so messages name columns and rules alone.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from poolrl.checks import FloatArray
from poolrl.data.log import Columns, missing_column


def as_arrow(table: Any, columns: Columns) -> pa.Table:
    """Take the named columns of an Arrow, pandas or polars table (anything that speaks the Arrow C stream)."""
    if isinstance(table, pa.Table):
        return table
    if not hasattr(table, "__arrow_c_stream__"):
        raise ValueError(f"table must be an Arrow, pandas or polars table, got {type(table).__name__}")
    if hasattr(table, "columns"):  # a column that is not asked for need not be convertible
        table = table[[name for name in dict.fromkeys(columns.names()) if name in list(table.columns)]]
    try:
        return pa.table(table)
    except pa.ArrowException:
        # Arrow's message quotes the offending entry.
        raise ValueError("the table has a column of mixed types: give each column one type") from None


def read_parquet(path: str | PathLike[str]) -> pa.Table:
    """Read a Parquet file or a folder of them."""
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # the file system's complaint, not the reader's
            raise
        raise ValueError(f"{path} is not a readable Parquet file (truncated, or another format?)") from None


def read_csv(path: str | PathLike[str]) -> pa.Table:
    """Read a CSV file with a header line."""
    import pyarrow.csv as csv

    try:
        table = csv.read_csv(path)
        _ = table.column_names  # decodes the header line
        return table
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        # Their messages quote the offending row or byte.
        raise ValueError(f"{path} is not a readable CSV file: UTF-8, a header and rows of equal length") from None


def to_arrays(table: pa.Table, columns: Columns, *, first_step: int) -> dict[str, Any]:
    """Sort the rows into (trajectory, step) arrays, or say which rule the table breaks."""
    for name in columns.names():
        if table.column_names.count(name) != 1:
            raise ValueError(missing_column(name, table.column_names))
        if table[name].null_count:
            raise ValueError(f"column {name!r} must not have missing values")
    if table.num_rows == 0:
        raise ValueError("the table must not be empty")
    trajectory = _codes(table, columns.trajectory)
    step = _whole_numbers(table, columns.step) - first_step
    trajectories, horizon = int(trajectory.max()) + 1, int(step.max()) + 1
    if step.min() < 0:
        raise ValueError(f"column {columns.step!r} must not lie below first_step = {first_step}")
    # Counting every (trajectory, step) needs the product of both, which must not be larger than the table.
    if trajectories * horizon > table.num_rows:
        raise ValueError(_steps_rule(columns, first_step))
    visits = np.bincount(trajectory * horizon + step, minlength=trajectories * horizon)
    if (visits > 1).any():
        raise ValueError(f"each ({columns.trajectory!r}, {columns.step!r}) must stand in one row, but some repeat")

    def gather(names: tuple[str, ...]) -> FloatArray:
        array = np.empty((trajectories, horizon, len(names)))
        for position, name in enumerate(names):
            array[trajectory, step, position] = _numbers(table, name)
        return array

    arrays: dict[str, Any] = {
        "states": gather(columns.states),
        "actions": gather(columns.actions),
        "next_states": gather(columns.next_states),
    }
    if columns.unit is not None:
        labels = _codes(table, columns.unit)
        unit = np.empty(trajectories, dtype=np.int64)
        unit[trajectory] = labels
        if (unit[trajectory] != labels).any():
            raise ValueError(f"each trajectory must belong to one {columns.unit!r}, but some name several")
        arrays["unit"] = unit
    return arrays


def to_arrow(
    states: FloatArray,
    actions: FloatArray,
    next_states: FloatArray,
    *,
    unit: NDArray[np.int64] | None,
) -> pa.Table:
    """The inverse of `to_arrays`, with plain column names."""
    trajectories, horizon, _ = states.shape
    columns: dict[str, Any] = {
        "trajectory": np.repeat(np.arange(trajectories), horizon),
        "step": np.tile(np.arange(horizon), trajectories),
    }
    if unit is not None:
        columns["unit"] = np.repeat(unit, horizon)
    for name, array in (("state", states), ("action", actions), ("next_state", next_states)):
        for i in range(array.shape[2]):
            columns[f"{name}_{i}"] = array[:, :, i].ravel()
    return pa.table(columns)


def _steps_rule(columns: Columns, first_step: int) -> str:
    return (
        f"every trajectory must have every step: {columns.step!r} must run {first_step}, {first_step + 1}, ... "
        "to the horizon without gaps (first_step says where yours start)"
    )


def _codes(table: pa.Table, name: str) -> NDArray[np.int64]:
    """Ids of any type as 0, 1, ... in the order of the ids themselves; equal ids must never get two numbers.

    Never in the order of rows: a database hands them out in an order that other units' rows decide, and which of a
    unit's trajectories are kept must not depend on anybody else.
    """
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)  # a dictionary may hold a value twice
    if isinstance(column.type, pa.BaseExtensionType):  # a UUID, say
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    try:
        if pa.types.is_floating(column.type):
            column = pc.add(column, 0.0)  # −0 is 0
        if _has_blanks(column):
            raise ValueError(f"column {name!r} must not have missing values")
        if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
            column = column.cast(pa.large_string() if pa.types.is_string_view(column.type) else pa.large_binary())
        encoded = pc.dictionary_encode(column.combine_chunks())
        array = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        order = np.asarray(pc.array_sort_indices(array.dictionary), dtype=np.int64)
    except pa.ArrowException:
        raise ValueError(f"column {name!r} must hold ids (numbers, text, dates), but has type {column.type}") from None
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[np.asarray(array.indices, dtype=np.int64)]


def _has_blanks(column: pa.ChunkedArray) -> bool:
    """Ids that say nothing (NaN, empty text) are missing: one unit of everybody without a name would protect nobody."""
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.is_nan(column)).as_py())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return bool(pc.any(pc.equal(pc.utf8_trim_whitespace(column), "")).as_py())
    return False


def _numbers(table: pa.Table, name: str) -> FloatArray:
    column = table[name]
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or _is_decimal(column.type)):
        raise ValueError(f"column {name!r} must hold numbers, but has type {column.type}")
    try:
        # Unchecked: Arrow's complaint about a large integer would quote it.
        return np.asarray(column.cast(pa.float64(), safe=False), dtype=np.float64)
    except pa.ArrowException:
        raise ValueError(f"column {name!r} must hold numbers, but has type {column.type}") from None


def _whole_numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    numbers = _numbers(table, name)
    if not np.isfinite(numbers).all() or (numbers != np.floor(numbers)).any() or np.abs(numbers).max() > 2**53:
        raise ValueError(f"column {name!r} must hold whole numbers")
    return numbers.astype(np.int64)


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind))
