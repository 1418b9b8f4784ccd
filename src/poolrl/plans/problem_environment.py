"""Any problem on any private model as an environment of Gymnasium: also a joint one, or one of your own.

    ProblemEnv(model, Depot(shop=shop, express=0.5, reserve_holding=0.1, reserve_max=100.0))

An action is a point of what the state allows, as shares from the lowest to the highest; the observation is the state in
shares of its bounds, and which step it is. The reward is minus the cost of the step, with outcomes of the model. With
`ShopEnv` orders are what a shop with `Operations` can place.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from poolrl.learning.model import PrivateModel
from poolrl.problems.problem import OutcomeProblem


class ProblemEnv(gym.Env[NDArray[np.float32], Any]):
    """One trajectory of a problem."""

    metadata = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, model: PrivateModel, problem: OutcomeProblem | None = None) -> None:
        if model.guarantee.scaled:
            raise ValueError("the model's amounts are multiples of a scale: use ShopEnv, and say how large it is")
        self.problem = model.problem if problem is None else problem
        if self.problem.labels:
            raise ValueError("formulas of a problem know no labels: use ShopEnv, and say which cell")
        self._world, self._step = model.under(self.problem.world), self.problem.horizon
        width, actions = self.problem.state_dim + self.problem.horizon, self.problem.action_dim
        self.observation_space = gym.spaces.Box(0.0, 1.0, (width,), np.float32)
        self.action_space = gym.spaces.Box(0.0, 1.0, (actions,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """The initial state on the first step, and outcomes that nobody has seen yet."""
        super().reset(seed=seed)
        self._state, self._step = self.problem.initial_state[None], 0
        self._outcomes = self._world.sample(1, rng=self.np_random)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Act, and meet the outcome of the step. What is no number is the lowest action."""
        if self._step == self.problem.horizon:
            raise gym.error.ResetNeeded("the trajectory has not begun, or has ended: call reset")
        low, high = self.problem.allowed(self._step, self._state)
        chosen = low + np.clip(np.nan_to_num(np.asarray(action, dtype=np.float64)), 0.0, 1.0) * (high - low)
        met = self._outcomes[:, self._step]
        cost = float(self.problem.cost(self._step, self._state, chosen, met)[0])
        self._state = self.problem.next_state(self._step, self._state, chosen, met)
        self._step += 1
        return self._seen(), -cost, self._step == self.problem.horizon, False, {}

    def _seen(self) -> NDArray[np.float32]:
        bounds = self.problem.state_high - self.problem.state_low
        state = np.clip((self._state[0] - self.problem.state_low) / bounds, 0.0, 1.0)
        # After the last step the first one is shown: nothing is decided any more.
        day = np.eye(self.problem.horizon)[self._step % self.problem.horizon]
        return np.concatenate([state, day]).astype(np.float32)
