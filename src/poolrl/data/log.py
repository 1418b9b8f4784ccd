"""What a log is: the protocol that the door uses, and the list of a table's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

from poolrl.checks import IntArray
from poolrl.geometry.partition import Partition
from poolrl.problems.problem import OutcomeProblem, Problem

# Cells, and how many rows fall into each. Cells without a row are left out.
Tally = tuple[IntArray, IntArray]


class Log(Protocol):
    """A sensitive log, in memory (`Trajectories`) or inside an engine (`Table`), as the door uses it."""

    @property
    def has_units(self) -> bool:
        """Whether a unit may own several trajectories."""

    @property
    def max_per_unit(self) -> int:
        """c, how many of a unit's trajectories count."""

    @property
    def slots(self) -> int:
        """units × max_per_unit. This is public, because neighbours replace one unit."""

    @property
    def is_full(self) -> bool:
        """Whether public facts promise a possible row in every slot and step."""

    def check(self, problem: Problem) -> None:
        """Refuse a log that does not fit the problem's public facts."""

    def outcome_leaves(self, problem: OutcomeProblem, *, bins: int) -> IntArray:
        """How many rows fall into each cell of `outcome_cells`, (H, k, kinds · bins)."""

    def visit_tallies(self, partition: Partition) -> list[Tally]:
        """For each step, how many rows led from node b to node s′, cell b · S + s′."""


@dataclass(frozen=True)
class Columns:
    """Which column of a long table holds what: the keywords of `Table` and of `Trajectories.from_table`.

    `trajectory` and `step` say where a row belongs, `unit` who is protected. The other three name a column for each
    coordinate, in the order of the problem's.
    """

    trajectory: str
    step: str
    states: tuple[str, ...]
    actions: tuple[str, ...]
    next_states: tuple[str, ...]
    unit: str | None = None

    def __post_init__(self) -> None:
        for name in ("states", "actions", "next_states"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise ValueError(f"{name} must be a list of column names, got the text {given!r}")
            object.__setattr__(self, name, tuple(given))

    def names(self) -> list[str]:
        """Every column that is read."""
        unit = [] if self.unit is None else [self.unit]
        return [self.trajectory, self.step, *self.states, *self.actions, *self.next_states, *unit]


def missing_column(name: str, names: Sequence[str]) -> str:
    """The message about a missing column. It lists no names of the table, because they may be its first row."""
    near = get_close_matches(name, names, n=1, cutoff=0.8)
    hint = f"did you mean {near[0]!r}?" if near else "is there a header line, with commas between names?"
    return f"the table must have one column {name!r} ({hint})"
