"""Products that share a shelf, a room or cash: Σ_i v_i y_i ≤ C on every step, with a certified gap.

A price μ_h ≥ 0 for what stands on the shelf takes the products apart (Lagrange), and for every μ

    L(μ) = Σ_i V_i(μ) − Σ_h μ_h C_h  ≤  the least cost of any policy that keeps to the capacity

because such a policy pays no more than μ_h C_h for its room. The best μ is found by ascent: the slope of L is the
expected use of room minus C. At each step the plan takes the one price at which today's orders just fit. Its cost on
simulated paths, beside the bound, is the certified gap.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import fft

from poolrl.checks import FloatArray, as_floats
from poolrl.learning.law import Law
from poolrl.learning.model import PrivateModel
from poolrl.learning.together import drawn_together
from poolrl.plans.orders import OrderPlan, UnitLaws, one_cell, solve_orders, unit_laws
from poolrl.problems.operations import Operations

# Prices that are tried for today's room, in shares of the highest that can matter.
PRICE_STEPS = 96
# From a step and stocks (m, k) to levels of the same shape.
Levelling = Callable[[int, FloatArray], FloatArray]
# Paths on which a plan is judged, unless others are asked for.
JUDGED_PATHS = 4_000


@dataclass(frozen=True)
class CapacityRule:
    """Levels of each product at each price of today's room: those of the lowest price at which everything fits."""

    volumes: FloatArray  # v (k,)
    room: FloatArray  # C (H,)
    capacity: FloatArray  # what is used of it, (H,): less where what is left must fit into a smaller one later
    levels: FloatArray  # (H, P, k) the best level of each product at each price of today's room, from zero up

    def order_up_to(self, step: int, stock: ArrayLike) -> FloatArray:
        """Levels (k,) or (m, k) for stocks of that shape; what is there already stays, and must fit."""
        given = as_floats("stock", stock)
        if given.ndim not in (1, 2) or given.shape[-1] != len(self.volumes) or not 0 <= step < len(self.capacity):
            last = len(self.capacity) - 1
            raise ValueError(f"order_up_to takes a step in 0 .. {last} and {len(self.volumes)} stocks")
        held = np.atleast_2d(given)
        if ((held * self.volumes).sum(axis=1) > self.room[step] * (1 + 1e-9)).any():
            raise ValueError("the stock at hand takes more than the capacity of this step: order nothing")
        levels = _fitting(held, self.levels[step], self.volumes, float(self.capacity[step]))
        return levels if given.ndim == 2 else levels[0]


@dataclass(frozen=True)
class CapacityPlan(CapacityRule):
    """A price-directed plan for one label cell: its prices by step, what it costs, and what no plan can go below."""

    plan: OrderPlan  # of each product by itself, at these prices
    prices: FloatArray  # μ (H,)
    bound: float
    cost: float
    error: float  # standard error of the cost, by simulation

    @property
    def gap(self) -> float:
        """How much more than the least cost this plan may cost at most, on the model: mean of simulated paths."""
        return self.cost / self.bound - 1 if self.bound > 0 else 0.0


def plan_capacity(
    model: PrivateModel,
    operations: Operations,
    *,
    volumes: ArrayLike,
    capacity: ArrayLike,
    rng: np.random.Generator,
    cell: int = 0,
    scale: ArrayLike | None = None,
) -> CapacityPlan:
    """Orders of all products of one label cell under a shared capacity, one number or one for each step. Free."""
    laws = unit_laws(model, operations, scale=scale)
    return solve_capacity(one_cell(laws, cell), volumes, capacity, rng=rng)


def solve_capacity(
    laws: UnitLaws, volumes: ArrayLike, capacity: ArrayLike, *, rng: np.random.Generator, paths: int = JUDGED_PATHS
) -> CapacityPlan:
    """The same on laws in units, all of whose columns share the capacity."""
    terms, (columns, horizon, _) = laws.terms, laws.chance.shape
    if terms.fixed.any() or terms.pack.any() or terms.minimum.any() or terms.cycle or not terms.deliveries.all():
        raise ValueError("a shared capacity is planned for orders of any amount on every step, without fixed costs")
    size = np.broadcast_to(as_floats("volumes", volumes), (columns,))
    room = np.broadcast_to(as_floats("capacity", capacity), (horizon,))
    if (size <= 0).any() or (room <= 0).any() or not (np.isfinite(size).all() and np.isfinite(room).all()):
        raise ValueError("volumes and capacity must be positive numbers")
    prices, plan, bound = _best_prices(laws, size, room)
    levels = _levels_by_price(plan, size, prices)
    # All that may be left must fit later too.
    used = room if (terms.spoilage == 1).all() else np.minimum.accumulate(room[::-1])[::-1]
    costs = simulated_costs(laws, CapacityRule(size, room, used, levels).order_up_to, rng, paths)
    error = float(costs.std(ddof=1) / np.sqrt(paths))
    return CapacityPlan(size, room, used, levels, plan, prices, bound, float(costs.mean()), error)


def _best_prices(laws: UnitLaws, size: FloatArray, room: FloatArray) -> tuple[FloatArray, OrderPlan, float]:
    """Ascent on the dual by L-BFGS; the best bound that was seen counts, whatever the last step did."""
    from scipy.optimize import minimize

    best: list[tuple[float, FloatArray, OrderPlan]] = []
    highest = _highest_price(laws, size)
    # Prices of later steps are discounted too.
    counts = laws.terms.discount ** np.arange(len(room))

    def minus_bound(prices: FloatArray) -> tuple[float, FloatArray]:
        plan = solve_orders(laws, prices * size[:, None])
        bound = float(plan.cost.sum() - prices @ (counts * room))
        if not best or bound > best[0][0]:
            best[:] = [(bound, prices.copy(), plan)]
        return -bound, counts * (room - size @ expected_levels(plan))

    minimize(minus_bound, np.zeros(len(room)), jac=True, method="L-BFGS-B", bounds=[(0.0, highest)] * len(room))
    bound, prices, plan = best[0]
    return prices, plan, bound


def _highest_price(laws: UnitLaws, size: FloatArray) -> float:
    """A price beyond what a missed sale costs keeps everything off the shelf."""
    return float((laws.terms.shortage / size[:, None]).max())


def expected_levels(plan: OrderPlan) -> FloatArray:
    """E y of every column and step under a plan, from an empty shelf, (C, H), in units."""
    laws = plan.laws
    columns, horizon, size = laws.chance.shape
    length = fft.next_fast_len(2 * size, real=True)
    stock = np.zeros((columns, size))
    stock[:, 0] = 1.0
    found = np.empty((columns, horizon))
    row = np.arange(columns)[:, None]
    for step in range(horizon):
        level = np.zeros_like(stock)
        np.add.at(level, (row, np.arange(size) + plan.orders[:, step]), stock)
        found[:, step] = (level * np.arange(size)).sum(axis=1) * laws.width
        # P(y − D = j): a correlation. Sold out means zero.
        spectrum = fft.rfft(level, length) * np.conj(fft.rfft(laws.chance[:, step], length))
        left = np.maximum(fft.irfft(spectrum, length)[:, :size], 0.0)
        left[:, 0] = 1 - left[:, 1:].sum(axis=1)
        kept = (1 - laws.terms.spoilage[:, step, None]) * np.arange(size)
        lower = np.minimum(kept.astype(np.int64), size - 2)
        stock = np.zeros_like(left)
        np.add.at(stock, (row, lower), left * (1 - (kept - lower)))
        np.add.at(stock, (row, lower + 1), left * (kept - lower))
    return found


def _levels_by_price(plan: OrderPlan, size: FloatArray, prices: FloatArray) -> FloatArray:
    """The best level of each product at each price of today's room, if tomorrow's has its own price."""
    laws = plan.laws
    _, horizon, points = laws.chance.shape
    stock = np.arange(points) * laws.width[:, None]
    tried = np.concatenate([[0.0], _highest_price(laws, size) * np.geomspace(1e-4, 1.0, PRICE_STEPS - 1)])
    levels = np.empty((horizon, len(tried), len(size)))
    for step in range(horizon):
        # The solved values have this step's price in them.
        own = plan.after[:, step] + (laws.terms.purchase[:, step, None] - prices[step] * size[:, None]) * stock
        own = np.where(np.arange(points) <= laws.caps[:, step, None], own, np.inf)
        for number, price in enumerate(tried):
            levels[step, number] = (own + price * size[:, None] * stock).argmin(axis=1) * laws.width
    return levels


def _fitting(held: FloatArray, levels: FloatArray, size: FloatArray, room: float) -> FloatArray:
    """Levels (m, k) that fit: those of the lowest price at which they do, moved towards the price before it."""
    low, high = np.zeros(len(held), dtype=np.int64), np.full(len(held), len(levels) - 1)
    while (high - low > 1).any():
        middle = (low + high) // 2
        fits = (np.maximum(held, levels[middle]) * size).sum(axis=1) <= room
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    free, tight = np.maximum(held, levels[low]), np.maximum(held, levels[high])
    # Where even the highest price does not make room, nothing is ordered: the stock at hand fits.
    tight = np.where(((tight * size).sum(axis=1) > room)[:, None], held, tight)
    used, least = (free * size).sum(axis=1), (tight * size).sum(axis=1)
    share = np.clip(np.where(used > least, (room - least) / np.where(used > least, used - least, 1.0), 1.0), 0.0, 1.0)
    return tight + share[:, None] * (free - tight)


def scaled_down(levels: FloatArray, volumes: FloatArray, capacity: FloatArray) -> Levelling:
    """What people do without a plan: levels (H, k), all lowered by the same share until they fit (H,)."""

    def rule(step: int, stock: FloatArray) -> FloatArray:
        low, high = np.zeros(len(stock)), np.ones(len(stock))
        for _ in range(30):
            middle = (low + high) / 2
            fits = np.maximum(stock, middle[:, None] * levels[step]) @ volumes <= capacity[step]
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return np.maximum(stock, low[:, None] * levels[step])

    return rule


def simulated_costs(laws: UnitLaws, rule: Levelling, rng: np.random.Generator, paths: int) -> FloatArray:
    """What a rule for levels costs on paths of the laws, (paths,), from empty shelves. Products move together."""
    terms, (columns, horizon, _) = laws.terms, laws.chance.shape
    stock, cost = np.zeros((paths, columns)), np.zeros(paths)
    for step in range(horizon):
        level = rule(step, stock)
        shares = drawn_together(rng, (paths, columns), laws.together).T
        sold = [Law(law).bins_at(share) for law, share in zip(laws.chance[:, step], shares, strict=True)]
        demand = np.stack(sold, axis=1) * laws.width
        left, missing = np.maximum(level - demand, 0.0), np.maximum(demand - level, 0.0)
        now = terms.purchase[:, step] * (level - stock) + terms.of_leftovers((slice(None), step), left, missing)
        cost += terms.discount**step * now.sum(axis=1)
        stock = (1 - terms.spoilage[:, step]) * left
    return cost - terms.discount**horizon * (terms.salvage * stock).sum(axis=1)
