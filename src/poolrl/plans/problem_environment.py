"""Any problem on any private model as an environment of Gymnasium: also a joint one, or one of your own.

    depot = Depot(shop=shop, express=0.5, reserve_holding=0.1, reserve_max=100.0)
    ProblemEnv(model, depot)                        one trajectory at a time
    ProblemVectorEnv(model, depot, num_envs=64)     many at once, in arrays

An action is a point of what the state allows, as shares from the lowest to the highest; the observation is the state in
shares of its bounds, and which step it is. The reward is minus the cost of the step, with outcomes of the model. With
`ShopEnv` orders are what a shop with `Operations` can place.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from poolrl.checks import FloatArray, whole
from poolrl.learning.model import PrivateModel
from poolrl.plans.environment import Seen
from poolrl.problems.problem import OutcomeProblem


class _Paths:
    """Many trajectories of one problem, in arrays: states (m, w) and the step that all of them are at."""

    def __init__(self, model: PrivateModel, problem: OutcomeProblem | None) -> None:
        if model.guarantee.scaled:
            raise ValueError("the model's amounts are multiples of a scale: use ShopEnv, and say how large it is")
        self.problem = model.problem if problem is None else problem
        if self.problem.labels:
            raise ValueError("formulas of a problem know no labels: use ShopEnv, and say which cell")
        self._world, self.step = model.under(self.problem.world), self.problem.horizon
        self.observed = gym.spaces.Box(0.0, 1.0, (self.problem.state_dim + self.problem.horizon,), np.float32)
        self.allowed = gym.spaces.Box(0.0, 1.0, (self.problem.action_dim,), np.float32)

    @property
    def ended(self) -> bool:
        """Whether nothing is decided any more."""
        return self.step == self.problem.horizon

    def open(self, many: int, rng: np.random.Generator) -> None:
        """The initial state on the first step, and outcomes that nobody has seen yet."""
        self.state, self.step = np.tile(self.problem.initial_state, (many, 1)), 0
        self._outcomes = self._world.sample(many, rng=rng)

    def advance(self, actions: Any) -> FloatArray:
        """Act, and meet the outcomes of the step: its costs (m,). What is no number is the lowest action."""
        if self.ended:
            raise gym.error.ResetNeeded("the trajectory has not begun, or has ended: call reset")
        low, high = self.problem.allowed(self.step, self.state)
        share = np.clip(np.nan_to_num(np.asarray(actions, dtype=np.float64)), 0.0, 1.0)
        chosen, met = low + share * (high - low), self._outcomes[:, self.step]
        cost = self.problem.cost(self.step, self.state, chosen, met)
        self.state = self.problem.next_state(self.step, self.state, chosen, met)[..., : self.problem.state_dim]
        self.step += 1
        return cost

    def see(self) -> Seen:
        """Observations (m, w + H). After the last step the first one is shown."""
        bounds = self.problem.state_high - self.problem.state_low
        unit = np.clip((self.state - self.problem.state_low) / bounds, 0.0, 1.0)
        day = np.zeros((len(unit), self.problem.horizon))
        day[:, self.step % self.problem.horizon] = 1.0
        return np.concatenate([unit, day], axis=1).astype(np.float32)


class ProblemEnv(gym.Env[Seen, Any]):
    """One trajectory of a problem."""

    metadata = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, model: PrivateModel, problem: OutcomeProblem | None = None) -> None:
        self.paths = _Paths(model, problem)
        self.observation_space, self.action_space = self.paths.observed, self.paths.allowed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """A new trajectory."""
        super().reset(seed=seed)
        self.paths.open(1, self.np_random)
        return self.paths.see()[0], {}

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """One step of it."""
        cost = self.paths.advance(np.asarray(action)[None])
        return self.paths.see()[0], -float(cost[0]), self.paths.ended, False, {}


class ProblemVectorEnv(VectorEnv[Seen, Any, Any]):
    """Many trajectories at once. All end together, and the step after it begins new ones."""

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, model: PrivateModel, problem: OutcomeProblem | None = None, *, num_envs: int) -> None:
        whole(num_envs=num_envs)
        self.paths, self.num_envs = _Paths(model, problem), num_envs
        self.single_observation_space, self.single_action_space = self.paths.observed, self.paths.allowed
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """New trajectories; one seed for all."""
        super().reset(seed=seed[0] if isinstance(seed, list) else seed)
        self.paths.open(self.num_envs, self.np_random)
        return self.paths.see(), {}

    def step(self, actions: Any) -> tuple[Seen, FloatArray, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One step of all, or a new beginning."""
        none = np.zeros(self.num_envs, dtype=bool)
        if self.paths.ended:
            self.paths.open(self.num_envs, self.np_random)
            return self.paths.see(), np.zeros(self.num_envs), none, none, {}
        cost = self.paths.advance(actions)
        return self.paths.see(), -cost, none | self.paths.ended, none, {}
