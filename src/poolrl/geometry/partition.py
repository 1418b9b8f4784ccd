"""A partition of the observable space into nodes: where Q and V are known, and how to read them elsewhere.

Zones and grids differ in where their nodes lie and in how a point is read from them. The rest is here. All geometry is
public and uses oriented unit coordinates, where the observable region is [0, λ_h].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Protocol

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.geometry.resolution import ACTION_DRAWS_LOG2, FEWEST_ACTIONS, MOST_ACTIONS
from poolrl.problems.problem import Problem

# Rows at which Q is read at a time. This bounds memory and changes no result.
BLOCK = 200_000
# The most numbers (8 bytes each) in a table that is held in memory.
LARGEST_TABLE = 200_000_000
# (space, states, low, high, chosen, values): writes the best candidate of each state and its value.
Search = Callable[..., None]


class Nodes(Protocol):
    """Nodes of one space (pairs or states) at one step."""

    @property
    def count(self) -> int:
        """N."""

    @property
    def points(self) -> FloatArray:
        """Where the nodes lie, (N, dimensions)."""

    @property
    def directions(self) -> FloatArray | None:
        """Vectors (cells, J, dimensions) that distinguish the J nodes of a cell; None where a cell is one node."""

    def cell(self, unit: FloatArray) -> IntArray:
        """The cell of each point, (m,), by arithmetic that works on arrays and on columns of a table."""

    def weights(self, unit: FloatArray) -> tuple[IntArray, FloatArray]:
        """Nodes (m, j) and convex weights (m, j) from which a function is read at each point."""

    def search(self, q: FloatArray) -> Search | None:
        """A compiled search for the best candidate action; None where Q is read at each candidate instead."""

    def arrays(self) -> dict[str, FloatArray]:
        """What rebuilds the nodes from a file."""


@dataclass(frozen=True)
class Partition:
    """Nodes of (state, action) pairs for each step, up to λ_h, and of states everywhere: s′ has no boundary."""

    problem: Problem
    pairs: tuple[Nodes, ...]  # H
    states: Nodes

    def __post_init__(self) -> None:
        # Q and the visit counts of all steps are held in memory; kernels are not.
        cells = max(len(self.pairs) * self.pair_count, self.state_count)
        if cells > LARGEST_TABLE:
            raise ValueError(
                f"{self.pair_count:,} pair nodes × {len(self.pairs)} steps make {cells:.1e} values, more than "
                f"{LARGEST_TABLE:.0e}: use fewer zones or bins, or Separable"
            )

    @property
    def q_shape(self) -> tuple[int, ...]:
        """(N,)."""
        return (self.pair_count,)

    @property
    def v_shape(self) -> tuple[int, ...]:
        """(S,)."""
        return (self.state_count,)

    @property
    def pair_count(self) -> int:
        """N."""
        return self.pairs[0].count

    @property
    def state_count(self) -> int:
        """S."""
        return self.states.count

    def pair_index(self, step: int, state: FloatArray, action: FloatArray) -> IntArray:
        """Where each pair is counted, −1 beyond the boundary."""
        unit = self.problem.unit_pair(state, action)
        inside = self.problem.within(step, unit).all(axis=-1)
        return np.where(inside, self._index(self.pairs[step], unit), -1)

    def state_index(self, state: FloatArray) -> IntArray:
        """Where each state is counted."""
        return self._index(self.states, self.problem.unit_state(state))

    def _index(self, nodes: Nodes, unit: FloatArray) -> IntArray:
        cell, directions = nodes.cell(unit), nodes.directions
        if directions is None:
            return cell
        return cell * directions.shape[1] + self.nearest(directions[cell], unit)

    @staticmethod
    def nearest(directions: FloatArray, unit: FloatArray) -> IntArray:
        """Which of J directions (..., J, dimensions) makes the smallest angle with each point; the first of equals.

        Products are added from left to right, so that every engine finds the same bits.
        """
        count, dimensions = directions.shape[-2], range(unit.shape[-1])
        cosines = [reduce(add, [directions[..., j, i] * unit[..., i] for i in dimensions]) for j in range(count)]
        best, chosen = cosines[0], np.zeros_like(cosines[0], dtype=np.int64)
        for j, cosine in enumerate(cosines[1:], start=1):
            chosen = np.where(cosine > best, j, chosen)
            best = np.maximum(best, cosine)
        return chosen

    def read(self, step: int, q: FloatArray, state: FloatArray, action: FloatArray) -> FloatArray:
        """Q̲_h(s, a): a convex combination of nodes within λ, the boundary's value beyond it."""
        unit = self.problem.unit_pair(state, action)
        outside = ~self.problem.within(step, unit)
        if outside.any():
            unit = np.where(outside.any(axis=-1, keepdims=True), self.problem.boundary.reach[step], unit)
        nodes, weights = self.pairs[step].weights(unit)
        return np.asarray(np.einsum("mj,mj->m", q[nodes], weights))

    def greedy(self, step: int, q: FloatArray, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The best allowed action in each state (m, d) and its value (m,); ties go to the first candidate."""
        low, high = self.problem.allowed(step, state)
        candidates, search = self.candidates, self.pairs[step].search(q)
        if search is not None:
            best, values = self._searched(step, q, state, low, high, search)
            return low + candidates[best] * (high - low), values
        actions, values = np.empty_like(low), np.empty(len(state))
        block = max(1, BLOCK // len(candidates))
        for start in range(0, len(state), block):
            rows = slice(start, start + block)
            tried = low[rows, None] + candidates * (high - low)[rows, None]
            states = np.broadcast_to(state[rows, None], (*tried.shape[:2], state.shape[1]))
            flat = self.read(step, q, states.reshape(-1, states.shape[2]), tried.reshape(-1, tried.shape[2]))
            scores = flat.reshape(tried.shape[:2])
            best = scores.argmax(axis=1)
            actions[rows] = tried[np.arange(len(best)), best]
            values[rows] = scores[np.arange(len(best)), best]
        return actions, values

    def _searched(
        self, step: int, q: FloatArray, state: FloatArray, low: FloatArray, high: FloatArray, search: Search
    ) -> tuple[IntArray, FloatArray]:
        """Which candidate is best in each state (m,), and its value (m,)."""
        chosen, values = np.zeros(len(state), dtype=np.int64), np.zeros(len(state))
        if not q.any():
            # Nothing is known, so the first candidate is as good as any.
            return chosen, values
        from poolrl.geometry.compiled_nodes import SearchSpace, in_blocks

        problem, boundary = self.problem, self.problem.boundary
        span, mirrored = problem.action_high - problem.action_low, boundary.side == "higher"
        space = SearchSpace(self.candidates, problem.action_low, span, mirrored, boundary.reach[step])
        inputs = [np.ascontiguousarray(part) for part in (problem.unit_state(state), low, high)]
        in_blocks(lambda rows: search(space, *(part[rows] for part in inputs), chosen[rows], values[rows]), len(state))
        return chosen, values

    def state_values(self, step: int, q: FloatArray) -> FloatArray:
        """Ṽ_h at the state nodes, (S,)."""
        return self.greedy(step, q, self.problem.natural_state(self.states.points))[1]

    @cached_property
    def candidates(self) -> FloatArray:
        """Actions tried in every state as shares of the allowed box: its corners, then an even spread."""
        dimensions = self.problem.action_dim
        if dimensions == 1:
            # Twice as many as nodes along the axis, so that some action falls inside every grid cell and ring.
            return np.linspace(0.0, 1.0, int(np.clip(2 * self.state_count + 1, FEWEST_ACTIONS, MOST_ACTIONS)))[:, None]
        # It takes a third of a second to import, and inventory does not need it.
        from scipy.stats import qmc

        ends = np.array([np.zeros(dimensions), np.ones(dimensions)])
        return np.concatenate([ends, qmc.Sobol(dimensions, scramble=False).random_base2(ACTION_DRAWS_LOG2)])
