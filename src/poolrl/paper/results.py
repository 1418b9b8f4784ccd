"""The results file, one row per finished run, on disk before the next begins (SQLite); and finished runs by setting.

In WAL mode the processes of one machine write side by side, and others read meanwhile. WAL uses shared memory, so the
file belongs on a local disk. Runs made on other machines travel back to the command that asked for them (`workers`).
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout

from poolrl import __version__
from poolrl.checks import FloatArray
from poolrl.paper.sweeps import SCALES, TUNED, TUNING_SEEDS, Setting
from poolrl.paper.trials import MEASURES, Run

# A new version may learn better or worse: its rows must not mix with old ones.
RESULTS_FORMAT = f"poolrl {__version__}, results 2"
ELSEWHERE = "move it away, or choose another folder with --out"
SECONDS_FOR_WRITERS = 60.0  # how long to wait for other processes that are writing

_SQL = {"str": ("TEXT NOT NULL", str), "float": ("REAL NOT NULL", float), "int": ("INTEGER NOT NULL", int)}
_KEYS = {field.name: _SQL[str(field.type)] for field in fields(Setting)} | {"seed": _SQL["int"]}
# Measures have no type, because a column of type REAL loses the sign of −0.0. NaN is NULL: SQLite has no NaN.
_COLUMNS: dict[str, tuple[str, Any]] = {**_KEYS, **dict.fromkeys(MEASURES, ("", float | int | None))}


class Results:
    """A file of runs, for any number of processes on one machine; a context manager.

    A row is durable when `add` returns, so a killed process loses only the runs in flight.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if read_only and not path.exists():
            raise ValueError(f"there are no results at {path}: run `poolrl reproduce` first")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Readers open it for writing too, so that the last of them can tidy up the log that others left.
        address = f"{path.resolve().as_uri()}?mode={'rw' if read_only else 'rwc'}"
        try:
            self._db = sqlite3.connect(address, uri=True, timeout=SECONDS_FOR_WRITERS, isolation_level=None)
        except sqlite3.Error as error:
            raise self._unreadable(error) from None
        try:
            self._prepare(read_only)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def add(self, run: Run) -> None:
        """Store one finished run, durably. A run that is already there stays as it is."""
        marks, keys = ", ".join("?" * len(_COLUMNS)), ", ".join(_KEYS)
        statement = f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({marks}) ON CONFLICT ({keys}) DO NOTHING"
        self._write(statement, [*astuple(run.setting), run.seed, *(getattr(run, name) for name in MEASURES)])

    def runs(self) -> list[Run]:
        """Every run, in the order of its setting and seed: the same however many processes made them."""
        rows = self._read(f"SELECT {', '.join(_COLUMNS)} FROM runs ORDER BY {', '.join(_KEYS)}")
        kinds = [kind for _, kind in _COLUMNS.values()]
        if not all(isinstance(value, kind) for row in rows for value, kind in zip(row, kinds, strict=True)):
            raise self._unreadable("a row is not a run")
        split = ((row[: len(_KEYS)], row[len(_KEYS) :]) for row in rows)
        return [
            Run(Setting(*key[:-1]), key[-1], *(math.nan if value is None else value for value in measures))
            for key, measures in split
        ]

    def fact(self, name: str) -> str | None:
        """A fact about the file."""
        values = self._read("SELECT value FROM facts WHERE name = ?", [name])
        return str(values[0][0]) if values else None

    def note(self, name: str, value: str) -> None:
        """Store a fact about the file."""
        self._write("INSERT OR REPLACE INTO facts VALUES (?, ?)", [name, value])

    def same_source(self, md5: str) -> None:
        """Refuse to add runs on another train.csv to those already there."""
        before = self.fact("rossmann md5")
        if before not in (None, md5):
            raise ValueError(f"{self.path} holds runs on another train.csv (MD5 {before}); {ELSEWHERE}")
        self.note("rossmann md5", md5)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Refuse a second command, which would do the same runs again. A killed command frees the lock."""
        try:
            lock = FileLock(self.path.with_suffix(".lock")).acquire(blocking=False)
        except Timeout:
            raise ValueError(f"{self.path} is in use: another `poolrl reproduce` writes to it") from None
        with lock:
            yield

    def _prepare(self, read_only: bool) -> None:
        if not (self._tables() or read_only):
            self._make()
        tables = self._tables()
        held = self.fact("format") if "facts" in tables else None
        if held != RESULTS_FORMAT or "runs" not in tables:
            raise ValueError(
                f"{self.path} was written by another version ({held or 'no poolrl results'}; this is "
                f"{RESULTS_FORMAT}): {ELSEWHERE}"
            )
        if not read_only:
            self._write("PRAGMA synchronous = FULL")  # a stored run survives a power cut

    def _make(self) -> None:
        """The tables of a new file, all or none: a file killed half-made must not look like another program's."""
        self._write("PRAGMA journal_mode = WAL")  # a property of the file, not of the connection
        self._write("BEGIN IMMEDIATE")
        if not self._tables():  # otherwise another process was quicker
            columns = ", ".join(f"{name} {kind}" for name, (kind, _) in _COLUMNS.items())
            self._write(f"CREATE TABLE runs ({columns}, PRIMARY KEY ({', '.join(_KEYS)}))")
            self._write("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            self.note("format", RESULTS_FORMAT)
        self._write("COMMIT")

    def _tables(self) -> set[str]:
        return {name for (name,) in self._read("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _execute(self, statement: str, values: Sequence[Any]) -> sqlite3.Cursor:
        """SQLite waits for other writers, but not while the file is switched to WAL mode or recovered: then we wait."""
        end = time.monotonic() + SECONDS_FOR_WRITERS
        while True:
            try:
                return self._db.execute(statement, values)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None

    def _write(self, statement: str, values: Sequence[Any] = ()) -> None:
        try:
            self._execute(statement, values)
        except sqlite3.Error as error:
            kept = "every run before this one is kept: make room and run the same command again"
            raise OSError(f"could not write to {self.path} ({error}); {kept}") from None

    def _unreadable(self, error: object) -> ValueError:
        return ValueError(f"{self.path} is not a results file, or is damaged ({error}); {ELSEWHERE}")


class Runs:
    """Finished runs by setting and seed. Seeds that tuned a scale judge nothing."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = {(run.setting, run.seed): run for run in runs}
        self._judging: dict[Setting, dict[int, Run]] = {}
        for run in runs:
            if run.seed not in TUNING_SEEDS:
                self._judging.setdefault(run.setting, {})[run.seed] = run
        self.seeds = len({seed for _, seed in self._runs if seed not in TUNING_SEEDS})  # how many judge

    def chosen(self, setting: Setting) -> Setting:
        """A TUNED setting with the scale that the tuning seeds chose."""
        return resolved(setting, self._runs)

    def of(self, setting: Setting) -> dict[int, Run]:
        """Its runs by seed, none if it was not run."""
        return self._judging.get(self.chosen(setting), {})

    def measured(self, setting: Setting, measure: str) -> FloatArray:
        """One measure of its runs, a number per seed."""
        return np.array([getattr(run, measure) for run in self.of(setting).values()])

    def paired(self, settings: Sequence[Setting], measure: str = "gap") -> FloatArray:
        """One row per seed that all settings share, one column per setting."""
        by_seed = [self.of(setting) for setting in settings]
        seeds = sorted(set.intersection(*map(set, by_seed))) if by_seed else []
        values = [[getattr(runs[seed], measure) for runs in by_seed] for seed in seeds]
        return np.array(values, dtype=np.float64).reshape(len(seeds), len(settings))

    def present(self, settings: Sequence[Setting]) -> list[Setting]:
        """Those that were run."""
        return [setting for setting in settings if self.of(setting)]


def tuning(settings: Sequence[Setting]) -> list[tuple[Setting, int]]:
    """The runs from which the scale of every TUNED setting is chosen, on seeds that judge nothing."""
    tuned = [setting for setting in settings if setting.scale == TUNED]
    return [(replace(setting, scale=scale), seed) for seed in TUNING_SEEDS for setting in tuned for scale in SCALES]


def resolved(setting: Setting, runs: dict[tuple[Setting, int], Run]) -> Setting:
    """A TUNED setting with its scale filled in: the least mean gap over the tuning seeds; ties go to the smallest."""
    if setting.scale != TUNED:
        return setting

    def mean_gap(scale: float) -> float:
        gaps = [runs[key].gap for seed in TUNING_SEEDS if (key := (replace(setting, scale=scale), seed)) in runs]
        return sum(gaps) / len(gaps) if gaps else math.inf

    return replace(setting, scale=min(SCALES, key=mean_gap))
