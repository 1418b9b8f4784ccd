"""HQL and FQL of Gong and Simchi-Levi (arXiv 2007.00080): Q-learning with one-sided and with full feedback."""

import math
from itertools import product

import numpy as np
from numba import njit

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.data.trajectories import Trajectories
from poolrl.learning.policy import Levels, Policy
from poolrl.privacy.guarantee import Guarantee
from poolrl.problems.inventory import Inventory

EPISODES_AT_ONCE = 256  # their outcomes are computed together
FEWEST_OBSERVED = 20  # a level is chosen only if one row in twenty has observed it


class QLearning:
    """Q-learning on a grid of levels.

    Demand that is seen once shows what every smaller order would have earned. Q has one entry per step, product and
    order-up-to level on a grid; products do not interact, so they learn side by side. Rewards are scaled to [0, 1].
    Step size α_k = (H + 1) / (H + k). Guarantee: none.
    """

    def __init__(self, problem: Inventory, points: int) -> None:
        self.problem, self.points = problem, points
        self.column = np.arange(problem.products)
        self.levels = np.linspace(problem.action_low, problem.action_high, points)  # (P, k)
        self.width = (problem.action_high - problem.action_low) / (points - 1)
        horizon, products = problem.horizon, problem.products
        # Q starts at the most that is left to earn, V_{H+1} = 0.
        self.q = np.broadcast_to(np.arange(horizon, 0.0, -1)[:, None, None], (horizon, points, products)).copy()
        self.active = np.ones(self.q.shape, dtype=bool)
        self.last = np.full((horizon + 1, products), points - 1)  # the largest active level of each step
        # The least and largest reward of each step and product are at the ends of level and demand.
        ends = (problem.action_low, problem.action_high), (problem.outcome_low, problem.outcome_high)
        corners = np.array([[self._earned(h, *end)[0] for end in product(*ends)] for h in range(horizon)])
        self.floor = corners.min(axis=1, keepdims=True)  # (H, 1, k)
        # One scale for all steps: dividing each step by its own range would change which policy is best.
        span = (corners.max(axis=1, keepdims=True) - self.floor).max(axis=0)  # (1, k)
        self.span = np.where(span > 0, span, 1.0)

    def play(self, demand: FloatArray, *, eliminate: bool) -> Policy:
        """K episodes of uncensored demand (K, H, products), each: play forward, then update backward on what was seen.

        HQL eliminates: it plays the largest level that may still be best, and so observes all smaller ones. Only these
        stay active, and demand beyond the level that was played changes none of their outcomes. FQL sees all demand,
        updates every level, and plays the best one.
        """
        horizon, products = self.problem.horizon, self.problem.products
        log_term = horizon * math.log(horizon * len(demand) * self.points)
        value = np.zeros((horizon + 1, self.points, products))
        k = 0
        for start in range(0, len(demand), EPISODES_AT_ONCE):
            paths = demand[start : start + EPISODES_AT_ONCE]
            for path, reward, above in zip(paths, *self._outcomes(paths), strict=True):
                k += 1
                slack = math.sqrt(log_term / k) if eliminate else math.inf
                facts = self.q, self.active, self.last, value, reward, above, (horizon + 1) / (horizon + k), slack
                step = _backward(horizon - 1, *facts)
                while step >= 0:
                    reward[step], above[step] = self._target(step, path, value), KNOWN
                    step = _backward(step, *facts)
        return self._policy()

    def replay(self, log: Trajectories) -> Policy:
        """HQL in one pass over a log: each row updates every level up to the one that was ordered.

        Nothing is eliminated, because the log has chosen the levels; α_k counts how often each was observed. A level
        that fewer than one row in twenty has observed is never chosen: too little is known about it.
        """
        problem, observed = self.problem, np.zeros(self.q.shape)
        value = np.concatenate([self.q, np.zeros((1, *self.q.shape[1:]))])
        for start in range(0, len(log), EPISODES_AT_ONCE):
            rows = slice(start, start + EPISODES_AT_ONCE)
            states, actions, arrived = (part[rows] for part in (log.states, log.actions, log.next_states))
            steps = range(problem.horizon)
            seen = [problem.observe(h, states[:, h], actions[:, h], arrived[:, h])[0] for h in steps]
            known = (self.levels <= actions[:, :, None]) | ~np.bool_(problem.censored)
            _replayed(self.q, observed, value, known, *self._outcomes(np.stack(seen, axis=1)))
        self.active = observed >= max(1.0, len(log) / FEWEST_OBSERVED)
        self.active[:, 0] |= ~self.active.any(axis=1)  # without any observation: order nothing
        return self._policy()

    def _policy(self) -> Policy:
        best = np.where(self.active, self.q, -np.inf).argmax(axis=1)  # (H, k)
        table = np.take_along_axis(self.levels, best, axis=0)
        return Policy(self.problem, Levels(table), Guarantee.of_nothing(self.problem.horizon))

    def _earned(self, h: int, level: FloatArray, demand: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What a level earns under a demand, and the stock that it leaves."""
        arrived = self.problem.next_state(h, level, level, demand)
        return self.problem.coordinate_reward(h, level, level, arrived), arrived

    def _outcomes(self, demand: FloatArray) -> tuple[FloatArray, IntArray]:
        """The scaled reward of all levels under demand (K, H, k), and the first level that can follow, (K, H, P, k)."""
        reward = np.empty((*demand.shape[:2], *self.levels.shape))
        above = np.empty(reward.shape, dtype=np.int64)
        for h in range(self.problem.horizon):
            levels = np.broadcast_to(self.levels, reward[:, h].shape)
            earned, arrived = self._earned(h, levels, demand[:, h, None])
            reward[:, h], above[:, h] = (earned - self.floor[h]) / self.span, self._grid_above(arrived)
        return reward, above

    def _target(self, h: int, demand: FloatArray, value: FloatArray) -> FloatArray:
        """r_{h..τ} + V_τ(x_τ) for every level at step h, (P, k), on the demand of an episode.

        τ is the next step at which a level can be chosen again; until then stock beyond all active levels is kept.
        """
        stock = self.levels
        earned, result = np.zeros_like(stock), np.zeros_like(stock)
        waiting: BoolArray = np.ones(stock.shape, dtype=bool)
        for t in range(h, self.problem.horizon):
            reward, arrived = self._earned(t, stock, demand[t])
            earned = earned + np.where(waiting, (reward - self.floor[t]) / self.span, 0.0)
            stock = np.maximum(arrived, self.problem.action_low)  # stock owed is ordered first
            index, last = self._grid_above(arrived), self.last[t + 1]
            free = waiting & (index <= last)
            result = np.where(free, earned + value[t + 1][np.minimum(index, last), self.column], result)
            waiting = waiting & ~free
            if not waiting.any():
                break
        return np.where(waiting, earned, result)

    def _grid_above(self, stock: FloatArray) -> IntArray:
        """The first grid level at or above a stock."""
        position = np.ceil((stock - self.problem.action_low) / self.width - 1e-9)
        return np.minimum(np.maximum(position, 0), self.points - 1).astype(np.int64)  # np.clip is slow on small arrays


# Instead of a level that can follow: the reward is already the whole target.
KNOWN = -1


@njit(cache=True)
def _backward(
    first: int,
    q: FloatArray,
    active: BoolArray,
    last: IntArray,
    value: FloatArray,
    reward: FloatArray,
    above: IntArray,
    step_size: float,
    slack: float,
) -> int:
    """Update Q of active levels from step `first` to 0, and drop those that are worse by more than `slack`.

    Returns the step at which stock has to wait, because no active level can follow, or −1.
    """
    for h in range(first, -1, -1):
        for p, i in np.ndindex(q.shape[1:]):
            if active[h, p, i] and above[h, p, i] > last[h + 1, i]:
                return h
        for i in range(q.shape[2]):
            best = -np.inf
            for p in range(q.shape[1]):
                if active[h, p, i]:
                    follows = above[h, p, i]
                    target = reward[h, p, i] + (value[h + 1, follows, i] if follows != KNOWN else 0.0)
                    q[h, p, i] = (1 - step_size) * q[h, p, i] + step_size * target
                    best = max(best, q[h, p, i])
            so_far, highest = -np.inf, -1
            for p in range(q.shape[1] - 1, -1, -1):
                if active[h, p, i]:
                    active[h, p, i] = best - q[h, p, i] <= slack
                if active[h, p, i]:
                    so_far, highest = max(so_far, q[h, p, i]), max(highest, p)
                value[h, p, i] = so_far
            last[h, i] = highest
    return KNOWN


@njit(cache=True)
def _replayed(
    q: FloatArray, observed: FloatArray, value: FloatArray, known: BoolArray, reward: FloatArray, above: IntArray
) -> None:
    """Update Q of known levels, row by row and from the last step to the first.

    V(x) is the best observed level at or above x; above them all, the highest of those; before any observation, the
    initial Q.
    """
    horizon, points, products = q.shape
    for row in range(len(reward)):
        for h in range(horizon - 1, -1, -1):
            for i in range(products):
                best = -np.inf
                for p in range(points - 1, -1, -1):
                    if known[row, h, p, i]:
                        observed[h, p, i] += 1
                        step_size = (horizon + 1) / (horizon + observed[h, p, i])
                        target = reward[row, h, p, i] + value[h + 1, above[row, h, p, i], i]
                        q[h, p, i] = (1 - step_size) * q[h, p, i] + step_size * target
                    if observed[h, p, i] > 0:
                        if best == -np.inf:
                            value[h, p + 1 :, i] = q[h, p, i]
                        best = max(best, q[h, p, i])
                    value[h, p, i] = best
                if best == -np.inf:
                    value[h, :, i] = q[h, :, i].max()
