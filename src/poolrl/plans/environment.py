"""A private model as an environment of Gymnasium: any library of reinforcement learning can train on it, at no cost.

    ModelEnv(model, operations)                       a shop as it is: packs, fixed costs, deliveries
    ModelEnv(model, depot)                            any problem on the model, by its own formulas
    ModelVectorEnv(model, operations, num_envs=64)    many at once, in arrays

An action of a shop is a level for each product, as a share of the highest one: order up to it. Orders become what the
shop can place: whole packs, at least the minimum, nothing without a delivery. An action of another problem is a point
of what the state allows, as shares from the lowest to the highest. The observation is the state in shares of its
bounds, and which step it is. The reward is minus the cost of the step. Outcomes come from the laws of the model, so an
agent can learn nothing that was not released.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from poolrl.checks import FloatArray, whole
from poolrl.learning.model import PrivateModel
from poolrl.plans.orders import one_cell, unit_laws
from poolrl.problems.operations import Operations
from poolrl.problems.problem import LevelProblem, OutcomeProblem

Seen = NDArray[np.float32]
# Actions are in single precision. A level that misses a pack by rounding error counts as reached.
SINGLE = 1e-4


class _World(ABC):
    """Many trajectories of one world, in arrays: states (m, w), and the step that all of them are at."""

    state: FloatArray
    goes_on = False  # only the episode ends with the last step

    def __init__(self, low: FloatArray, high: FloatArray, actions: int, horizon: int, rounds: int = 1) -> None:
        whole(rounds=rounds)
        self.low, self.high, self.horizon, self.steps = low, high, horizon, rounds * horizon
        self.number = self.steps
        self.observed = gym.spaces.Box(0.0, 1.0, (len(low) + horizon,), np.float32)
        self.allowed = gym.spaces.Box(0.0, 1.0, (actions,), np.float32)

    @property
    def step(self) -> int:
        """Which step it is. After the last one the first one is shown."""
        return self.number % self.horizon

    @property
    def ended(self) -> bool:
        """Whether nothing is decided any more."""
        return self.number == self.steps

    def open(self, many: int, rng: np.random.Generator) -> None:
        """The initial state on the first step."""
        self.state, self.number = np.zeros((many, len(self.low))), 0

    def advance(self, actions: Any, rng: np.random.Generator) -> FloatArray:
        """One step of all: their costs (m,). An action that is not a number is the lowest one."""
        if self.ended:
            raise gym.error.ResetNeeded("the trajectory has not begun, or has ended: call reset")
        cost = self.meet(np.clip(np.nan_to_num(np.asarray(actions, dtype=np.float64)), 0.0, 1.0), rng)
        self.number += 1
        return cost

    @abstractmethod
    def meet(self, shares: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Act by shares (m, d), meet the outcomes of the step, and pay (m,)."""

    def see(self) -> Seen:
        """Observations (m, w + H)."""
        day = np.zeros((len(self.state), self.horizon))
        day[:, self.step] = 1.0
        unit = np.clip((self.state - self.low) / (self.high - self.low), 0.0, 1.0)
        return np.concatenate([unit, day], axis=1).astype(np.float32)


class _Shops(_World):
    """A shop of one label cell, whose stock is counted in units and whose orders are those that it can place."""

    def __init__(self, model: PrivateModel, operations: Operations, rounds: int, cell: int, scale: ArrayLike | None):
        self.laws = one_cell(unit_laws(model, operations, scale=scale), cell)
        self.top = self.laws.caps.max(axis=1) * self.laws.width
        self.goes_on = self.laws.terms.cycle
        products, horizon, _ = self.laws.chance.shape
        super().__init__(np.zeros(products), self.top, products, horizon, rounds)

    def order(self, shares: FloatArray) -> FloatArray:
        """The part of the wanted orders that can be ordered, (m, k), in units."""
        terms, step = self.laws.terms, self.step
        cap = self.laws.caps[:, step] * self.laws.width
        wanted = np.minimum(shares * self.top, cap) - self.state
        pack = self.laws.packs * self.laws.width
        order = np.where(terms.pack > 0, np.floor(wanted / pack + SINGLE) * pack, wanted)
        enough = (order > 0) & (order >= terms.minimum[:, step] - 1e-9) & terms.deliveries[:, step]
        return np.where(enough, order, 0.0)

    def meet(self, shares: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Order, sell, and pay for what is left or missing."""
        terms, step, order = self.laws.terms, self.step, self.order(shares)
        left, cost = self.laws.sold(step, self.state + order, order, rng)
        self.state = (1 - terms.spoilage[:, step]) * left
        if self.number + 1 == self.steps and not terms.cycle:
            cost = cost - terms.salvage * self.state
        return cost.sum(axis=1)


class _Formulas(_World):
    """Trajectories of a problem by its own formulas."""

    def __init__(self, model: PrivateModel, problem: OutcomeProblem) -> None:
        if model.guarantee.scaled or problem.labels:
            raise ValueError("formulas of a problem know neither labels nor a scale: give operations, cell and scale")
        self.problem, self._laws = problem, model.under(problem.world)
        super().__init__(problem.state_low, problem.state_high, problem.action_dim, problem.horizon)

    def open(self, many: int, rng: np.random.Generator) -> None:
        """The initial state on the first step, and outcomes that nobody has seen yet."""
        super().open(many, rng)
        self.state = self.state + self.problem.initial_state
        self._outcomes = self._laws.sample(many, rng=rng)

    def meet(self, shares: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Act within what the state allows."""
        low, high = self.problem.allowed(self.step, self.state)
        chosen, outcomes = low + shares * (high - low), self._outcomes[:, self.step]
        cost = self.problem.cost(self.step, self.state, chosen, outcomes)
        self.state = self.problem.next_state(self.step, self.state, chosen, outcomes)[..., : self.problem.state_dim]
        return cost


def _world(model: PrivateModel, of: Operations | OutcomeProblem | None, **shop: Any) -> _World:
    if of is None:
        of = Operations() if isinstance(model.problem, LevelProblem) else model.problem
    if isinstance(of, Operations):
        return _Shops(model, of, shop.get("rounds", 1), shop.get("cell", 0), shop.get("scale"))
    if shop:
        raise ValueError("rounds, cell and scale are for a shop with operations")
    return _Formulas(model, of)


class ModelEnv(gym.Env[Seen, Any]):
    """One trajectory at a time. A shop has `rounds` of its steps, a label `cell`, and a usual `scale`."""

    metadata = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, model: PrivateModel, of: Operations | OutcomeProblem | None = None, **shop: Any) -> None:
        self.world = _world(model, of, **shop)
        self.observation_space, self.action_space = self.world.observed, self.world.allowed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """A new trajectory."""
        super().reset(seed=seed)
        self.world.open(1, self.np_random)
        return self.world.see()[0], {}

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """One step of it."""
        cost = self.world.advance(np.asarray(action)[None], self.np_random)
        last, goes_on = self.world.ended, self.world.goes_on
        return self.world.see()[0], -float(cost[0]), last and not goes_on, last and goes_on, {}


class ModelVectorEnv(VectorEnv[Seen, Any, Any]):
    """Many trajectories at once. All end together, and the step after it begins new ones."""

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self, model: PrivateModel, of: Operations | OutcomeProblem | None = None, *, num_envs: int, **shop: Any
    ) -> None:
        whole(num_envs=num_envs)
        self.world, self.num_envs = _world(model, of, **shop), num_envs
        self.single_observation_space, self.single_action_space = self.world.observed, self.world.allowed
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """New trajectories; one seed for all."""
        super().reset(seed=seed[0] if isinstance(seed, list) else seed)
        self.world.open(self.num_envs, self.np_random)
        return self.world.see(), {}

    def step(self, actions: Any) -> tuple[Seen, FloatArray, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One step of all, or a new beginning."""
        none = np.zeros(self.num_envs, dtype=bool)
        if self.world.ended:
            self.world.open(self.num_envs, self.np_random)
            return self.world.see(), np.zeros(self.num_envs), none, none, {}
        cost = self.world.advance(actions, self.np_random)
        last, goes_on = none | self.world.ended, self.world.goes_on
        return self.world.see(), -cost, last & (not goes_on), last & goes_on, {}
