"""What a log is: the protocol that the door uses, and the list of a table's columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Protocol

from poolrl.checks import IntArray, whole
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
    def ids_public(self) -> bool:
        """Whether neighbours keep the ids of their trajectories, so that it is public which trajectories there are."""

    @property
    def has_scale(self) -> bool:
        """Whether amounts are divided by a scale."""

    @property
    def scale_memory(self) -> int:
        """m, how many other trajectories' scales may change when one trajectory is replaced."""

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the log's labels."""

    @property
    def step_labels(self) -> tuple[str, ...]:
        """Those labels that may change from step to step, by declaration."""

    @property
    def labels_public(self) -> bool:
        """Whether neighbours keep their labels, so that it is public which rows have which labels."""

    @property
    def has_coordinates(self) -> bool:
        """Whether each row shows one coordinate only."""

    @property
    def is_full(self) -> bool:
        """Whether public facts promise a possible row in every slot and step."""

    def check(self, problem: Problem) -> None:
        """Refuse a log that does not fit the problem's public facts."""

    def outcome_leaves(self, problem: OutcomeProblem, *, bins: int) -> IntArray:
        """How many rows fall into each cell of `outcome_cells`, (*labels, H, k, kinds · bins)."""

    def joint_leaves(self, problem: OutcomeProblem, *, bands: int) -> IntArray:
        """How many rows fall into each cell of `joint_cells`, (*labels, H, k, bands · 2 · bands)."""

    def left_leaves(self, problem: OutcomeProblem, *, parts: int) -> IntArray:
        """How many rows fall into each cell of `left_cells`, (*labels, H, k, parts + 1)."""

    def crowd_tallies(self, problem: OutcomeProblem, *, edges: IntArray) -> list[Tally]:
        """For each step, how many trajectories show j sides of their edges, i of them beyond: cell j · (k + 1) + i.

        `edges` are (*labels, H, k), among `TOGETHER_BANDS`.
        """

    def label_totals(self, problem: Problem) -> IntArray:
        """How many slots have each combination of labels at each step, (*labels, H)."""

    def visit_tallies(self, partition: Partition) -> list[Tally]:
        """For each step, how many rows led from node b to node s′, cell b · S + s′."""


@dataclass(frozen=True)
class Columns:
    """Which column of a long table holds what: the keywords of `Table` and of `Trajectories.from_table`.

    `trajectory` and `step` say where a row belongs, `unit` who is protected, `period` when a trajectory begins.
    `states`, `actions`, `next_states` and `scale`, if there is one, name a column for each coordinate, in the order of
    the problem's. `labels` says which column holds which label; a list of names stands for columns of these names.

    `coordinate` is for a table with one row per (trajectory, step, coordinate), such as a product. It names the column
    that says which coordinate a row shows. `states`, `actions`, `next_states` and `scale` then name one column each.

    No column may be two things. There are four exceptions: a label may be the unit, the trajectory, the step or a
    scale; coordinates may share a scale; a trajectory may be its own unit; a period may be told by an id or a label.
    """

    trajectory: str
    step: str
    states: tuple[str, ...]
    actions: tuple[str, ...]
    next_states: tuple[str, ...]
    unit: str | None = None
    scale: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    coordinate: str | None = None
    period: str | None = None

    def __post_init__(self) -> None:
        for name in ("states", "actions", "next_states", "scale", "labels"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise ValueError(f"{name} must be a list of column names, got the text {given!r}")
            object.__setattr__(self, name, _named(given) if name == "labels" else tuple(given))
        if self.coordinate is not None:
            for name in ("states", "actions", "next_states", "scale"):
                if len(getattr(self, name)) != 1 and not (name == "scale" and not self.scale):
                    raise ValueError(f"with coordinate, {name} must name one column: a row shows one coordinate")
        uses = self._uses()
        for place, (use, column) in enumerate(uses):
            for other, same in uses[:place]:
                if column == same and not _may_share(other, use):
                    raise ValueError(f"column {column!r} cannot be both {other} and {use}: name another column for one")

    def _uses(self) -> list[tuple[str, str]]:
        """What each column is named for."""
        ids = [("trajectory", self.trajectory), ("step", self.step)]
        unit = [] if self.unit is None else [("unit", self.unit)]
        coordinate = [] if self.coordinate is None else [("coordinate", self.coordinate)]
        parts = ("states", "actions", "next_states", "scale")
        numbers = [(f"{part}[{i}]", column) for part in parts for i, column in enumerate(getattr(self, part))]
        labels = [(f"label {name!r}", column) for name, column in self.labels.items()]
        period = [] if self.period is None else [("period", self.period)]
        return [*ids, *unit, *coordinate, *numbers, *labels, *period]

    def names(self) -> list[str]:
        """Every column that is read."""
        ids = [name for name in (self.unit, self.coordinate) if name is not None]
        numbers = [*self.states, *self.actions, *self.next_states, *self.scale]
        period = [] if self.period is None else [self.period]
        return [self.trajectory, self.step, *numbers, *ids, *self.labels.values(), *period]

    def as_they_are(self) -> set[str]:
        """Columns of ids, coordinates and labels, which may hold text and must not be read as numbers."""
        numbers = {self.step, *self.states, *self.actions, *self.next_states, *self.scale}
        ids = {name for name in (self.trajectory, self.unit, self.coordinate, self.period) if name is not None}
        return ids | ({*self.labels.values()} - numbers)


def _may_share(one: str, other: str) -> bool:
    """Whether one column may have two uses without one of them being a slip."""
    if other == "period":
        return one in ("trajectory", "unit") or one.startswith("label")
    if one.startswith("scale"):
        return other.startswith(("scale", "label"))
    if other.startswith("label"):
        return one in ("trajectory", "step", "unit")
    return (one, other) == ("trajectory", "unit")


def _named(labels: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    return dict(labels) if isinstance(labels, Mapping) else {name: name for name in labels}


def check_declarations(*, has_scale: bool, scale_memory: int, has_labels: bool, labels_public: bool) -> None:
    """Refuse declarations about a scale or labels that are not there."""
    whole(at_least=0, scale_memory=scale_memory)
    if scale_memory and not has_scale:
        raise ValueError("scale_memory needs scale: say what amounts are measured in")
    if labels_public and not has_labels:
        raise ValueError("labels_public needs labels")


def missing_column(name: str, names: Sequence[str], between: str = "commas") -> str:
    """The message about a missing column. It lists no names of the table, because they may be its first row."""
    near = get_close_matches(name, names, n=1, cutoff=0.8)
    hint = f"did you mean {near[0]!r}?" if near else f"is there a header line, with {between} between names?"
    return f"the table must have one column {name!r} ({hint})"
