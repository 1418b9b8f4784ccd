"""Hostile logs: saved arrays, tables for arrays and for an engine, Kaggle's sales."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from attacks.good_files import SECRET_NAME, SECRET_NUMBER, good, problem
from attacks.mutations import HOSTILE, Script, lying_archive, mutated_array, spoilt
from poolrl import Pool, SeededNoise, Trajectories
from poolrl.data.log import Columns
from poolrl.data.sources.opening import open_source
from poolrl.data.table import Table
from poolrl.paper import rossmann


def log_file(script: Script, place: Path) -> Callable[[], object]:
    """A log as `Trajectories.save` writes it."""
    path, how = place / "log.npz", script.number(4)
    if how == 0:
        path.write_bytes(script.rest())
    elif how == 1:
        path.write_bytes(spoilt((good() / "log.npz").read_bytes(), script))
    elif how == 2:
        path.write_bytes(lying_archive(script))
    else:
        with np.load(good() / "log.npz") as file:
            arrays = dict(file)
        name = script.pick(sorted(arrays))
        arrays[name] = mutated_array(arrays[name], script)
        np.savez(path, **arrays)
    return lambda: Pool(1.0).prepare(problem()).release(Trajectories.load(path), SeededNoise(0))


COLUMNS = Columns("trajectory", "step", ("state_0",), ("action_0",), ("next_state_0",), "who")
NAMES: dict[str, Any] = vars(COLUMNS)


def engine(script: Script, place: Path) -> Callable[[], object]:
    """A table of the log as `poolrl fit` reads it, in DuckDB."""
    name = script.pick(("log.csv", "log.parquet"))
    path = place / name
    path.write_bytes(_spoilt_table(name, script))

    def read() -> None:
        with open_source(name, COLUMNS, folder=place) as opened:
            log = Table(opened.rows, **NAMES, max_per_unit=2)
            log.check(problem())
            Pool(1.0).prepare(problem()).release(log, SeededNoise(0))

    return read


def arrays(script: Script, place: Path) -> Callable[[], object]:
    """A table of the log as `Trajectories` reads it, into memory."""
    name = script.pick(("log.csv", "log.parquet"))
    path = place / name
    path.write_bytes(_spoilt_table(name, script))
    log = Trajectories.from_csv if name.endswith("csv") else Trajectories.from_parquet
    return lambda: Pool(1.0).prepare(problem()).release(log(path, **NAMES, max_per_unit=2), SeededNoise(0))


def _spoilt_table(name: str, script: Script) -> bytes:
    how = script.number(3)
    if how == 0:
        return script.rest()
    if how == 1:
        return spoilt((good() / name).read_bytes(), script)
    table = pq.read_table(good() / "log.parquet")
    number = script.number(table.num_columns)
    column = table.column_names[number]
    values = table[column].to_pylist()
    place = script.number(len(values))
    # The value that makes a reader fail must be a secret, or a message that quotes it would not be noticed.
    secret = (f"{SECRET_NAME} x", SECRET_NAME * 40, "3133.75.1", -313375e300, f"{SECRET_NUMBER}e999")
    values[place] = script.pick([*secret * 5, *(each for each in HOSTILE if not isinstance(each, list | dict))])
    try:
        changed = table.set_column(number, column, pa.array(values))
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        # Values that have no common type are written as text.
        words = ["" if each is None else str(each).encode("utf-8", "replace").decode() for each in values]
        changed = table.set_column(number, column, pa.array(words))
    written = io.BytesIO()
    if name.endswith(".csv"):
        pa.csv.write_csv(changed, written)
    else:
        pq.write_table(changed, written)
    return written.getvalue()


def sales(script: Script, place: Path) -> Callable[[], object]:
    """Kaggle's train.csv, plain or packed."""
    original = (good() / "train.csv").read_bytes()
    packed = bool(script.number(2))
    text = script.rest() if script.number(3) == 0 else spoilt(original, script)
    path = place / ("train.csv.gz" if packed else "train.csv")
    path.write_bytes(gzip.compress(text) if packed and script.number(3) else text)
    return lambda: rossmann.read(path, (1, 2))
