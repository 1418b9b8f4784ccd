"""Trajectories: the sensitive log as arrays in memory, checked when it is made.

Rows are (state, action, next state) for every step of every trajectory, in the user's units. No message here quotes a
value, a position or a count of the log. Formulas of a problem do not see it, for they are recorded (`data/trace.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolrl.checks import BoolArray, FloatArray, IntArray, as_floats, finite_array, read_only
from poolrl.data import row_rules
from poolrl.data.cells import (
    NOWHERE,
    CellFormula,
    cell_count,
    outcome_cells,
    recorded_cells,
    sees_everything,
    side_formula,
    sides,
    unit_cells,
)
from poolrl.data.ids import first_of_each, owners
from poolrl.data.log import Columns, Log, LogFacts, Tally, check_relative, is_relative
from poolrl.data.log_labels import cells_of, log_labels
from poolrl.data.trace import Recording
from poolrl.geometry.partition import Partition
from poolrl.geometry.resolution import TOGETHER_BANDS
from poolrl.problems.problem import OutcomeProblem, Problem

if TYPE_CHECKING:
    import pyarrow as pa


AnyProblem = TypeVar("AnyProblem", bound=Problem)
Path = str | PathLike[str]
Run = tuple[slice, Recording]  # steps that share a recording
Places = Callable[[IntArray, slice, slice], IntArray]  # of cells, at some steps of some trajectories
BLOCK_NUMBERS = 2**15  # of one part of a row in a block: a dozen arrays of them fit into a cache of a few megabytes
MOST_PLACES = 2**16  # places that are counted at once: more than these would not fit into the same cache
FEWEST_BLOCKS = 64  # with fewer blocks of a step, more threads cost more than they save
# The variable is Numba's; joblib sets it.
THREADS = int(os.environ.get("NUMBA_NUM_THREADS") or len(os.sched_getaffinity(0)))


class Trajectories(Log):
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
        states, actions = finite_array("states", states), finite_array("actions", actions)
        next_states = finite_array("next_states", next_states)
        if not (states.size and actions.size):
            raise ValueError("states and actions must not be empty")
        if next_states.shape[:2] != states.shape[:2] or next_states.shape[2] < states.shape[2]:
            raise ValueError("next_states must have the shape of states, and may show more behind them")
        if actions.shape[:2] != states.shape[:2]:
            raise ValueError("actions must have the trajectories and steps of states")
        measured = None if scale is None else as_floats("scale", scale)
        if measured is not None and measured.shape not in (states.shape, (*states.shape[:2], 1)):
            raise ValueError("scale must have the shape of states: one number per trajectory, step and coordinate")
        known = log_labels(labels or {}, states.shape[:2])
        facts = LogFacts(
            has_units=unit is not None,
            max_per_unit=max_per_unit,
            has_scale=scale is not None,
            scale_memory=scale_memory,
            label_names=tuple(known),
            step_labels=tuple(name for name, label in known.items() if label.codes.ndim == 2),
            labels_public=bool(labels_public),
            refuses_rows=True,
        )
        super().__init__(facts)
        owner = np.arange(len(states)) if unit is None else owners(unit, len(states))
        # Without units nothing is dropped, and a copy of everything would only take memory.
        kept = slice(None) if unit is None else first_of_each(owner, max_per_unit)
        self.states, self.actions, self.next_states = (read_only(part[kept]) for part in (states, actions, next_states))
        self.scale = None if measured is None else read_only(measured[kept])
        self._labels = {name: label.taken(kept) for name, label in known.items()}
        self.owner: NDArray[np.int64] = read_only(owner[kept])

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
        return int(self.owner.max()) + 1

    @property
    def labels(self) -> dict[str, NDArray[Any]]:
        """The values of each label, (n,) or (n, H)."""
        return {name: label.array() for name, label in self._labels.items()}

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
        parts = {name: np.empty_like(getattr(self, name)) for name in row_rules.PARTS}
        rows = self._array_rows(problem)
        for step in range(self.horizon):
            here, whole = slice(step, step + 1), slice(None)
            given, (row, unit, usable) = rows.given(here, whole), rows.multiples(here, whole)
            units = (1.0, 1.0, 1.0) if unit is None else row_rules.part_divisors(problem, unit)
            moved = row_rules.recorded_row(problem, lambda *row, h=step: row_rules.moved_inside(problem, h, row))(*row)
            for part, value, before, after, each in zip(parts.values(), given, row, moved, units, strict=True):
                # A number that did not move keeps its bits.
                changed = before != after if usable is None else usable & (before != after)
                part[:, step] = np.where(changed, after * each, value)
        return type(self)(**self._arguments() | parts)

    def outcome_leaves(self, problem: OutcomeProblem, *, bins: int, formula: CellFormula = outcome_cells) -> IntArray:
        """How many rows fall into each cell of a formula, (*labels, H, k, `cell_count`)."""
        return self._array_rows(problem).leaves(formula, bins)

    def crowd_tallies(self, problem: OutcomeProblem, *, edges: IntArray) -> list[Tally]:
        """For each step, how many trajectories show j sides of their edges, i of them beyond: cell j · (k + 1) + i."""
        by_cell = edges.reshape(problem.labels.count, problem.horizon, problem.outcome_dim)
        counts = self._array_rows(problem).crowds(by_cell)
        return [(np.flatnonzero(rows), rows[rows > 0]) for rows in counts]

    def label_totals(self, problem: Problem) -> IntArray:
        """How many slots have each combination of labels at each step, (*labels, H)."""
        count, of_labels = problem.labels.count, cells_of(problem.labels, self._labels, self.states.shape[:2])
        found = [np.bincount(column[column >= 0], minlength=count) for column in of_labels.T]
        return np.stack(found, axis=-1).reshape(*problem.labels.shape, self.horizon)

    def visit_tallies(self, partition: Partition) -> list[Tally]:
        """For each step, how many rows led from node b to node s′, cell b · S + s′."""
        tallies = []
        for step in range(self.horizon):
            recording = row_rules.recorded_row(partition.problem, partial(unit_cells, partition.problem, step))
            row = (part[:, step] for part in (self.states, self.actions, self.next_states))
            unit, arrived, inside = recording(*row)
            node, target = partition.index(partition.pairs[step], unit), partition.index(partition.states, arrived)
            tallies.append(np.unique((node * partition.state_count + target)[inside], return_counts=True))
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
        order of their ids, and rows without one are left out. The types of columns are taken as they are (`Table`).
        """
        from poolrl.data.arrow import to_arrays
        from poolrl.data.table import Table

        if columns.get("coordinate") is not None:
            raise ValueError("one row per coordinate is counted by Table; for arrays name a column for each coordinate")
        declared: Any = {"max_per_unit": max_per_unit, "scale_memory": scale_memory, "labels_public": labels_public}
        return cls(**to_arrays(Table(table, first_step=first_step, **declared, **columns)), **declared)

    @classmethod
    def from_parquet(cls, path: Path, **columns: Any) -> Self:
        """Read a Parquet file or folder; the keywords are those of `from_table`."""
        return cls._from_files(path, is_csv=False, **columns)

    @classmethod
    def from_csv(cls, path: Path, **columns: Any) -> Self:
        """Read a CSV file with a header line; the keywords are those of `from_table`.

        Every line is read by itself, so a field holds no line break. A line with another number of fields is left out.
        """
        return cls._from_files(path, is_csv=True, **columns)

    @classmethod
    def _from_files(cls, path: Path, *, is_csv: bool, **given: Any) -> Self:
        from poolrl.data.sources.opening import open_columns

        columns = Columns(**{name: value for name, value in given.items() if name in Columns.__dataclass_fields__})
        with open_columns(os.fspath(path), columns, is_csv=is_csv) as opened:
            return cls.from_table(opened, **given)

    def to_arrow(self) -> pa.Table:
        """The log as a long table: trajectory, step, (unit,) state_i, action_i, next_state_i, (scale_i,) and labels."""
        from poolrl.data.arrow import long_table

        return long_table(self)

    def _arguments(self) -> dict[str, Any]:
        """What makes the same log again."""
        kept = {"unit": self.owner if self.facts.has_units else None, "labels": self._labels}
        kept |= {name: getattr(self.facts, name) for name in ("max_per_unit", "scale_memory", "labels_public")}
        return kept | {name: getattr(self, name) for name in (*row_rules.PARTS, "scale")}

    def _array_rows(self, problem: AnyProblem) -> ArrayRows[AnyProblem]:
        of_labels = cells_of(problem.labels, self._labels, self.states.shape[:2])
        return ArrayRows(problem, (self.states, self.actions, self.next_states), self.scale, of_labels)

    def _check_shape(self, problem: Problem) -> None:
        wanted = {"horizon": problem.horizon} | row_rules.widths(problem)
        given = {"horizon": self.horizon} | {name: getattr(self, name).shape[2] for name in row_rules.PARTS}
        if self.scale is not None and problem.scale_dim:
            wanted["scale"], given["scale"] = problem.scale_dim, self.scale.shape[2]
        for name, number in wanted.items():
            if given[name] != number:
                raise ValueError(f"the log has {name} = {given[name]}, but the problem has {number}")
        check_relative(self, problem)


@dataclass(frozen=True)
class ArrayRows(Generic[AnyProblem]):
    """A log's arrays (n, H, coordinates) beside its problem; `cells` (n, H) are its label cells.

    They are checked and counted block by block: small enough for a processor's cache, on all of its cores. Formulas see
    each block coordinate by coordinate in memory (Fortran order), so that NumPy works on long runs of numbers.
    """

    problem: AnyProblem
    parts: tuple[FloatArray, FloatArray, FloatArray]
    scale: FloatArray | None
    cells: IntArray

    def given(self, steps: slice, block: slice) -> row_rules.Row:
        """Rows of some steps in the user's units, those of one trajectory after the other."""
        state, action, next_state = (_by_coordinate(part[block, steps]) for part in self.parts)
        return state, action, next_state

    def multiples(self, steps: slice, block: slice) -> tuple[row_rules.Row, FloatArray | None, BoolArray | None]:
        """Rows as multiples, of what, and which can be used: None if all."""
        row, problem = self.given(steps, block), self.problem
        divisor = None if self.scale is None else _by_coordinate(self.scale[block, steps])
        usable: BoolArray | None = None
        if problem.labels:
            cell = self.cells[block, steps].ravel()
            usable = cell[:, None] >= 0
            if isinstance(problem, OutcomeProblem) and row_rules.has_own_bounds(problem):
                share = problem.bound_share.reshape(-1, problem.outcome_dim)[cell]
                divisor = share if divisor is None else divisor * share
        if divisor is None:
            return row, None, usable
        fine, multiples = self._divided
        usable = fine(*row, divisor) if usable is None else fine(*row, divisor) & usable
        # A formula sees a possible row, whatever cannot be used.
        unit, bounds = np.where(usable, divisor, 1.0), row_rules.bounds(problem)
        possible = [np.where(usable, part, low) for part, (low, _) in zip(row, bounds, strict=True)]
        return multiples(*possible, unit), unit, usable

    @cached_property
    def _divided(self) -> tuple[Recording, Recording]:
        return row_rules.multiples_of(self.problem, divided=True)

    def broken_rule(self) -> row_rules.RowRule | None:
        """The first rule that a row breaks, if any: bounds before all others, then by step.

        Formulas see only rows within their bounds, because a problem of your own may quote what it is given.
        """
        problem = self.problem
        broken: dict[tuple[bool, int, int], row_rules.RowRule] = {}
        recordings, rules = row_rules.recorded_rules(problem, partial(row_rules.fit_rules, problem))
        runs = _runs(recordings, problem.horizon)

        def look(block: slice) -> None:
            for steps, recording in runs:
                row = self.given(steps, block)
                found = [(False, rule, rule.held) for rule in row_rules.bound_rules(problem, row)]
                if all(held.all() for _, _, held in found):
                    found = [(True, rule, held) for rule, held in zip(rules, recording(*row), strict=True)]
                for i, (fit, rule, held) in enumerate(found):
                    if not held.all():
                        by_step = held.reshape(-1, steps.stop - steps.start, held.shape[-1]).all(axis=(0, 2))
                        broken[fit, steps.start + int(by_step.argmin()), i] = rule

        self._in_blocks(look, BLOCK_NUMBERS, runs)
        return broken[min(broken)] if broken else None

    def leaves(self: ArrayRows[OutcomeProblem], formula: CellFormula, bins: int) -> IntArray:
        """How many rows fall into each cell of a formula, (*labels, H, k, `cell_count`)."""
        problem, coordinates = self.problem, self.problem.outcome_dim
        size = cell_count(problem, formula, bins)
        trees = problem.labels.count * coordinates

        def places(cell: IntArray, steps: slice, block: slice) -> IntArray:
            place = cell + np.arange(coordinates) * size
            if problem.labels:
                place += self.cells[block, steps].reshape(-1, 1) * (coordinates * size)
            return place if certain else np.where(cell == NOWHERE, trees * size, place)

        certain = self._all_usable and sees_everything(problem)
        counted = self._tallied(formula, bins, places, trees * size)
        by_step = counted.reshape(problem.horizon, *problem.labels.shape, coordinates, size)
        return np.ascontiguousarray(np.moveaxis(by_step, 0, -3))

    def crowds(self: ArrayRows[OutcomeProblem], edges: IntArray) -> IntArray:
        """The tallies of `crowd_tallies`, (H, places), for edges (label cells, H, k)."""
        problem, size = self.problem, self.problem.outcome_dim + 1

        def places(cell: IntArray, steps: slice, block: slice) -> IntArray:
            # Rows without a label cell are NOWHERE, whatever the last cell's edge says of them.
            edge = edges[self.cells[block, steps], np.arange(steps.start, steps.stop)]
            by_row = cell.reshape(-1, *edge.shape[1:])
            shown, beyond = (side.reshape(cell.shape) for side in sides(problem, by_row, edge))
            shown = shown & (cell != NOWHERE)
            crowd: IntArray = shown.sum(axis=-1, keepdims=True) * size + (shown & beyond).sum(axis=-1, keepdims=True)
            return crowd

        return self._tallied(side_formula(problem), TOGETHER_BANDS, places, size * size)

    def _tallied(
        self: ArrayRows[OutcomeProblem], formula: CellFormula, bins: int, places: Places, size: int
    ) -> IntArray:
        """How often each place 0 .. size − 1 comes at each step, (H, size). The place `size` is not counted."""
        # Rows that are not relative were judged by `broken_rule`.
        rows = {"relative": self._relative, "judged": True, "all_usable": self._all_usable}
        runs = _runs(recorded_cells(self.problem, formula, bins, **rows), max(1, MOST_PLACES // size))
        counted, adding = np.zeros((self.problem.horizon, size), dtype=np.int64), Lock()

        def count(block: slice) -> None:
            for steps, recording in runs:
                row, _, usable = self.multiples(steps, block)
                cell: IntArray = recording(*row, *([] if usable is None else [usable]))
                place, many = places(cell, steps, block), steps.stop - steps.start
                if many > 1:
                    place = place.reshape(-1, many, place.shape[-1]) + np.arange(many)[:, None] * (size + 1)
                found = np.bincount(place.ravel(order="K"), minlength=many * (size + 1)).reshape(many, size + 1)
                with adding:
                    counted[steps] += found[:, :-1]

        # A count of many label cells needs many rows, or most of the time would go into empty cells.
        self._in_blocks(count, max(BLOCK_NUMBERS, size), runs)
        return counted

    @property
    def _relative(self) -> bool:
        return self.scale is not None or row_rules.has_own_bounds(self.problem)

    @property
    def _all_usable(self) -> bool:
        return not self._relative and not self.problem.labels

    def _in_blocks(self, work: Callable[[slice], None], numbers: int, runs: Sequence[Run]) -> None:
        """Call `work` on slices that hold this many numbers of a run and together cover all trajectories."""
        trajectories, _, coordinates = self.parts[0].shape
        longest = max(steps.stop - steps.start for steps, _ in runs)
        length = max(1, numbers // (coordinates * longest))
        blocks = [slice(start, min(start + length, trajectories)) for start in range(0, trajectories, length)]
        if trajectories < FEWEST_BLOCKS * longest * length:
            list(map(work, blocks))
        else:
            # Threads of this call alone: they would not survive a fork.
            with ThreadPoolExecutor(THREADS) as threads:
                list(threads.map(work, blocks))


def _by_coordinate(rows: FloatArray) -> FloatArray:
    """Rows of trajectories and steps (m, S, k) as (m · S, k), in memory coordinate by coordinate."""
    return rows.transpose(2, 0, 1).reshape(rows.shape[2], -1).T


def _runs(recordings: Sequence[Recording], most: int) -> list[Run]:
    """Steps that follow each other and share a recording, so that their rows are computed together."""
    runs: list[Run] = []
    for step, recording in enumerate(recordings):
        steps, before = runs[-1] if runs else (slice(0, 0), None)
        if before is recording and step - steps.start < most:
            runs[-1] = slice(steps.start, step + 1), recording
        else:
            runs.append((slice(step, step + 1), recording))
    return runs
