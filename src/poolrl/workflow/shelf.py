"""All order-up-to levels of a policy in one table, so that a million questions are one look-up.

The level of an empty shelf tells every answer, as y = max(x, S). A value of a label that was not declared has a place
after the last declared one. There stand the population's levels, which are planned when they are first asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.learning.model import population_policy
from poolrl.learning.policy import Levels, Policy
from poolrl.problems.inventory import Inventory

# A rounding error must not cost a pack.
PART_OF_A_PACK = 1e-9


@dataclass(frozen=True)
class Questions:
    """Questions in columns. A row asks for c products: for all of them, or for the one that it names."""

    step: IntArray  # (m,)
    places: IntArray  # (m, labels), the place of each label's value
    product: IntArray  # (1, products), or (m, 1)
    stock: FloatArray  # (m, c)
    scale: FloatArray | None = None  # (m, c) or (m, 1)
    pack: FloatArray | None = None  # the same, or (1, c); NaN where there are no packs


@dataclass(frozen=True)
class Orders:
    """What to order, (m, c), and whose levels decided, (m,)."""

    up_to: FloatArray
    order: FloatArray
    population: BoolArray


class RowRefusedError(ValueError):
    """A row that has no answer; its number counts from 0."""

    def __init__(self, row: int, words: str) -> None:
        super().__init__(words)
        self.row = row


class Shelf:
    """Levels and public bounds of every label cell, step and product, with a place for the population on each label."""

    def __init__(self, policy: Policy) -> None:
        problem, labels = policy.problem, policy.problem.labels
        self.policy = policy
        self.sizes = np.array(labels.shape, dtype=np.int64)
        self.by_table = isinstance(policy.rule, Levels)
        places = tuple(size + 1 for size in labels.shape)
        self._levels = np.full((*places, problem.horizon, problem.action_dim), np.nan)
        self._bounds = self._levels.copy()
        self._planned: set[tuple[bool, ...]] = set()
        self._fill(policy, (False,) * len(places))

    def answer(self, asked: Questions, *, whole: bool) -> Orders:
        """What `Policy.act` answers to every row, rounded to whole units or packs if asked."""
        unknown = asked.places >= self.sizes
        for pattern in np.unique(unknown, axis=0) if len(self.sizes) else ():
            if tuple(pattern) not in self._planned:
                lost = [name for name, gone in zip(self.policy.problem.labels.names, pattern, strict=True) if gone]
                self._fill(population_policy(self.policy, lost), tuple(pattern))
        where = (*(asked.places[:, i, None] for i in range(len(self.sizes))), asked.step[:, None], asked.product)
        unit = 1.0 if asked.scale is None else asked.scale
        with np.errstate(over="ignore", invalid="ignore"):
            self._check(asked, asked.stock / unit)
            level = self._act(asked, where, unit)
            bound = np.maximum(self._bounds[where] * unit, level)
        self._finite(level + bound)
        up_to = whole_levels(level, asked.stock) if whole else level
        order = up_to - asked.stock
        if asked.pack is not None:
            packed = ~np.isnan(np.broadcast_to(asked.pack, order.shape))
            pack = np.where(packed, asked.pack, 1.0)
            order = np.where(packed, orders_in_packs(level, asked.stock, pack, bound), order)
            up_to = np.where(packed, asked.stock + order, up_to)
            self._finite(up_to)
        return Orders(up_to, order, np.asarray(unknown.any(axis=1)))

    def _act(self, asked: Questions, where: tuple[IntArray, ...], unit: FloatArray | float) -> FloatArray:
        if self.by_table:
            # The same operations in the same order as in `Policy.act`, so that the answers are equal in every bit.
            level = np.maximum(asked.stock / unit, self._levels[where])
            return level if asked.scale is None else np.maximum(level * unit, asked.stock)
        if asked.stock.shape[1] != self.policy.problem.state_dim or len(asked.product) != 1:
            raise ValueError("this policy decides on all products together: give the stock of each in one row")
        found = np.empty_like(asked.stock)
        for step in np.unique(asked.step):
            rows = asked.step == step
            scale = None if asked.scale is None else np.broadcast_to(asked.scale, asked.stock.shape)[rows]
            found[rows] = self.policy.act(int(step), asked.stock[rows], scale=scale)
        return found

    def _check(self, asked: Questions, multiples: FloatArray) -> None:
        lowest = self.policy.problem.state_low[asked.product]
        if (low := multiples < lowest).any():
            row, column = (int(place) for place in np.argwhere(low)[0])
            product = int(np.broadcast_to(asked.product, low.shape)[row, column])
            rule = "must not be negative" if self.policy.problem.state_low[product] == 0 else "lies below what can wait"
            raise RowRefusedError(row, f"the stock of {self.policy.names.products[product]} {rule}")

    def _finite(self, answers: FloatArray) -> None:
        if not (good := np.isfinite(answers).all(axis=1)).all():
            raise RowRefusedError(int(good.argmin()), "stock, scale or pack is too large or too small to compute with")

    def _fill(self, policy: Policy, unknown: tuple[bool, ...]) -> None:
        """Put the answers at empty shelves of a policy into the places of a pattern of unknown labels."""
        problem = policy.problem
        horizon, products, cells = problem.horizon, problem.action_dim, problem.labels.count
        levels, bounds = (np.empty((cells, horizon, products)) for _ in range(2))
        for step in range(horizon):
            empty = np.zeros((cells, problem.state_dim))
            bounds[:, step] = problem.allowed(step, empty)[1]
            if isinstance(policy.rule, Levels):
                levels[:, step] = policy.rule.act(problem, step, empty, np.arange(cells))
        if isinstance(problem, Inventory):
            bounds = np.minimum(bounds, problem.share * problem.label_bounds.reshape(cells, 1, products))
        place = tuple(size if gone else slice(0, size) for gone, size in zip(unknown, self.sizes.tolist(), strict=True))
        shape = (*problem.labels.shape, horizon, products)
        self._levels[place], self._bounds[place] = levels.reshape(shape), bounds.reshape(shape)
        self._planned.add(unknown)


def orders_in_packs(level: FloatArray, stock: FloatArray, pack: FloatArray, bound: FloatArray) -> FloatArray:
    """The order nearest to level − stock that is a multiple of the pack; half a pack counts as a whole one.

    Where the stock reaches the level nothing is ordered. The stock and the order stay within the public bound, except
    that one pack may break it: a pack that is larger than the bound could never be ordered otherwise.

    >>> level, stock = np.array([20.0, 20.0, 25.0, 20.0, 5.0]), np.array([3.0, 15.0, 25.0, 1.0, 0.0])
    >>> pack, bound = np.array([12.0, 12.0, 12.0, 12.0, 8.0]), np.array([40.0, 40.0, 40.0, 23.0, 5.0])
    >>> orders_in_packs(level, stock, pack, bound).tolist()
    [12.0, 0.0, 0.0, 12.0, 8.0]
    """
    wanted = np.floor((level - stock) / pack + 0.5)
    room = np.floor((bound - stock) / pack + PART_OF_A_PACK)
    return np.asarray(np.minimum(wanted, np.maximum(room, 1.0)) * pack)


def whole_levels(level: FloatArray, stock: FloatArray) -> FloatArray:
    """Levels rounded to whole units. Nothing is sent back, and nothing ordered where enough is there."""
    return np.where(level > stock, np.maximum(np.rint(level), stock), stock)
