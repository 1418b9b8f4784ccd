"""Ledger: what was ever spent on a data set, in a file that can only grow.

Every entry is sealed with a secret key over itself and the seal before it, so that a changed, removed or inserted
entry is found. A spend walks through three of them:

    reserve ──► read ──► commit        before the log is opened │ before noise is drawn │ after the policy is written
       └──────► void                   the log could not be read: nothing was released, and the budget comes back

Whatever is reserved and not void counts as spent. A crash can therefore lose budget and never gain it.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from poolrl.privacy import zcdp
from poolrl.privacy.accounts import Account, Entry, OverspendError, replay

SCHEMA = """
CREATE TABLE entries (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, time TEXT NOT NULL, account TEXT NOT NULL,
  rho TEXT, refers INTEGER, note TEXT NOT NULL, seal TEXT NOT NULL);
CREATE TABLE head (only INTEGER PRIMARY KEY CHECK (only = 1), number INTEGER NOT NULL, seal TEXT NOT NULL);
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER entries_remain BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""
GENESIS = "poolrl ledger 1"
PATIENCE = 60.0  # seconds to wait for other processes that are writing


class Ledger:
    """The accounts of one owner: one SQLite file, and beside it the key that seals it (`<file>.key`, keep it secret).

    An account belongs to a data set by the name its owner gave it, so that a corrected or longer log is charged to
    the same budget. The log itself never enters: only its keyed fingerprint, by which the same rows under another
    name are recognised.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.key_path = self.path.with_name(self.path.name + ".key")
        if not self.path.exists() and self.key_path.exists():
            raise ValueError(f"{self.path} is gone, but its key {self.key_path} is there: restore it from a backup")
        try:
            self._file = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        except sqlite3.Error as error:
            raise ValueError(f"{self.path} cannot be used as a ledger: {error}") from None
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._file.close()
            raise ValueError(f"{self.path} cannot be used as a ledger: {error}") from None
        except BaseException:
            self._file.close()
            raise

    def _prepare(self) -> None:
        self._file.execute("PRAGMA synchronous = EXTRA")  # a confirmed entry outlives a power cut
        with self._writing():
            new = not self._file.execute("SELECT 1 FROM sqlite_master WHERE name = 'entries'").fetchone()
            self._key = self._find_key(create=new)
            if new:
                for statement in SCHEMA.split(";\n"):
                    if statement.strip():
                        self._file.execute(statement)
                self._set_head(0, GENESIS)

    @classmethod
    def existing(cls, path: str | Path) -> Self:
        """Open a ledger that must be there."""
        if not Path(path).is_file():
            raise FileNotFoundError(f"there is no ledger {path}; the first fit makes one")
        return cls(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def account(self, data_set: str) -> Account | None:
        """What an account holds, or None if there is none of that name."""
        return self.accounts().get(self._fingerprint("data set", data_set.encode()))

    def accounts(self) -> dict[str, Account]:
        """All accounts by their keyed fingerprint; refuses a ledger that was tampered with."""
        return replay(self._sound_entries())

    def entries(self) -> list[Entry]:
        """Every entry from the first to the last, as it stands in the file."""
        rows = self._file.execute(
            "SELECT number, kind, time, account, rho, refers, note, seal FROM entries ORDER BY number"
        )
        return [_entry(row) for row in rows]

    def open_account(self, data_set: str, budget: zcdp.Budget) -> Account:
        """The account of a data set, new if there is none; refuses a budget that is not the one it was opened with."""
        exact = _finite("budget", budget)
        with self._writing():
            account = self.account(data_set)
            if account is None:
                fingerprint = self._fingerprint("data set", data_set.encode())
                self._append("open", fingerprint, rho=exact, note={"data_set": data_set})
                account = self.accounts()[fingerprint]
        if account.budget != exact:
            raise ValueError(
                f"{data_set!r} was given a budget of {float(account.budget):g} in the ledger, not {float(exact):g}. "
                "Its owner changes it with 'poolrl ledger budget'"
            )
        return account

    def change_budget(self, data_set: str, budget: zcdp.Budget, *, reason: str) -> Account:
        """Change what may be spent on a data set in all: an entry that everybody can see, with its reason."""
        exact = _finite("budget", budget)
        if not reason.strip():
            raise ValueError("reason must say why the budget changes")
        with self._writing():
            account = self._known(data_set)
            self._append("budget", account.fingerprint, rho=exact, note={"reason": reason})
            return self._known(data_set)

    def reserve(self, data_set: str, rho: zcdp.Budget) -> Entry:
        """Set ρ aside, before anything is read; refused if the account does not hold so much."""
        exact = _finite("rho", rho)
        with self._writing():
            account = self._known(data_set)
            if exact > account.left:
                raise OverspendError(
                    f"the budget of {data_set!r} does not allow this: asked for rho = {float(exact):g}, left are "
                    f"{float(account.left):g} of {float(account.budget):g}"
                )
            return self._append("reserve", account.fingerprint, rho=exact)

    def read(self, reservation: Entry, content: bytes) -> Entry:
        """Record whose rows are about to be released; from here on nothing comes back.

        The same rows under another name are refused and the reservation is void: they have an account of their own.
        """
        with self._writing():
            accounts = self.accounts()
            mine = accounts[reservation.account]
            mine.require(reservation, "reserved")
            fingerprint = self._fingerprint("content", content)
            other = next((a for a in accounts.values() if a is not mine and fingerprint in a.contents), None)
            if other is None:
                return self._append("read", mine.fingerprint, refers=reservation.number, note={"content": fingerprint})
            self._append("void", mine.fingerprint, refers=reservation.number)
        raise OverspendError(
            f"these very rows have an account already, as {other.data_set!r}: a new name is no new budget. Use that name"
        )

    def void(self, reservation: Entry) -> Entry:
        """Give a reservation back, because the log could not be read: nothing was released."""
        with self._writing():
            self.accounts()[reservation.account].require(reservation, "reserved")
            return self._append("void", reservation.account, refers=reservation.number)

    def commit(self, reservation: Entry, released: dict[str, str]) -> Entry:
        """Record what was handed out for a reservation, by names and hashes."""
        with self._writing():
            self.accounts()[reservation.account].require(reservation, "read")
            return self._append("commit", reservation.account, refers=reservation.number, note=released)

    def verify(self) -> list[str]:
        """Everything that is wrong with the chain of seals or the accounts; an empty list if nothing is."""
        faults: list[str] = []
        seal, number = GENESIS, 0
        try:
            with self._snapshot():
                entries = self.entries()
                head = self._file.execute("SELECT number, seal FROM head").fetchall()
        except (sqlite3.Error, ValueError, TypeError, ZeroDivisionError):
            return ["the file is damaged"]
        for entry in entries:
            number += 1
            if entry.number != number:
                return [*faults, f"entry {number} is missing"]
            seal = self._seal(entry, seal)
            if not hmac.compare_digest(seal, entry.seal):
                return [f"entry {number} or one before it was changed: its seal does not fit"]
        if head != [(number, self._fingerprint("head", f"{number} {seal}".encode()))]:
            faults.append("entries at the end were removed or added by another hand")
        try:
            replay(entries)
        except (ValueError, KeyError, TypeError) as error:
            faults.append(f"the accounts do not add up: {error}")
        return faults

    def _known(self, data_set: str) -> Account:
        account = self.account(data_set)
        if account is None:
            raise ValueError(f"the ledger has no account {data_set!r}: the first fit opens it with the file's budget")
        return account

    def _sound_entries(self) -> list[Entry]:
        with self._snapshot():
            faults = self.verify()
            if faults:
                raise ValueError(f"{self.path} was tampered with or damaged ({faults[0]}); see 'poolrl ledger verify'")
            return self.entries()

    def _append(
        self, kind: str, account: str, *, rho: Fraction | None = None, refers: int | None = None, note: Any = None
    ) -> Entry:
        last = self._file.execute("SELECT number, seal FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        number, previous = last or (0, GENESIS)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        draft = Entry(number + 1, kind, now, account, rho, refers, note or {}, "")
        entry = draft.sealed(self._seal(draft, previous))
        self._file.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                entry.number,
                kind,
                now,
                account,
                None if rho is None else str(rho),
                refers,
                json.dumps(entry.note, sort_keys=True),
                entry.seal,
            ),
        )
        replay(self.entries())  # an entry that breaks the rules of the accounts never gets into the file
        self._set_head(entry.number, entry.seal)
        return entry

    def _seal(self, entry: Entry, previous: str) -> str:
        return self._fingerprint("entry", json.dumps([previous, *entry.content()], sort_keys=True).encode())

    def _set_head(self, number: int, seal: str) -> None:
        mark = self._fingerprint("head", f"{number} {seal}".encode())
        self._file.execute("INSERT OR REPLACE INTO head VALUES (1, ?, ?)", (number, mark))

    def _fingerprint(self, purpose: str, content: bytes) -> str:
        return hmac.digest(self._key, purpose.encode() + b"\0" + content, "sha256").hex()

    def _find_key(self, *, create: bool) -> bytes:
        if create and not self.key_path.exists():
            draft = self.key_path.with_name(f"{self.key_path.name}.{secrets.token_hex(4)}")
            draft.touch(mode=0o600)
            draft.write_text(secrets.token_hex(32) + "\n")
            draft.replace(self.key_path)
        try:
            key = bytes.fromhex(self.key_path.read_text())
        except FileNotFoundError:
            raise ValueError(f"the key {self.key_path} of the ledger is missing: restore it from a backup") from None
        except ValueError:
            key = b""
        if len(key) != 32:
            raise ValueError(f"{self.key_path} is not the key of a ledger")
        return key

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Several reads of one state of the file, whoever is writing meanwhile."""
        if self._file.in_transaction:
            yield
            return
        self._file.execute("BEGIN")
        try:
            yield
        finally:
            self._file.execute("ROLLBACK")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One writer at a time, and all or nothing."""
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")


def _entry(row: tuple[Any, ...]) -> Entry:
    number, kind, time, account, rho, refers, note, seal = row
    return Entry(number, kind, time, account, None if rho is None else Fraction(rho), refers, json.loads(note), seal)


def _finite(name: str, rho: zcdp.Budget) -> Fraction:
    exact = zcdp.budget(rho)
    if isinstance(exact, float):
        raise ValueError(f"{name} must be finite, got {rho!r}")
    return exact
