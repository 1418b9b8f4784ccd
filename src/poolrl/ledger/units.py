"""Units of an account: whom each release protects, and what a release costs other kinds of units.

Budgets add up for one kind of unit only. A release that protects one week with ρ says less about a shop of k weeks:
k weeks replaced one after another cost k² ρ (group privacy, Bun and Steinke 2016, Proposition 1.9). So every spend says
whom it protects, and sums convert it.

    released for        counted for      costs
    a unit              the same         ρ
    a trajectory        its unit         k² ρ, where every trajectory belongs to one unit, which owns at most k
    a unit              a trajectory     4 ρ, under the same declaration: it may leave one unit and join another
    anything else                        not known: refused
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from typing import Any, Self

REPLACE_ONE = "replace one"


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
    adjacency: str = REPLACE_ONE

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self.column or self.trajectory or "unit that is not recorded"

    def to_note(self) -> dict[str, Any]:
        """For an entry of the ledger."""
        return asdict(self)

    @classmethod
    def from_note(cls, note: Any) -> Self:
        """The inverse of `to_note`; refuses what it has not written."""
        kinds = {each.name: type(getattr(UNRECORDED, each.name)) for each in fields(cls)}
        kinds |= {"column": str, "owns_at_most": int}
        if not isinstance(note, dict) or set(note) != set(kinds):
            raise ValueError("an entry does not say whom it protects")
        for name, kind in kinds.items():
            optional = name in ("column", "owns_at_most") and note[name] is None
            if not optional and type(note[name]) is not kind:
                raise ValueError("an entry does not say whom it protects")
        return cls(**note)

    def same_kind(self, other: ProtectedUnit) -> bool:
        """Whether budgets for both add up as they are."""
        return self._kind() == other._kind()

    def _kind(self) -> tuple[object, ...]:
        # How much of a unit is used (max_per_unit, scale_memory) is paid for in noise. It does not change the promise.
        return self.column or (self.trajectory,), self.labels_kept, self.adjacency


# Entries of poolrl 0.7 and before do not say whom they protect.
UNRECORDED = ProtectedUnit(trajectory="")


@dataclass(frozen=True)
class Spend:
    """What one reservation took: ρ for a unit, and whether it was given back (stage "void")."""

    rho: Fraction
    stage: str
    unit: ProtectedUnit = UNRECORDED


class UnitsError(ValueError):
    """Two releases protect units between which no conversion is known."""


def factor(paid_for: ProtectedUnit, counted_for: ProtectedUnit) -> int | None:
    """What one release costs another kind of unit, as a multiple of its ρ; None where it is not known."""
    if paid_for._kind() == counted_for._kind():
        return 1
    if paid_for.adjacency != counted_for.adjacency or paid_for.adjacency != REPLACE_ONE:
        return None
    if paid_for.labels_kept and not counted_for.labels_kept:
        return None  # its neighbours kept their labels, and others need not
    if replace(paid_for, labels_kept=counted_for.labels_kept)._kind() == counted_for._kind():
        return 1  # it protects more than is asked for: labels that may change
    owner = paid_for if paid_for.column else counted_for
    nested = owner.owns_at_most is not None and paid_for.trajectory == counted_for.trajectory != ""
    if not nested or (paid_for.column is not None and counted_for.column is not None):
        return None
    return 4 if owner is paid_for else int(owner.owns_at_most or 0) ** 2


def totals(spends: Iterable[Spend]) -> dict[ProtectedUnit, Fraction]:
    """What each kind of unit among these spends has lost to all of them; refuses what cannot be converted."""
    found = [spend for spend in spends if spend.stage != "void"]
    units = _merged(spend.unit for spend in found)
    sums = {}
    for unit in units.values():
        sums[unit] = Fraction(0)
        for spend in found:
            times = factor(units[spend.unit._kind()], unit)
            if times is None:
                raise UnitsError(_unknown(spend.unit, unit))
            sums[unit] += times * spend.rho
    return sums


def spent_by(unit: ProtectedUnit, spends: Iterable[Spend]) -> Fraction:
    """What one kind of unit has lost to all spends."""
    with_it = [*spends, Spend(Fraction(0), "reserved", unit)]
    return next(total for each, total in totals(with_it).items() if each._kind() == unit._kind())


def _merged(units: Iterable[ProtectedUnit]) -> dict[tuple[object, ...], ProtectedUnit]:
    """One unit of each kind, with the largest number of trajectories that was declared for it."""
    found: dict[tuple[object, ...], ProtectedUnit] = {}
    for unit in units:
        known = found.setdefault(unit._kind(), unit)
        most = max((each.owns_at_most or 0 for each in (known, unit)), default=0)
        found[unit._kind()] = replace(known, owns_at_most=most or None)
    return found


def _unknown(paid_for: ProtectedUnit, counted_for: ProtectedUnit) -> str:
    if UNRECORDED in (paid_for, counted_for):
        return (
            "it has entries of an earlier version, which do not say whom they protect; "
            "'poolrl ledger unit CERTIFICATE' adds it from a release's certificate"
        )
    known = f"what releases for one {paid_for.name} cost one {counted_for.name} is not known"
    if paid_for.trajectory == counted_for.trajectory and None in (paid_for.column, counted_for.column):
        return f"{known}: declare owns_at_most, how many trajectories one {(paid_for.column or counted_for.name)} owns"
    return f"{known}: keep to the unit of the first release"
