"""Exact counts of a log: what the door adds noise to.

Both kinds are tables whose cells follow from public facts alone, so empty cells are counted too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from poolrl.checks import IntArray
from poolrl.data.cells import joint_cells, left_cells
from poolrl.data.log import Log
from poolrl.data.trajectories import Trajectories
from poolrl.geometry.partition import Partition
from poolrl.geometry.resolution import JOINT_BANDS, LEFT_PARTS, TOGETHER_PARTS
from poolrl.problems.problem import OutcomeProblem


@dataclass(frozen=True)
class OutcomeCounts:
    """Trees of censored outcomes, one per label cell, step, coordinate and kind (seen, cut off).

    Each of the `levels` has shape (*labels, H, k, kinds, size): how many slots fall into each of `size` ranges.
    `unobserved` (H, k) counts the others: rows beyond λ or unusable, and slots that a unit does not fill. Where labels
    are public it is (*labels, H, k), and `totals` (*labels, H) says how many slots there are.
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


def count_outcomes(log: Log, problem: OutcomeProblem, *, level_sizes: tuple[int, ...]) -> OutcomeCounts:
    """Count what every row shows of its outcome: seen in a bin, cut off in a bin, or unobserved."""
    bins = level_sizes[-1]
    leaves = log.outcome_leaves(problem, bins=bins)
    trees = leaves.reshape(*leaves.shape[:-1], problem.kinds, bins)
    levels = tuple(trees.reshape(*trees.shape[:-1], size, -1).sum(axis=-1) for size in level_sizes)
    observed = leaves.sum(axis=-1)
    if log.facts.labels_public:
        totals = log.label_totals(problem)
        return OutcomeCounts(levels, totals[..., None] - observed, totals)
    everywhere = observed.reshape(-1, *observed.shape[-2:]).sum(axis=0)
    return OutcomeCounts(levels, log.slots - everywhere, None)


def count_joint(log: Log, problem: OutcomeProblem, *, bands: int) -> IntArray:
    """How many rows have each level and show each outcome, seen or cut off, (*labels, H, k, bands, 2, bands)."""
    leaves = log.outcome_leaves(problem, bins=bands, formula=joint_cells)
    return leaves.reshape(*leaves.shape[:-1], bands, 2, bands)


def sum_left(log: Log, problem: OutcomeProblem) -> IntArray:
    """The amount left by all rows together, (*labels, H, k), in parts of the bound: each row adds 0 .. LEFT_PARTS."""
    leaves = log.outcome_leaves(problem, bins=LEFT_PARTS + 1, formula=left_cells)
    return np.asarray(leaves @ np.arange(LEFT_PARTS + 1))


def count_visits(log: Log, partition: Partition) -> VisitCounts:
    """Count how often each node was visited, and where each visit led."""
    if not isinstance(log, Trajectories):
        raise ValueError("a Table needs outcome counts: use counts=Outcomes(), or read it by Trajectories.from_table")
    shape = partition.pair_count, partition.state_count
    tallies = log.visit_tallies(partition)
    moves = [sparse.csr_array((times, np.divmod(cells, shape[1])), shape=shape) for cells, times in tallies]
    return VisitCounts(np.stack([each.sum(axis=1) for each in moves]), tuple(moves))


def sum_together(log: Log, problem: OutcomeProblem, *, edges: IntArray) -> IntArray:
    """Do products sell much or little together? Of all rows of a step, (H, 3): pairs beyond, below, on two sides.

    A row whose level reaches its public edge (*labels, H, k), among `TOGETHER_BANDS`, shows on which side of it the
    outcome lies, cut off or not. Two products of a trajectory that both show it are a pair. Lower levels would show low
    outcomes only. A row adds its share of all k (k − 1) / 2 pairs, in whole parts, rounded down: at most
    `TOGETHER_PARTS` in all.
    """
    products = problem.outcome_dim
    most = products * (products - 1) // 2
    sums = np.zeros((problem.horizon, 3), dtype=np.int64)
    for step, (crowd, rows) in enumerate(log.crowd_tallies(problem, edges=edges)):
        known, beyond = np.divmod(crowd, products + 1)
        below = known - beyond
        pairs = np.stack([beyond * (beyond - 1) // 2, below * (below - 1) // 2, beyond * below])
        sums[step] = (pairs * TOGETHER_PARTS // most) @ rows
    return sums


# The exact numbers of every table beside the trees, by the name of its budget as in `privacy.sensitivity.ON_TOP`. Some
# are counted beside edges (*labels, H, k) that are chosen from what was released before.
ON_TOP: dict[str, Callable[[Log, OutcomeProblem, Any], IntArray]] = {
    "dependence": lambda log, problem, _: count_joint(log, problem, bands=JOINT_BANDS),
    "left_over": lambda log, problem, _: sum_left(log, problem),
    "together": lambda log, problem, edges: sum_together(log, problem, edges=edges),
}
