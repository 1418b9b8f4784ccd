"""Ledger: what was ever spent on a data set. A spend has three entries:

    reserve ──► read ──► commit        before the log is opened │ before noise is drawn │ after the policy is written
       └──────► void                   the log could not be read: nothing was released, and the budget comes back

A reservation that is not void counts as spent. So a crash can lose budget, but never gain it.
"""

from __future__ import annotations

import base64
import math
import secrets
from bisect import bisect_right
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from poolrl.ledger.accounts import Account, Entry, OverspendError, Period, ProtectedUnit, apply, normal_name, replay
from poolrl.ledger.chain import Chain, onto_disk
from poolrl.ledger.signing import PublicKey, SigningKey
from poolrl.privacy import zcdp

SKETCH_SIZE = 512
MARK_BYTES = 16
_NOTHING = b"\xff" * MARK_BYTES  # fills a sketch of a smaller log
_NONCE = 12
# Fewer common marks are no evidence. A log of fewer trajectories is recognised by nothing.
LEAST_COMMON = 3
# The share of trajectories that must be in both logs, of those that are not expected there by chance.
OVERLAPPING = 0.1


@dataclass(frozen=True)
class Sketch:
    """A hash of a whole log, its smallest marks, and the chance that another such log has one of them.

    A mark stands for one trajectory of one product, by its numbers alone. It begins with a number by which all marks
    are ordered, as if at random. A sketch holds the SKETCH_SIZE smallest marks. Below the smaller of two sketches'
    largest marks, both are complete, so there they show which share of the smaller log is in the other one.

    Trajectories may be equal by chance: a week in which nothing was sold looks the same everywhere. The share of a
    log's trajectories that it has more than once says how likely that is (Good 1953). Only a larger share is an
    overlap. Where all trajectories are equal by chance, a hash of the whole log still recognises the very same rows.
    """

    whole: bytes
    marks: tuple[bytes, ...]
    by_chance: float = 0.0  # used when the log is read, and not kept

    def __post_init__(self) -> None:
        smallest = tuple(sorted(set(self.marks))[:SKETCH_SIZE])
        if any(len(mark) != MARK_BYTES for mark in (self.whole, *smallest)) or not 0 <= self.by_chance <= 1:
            raise ValueError(f"a sketch has marks of {MARK_BYTES} bytes, and a chance")
        object.__setattr__(self, "marks", smallest)

    def overlaps(self, other: Sketch) -> bool:
        """Whether more of these rows than chance explains are among the other ones, or the reverse."""
        ends = [each.marks[-1] for each in (self, other) if len(each.marks) == SKETCH_SIZE]
        own, theirs = (each.marks[: bisect_right(each.marks, min(ends, default=_NOTHING))] for each in (self, other))
        common = len(set(own).intersection(theirs))
        fewer, share = min(len(own), len(theirs)), self.by_chance + OVERLAPPING * (1 - self.by_chance)
        # Three standard deviations more, because both the chance and the marks of a small log are estimates.
        least = share * fewer + 3 * math.sqrt(fewer * share * (1 - share))
        # Logs without a trajectory, because a name was misspelt, have nothing in common.
        return (common >= LEAST_COMMON and common > least) or (bool(self.marks) and self.whole == other.whole)


def seal_sketch(sketch: Sketch, key: bytes) -> str:
    """The marks, encrypted, in a text whose length is always the same."""
    filled = [*sketch.marks, *[_NOTHING] * (SKETCH_SIZE - len(sketch.marks))]
    nonce = secrets.token_bytes(_NONCE)
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, b"".join([sketch.whole, *filled]), b"sketch")).decode()


def open_sketch(sealed: str, key: bytes) -> Sketch:
    """The sketch, without its chance."""
    try:
        content = base64.b64decode(sealed, validate=True)
        opened = AESGCM(key).decrypt(content[:_NONCE], content[_NONCE:], b"sketch")
    except (InvalidTag, ValueError):
        raise ValueError("the ledger holds a sketch that its key does not open") from None
    whole, *marks = (opened[i : i + MARK_BYTES] for i in range(0, len(opened), MARK_BYTES))
    return Sketch(whole, tuple(mark for mark in marks if mark != _NOTHING))


class Ledger:
    """The accounts of one owner, in a sealed chain of entries.

    An account belongs to a data set by the name that its owner gave it, in its `normal_name`. So a corrected or longer
    log is charged to the same budget. By a sealed `Sketch`, most of the same rows are recognised under another name.
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self._chain = Chain(path, create=create)
        self.path, self.key_path = self._chain.path, self._chain.key_path
        self.signing_path = self.path.with_name(self.path.name + ".signing")
        self._new_signing_path = self.path.with_name(self.path.name + ".signing.new")

    @classmethod
    def existing(cls, path: str | Path) -> Self:
        """Open a ledger that must be there."""
        return cls(path, create=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._chain.close()

    def account(self, data_set: str) -> Account | None:
        """The account of a data set, if there is one."""
        return _find(self.accounts(), data_set)

    def accounts(self) -> dict[str, Account]:
        """All accounts by their keyed fingerprint; refuses a ledger that was tampered with."""
        return self.state()[1]

    def entries(self) -> list[Entry]:
        """Every entry from the first to the last; seals are not checked."""
        return self._chain.entries()

    def state(self) -> tuple[list[Entry], dict[str, Account]]:
        """The entries, with every seal checked, and the accounts that they add up to, by one look at the file."""
        entries, faults = self._chain.checked_entries()
        if faults:
            raise ValueError(f"{self.path} was tampered with or damaged ({faults[0]}); see 'poolrl ledger verify'")
        return entries, replay(entries)

    def verify(self) -> list[str]:
        """The faults of the file, its seals or its accounts; an empty list if nothing is wrong."""
        entries, faults = self._chain.checked_entries()
        try:
            replay([] if faults else entries)
        except (ValueError, KeyError, TypeError) as error:
            return [f"the accounts do not add up: {error}"]
        return faults

    def open_account(self, data_set: str, budget: zcdp.Budget) -> Account:
        """The account of a data set, made if it is missing; refuses a budget that is not the account's."""
        exact = zcdp.finite_budget(budget=budget)
        with self._chain.writing():
            accounts = self.accounts()
            if (account := _find(accounts, data_set)) is None:
                name = self._chain.fingerprint("data set", normal_name(data_set).encode())
                self._append(accounts, "open", name, rho=exact, note={"data_set": data_set})
                account = accounts[name]
        if account.budget != exact:
            raise ValueError(
                f"{data_set!r} was given a budget of {float(account.budget):g} in the ledger, not {float(exact):g}. "
                "Its owner changes it with 'poolrl ledger budget'"
            )
        return account

    def change_budget(self, data_set: str, budget: zcdp.Budget, *, reason: str) -> Account:
        """Change the total budget of a data set, by an entry that gives the reason."""
        exact = zcdp.finite_budget(budget=budget)
        if not reason.strip():
            raise ValueError("reason must say why the budget changes")
        with self._chain.writing():
            accounts = self.accounts()
            account = _known(accounts, data_set)
            self._append(accounts, "budget", account.fingerprint, rho=exact, note={"reason": reason})
            return account

    def reserve(self, data_set: str, rho: zcdp.Budget, unit: ProtectedUnit, period: Period | None = None) -> Entry:
        """Set ρ aside before anything is read: for the trajectories of one period, or for everything.

        Refused if it would cost any unit of the account more than its budget, or if that cannot be known.
        """
        exact = zcdp.finite_budget(rho=rho)
        with self._chain.writing():
            accounts = self.accounts()
            account = _known(accounts, data_set)
            note = {"unit": asdict(unit)} | ({} if period is None else {"period": asdict(period)})
            return self._append(accounts, "reserve", account.fingerprint, rho=exact, note=note)

    def read(self, reservation: Entry, sketch: Sketch) -> Account:
        """Record whose rows are about to be released; returns the account. The budget cannot come back now.

        Rows that overlap with those of another account are refused, because they are paid for there. So are rows that
        were read before in another period: they would be paid for once and released twice.
        """
        secret = bytes.fromhex(self._chain.fingerprint("secret", b"sketch"))
        with self._chain.writing():
            accounts = self.accounts()
            own = accounts[reservation.account]
            spend = own.spends.get(reservation.number)
            for account in accounts.values():
                for known in account.spends.values():
                    # Where periods of one account overlap, both are paid for already.
                    paid = account is own and (not spend or not spend.period or spend.period.overlaps(known.period))
                    if paid or known.sketch is None or not sketch.overlaps(open_sketch(known.sketch, secret)):
                        continue
                    why = f"already have an account, as {account.data_set!r}: a new name"
                    if account is own:
                        why = f"were released before, in the period {known.period}: another date"
                    raise OverspendError(f"these rows {why} gives no new budget")
            note = {"sketch": seal_sketch(sketch, secret)}
            self._append(accounts, "read", own.fingerprint, refers=reservation.number, note=note)
            return own

    def void(self, reservation: Entry) -> Entry:
        """Give a reservation back, because the log could not be read: nothing was released."""
        return self._continue(reservation, "void")

    def commit(self, reservation: Entry, released: dict[str, str]) -> Entry:
        """Record what was released for a reservation, by names and hashes."""
        return self._continue(reservation, "commit", released)

    def public_keys(self) -> list[PublicKey]:
        """Every key that releases were signed with, the present one last."""
        return _keys(self.state()[0])

    def signing_key(self) -> SigningKey:
        """The present key; the first one is made when it is first asked for."""
        with self._chain.writing():
            if not _keys(self.state()[0]):
                self._new_key("the first key")
        return self._present_key()

    def rotate_key(self, reason: str) -> PublicKey:
        """Replace the signing key, by an entry that gives the reason. Earlier signatures stay good."""
        if not reason.strip():
            raise ValueError("reason must say why the key changes")
        with self._chain.writing():
            self.state()
            self._new_key(reason)
        return self._present_key().public

    def _new_key(self, reason: str) -> None:
        """Write the key under another name, and name it in the chain. `_present_key` gives it its own name."""
        made = SigningKey.make(self._new_signing_path)
        self._append({}, "key", "", note={"public": made.public.text(), "reason": reason})

    def _present_key(self) -> SigningKey:
        """The key that the last entry names. A process that was killed may have left it under its first name."""
        with self._chain.writing():
            named = _keys(self.state()[0])[-1]
            made = SigningKey.load(self._new_signing_path)
            if made is not None and made.public == named:
                made.path.rename(self.signing_path)
                with suppress(OSError):
                    onto_disk(self.signing_path.parent)
            key = SigningKey.load(self.signing_path)
        if key is None or key.public != named:
            raise ValueError(
                f"{self.signing_path} is missing, or is not the key that the ledger names: restore it from a backup, "
                "or make a new one with 'poolrl ledger rotate-key'"
            )
        return key

    def _continue(self, reservation: Entry, kind: str, note: Any = None) -> Entry:
        with self._chain.writing():
            return self._append(self.accounts(), kind, reservation.account, refers=reservation.number, note=note)

    def _append(self, accounts: dict[str, Account], kind: str, account: str, **facts: Any) -> Entry:
        entry = self._chain.append(kind, account, **facts)
        # An entry that breaks a rule raises here, and the transaction is rolled back.
        apply(entry, accounts)
        return entry


def _known(accounts: dict[str, Account], data_set: str) -> Account:
    if (account := _find(accounts, data_set)) is None:
        raise ValueError(f"the ledger has no account {data_set!r}: the first fit opens it with the file's budget")
    return account


def _find(accounts: dict[str, Account], data_set: str) -> Account | None:
    """By its name, whichever fingerprint an earlier version has made of it: one name must not have two budgets."""
    name = normal_name(data_set)
    return next((account for account in accounts.values() if normal_name(account.data_set) == name), None)


def _keys(entries: list[Entry]) -> list[PublicKey]:
    return [PublicKey.from_text(entry.note["public"]) for entry in entries if entry.kind == "key"]
