"""A log: its public facts, the counts that the door asks for, and the list of a table's columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import combinations

from poolrl.checks import IntArray, whole
from poolrl.data.cells import CellFormula, outcome_cells
from poolrl.data.row_rules import PARTS, has_own_bounds
from poolrl.problems.problem import OutcomeProblem, Problem, SeparableProblem

Tally = tuple[IntArray, IntArray]  # cells, and how many rows fall into each. Cells without a row are left out
NUMBERS = (*PARTS, "scale")  # the fields of `Columns` that name columns of numbers
# Two uses that one column may have without one of them being a slip.
_MAY_SHARE = {
    *(("trajectory", "unit"), ("scale", "scale")),
    *((use, "label") for use in ("trajectory", "step", "unit", "scale")),
    *((use, "period") for use in ("trajectory", "unit", "label")),
}


@dataclass(frozen=True, kw_only=True)
class LogFacts:
    """Public declarations of a log, on which the noise and the counts depend."""

    has_units: bool  # whether a unit may own several trajectories
    max_per_unit: int  # c, how many of a unit's trajectories count
    ids_public: bool = False  # whether neighbours keep the ids of their trajectories: it is public which ones there are
    has_scale: bool  # whether amounts are divided by a scale
    scale_memory: int  # m, how many other trajectories' scales may change when one trajectory is replaced
    label_names: tuple[str, ...]
    step_labels: tuple[str, ...]  # those labels that may change from step to step
    labels_public: bool  # whether neighbours keep their labels: it is public which rows have which labels
    has_coordinates: bool = False  # whether each row shows one coordinate only
    refuses_rows: bool = False  # that are missing or impossible. A table leaves them out, and must not tell

    def __post_init__(self) -> None:
        """Refuse declarations about units, a scale or labels that are not there."""
        for name, least in (("max_per_unit", 1), ("scale_memory", 0)):
            whole(at_least=least, **{name: getattr(self, name)})
            object.__setattr__(self, name, int(getattr(self, name)))
        if self.scale_memory and not self.has_scale:
            raise ValueError("scale_memory needs scale: say what amounts are measured in")
        if self.labels_public and not self.label_names:
            raise ValueError("labels_public needs labels")
        if not set(self.step_labels) <= set(self.label_names):
            raise ValueError(f"step_labels must be among the labels ({', '.join(self.label_names) or 'none'})")
        if self.max_per_unit != 1 and not self.has_units:
            raise ValueError("max_per_unit needs unit: say which trajectories belong to whom")


class Log(ABC):
    """A sensitive log, in memory (`Trajectories`) or inside an engine (`Table`), as the door uses it."""

    def __init__(self, facts: LogFacts) -> None:
        self._facts = facts

    @property
    def facts(self) -> LogFacts:
        """What was declared. It cannot be set afterwards."""
        return self._facts

    @property
    @abstractmethod
    def units(self) -> int:
        """How many units the log holds. This is public, because neighbours replace one unit."""

    @property
    def slots(self) -> int:
        """units × max_per_unit. Public, unlike the number of trajectories: a new unit may own fewer or more."""
        return self.units * self.facts.max_per_unit

    @property
    def is_full(self) -> bool:
        """Whether public facts promise a possible row in every slot and step. No scale or label does."""
        facts = self.facts
        return facts.refuses_rows and facts.max_per_unit == 1 and not (facts.has_scale or facts.label_names)

    @abstractmethod
    def check(self, problem: Problem) -> None:
        """Refuse a log that does not fit the problem's public facts."""

    @abstractmethod
    def outcome_leaves(self, problem: OutcomeProblem, *, bins: int, formula: CellFormula = outcome_cells) -> IntArray:
        """How many rows fall into each cell of a formula, (*labels, H, k, `cell_count`)."""

    @abstractmethod
    def crowd_tallies(self, problem: OutcomeProblem, *, edges: IntArray) -> list[Tally]:
        """For each step, how many trajectories show j sides of their edges, i of them beyond: cell j · (k + 1) + i."""

    @abstractmethod
    def label_totals(self, problem: Problem) -> IntArray:
        """How many slots have each combination of labels at each step, (*labels, H)."""


def is_relative(log: Log, problem: Problem) -> bool:
    """Whether rows are divided before they are counted."""
    return log.facts.has_scale or has_own_bounds(problem)


def check_relative(log: Log, problem: Problem) -> None:
    """Refuse, by public facts alone, a problem whose rows cannot be divided or have other labels than the log."""
    problem.labels.require(log.facts.label_names)
    if is_relative(log, problem) and not problem.scale_dim:
        raise ValueError(
            "a scale needs a problem whose coordinates have a unit each (SeparableProblem), or whose state is a count; "
            f"{type(problem).__name__} is another kind"
        )
    if log.facts.has_coordinates and not isinstance(problem, SeparableProblem):
        raise ValueError(
            "a table with one row per coordinate needs a problem whose coordinates are counted one by one "
            f"(SeparableProblem); {type(problem).__name__} is another kind"
        )


def refuse_visits(log: Log, problem: Problem) -> None:
    """Refuse to count visits of a log with labels or a scale, for which nodes have no place."""
    if len(problem.arrival_low) != problem.state_dim:
        raise ValueError("rows that show more than the next state need outcome counts: use counts=Outcomes()")
    if log.facts.has_scale or log.facts.label_names or problem.labels:
        raise ValueError("labels and a scale need outcome counts: use counts=Outcomes(), or leave them out")


@dataclass(frozen=True)
class Columns:
    """Which column of a long table holds what: the keywords of `Table` and of `Trajectories.from_table`.

    `trajectory` and `step` say where a row belongs, `unit` who is protected, `period` when a trajectory begins.
    `states`, `actions`, `next_states` and `scale`, if there is one, name a column for each coordinate, in the order of
    the problem's. `labels` says which column holds which label; a list of names stands for columns of these names.

    `coordinate` names the column that says which coordinate, such as a product, a row shows, if it shows one only.
    `states`, `actions`, `next_states` and `scale` then name one column each.

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
        for name in (*NUMBERS, "labels"):
            names = getattr(self, name)
            if isinstance(names, str):
                raise ValueError(f"{name} must be a list of column names, got the text {names!r}")
            object.__setattr__(self, name, dict(names) if isinstance(names, Mapping) else tuple(names))
        if not isinstance(self.labels, Mapping):
            object.__setattr__(self, "labels", {name: name for name in self.labels})
        if self.coordinate is not None:
            for name in NUMBERS:
                if len(getattr(self, name)) != 1 and not (name == "scale" and not self.scale):
                    raise ValueError(f"with coordinate, {name} must name one column: a row shows one coordinate")
        for (use, column), (other, same) in combinations(self._uses(), 2):
            if column == same and (_kind_of(use), _kind_of(other)) not in _MAY_SHARE:
                raise ValueError(f"column {column!r} cannot be both {use} and {other}: name another column for one")

    def _uses(self) -> list[tuple[str, str]]:
        """The use of each column."""
        numbers = [(f"{part}[{i}]", column) for part in NUMBERS for i, column in enumerate(getattr(self, part))]
        labels = [(f"label {name!r}", column) for name, column in self.labels.items()]
        uses = [("trajectory", self.trajectory), ("step", self.step), *numbers, ("unit", self.unit)]
        uses += [("coordinate", self.coordinate), *labels, ("period", self.period)]
        return [(use, column) for use, column in uses if column is not None]

    def names(self) -> list[str]:
        """Every column that is read."""
        return [column for _, column in self._uses()]

    def as_they_are(self) -> set[str]:
        """Columns of ids, coordinates and labels, which may hold text and must not be read as numbers."""
        numbers = {self.step, *self.states, *self.actions, *self.next_states, *self.scale}
        ids = {name for name in (self.trajectory, self.unit, self.coordinate, self.period) if name is not None}
        return ids | ({*self.labels.values()} - numbers)


def _kind_of(use: str) -> str:
    return use.split("[")[0].split()[0]


def missing_column(name: str, names: Sequence[str], between: str = "commas") -> str:
    """The message about a missing column. It lists no names of the table, because they may be its first row."""
    near = get_close_matches(name, names, n=1, cutoff=0.8)
    hint = f"did you mean {near[0]!r}?" if near else f"is there a header line, with {between} between names?"
    return f"the table must have one column {name!r} ({hint})"
