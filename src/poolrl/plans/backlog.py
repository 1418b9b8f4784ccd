"""Orders that arrive L steps later, where unmet demand waits: one product at a time, in a cycle without discount.

What counts is the position: what is there and on its way, minus what waits. An order of now shows in L steps, when the
demand of L + 1 steps has come off it. With y the position after an order and c, K its costs,

    G_h(y) = E[ h (y − D_{h..h+L})⁺ + b (D_{h..h+L} − y)⁺ ]
    V_h(p) = min { K [y > p] + c (y − p) + G_h(y) + E V_{h+1}(y − D_h) : y ≥ p }

The state is one number whatever L is, so the programme is exact on its lattice, by relative values with MacQueen's
bounds. Without a fixed cost the best rule is a level for each step, with one it is (s, S).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, IntArray, whole
from poolrl.learning.model import PrivateModel
from poolrl.plans.orders import CYCLE_SOLVED, DAMPED_AFTER, MOST_CYCLES
from poolrl.plans.unit_laws import UnitLaws, unit_laws
from poolrl.problems.operations import Operations


@dataclass(frozen=True)
class BacklogPlan:
    """Of one column: orders (H, P) by position, from `lowest` lattice steps on; what a round costs on average."""

    width: float
    lowest: int
    orders: IntArray
    cost: float
    doubt: float

    def order(self, step: int, position: float) -> float:
        """What to order, in units. The position is what is there and on its way, minus what waits."""
        place = int(np.rint(position / self.width)) - self.lowest
        table = self.orders[step % len(self.orders)]
        if place < 0:
            # Below the lattice: up to where its lowest position is raised.
            return (float(table[0]) - place) * self.width
        return float(table[min(place, len(table) - 1)]) * self.width


def plan_backlog(
    model: PrivateModel, operations: Operations, *, lead_time: int = 0, scale: ArrayLike | None = None
) -> list[BacklogPlan]:
    """A plan for each column (label cells, then products) of a private model whose unmet demand waits. Free."""
    laws = unit_laws(model, operations, scale=scale, waits=True)
    return [solve_backlog(laws, lead_time, column=column) for column in range(len(laws.width))]


def solve_backlog(laws: UnitLaws, lead_time: int = 0, *, column: int = 0) -> BacklogPlan:
    """One column of laws in units."""
    whole(lead_time=lead_time, at_least=0)
    terms, chance, width = laws.terms.columns(slice(column, column + 1)), laws.chance[column], laws.width[column]
    terms.require_plain_cycle("demand that waits")
    horizon, size = chance.shape
    ahead = [_added([chance[(step + i) % horizon] for i in range(lead_time + 1)]) for step in range(horizon)]
    demand = np.arange(size)
    mean = float((chance * demand).sum(axis=-1).max())
    stocked = int(np.ceil(terms.worth_holding(mean, float(width))))
    reach = max(int((1 - np.cumsum(each) > 1e-6).sum()) for each in ahead)
    lowest, highest = -size - stocked, reach + stocked
    place = np.arange(lowest, highest + 1)
    now = np.stack(
        [
            _expected(place, law, float(terms.holding[0, step]), float(terms.shortage[0, step])) * width
            for step, law in enumerate(ahead)
        ]
    )
    # Positions below the lattice are read as its lowest one, plus what every further unit costs to wait and to buy.
    after_demand = place[:, None] - demand
    below = np.maximum(lowest - after_demand, 0)
    index = np.maximum(after_demand - lowest, 0)
    slope = float(terms.purchase.max() + terms.shortage.max()) * width
    value, orders = np.zeros(len(place)), np.zeros((horizon, len(place)), dtype=np.int64)
    for number in range(MOST_CYCLES):
        first = value
        for step in reversed(range(horizon)):
            level = now[step] + ((value[index] + slope * below) * chance[step]).sum(axis=1)
            level = level + terms.purchase[0, step] * width * place
            best = np.minimum.accumulate(level[::-1])[::-1]
            target = np.minimum.accumulate(np.where(level == best, np.arange(len(place)), len(place))[::-1])[::-1]
            raised = np.append(best[1:], np.inf) + terms.fixed[0, step]
            orders[step] = np.where(raised < level, np.append(target[1:], 0) - np.arange(len(place)), 0)
            value = np.minimum(level, raised) - terms.purchase[0, step] * width * place
        # Only positions that the rule comes back to count.
        change = (value - first)[-lowest:]
        low, high = float(change.min()), float(change.max())
        if high - low <= CYCLE_SOLVED * abs(high) + 1e-12:
            break
        value = first + (value - first) * (0.5 if number > DAMPED_AFTER else 1.0)
        value = value - value[-lowest]
    return BacklogPlan(float(width), lowest, orders, (low + high) / 2, (high - low) / 2)


def _added(laws: list[FloatArray]) -> FloatArray:
    """The law of a sum."""
    total = np.ones(1)
    for law in laws:
        total = np.convolve(total, law)
    return total


def _expected(place: IntArray, law: FloatArray, holding: float, shortage: float) -> FloatArray:
    left = np.maximum(place[:, None] - np.arange(len(law)), 0) @ law
    missing = np.maximum(np.arange(len(law)) - place[:, None], 0) @ law
    return np.asarray(holding * left + shortage * missing)
