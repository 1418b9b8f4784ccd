"""The results file: one row per finished run, on disk before the next begins (SQLite).

In WAL mode the processes of one machine write side by side, and others read meanwhile, so every worker stores its own
runs. WAL uses shared memory, so it does not work across machines: runs made elsewhere travel back, and the command
that asked for them stores them (`backends`). The file belongs on a local disk.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from poolrl import __version__
from poolrl.paper.sweeps import Setting
from poolrl.paper.trials import MEASURES, Run

# A new version may learn better or worse: its rows must not mix with old ones.
RESULTS_FORMAT = f"poolrl {__version__}, results 2"
SECONDS_FOR_WRITERS = 60.0  # how long to wait for other processes that are writing

_SQL = {"str": "TEXT", "float": "REAL", "int": "INTEGER"}
_KEYS = {field.name: f"{_SQL[str(field.type)]} NOT NULL" for field in fields(Setting)} | {"seed": "INTEGER NOT NULL"}
# Measures have no type, because a column of type REAL loses the sign of −0.0. NaN is NULL: SQLite has no NaN.
_COLUMNS = _KEYS | dict.fromkeys(MEASURES, "")
_STORED: dict[str, Any] = {"TEXT": str, "REAL": float, "INTEGER": int, "": float | int | None}
_KINDS = {name: _STORED[kind.removesuffix(" NOT NULL")] for name, kind in _COLUMNS.items()}


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
        row = run.row()
        names, marks, keys = ", ".join(_COLUMNS), ", ".join("?" * len(_COLUMNS)), ", ".join(_KEYS)
        self._write(
            f"INSERT INTO runs ({names}) VALUES ({marks}) ON CONFLICT ({keys}) DO NOTHING",
            [row[name] for name in _COLUMNS],
        )

    def runs(self) -> list[Run]:
        """Every run, in the order of its setting and seed: the same however many processes made them."""
        names = [field.name for field in fields(Setting)]
        found = self._read(f"SELECT {', '.join(_COLUMNS)} FROM runs ORDER BY {', '.join(_KEYS)}")
        rows = [dict(zip(_COLUMNS, values, strict=True)) for values in found]
        if not all(isinstance(row[name], _KINDS[name]) for row in rows for name in _COLUMNS):
            raise self._unreadable("a row is not a run")
        return [
            Run(Setting(**{n: row[n] for n in names}), row["seed"], **{n: _measure(row[n]) for n in MEASURES})
            for row in rows
        ]

    def fact(self, name: str) -> str | None:
        """A fact about the file."""
        found = self._read("SELECT value FROM facts WHERE name = ?", [name])
        return str(found[0][0]) if found else None

    def note(self, name: str, value: str) -> None:
        """Store a fact about the file."""
        self._write("INSERT OR REPLACE INTO facts VALUES (?, ?)", [name, value])

    def same_source(self, md5: str) -> None:
        """Refuse to add runs on another train.csv to those already there."""
        before = self.fact("rossmann md5")
        if before not in (None, md5):
            raise ValueError(
                f"{self.path} holds runs on another train.csv (MD5 {before}); choose another folder with --out"
            )
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
        tables = self._tables()
        if not tables and not read_only:
            tables = self._make()
        held = self.fact("format") if "facts" in tables else None
        if held != RESULTS_FORMAT or "runs" not in tables:
            raise ValueError(
                f"{self.path} was written by another version ({held or 'no poolrl results'}; this is "
                f"{RESULTS_FORMAT}): move it away, or choose another folder with --out"
            )
        if not read_only:
            self._write("PRAGMA synchronous = FULL")  # a stored run survives a power cut

    def _make(self) -> set[str]:
        """The tables of a new file, all or none: a file killed half-made must not look like another program's."""
        self._write("PRAGMA journal_mode = WAL")  # a property of the file, not of the connection
        self._write("BEGIN IMMEDIATE")
        if not self._tables():  # otherwise another process was quicker
            columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
            self._write(f"CREATE TABLE runs ({columns}, PRIMARY KEY ({', '.join(_KEYS)}))")
            self._write("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            self.note("format", RESULTS_FORMAT)
        self._write("COMMIT")
        return self._tables()

    def _tables(self) -> set[str]:
        return {name for (name,) in self._read("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _execute(self, statement: str, values: list[Any]) -> sqlite3.Cursor:
        """SQLite waits for other writers, but not while the file is switched to WAL mode or recovered: then we wait."""
        end = time.monotonic() + SECONDS_FOR_WRITERS
        while True:
            try:
                return self._db.execute(statement, values)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _read(self, statement: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        try:
            return self._execute(statement, values or []).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: object) -> ValueError:
        return ValueError(
            f"{self.path} is not a results file, or is damaged ({error}); "
            "move it away, or choose another folder with --out"
        )

    def _write(self, statement: str, values: list[Any] | None = None) -> None:
        try:
            self._execute(statement, values or [])
        except sqlite3.Error as error:
            raise OSError(
                f"could not write to {self.path} ({error}); every run before this one is kept: "
                "make room and run the same command again"
            ) from None


def _measure(stored: float | None) -> float:
    return math.nan if stored is None else stored
