"""A partition of the observable space into nodes: where Q and V are known, and how to read them elsewhere.

Nodes lie on the cells of a grid (the paper's comparison, and the tables of DP-APVI), or on the paper's zones: rings of
equal width in the ℓ₂ norm, each spanned by w + d points. All geometry is public and uses oriented unit coordinates,
where the observable region is [0, λ_h]. Departures from the paper, each with its reason in docs/departures.md:
  1. coefficients are made convex;  2. rings end at the largest observable norm;
  3. the points of a ring are feasible and linearly independent, not orthogonal;
  4. a pair is counted at the point of its ring that is nearest in angle.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import ClassVar, Self

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray, whole
from poolrl.geometry import resolution
from poolrl.problems.problem import Problem

# Rows at which Q is read at a time. This bounds memory and changes no result.
BLOCK = 200_000
# The most numbers (8 bytes each) in a table that is held in memory.
LARGEST_TABLE = 200_000_000


@dataclass(frozen=True)
class Partition:
    """Nodes of (state, action) pairs for each step, up to λ_h, and of states everywhere: s′ has no boundary.

    Nodes lie in cells. Their `cell` of a point is found by arithmetic that works on arrays and on columns of a table,
    and `weights` are the nodes (m, j) and convex weights (m, j) from which a function is read at points (m, D).
    """

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
        return np.where(inside, self.index(self.pairs[step], unit), -1)

    def state_index(self, state: FloatArray) -> IntArray:
        """Where each state is counted."""
        return self.index(self.states, self.problem.unit_state(state))

    def index(self, nodes: Nodes, unit: FloatArray) -> IntArray:
        """The node of each point in unit coordinates."""
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
        candidates, (low, high) = self.candidates, self.problem.allowed(step, state)
        chosen, values = np.zeros(len(state), dtype=np.int64), np.zeros(len(state))
        if not q.any():  # nothing is known, and the first candidate is as good as any
            return low + candidates[chosen] * (high - low), values
        block = max(1, BLOCK // len(candidates))
        for rows in (slice(start, start + block) for start in range(0, len(state), block)):
            tried = low[rows, None] + candidates * (high - low)[rows, None]
            states = np.repeat(state[rows], len(candidates), axis=0)
            scores = self.read(step, q, states, tried.reshape(len(states), -1)).reshape(tried.shape[:2])
            chosen[rows], values[rows] = scores.argmax(axis=1), scores.max(axis=1)
        return low + candidates[chosen] * (high - low), values

    def state_values(self, step: int, q: FloatArray) -> FloatArray:
        """Ṽ_h at the state nodes, (S,)."""
        return self.greedy(step, q, self.problem.natural_state(self.states.points))[1]

    @cached_property
    def candidates(self) -> FloatArray:
        """Actions tried in every state as shares of the allowed box: its corners, then an even spread."""
        dimensions = self.problem.action_dim
        if dimensions == 1:
            # Twice as many as nodes along the axis, so that some action falls inside every grid cell and ring.
            many = np.clip(2 * self.state_count + 1, resolution.FEWEST_ACTIONS, resolution.MOST_ACTIONS)
            return np.linspace(0.0, 1.0, int(many))[:, None]
        # It takes a third of a second to import, and inventory does not need it.
        from scipy.stats import qmc

        ends = np.array([np.zeros(dimensions), np.ones(dimensions)])
        return np.concatenate([ends, qmc.Sobol(dimensions, scramble=False).random_base2(resolution.ACTION_DRAWS_LOG2)])


@dataclass(frozen=True)
class Grid:
    """Values on `bins` cells per axis of the observable box: constant on a cell, or `linear` between centres."""

    bins: int = resolution.GRID_BINS
    linear: bool = False

    def __post_init__(self) -> None:
        whole(bins=self.bins)

    def partition(self, problem: Problem) -> Partition:
        """Lay the cells over [0, λ_h] of every step."""
        pairs = tuple(Lattice(reach, self.bins, self.linear) for reach in problem.boundary.reach)
        return Partition(problem, pairs, Lattice(np.ones(problem.state_dim), self.bins, self.linear))


@dataclass(frozen=True)
class Lattice:
    """bins^D equal cells of [0, reach], numbered with the last axis fastest."""

    reach: FloatArray
    bins: int
    linear: bool
    # They distinguish the nodes of a cell, but a cell is one node here.
    directions: ClassVar[None] = None

    @property
    def count(self) -> int:
        """bins^D."""
        return int(self.bins ** len(self.reach))

    @property
    def points(self) -> FloatArray:
        """The cells' centres, (bins^D, D)."""
        axis = (np.arange(self.bins) + 0.5) / self.bins
        mesh = np.meshgrid(*[axis * r for r in self.reach], indexing="ij")
        return np.stack([part.ravel() for part in mesh], axis=-1)

    def cell(self, unit: FloatArray) -> IntArray:
        """The cell that holds each point."""
        return self._number(np.clip(np.floor(unit * self.bins / self.reach), 0, self.bins - 1).astype(np.int64))

    def weights(self, unit: FloatArray) -> tuple[IntArray, FloatArray]:
        """The cell itself, or the 2^D centres around the point."""
        if not self.linear:
            return self.cell(unit)[:, None], np.ones((len(unit), 1))
        position = np.clip(unit * self.bins / self.reach - 0.5, 0.0, self.bins - 1.0)
        base = np.minimum(np.floor(position), max(self.bins - 2, 0)).astype(np.int64)
        part = position - base
        nodes, weights = [], []
        for corner in itertools.product((0, 1), repeat=len(self.reach)):
            nodes.append(self._number(np.minimum(base + np.array(corner), self.bins - 1)))
            weights.append(np.where(np.array(corner) == 1, part, 1.0 - part).prod(axis=1))
        return np.stack(nodes, axis=1), np.stack(weights, axis=1)

    def _number(self, cell: IntArray) -> IntArray:
        axes = range(1, len(self.reach))
        return reduce(lambda number, axis: number * self.bins + cell[..., axis], axes, cell[..., 0])


@dataclass(frozen=True)
class Zones:
    """Values linear in each of M norm rings, whose points are drawn from a public seed."""

    zones: int = resolution.RING_COUNT

    def __post_init__(self) -> None:
        whole(zones=self.zones)

    def partition(self, problem: Problem) -> Partition:
        """Draw the nodes of every step, from the seed 0."""
        rng = np.random.default_rng(0)
        pairs = tuple(self._pair_rings(problem, step, rng) for step in range(problem.horizon))
        everywhere = np.ones(problem.state_dim)
        states = _at_norm(*self._drawn(everywhere, rng), everywhere)
        return Partition(problem, pairs, Rings.among(states, float(np.linalg.norm(everywhere))))

    def _pair_rings(self, problem: Problem, step: int, rng: np.random.Generator) -> Rings:
        """Rings of pairs, on feasible points wherever a ring has enough of them."""
        reach = problem.boundary.reach[step]
        drawn, norms = self._drawn(reach, rng)
        start = np.minimum(_made_feasible(problem, step, drawn), reach)
        points = _at_norm(start, norms, reach)
        chosen = np.empty((self.zones, resolution.RING_DRAWS, len(reach)))
        moved = _made_feasible(problem, step, points)
        feasible = np.asarray(np.isclose(moved, points, atol=1e-9).all(axis=-1))
        for zone, ring in enumerate(points):
            held = ring[feasible[zone]]
            # A node that cannot be visited does no harm, but a ring without its w + d nodes could not be read.
            chosen[zone] = np.resize(held if len(held) >= 2 * len(reach) else ring, ring.shape)
        rings = Rings.among(chosen, float(np.linalg.norm(reach)))
        # Feasible points may not span the space, for example where a state leaves one action only.
        flat = rings.dependent
        if flat.any():
            chosen[flat] = _at_norm(drawn, norms, reach)[flat]
            rings = Rings.among(chosen, rings.radius)
        return rings

    def _drawn(self, reach: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Points (M, draws, D) of the box, and norms (M, draws) inside their rings."""
        share = np.arange(self.zones)[:, None] + rng.uniform(0.05, 0.95, (self.zones, resolution.RING_DRAWS))
        return rng.uniform(size=(*share.shape, len(reach))) * reach, np.linalg.norm(reach) * share / self.zones


@dataclass(frozen=True)
class Rings:
    """M rings with D points each in [0, reach] ⊂ [0, 1]^D."""

    corners: FloatArray  # (M, D, D), the points of each ring as rows
    radius: float

    @cached_property
    def inverse(self) -> FloatArray:
        """Coefficients of b on the points of its ring are b · corners⁻¹."""
        return np.asarray(np.linalg.inv(self.corners), dtype=np.float64)

    @property
    def dependent(self) -> BoolArray:
        """Rings (M,) whose points are linearly dependent: their volume is tiny beside their lengths."""
        volume = np.linalg.slogdet(self.corners)[1]
        lengths = np.log(np.maximum(np.linalg.norm(self.corners, axis=-1), 1e-300)).sum(axis=-1)
        return np.asarray(volume - lengths < np.log(1e-12))

    @cached_property
    def directions(self) -> FloatArray:
        """The directions of each ring's points, as vectors of length one."""
        return np.asarray(self.corners / np.linalg.norm(self.corners, axis=-1, keepdims=True), dtype=np.float64)

    @classmethod
    def among(cls, candidates: FloatArray, radius: float) -> Self:
        """Keep D of each ring's candidates (M, many, D), the best conditioned by a pivoted QR."""
        # It takes a while to import, and inventory does not need it.
        from scipy.linalg import qr

        dimensions = candidates.shape[2]
        order = [qr(points.T, mode="r", pivoting=True)[1][:dimensions] for points in candidates]
        return cls(np.take_along_axis(candidates, np.array(order)[..., None], axis=1), radius)

    @property
    def count(self) -> int:
        """M D."""
        return self.corners.shape[0] * self.corners.shape[1]

    @property
    def points(self) -> FloatArray:
        """All points, (M D, D)."""
        return self.corners.reshape(-1, self.corners.shape[-1])

    def cell(self, unit: FloatArray) -> IntArray:
        """The ring of each point, by its norm, added from left to right so that every engine finds the same bits."""
        square = reduce(add, [unit[..., i] * unit[..., i] for i in range(unit.shape[-1])])
        rings = len(self.corners)
        return np.clip(np.floor(np.sqrt(square) * rings / self.radius), 0, rings - 1).astype(np.int64)

    def weights(self, unit: FloatArray) -> tuple[IntArray, FloatArray]:
        """Non-negative coefficients on the ring's points that sum to one; equal where none is positive."""
        zone, size = self.cell(unit), self.corners.shape[1]
        # b · corners⁻¹, ring by ring: an inverse gathered for every point would move D² numbers per point.
        order = np.argsort(zone, kind="stable")
        present, starts = np.unique(zone[order], return_index=True)
        found = np.empty_like(unit)
        for ring, rows in zip(present, np.split(order, starts[1:]), strict=True):
            found[rows] = unit[rows] @ self.inverse[ring]
        raw = np.maximum(found, 0.0)
        # A product, because NumPy's sum along a short axis is slow.
        total = (raw @ np.ones(size))[:, None]
        convex = np.where(total > 0, raw / np.where(total > 0, total, 1.0), 1.0 / size)
        return zone[:, None] * size + np.arange(size), convex


# Of one space (pairs or states) at one step.
Nodes = Lattice | Rings


def _made_feasible(problem: Problem, step: int, unit: FloatArray) -> FloatArray:
    """Points whose actions are moved into the feasible box of their states."""
    state, action = problem.natural_pair(unit)
    return np.clip(problem.unit_pair(state, np.clip(action, *problem.feasible(step, state))), 0.0, 1.0)


def _at_norm(points: FloatArray, norm: FloatArray, reach: FloatArray) -> FloatArray:
    """Move points of the box to a norm inside the box: towards the origin, or towards the far corner."""
    length = np.linalg.norm(points, axis=-1)
    shrunk = points * (norm / np.maximum(length, 1e-300))[..., None]
    # |p + t (reach − p)|² = norm² is a quadratic in t with one root in [0, 1].
    way = reach - points
    a = np.maximum((way**2).sum(axis=-1), 1e-300)
    b, c = (points * way).sum(axis=-1), length**2 - norm**2
    t = np.clip((-b + np.sqrt(np.maximum(b * b - a * c, 0.0))) / a, 0.0, 1.0)
    return np.where((length > norm)[..., None], shrunk, points + t[..., None] * way)
