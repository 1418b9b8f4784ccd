"""Axis-aligned grid cells: the paper's comparison, and the tables of DP-APVI."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from poolrl.checks import FloatArray, IntArray, whole
from poolrl.geometry.partition import Partition, Search
from poolrl.geometry.resolution import GRID_BINS
from poolrl.problems.problem import Problem


@dataclass(frozen=True)
class Grid:
    """Values on `bins` cells per axis of the observable box: constant on a cell, or `linear` between centres."""

    bins: int = GRID_BINS
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
    # A cell is one node.
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

    def search(self, q: FloatArray) -> Search | None:
        """The best candidate of each state, for Q that is constant on cells."""
        if self.linear:
            return None
        from poolrl.geometry.compiled_nodes import best_in_cells

        return partial(best_in_cells, self.bins, q)

    def arrays(self) -> dict[str, FloatArray]:
        """Extent, resolution and type."""
        return {"reach": self.reach, "bins": np.array(float(self.bins)), "linear": np.array(float(self.linear))}

    def _number(self, cell: IntArray) -> IntArray:
        number = cell[..., 0]
        for axis in range(1, len(self.reach)):
            number = number * self.bins + cell[..., axis]
        return number
