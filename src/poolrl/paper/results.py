"""The results file: one row per finished run, on disk before the next begins (DuckDB)."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb

from poolrl import __version__
from poolrl.paper.sweeps import Setting
from poolrl.paper.trials import MEASURES, Run

# A new version may learn better or worse: its rows must not mix with old ones.
FORMAT = f"poolrl {__version__}, results 1"

_SQL = {"str": "VARCHAR", "float": "DOUBLE", "int": "BIGINT"}
_KEYS = {field.name: _SQL[str(field.type)] for field in fields(Setting)} | {"seed": "BIGINT"}
_COLUMNS = _KEYS | dict.fromkeys(MEASURES, "DOUBLE")


class Results:
    """A file of runs, opened for one process at a time; a context manager.

    A row is durable when `add` returns, so a killed process loses the runs in flight and no others.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if read_only and not path.exists():
            raise ValueError(f"there are no results at {path}: run `poolrl reproduce` first")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = duckdb.connect(str(path), read_only=read_only)
        except duckdb.Error as error:
            if "lock" in str(error).lower():
                raise ValueError(f"{path} is in use: another `poolrl reproduce` writes to it") from None
            raise ValueError(
                f"{path} is not a results file that this version of DuckDB reads, or is damaged; "
                "move it away, or choose another folder with --out"
            ) from None
        try:
            self._prepare(read_only)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()

    def add(self, run: Run) -> None:
        """Append one finished run, durably."""
        row = run.row()
        marks = ", ".join("?" * len(_COLUMNS))
        self._write(f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({marks})", [row[name] for name in _COLUMNS])

    def runs(self) -> list[Run]:
        """Every run, in the order of its setting and seed: the same however many processes made them."""
        names = [field.name for field in fields(Setting)]
        found = self._db.execute(f"SELECT {', '.join(_COLUMNS)} FROM runs ORDER BY {', '.join(_KEYS)}").fetchall()
        rows = [dict(zip(_COLUMNS, values, strict=True)) for values in found]
        return [
            Run(Setting(**{n: row[n] for n in names}), row["seed"], **{n: row[n] for n in MEASURES}) for row in rows
        ]

    def fact(self, name: str) -> str | None:
        """Something about the file as a whole."""
        found = self._db.execute("SELECT value FROM facts WHERE name = ?", [name]).fetchone()
        return None if found is None else str(found[0])

    def note(self, name: str, value: str) -> None:
        """Remember something about the file as a whole."""
        self._write("INSERT OR REPLACE INTO facts VALUES (?, ?)", [name, value])

    def same_source(self, md5: str) -> None:
        """Refuse to add runs on another train.csv to those already there."""
        before = self.fact("rossmann md5")
        if before not in (None, md5):
            raise ValueError(
                f"{self.path} holds runs on another train.csv (MD5 {before}); choose another folder with --out"
            )
        self.note("rossmann md5", md5)

    def _prepare(self, read_only: bool) -> None:
        tables = {name for (name,) in self._db.execute("SELECT table_name FROM information_schema.tables").fetchall()}
        if not tables and not read_only:
            columns = ", ".join(f"{name} {kind} NOT NULL" for name, kind in _COLUMNS.items())
            self._write("BEGIN")  # all or nothing: a file killed half-made must not look like somebody else's
            self._write(f"CREATE TABLE runs ({columns}, PRIMARY KEY ({', '.join(_KEYS)}))")
            self._write("CREATE TABLE facts (name VARCHAR PRIMARY KEY, value VARCHAR NOT NULL)")
            self.note("format", FORMAT)
            self._write("COMMIT")
            return
        held = self.fact("format") if "facts" in tables else None
        if held != FORMAT or "runs" not in tables:
            raise ValueError(
                f"{self.path} was written by another version ({held or 'no poolrl results'}; this is {FORMAT}): "
                "move it away, or choose another folder with --out"
            )

    def _write(self, statement: str, values: list[Any] | None = None) -> None:
        try:
            self._db.execute(statement, values or [])
        except RuntimeError as error:
            if "interrupted" in str(error).lower():  # how DuckDB passes on Ctrl-C
                raise KeyboardInterrupt from None
            raise
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise OSError(
                f"could not write to {self.path} ({reason}); every run before this one is kept: "
                "make room and run the same command again"
            ) from None
