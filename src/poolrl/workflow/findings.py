"""What `poolrl check` says: lines in counts and never in values, for the data holder's eyes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Standing = Literal["good", "note", "bad"]
# A column of which more cannot be read was declared wrongly. A log of which less is used is not worth its rho.
MOSTLY = 0.5


@dataclass(frozen=True)
class LogFinding:
    """One line: what was looked at, how it stands, and what was seen."""

    what: str
    stands: Standing
    seen: str


def many(number: int, word: str) -> str:
    """A number of things."""
    plural = word[:-1] + "ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else word + "s"
    return f"{number:,} {word if number == 1 else plural}"


def share_of(part: float, whole: float) -> str:
    """A share for people. What is not all is never 100%, and what is not nothing never 0%."""
    if not whole or part in (0, whole):
        return f"{part / whole if whole else 0:.0%}"
    return f"{min(max(part / whole, 0.001), 0.999):.1%}"
