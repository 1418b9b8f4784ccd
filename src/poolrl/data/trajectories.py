"""Trajectories: the sensitive log as arrays in memory, checked when it is made.

Rows are (state, action, next state) for every step of every trajectory, in the user's units. Rewards are not
kept: they are a known function of the row. No message here quotes a value, a position or a count of the log. Nothing of
a log is set after it is made, and formulas of your own do not see it (`row_by_row`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolrl.checks import FloatArray, IntArray, as_floats, finite_array, read_only, whole
from poolrl.data.array_rows import ArrayRows
from poolrl.data.counts import CellFormula, joint_cells, left_cells, outcome_cells
from poolrl.data.log import Columns, Tally, check_declarations
from poolrl.data.log_labels import cells_of, log_labels
from poolrl.data.owners import first_of_each, owners
from poolrl.data.relative import check_relative, is_relative, refuse_visits
from poolrl.data.row_by_row import row_by_row
from poolrl.data.row_rules import PARTS, moved_inside
from poolrl.data.saved_log import read_log, write_log
from poolrl.data.sealed import Sealed
from poolrl.geometry.partition import Partition
from poolrl.problems.problem import OutcomeProblem, Problem

if TYPE_CHECKING:
    import pyarrow as pa

Path = str | PathLike[str]


class Trajectories(Sealed):
    """A log of n trajectories of H steps: states (n, H, w), actions (n, H, d), next states (n, H, w).

    `unit` names who is protected, one name per trajectory. By default each trajectory is its own unit. The first
    `max_per_unit` trajectories of a unit are kept and the rest are dropped. So their order must not depend on other
    units; tables are put in the order of ids. Noise grows in proportion to `max_per_unit`.

    `scale` (n, H, k) is what was expected before each order, in the same units: a forecast, an average, a shop's size.
    The problem's amounts are then multiples of it. A row whose scale is not a positive number is unobserved.
    `scale_memory` is m if replacing one trajectory can change the scales of m others, and noise grows by 1 + m: a mean
    of a shop's last m weeks has memory m if shop and week stay and only what happened in it is replaced, and 2m if it
    may become another week or another shop's. A scale from outside the log has none. With `unit`, the scale of a
    trajectory must be computed from rows of its own unit, or from outside the log; nothing can check that.

    `labels` are public facts of a trajectory (n,) or of a step (n, H), by name. A row with a value that the problem
    does not declare is unobserved. With `labels_public` neighbours keep their labels; else labels are protected too.
    """

    __slots__ = (
        *PARTS, "owner", "_scale", "_labels", "_has_units", "_units", "_max_per_unit", "_scale_memory", "_labels_public"
    )  # fmt: skip
    has_coordinates = False  # a row shows all of them

    def __init__(
        self,
        *,
        states: ArrayLike,
        actions: ArrayLike,
        next_states: ArrayLike,
        unit: ArrayLike | None = None,
        max_per_unit: int = 1,
        scale: ArrayLike | None = None,
        scale_memory: int = 0,
        labels: Mapping[str, Any] | None = None,
        labels_public: bool = False,
    ) -> None:
        whole(max_per_unit=max_per_unit)
        declared: dict[str, Any] = {"scale_memory": scale_memory, "labels_public": labels_public}
        check_declarations(has_scale=scale is not None, has_labels=bool(labels), **declared)
        states = finite_array("states", states)
        actions = finite_array("actions", actions)
        next_states = finite_array("next_states", next_states)
        if not (states.size and actions.size):
            raise ValueError("states and actions must not be empty")
        if next_states.shape[:2] != states.shape[:2] or next_states.shape[2] < states.shape[2]:
            raise ValueError("next_states must have the shape of states, and may show more behind them")
        if actions.shape[:2] != states.shape[:2]:
            raise ValueError("actions must have the trajectories and steps of states")
        if unit is None and max_per_unit != 1:
            raise ValueError("max_per_unit needs unit: say which trajectories belong to whom")
        measured = None if scale is None else as_floats("scale", scale)
        if measured is not None and measured.shape not in (states.shape, (*states.shape[:2], 1)):
            raise ValueError("scale must have the shape of states: one number per trajectory, step and coordinate")
        known = log_labels(labels or {}, states.shape[:2])
        owner = np.arange(len(states)) if unit is None else owners(unit, len(states))
        # Without units nothing is dropped, and a copy of everything would only take memory.
        kept = slice(None) if unit is None else first_of_each(owner, max_per_unit)
        self.states, self.actions, self.next_states = (read_only(part[kept]) for part in (states, actions, next_states))
        self._scale = None if measured is None else read_only(measured[kept])
        self._labels = {name: label.taken(kept) for name, label in known.items()}
        self.owner: NDArray[np.int64] = owner[kept]
        self._has_units, self._units, self._max_per_unit = unit is not None, int(owner.max()) + 1, int(max_per_unit)
        self._scale_memory, self._labels_public = int(scale_memory), bool(labels_public)
        self.seal()

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        return f"Trajectories(sensitive, horizon={self.horizon})"

    @property
    def horizon(self) -> int:
        """H."""
        return int(self.states.shape[1])

    @property
    def units(self) -> int:
        """How many units the log holds. This is public, because neighbours replace one unit."""
        return self._units

    @property
    def max_per_unit(self) -> int:
        """c. Read-only, because trajectories were dropped by it and the noise is scaled by it."""
        return self._max_per_unit

    @property
    def slots(self) -> int:
        """units × max_per_unit. Public, unlike the number of trajectories: a new unit may own fewer or more."""
        return self.units * self.max_per_unit

    @property
    def has_units(self) -> bool:
        """Whether a unit may own several trajectories. Read-only, because the noise depends on it."""
        return self._has_units

    @property
    def scale(self) -> FloatArray | None:
        """The scale of each amount, if there is one. Read-only, because what is paid for depends on it."""
        return self._scale

    @property
    def has_scale(self) -> bool:
        """Whether amounts are divided by a scale."""
        return self.scale is not None

    @property
    def scale_memory(self) -> int:
        """m. Read-only, because the noise is scaled by it."""
        return self._scale_memory

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the log's labels."""
        return tuple(self._labels)

    @property
    def labels(self) -> dict[str, NDArray[Any]]:
        """The values of each label, (n,) or (n, H)."""
        return {name: label.array() for name, label in self._labels.items()}

    @property
    def step_labels(self) -> tuple[str, ...]:
        """The labels that were given for every step."""
        return tuple(name for name, label in self._labels.items() if label.codes.ndim == 2)

    @property
    def ids_public(self) -> bool:
        """Never: an array has no ids."""
        return False

    @property
    def labels_public(self) -> bool:
        """Whether neighbours keep their labels. Read-only: it decides what gets noise."""
        return self._labels_public

    @property
    def is_full(self) -> bool:
        """True for c = 1: every trajectory has every step, and `check` refuses impossible rows.

        Rows with an unusable scale or another label are not refused, so with either the log is never full.
        """
        return self.max_per_unit == 1 and not self.has_scale and not self.label_names

    def check(self, problem: Problem) -> None:
        """Refuse a log that does not fit the problem's public facts. Rows that are multiples of a scale are not."""
        self._check_shape(problem)
        if is_relative(self, problem):
            return
        broken = self._array_rows(problem).broken_rule()
        if broken is not None:
            raise ValueError(
                f"{broken.part} {broken.rule}; correct the log, declare wider bounds from public knowledge, or clip it "
                "by choice with log.clipped(problem)"
            )

    def clipped(self, problem: Problem) -> Self:
        """The same log with every value moved into the problem's public bounds, each row by itself."""
        self._check_shape(problem)
        parts = {name: np.empty_like(getattr(self, name)) for name in PARTS}
        rows = self._array_rows(problem)
        for step in range(self.horizon):
            given, divided = rows.given(step, slice(None)), rows.multiples(step, slice(None))
            moved = moved_inside(rows.problem, step, divided.row)
            for part, value, before, after, unit in zip(
                parts.values(), given, divided.row, moved, divided.divisors, strict=True
            ):
                # What did not move keeps its bits.
                part[:, step] = np.where(divided.usable & (before != after), after * unit, value)
        return type(self)(**self._arguments() | parts)

    def outcome_leaves(self, problem: OutcomeProblem, *, bins: int) -> IntArray:
        """How many rows fall into each cell of `outcome_cells`, (*labels, H, k, kinds · bins)."""
        return self._leaves(problem, outcome_cells, size=bins * problem.kinds, bins=bins)

    def joint_leaves(self, problem: OutcomeProblem, *, bands: int) -> IntArray:
        """How many rows fall into each cell of `joint_cells`, (*labels, H, k, bands · 2 · bands)."""
        return self._leaves(problem, joint_cells, size=bands * 2 * bands, bins=bands)

    def left_leaves(self, problem: OutcomeProblem, *, parts: int) -> IntArray:
        """How many rows fall into each cell of `left_cells`, (*labels, H, k, parts + 1)."""
        return self._leaves(problem, left_cells, size=parts + 1, bins=parts + 1)

    def _leaves(self, problem: OutcomeProblem, formula: CellFormula, *, size: int, bins: int) -> IntArray:
        row_wise, relative = row_by_row(problem), is_relative(self, problem)
        leaves = self._array_rows(row_wise).leaves(row_wise, formula, size=size, bins=bins, relative=relative)
        return leaves.reshape(*problem.labels.shape, *leaves.shape[1:])

    def crowd_tallies(self, problem: OutcomeProblem, *, edges: IntArray) -> list[Tally]:
        """For each step, how many trajectories show j sides of their edges, i of them beyond: cell j · (k + 1) + i."""
        row_wise, relative = row_by_row(problem), is_relative(self, problem)
        by_cell = edges.reshape(problem.labels.count, problem.horizon, problem.outcome_dim)
        counts = self._array_rows(row_wise).crowds(row_wise, edges=by_cell, relative=relative)
        return [(np.flatnonzero(rows), rows[rows > 0]) for rows in counts]

    def label_totals(self, problem: Problem) -> IntArray:
        """How many slots have each combination of labels at each step, (*labels, H)."""
        count, cells = problem.labels.count, cells_of(problem.labels, self._labels, self.states.shape[:2])
        found = [np.bincount(cells[cells[:, step] >= 0, step], minlength=count) for step in range(self.horizon)]
        return np.stack(found, axis=-1).reshape(*problem.labels.shape, self.horizon)

    def visit_tallies(self, partition: Partition) -> list[Tally]:
        """For each step, how many rows led from node b to node s′, cell b · S + s′."""
        refuse_visits(self, partition.problem)
        row_wise, tallies = replace(partition, problem=row_by_row(partition.problem)), []
        for step in range(self.horizon):
            state, action, next_state = (part[:, step] for part in (self.states, self.actions, self.next_states))
            node, target = row_wise.pair_index(step, state, action), row_wise.state_index(next_state)
            tallies.append(np.unique((node * partition.state_count + target)[node >= 0], return_counts=True))
        return tallies

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        max_per_unit: int = 1,
        first_step: int = 0,
        scale_memory: int = 0,
        labels_public: bool = False,
        **columns: Any,
    ) -> Self:
        """Read a long table, one row per (trajectory, step), from pandas, polars or Arrow.

        `columns` are the fields of `Columns`. `first_step` is the number of the first step. Trajectories are put in the
        order of their ids.
        """
        from poolrl.data import arrow

        named = Columns(**columns)
        arrays = arrow.to_arrays(arrow.as_arrow(table, named), named, first_step=first_step)
        return cls(**arrays, max_per_unit=max_per_unit, scale_memory=scale_memory, labels_public=labels_public)

    @classmethod
    def from_parquet(cls, path: Path, **columns: Any) -> Self:
        """Read a Parquet file or folder; the keywords are those of `from_table`."""
        from poolrl.data import arrow

        return cls.from_table(arrow.read_parquet(path), **columns)

    @classmethod
    def from_csv(cls, path: Path, **columns: Any) -> Self:
        """Read a CSV file with a header line; the keywords are those of `from_table`."""
        from poolrl.data import arrow

        return cls.from_table(arrow.read_csv(path), **columns)

    def to_arrow(self) -> pa.Table:
        """The log as a long table: trajectory, step, (unit,) state_i, action_i, next_state_i, (scale_i,) and labels."""
        from poolrl.data import arrow

        parts = {"state": self.states, "action": self.actions, "next_state": self.next_states}
        unit = {"unit": self.owner} if self.has_units else {}
        scale = {} if self.scale is None else {"scale": self.scale}
        return arrow.long_table(parts | scale, unit, self.labels)

    def save(self, path: Path) -> None:
        """Write an npz file (still sensitive)."""
        write_log(path, self._arguments())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        return cls(**read_log(path))

    def _arguments(self) -> dict[str, Any]:
        """What makes the same log again."""
        kept = {"unit": self.owner if self.has_units else None, "labels": self._labels}
        names = (*PARTS, "max_per_unit", "scale", "scale_memory", "labels_public")
        return kept | {name: getattr(self, name) for name in names}

    def _array_rows(self, problem: Problem) -> ArrayRows:
        cells = cells_of(problem.labels, self._labels, self.states.shape[:2]) if problem.labels else None
        return ArrayRows(row_by_row(problem), (self.states, self.actions, self.next_states), self.scale, cells)

    def _check_shape(self, problem: Problem) -> None:
        wanted = {"horizon": problem.horizon, "states": problem.state_dim, "actions": problem.action_dim}
        wanted["next_states"] = len(problem.arrival_low)
        given = {"horizon": self.horizon} | {name: getattr(self, name).shape[2] for name in PARTS}
        if self.scale is not None and isinstance(problem, OutcomeProblem) and problem.scale_dim:
            wanted["scale"], given["scale"] = problem.scale_dim, self.scale.shape[2]
        for name, number in wanted.items():
            if given[name] != number:
                raise ValueError(f"the log has {name} = {given[name]}, but the problem has {number}")
        check_relative(self, problem)
