"""Problems that a user might write without touching the library, one for each kind of declaration."""

from __future__ import annotations

import numpy as np

from poolrl import Boundary, OutcomeProblem, Problem, SeparableProblem, Trajectories
from poolrl.checks import BoolArray, FloatArray


class Wear(Problem):
    """No declared outcomes: a machine's wear grows by an unknown law, an action repairs some of it."""

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon
        self.state_low, self.state_high = np.zeros(1), np.full(1, 10.0)
        self.action_low, self.action_high = np.zeros(1), np.full(1, 10.0)
        self.initial_state = np.zeros(1)
        self.boundary = Boundary(np.ones((horizon, 2)))

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        return -(0.3 * action + next_state).sum(axis=-1)

    def reward_range(self, step: int) -> tuple[float, float]:
        return -13.0, 0.0

    @staticmethod
    def arrive(state: FloatArray, action: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The law that only the simulator knows."""
        return np.clip(state - action + rng.uniform(1, 3, state.shape), 0, 10)


def wear_log(problem: Wear, episodes: int) -> Trajectories:
    """A log of a machine that is repaired at random."""
    rng = np.random.default_rng(7)
    states, actions, arrivals = [], [], []
    state = np.zeros((episodes, 1))
    for _ in range(problem.horizon):
        state = rng.uniform(0, 10, state.shape)
        action = rng.uniform(0, 10, state.shape)
        states.append(state)
        actions.append(action)
        arrivals.append(problem.arrive(state, action, rng))
    return Trajectories(states=np.stack(states, 1), actions=np.stack(actions, 1), next_states=np.stack(arrivals, 1))


class PostedPrice(OutcomeProblem):
    """Declared outcomes and feedback on the higher side: a value ξ at or above the price a is seen, others are not.

    The seller earns the price if the buyer's value reaches it. The state is the last value seen (0: no sale).
    """

    def __init__(self, horizon: int, lowest_price: float = 0.0) -> None:
        self.horizon = horizon
        self.state_low = self.action_low = self.outcome_low = np.zeros(1)
        self.state_high = self.action_high = self.outcome_high = np.full(1, 50.0)
        self.initial_state = np.zeros(1)
        share = np.column_stack([np.zeros(horizon), np.full(horizon, lowest_price / 50.0)])
        self.boundary = Boundary(share, side="higher")

    def next_state(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        return np.where(outcome >= action, outcome, 0.0)

    def observe(
        self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        sold = next_state > 0
        return np.where(sold, next_state, action), ~sold

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        return np.where(next_state > 0, action, 0.0).sum(axis=-1)

    def reward_range(self, step: int) -> tuple[float, float]:
        return 0.0, 50.0


class OrderQuantity(SeparableProblem):
    """Separable, but the state matters: lost sales where the action is the amount ordered, at most `cap`."""

    def __init__(self, horizon: int, products: int, holding: float, shortage: float, cap: float) -> None:
        self.horizon, self.holding, self.shortage = horizon, holding, shortage
        self.state_low = self.action_low = self.outcome_low = np.zeros(products)
        self.state_high = np.full(products, 100.0 + cap)
        self.action_high, self.outcome_high = np.full(products, cap), np.full(products, 100.0)
        self.initial_state = np.zeros(products)
        self.boundary = Boundary(np.ones((horizon, 2 * products)))

    def next_state(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        return np.minimum(np.maximum(state + action - outcome, 0.0), self.state_high)

    def observe(
        self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        return np.minimum(state + action - next_state, self.outcome_high), next_state <= 1e-9

    def coordinate_reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        return self.shortage * (state + action - next_state) - self.holding * next_state

    def reward_range(self, step: int) -> tuple[float, float]:
        return -self.holding * float(self.state_high.sum()), self.shortage * float(self.outcome_high.sum())

    def cost(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        left = state + action - outcome
        return (self.holding * np.maximum(left, 0) + self.shortage * np.maximum(-left, 0)).sum(axis=-1)


class Pinned(Wear):
    """Two state coordinates that determine the action: feasible pairs fill a plane, not the space."""

    def __init__(self, horizon: int) -> None:
        super().__init__(horizon)
        self.state_low, self.state_high, self.initial_state = np.zeros(2), np.full(2, 10.0), np.zeros(2)
        self.boundary = Boundary(np.ones((horizon, 3)))

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        return -next_state.sum(axis=-1)

    def reward_range(self, step: int) -> tuple[float, float]:
        return -20.0, 0.0

    def feasible(self, step: int, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        only = state.mean(axis=-1, keepdims=True)
        return only, only


class BrokenReward(Pinned):
    """A mistake that shows when rewards are computed, which happens after the release."""

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        raise ZeroDivisionError("a mistake in a problem of your own")
