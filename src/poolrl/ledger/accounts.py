"""Accounts: the sums of a ledger's entries, the rules that every entry keeps, and what one unit loses to all of them.

Units. Budgets add up for one type of unit only. So every spend says whom it protects, and sums convert it
(docs/privacy.md, lemma 17).

    released for        counted for      costs
    a unit              the same         ρ
    a trajectory        its unit         k² ρ, where every trajectory belongs to one unit, which owns at most k
    a unit              a trajectory     4 ρ, under the same declaration: it may leave one unit and join another
    anything else                        not known: refused

Periods. A trajectory is in those releases only whose periods hold its place v. If its scale has memory, m later
trajectories at a place e change with it. It loses at most (docs/privacy.md, lemma 20)

    max over v   Σ over scales  max over e   Σ over releases r   ρ_r ((1[v in r] + m 1[e in r]) / (1 + m))²
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from itertools import accumulate
from typing import Any, Self

from poolrl.privacy.guarantee import REPLACE_ANY

# A date, written like 2025-01-31, or a whole number.
When = str | int
# ρ of a release, the number of the first of the sorted places that it holds, and of the first after those.
_Span = tuple[Fraction, int, int]


@dataclass(frozen=True)
class Period:
    """Trajectories whose place in `column` is at least `first`, and before `before`.

    `scale` names the columns that amounts are multiples of. Equal names mean one scale: the data holder declares it.
    """

    column: str
    first: When
    before: When
    scale: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ends = self.first, self.before
        dates = all(type(end) is str and _is_date(end) for end in ends)
        if not self.column or not (dates or all(type(end) is int for end in ends)):
            raise ValueError("a period needs a column, and two dates like 2025-01-31 or two whole numbers")
        if not self.first < self.before:  # type: ignore[operator]
            raise ValueError(f"a period must begin before it ends, got first = {self.first}, before = {self.before}")

    def __str__(self) -> str:
        return f"{self.column} from {self.first} to before {self.before}"

    def holds(self, place: When | None) -> bool:
        """Whether a trajectory at this place is in it; None is a place in no period."""
        return place is not None and self.first <= place < self.before  # type: ignore[operator]

    def overlaps(self, other: Period | None) -> bool:
        """Whether one trajectory may be in both. Periods of other columns cannot be compared, so they overlap."""
        if other is None or self.axis != other.axis:
            return True
        return self.holds(other.first) or other.holds(self.first)

    @property
    def axis(self) -> Hashable:
        """Periods can be compared on one axis only."""
        return self.column, type(self.first)

    @classmethod
    def from_note(cls, note: dict[str, Any]) -> Self:
        """From a sealed entry, where it stands as a dictionary."""
        return cls(**note | {"scale": tuple(note["scale"])})


@dataclass(frozen=True)
class ProtectedUnit:
    """Whom a release protects, when any other replaces it.

    That is all that one value of `column` owns, or one value of `trajectory` where there is no such column. Equal names
    of columns mean equal units: the data holder declares it.
    """

    trajectory: str
    column: str | None = None
    max_per_unit: int = 1
    owns_at_most: int | None = None  # k: every trajectory belongs to one unit, and no unit owns more; a declaration
    scale_memory: int = 0
    labels_kept: bool = False  # neighbours keep their labels, because these are public
    adjacency: str = REPLACE_ANY

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.column or self.trajectory or "unit that is not recorded"

    @property
    def kind(self) -> tuple[object, ...]:
        """Budgets for units of one kind add up as they are."""
        # Noise pays for all of a unit that is used (max_per_unit, scale_memory). That does not change the promise.
        return (self.column, None if self.column is not None else self.trajectory, self.labels_kept, self.adjacency)


@dataclass(frozen=True)
class Spend:
    """What one reservation took: ρ for a unit, and whether it was given back (stage "void").

    Without a `period` it read everything.
    """

    rho: Fraction
    stage: str
    unit: ProtectedUnit
    period: Period | None = None
    sketch: str | None = field(default=None, compare=False, repr=False)  # sealed, of the rows that it read


class UnitsError(ValueError):
    """Two releases protect units between which no conversion is known."""


# (column of units, column of trajectories) → k, as far as it was declared.
Owned = dict[tuple[str, str], int]


def factor(paid_for: ProtectedUnit, counted_for: ProtectedUnit, owned: Owned) -> int | None:
    """The cost of one release for another type of unit, as a multiple of its ρ; None where it is not known."""
    if paid_for.kind == counted_for.kind:
        return 1
    if paid_for.adjacency != counted_for.adjacency or paid_for.adjacency != REPLACE_ANY:
        return None
    if paid_for.labels_kept and not counted_for.labels_kept:
        return None  # its neighbours kept their labels, and others need not
    if replace(paid_for, labels_kept=counted_for.labels_kept).kind == counted_for.kind:
        return 1  # it protects more than is asked for: labels that may change
    if paid_for.column is None and counted_for.column is not None:
        most = owned.get((counted_for.column, paid_for.trajectory))
        return None if most is None else most**2
    if paid_for.column is not None and counted_for.column is None and not paid_for.labels_kept:
        # With public labels it is public which labels a unit's rows have, and a trajectory that moves changes that.
        return 4 if (paid_for.column, counted_for.trajectory) in owned else None
    return None


def totals(spends: Iterable[Spend]) -> dict[ProtectedUnit, Fraction]:
    """The loss of each type of unit among these spends to all of them; refuses spends that cannot be converted."""
    counted = [spend for spend in spends if spend.stage != "void"]
    owned: Owned = {}
    kinds: dict[tuple[object, ...], list[Spend]] = {}
    for spend in counted:
        unit = spend.unit
        if unit.column is not None and unit.owns_at_most is not None:
            place = unit.column, unit.trajectory
            owned[place] = max(unit.owns_at_most, owned.get(place, 0))
        kinds.setdefault(unit.kind, []).append(spend)
    sums = {alike[-1].unit: Fraction(0) for alike in kinds.values()}
    for unit in sums:
        for alike in kinds.values():
            times = factor(alike[-1].unit, unit, owned)
            if times is None:
                raise UnitsError(_unknown(alike[-1].unit, unit))
            sums[unit] += times * lost_by_one(alike)
    return sums


def _unknown(paid_for: ProtectedUnit, counted_for: ProtectedUnit) -> str:
    if paid_for.adjacency != counted_for.adjacency:
        compared = f"{paid_for.adjacency} {paid_for.name}"
        return f"its releases compare other neighbours ({compared}): keep to weeks_public as it was"
    known = f"it is not known what releases for one {paid_for.name} cost one {counted_for.name}"
    if paid_for.trajectory == counted_for.trajectory and None in (paid_for.column, counted_for.column):
        return f"{known}: declare owns_at_most, how many trajectories one {(paid_for.column or counted_for.name)} owns"
    return f"{known}: keep to the unit of the first release"


def lost_by_one(spends: list[Spend]) -> Fraction:
    """The largest loss of one unit to all these releases, each of which protects units of its type.

    A trajectory is in one of several periods, but a unit may own trajectories in all of them.
    """
    total, axes = Fraction(0), dict[Hashable, list[tuple[Spend, Period]]]()
    for spend in spends:
        if spend.period is None or spend.unit.column is not None:
            total += spend.rho
        else:
            axes.setdefault(spend.period.axis, []).append((spend, spend.period))
    # A trajectory's places in two columns need not have to do with each other.
    return total + sum(map(_lost_on_one_axis, axes.values()), Fraction(0))


def _lost_on_one_axis(spends: list[tuple[Spend, Period]]) -> Fraction:
    """The maximum above, by sums over sorted places.

        Σ_r ρ_r (1[v in r] + m 1[e in r])²  =  R(v) + m² R(e) + 2m R(v, e)

    R sums ρ over the releases that hold all of it. Where a period begins, all periods are in force that hold any place
    after it and before the next beginning. So no other place need be tried.
    """
    places = sorted({period.first for _, period in spends})
    scales: dict[tuple[int, tuple[str, ...]], list[_Span]] = {}
    for spend, period in spends:
        memory = spend.unit.scale_memory
        start, end = (bisect_left(places, place) for place in (period.first, period.before))
        scales.setdefault((memory, period.scale if memory else ()), []).append((spend.rho, start, end))
    lost = [Fraction(0)] * (len(places) + 1)  # the last place is in no period
    for (memory, _), spans in scales.items():
        held = _held_at(spans, len(lost))
        for v, own in enumerate(held):
            others = [Fraction(0)]
            if memory:
                with_v = _held_at([span for span in spans if span[1] <= v < span[2]], len(lost))
                others = [memory**2 * other + 2 * memory * both for other, both in zip(held, with_v, strict=True)]
            lost[v] += (own + max(others)) / (1 + memory) ** 2
    return max(lost)


def _held_at(spans: Iterable[_Span], places: int) -> list[Fraction]:
    """The sum of ρ over all spans that hold a place, for every place."""
    steps = [Fraction(0)] * (places + 1)
    for rho, start, end in spans:
        steps[start] += rho
        steps[end] -= rho
    return list(accumulate(steps))[:places]


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


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


def normal_name(data_set: str) -> str:
    """A name without what people write in several ways: case, spaces, signs, and forms of the same letter."""
    drawn = "".join(each for each in data_set if unicodedata.category(each) != "Cf")
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", drawn).casefold())
    return " ".join(re.findall(r"[^\W_]+", re.sub("['’‘`´ʼ\"“”]", "", folded)))


@dataclass
class Account:
    """A data set's budget, and its spends by the numbers of their reservations.

    The budget bounds what any unit may lose, for every type of unit that a release of the account protects.
    """

    fingerprint: str
    data_set: str
    budget: Fraction
    spends: dict[int, Spend] = field(default_factory=dict)

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
        with_it = [*self.spends.values(), Spend(Fraction(0), "reserved", unit)]
        return next(total for each, total in totals(with_it).items() if each.kind == unit.kind)

    def other_units(self, unit: ProtectedUnit) -> list[str]:
        """The names of other types of units that releases of the account protect."""
        return sorted({each.name for each in totals(self.spends.values()) if each.kind != unit.kind})

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
        finished = (spend for spend in self.spends.values() if spend.stage == "committed")
        return [spend.period for spend in finished if period.overlaps(spend.period)]


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
    where, account = f"entry {entry.number}", accounts.get(entry.account)
    if entry.kind == "key":
        if entry.account or entry.rho is not None or not isinstance(entry.note.get("public"), str):
            raise ValueError(f"{where} is not a signing key")
    elif (entry.kind == "open") != (account is None):
        raise ValueError(f"{where} opens an account twice, or belongs to no account")
    elif account is not None and entry.kind in STAGES:
        before, after = STAGES[entry.kind]
        spend = account.spends.get(entry.refers or 0)
        if spend is None or spend.stage != before:
            stage = "unknown" if spend is None else spend.stage
            raise ValueError(f"{where} continues entry {entry.refers}, which is {stage}, not {before}")
        account.spends[entry.refers or 0] = replace(spend, stage=after, sketch=entry.note.get("sketch", spend.sketch))
    elif entry.rho is None or entry.rho <= 0:
        raise ValueError(f"{where} has no positive rho")
    elif account is None:
        accounts[entry.account] = Account(entry.account, str(entry.note["data_set"]), entry.rho)
    elif entry.kind == "budget":
        account.budget = entry.rho
    elif entry.kind == "reserve":
        account.spends[entry.number] = _reserved(entry, entry.rho, account)
    else:
        raise ValueError(f"{where} has the unknown kind {entry.kind!r}")


def _reserved(entry: Entry, rho: Fraction, account: Account) -> Spend:
    """The spend that an entry reserves; refused where the budget does not allow it."""
    try:
        unit = ProtectedUnit(**entry.note["unit"])
        period = Period.from_note(entry.note["period"]) if "period" in entry.note else None
    except (LookupError, TypeError):  # the seal of an earlier version's entry holds as well
        raise ValueError(f"entry {entry.number} does not say whom it protects, or which period it reads") from None
    try:
        spent = account.with_spend(rho, unit, period)
    except UnitsError as error:
        raise UnitsError(f"the account {account.data_set!r} cannot pay for this release: {error}") from None
    if spent > account.budget:
        left = f"only {float(account.left):g} of {float(account.budget):g} is left"
        if spent != account.spent + rho:
            left = f"one {unit.name} would then have lost {float(spent):g} of {float(account.budget):g}"
        asked = f"the budget of {account.data_set!r} does not allow rho = {float(rho):g}"
        raise OverspendError(f"{asked}: {left} (entry {entry.number})")
    return Spend(rho, "reserved", unit, period)
