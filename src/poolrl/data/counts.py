"""Exact counts of a log: what the door adds noise to.

Both kinds are tables whose cells follow from public facts alone, so empty cells are counted too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from poolrl.checks import IntArray
from poolrl.data.log import Log
from poolrl.data.row_rules import Numbers
from poolrl.geometry.partition import Partition
from poolrl.problems.problem import OutcomeProblem


@dataclass(frozen=True)
class OutcomeCounts:
    """Dyadic trees of censored outcomes, one per step, coordinate and kind (seen, cut off).

    `levels[l]` has shape (H, k, kinds, 2ˡ): how many slots fall into each of 2ˡ equal ranges. `unobserved` (H, k)
    counts the other slots: rows beyond λ, rows that cannot be used, and slots that a unit does not fill.
    """

    levels: tuple[IntArray, ...]
    unobserved: IntArray


@dataclass(frozen=True)
class VisitCounts:
    """The paper's counts: n(b) as `pairs` (H, N), and n(b, s′) as `moves`, sparse matrices (N, S) of every step."""

    pairs: IntArray
    moves: tuple[sparse.csr_array, ...]

    def transitions(self, step: int, rows: IntArray) -> IntArray:
        """n(b, s′) for the nodes b in `rows`, (rows, S): some rows only, because the table rarely fits in memory."""
        return self.moves[step][rows].toarray()


def outcome_cells(
    problem: OutcomeProblem, step: int, state: Numbers, action: Numbers, next_state: Numbers, *, bins: int
) -> tuple[Numbers, Numbers]:
    """Where each row of a step is counted, (..., k) from 0 to kinds · bins − 1, and whether it is observed."""
    seen, cut = problem.observe(step, state, action, next_state)
    unit = (seen - problem.outcome_low) / (problem.outcome_high - problem.outcome_low)
    leaf = np.clip(np.floor(problem.boundary.orient(unit) * bins), 0, bins - 1).astype(np.int64)
    cell = leaf + np.where(cut, bins, 0) if problem.censored else leaf
    return cell, problem.seen_coordinates(step, state, action)


def count_outcomes(log: Log, problem: OutcomeProblem, *, bins: int) -> OutcomeCounts:
    """Count what every row shows of its outcome: seen in a bin, cut off in a bin, or unobserved."""
    kinds = problem.kinds
    leaves = log.outcome_leaves(problem, bins=bins).reshape(problem.horizon, problem.outcome_dim, kinds, bins)
    levels = [leaves]
    while levels[0].shape[-1] > 1:
        levels.insert(0, levels[0][..., 0::2] + levels[0][..., 1::2])
    return OutcomeCounts(tuple(levels), log.slots - levels[0].sum(axis=(2, 3)))


def count_visits(log: Log, partition: Partition) -> VisitCounts:
    """Count how often each node was visited, and where each visit led."""
    shape = partition.pair_count, partition.state_count
    tallies = log.visit_tallies(partition)
    moves = [sparse.csr_array((times, np.divmod(cells, shape[1])), shape=shape) for cells, times in tallies]
    return VisitCounts(np.stack([each.sum(axis=1) for each in moves]), tuple(moves))
