"""Orders of single products and of products that share room: plain loops, closed forms, programmes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from poolrl import Backlog, LostSales, Operations, Pool, PrivateModel, SeededNoise, plan_orders
from poolrl.checks import FloatArray
from poolrl.plans.capacity import expected_levels, plan_capacity, simulated_costs, solve_capacity
from poolrl.plans.lead_time import plan_backlog
from poolrl.plans.orders import OrderPlan, UnitLaws, fill_up, solve_orders, unit_laws
from tests.helpers.plans import drawn_laws, laws_of


def by_loops(laws: UnitLaws, column: int = 0) -> list[float]:
    """V_1 of one column by plain loops over stock, order and demand."""
    terms, (_, horizon, size) = laws.terms, laws.chance.shape
    pack, value = int(laws.packs[column]), [-float(terms.salvage[column]) * x for x in range(size)]

    def read(x: float) -> float:
        low = min(int(x), size - 2)
        return (1 - (x - low)) * value[low] + (x - low) * value[low + 1]

    for step in reversed(range(horizon)):
        after = []
        for level in range(size):
            cost = 0.0
            for demand, chance in enumerate(laws.chance[column, step]):
                left, missing = max(level - demand, 0), max(demand - level, 0)
                cost += chance * (terms.holding[column, step] * left + terms.shortage[column, step] * missing)
                cost += chance * terms.discount * read((1 - terms.spoilage[column, step]) * left)
            after.append(cost)
        value = [
            min(
                [after[x]]
                + [
                    terms.fixed[column, step] + terms.purchase[column, step] * (y - x) + after[y]
                    for y in range(x + pack, min(size, int(laws.caps[column, step]) + 1), pack)
                    if y - x >= terms.minimum[column, step] and terms.deliveries[column, step]
                ]
            )
            for x in range(size)
        ]
    return value


SHOPS = {
    "the paper's": Operations(),
    "bought and sold": Operations(purchase=0.4, price=1.5, salvage=0.1),
    "a fixed cost": Operations(fixed=[[1.0], [0.3], [2.0]], purchase=0.1),
    "packs of three": Operations(pack=3, fixed=0.2),
    "a minimum order": Operations(minimum=4, pack=2),
    "bread": Operations(spoilage=1.0, purchase=0.2),
    "half of it spoils": Operations(spoilage=0.5),
    "no delivery on the second day": Operations(deliveries=[[True], [False], [True]]),
    "discounted": Operations(discount=0.8, fixed=0.5),
}


@pytest.mark.parametrize("kind", SHOPS)
def test_orders_are_those_of_plain_loops(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    laws = laws_of(drawn_laws(rng, 2, 3, 14), SHOPS[kind], holding=rng.uniform(0.1, 0.4, (3, 2)))
    plan = solve_orders(laws)
    for column in range(2):
        assert plan.cost[column] == pytest.approx(by_loops(laws, column)[0], rel=1e-9)


def simulated(plan: OrderPlan, rounds: int, rng: np.random.Generator, paths: int = 400) -> FloatArray:
    """Mean cost of a round on each path, column 0."""
    laws, terms = plan.laws, plan.laws.terms
    stock, cost = np.zeros(paths, dtype=np.int64), np.zeros(paths)
    for _, step in itertools.product(range(rounds), range(laws.chance.shape[1])):
        order = plan.orders[0, step, stock]
        demand = rng.choice(laws.chance.shape[2], paths, p=laws.chance[0, step])
        left, missing = np.maximum(stock + order - demand, 0), np.maximum(demand - stock - order, 0)
        cost += terms.fixed[0, step] * (order > 0) + terms.purchase[0, step] * order
        cost += terms.holding[0, step] * left + terms.shortage[0, step] * missing
        stock = left
    return cost / rounds


def test_a_cycle_costs_what_its_simulation_costs() -> None:
    """And its last day knows the first one: it stocks up for a day without deliveries."""
    rng = np.random.default_rng(5)
    chance = drawn_laws(rng, 1, 3, 12)
    closed = {"deliveries": [[False], [True], [True]]}
    forever = solve_orders(laws_of(chance, Operations(cycle=True, fixed=0.3, **closed)))
    costs = simulated(forever, 600, rng)
    assert forever.cost[0] == pytest.approx(costs.mean(), abs=5 * costs.std() / 20 + 1e-3)
    assert forever.doubt <= 1e-6 * forever.cost[0]
    once = solve_orders(laws_of(chance, Operations(fixed=0.3, **closed)))
    assert forever.orders[0, 2, 0] > once.orders[0, 2, 0]


def test_a_discounted_cycle_is_what_quantecon_finds() -> None:
    """One step that repeats: policy iteration of another library on the same shop, every stock, to nine digits."""
    quantecon = pytest.importorskip("quantecon")
    rng = np.random.default_rng(6)
    size, beta, fixed, purchase = 12, 0.9, 0.8, 0.2
    chance = drawn_laws(rng, 1, 1, size)
    plan = solve_orders(laws_of(chance, Operations(cycle=True, discount=beta, fixed=fixed, purchase=purchase)))
    law = chance[0, 0]
    reward = np.full((size + 1, size + 1), -np.inf)
    moves = np.zeros((size + 1, size + 1, size + 1))
    for stock, order in itertools.product(range(size + 1), repeat=2):
        level = stock + order
        if level > size:
            moves[stock, order, 0] = 1.0
            continue
        demand = np.arange(size + 1)
        cost = 0.2 * np.maximum(level - demand, 0) + np.maximum(demand - level, 0)
        reward[stock, order] = -(fixed * (order > 0) + purchase * order + law @ cost)
        np.add.at(moves[stock, order], np.maximum(level - demand, 0), law)
    solved = quantecon.markov.DiscreteDP(reward, moves, beta).solve(method="policy_iteration")
    assert plan.cost[0] == pytest.approx(-solved.v[0], rel=1e-6)
    np.testing.assert_array_equal(plan.orders[0, 0], solved.sigma)


def test_a_cycle_that_orders_every_few_rounds_is_solved() -> None:
    """Two a day for certain, five for an order, 0.2 to hold: for n days (5 + 0.2 · 2 (1 + ... + n − 1)) / n a day."""
    law = np.zeros((1, 1, 25))
    law[..., 2] = 1.0
    plan = solve_orders(laws_of(law, Operations(cycle=True, fixed=5.0)))
    days = [(5 + 0.2 * 2 * sum(range(n))) / n for n in range(1, 12)]
    assert plan.cost[0] == pytest.approx(min(days), rel=1e-5)


BAD = {
    "spoilage beyond all": ({"spoilage": 1.5}, "share of what is left"),
    "a negative cost": ({"fixed": -1.0}, "must not be negative"),
    "nothing delivered": ({"deliveries": False}, "a step with deliveries"),
    "a price below cost": ({"price": 1.0, "purchase": 2.0}, "nobody would order"),
    "salvage above cost": ({"salvage": 1.0, "purchase": 0.5}, "without end"),
    "salvage of a cycle": ({"salvage": 0.1, "purchase": 0.5, "cycle": True}, "never ends"),
    "a discount above one": ({"discount": 1.1}, "discount"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_no_shop_can_do_is_refused(case: str) -> None:
    facts, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        laws_of(drawn_laws(np.random.default_rng(0), 1, 2, 10), Operations(**facts))  # type: ignore[arg-type]


# On a private model.


def test_without_extras_the_plan_is_the_fit_s(model: PrivateModel) -> None:
    plan, policy = plan_orders(model, Operations()), model.plan()
    for step in range(3):
        np.testing.assert_allclose(plan.order(step, [0.0, 0.0]), policy.levels[step], atol=2 * plan.laws.width.max())


def test_laws_in_units_keep_mass_mean_and_packs(model: PrivateModel) -> None:
    weights, points = model.outcomes.weights, model.outcomes.points
    mean = (weights * points).sum(axis=-1) / weights.sum(axis=-1)
    for pack in (0.0, 1.0, 7.0):
        laws = unit_laws(model, Operations(pack=pack))
        np.testing.assert_allclose(laws.chance.sum(axis=-1), 1.0)
        np.testing.assert_allclose(laws.mean_steps * laws.width[:, None], mean.T, atol=0.05)
        assert (laws.chance >= -1e-15).all()
        np.testing.assert_allclose(laws.packs * laws.width, pack if pack else laws.width)
    twice = unit_laws(model, Operations(), scale=2.0)
    np.testing.assert_allclose(twice.mean_steps * twice.width[:, None], 2 * mean.T, atol=0.1)


@pytest.mark.parametrize("facts", [{"pack": 50.0}, {"minimum": 31.0}])
def test_orders_larger_than_the_bound_are_refused(model: PrivateModel, facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="larger than the bound"):
        plan_orders(model, Operations(**facts))
    assert unit_laws(model, Operations(**facts), scale=4.0).chance.shape[:2] == (2, 3)


def test_filling_up_costs_what_it_costs_and_never_less(model: PrivateModel) -> None:
    """On levels that are best without extras, fixed costs and packs are only paid for."""
    plain = plan_orders(model, Operations())
    levels = np.stack([plain.order(step, [0.0, 0.0]) for step in range(3)], axis=1)
    np.testing.assert_allclose(fill_up(plain.laws, levels).cost, plain.cost)
    for facts in ({"fixed": 2.0}, {"pack": 5.0}, {"minimum": 6.0, "purchase": 0.1}, {"cycle": True, "fixed": 1.0}):
        laws = unit_laws(model, Operations(**facts))
        assert (fill_up(laws, levels).cost >= solve_orders(laws).cost - 1e-6).all()


def test_packs_that_are_never_held_are_refused() -> None:
    """Past orders went up to 8, so a pack of 24 would never be ordered."""
    problem = LostSales(horizon=2, products=1, holding=0.2, shortage=1.0, demand_max=60.0)
    rng = np.random.default_rng(1)
    timid: dict[str, Any] = {"behaviour": lambda step, stock, rng: np.maximum(stock, rng.uniform(0, 8, stock.shape))}
    log = problem.simulate_log(rng.gamma(5, 3, (1000, 2, 1)).clip(0, 60), rng=rng, **timid)
    with pytest.raises(ValueError, match="larger than what is ever held"):
        plan_orders(Pool(1.0).model(problem, log, noise=SeededNoise(1)), Operations(pack=24))


def test_demand_that_waits_is_not_planned_as_lost() -> None:
    problem = Backlog(horizon=2, holding=0.2, shortage=1.0, demand_max=30.0)
    rng = np.random.default_rng(1)
    log = problem.simulate_log(rng.gamma(4, 2.5, (200, 2, 1)).clip(0, 30), rng=rng)
    waiting = Pool(1.0).model(problem, log, noise=SeededNoise(1))
    with pytest.raises(ValueError, match="for lost sales"):
        plan_orders(waiting, Operations())
    plan = plan_backlog(waiting, Operations(cycle=True), lead_time=1)[0]
    assert plan.order(0, -3.0) == pytest.approx(plan.order(0, 0.0) + 3.0, abs=2 * plan.width)
    assert waiting.plan().levels.shape == (2, 1)


@pytest.mark.parametrize("kind", ["bought and sold", "half of it spoils"])
def test_a_plan_costs_on_paths_what_it_said(model: PrivateModel, kind: str) -> None:
    """To four standard errors. No fixed cost: up to one level from every stock."""
    plan = plan_orders(model, SHOPS[kind])
    levels = [plan.order(step, [0.0, 0.0]) for step in range(3)]
    rng = np.random.default_rng(3)
    costs = simulated_costs(plan.laws, lambda step, stock: np.maximum(stock, levels[step]), rng, 800)
    assert costs.mean() == pytest.approx(plan.cost.sum(), abs=4 * costs.std() / 800**0.5)


def exact_for_two(laws: UnitLaws, volumes: list[float], room: float) -> float:
    """The best cost of two products that share room, by a programme over both stocks."""
    size, horizon = laws.chance.shape[2], laws.chance.shape[1]
    terms, places = laws.terms, range(laws.chance.shape[2])
    value = np.zeros((size, size))
    for step in reversed(range(horizon)):
        one, two = laws.chance[:, step]
        moves = []
        for law in (one, two):
            move = np.zeros((size, size))  # level → what is left
            for level, demand in itertools.product(places, places):
                move[level, max(level - demand, 0)] += law[demand]
            moves.append(move)
        after = moves[0] @ value @ moves[1].T
        demand = np.arange(size)
        for i in range(2):
            cost = [
                laws.chance[i, step]
                @ (
                    terms.holding[i, step] * np.maximum(y - demand, 0)
                    + terms.shortage[i, step] * np.maximum(demand - y, 0)
                )
                for y in places
            ]
            after = after + (np.array(cost)[:, None] if i == 0 else np.array(cost)[None, :])
        fits = volumes[0] * demand[:, None] + volumes[1] * demand[None, :] <= room + 1e-9
        after = np.where(fits, after, np.inf)
        best = np.minimum.accumulate(np.minimum.accumulate(after[::-1, ::-1], axis=0), axis=1)[::-1, ::-1]
        value = np.where(np.isfinite(best), best, 1e9)  # stocks that do not fit are never reached
    return float(value[0, 0])


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_the_bound_and_the_plan_enclose_the_exact_optimum(share: float) -> None:
    rng = np.random.default_rng(9)
    laws = laws_of(drawn_laws(rng, 2, 3, 16), Operations(), holding=[0.1, 0.3], shortage=[0.6, 1.2])
    volumes = [1.0, 2.0]
    room = float(np.floor(share * (volumes @ expected_levels(solve_orders(laws))).max()))
    exact = exact_for_two(laws, volumes, room)
    found = solve_capacity(laws, volumes, room, rng=rng, paths=40_000)
    assert found.bound <= exact + 1e-9
    assert found.cost >= exact * (1 - 0.01) - 4 * found.error
    assert found.gap <= 0.03 + 4 * found.error / found.bound
    assert (found.prices >= 0).all()


def test_what_is_left_fits_into_less_room_later() -> None:
    """A capacity that falls: the certificate holds, and the plan's own stocks are never refused."""
    rng = np.random.default_rng(3)
    laws = laws_of(drawn_laws(rng, 2, 3, 16), Operations(), holding=[0.1, 0.3], shortage=[0.6, 1.2])
    found = solve_capacity(laws, [1.0, 2.0], [30.0, 30.0, 8.0], rng=rng, paths=20_000)
    assert found.gap >= -3 * found.error / found.bound
    stock = np.zeros((500, 2))
    for step in range(3):
        level = found.order_up_to(step, stock)
        assert (level @ [1.0, 2.0] <= 8.0 + 1e-6).all()
        demand = np.stack([rng.choice(17, 500, p=law) for law in laws.chance[:, step]], axis=1)
        stock = np.maximum(level - demand, 0.0)


def test_capacity_is_never_exceeded_and_stays_unused_if_ample(model: PrivateModel) -> None:
    rng = np.random.default_rng(10)
    tight = plan_capacity(model, Operations(), volumes=[1.0, 2.0], capacity=20.0, rng=rng)
    stock = rng.uniform(0, 6, (500, 2))
    levels = tight.order_up_to(1, stock)
    assert (levels >= stock - 1e-9).all()
    assert ((levels * [1.0, 2.0]).sum(axis=1) <= 20.0 + 1e-6).all()
    assert tight.order_up_to(0, [0.0, 0.0]) @ [1.0, 2.0] == pytest.approx(20.0)
    ample = plan_capacity(model, Operations(), volumes=1.0, capacity=1e6, rng=rng)
    np.testing.assert_array_equal(ample.prices, 0.0)
    np.testing.assert_allclose(ample.order_up_to(0, [0.0, 0.0]), plan_orders(model, Operations()).order(0, [0.0, 0.0]))
    with pytest.raises(ValueError, match="more than the capacity"):
        tight.order_up_to(0, [20.0, 20.0])
    for step, held in ((-1, [0.0, 0.0]), (3, [0.0, 0.0]), (0, [0.0])):
        with pytest.raises(ValueError, match="a step in 0"):
            tight.order_up_to(step, held)
    plan = plan_orders(model, Operations())
    for step, cell in ((3, 0), (-1, 0), (0, 1), (0, -1)):
        with pytest.raises(ValueError, match="step must lie in"):
            plan.order(step, [0.0, 0.0], cell=cell)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"capacity": 0.0}, "must be positive"),
        ({"volumes": -1.0}, "must be positive"),
        ({"cell": 1}, "cell must lie in"),
        ({"operations": Operations(pack=2)}, "any amount"),
    ],
)
def test_capacities_that_cannot_be_planned(model: PrivateModel, facts: dict[str, Any], message: str) -> None:
    given = {"operations": Operations(), "volumes": 1.0, "capacity": 9.0, "rng": np.random.default_rng(0)} | facts
    with pytest.raises(ValueError, match=message):
        plan_capacity(model, given.pop("operations"), **given)
