"""The paper's zones: rings of equal width in the ℓ₂ norm, each spanned by w + d points.

Departures from the paper, each with its reason in docs/departures.md:
  1. coefficients are made convex;  2. rings end at the largest observable norm;
  3. the points of a ring are feasible and linearly independent, not orthogonal;
  4. a pair is counted at the point of its ring that is nearest in angle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import add
from typing import Self

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray, whole
from poolrl.geometry.partition import Partition, Search
from poolrl.geometry.resolution import RING_COUNT, RING_DRAWS
from poolrl.problems.problem import Problem


@dataclass(frozen=True)
class Zones:
    """Values linear in each of M norm rings; `geometry_seed` draws their points and is public."""

    zones: int = RING_COUNT
    geometry_seed: int = 0

    def __post_init__(self) -> None:
        whole(zones=self.zones)
        whole(at_least=0, geometry_seed=self.geometry_seed)

    def partition(self, problem: Problem) -> Partition:
        """Draw the nodes of every step from the public seed."""
        rng = np.random.default_rng(self.geometry_seed)
        pairs = tuple(self._pair_rings(problem, step, rng) for step in range(problem.horizon))
        return Partition(problem, pairs, self._state_rings(problem, rng))

    def _pair_rings(self, problem: Problem, step: int, rng: np.random.Generator) -> Rings:
        """Rings of pairs, on feasible points wherever a ring has enough of them."""
        reach = problem.boundary.reach[step]
        norms = self._norms(reach, rng)
        drawn = rng.uniform(size=(*norms.shape, len(reach))) * reach
        start = np.minimum(_made_feasible(problem, step, drawn), reach)
        points = _at_norm(start, norms, reach)
        chosen = np.empty((self.zones, RING_DRAWS, len(reach)))
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

    def _state_rings(self, problem: Problem, rng: np.random.Generator) -> Rings:
        reach = np.ones(problem.state_dim)
        norms = self._norms(reach, rng)
        points = _at_norm(rng.uniform(size=(*norms.shape, len(reach))) * reach, norms, reach)
        return Rings.among(points, float(np.linalg.norm(reach)))

    def _norms(self, reach: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Norms (M, draws), each inside its ring."""
        share = np.arange(self.zones)[:, None] + rng.uniform(0.05, 0.95, (self.zones, RING_DRAWS))
        return np.asarray(np.linalg.norm(reach) * share / self.zones)


@dataclass(frozen=True)
class Rings:
    """M rings with D points each in [0, reach] ⊂ [0, 1]^D."""

    corners: FloatArray  # (M, D, D), the points of each ring as rows
    radius: float

    @cached_property
    def _inverse(self) -> FloatArray:
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
        """Keep D of each ring's candidates (M, many, D), the best conditioned by pivoted Gram-Schmidt."""
        from poolrl.geometry.compiled_nodes import in_blocks, independent_points

        chosen = np.empty((len(candidates), candidates.shape[2]), dtype=np.int64)
        in_blocks(lambda rings: independent_points(candidates[rings], chosen[rings]), len(candidates))
        return cls(np.take_along_axis(candidates, chosen[:, :, None], axis=1), radius)

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
        raw = np.maximum(self._coefficients(zone, unit), 0.0)
        # A product, because NumPy's sum along a short axis is slow.
        total = (raw @ np.ones(size))[:, None]
        convex = np.where(total > 0, raw / np.where(total > 0, total, 1.0), 1.0 / size)
        return zone[:, None] * size + np.arange(size), convex

    def search(self, q: FloatArray) -> Search:
        """The best candidate of each state, found without storing what is read."""
        from poolrl.geometry.compiled_nodes import best_in_rings

        return partial(best_in_rings, self._inverse, self.radius, q)

    def _coefficients(self, zone: IntArray, unit: FloatArray) -> FloatArray:
        """b · corners⁻¹ with the corners of each point's own ring, (m, D)."""
        # Ring by ring, because an inverse gathered for every point would move D² numbers per point.
        order = np.argsort(zone, kind="stable")
        present, starts = np.unique(zone[order], return_index=True)
        found = np.empty_like(unit)
        for ring, rows in zip(present, np.split(order, starts[1:]), strict=True):
            found[rows] = unit[rows] @ self._inverse[ring]
        return found

    def arrays(self) -> dict[str, FloatArray]:
        """Corners and radius."""
        return {"corners": self.corners, "radius": np.array(self.radius)}


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
