"""Exact counts of a log: what the door adds noise to.

Both kinds are tables whose cells follow from public facts alone, so empty cells are counted too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from poolrl.checks import IntArray
from poolrl.data.log import Log
from poolrl.data.row_by_row import is_our_own
from poolrl.data.row_rules import Numbers
from poolrl.geometry.bins import bin_of
from poolrl.geometry.partition import Partition
from poolrl.geometry.resolution import LEFT_PARTS
from poolrl.problems.problem import OutcomeProblem, SeparableProblem

# (problem, step, state, action, next state; bins, relative) → cells and where they are observed, (..., k) each.
CellFormula = Callable[..., tuple[Numbers, Numbers]]


@dataclass(frozen=True)
class OutcomeCounts:
    """Trees of censored outcomes, one per label cell, step, coordinate and kind (seen, cut off).

    Each of the `levels` has shape (*labels, H, k, kinds, size): how many slots fall into each of `size` ranges.
    `unobserved` counts the other slots: rows beyond λ, rows that cannot be used, and slots that a unit does not fill.
    It is (H, k) for all labels together. Where labels are public it is (*labels, H, k), and `totals` (*labels, H) says
    how many slots there are.
    """

    levels: tuple[IntArray, ...]
    unobserved: IntArray
    totals: IntArray | None


@dataclass(frozen=True)
class VisitCounts:
    """The paper's counts: n(b) as `pairs` (H, N), and n(b, s′) as `moves`, sparse matrices (N, S) of every step."""

    pairs: IntArray
    moves: tuple[sparse.csr_array, ...]

    def transitions(self, step: int, rows: IntArray) -> IntArray:
        """n(b, s′) for the nodes b in `rows`, (rows, S): some rows only, because the table rarely fits in memory."""
        return self.moves[step][rows].toarray()


def outcome_cells(
    problem: OutcomeProblem,
    step: int,
    state: Numbers,
    action: Numbers,
    next_state: Numbers,
    *,
    bins: int,
    relative: bool,
) -> tuple[Numbers, Numbers]:
    """Where each row of a step is counted, (..., k) from 0 to kinds · bins − 1, and whether it is observed.

    Rows that are `relative` to a scale may show an outcome beyond its bound. It is cut off there.
    """
    seen, cut = problem.observe(step, state, action, next_state)
    leaf = _bin_of_amount(problem, seen, bins)
    cell = leaf + np.where(_cut_off(problem, seen, cut, relative), bins, 0) if problem.censored else leaf
    return cell, _observed(problem, step, state, action, cell)


def joint_cells(
    problem: OutcomeProblem,
    step: int,
    state: Numbers,
    action: Numbers,
    next_state: Numbers,
    *,
    bins: int,
    relative: bool,
) -> tuple[Numbers, Numbers]:
    """Where each row of a step stands by its level and by what it shows, (..., k) from 0 to bins · 2 · bins − 1.

    The level of a coordinate is its action, on the bands of the outcome. An outcome beyond its level counts as one in
    the level's band: the test compares outcomes with edges below the level, and needs no more.
    """
    seen, cut = problem.observe(step, state, action, next_state)
    level = _bin_of_amount(problem, action, bins)
    leaf = np.minimum(_bin_of_amount(problem, seen, bins), level)
    cell = level * (2 * bins) + np.where(_cut_off(problem, seen, cut, relative), bins, 0) + leaf
    return cell, _observed(problem, step, state, action, cell)


def left_cells(
    problem: OutcomeProblem,
    step: int,
    state: Numbers,
    action: Numbers,
    next_state: Numbers,
    *,
    bins: int,
    relative: bool,
) -> tuple[Numbers, Numbers]:
    """What each row of a step has left, in whole parts of the bound, (..., k) from 0 to bins − 1, rounded."""
    share = np.clip(next_state / problem.outcome_high, 0.0, 1.0)
    cell = np.floor(share * (bins - 1) + 0.5).astype(np.int64)
    return cell, _observed(problem, step, state, action, cell)


def _bin_of_amount(problem: OutcomeProblem, amount: Numbers, bins: int) -> Numbers:
    if not is_our_own(problem):
        # A formula of one's own may give no number. Its row is unobserved, and must not fail on the way there.
        amount = np.where(amount - amount == 0.0, amount, problem.outcome_low)
    unit = (amount - problem.outcome_low) / (problem.outcome_high - problem.outcome_low)
    found = bin_of(unit, bins)
    # On the higher side the same bins are counted from the top: narrow ones are near zero on both sides.
    return found if problem.boundary.side == "lower" else bins - 1 - found


def _cut_off(problem: OutcomeProblem, seen: Numbers, cut: Numbers, relative: bool) -> Numbers:
    if not relative:
        return cut
    low_side = problem.boundary.side == "lower"
    beyond = seen >= problem.outcome_high if low_side else seen <= problem.outcome_low
    if problem.current_status:
        # The value is a price that was tried, not an outcome. That it is high says nothing.
        beyond = beyond & ~np.isin(np.arange(problem.outcome_dim), problem.current_status)
    return cut | beyond


def _observed(problem: OutcomeProblem, step: int, state: Numbers, action: Numbers, cell: Numbers) -> Numbers:
    if sees_everything(problem):
        return np.broadcast_to(True, cell.shape)
    return problem.seen_coordinates(step, state, action)


def sees_everything(problem: OutcomeProblem) -> bool:
    """Whether there is no boundary, and the problem has no rule of its own."""
    usual = OutcomeProblem.seen_coordinates, SeparableProblem.seen_coordinates
    return problem.boundary.everywhere and type(problem).seen_coordinates in usual


def count_outcomes(log: Log, problem: OutcomeProblem, *, level_sizes: tuple[int, ...]) -> OutcomeCounts:
    """Count what every row shows of its outcome: seen in a bin, cut off in a bin, or unobserved."""
    bins = level_sizes[-1]
    leaves = log.outcome_leaves(problem, bins=bins)
    trees = leaves.reshape(*leaves.shape[:-1], problem.kinds, bins)
    levels = tuple(trees.reshape(*trees.shape[:-1], size, -1).sum(axis=-1) for size in level_sizes)
    observed = leaves.sum(axis=-1)
    if log.labels_public:
        totals = log.label_totals(problem)
        return OutcomeCounts(levels, totals[..., None] - observed, totals)
    everywhere = observed.reshape(-1, *observed.shape[-2:]).sum(axis=0)
    return OutcomeCounts(levels, log.slots - everywhere, None)


def count_joint(log: Log, problem: OutcomeProblem, *, bands: int) -> IntArray:
    """How many rows have each level and show each outcome, seen or cut off, (*labels, H, k, bands, 2, bands)."""
    leaves = log.joint_leaves(problem, bands=bands)
    return leaves.reshape(*leaves.shape[:-1], bands, 2, bands)


def sum_left(log: Log, problem: OutcomeProblem) -> IntArray:
    """What all rows together have left, (*labels, H, k), in parts of the bound: each row adds 0 .. LEFT_PARTS."""
    leaves = log.left_leaves(problem, parts=LEFT_PARTS)
    return np.asarray(leaves @ np.arange(LEFT_PARTS + 1))


def count_visits(log: Log, partition: Partition) -> VisitCounts:
    """Count how often each node was visited, and where each visit led."""
    shape = partition.pair_count, partition.state_count
    tallies = log.visit_tallies(partition)
    moves = [sparse.csr_array((times, np.divmod(cells, shape[1])), shape=shape) for cells, times in tallies]
    return VisitCounts(np.stack([each.sum(axis=1) for each in moves]), tuple(moves))
