"""A private model as an environment of Gymnasium: any library of reinforcement learning can train on it, at no cost.

    ModelEnv(model, operations)                       a shop as it is: packs, fixed costs, deliveries
    ModelEnv(model, depot)                            any problem on the model, by its own formulas

An action of a shop is a level for each product, as a share of the highest one; orders become what the shop can place.
An action of another problem is a point of what the state allows, as shares from the lowest to the highest. The
observation is the state in shares of its bounds, and the step. The reward is minus the cost of the step.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from poolrl.checks import FloatArray, whole
from poolrl.learning.model import PrivateModel
from poolrl.plans.orders import one_cell, unit_laws
from poolrl.problems.operations import Operations
from poolrl.problems.problem import LevelProblem, OutcomeProblem

Seen = NDArray[np.float32]
# The next state, and what the step cost.
Acted = tuple[FloatArray, FloatArray]
# Actions are in single precision. A level that misses a pack by rounding error counts as reached.
SINGLE = 1e-4


class _Shop:
    """A shop of one label cell, whose stock (1, k) is counted in units and whose orders are those that it can place."""

    def __init__(self, model: PrivateModel, operations: Operations, cell: int, scale: ArrayLike | None) -> None:
        self.laws = one_cell(unit_laws(model, operations, scale=scale), cell)
        self.high = self.laws.caps.max(axis=1) * self.laws.width
        self.low, self.goes_on = np.zeros_like(self.high), self.laws.terms.cycle
        self.actions, self.horizon, _ = self.laws.chance.shape

    def start(self, rng: np.random.Generator) -> FloatArray:
        """An empty shop."""
        return self.low[None]

    def order(self, step: int, stock: FloatArray, shares: FloatArray) -> FloatArray:
        """The part of the wanted order that can be ordered, in units."""
        terms = self.laws.terms
        cap, pack = self.laws.caps[:, step] * self.laws.width, self.laws.packs * self.laws.width
        wanted = np.minimum(shares * self.high, cap) - stock
        order = np.where(terms.pack > 0, np.floor(wanted / pack + SINGLE) * pack, wanted)
        enough = (order > 0) & (order >= terms.minimum[:, step] - 1e-9) & terms.deliveries[:, step]
        return np.where(enough, order, 0.0)

    def act(self, step: int, stock: FloatArray, shares: FloatArray, rng: np.random.Generator, *, last: bool) -> Acted:
        """Order, sell, and pay for what is left or missing: the next stock, and what the step cost (1, k)."""
        terms, order = self.laws.terms, self.order(step, stock, shares)
        left, cost = self.laws.sold(step, stock + order, order, rng)
        kept = (1 - terms.spoilage[:, step]) * left
        return kept, cost - terms.salvage * kept if last and not terms.cycle else cost


class _Formulas:
    """A trajectory of a problem by its own formulas."""

    goes_on = False

    def __init__(self, model: PrivateModel, problem: OutcomeProblem) -> None:
        if model.guarantee.scaled or problem.labels:
            raise ValueError("formulas of a problem know neither labels nor a scale: give operations, cell and scale")
        self.problem, self.laws = problem, model.under(problem.world)
        self.low, self.high = problem.state_low, problem.state_high
        self.actions, self.horizon = problem.action_dim, problem.horizon

    def start(self, rng: np.random.Generator) -> FloatArray:
        """The initial state (1, w), and outcomes that nobody has seen yet."""
        self.outcomes = self.laws.sample(1, rng=rng)
        return np.zeros((1, len(self.low))) + self.problem.initial_state

    def act(self, step: int, state: FloatArray, shares: FloatArray, rng: np.random.Generator, *, last: bool) -> Acted:
        """Act within what the state allows: the next state, and what the step cost (1,)."""
        low, high = self.problem.allowed(step, state)
        met = step, state, low + shares * (high - low), self.outcomes[:, step]
        return self.problem.next_state(*met)[..., : self.problem.state_dim], self.problem.cost(*met)


class ModelEnv(gym.Env[Seen, Any]):
    """One trajectory at a time. A shop has `rounds` of its steps, a label `cell`, and a usual `scale`."""

    def __init__(
        self,
        model: PrivateModel,
        of: Operations | OutcomeProblem | None = None,
        *,
        rounds: int = 1,
        cell: int = 0,
        scale: ArrayLike | None = None,
    ) -> None:
        whole(rounds=rounds)
        if of is None:
            of = Operations() if isinstance(model.problem, LevelProblem) else model.problem
        if not isinstance(of, Operations) and (rounds > 1 or cell or scale is not None):
            raise ValueError("rounds, cell and scale are for a shop with operations")
        self.world = _Shop(model, of, cell, scale) if isinstance(of, Operations) else _Formulas(model, of)
        self.number = self.steps = rounds * self.world.horizon  # it has not begun
        self.observation_space = gym.spaces.Box(0.0, 1.0, (len(self.world.low) + self.world.horizon,), np.float32)
        self.action_space = gym.spaces.Box(0.0, 1.0, (self.world.actions,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """A new trajectory."""
        super().reset(seed=seed)
        self.number, self.state = 0, self.world.start(self.np_random)
        return self._see(), {}

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """One step of it. An action that is not a number is the lowest one."""
        if self.number == self.steps:
            raise gym.error.ResetNeeded("the trajectory has not begun, or has ended: call reset")
        shares = np.clip(np.nan_to_num(np.asarray(action, dtype=np.float64)), 0.0, 1.0)[None]
        step, last = self.number % self.world.horizon, self.number == self.steps - 1
        self.state, cost = self.world.act(step, self.state, shares, self.np_random, last=last)
        self.number += 1
        goes_on = self.world.goes_on
        return self._see(), -float(cost.sum()), last and not goes_on, last and goes_on, {}

    def _see(self) -> Seen:
        """The state in shares of its bounds, and the step. After the last step the first one is shown."""
        day = np.eye(self.world.horizon)[self.number % self.world.horizon]
        unit = np.clip((self.state[0] - self.world.low) / (self.world.high - self.world.low), 0.0, 1.0)
        return np.concatenate([unit, day]).astype(np.float32)
