"""Separable values: one piecewise-linear function per coordinate, planned on the outcomes' marginals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.arrays import FloatArray, IntArray, whole
from poolrl.learning.kernel import Stage, Stages
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.partition import BLOCK, LARGEST_TABLE
from poolrl.problems.problem import SeparableProblem

# Points of the second look between two points of the axis; odd, so that the axis' own point is among them.
FINER = 33


@dataclass(frozen=True)
class Separable:
    """Values as a sum over coordinates, each piecewise linear between `points` (the default where declared).

    Left out, `points` is 257 where the action alone decides what happens next, else 65 for each of state and action.
    """

    points: int | None = None

    def __post_init__(self) -> None:
        if self.points is not None:
            whole(at_least=2, points=self.points)

    def axes(self, problem: SeparableProblem) -> Axes:
        """The points of every coordinate and step."""
        return Axes(problem, self.points or (257 if problem.action_sets_state else 65))


@dataclass(frozen=True)
class Axes:
    """For each coordinate P state points over its range and P action points up to λ_h.

    Q has shape (k, P) where the action alone decides what happens next, else (k, P · P) with the state first. Beyond
    the last point Q is flat: a learner knows nothing there. With `beyond` the points go on past λ_h for a planner who
    knows; actions stay below λ_h all the same.
    """

    problem: SeparableProblem
    points: int
    beyond: bool = False

    def __post_init__(self) -> None:
        cells = self.problem.state_dim * self.points * self.points
        cells *= 1 if self.problem.action_sets_state else self.points
        if cells > LARGEST_TABLE:
            raise ValueError(
                f"{self.points} points make {cells:.1e} transitions, more than {LARGEST_TABLE:.0e}: use fewer"
            )

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
        lower, part = _position(action, self.action_axis(step))
        if self.problem.action_sets_state:
            return (1 - part) * q[column, lower] + part * q[column, lower + 1]
        row, row_part = _position(state, self.state_axis())
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
        return self.greedy(step, q, self.state_axis())[1].T


def stages_from_marginals(outcomes: OutcomeDistribution, axes: Axes) -> Stages:
    """Expected reward and next-state weights of every coordinate, exact for piecewise-linear values."""
    problem, points = axes.problem, axes.points
    drawn = outcomes.points.T  # (B, k)

    def stages(step: int) -> list[Stage]:
        state, action = axes.nodes(step)
        count, coordinates = action.shape
        reward = np.empty((coordinates, count))
        kernel = np.empty((coordinates, count, points))
        block = max(1, 10 * BLOCK // len(drawn))
        for start in range(0, count, block):
            rows = slice(start, min(start + block, count))
            here, chosen = state[rows, None], action[rows, None]
            arrived = problem.next_state(step, here, chosen, drawn[None])  # (rows, B, k)
            rewards = problem.coordinate_reward(step, here, chosen, arrived)
            lower, part = _position(arrived, axes.state_axis())
            size = len(lower)
            cell = np.arange(size)[:, None] * points
            for i in range(coordinates):
                weight = outcomes.weights[step, i]
                reward[i, rows] = rewards[..., i] @ weight
                left = (cell + lower[..., i]).ravel()
                up = (part[..., i] * weight).ravel()
                down = np.broadcast_to(weight, (size, len(weight))).ravel() - up
                flat = np.bincount(left, down, minlength=size * points)
                flat += np.bincount(left + 1, up, minlength=size * points)
                kernel[i, rows] = flat.reshape(size, points)
        return [Stage(reward, kernel)]

    return stages


def order_up_to_levels(outcomes: OutcomeDistribution, axes: Axes, q: FloatArray) -> FloatArray:
    """The best action of each step and coordinate, (H, k), where the action alone decides what happens next.

    Q_h is concave between the points around its maximum too, so a second, finer look there finds the level
    that the axis could only bracket.
    """
    problem, horizon = axes.problem, len(q)
    drawn, column = outcomes.points.T, np.arange(problem.state_dim)
    levels = np.empty((horizon, problem.state_dim))
    value = np.zeros((problem.state_dim, axes.points))
    for step in reversed(range(horizon)):
        axis, best = axes.action_axis(step), q[step].argmax(axis=1)
        low = axis[np.maximum(best - 1, 0), column]
        high = axis[np.minimum(best + 1, axes.points - 1), column]
        fine = np.linspace(low, high, FINER)  # (F, k)
        arrived = problem.next_state(step, problem.state_low, fine[:, None], drawn[None])  # (F, B, k)
        reward = problem.coordinate_reward(step, problem.state_low, fine[:, None], arrived)
        lower, part = _position(arrived, axes.state_axis())
        future = (1 - part) * value[column, lower] + part * value[column, lower + 1]
        expected = np.einsum("fbk,kb->fk", reward + future, outcomes.weights[step])
        levels[step] = np.clip(fine[expected.argmax(axis=0), column], *problem.allowed(step, problem.state_low))
        value = axes.state_values(step, q[step])
    return levels


def _position(values: FloatArray, axis: FloatArray) -> tuple[IntArray, FloatArray]:
    """Where values (..., k) stand on evenly spaced axes (P, k): the point below, and the way to the next."""
    position = (values - axis[0]) / (axis[-1] - axis[0]) * (len(axis) - 1)
    position = np.clip(position, 0.0, len(axis) - 1.0)
    lower = np.minimum(np.floor(position), len(axis) - 2).astype(np.int64)
    return lower, position - lower
