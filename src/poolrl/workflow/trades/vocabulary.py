"""What people of a world say: the words of certificates, leaflets and pages, and what a table of theirs looks like.

A trade has its own, and a user's own problem may declare some. So a page about auctions speaks of reserves, without
asking which problem it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from poolrl.certificate.certificate import CertifiedWords


@dataclass(frozen=True)
class TableColumn:
    """A column that people have in their tables, and why it is needed."""

    name: str
    why: str
    reads: Literal["number", "flag"] = "number"  # a flag is a word that means yes or no
    otherwise: str = ""  # SQL in its place, where a problem needs no such column and none is named
    spared: Callable[[Any], bool] = lambda problem: False  # of a problem: whether it needs no such column


@dataclass(frozen=True)
class Words:
    """The words of a problem, all in lower case, as they stand in the middle of a sentence."""

    decision: str = "action"
    decisions: str = "actions"
    past: str = "actions"  # what past decisions are called
    scope: str = "each number of {names}"  # what decisions are for: {names} of the state or of products, their {count}
    outcome: str = "outcomes"
    outcomes: tuple[str, ...] = ()  # a name for each of them, where there are several
    states: tuple[str, ...] = ("state",)  # a name for each coordinate of the state
    trajectory: str = "trajectory"
    alone: str = ""  # what a trajectory of one step is called
    step: str = "step"
    logged: str = "states and actions"  # what the log holds
    earned: str = "reward"  # what a trajectory is judged by; more is better
    estimate: str = "estimate of outcomes that were cut off"  # what replaces a plain count
    advice: str = "Do this in each state."  # what to do with a decision
    costs: Mapping[str, str] = field(default_factory=dict)  # that may change: how a sentence about their size begins
    # Why each argument of the constructor is asked for.
    keys: Mapping[str, str] = field(default_factory=dict)
    # The columns of a table, and how states, actions and next states follow from it, as SQL in which {name} is a
    # column; and so what a row shows besides, by its name. Without columns, a table has these parts themselves.
    columns: tuple[TableColumn, ...] = ()
    rows: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] = ((), (), ())
    shown: Mapping[str, str] = field(default_factory=dict)

    def certified(self, names: list[str], *, censored: bool) -> CertifiedWords:
        """Those that papers repeat; `names` are those of products, or of the numbers of a state."""
        # Here, because `decide` needs words and no papers.
        from poolrl.certificate.certificate import CertifiedWords

        plain = {name: getattr(self, name) for name in ("decisions", "past", "outcome", "trajectory", "logged")}
        scope = self.scope.format(count=len(names), names=" and ".join(names))
        return CertifiedWords(**plain, scope=scope, estimate=self.estimate if censored else "")
