"""HQL and FQL of Gong and Simchi-Levi (arXiv 2007.00080): Q-learning with one-sided and with full feedback.

Both are online and not private. Demand that is seen once shows what every smaller order would have earned. Q has one
entry per step, product and order-up-to level on a grid; products do not interact, so they learn side by side.
Rewards are scaled to [0, 1]. Step size α_k = (H + 1) / (H + k).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import BoolArray, FloatArray, IntArray, finite_array, whole
from poolrl.data.trajectories import Trajectories
from poolrl.learning.policy import Policy
from poolrl.learning.rules import Levels
from poolrl.privacy.guarantee import Guarantee
from poolrl.problems.inventory import Inventory

FEWEST_OBSERVED = 20  # a level is chosen only if one row in so many has observed it


@dataclass(frozen=True)
class Learned:
    """The policy after the last episode, and what every episode cost while it was learned, (K,)."""

    policy: Policy
    costs: FloatArray


def hql(problem: Inventory, demand: ArrayLike, *, points: int) -> Learned:
    """Elimination-based half-Q-learning: play the largest level that may still be best, and observe all smaller ones.

    Demand (K, H, products) is uncensored; the learner sees it only up to the level it played.
    Guarantee: none.
    """
    return _QLearning(problem, points).play(_checked(problem, demand), eliminate=True)


def fql(problem: Inventory, demand: ArrayLike, *, points: int) -> Learned:
    """Full-feedback Q-learning: every level is updated with the uncensored demand, and the best one is played.

    Guarantee: none.
    """
    return _QLearning(problem, points).play(_checked(problem, demand), eliminate=False)


def replay_log(problem: Inventory, log: Trajectories, *, points: int) -> Policy:
    """Half-Q-learning on a log: each row updates every level up to the one that was ordered.

    Nothing is eliminated, because the log has chosen the levels. A level that fewer than one row in twenty has observed
    is never chosen: too little is known about it. Guarantee: none.
    """
    log.check(problem)
    return _QLearning(problem, points).replay(log)


def _checked(problem: Inventory, demand: ArrayLike) -> FloatArray:
    paths = finite_array("demand", demand)
    if paths.shape[1:] != (problem.horizon, problem.products) or not len(paths):
        raise ValueError(f"demand must have shape (episodes, {problem.horizon}, {problem.products}), got {paths.shape}")
    return paths


class _QLearning:
    def __init__(self, problem: Inventory, points: int) -> None:
        whole(points=points, at_least=2)
        self.problem = problem
        self.points = points
        self.column = np.arange(problem.products)
        self.levels = np.linspace(problem.action_low, problem.action_high, points)  # (P, k)
        self.width = (problem.action_high - problem.action_low) / (points - 1)
        horizon, products = problem.horizon, problem.products
        # Q starts at the most that is left to earn, V_{H+1} = 0.
        self.q = np.broadcast_to(np.arange(horizon, 0.0, -1)[:, None, None], (horizon, points, products)).copy()
        self.active = np.ones(self.q.shape, dtype=bool)
        self.last = np.full((horizon + 1, products), points - 1)  # the largest active level of each step
        self.floor, best = self._reward_bounds()
        # One scale for all steps: dividing each step by its own range would change which policy is best.
        span = (best - self.floor).max(axis=0)  # (1, k)
        self.span = np.where(span > 0, span, 1.0)

    def play(self, demand: FloatArray, *, eliminate: bool) -> Learned:
        """K episodes, each: play forward, then update backward on what was seen."""
        horizon, episodes = self.problem.horizon, len(demand)
        log_term = horizon * math.log(horizon * episodes * self.points)
        costs = np.empty(episodes)
        for k in range(1, episodes + 1):
            costs[k - 1], seen = self._episode(demand[k - 1], eliminate)
            step_size = (horizon + 1) / (horizon + k)
            value = np.zeros((horizon + 1, self.points, self.problem.products))
            for h in reversed(range(horizon)):
                moved = (1 - step_size) * self.q[h] + step_size * self._target(h, seen, value)
                if eliminate:
                    self.q[h] = np.where(self.active[h], moved, self.q[h])
                    candidates = np.where(self.active[h], self.q[h], -np.inf)
                    self.active[h] &= candidates.max(axis=0) - candidates <= math.sqrt(log_term / k)
                    self.last[h] = self.points - 1 - self.active[h][::-1].argmax(axis=0)
                    candidates = np.where(self.active[h], self.q[h], -np.inf)
                else:
                    self.q[h] = candidates = moved
                value[h] = _best_above(candidates)
        return Learned(self._policy(), costs)

    def replay(self, log: Trajectories) -> Policy:
        """One pass over the log; α_k counts how often each level was observed."""
        horizon, products = self.problem.horizon, self.problem.products
        observed = np.zeros(self.q.shape)
        value = np.zeros((horizon + 1, self.points, products))
        value[:horizon] = self.q
        for i in range(len(log)):
            for h in reversed(range(horizon)):
                state, action = log.states[i, h], log.actions[i, h]
                seen = self.problem.observe(h, state, action, log.next_states[i, h])[0]
                arrived = self.problem.next_state(h, self.levels, self.levels, seen)
                reward = self.problem.coordinate_reward(h, self.levels, self.levels, arrived)
                known = (self.levels <= action) | ~np.bool_(self.problem.censored)
                observed[h] += known
                step_size = (horizon + 1) / (horizon + np.maximum(observed[h], 1))
                future = value[h + 1][self._grid_above(arrived), self.column]
                target = (reward - self.floor[h]) / self.span + future
                self.q[h] = np.where(known, (1 - step_size) * self.q[h] + step_size * target, self.q[h])
                value[h] = _best_observed_above(self.q[h], observed[h] > 0)
        self.active = observed >= max(1.0, len(log) / FEWEST_OBSERVED)
        self.active[:, 0] |= ~self.active.any(axis=1)  # without any observation: order nothing
        return self._policy()

    def _policy(self) -> Policy:
        best = np.where(self.active, self.q, -np.inf).argmax(axis=1)  # (H, k)
        table = np.take_along_axis(self.levels, best, axis=0)
        return Policy(self.problem, Levels(table), Guarantee.of_nothing(self.problem.horizon))

    def _episode(self, demand: FloatArray, eliminate: bool) -> tuple[float, FloatArray]:
        """One episode: what it cost, and the demand (H, k) as far as the learner saw it."""
        problem = self.problem
        stock, cost, seen = problem.initial_state, 0.0, np.empty_like(demand)
        for h in range(problem.horizon):
            chosen = self.last[h] if eliminate else self.q[h].argmax(axis=0)
            level = np.maximum(self.levels[chosen, self.column], stock)
            arrived = problem.next_state(h, stock, level, demand[h])
            cost += float(problem.cost(h, stock, level, demand[h]))
            # One-sided: cut off where the shelf ran empty, which is all that levels below need.
            seen[h] = problem.observe(h, stock, level, arrived)[0] if eliminate else demand[h]
            stock = arrived
        return cost, seen

    def _target(self, h: int, seen: FloatArray, value: FloatArray) -> FloatArray:
        """r_{h..τ} + V_τ(x_τ) for every level at step h, (P, k), on the demand that was seen.

        τ is the next step at which a level can be chosen again; until then stock beyond all active levels is kept.
        """
        problem = self.problem
        stock = self.levels
        earned = np.zeros_like(stock)
        waiting: BoolArray = np.ones(stock.shape, dtype=bool)
        result = np.zeros_like(stock)
        for t in range(h, problem.horizon):
            arrived = problem.next_state(t, stock, stock, seen[t])
            reward = problem.coordinate_reward(t, stock, stock, arrived)
            earned = earned + np.where(waiting, (reward - self.floor[t]) / self.span, 0.0)
            stock = np.maximum(arrived, problem.action_low)  # stock owed is ordered first
            index, last = self._grid_above(arrived), self.last[t + 1]
            free = waiting & (index <= last)
            if t == h and free.all():  # as nearly always: nothing has to wait
                return earned + value[t + 1][index, self.column]
            result = np.where(free, earned + value[t + 1][np.minimum(index, last), self.column], result)
            waiting = waiting & ~free
            if not waiting.any():
                break
        return np.where(waiting, earned, result)

    def _grid_above(self, stock: FloatArray) -> IntArray:
        """The first grid level at or above a stock."""
        position = np.ceil((stock - self.problem.action_low) / self.width - 1e-9)
        return np.minimum(np.maximum(position, 0), self.points - 1).astype(np.int64)  # np.clip is slow on small arrays

    def _reward_bounds(self) -> tuple[FloatArray, FloatArray]:
        """The least and largest reward of each step and product, (H, 1, k), at the ends of level and demand."""
        problem = self.problem
        found = []
        for h in range(problem.horizon):
            corners = []
            for level in (problem.action_low, problem.action_high):
                for demand in (problem.outcome_low, problem.outcome_high):
                    arrived = problem.next_state(h, level, level, demand)
                    corners.append(problem.coordinate_reward(h, level, level, arrived))
            found.append((np.min(corners, axis=0), np.max(corners, axis=0)))
        return np.array([low for low, _ in found])[:, None], np.array([high for _, high in found])[:, None]


def _best_above(q: FloatArray) -> FloatArray:
    """V(x) for x on the grid: the best level at or above it, (P, k)."""
    return np.asarray(np.maximum.accumulate(q[::-1], axis=0)[::-1])


def _best_observed_above(q: FloatArray, observed: BoolArray) -> FloatArray:
    """The same among observed levels; above them all, the highest of those; before any observation, the initial Q."""
    best = _best_above(np.where(observed, q, -np.inf))
    highest = len(q) - 1 - observed[::-1].argmax(axis=0)
    beyond = np.take_along_axis(q, highest[None], axis=0)
    return np.where(observed.any(axis=0), np.where(np.isinf(best), beyond, best), _best_above(q))
