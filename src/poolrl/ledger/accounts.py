"""Accounts: the sums of a ledger's entries, and the rules that every entry must keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from poolrl.ledger.units import Period, ProtectedUnit, Spend, UnitsError, spent_by, totals

ENTRY_KINDS = ("open", "budget", "reserve", "read", "void", "commit", "key")


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
    """A data set's budget, its spends by the numbers of their reservations, and what is known of the rows it read.

    The budget bounds what any unit may lose, for every type of unit that a release of the account protects.
    """

    fingerprint: str
    data_set: str
    budget: Fraction
    spends: dict[int, Spend] = field(default_factory=dict)
    sketches: dict[int, str] = field(default_factory=dict)  # sealed, by the same numbers; see `overlap`

    @property
    def spent(self) -> Fraction:
        """The loss of the unit that lost most: everything that was reserved and not given back, committed or not."""
        return max(totals(self.spends.values()).values(), default=Fraction(0))

    @property
    def left(self) -> Fraction:
        """The rest of the budget; zero if the owner lowered the budget below what is spent."""
        return max(Fraction(0), self.budget - self.spent)

    def spent_by(self, unit: ProtectedUnit) -> Fraction:
        """The loss of one unit of this type in all; refuses a unit for which that is not known."""
        return spent_by(unit, self.spends.values())

    def other_units(self, unit: ProtectedUnit) -> list[str]:
        """The names of other types of units that releases of the account protect."""
        return sorted({each.name for each in totals(self.spends.values()) if not each.same_kind(unit)})

    def with_spend(self, rho: Fraction, unit: ProtectedUnit, period: Period | None = None) -> Fraction:
        """What would be spent after one more release, by the unit that loses most.

        Once a release has read a period, neighbours of the account keep their places in its column (lemma 20). So a
        release that promises more, to neighbours without a place or in another column, cannot be added to it.
        """
        read = [spend.period for spend in self.spends.values() if spend.period and spend.stage != "void"]
        if other := [each for each in read if period is None or period.axis != each.axis]:
            raise UnitsError(f"its releases read periods by {other[0].column}: declare [period] by the same column")
        return max(totals([*self.spends.values(), Spend(rho, "reserved", unit, period)]).values())

    def released_in(self, period: Period) -> list[Period | None]:
        """The periods of finished releases that may have read trajectories of this one; None stands for everything."""
        return [
            spend.period
            for spend in self.spends.values()
            if spend.stage == "committed" and period.overlaps(spend.period)
        ]


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
    if entry.kind == "key":
        if entry.account or entry.rho is not None or not isinstance(entry.note.get("public"), str):
            raise ValueError(f"{where} is not a signing key")
        return
    account = accounts.get(entry.account)
    if (entry.kind == "open") != (account is None):
        raise ValueError(f"{where} opens an account twice, or belongs to no account")
    if account is not None and entry.kind in STAGES:
        before, after = STAGES[entry.kind]
        spend = account.spends.get(entry.refers or 0)
        if spend is None or spend.stage != before:
            stage = "unknown" if spend is None else spend.stage
            raise ValueError(f"{where} continues a spend that is {stage}, not {before}")
        if "sketch" in entry.note:
            account.sketches[entry.refers or 0] = entry.note["sketch"]
        account.spends[entry.refers or 0] = replace(spend, stage=after)
    else:
        _spend(entry, account, accounts)


def _spend(entry: Entry, account: Account | None, accounts: dict[str, Account]) -> None:
    where = f"entry {entry.number}"
    if entry.rho is None or entry.rho <= 0:
        raise ValueError(f"{where} has no positive rho")
    if account is None:
        accounts[entry.account] = Account(entry.account, str(entry.note["data_set"]), entry.rho)
        return
    if entry.kind == "budget":
        account.budget = entry.rho
        return
    unit = ProtectedUnit.from_note(entry.note.get("unit"))
    period = Period.from_note(entry.note["period"]) if "period" in entry.note else None
    try:
        if account.with_spend(entry.rho, unit, period) > account.budget:
            raise ValueError(f"{where} spends more than the account holds")
    except UnitsError as error:
        raise ValueError(f"{where} cannot be added up: {error}") from None
    account.spends[entry.number] = Spend(entry.rho, "reserved", unit, period)
