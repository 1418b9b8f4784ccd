"""The cell that a row is counted in: formulas of one row, which are recorded and then evaluated on all rows.

A formula takes a step and a row (state, action, next state), and gives the row's cell and whether it is observed there,
(..., k) each. Rows that are `relative` to a scale may show an outcome beyond its bound. It is cut off there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from poolrl.data.row_rules import Numbers, Row, recorded_counts
from poolrl.data.trace import Recording
from poolrl.geometry.bins import bin_of
from poolrl.geometry.resolution import TOGETHER_BANDS
from poolrl.problems.problem import OutcomeProblem, Problem, SeparableProblem

CellsAndSeen = tuple[Numbers, Numbers]
CellFormula = Callable[..., CellsAndSeen]
NOWHERE = -1  # the cell of an unobserved row. To filter such rows out first would make engines compute every cell twice


def outcome_cells(problem: OutcomeProblem, step: int, *row: Numbers, bins: int, relative: bool) -> CellsAndSeen:
    """Where each row of a step is counted, (..., k) from 0 to kinds · bins − 1, and whether it is observed."""
    seen, cut = problem.observe(step, *row)
    leaf = _bin_of_amount(problem, seen, bins)
    cell = leaf + np.where(_cut_off(problem, seen, cut, relative), bins, 0) if problem.censored else leaf
    return cell, _observed(problem, step, row, cell)


def joint_cells(problem: OutcomeProblem, step: int, *row: Numbers, bins: int, relative: bool) -> CellsAndSeen:
    """Where each row of a step stands by its level and by what it shows, (..., k) from 0 to bins · 2 · bins − 1.

    The level of a coordinate is its action, on the bands of the outcome. An outcome beyond its level counts as one in
    the level's band: the test compares outcomes with edges below the level, and needs no more.
    """
    seen, cut = problem.observe(step, *row)
    level = _bin_of_amount(problem, row[1], bins)
    leaf = np.minimum(_bin_of_amount(problem, seen, bins), level)
    cell = level * (2 * bins) + np.where(_cut_off(problem, seen, cut, relative), bins, 0) + leaf
    return cell, _observed(problem, step, row, cell)


def left_cells(problem: OutcomeProblem, step: int, *row: Numbers, bins: int, relative: bool) -> CellsAndSeen:
    """The amount left by each row of a step, in whole parts of the bound, (..., k) from 0 to bins − 1, rounded."""
    share = np.clip(row[2] / problem.outcome_high, 0.0, 1.0)
    cell = np.floor(share * (bins - 1) + 0.5).astype(np.int64)
    return cell, _observed(problem, step, row, cell)


def recorded_cells(
    problem: OutcomeProblem, formula: CellFormula, bins: int, *, relative: bool, **rows: bool
) -> list[Recording]:
    """The cell of each coordinate at each step, NOWHERE where a row is unobserved (`recorded_counts` says the rest)."""

    def cells(step: int, row: Row, usable: Numbers) -> Numbers:
        cell, observed = formula(problem, step, *row, bins=bins, relative=relative)
        return np.where(observed & usable, cell, NOWHERE)

    recordings = recorded_counts(problem, cells, relative=relative, **rows)
    if any(recording.outputs[0].shape != (problem.outcome_dim,) for recording in recordings):
        # A row would be counted more than once for a coordinate.
        raise ValueError(f"formulas of {type(problem).__name__} must give one value for each outcome")
    return recordings


def cell_count(problem: OutcomeProblem, formula: CellFormula, bins: int) -> int:
    """How many cells a formula has for each coordinate."""
    return {outcome_cells: problem.kinds * bins, joint_cells: bins * 2 * bins, left_cells: bins}[formula]


def _bin_of_amount(problem: OutcomeProblem, amount: Numbers, bins: int) -> Numbers:
    unit = (amount - problem.outcome_low) / (problem.outcome_high - problem.outcome_low)
    place = bin_of(unit, bins)
    # On the higher side the same bins are counted from the top: narrow ones are near zero on both sides.
    return place if problem.boundary.side == "lower" else bins - 1 - place


def _cut_off(problem: OutcomeProblem, seen: Numbers, cut: Numbers, relative: bool) -> Numbers:
    if not relative:
        return cut
    low_side = problem.boundary.side == "lower"
    beyond = seen >= problem.outcome_high if low_side else seen <= problem.outcome_low
    if problem.current_status:
        # The value is a price that was tried, not an outcome. A high price says nothing.
        beyond = beyond & ~np.isin(np.arange(problem.outcome_dim), problem.current_status)
    return cut | beyond


def _observed(problem: OutcomeProblem, step: int, row: tuple[Numbers, ...], cell: Numbers) -> Numbers:
    if sees_everything(problem):
        return np.broadcast_to(True, cell.shape)
    seen = problem.seen_coordinates(step, *row[:2])
    # One answer for a whole row is spread over its coordinates here, where no other row can be met.
    return seen if getattr(seen, "shape", ()) == cell.shape else np.broadcast_to(seen, cell.shape)


def sees_everything(problem: OutcomeProblem) -> bool:
    """Whether there is no boundary, and the problem has no rule of its own."""
    usual = OutcomeProblem.seen_coordinates, SeparableProblem.seen_coordinates
    return problem.boundary.everywhere and type(problem).seen_coordinates in usual


def unit_cells(problem: Problem, step: int, *row: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Visits are counted by (s, a) and s′ in unit coordinates, where (s, a) lies within the boundary."""
    unit = problem.unit_pair(*row[:2])
    return unit, problem.unit_state(row[2]), problem.within(step, unit).all(axis=-1)


def side_formula(problem: OutcomeProblem) -> CellFormula:
    """The cells that `sides` reads. Where nothing is ever cut off, an outcome shows itself."""
    return joint_cells if problem.censored else outcome_cells


def sides(problem: OutcomeProblem, cell: Any, edge: Any) -> tuple[Any, Any]:
    """Whether a row shows its side of the edge, and whether that is beyond it; for arrays or a table's columns."""
    # A cell of `joint_cells` is 2B · level + outcome, where outcomes that were cut off come after those that were seen.
    if not problem.censored:
        return edge >= 0, cell >= edge
    return cell // (2 * TOGETHER_BANDS) >= edge, cell % (2 * TOGETHER_BANDS) >= edge
