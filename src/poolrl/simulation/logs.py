"""Simulated logs: what a shop would have recorded under a demand path and a behaviour policy."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, as_floats, finite_array, shaped
from poolrl.data.trajectories import Trajectories
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import OutcomeProblem

# From a step, states (episodes, w) and randomness to actions (episodes, d).
Behaviour = Callable[[int, FloatArray, np.random.Generator], FloatArray]


def simulate_log(
    problem: OutcomeProblem,
    outcomes: ArrayLike,
    *,
    rng: np.random.Generator,
    behaviour: Behaviour | None = None,
    **known: Any,
) -> Trajectories:
    """The log that a shop would have recorded if these outcomes (episodes, horizon, k), for example demand, happened.

    `behaviour(step, states, rng)` returns actions for states (episodes, w). By default they are uniform over what is
    feasible and within λ. For inventory this is also the method `problem.simulate_log`. `known` goes to `Trajectories`:
    with `scale`, amounts of the outcomes and the log are the user's, and those of the problem are multiples.
    """
    paths = finite_array("outcomes", outcomes)
    if paths.shape[1:] != (problem.horizon, problem.outcome_dim):
        wanted = f"(episodes, {problem.horizon}, {problem.outcome_dim})"
        raise ValueError(f"outcomes must have shape {wanted}, got {paths.shape}")
    scaled, unit = "scale" in known, np.ones((*paths.shape[:2], 1))
    if scaled:
        width = problem.scale_dim or problem.outcome_dim
        scale = known["scale"] = shaped("scale", as_floats("scale", known["scale"]), (*paths.shape[:2], width))
        # A row without a valid scale is simulated all the same: the shop was open.
        unit = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
    elif (paths < problem.outcome_low).any() or (paths > problem.outcome_high).any():
        raise ValueError("outcomes must lie within the problem's public bounds")
    state = np.tile(problem.initial_state, (len(paths), 1))
    rows = []
    for step in range(problem.horizon):
        here = state / unit[:, step] if problem.scales_state else state
        if behaviour is None:
            low, high = problem.allowed(step, here)
            action = rng.uniform(low, high) * unit[:, step]
        else:
            low, high = problem.feasible(step, here)
            asked = np.asarray(behaviour(step, state, rng), dtype=np.float64)
            action = np.clip(asked, low * unit[:, step], high * unit[:, step])
        if scaled and problem.scales_state:
            # Dividing and multiplying may lose a rounding error, and stock is never sent back.
            action = np.maximum(action, state)
        arrived = problem.next_state(step, state, action, paths[:, step])
        rows.append((state, action, arrived))
        state = arrived[..., : problem.state_dim]
    states, actions, next_states = (np.stack(part, axis=1) for part in zip(*rows, strict=True))
    return Trajectories(states=states, actions=actions, next_states=next_states, **known)


Inventory.simulate_log = simulate_log
