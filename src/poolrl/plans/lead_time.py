"""Orders that arrive L steps later, of one product at a time, in a cycle without discount.

*Unmet demand is lost.* The state is what is there, x, and what is on its way, q_1 ... q_{L−1}:

    V(x, q) = h E(x − D)⁺ + b E(D − x)⁺ + min_z { K [z > 0] + c z + E V′((x − D)⁺ + q_1, q_2, ..., q_{L−1}, z) }

(with L = 1 the order z takes the place of q_1). Where that state is small the programme is solved exactly. Otherwise
the plan is capped base stock: order up to S of all that is there or on its way, but at most r (Xin 2021), both chosen
on simulated paths of the model.

*Unmet demand waits.* The position p alone counts: what is there and on its way, minus what waits. An order of now shows
in L steps, when the demand of L + 1 steps has come off it. So the programme is exact on its lattice whatever L is:

    G_h(y) = E[ h (y − D_{h..h+L})⁺ + b (D_{h..h+L} − y)⁺ ]
    V_h(p) = min { K [y > p] + c (y − p) + G_h(y) + E V_{h+1}(y − D_h) : y ≥ p }
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, IntArray, whole
from poolrl.learning.model import PrivateModel
from poolrl.plans.orders import UnitLaws, best_from, solve_cycle, unit_laws
from poolrl.problems.operations import Operations

# States times orders of a programme that is still solved exactly.
LARGEST_PROGRAMME = 3_000_000
# Demand that is exceeded with this chance is rare: larger orders and stocks are not tried.
RARE = 1e-4
# Paths to choose capped base stock on, and as many to judge it: steps that count, and first ones that do not.
PATHS, COUNTED_STEPS, FIRST_STEPS = 1_000, 200, 60
FINER_SEARCHES = 4


@dataclass(frozen=True)
class LeadTimePlan:
    """Of one column: a table of orders by step and state, or base stock and cap by step; all in lattice steps."""

    width: float
    lead_time: int
    table: IntArray | None  # (H, N + 1, M + 1, ..., M + 1)
    base_stock: IntArray | None  # (H,)
    cap: IntArray | None  # (H,)
    cost: float  # of one round, on average
    doubt: float  # half the width of its bounds, or its standard error
    bound: float | None  # no plan costs less on average; known where the programme was solved

    def order(self, step: int, stock: float, on_the_way: ArrayLike = ()) -> float:
        """What to order, in units. `on_the_way` arrives in 1, 2, ..., L − 1 steps."""
        coming = np.rint(np.asarray(on_the_way, dtype=np.float64) / self.width).astype(np.int64)
        held = int(np.rint(stock / self.width))
        if coming.shape != (self.lead_time - 1,) or held < 0 or (coming < 0).any():
            raise ValueError(f"with a lead time of {self.lead_time} there are {self.lead_time - 1} orders on their way")
        if self.table is not None:
            table = self.table[step % len(self.table)]
            return float(table[tuple(np.minimum([held, *coming], np.array(table.shape) - 1))]) * self.width
        assert self.base_stock is not None
        assert self.cap is not None
        at = step % len(self.base_stock)
        wanted = max(int(self.base_stock[at]) - held - int(coming.sum()), 0)
        return min(wanted, int(self.cap[at])) * self.width


def plan_lead_time(
    model: PrivateModel,
    operations: Operations,
    *,
    lead_time: int,
    rng: np.random.Generator,
    scale: ArrayLike | None = None,
) -> list[LeadTimePlan]:
    """A plan for each column (label cells, then products) of a private model, in a cycle. Free."""
    laws = unit_laws(model, operations, scale=scale)
    return [solve_lead_time(laws, lead_time, column=column, rng=rng) for column in range(len(laws.width))]


def solve_lead_time(
    laws: UnitLaws, lead_time: int, *, rng: np.random.Generator, column: int = 0, largest: int = LARGEST_PROGRAMME
) -> LeadTimePlan:
    """One column: exactly if its programme has at most `largest` states times orders, else by capped base stock."""
    whole(lead_time=lead_time)
    own = laws.columns(slice(column, column + 1))
    own.terms.require_plain_cycle("a lead time")
    orders, stocks = _reach(own, lead_time)
    if (stocks + 1) * (orders + 1) ** lead_time <= largest:
        return _exact(own, lead_time, orders, stocks)
    return _capped(own, lead_time, rng)


def _reach(laws: UnitLaws, lead_time: int) -> tuple[int, int]:
    """The largest order that is tried, and the most that may be there or on its way.

    That is rare demand until an order arrives, and the order that a fixed cost makes worth it (√(2 K d / h)). Where
    nothing is gained by ordering ahead (a fixed cost, or steps that differ), no order exceeds rare demand of one step.
    """
    most = int((1 - np.cumsum(laws.chance[0], axis=-1) > RARE).sum(axis=-1).max())
    mean = float(laws.mean_steps.max())
    ahead = laws.terms.fixed.any() or laws.chance.shape[1] > 1
    position = int(np.ceil(most + lead_time * mean + laws.terms.worth_holding(mean, float(laws.width[0]))))
    stocks = min(position, (lead_time + 1) * int(laws.caps.max()))
    return min(position if ahead else most, stocks), stocks


def _exact(laws: UnitLaws, lead_time: int, orders: int, stocks: int) -> LeadTimePlan:
    terms, chance, width = laws.terms, laws.chance[0], float(laws.width[0])
    horizon, stock = len(chance), np.arange(stocks + 1)
    demand = np.arange(chance.shape[-1])
    left = np.maximum(stock[:, None] - demand, 0)
    now, moves = np.empty((horizon, stocks + 1)), np.zeros((horizon, stocks + 1, stocks + 1))
    for step in range(horizon):
        costs = terms.of_leftovers((0, step), left, np.maximum(demand - stock[:, None], 0))
        now[step] = costs @ chance[step] * width
        np.add.at(moves[step], (stock[:, None], left), chance[step])
    order = np.arange(orders + 1)
    paid = order * width * terms.purchase[0][:, None] + terms.fixed[0][:, None] * (order > 0)
    shape = (stocks + 1, *[orders + 1] * (lead_time - 1))
    table = np.zeros((horizon, *shape), dtype=np.int64)
    arrives = np.minimum(stock[:, None] + order, stocks)  # what is left, and the next arrival
    # Nothing is thrown away: an order that might not fit later is not allowed. States beyond are never reached.
    too_much = (sum(np.ix_(stock, *[order] * lead_time)) > stocks) & (order > 0)
    inside = np.asarray(sum(np.ix_(stock, *[order] * (lead_time - 1))) <= stocks)

    def one_step(step: int, value: FloatArray) -> FloatArray:
        joined = value.reshape(shape)[arrives]  # (left, q_1, q_2 ..., z), and with L = 1 (left, z)
        after = (moves[step] @ joined.reshape(stocks + 1, -1)).reshape(joined.shape) + paid[step]
        after[too_much] = np.inf
        table[step] = after.argmin(axis=-1)
        return (now[step].reshape(-1, *[1] * (lead_time - 1)) + after.min(axis=-1)).reshape(1, -1)

    (cost,), (doubt,) = solve_cycle(one_step, horizon, np.zeros((1, table[0].size)), inside.reshape(1, -1))
    return LeadTimePlan(width, lead_time, table, None, None, cost, doubt, cost - doubt)


def _capped(laws: UnitLaws, lead_time: int, rng: np.random.Generator) -> LeadTimePlan:
    """Base stock and cap of every step, in turn, on the same paths; then judged on fresh ones."""
    ahead, horizon = _mean_ahead(laws, lead_time + 1), laws.chance.shape[1]
    base, cap = np.ceil(1.3 * ahead).astype(np.int64), np.ceil(1.5 * laws.mean_steps[0]).astype(np.int64) + 1
    paths = _drawn_demand(laws, rng)
    best = _average_cost(laws, paths, lead_time, base, cap).mean()
    reach = max(1, int(np.ceil(ahead.max() / 8)))
    for sweep in range(FINER_SEARCHES):
        stride = max(1, reach >> sweep)
        improved = True
        while improved:
            improved = False
            for chosen, step, move in (
                (chosen, step, move) for chosen in (base, cap) for step in range(horizon) for move in (stride, -stride)
            ):
                chosen[step] += move
                cost = _average_cost(laws, paths, lead_time, base, cap).mean() if chosen[step] >= 0 else np.inf
                if cost < best - 1e-12:
                    best, improved = cost, True
                else:
                    chosen[step] -= move
    costs = _average_cost(laws, _drawn_demand(laws, rng), lead_time, base, cap)
    error = float(costs.std(ddof=1) / np.sqrt(len(costs)))
    return LeadTimePlan(float(laws.width[0]), lead_time, None, base, cap, float(costs.mean()), error, None)


def base_stock_cost(
    laws: UnitLaws, lead_time: int, levels: FloatArray, *, column: int, rng: np.random.Generator
) -> float:
    """What somebody pays who fills up to levels (H,), in units, and orders what the steps until then sell on average.

    Of one round, on average: what people do without a plan.
    """
    own = laws.columns(slice(column, column + 1))
    reached = np.roll(levels, -lead_time) / float(own.width[0])
    base = np.rint(_mean_ahead(own, lead_time) + reached).astype(np.int64)
    cap = np.full(len(base), int(base.max()))
    return float(_average_cost(own, _drawn_demand(own, rng), lead_time, base, cap).mean())


def _mean_ahead(laws: UnitLaws, steps: int) -> FloatArray:
    """Mean demand of this and the next steps together, (H,)."""
    means = laws.mean_steps[0]
    return np.asarray(sum(np.roll(means, -i) for i in range(steps)))


def _drawn_demand(laws: UnitLaws, rng: np.random.Generator) -> IntArray:
    """Demand (rounds, H, paths)."""
    horizon = laws.chance.shape[1]
    rounds = -(-FIRST_STEPS // horizon) - (-COUNTED_STEPS // horizon)
    drawn = [rng.choice(len(law), (rounds, PATHS), p=law / law.sum()) for law in laws.chance[0]]
    return np.stack(drawn, axis=1)


def _average_cost(laws: UnitLaws, paths: IntArray, lead_time: int, base: IntArray, cap: IntArray) -> FloatArray:
    """Of one round on each path, (paths,)."""
    terms, width = laws.terms, float(laws.width[0])
    rounds, horizon, many = paths.shape
    stock, coming = np.zeros(many, dtype=np.int64), np.zeros((lead_time, many), dtype=np.int64)
    cost, first = np.zeros(many), -(-FIRST_STEPS // horizon)
    for number in range(rounds):
        for step in range(horizon):
            # coming[0] arrives next; the order of now is the last to arrive.
            order = np.clip(base[step] - stock - coming[: lead_time - 1].sum(axis=0), 0, cap[step])
            demand = paths[number, step]
            left = np.maximum(stock - demand, 0)
            if number >= first:
                now = terms.of_leftovers((0, step), left, np.maximum(demand - stock, 0))
                cost += width * (now + terms.purchase[0, step] * order) + terms.fixed[0, step] * (order > 0)
            coming[lead_time - 1] = order
            stock = left + coming[0]
            coming = np.roll(coming, -1, axis=0)
    return cost / (rounds - first)


@dataclass(frozen=True)
class BacklogPlan:
    """Of one column: orders (H, P) by position, from `lowest` lattice steps on; what a round costs on average."""

    width: float
    lowest: int
    orders: IntArray
    cost: float
    doubt: float

    def order(self, step: int, position: float) -> float:
        """The order, in units. The position is what is there and on its way, minus what waits."""
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
    own = laws.columns(slice(column, column + 1))
    terms, chance, width = own.terms, own.chance[0], float(own.width[0])
    terms.require_plain_cycle("demand that waits")
    horizon, size = chance.shape
    # The law of all demand until an order of each step shows.
    steps_ahead = np.add.outer(np.arange(horizon), np.arange(lead_time + 1)) % horizon
    ahead = [reduce(np.convolve, chance[steps], np.ones(1)) for steps in steps_ahead]
    stocked = int(np.ceil(terms.worth_holding(float(own.mean_steps.max()), width)))
    reach = max(int((1 - np.cumsum(law) > 1e-6).sum()) for law in ahead)
    lowest, highest = -size - stocked, reach + stocked
    place = np.arange(lowest, highest + 1)
    now = np.empty((horizon, len(place)))
    for step, law in enumerate(ahead):
        over = place[:, None] - np.arange(len(law))
        left, missing = np.maximum(over, 0) @ law, np.maximum(-over, 0) @ law
        now[step] = terms.of_leftovers((0, step), left, missing) * width
    # Positions below the lattice are read as its lowest one, plus what every further unit costs to wait and to buy.
    above = place[:, None] - np.arange(size) - lowest
    below, index = np.maximum(-above, 0), np.maximum(above, 0)
    slope = float(terms.purchase.max() + terms.shortage.max()) * width
    orders = np.zeros((horizon, len(place)), dtype=np.int64)

    def one_step(step: int, value: FloatArray) -> FloatArray:
        paid = terms.purchase[0, step] * width * place
        level = now[step] + ((value[0, index] + slope * below) * chance[step]).sum(axis=1) + paid
        (best,), (target,) = best_from(level[None], 1)
        raised = np.append(best[1:], np.inf) + terms.fixed[0, step]
        orders[step] = np.where(raised < level, np.append(target[1:], 0) - np.arange(len(place)), 0)
        return (np.minimum(level, raised) - paid)[None]

    # Only positions that the rule comes back to count.
    (cost,), (doubt,) = solve_cycle(one_step, horizon, np.zeros((1, len(place))), place[None] >= 0)
    return BacklogPlan(width, lowest, orders, cost, doubt)
