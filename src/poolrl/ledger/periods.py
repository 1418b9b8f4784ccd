"""Periods of an account: releases that read different weeks cost one week only once.

A release may read the trajectories of one period alone, by a public column. A trajectory lies at one place of that
column, and neighbours keep their places. So it is in those releases only whose periods hold its place. If its scale has
memory, m later trajectories change with it, wherever they lie. With v its place, and e the place of the m others, it
loses at most

    max over v   Σ over scales  max over e   Σ over releases r   ρ_r ((1[v in r] + m 1[e in r]) / (1 + m))²

because each release pays for 1 + m trajectories (docs/privacy.md, lemma 20). Disjoint periods of one scale cost the
largest of their ρ, with or without memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass, fields
from datetime import date
from fractions import Fraction
from itertools import accumulate
from typing import Any, Self

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

    def to_note(self) -> dict[str, Any]:
        """For an entry of the ledger."""
        return asdict(self) | {"scale": list(self.scale)}

    @classmethod
    def from_note(cls, note: Any) -> Self:
        """The inverse of `to_note`; refuses what it has not written."""
        if not isinstance(note, dict) or set(note) != {each.name for each in fields(cls)}:
            raise ValueError("an entry does not say which period it reads")
        if not isinstance(note["column"], str) or not isinstance(note["scale"], list):
            raise ValueError("an entry does not say which period it reads")
        return cls(**note | {"scale": tuple(map(str, note["scale"]))})


@dataclass(frozen=True)
class Portion:
    """What one release took: ρ, of which period (None: of everything), with which memory m of its scale."""

    rho: Fraction
    period: Period | None
    memory: int = 0


def lost_by_one(portions: Iterable[Portion]) -> Fraction:
    """What one trajectory has lost at most to all these releases, each of which protects single trajectories."""
    total, by_axis = Fraction(0), dict[Hashable, list[Portion]]()
    for each in portions:
        if each.period is None:
            total += each.rho
        else:
            by_axis.setdefault(each.period.axis, []).append(each)
    # A trajectory's places in two columns need not have to do with each other.
    return total + sum((_lost_on_one_axis(found) for found in by_axis.values()), Fraction(0))


def _lost_on_one_axis(portions: list[Portion]) -> Fraction:
    """The maximum above, by sums over sorted places.

        Σ_r ρ_r (1[v in r] + m 1[e in r])²  =  R(v) + m² R(e) + 2m R(v, e)

    R sums ρ over the releases that hold all of it. Where a period begins, all periods are in force that hold any place
    after it and before the next beginning. So no other place need be tried.
    """
    spans = [(each, each.period) for each in portions if each.period is not None]
    places = sorted({period.first for _, period in spans})
    scales: dict[tuple[int, tuple[str, ...]], list[_Span]] = {}
    for each, period in spans:
        scale = each.memory, period.scale if each.memory else ()
        start, end = (bisect_left(places, place) for place in (period.first, period.before))
        scales.setdefault(scale, []).append((each.rho, start, end))
    lost = [Fraction(0)] * (len(places) + 1)  # the last place is in no period
    for (memory, _), found in scales.items():
        held = _held_at(found, len(lost))
        furthest = memory**2 * max(held)
        for v, own in enumerate(held):
            both = []
            if memory:
                with_v = _held_at([span for span in found if span[1] <= v < span[2]], len(lost))
                both = [memory**2 * other + 2 * memory * shared for other, shared in zip(held, with_v, strict=True)]
            lost[v] += (own + max([furthest, *both])) / (1 + memory) ** 2
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
