"""One way to order, replayed on weeks of a log: from each week's own opening stock, against a demand that is given.

A policy that orders by the mean sales of the last weeks would have sold other amounts than the shops did, and so would
have made other scales. Where that rule is known, scales are made anew from what is sold in the replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.learning.policy import Policy
from poolrl.learning.rules import Levels
from poolrl.problems.inventory import Inventory
from poolrl.workflow.replayed_weeks import Weeks

# Order-up-to levels (m, k) for a step, the numbers of the weeks (m,), their stocks (m, k) and scales (m, k).
Ordering = Callable[[int, IntArray, FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class SameWeekday:
    """The scale of a sales export: mean sales of the weeks before, made anew from what the policy would have sold."""

    weeks: int
    floor: float


def policy_orders(policy: Policy, cells: IntArray) -> Ordering:
    """How the policy orders. Of a long table each product may have a label of its own, so each has its own level."""
    problem, rule = policy.problem, policy.rule
    products = np.arange(problem.state_dim)

    def orders(step: int, weeks: IntArray, stock: FloatArray, scale: FloatArray) -> FloatArray:
        state = stock / scale
        if isinstance(rule, Levels):
            table = rule.levels.reshape(-1, *rule.levels.shape[-2:])
            asked = np.clip(table[cells[weeks, step], step, products], *problem.allowed(step, state))
        else:
            asked = rule.act(problem, step, state)
        # Dividing and multiplying may lose a rounding error, and stock is never sent back.
        return np.maximum(asked * scale, stock)

    return orders


def replayed_orders(
    problem: Inventory, stock: FloatArray, demand: FloatArray, scale: FloatArray, ordering: Ordering, weeks: IntArray
) -> FloatArray:
    """Levels (m, H, k) by a way to order, from the weeks' opening stocks (m, k) on; demand and scale are (m, H, k)."""
    levels = np.empty_like(demand)
    for step in range(problem.horizon):
        levels[:, step] = ordering(step, weeks, stock, scale[:, step])
        stock = problem.next_state(step, stock, levels[:, step], demand[:, step])
    return levels


def remade_scales(
    problem: Inventory,
    weeks: Weeks,
    used: BoolArray,
    demand: FloatArray,
    ordering: Ordering,
    rule: SameWeekday,
    progress: Callable[[float], object] = lambda share: None,
) -> FloatArray:
    """Scales (n, H, k) of the weeks that have a product in `used`, replayed in the order of the calendar.

    What they sell makes the scales of later weeks. Where a product of a week is not replayed, the sales of the log do.
    """
    kept = np.flatnonzero(used.any(axis=1))
    earlier = _weeks_before(weeks, kept, rule.weeks)
    # The last row stands for a week that is not there. No sale is negative, but for a rounding error.
    with np.errstate(invalid="ignore"):
        sold = np.where(weeks.sold > -5e-4, weeks.sold, np.nan)
    sold = np.concatenate([sold, np.full((1, *sold.shape[1:]), np.nan)])
    found = np.ones_like(demand)
    for part in _weeks_of_one_date(weeks.number[kept]):
        rows, own = kept[part], used[kept[part], None]
        found[part] = np.where(own, _mean_sales(sold[earlier[part]], rule), 1.0)
        stock = np.where(own[:, 0], weeks.opening[rows, 0], 0.0)
        levels = replayed_orders(problem, stock, demand[part], found[part], ordering, part)
        sold[rows] = np.where(own, np.minimum(levels, demand[part]), sold[rows])
        progress(len(part) / len(kept))
    return found


def _weeks_of_one_date(numbers: IntArray) -> list[IntArray]:
    """Places of equal numbers, the smallest number first."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def _weeks_before(weeks: Weeks, kept: IntArray, memory: int) -> IntArray:
    """The m weeks before each, (len(kept), m), in the same shop; the number of weeks where there is none."""
    span = int(np.ptp(weeks.number)) + memory + 1
    key = weeks.shop * span + weeks.number - weeks.number.min()
    order = np.argsort(key)
    wanted = key[kept, None] - np.arange(1, memory + 1)
    # Before the first week of all shops there is none, also not the last one of another shop.
    inside = weeks.number[kept, None] - np.arange(1, memory + 1) >= weeks.number.min()
    place = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
    return np.where(inside & (key[order][place] == wanted), order[place], len(key))


def _mean_sales(sold: FloatArray, rule: SameWeekday) -> FloatArray:
    """The scale (m, H, k) from sales (m, weeks, H, k), as the query of a sales export makes it; NaN if too few."""
    there = ~np.isnan(sold)
    number = there.sum(axis=1)
    thousandths = np.where(there, np.rint(1000 * sold), 0.0).sum(axis=1)
    mean = thousandths / (1000.0 * np.maximum(number, 1))
    return np.where(number >= (rule.weeks + 1) // 2, np.maximum(mean, rule.floor), np.nan)


def costs_of(
    problem: Inventory, levels: FloatArray, demand: FloatArray, cells: IntArray, used: BoolArray
) -> FloatArray:
    """Mean costs of a week, (k,), over the weeks of each product that are used (n, k)."""
    total = np.zeros((len(levels), problem.products))
    products = np.arange(problem.products)
    holding, shortage = (
        costs.reshape(-1, problem.horizon, problem.products) for costs in (problem.holding, problem.shortage)
    )
    for step in range(problem.horizon):
        over, cell = levels[:, step] - demand[:, step], cells[:, step]
        total += holding[cell, step, products] * np.maximum(over, 0.0)
        total += shortage[cell, step, products] * np.maximum(-over, 0.0)
    return np.asarray(np.where(used, total, 0.0).sum(axis=0) / np.maximum(used.sum(axis=0), 1))
