"""Exact counts of a log, the last sensitive form before the door.

Both kinds are tables over cells that public facts alone define, so that empty cells are there too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from poolrl.arrays import FloatArray, IntArray
from poolrl.data.trajectories import Trajectories
from poolrl.problems.problem import OutcomeProblem


@dataclass(frozen=True)
class OutcomeCounts:
    """Dyadic trees of censored outcomes, one per step, coordinate and kind (seen, cut off).

    `levels[l]` has shape (H, k, kinds, 2ˡ): how many slots fall into each of 2ˡ equal ranges. `unobserved`
    (H, k) counts the slots that tell nothing: rows beyond λ, and places that a unit does not fill.
    """

    levels: tuple[IntArray, ...]
    unobserved: IntArray
    slots: int


@dataclass(frozen=True)
class VisitCounts:
    """The paper's counts: n(b) as `pairs` (H, N), and n(b, s′) row by row, for the whole table rarely fits in memory.

    `nodes` and `targets` (H, n) say where each row of the log was and where it led; node −1 is unobserved.
    """

    pairs: IntArray
    nodes: IntArray
    targets: IntArray
    state_count: int

    def transitions(self, step: int, rows: IntArray) -> IntArray:
        """n(b, s′) for the nodes b in `rows` (ascending), (rows, S)."""
        place = np.searchsorted(rows, self.nodes[step])
        place = np.where(place < len(rows), place, 0)
        asked = rows[place] == self.nodes[step] if len(rows) else np.zeros(len(place), dtype=bool)
        cells = place[asked] * self.state_count + self.targets[step][asked]
        return np.bincount(cells, minlength=len(rows) * self.state_count).reshape(len(rows), self.state_count)


class Partition(Protocol):
    """Numbers the nodes of a value representation; made of public facts alone."""

    @property
    def pair_count(self) -> int:
        """N, the number of (state, action) nodes."""

    @property
    def state_count(self) -> int:
        """S, the number of state nodes."""

    def pair_index(self, step: int, state: FloatArray, action: FloatArray) -> IntArray:
        """The node that each (state, action) belongs to, −1 beyond the boundary."""

    def state_index(self, state: FloatArray) -> IntArray:
        """The node that each state belongs to."""


def count_outcomes(log: Trajectories, problem: OutcomeProblem, *, bins: int) -> OutcomeCounts:
    """Count what every row says of its outcome: seen in a bin, cut off in a bin, or nothing."""
    horizon, coordinates, kinds = log.horizon, problem.outcome_dim, 2 if problem.censored else 1
    leaves = np.zeros((horizon, coordinates, kinds, bins), dtype=np.int64)
    coordinate = np.arange(coordinates)
    for step in range(horizon):
        state, action = log.states[:, step], log.actions[:, step]
        seen, cut = problem.observe(step, state, action, log.next_states[:, step])
        unit = (seen - problem.outcome_low) / (problem.outcome_high - problem.outcome_low)
        leaf = np.clip(np.floor(problem.boundary.orient(unit) * bins), 0, bins - 1).astype(np.int64)
        kind = cut.astype(np.int64) if problem.censored else np.zeros_like(leaf)
        cell = (coordinate * kinds + kind) * bins + leaf
        inside = problem.seen_coordinates(step, state, action)
        leaves[step] = np.bincount(cell[inside], minlength=leaves[step].size).reshape(leaves[step].shape)
    levels = [leaves]
    while levels[0].shape[-1] > 1:
        levels.insert(0, levels[0][..., 0::2] + levels[0][..., 1::2])
    unobserved = log.slots - levels[0].sum(axis=(2, 3))
    return OutcomeCounts(tuple(levels), unobserved, log.slots)


def count_visits(log: Trajectories, partition: Partition) -> VisitCounts:
    """Count how often each node was visited, and where each visit led."""
    steps = range(log.horizon)
    nodes = np.stack([partition.pair_index(h, log.states[:, h], log.actions[:, h]) for h in steps])
    targets = np.stack([partition.state_index(log.next_states[:, h]) for h in steps])
    pairs = np.stack([np.bincount(node[node >= 0], minlength=partition.pair_count) for node in nodes])
    return VisitCounts(pairs, nodes, targets, partition.state_count)
