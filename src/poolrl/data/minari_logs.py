"""Datasets of Minari as logs. They are as sensitive as any other log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from poolrl.checks import as_floats
from poolrl.data.trajectories import Trajectories

if TYPE_CHECKING:
    import minari


def read_minari(dataset: minari.MinariDataset | str, **known: Any) -> Trajectories:
    """A dataset, or the name of a local one, as a log: observations are states, actions are levels.

    All episodes must have as many steps as the problem has. `known` goes to `Trajectories` (unit, scale, labels, ...).
    """
    if isinstance(dataset, str):
        import minari

        dataset = minari.load_dataset(dataset)
    episodes = list(dataset.iterate_episodes())
    try:
        # The last observation of an episode comes after its last action.
        seen, actions = (
            np.stack([as_floats(name, getattr(each, name)) for each in episodes])
            for name in ("observations", "actions")
        )
    except ValueError:
        raise ValueError("all episodes must have the same number of steps, with numbers as observations") from None
    if seen.ndim != 3 or actions.ndim != 3 or seen.shape[1] != actions.shape[1] + 1:
        raise ValueError("observations and actions must be vectors, one observation more than actions in each episode")
    return Trajectories(states=seen[:, :-1], actions=actions, next_states=seen[:, 1:], **known)
