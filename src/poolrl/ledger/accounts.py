"""Accounts: the sums of a ledger's entries, and the rules that every entry must keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

ENTRY_KINDS = ("open", "budget", "reserve", "read", "void", "commit")


class OverspendError(ValueError):
    """The budget does not allow a spend."""


@dataclass(frozen=True)
class Entry:
    """One line of the ledger; `refers` is the number of the reservation that it continues."""

    number: int
    kind: str
    time: str
    account: str
    rho: Fraction | None
    refers: int | None
    note: dict[str, Any]
    seal: str

    def content(self) -> list[Any]:
        """What the seal covers, ready for JSON."""
        rho = None if self.rho is None else str(self.rho)
        return [self.number, self.kind, self.time, self.account, rho, self.refers, self.note]


@dataclass
class Account:
    """A data set's budget and its spends: reservation number → (ρ, stage)."""

    fingerprint: str
    data_set: str
    budget: Fraction
    spends: dict[int, tuple[Fraction, str]] = field(default_factory=dict)
    contents: set[str] = field(default_factory=set)

    @property
    def spent(self) -> Fraction:
        """Everything that was reserved and not given back, committed or not."""
        return sum((rho for rho, stage in self.spends.values() if stage != "void"), Fraction(0))

    @property
    def left(self) -> Fraction:
        """What may still be spent; zero if the owner lowered the budget below what is spent."""
        return max(Fraction(0), self.budget - self.spent)

    def require(self, reservation: Entry, stage: str) -> None:
        """Refuse to continue a spend that is not at this stage."""
        found = self.spends.get(reservation.number, (None, "unknown"))[1]
        if found != stage:
            raise ValueError(f"entry {reservation.number} of the ledger is {found}, not {stage}")


# Kind of entry → the stage of its spend before and after it.
STAGES = {"read": ("reserved", "read"), "void": ("reserved", "void"), "commit": ("read", "committed")}


def replay(entries: Iterable[Entry]) -> dict[str, Account]:
    """The accounts after all entries, by fingerprint; refuses the first entry that breaks a rule."""
    accounts: dict[str, Account] = {}
    for entry in entries:
        apply(entry, accounts)
    return accounts


def apply(entry: Entry, accounts: dict[str, Account]) -> None:
    """Add one entry to the accounts. An entry that breaks a rule is refused, and changes nothing."""
    where = f"entry {entry.number}"
    if entry.kind not in ENTRY_KINDS:
        raise ValueError(f"{where} has the unknown kind {entry.kind!r}")
    account = accounts.get(entry.account)
    if (entry.kind == "open") != (account is None):
        raise ValueError(f"{where} opens an account twice, or belongs to no account")
    if account is not None and entry.kind in STAGES:
        before, after = STAGES[entry.kind]
        rho, stage = account.spends.get(entry.refers or 0, (Fraction(0), "unknown"))
        if stage != before:
            raise ValueError(f"{where} continues a spend that is {stage}, not {before}")
        account.contents.update(entry.note["contents"] if entry.kind == "read" else ())
        account.spends[entry.refers or 0] = (rho, after)
        return
    if entry.rho is None or entry.rho <= 0:
        raise ValueError(f"{where} has no positive rho")
    if account is None:
        accounts[entry.account] = Account(entry.account, str(entry.note["data_set"]), entry.rho)
    elif entry.kind == "budget":
        account.budget = entry.rho
    elif entry.rho > account.left:
        raise ValueError(f"{where} spends more than the account holds")
    else:
        account.spends[entry.number] = (entry.rho, "reserved")
