"""A private model as an environment of Gymnasium: any library of reinforcement learning can train on it, at no cost.

    ShopEnv(model, operations)                       one shop
    ShopVectorEnv(model, operations, num_envs=64)    many at once, in arrays

An action is a level for each product, as a share of the highest one: order up to it. Orders become what the shop can
place: whole packs, at least the minimum, nothing without a delivery. The observation is the stock of each product, as a
share of its highest level, and which step it is. The reward is minus the cost of the step. Demand comes from the laws
of the model, so an agent can learn nothing that was not released.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from poolrl.checks import FloatArray, whole
from poolrl.learning.model import PrivateModel
from poolrl.plans.unit_laws import one_cell, unit_laws
from poolrl.problems.operations import Operations

Seen = NDArray[np.float32]
# Actions are in single precision: a level that is a pack short by rounding is none short.
SINGLE = 1e-4


class _Shops:
    """Many copies of one shop, in arrays: stock (m, k) and the step that all of them are at."""

    def __init__(self, model: PrivateModel, operations: Operations, rounds: int, cell: int, scale: ArrayLike | None):
        whole(rounds=rounds)
        self.laws = one_cell(unit_laws(model, operations, scale=scale), cell)
        self.products, self.horizon, _ = self.laws.chance.shape
        self.steps = rounds * self.horizon
        self.top = self.laws.caps.max(axis=1) * self.laws.width
        seen = self.products + self.horizon
        self.observed = gym.spaces.Box(0.0, 1.0, (seen,), np.float32)
        self.allowed = gym.spaces.Box(0.0, 1.0, (self.products,), np.float32)

    def open(self, shops: int) -> None:
        """Empty shelves on the first step."""
        self.stock, self.number = np.zeros((shops, self.products)), 0

    def see(self) -> Seen:
        """Observations (m, k + H)."""
        day = np.zeros((len(self.stock), self.horizon))
        day[:, self.number % self.horizon] = 1.0
        return np.concatenate([np.clip(self.stock / self.top, 0.0, 1.0), day], axis=1).astype(np.float32)

    def order(self, actions: FloatArray) -> FloatArray:
        """What can be ordered of what is wanted, (m, k), in units."""
        terms, step = self.laws.terms, self.number % self.horizon
        cap = self.laws.caps[:, step] * self.laws.width
        wanted = np.minimum(np.clip(actions, 0.0, 1.0) * self.top, cap) - self.stock
        pack = self.laws.packs * self.laws.width
        order = np.where(terms.pack > 0, np.floor(wanted / pack + SINGLE) * pack, wanted)
        enough = (order > 0) & (order >= terms.minimum[:, step] - 1e-9) & terms.deliveries[:, step]
        return np.where(enough, order, 0.0)

    def advance(self, actions: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, bool]:
        """One step of all shops: their costs (m,), and whether it was the last."""
        terms, step = self.laws.terms, self.number % self.horizon
        order = self.order(actions)
        level = self.stock + order
        demand = self.laws.drawn(step, len(level), rng)
        left, missing = np.maximum(level - demand, 0.0), np.maximum(demand - level, 0.0)
        cost = terms.fixed[:, step] * (order > 0) + terms.purchase[:, step] * order
        cost = cost + terms.holding[:, step] * left + terms.shortage[:, step] * missing
        self.stock = (1 - terms.spoilage[:, step]) * left
        self.number += 1
        last = self.number == self.steps
        if last and not terms.cycle:
            cost = cost - terms.salvage * self.stock
        return cost.sum(axis=1), last


class ShopEnv(gym.Env[Seen, Any]):
    """One shop of one label cell, for so many rounds of its steps."""

    metadata = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(
        self,
        model: PrivateModel,
        operations: Operations | None = None,
        *,
        rounds: int = 1,
        cell: int = 0,
        scale: ArrayLike | None = None,
    ) -> None:
        self.shops = _Shops(model, operations or Operations(), rounds, cell, scale)
        self.observation_space, self.action_space = self.shops.observed, self.shops.allowed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Empty shelves on the first step."""
        super().reset(seed=seed)
        self.shops.open(1)
        return self.shops.see()[0], {}

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Order up to a share of the highest level of each product."""
        cost, last = self.shops.advance(np.asarray(action, dtype=np.float64)[None], self.np_random)
        # In a cycle the shop goes on; only the episode ends.
        cycle = self.shops.laws.terms.cycle
        return self.shops.see()[0], -float(cost[0]), last and not cycle, last and cycle, {}


class ShopVectorEnv(VectorEnv[Seen, Any, Any]):
    """Many such shops at once. All end together, and the step after it opens them again."""

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        model: PrivateModel,
        operations: Operations | None = None,
        *,
        num_envs: int,
        rounds: int = 1,
        cell: int = 0,
        scale: ArrayLike | None = None,
    ) -> None:
        whole(num_envs=num_envs)
        self.shops, self.num_envs = _Shops(model, operations or Operations(), rounds, cell, scale), num_envs
        self.single_observation_space, self.single_action_space = self.shops.observed, self.shops.allowed
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._ended = True

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Empty shelves on the first step; one seed for all."""
        super().reset(seed=seed[0] if isinstance(seed, list) else seed)
        self.shops.open(self.num_envs)
        self._ended = False
        return self.shops.see(), {}

    def step(self, actions: Any) -> tuple[Seen, FloatArray, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One step of all shops."""
        none = np.zeros(self.num_envs, dtype=bool)
        if self._ended:
            self.shops.open(self.num_envs)
            self._ended = False
            return self.shops.see(), np.zeros(self.num_envs), none, none, {}
        cost, self._ended = self.shops.advance(np.asarray(actions, dtype=np.float64), self.np_random)
        ended, cycle = np.full(self.num_envs, self._ended), self.shops.laws.terms.cycle
        return self.shops.see(), -cost, ended & (not cycle), ended & cycle, {}
