"""Simulated logs: what a shop would have recorded under a demand path and a behaviour policy.

    export_minari("shop/simulated-v0", problem, model.sample(1000, rng=rng), rng=rng)

writes one as a dataset of Minari, for libraries of offline reinforcement learning. A log that exists cannot be
exported: with demand of a private model, everything that leaves the house was released already. `poolrl.read_minari` is
the way back.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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


if TYPE_CHECKING:
    import minari


def export_minari(
    dataset_id: str,
    problem: OutcomeProblem,
    outcomes: ArrayLike,
    *,
    rng: np.random.Generator,
    behaviour: Behaviour | None = None,
    **about: Any,
) -> minari.MinariDataset:
    """Simulate a log as `simulate_log` does, and write it as a local dataset. `about` goes to Minari (author, ...)."""
    import gymnasium as gym
    import minari
    from minari.data_collector import EpisodeBuffer

    if problem.labels:
        raise ValueError("a dataset of Minari has no labels: export the log of a problem without them")
    if problem.shows:
        raise ValueError("a dataset of Minari has states alone: it has no place for what a row shows beside them")
    log = simulate_log(problem, outcomes, rng=rng, behaviour=behaviour)
    seen = np.concatenate([log.states, log.next_states[:, -1:]], axis=1)
    steps = range(problem.horizon)
    rewards = np.stack(
        [problem.reward(h, log.states[:, h], log.actions[:, h], log.next_states[:, h]) for h in steps], axis=1
    )
    ends = [False] * (problem.horizon - 1)
    episodes = [
        EpisodeBuffer(
            id=number,
            observations=list(seen[number]),
            actions=list(log.actions[number]),
            rewards=rewards[number].tolist(),
            terminations=[*ends, True],
            truncations=[*ends, False],
        )
        for number in range(len(log))
    ]
    spaces = {
        "observation_space": gym.spaces.Box(problem.state_low, problem.state_high, dtype=np.float64),
        "action_space": gym.spaces.Box(problem.action_low, problem.action_high, dtype=np.float64),
    }
    described = {"description": "Simulated by poolrl: demand nobody owns.", "data_format": "arrow"} | about
    with warnings.catch_warnings():
        # It misses an author, a link to code and an environment, which a simulated log need not have.
        warnings.simplefilter("ignore", UserWarning)
        return minari.create_dataset_from_buffers(dataset_id, episodes, **spaces, **described)


Inventory.simulate_log = simulate_log
