"""Products that share room: the bound, the plan and the exact programme of two products."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from poolrl import Operations, PrivateModel
from poolrl.plans.capacity import expected_levels, plan_capacity, solve_capacity
from poolrl.plans.orders import UnitLaws, plan_orders, solve_orders
from tests.helpers.plans import drawn_laws, laws_of, small_model


@pytest.fixture(scope="module")
def model() -> PrivateModel:
    return small_model()


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
    assert "no plan costs less than" in str(tight)
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
