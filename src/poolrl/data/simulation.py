"""Simulated logs: what a shop would have recorded under a demand path and a behaviour policy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from poolrl.arrays import FloatArray, finite_array
from poolrl.data.trajectories import Trajectories
from poolrl.problems.problem import OutcomeProblem


def simulate_log(
    problem: OutcomeProblem,
    outcomes: ArrayLike,
    *,
    rng: np.random.Generator,
    behaviour: Callable[[int, FloatArray, np.random.Generator], FloatArray] | None = None,
) -> Trajectories:
    """Play outcomes (episodes, horizon, k) and log states, actions and next states.

    The default behaviour is uniform over the actions that are feasible and within λ.
    """
    paths = finite_array("outcomes", outcomes, dimensions=3)
    if paths.shape[1:] != (problem.horizon, problem.outcome_dim):
        wanted = f"(episodes, {problem.horizon}, {problem.outcome_dim})"
        raise ValueError(f"outcomes must have shape {wanted}, got {paths.shape}")
    if (paths < problem.outcome_low).any() or (paths > problem.outcome_high).any():
        raise ValueError("outcomes must lie within the problem's public bounds")
    state = np.tile(problem.initial_state, (len(paths), 1))
    states, actions, next_states = [], [], []
    for step in range(problem.horizon):
        if behaviour is None:
            low, high = problem.allowed(step, state)
            action = rng.uniform(low, high)
        else:
            low, high = problem.feasible(step, state)
            action = np.clip(np.asarray(behaviour(step, state, rng), dtype=np.float64), low, high)
        arrived = problem.next_state(step, state, action, paths[:, step])
        states.append(state)
        actions.append(action)
        next_states.append(arrived)
        state = arrived
    return Trajectories(
        states=np.stack(states, axis=1),
        actions=np.stack(actions, axis=1),
        next_states=np.stack(next_states, axis=1),
    )
