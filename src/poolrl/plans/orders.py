"""The best orders of each product by itself: fixed costs, packs, spoilage, deliveries, a week that repeats for ever.

For every column (label cell and product) and step, P(D = j w) is the mass that the model's law has nearest to j w. A
pack is a whole number of lattice steps w. With stock x, orders q that the shop can place, and θ the share that spoils,

    G_h(y) = h E(y − D)⁺ + b E(D − y)⁺ + β E V_{h+1}((1 − θ)(y − D)⁺)
    V_h(x) = min { G_h(x),  K + c q + G_h(x + q)  for every order q > 0 that can be placed }

After the last step V is −salvage · x, or V_1 again in a cycle (`solve_cycle`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import fft

from poolrl.checks import BoolArray, FloatArray, IntArray, as_floats, public_array
from poolrl.learning import priors
from poolrl.learning.law import Law, cumulative, read_at
from poolrl.learning.model import PrivateModel
from poolrl.problems.operations import Operations, ShopTerms, column_values
from poolrl.problems.problem import LevelProblem

# Lattice steps up to the highest stock, more or less.
FINEST = 400
# How much is ever held, in multiples of the most that a step can sell: once, and more where one orders ahead.
HELD_AT_ONCE, HELD_AHEAD = 1.0, 3.0


@dataclass(frozen=True)
class UnitLaws:
    """P(D = j w), (C, H, N + 1), with the lattice's widths w (C,), and the shop's terms."""

    chance: FloatArray
    width: FloatArray
    terms: ShopTerms
    caps: IntArray  # (C, H) lattice steps: no level lies above
    packs: IntArray  # (C,) lattice steps of a pack, 1 where any amount can be ordered
    together: float = 0.0  # the correlation of the products' demand at a step

    @property
    def mean_steps(self) -> FloatArray:
        """E D, (C, H), in lattice steps."""
        return np.asarray((self.chance * np.arange(self.chance.shape[-1])).sum(axis=-1))

    def columns(self, chosen: slice) -> UnitLaws:
        """Some columns of it."""
        arrays: dict[str, Any] = {name: getattr(self, name)[chosen] for name in ("chance", "width", "caps", "packs")}
        return replace(self, terms=self.terms.columns(chosen), **arrays)


def unit_laws(
    model: PrivateModel, operations: Operations, *, scale: ArrayLike | None = None, waits: bool = False
) -> UnitLaws:
    """Laws of a model in units. Multiples of a scale need a usual `scale`, which spreads to (*labels, H, k).

    `waits` says that a planner is for unmet demand that waits, and not for demand that is lost.
    """
    problem, outcomes = model.problem, model.outcomes
    if not isinstance(problem, LevelProblem) or problem.censored == waits:
        kind = "demand that waits (Backlog)" if waits else "lost sales; where unmet demand waits see plan_backlog"
        raise ValueError(f"this plan is for {kind}")
    if model.guarantee.scaled and scale is None:
        raise ValueError("the model's amounts are multiples of a scale: say how large it usually is, scale=...")
    shape = (*problem.labels.shape, problem.horizon, problem.products)
    unit = column_values(public_array("scale", np.asarray(1.0 if scale is None else scale, dtype=np.float64), shape))
    if (unit <= 0).any():
        raise ValueError("scale must be positive")
    terms = operations.of(problem)
    least = np.maximum(terms.pack[:, None], terms.minimum)
    if (least > terms.cap * unit).any():
        raise ValueError("a pack or a minimum order is larger than the bound: it could never be ordered")
    weights = np.swapaxes(outcomes.weights, -3, -2).reshape(len(unit), problem.horizon, -1)  # (C, H, B)
    tops = outcomes.tops.reshape(-1, 1) * unit  # (C, H) where each law ends
    ahead = terms.fixed.any(axis=1) | ~terms.deliveries.all(axis=1) | (terms.minimum.max(axis=1) > 0) | (terms.pack > 0)
    ahead |= np.ptp(terms.purchase, axis=1) > 0
    held = np.where(ahead, HELD_AHEAD, HELD_AT_ONCE) * tops.max(axis=1)
    cap = np.minimum(np.minimum(terms.cap, priors.CLIMB * column_values(outcomes.explored)) * unit, held[:, None])
    if ((least > cap) | ~terms.deliveries).all(axis=1).any():
        raise ValueError(
            "a pack or a minimum order is larger than what is ever held: more than one and a half times what past "
            f"orders explored, or {HELD_AHEAD:g} times what a step can sell"
        )
    highest = np.maximum(cap.max(axis=1), tops.max(axis=1))
    # As fine as FINEST steps allow, and a pack is a whole number of steps. Packs of whole units count whole units.
    units = (terms.pack > 0) & (terms.pack == np.floor(terms.pack)) & (highest <= 2 * FINEST)
    finest = np.maximum(1, np.floor(terms.pack * FINEST / highest))
    packs = np.where(units, terms.pack, np.where(terms.pack > 0, finest, 1)).astype(np.int64)
    width = np.where(terms.pack > 0, terms.pack / packs, highest / FINEST)
    size = int(np.ceil(highest / width).max())
    edges = (np.arange(size + 2) - 0.5) * width[:, None]
    chance = Law(weights / weights.sum(axis=-1, keepdims=True)).between(
        edges[:, None] / tops[..., None] * weights.shape[-1]
    )
    caps = np.floor(cap / width[:, None] + 1e-9).astype(np.int64)
    return UnitLaws(chance, width, terms, caps, packs, model.together)


def one_cell(laws: UnitLaws, cell: int) -> UnitLaws:
    """The products of one label cell."""
    products = laws.terms.products
    if not 0 <= cell < len(laws.width) // products:
        raise ValueError(f"cell must lie in 0 .. {len(laws.width) // products - 1}, got {cell}")
    return laws.columns(slice(cell * products, (cell + 1) * products))


# A cycle is solved when its average cost is known to this share, or its discounted values to this share.
CYCLE_SOLVED, MOST_CYCLES = 1e-7, 3_000
# After this many rounds a cycle makes half a step: orders of every second round would go on for ever otherwise.
DAMPED_AFTER = 300


@dataclass(frozen=True)
class OrderRule:
    """Orders (C, H, N + 1) in lattice steps of `width` (C,), by the stock before them."""

    orders: IntArray
    width: FloatArray
    products: int  # columns of one label cell
    cycle: bool

    def order(self, step: int, stock: ArrayLike, *, cell: int = 0) -> FloatArray:
        """What to order at a step (in a cycle any number), in units, for stocks (k,) or (m, k) of one label cell."""
        held = as_floats("stock", stock)
        if held.shape[-1:] != (self.products,) or (held < 0).any():
            raise ValueError(f"stock must be amounts of {self.products} products, none of them negative")
        cells, horizon = len(self.width) // self.products, self.orders.shape[1]
        if not 0 <= cell < cells or step < 0 or (step >= horizon and not self.cycle):
            raise ValueError(f"step must lie in 0 .. {horizon - 1} (but in a cycle), and cell in 0 .. {cells - 1}")
        columns = np.arange(cell * self.products, (cell + 1) * self.products)
        width = self.width[columns]
        place = np.clip(np.rint(held / width), 0, self.orders.shape[-1] - 1).astype(np.int64)
        return self.orders[columns, step % horizon, place] * width


@dataclass(frozen=True)
class OrderPlan(OrderRule):
    """The same, and what the orders cost by the model: of one trajectory from an empty shelf, (C,).

    In a cycle without discount it is the average of one round, which is known to `doubt`.
    """

    laws: UnitLaws
    after: FloatArray  # G_h (C, H, N + 1), the cost from a level on
    cost: FloatArray
    doubt: float = 0.0


def plan_orders(model: PrivateModel, operations: Operations, *, scale: ArrayLike | None = None) -> OrderPlan:
    """The best orders on a private model. Free: no log, no noise, no cost."""
    return solve_orders(unit_laws(model, operations, scale=scale))


def fill_up(laws: UnitLaws, levels: FloatArray) -> OrderPlan:
    """Orders of somebody who fills up to levels (C, H), in units, as far as the shop can; and what they cost."""
    stock = np.arange(laws.chance.shape[-1])
    wanted = np.minimum(np.floor(levels / laws.width[:, None] + 1e-9), laws.caps)[..., None] - stock
    orders = np.floor(np.maximum(wanted, 0) / laws.packs[:, None, None]).astype(np.int64) * laws.packs[:, None, None]
    enough = orders * laws.width[:, None, None] >= laws.terms.minimum[..., None] - 1e-9
    return solve_orders(laws, given=np.where(enough & laws.terms.deliveries[..., None], orders, 0))


def solve_orders(laws: UnitLaws, prices: FloatArray | None = None, *, given: IntArray | None = None) -> OrderPlan:
    """The same on laws in units. `prices` (C, H) are paid for each unit that stands on the shelf after an order.

    With `given` orders (C, H, N + 1) nothing is chosen, and `cost` says what they cost.
    """
    terms, (columns, horizon, size) = laws.terms, laws.chance.shape
    rule, stock = (laws.width, terms.products, terms.cycle), np.arange(size) * laws.width[:, None]
    # E(y − D)⁺ = w Σ_{j<y} P(D ≤ j w), on the lattice y
    left = cumulative(np.cumsum(laws.chance[..., :-1], axis=-1)) * laws.width[:, None, None]
    missing = (laws.mean_steps * laws.width[:, None])[..., None] - stock[:, None] + left
    now = terms.of_leftovers((..., None), left, missing)
    if prices is not None:
        now = now + prices[..., None] * stock[:, None]
    length, sold_out = fft.next_fast_len(2 * size, real=True), 1 - np.cumsum(laws.chance, axis=-1)
    spectra = fft.rfft(laws.chance, length)
    orders, after = np.zeros((columns, horizon, size), dtype=np.int64), np.empty((columns, horizon, size))

    def one_step(step: int, value: FloatArray) -> FloatArray:
        tomorrow = read_at(value, (1 - terms.spoilage[:, step, None]) * np.arange(size))
        carried = fft.irfft(spectra[:, step] * fft.rfft(tomorrow, length), length)[..., :size]
        stay = now[:, step] + terms.discount * (carried + sold_out[:, step] * tomorrow[:, :1])
        after[:, step] = stay
        if given is None:
            value, orders[:, step] = _best_orders(laws, step, stay)
            return value
        orders[:, step] = order = given[:, step]
        paid = terms.purchase[:, step, None] * laws.width[:, None] * order + terms.fixed[:, step, None] * (order > 0)
        return paid + np.take_along_axis(stay, np.minimum(np.arange(size) + order, size - 1), -1)

    last = -terms.salvage[:, None] * stock
    if not terms.cycle:
        return OrderPlan(orders, *rule, laws, after, _one_round(one_step, horizon, last)[:, 0])
    reached = np.arange(size) <= laws.caps.max(axis=1)[:, None]
    cost, doubt = solve_cycle(one_step, horizon, last, reached, discount=terms.discount**horizon)
    return OrderPlan(orders, *rule, laws, after, cost, float(doubt.sum()))


# V_h from V_{h+1}: values (C, states).
Step = Callable[[int, FloatArray], FloatArray]


def _one_round(one_step: Step, horizon: int, value: FloatArray) -> FloatArray:
    return reduce(lambda after, step: one_step(step, after), reversed(range(horizon)), value)


def solve_cycle(
    one_step: Step, horizon: int, value: FloatArray, reached: BoolArray, *, discount: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """The cost of a cycle, (C,), and how well it is known: values (C, states) are repeated until it is known.

    With the changes Δ of one more round, over the states that are `reached` (MacQueen's bounds):

        min Δ ≤ average cost ≤ max Δ,    with a discount β of a round   V + β/(1−β) min Δ ≤ cost ≤ V + β/(1−β) max Δ
    """
    for number in range(MOST_CYCLES):
        change = _one_round(one_step, horizon, value) - value
        low = np.min(change, axis=1, where=reached, initial=np.inf)
        high = np.max(change, axis=1, where=reached, initial=-np.inf)
        cost, doubt = (low + high) / 2, (high - low) / 2
        if discount < 1:  # the changes to come are a geometric series
            value = value + change
            cost, doubt = value[:, 0] + discount / (1 - discount) * cost, discount / (1 - discount) * doubt
        if (doubt <= CYCLE_SOLVED * np.maximum(np.abs(cost), 1e-12)).all():
            break
        if discount == 1:  # only differences of values count; half a step, once it takes long
            value = value + change * (0.5 if number > DAMPED_AFTER else 1.0)
            value = value - value[:, :1]
    return cost, doubt


def _best_orders(laws: UnitLaws, step: int, stay: FloatArray) -> tuple[FloatArray, IntArray]:
    """V_h and the best order for each stock, from G_h."""
    terms, size = laws.terms, stay.shape[-1]
    # Only up to the cap; buying costs the same from any stock, so it is counted by the level.
    paid = terms.purchase[:, step, None] * laws.width[:, None] * np.arange(size)
    reach = np.where(np.arange(size) <= laws.caps[:, step, None], paid + stay, np.inf)
    ordered, target = np.full_like(stay, np.inf), np.zeros(stay.shape, dtype=np.int64)
    for pack in np.unique(laws.packs):
        mine = np.flatnonzero(laws.packs == pack)
        best, where = best_from(reach[mine], int(pack))
        steps = np.ceil(terms.minimum[mine, step] / laws.width[mine] / pack - 1e-9).astype(np.int64)
        start = np.arange(size) + np.maximum(steps, 1)[:, None] * pack
        inside = np.minimum(start, size - 1)
        ordered[mine] = np.where(start < size, np.take_along_axis(best, inside, -1), np.inf)
        target[mine] = np.take_along_axis(where, inside, -1)
    ordered += terms.fixed[:, step, None] - paid
    ordered = np.where(terms.deliveries[:, step, None], ordered, np.inf)
    orders = np.where(ordered < stay, target - np.arange(size), 0)
    return np.minimum(stay, ordered), orders


def best_from(cost: FloatArray, pack: int) -> tuple[FloatArray, IntArray]:
    """min and argmin of cost at y, y + pack, y + 2 pack, ... for every y, (columns, N + 1)."""
    columns, size = cost.shape
    rows = -(-size // pack)
    by_rest = np.pad(cost, ((0, 0), (0, rows * pack - size)), constant_values=np.inf).reshape(columns, rows, pack)
    best = np.minimum.accumulate(by_rest[:, ::-1], axis=1)[:, ::-1]
    # The first place that is as good as all after it.
    place = np.broadcast_to(np.arange(rows * pack).reshape(rows, pack), by_rest.shape)
    first = np.minimum.accumulate(np.where(by_rest == best, place, rows * pack)[:, ::-1], axis=1)[:, ::-1]
    return best.reshape(columns, -1)[:, :size], first.reshape(columns, -1)[:, :size]
