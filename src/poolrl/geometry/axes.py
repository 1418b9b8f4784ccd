"""Axes: one evenly spaced axis per coordinate, on which separable values are piecewise linear."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray, IntArray, whole
from poolrl.geometry.partition import LARGEST_TABLE
from poolrl.geometry.resolution import ACTION_POINTS, STATE_POINTS
from poolrl.problems.problem import SeparableProblem


@dataclass(frozen=True)
class Separable:
    """Values as a sum over coordinates, each piecewise linear between `points` (the default where declared).

    By default `points` is 257 where the action alone decides what happens next, else 65 for each of state and action.
    """

    points: int | None = None

    def __post_init__(self) -> None:
        if self.points is not None:
            whole(at_least=2, points=self.points)

    def axes(self, problem: SeparableProblem) -> Axes:
        """The points of every coordinate and step."""
        return Axes(problem, self.points or (ACTION_POINTS if problem.action_sets_state else STATE_POINTS))


@dataclass(frozen=True)
class Axes:
    """For each coordinate P state points over its range and P action points up to λ_h.

    Q has shape (k, P) where the action alone decides what happens next, else (k, P · P) with the state first. Beyond
    the last point Q is flat, because nothing is observed there. With `beyond` the points go on past λ_h, for a planner
    who knows the outcomes there. Actions stay below λ_h in both cases.
    """

    problem: SeparableProblem
    points: int
    beyond: bool = False

    def __post_init__(self) -> None:
        if (cells := math.prod(self.q_shape) * self.points) > LARGEST_TABLE:
            raise ValueError(f"{self.points} points make {cells:.1e} transitions, more than {LARGEST_TABLE:.0e}")

    @property
    def q_shape(self) -> tuple[int, ...]:
        """(k, N)."""
        return self.problem.state_dim, self.points if self.problem.action_sets_state else self.points**2

    def state_axis(self) -> FloatArray:
        """(P, k)."""
        return np.linspace(self.problem.state_low, self.problem.state_high, self.points)

    def action_axis(self, step: int) -> FloatArray:
        """(P, k), ending at the boundary unless it goes beyond."""
        low, high = self.problem.action_low, self.problem.action_high
        if self.beyond:
            return np.linspace(low, high, self.points)
        limit = low + self.problem.boundary.share[step, self.problem.state_dim :] * (high - low)
        lower = self.problem.boundary.side == "lower"
        return np.linspace(low, limit, self.points) if lower else np.linspace(limit, high, self.points)

    def nodes(self, step: int) -> tuple[FloatArray, FloatArray]:
        """States and actions at which Q is computed, (N, k) each: all coordinates side by side."""
        state, action = self.state_axis(), self.action_axis(step)
        if self.problem.action_sets_state:
            return np.broadcast_to(self.problem.state_low, action.shape), action
        return np.repeat(state, self.points, axis=0), np.tile(action, (self.points, 1))

    def read(self, step: int, q: FloatArray, state: FloatArray, action: FloatArray) -> FloatArray:
        """Q of every coordinate (..., k) at states and actions (..., k); flat beyond the axes, as the paper asks."""
        column = np.arange(self.problem.state_dim)
        lower, part = position_on(action, self.action_axis(step))
        if self.problem.action_sets_state:
            return (1 - part) * q[column, lower] + part * q[column, lower + 1]
        row, row_part = position_on(state, self.state_axis())
        table = q.reshape(len(q), self.points, self.points)
        first = (1 - part) * table[column, row, lower] + part * table[column, row, lower + 1]
        second = (1 - part) * table[column, row + 1, lower] + part * table[column, row + 1, lower + 1]
        return (1 - row_part) * first + row_part * second

    def greedy(self, step: int, q: FloatArray, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The best allowed action of each coordinate and its value, (m, k) each; ties go to the smallest."""
        low, high = self.problem.allowed(step, state)
        # Clipping the axis into the allowed interval tries its two ends and every point between them.
        tried = np.clip(self.action_axis(step)[:, None], low, high)  # (P, m, k)
        scores = self.read(step, q, np.broadcast_to(state, tried.shape), tried)
        best = scores.argmax(axis=0)[None]
        return np.take_along_axis(tried, best, axis=0)[0], np.take_along_axis(scores, best, axis=0)[0]

    def state_values(self, step: int, q: FloatArray) -> FloatArray:
        """V_h on the state axis, (k, P)."""
        state = self.state_axis()
        if not self.problem.action_sets_state:
            return np.ascontiguousarray(self.greedy(step, q, state)[1].T)
        # Q is a curve over the action alone, and V is its maximum over the allowed interval. `greedy` would find the
        # same, but would try every point in every state.
        axis, (low, high) = self.action_axis(step), self.problem.allowed(step, state)
        curve = self.read(step, q, state, axis)
        best = np.where(axis[0] <= low, self.read(step, q, state, low), -np.inf)
        best = np.maximum(best, np.where(axis[-1] >= high, self.read(step, q, state, high), -np.inf))
        for i, points in enumerate(axis.T):
            inside = (points >= low[:, i, None]) & (points <= high[:, i, None])
            best[:, i] = np.maximum(best[:, i], np.where(inside, curve[:, i], -np.inf).max(axis=1))
        return np.ascontiguousarray(best.T)


def position_on(values: FloatArray, axis: FloatArray) -> tuple[IntArray, FloatArray]:
    """Where values (..., k) stand on evenly spaced axes (P, k): the point below, and the share to the next."""
    position = (values - axis[0]) / (axis[-1] - axis[0]) * (len(axis) - 1)
    position = np.clip(position, 0.0, len(axis) - 1.0)
    lower = np.minimum(np.floor(position), len(axis) - 2).astype(np.int64)
    return lower, position - lower
