"""Trajectories: the sensitive log as arrays in memory, checked when it is made.

Rows are (state, action, next state) for every step of every trajectory, in the user's units. Rewards are not
kept: they are a known function of the row. No message here quotes a value, a position or a count of the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolrl.checks import IntArray, finite_array, whole
from poolrl.data.counts import outcome_cells
from poolrl.data.log import Columns, Tally
from poolrl.data.row_rules import PARTS, Row, RowRule, bound_rules, fit_rules, moved_inside
from poolrl.geometry.partition import Partition
from poolrl.npz import read_arrays
from poolrl.problems.problem import OutcomeProblem, Problem

if TYPE_CHECKING:
    import pyarrow as pa

Path = str | PathLike[str]
# Bytes of all arrays of a saved log: no log that fits into memory has more.
LARGEST_LOG_FILE = 2**40
_SAVED = {*PARTS, "max_per_unit", "unit"}


class Trajectories:
    """A log of n trajectories of H steps: states (n, H, w), actions (n, H, d), next states (n, H, w).

    `unit` names who is protected, one label per trajectory. By default each trajectory is its own unit. The first
    `max_per_unit` trajectories of a unit are kept and the rest are dropped. So their order must not depend on other
    units; tables are put in the order of ids. Noise grows in proportion to `max_per_unit`.
    """

    def __init__(
        self,
        *,
        states: ArrayLike,
        actions: ArrayLike,
        next_states: ArrayLike,
        unit: ArrayLike | None = None,
        max_per_unit: int = 1,
    ) -> None:
        whole(max_per_unit=max_per_unit)
        states = finite_array("states", states)
        actions = finite_array("actions", actions)
        next_states = finite_array("next_states", next_states)
        if states.size == 0 or actions.size == 0:
            raise ValueError("states and actions must not be empty")
        if next_states.shape != states.shape:
            raise ValueError("next_states must have the shape of states")
        if actions.shape[:2] != states.shape[:2]:
            raise ValueError("actions must have the trajectories and steps of states")
        if unit is None and max_per_unit != 1:
            raise ValueError("max_per_unit needs unit: say which trajectories belong to whom")
        owner = np.arange(len(states)) if unit is None else _owners(unit, len(states))
        kept = _rank_within(owner) < max_per_unit
        self.states, self.actions, self.next_states = states[kept], actions[kept], next_states[kept]
        self.owner: NDArray[np.int64] = owner[kept]
        self.has_units = unit is not None
        self._units = int(owner.max()) + 1
        self._max_per_unit = int(max_per_unit)

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

    def check(self, problem: Problem) -> None:
        """Refuse a log that does not fit the problem's public facts."""
        self._check_shape(problem)
        rows = [self._rows(step) for step in range(self.horizon)]
        for row in rows:  # the problem's formulas see rows within their bounds only
            _refuse_broken(bound_rules(problem, row))
        for step, row in enumerate(rows):
            _refuse_broken(fit_rules(problem, step, row))

    def clipped(self, problem: Problem) -> Self:
        """The same log with every value moved into the problem's public bounds, each row by itself."""
        self._check_shape(problem)
        parts = {name: np.empty_like(getattr(self, name)) for name in PARTS}
        for step in range(self.horizon):
            for part, moved in zip(parts.values(), moved_inside(problem, step, self._rows(step)), strict=True):
                part[:, step] = moved
        return type(self)(**parts, unit=self.owner if self.has_units else None, max_per_unit=self.max_per_unit)

    @property
    def is_full(self) -> bool:
        """True for c = 1: every trajectory has every step, and `check` refuses impossible rows."""
        return self.max_per_unit == 1

    def outcome_leaves(self, problem: OutcomeProblem, *, bins: int) -> IntArray:
        """How many rows fall into each cell of `outcome_cells`, (H, k, kinds · bins)."""
        cells = bins * problem.kinds
        leaves = np.empty((self.horizon, problem.outcome_dim * cells), dtype=np.int64)
        for step in range(self.horizon):
            cell, observed = outcome_cells(problem, step, *self._rows(step), bins=bins)
            cell += np.arange(problem.outcome_dim) * cells
            leaves[step] = np.bincount(cell[observed], minlength=leaves.shape[1])
        return leaves.reshape(self.horizon, problem.outcome_dim, cells)

    def visit_tallies(self, partition: Partition) -> list[Tally]:
        """For each step, how many rows led from node b to node s′, cell b · S + s′."""
        tallies = []
        for step in range(self.horizon):
            state, action, next_state = self._rows(step)
            node, target = partition.pair_index(step, state, action), partition.state_index(next_state)
            tallies.append(np.unique((node * partition.state_count + target)[node >= 0], return_counts=True))
        return tallies

    @classmethod
    def from_table(cls, table: Any, *, max_per_unit: int = 1, first_step: int = 0, **columns: Any) -> Self:
        """Read a long table, one row per (trajectory, step), from pandas, polars or Arrow.

        `columns` are the fields of `Columns`. `first_step` is the number of the first step. Trajectories are put in the
        order of their ids.
        """
        from poolrl.data import arrow

        named = Columns(**columns)
        arrays = arrow.to_arrays(arrow.as_arrow(table, named), named, first_step=first_step)
        return cls(**arrays, max_per_unit=max_per_unit)

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
        """The log as a long table with columns trajectory, step, state_i, action_i, next_state_i (and unit)."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            "trajectory": np.repeat(np.arange(len(self)), self.horizon),
            "step": np.tile(np.arange(self.horizon), len(self)),
        }
        if self.has_units:
            columns["unit"] = np.repeat(self.owner, self.horizon)
        for name, array in (("state", self.states), ("action", self.actions), ("next_state", self.next_states)):
            columns |= {f"{name}_{i}": array[:, :, i].ravel() for i in range(array.shape[2])}
        return pa.table(columns)

    def save(self, path: Path) -> None:
        """Write an npz file (still sensitive)."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in PARTS}
        owner: dict[str, Any] = {"unit": self.owner} if self.has_units else {}
        with open(path, "wb") as file:
            np.savez_compressed(file, **parts, max_per_unit=np.array(self.max_per_unit), **owner)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        try:
            parts: dict[str, Any] = dict(read_arrays(path, most_bytes=LARGEST_LOG_FILE))
            parts["max_per_unit"] = int(parts["max_per_unit"])
        except (LookupError, ValueError, TypeError, OverflowError):
            # A reader's message about a damaged file may quote bytes of the log.
            raise ValueError(f"{path} is not a log written by Trajectories.save, or is damaged") from None
        if not _SAVED - {"unit"} <= parts.keys() <= _SAVED:
            raise ValueError(f"{path} is not a log written by Trajectories.save")
        return cls(**parts)

    def _rows(self, step: int) -> Row:
        return self.states[:, step], self.actions[:, step], self.next_states[:, step]

    def _check_shape(self, problem: Problem) -> None:
        wanted = {"horizon": problem.horizon, "states": problem.state_dim, "actions": problem.action_dim}
        given = {"horizon": self.horizon, "states": self.states.shape[2], "actions": self.actions.shape[2]}
        for name, number in wanted.items():
            if given[name] != number:
                raise ValueError(f"the log has {name} = {given[name]}, but the problem has {number}")


def _refuse_broken(rules: Iterable[RowRule]) -> None:
    for rule in rules:
        if not rule.held.all():
            raise ValueError(
                f"{rule.part} {rule.rule}; correct the log, declare wider bounds from public knowledge, or clip it by "
                "choice with log.clipped(problem)"
            )


def _owners(unit: ArrayLike, trajectories: int) -> NDArray[np.int64]:
    """The units numbered 0, 1, ..., for labels of any type; equal labels (7 and 7.0) are one unit."""
    try:
        labels = np.asarray(unit)
    except ValueError:
        raise ValueError("unit must hold one label per trajectory") from None
    if labels.shape != (trajectories,):
        raise ValueError("unit must hold one label per trajectory")
    if labels.dtype.kind == "O":
        if any(label is None or label != label for label in labels):
            raise ValueError("unit has missing labels")
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError("unit has missing labels")
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _rank_within(owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 for the first trajectory of each unit in the order of the log, 1 for the second, ..."""
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner)
    rank = np.empty_like(owner)
    rank[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank
