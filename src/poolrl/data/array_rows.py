"""Rows of arrays, checked and counted block by block: small enough for a processor's cache, on all of its cores.

Formulas see each block coordinate by coordinate in memory (Fortran order). NumPy then works on long runs of numbers,
where rows of a few products would give it short ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import and_

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.data.counts import CellFormula, sees_everything
from poolrl.data.relative import as_counted, has_own_bounds, part_divisors, usable_amount, usable_divisor
from poolrl.data.row_by_row import is_our_own
from poolrl.data.row_rules import Row, RowRule, bound_rules, bounds, fit_rules
from poolrl.data.together import side_formula, sides
from poolrl.geometry.resolution import TOGETHER_BANDS
from poolrl.problems.problem import OutcomeProblem, Problem

# Numbers of one part of a row in a block: a dozen arrays of them fit into a cache of a few megabytes.
BLOCK_NUMBERS = 2**15
# With fewer blocks, threads (and the import that makes them) cost more than they save.
FEWEST_BLOCKS = 64


@dataclass(frozen=True)
class Multiples:
    """Rows as the problem's formulas take them, what they were divided by, and where that was possible."""

    row: Row
    divisors: tuple[FloatArray | float, FloatArray | float, FloatArray | float]  # of states, actions and next states
    usable: BoolArray | bool


@dataclass(frozen=True)
class ArrayRows:
    """A log's arrays (n, H, coordinates) beside its problem; `cells` (n, H) are its label cells, if it has any."""

    problem: Problem
    parts: tuple[FloatArray, FloatArray, FloatArray]
    scale: FloatArray | None
    cells: IntArray | None

    def given(self, step: int, block: slice) -> Row:
        """Rows of a step in the user's units."""
        state, action, next_state = (np.asfortranarray(part[block, step]) for part in self.parts)
        return state, action, next_state

    def multiples(self, step: int, block: slice) -> Multiples:
        """Rows of a step, divided by their scale and by their label cell's share of the bound."""
        row, problem = self.given(step, block), self.problem
        divisor: FloatArray | None = None
        usable: BoolArray | bool = True
        if self.scale is not None:
            divisor = np.asfortranarray(self.scale[block, step])
        if self.cells is not None:
            cell = self.cells[block, step]
            usable = cell[:, None] >= 0
            if isinstance(problem, OutcomeProblem) and has_own_bounds(problem):
                share = problem.bound_share.reshape(-1, problem.outcome_dim)[cell]
                divisor = share if divisor is None else divisor * share
        if divisor is None:
            return Multiples(row, (1.0, 1.0, 1.0), usable)
        amounts = [usable_amount(part) for part in row]
        if isinstance(problem, OutcomeProblem) and problem.counts_down:
            amounts = [part.all(axis=-1, keepdims=True) for part in amounts]
        usable = reduce(and_, amounts, usable_divisor(divisor) & usable)
        divisors = part_divisors(problem, np.where(usable, divisor, 1.0))
        lows = [low for low, _ in bounds(problem)]
        state, action, next_state = (
            np.where(usable, part, low) / unit for part, low, unit in zip(row, lows, divisors, strict=True)
        )
        return Multiples((state, action, next_state), divisors, usable)

    def broken_rule(self) -> RowRule | None:
        """The first rule that a row breaks: bounds before all others, then by step. None if all rows are possible.

        Formulas see only rows within their bounds, because a problem of your own may quote what it is given.
        """
        broken: dict[tuple[int, int, int], RowRule] = {}

        def look(block: slice) -> None:
            for step in range(self.problem.horizon):
                row = self.given(step, block)
                outside = [(i, rule) for i, rule in enumerate(bound_rules(self.problem, row)) if not rule.held.all()]
                broken.update({(0, step, i): rule for i, rule in outside})
                if not outside:
                    fits = enumerate(fit_rules(self.problem, step, row))
                    broken.update({(1, step, i): rule for i, rule in fits if not rule.held.all()})

        self._in_blocks(look, BLOCK_NUMBERS)
        return broken[min(broken)] if broken else None

    def leaves(
        self, problem: OutcomeProblem, formula: CellFormula, *, size: int, bins: int, relative: bool
    ) -> IntArray:
        """How many rows fall into each of the `size` cells of a formula, (label cells, H, k, size)."""
        coordinates = problem.outcome_dim
        trees = problem.labels.count * coordinates
        counted = np.zeros((problem.horizon, trees * size), dtype=np.int64)
        offset, adding, everything = np.arange(coordinates) * size, threading.Lock(), sees_everything(problem)
        # A formula of one's own may give no number at all. Such a row must neither fail nor stand in another's tree.
        guarded = not is_our_own(problem)

        def count(block: slice) -> None:
            for step in range(problem.horizon):
                cell, observed, usable = self._formula_cells(problem, formula, step, block, bins, relative)
                if guarded:
                    if cell.shape[-1] != coordinates:
                        # A row would be counted more than once for a coordinate.
                        raise ValueError(f"formulas of {type(problem).__name__} must give one value for each outcome")
                    usable = usable & (cell >= 0) & (cell < size)
                cell += offset
                if self.cells is not None:
                    cell += self.cells[block, step, None] * (coordinates * size)
                if not (everything and usable is True):
                    cell = np.where(observed & usable, cell, trees * size)
                found = np.bincount(cell.ravel(order="K"), minlength=trees * size + 1)[:-1]
                with adding:
                    counted[step] += found

        # A count of many label cells needs many rows, or most of the time would go into empty cells.
        self._in_blocks(count, max(BLOCK_NUMBERS, trees * size))
        shape = problem.horizon, problem.labels.count, coordinates, size
        return np.moveaxis(counted.reshape(shape), 0, 1)

    def crowds(self, problem: OutcomeProblem, *, edges: IntArray, relative: bool) -> list[IntArray]:
        """For each step, how many trajectories show j sides of their edges, i of them beyond: at j (k + 1) + i.

        `edges` are (label cells, H, k).
        """
        size = problem.outcome_dim + 1
        counted, adding = np.zeros((problem.horizon, size * size), dtype=np.int64), threading.Lock()

        def count(block: slice) -> None:
            for step in range(problem.horizon):
                cell, observed, usable = self._formula_cells(
                    problem, side_formula(problem), step, block, TOGETHER_BANDS, relative
                )
                # Rows without a label cell are not usable, whatever the last cell's edge says of them.
                edge = edges[0 if self.cells is None else self.cells[block, step], step]
                shown, beyond = sides(problem, cell, edge)
                shown = shown & observed & usable
                crowd = shown.sum(axis=-1) * size + (shown & beyond).sum(axis=-1)
                found = np.bincount(crowd, minlength=size * size)
                with adding:
                    counted[step] += found

        self._in_blocks(count, BLOCK_NUMBERS)
        return list(counted)

    def _formula_cells(
        self, problem: OutcomeProblem, formula: CellFormula, step: int, block: slice, bins: int, relative: bool
    ) -> tuple[IntArray, BoolArray, BoolArray | bool]:
        """The cells of a formula, where it is observed, and which rows can be used."""
        multiples = self.multiples(step, block)
        row, usable = multiples.row, multiples.usable
        if relative:
            row, fits = as_counted(problem, step, row, relative=True, clip=False)
            usable = usable & fits
        cell, observed = formula(problem, step, *row, bins=bins, relative=relative)
        return cell, observed, usable

    def _in_blocks(self, work: Callable[[slice], None], numbers: int) -> None:
        """Call `work` on slices of so many numbers that together cover all trajectories."""
        trajectories, _, coordinates = self.parts[0].shape
        length = max(1, numbers // coordinates)

        def piece(part: slice) -> None:
            for start in range(part.start, part.stop, length):
                work(slice(start, min(start + length, part.stop)))

        if trajectories < FEWEST_BLOCKS * length:
            piece(slice(0, trajectories))
        else:
            # Here, because Numba takes half a second to import.
            from poolrl.geometry.compiled import in_blocks

            in_blocks(piece, trajectories)
