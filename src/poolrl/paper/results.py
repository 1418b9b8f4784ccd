"""The results file, one row per finished run, on disk before the command goes on (SQLite); and runs by setting.

One command at a time writes to it, and others can read meanwhile.
"""

import math
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
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
SECONDS_FOR_READERS = 60.0  # how long to wait for another program that is reading

_SQL = {"str": ("TEXT NOT NULL", str), "float": ("REAL NOT NULL", float), "int": ("INTEGER NOT NULL", int)}
_KEYS = {field.name: _SQL[str(field.type)] for field in fields(Setting)} | {"seed": _SQL["int"]}
# Measures have no type, because a column of type REAL loses the sign of −0.0. NaN is NULL: SQLite has no NaN.
_COLUMNS: dict[str, tuple[str, Any]] = {**_KEYS, **dict.fromkeys(MEASURES, ("", float | int | None))}


class Results:
    """A file of runs; a context manager. A second command that wants to write is refused: it would do the same runs.

    A row is durable when `add` returns, so a killed command loses only the runs in flight.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if read_only and not path.exists():
            raise ValueError(f"there are no results at {path}: run `poolrl reproduce` first")
        path.parent.mkdir(parents=True, exist_ok=True)
        # Readers open it for writing too, so that they can take back what a killed command has half written.
        address = f"{path.resolve().as_uri()}?mode={'rw' if read_only else 'rwc'}"
        with ExitStack() as opened:
            try:
                if not read_only:  # a killed command frees the lock
                    opened.enter_context(FileLock(path.with_suffix(".lock")).acquire(blocking=False))
                self._db = sqlite3.connect(address, uri=True, timeout=SECONDS_FOR_READERS, isolation_level=None)
            except Timeout:
                raise ValueError(f"{path} is in use: another `poolrl reproduce` writes to it") from None
            except sqlite3.Error as error:
                raise self._unreadable(error) from None
            opened.enter_context(closing(self._db))
            self._prepare(read_only)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def add(self, run: Run) -> None:
        """Store one finished run, durably."""
        values = [*astuple(run.setting), run.seed, *(getattr(run, name) for name in MEASURES)]
        self._write(f"INSERT INTO runs VALUES ({', '.join('?' * len(values))})", values)

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
        self._write("PRAGMA synchronous = EXTRA")  # a stored run survives a power cut

    def _make(self) -> None:
        """The tables of a new file, all or none: a file killed half-made must not look like another program's."""
        self._write("BEGIN")
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in _COLUMNS.items())
        self._write(f"CREATE TABLE runs ({columns}, PRIMARY KEY ({', '.join(_KEYS)}))")
        self._write("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        self.note("format", RESULTS_FORMAT)
        self._write("COMMIT")

    def _tables(self) -> set[str]:
        return {name for (name,) in self._read("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None

    def _write(self, statement: str, values: Sequence[Any] = ()) -> None:
        try:
            self._db.execute(statement, values)
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


def resolved(setting: Setting, runs: dict[tuple[Setting, int], Run]) -> Setting:
    """A TUNED setting with its scale filled in: the least mean gap over the tuning seeds; ties go to the smallest."""
    if setting.scale != TUNED:
        return setting

    def mean_gap(scale: float) -> float:
        gaps = [runs[key].gap for seed in TUNING_SEEDS if (key := (replace(setting, scale=scale), seed)) in runs]
        return sum(gaps) / len(gaps) if gaps else math.inf

    return replace(setting, scale=min(SCALES, key=mean_gap))
