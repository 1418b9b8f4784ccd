"""Simulated logs as datasets of Minari, for libraries of offline reinforcement learning.

    export_minari("shop/simulated-v0", problem, model.sample(1000, rng=rng), rng=rng)

A log that exists cannot be exported, only one that is simulated here: with demand of a private model, what leaves the
house was released already. Observations are states and actions are levels, in the user's units. Rewards are the
problem's function of what a log shows. `poolrl.read_minari` is the way back.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from poolrl.problems.inventory import Behaviour
from poolrl.problems.problem import OutcomeProblem
from poolrl.simulation.logs import simulate_log

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
