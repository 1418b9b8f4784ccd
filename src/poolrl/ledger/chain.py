"""Chain: entries in a file that can only grow. A secret key seals each entry together with the seal before it.

One SQLite file, and beside it the key (`<file>.key`). Without the key no entry can be changed, removed or inserted
unnoticed, and no guess about the content of a fingerprint can be confirmed.
"""

import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from poolrl.ledger.accounts import Entry
from poolrl.privacy.zcdp import written

_REFUSED = "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
STATEMENTS = (
    """CREATE TABLE entries (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, time TEXT NOT NULL, account TEXT NOT NULL,
  rho TEXT, refers INTEGER, note TEXT NOT NULL, seal TEXT NOT NULL)""",
    "CREATE TABLE head (only INTEGER PRIMARY KEY CHECK (only = 1), number INTEGER NOT NULL, seal TEXT NOT NULL)",
    f"CREATE TRIGGER entries_stay BEFORE UPDATE ON entries {_REFUSED}",
    f"CREATE TRIGGER entries_remain BEFORE DELETE ON entries {_REFUSED}",
)
TABLES = {"entries", "head"}
GENESIS = "poolrl ledger 1"
# Seconds to wait for other processes that are writing.
LOCK_PATIENCE = 60.0


class Chain:
    """The file and its key; `create` makes both if there is neither."""

    def __init__(self, path: str | Path, *, create: bool) -> None:
        # The key is beside the file, not beside a link to it.
        self.path = Path(path).resolve()
        self.key_path = self.path.with_name(self.path.name + ".key")
        if self.key_path.exists() and not self.path.exists():
            raise ValueError(self._lost())
        if not create and not self.path.is_file():
            raise ValueError(f"there is no ledger {path}; the first fit makes one")
        with self._translated():
            self._file = sqlite3.connect(self.path, timeout=LOCK_PATIENCE, isolation_level=None)
            try:
                # A confirmed entry survives a power cut.
                self._file.execute("PRAGMA synchronous = EXTRA")
                self._key = self._prepare(create=create)
            except BaseException:
                self._file.close()
                raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def entries(self) -> list[Entry]:
        """Every entry from the first to the last; seals are not checked."""
        rows = self._file.execute(
            "SELECT number, kind, time, account, rho, refers, note, seal FROM entries ORDER BY number"
        )
        return [
            Entry(number, kind, time, account, None if rho is None else written(rho), refers, json.loads(note), seal)
            for number, kind, time, account, rho, refers, note, seal in rows
        ]

    def append(
        self, kind: str, account: str, *, rho: Fraction | None = None, refers: int | None = None, note: Any = None
    ) -> Entry:
        """Seal one more entry; only inside `writing`."""
        if rho is not None:
            written(str(rho))  # refuses a number that could not be read again
        last = self._file.execute("SELECT number, seal FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        number, previous = last or (0, GENESIS)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        draft = Entry(number + 1, kind, now, account, rho, refers, note or {}, "")
        entry = replace(draft, seal=self._seal(draft, previous))
        *content, facts = entry.content()
        row = (*content, json.dumps(facts, sort_keys=True), entry.seal)
        self._file.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._set_head(entry.number, entry.seal)
        return entry

    def checked_entries(self) -> tuple[list[Entry], list[str]]:
        """Every entry, and the faults of the file or its seals."""
        try:
            with self._transaction():
                # A trigger not written by poolrl could undo what is about to be written.
                made = {sql for (sql,) in self._file.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
                if made != set(STATEMENTS):
                    return [], ["it has tables or triggers that poolrl did not make, or lacks its own"]
                entries = self.entries()
                return entries, self._broken_seals(entries)
        except (ValueError, TypeError, ZeroDivisionError, RecursionError):
            return [], ["the file is damaged"]

    def _broken_seals(self, entries: list[Entry]) -> list[str]:
        head = self._file.execute("SELECT number, seal FROM head").fetchall()
        seal, number = GENESIS, 0
        for number, entry in enumerate(entries, start=1):
            if entry.number != number:
                return [f"entry {number} is missing"]
            seal = self._seal(entry, seal)
            if not hmac.compare_digest(seal.encode(), str(entry.seal).encode()):
                return [f"entry {number} or one before it was changed: its seal does not fit"]
        if head != [(number, self._head_seal(number, seal))]:
            return ["entries at the end were removed, or added without the key"]
        return []

    def fingerprint(self, purpose: str, content: bytes) -> str:
        """A keyed hash."""
        return hmac.digest(self._key, purpose.encode() + b"\0" + content, "sha256").hex()

    def writing(self) -> AbstractContextManager[None]:
        """One writer at a time, and all or nothing."""
        return self._transaction("BEGIN IMMEDIATE")

    @contextmanager
    def _transaction(self, begin: str = "BEGIN") -> Iterator[None]:
        """Several statements on one state of the file, while other processes may write; a part of the one around it."""
        if self._file.in_transaction:
            yield
            return
        with self._translated():
            self._file.execute(begin)
            try:
                yield
                self._file.execute("COMMIT")
            finally:
                # A full disk may already have ended the transaction.
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """SQLite's errors (a lock that is never released, a full disk, a file of another kind) as one ValueError."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path} cannot be used as a ledger: {error}") from None

    def _prepare(self, *, create: bool) -> bytes:
        """The key of the file; a new file gets its tables first.

        The key has another name until the tables are there. So an empty file beside a key was emptied: it is not a file
        whose making was interrupted.
        """
        if self._tables() >= TABLES and self.key_path.exists():
            return _read_key(self.key_path)
        draft = self.key_path.with_name(self.key_path.name + ".new")
        with self.writing():
            tables = self._tables()
            if not tables >= TABLES:
                if self.key_path.exists():
                    raise ValueError(self._lost())
                if tables or not create:
                    raise ValueError(f"{self.path} is not a ledger")
                write_secret(draft, f"{secrets.token_hex(32)}\n".encode())
                self._key = _read_key(draft)
                for statement in STATEMENTS:
                    self._file.execute(statement)
                self._set_head(0, GENESIS)
        with suppress(FileNotFoundError):  # another process has renamed it
            draft.rename(self.key_path)
            onto_disk(self.key_path.parent)
        return _read_key(self.key_path)

    def _tables(self) -> set[str]:
        with self._transaction():
            return {name for (name,) in self._file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _lost(self) -> str:
        return f"{self.path} is gone, empty or damaged, but its key {self.key_path} is there: restore it from a backup"

    def _seal(self, entry: Entry, previous: str) -> str:
        return self.fingerprint("entry", json.dumps([previous, *entry.content()], sort_keys=True).encode())

    def _head_seal(self, number: int, seal: str) -> str:
        return self.fingerprint("head", f"{number} {seal}".encode())

    def _set_head(self, number: int, seal: str) -> None:
        self._file.execute("INSERT OR REPLACE INTO head VALUES (1, ?, ?)", (number, self._head_seal(number, seal)))


def was_made(path: Path) -> bool:
    """Whether a file is more than what a full disk has left of a ledger that was about to be made."""
    empty = path.is_file() and path.stat().st_size == 0
    return path.exists() and not (empty and not path.with_name(path.name + ".key").exists())


def write_secret(path: Path, content: bytes) -> None:
    """Write a new file that only this user can read. It is on the disk before anything is sealed or signed with it."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def onto_disk(path: Path) -> None:
    """Return when a file or a folder would survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read_key(path: Path) -> bytes:
    try:
        key = bytes.fromhex(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"the key {path} of the ledger is missing: restore it from a backup") from None
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ValueError(f"{path} is not the key of a ledger")
    return key
