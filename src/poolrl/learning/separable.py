"""Separable values: one piecewise-linear function per coordinate, planned on the outcomes' marginals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from poolrl.checks import FloatArray
from poolrl.geometry.axes import Axes, position_on
from poolrl.geometry.resolution import FINER_POINTS
from poolrl.learning.kernel import Stages
from poolrl.learning.outcomes import OutcomeDistribution

# So few numbers at a time that they stay in the processor's cache.
CACHED_NUMBERS = 2**15


@dataclass(frozen=True)
class Marginals:
    """One step's nodes against the outcomes' marginals, exact for piecewise-linear values."""

    axes: Axes
    outcomes: OutcomeDistribution
    step: int

    @property
    def rows(self) -> slice:
        """All of them."""
        return slice(None)

    def backup(self, value: FloatArray) -> FloatArray:
        """Σ w (r + V) over every coordinate's outcomes, (k, N)."""
        from poolrl.geometry.compiled import in_blocks
        from poolrl.learning.compiled import expected_sums

        problem, step, axis = self.axes.problem, self.step, self.axes.state_axis()
        state, action = self.axes.nodes(step)
        drawn, weights = self.outcomes.points.T, self.outcomes.weights[step]  # (B, k), (k, B)
        sums = np.empty(action.shape)
        block = max(1, CACHED_NUMBERS // drawn.size)

        def some(rows: slice) -> None:
            for start in range(rows.start, rows.stop, block):
                part = slice(start, min(start + block, rows.stop))
                here, chosen = state[part, None], action[part, None]
                arrived = problem.next_state(step, here, chosen, drawn[None])  # (rows, B, k)
                reward = problem.coordinate_reward(step, here, chosen, arrived)
                both = np.ascontiguousarray(arrived), np.ascontiguousarray(reward)
                expected_sums(*both, weights, axis[0], axis[-1], value, sums[part])

        in_blocks(some, len(action))
        return sums.T


def stages_from_marginals(outcomes: OutcomeDistribution, axes: Axes) -> Stages:
    """Expected reward and value of every coordinate."""
    given = replace(outcomes, weights=np.ascontiguousarray(outcomes.weights))
    return lambda step: [Marginals(axes, given, step)]


def order_up_to_levels(outcomes: OutcomeDistribution, axes: Axes, q: FloatArray) -> FloatArray:
    """The best action of each step and coordinate, (H, k), where the action alone decides what happens next.

    The axis only brackets the best level. Q_h is concave around its maximum, so a second, finer search finds it.
    """
    problem, horizon = axes.problem, len(q)
    drawn, column = outcomes.points.T, np.arange(problem.state_dim)
    levels = np.empty((horizon, problem.state_dim))
    value = np.zeros(axes.v_shape)
    for step in reversed(range(horizon)):
        axis, best = axes.action_axis(step), q[step].argmax(axis=1)
        low = axis[np.maximum(best - 1, 0), column]
        high = axis[np.minimum(best + 1, axes.points - 1), column]
        fine = np.linspace(low, high, FINER_POINTS)  # (F, k)
        arrived = problem.next_state(step, problem.state_low, fine[:, None], drawn[None])  # (F, B, k)
        reward = problem.coordinate_reward(step, problem.state_low, fine[:, None], arrived)
        lower, part = position_on(arrived, axes.state_axis())
        future = (1 - part) * value[column, lower] + part * value[column, lower + 1]
        expected = np.einsum("fbk,kb->fk", reward + future, outcomes.weights[step])
        levels[step] = np.clip(fine[expected.argmax(axis=0), column], *problem.allowed(step, problem.state_low))
        value = axes.state_values(step, q[step])
    return levels
