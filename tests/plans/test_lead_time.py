"""Orders that arrive later, against published best costs, and costs that were played."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.planning import PUBLISHED, ZHENG_FEDERGRUEN, poisson

from poolrl import Operations, PrivateModel
from poolrl.plans.lead_time import LeadTimePlan, plan_backlog, solve_backlog, solve_lead_time
from poolrl.plans.orders import UnitLaws
from tests.helpers.plans import drawn_laws, laws_of


def zipkin(demand: str, penalty: float) -> UnitLaws:
    """Poisson or geometric demand of mean 5."""
    law = poisson(np.array(5.0), 40) if demand == "Poisson" else (5 / 6) ** np.arange(121) / 6
    return laws_of((law / law.sum())[None, None], Operations(cycle=True), holding=1.0, shortage=penalty)


@pytest.mark.parametrize(("demand", "penalty"), PUBLISHED)
@pytest.mark.parametrize("lead_time", [1, 2])
def test_short_lead_times_cost_what_was_published(demand: str, penalty: int, lead_time: int) -> None:
    plan = solve_lead_time(zipkin(demand, penalty), lead_time, rng=np.random.default_rng(0))
    assert plan.bound is not None
    assert plan.cost == pytest.approx(PUBLISHED[demand, penalty][lead_time - 1], abs=0.0051)
    assert plan.bound <= plan.cost + 1e-9


@pytest.mark.parametrize(("demand", "penalty"), [("Poisson", 9), ("geometric", 4)])
def test_capped_base_stock_is_near_the_best(demand: str, penalty: int) -> None:
    """By force, where the exact cost is known: within 2% of it, and four standard errors."""
    plan = solve_lead_time(zipkin(demand, penalty), 4, rng=np.random.default_rng(1), largest=0)
    assert plan.base_stock is not None
    best = PUBLISHED[demand, penalty][3]
    assert best - 4 * plan.doubt <= plan.cost <= 1.02 * best + 4 * plan.doubt
    # Nothing there or on its way: the cap. All of the base stock on its way: nothing.
    assert plan.order(0, 0.0, [0, 0, 0]) == plan.cap[0]  # type: ignore[index]
    assert plan.order(0, float(plan.base_stock[0]), [0, 0, 0]) == 0


def played(plan: LeadTimePlan, laws: UnitLaws, rng: np.random.Generator, rounds: int = 4_000) -> float:
    """Mean cost of a round, order by order, of column 0."""
    terms, horizon = laws.terms, laws.chance.shape[1]
    stock, coming, cost = 0.0, [0.0] * (plan.lead_time - 1), 0.0
    for number in range(rounds):
        for step in range(horizon):
            order = plan.order(step, stock, coming)
            demand = rng.choice(laws.chance.shape[2], p=laws.chance[0, step]) * plan.width
            left, missing = max(stock - demand, 0.0), max(demand - stock, 0.0)
            if number >= rounds // 10:
                cost += terms.holding[0, step] * left + terms.shortage[0, step] * missing
                cost += terms.fixed[0, step] * (order > 0) + terms.purchase[0, step] * order
            coming.append(order)
            stock = left + coming.pop(0)
    return cost / (rounds - rounds // 10)


EXTRAS: dict[str, dict[str, Any]] = {"plain": {}, "fixed": {"fixed": 40.0}, "a dear day": {"purchase": [[0.1], [2.0]]}}


@pytest.mark.parametrize("kind", EXTRAS)
def test_the_table_costs_what_it_says(kind: str) -> None:
    """Nothing is thrown away where stock or orders are limited, and large orders are tried where they pay."""
    chance = np.tile(poisson(np.array(3.0), 60), (1, 2 if kind == "a dear day" else 1, 1))
    laws = laws_of(chance, Operations(cycle=True, **EXTRAS[kind]), holding=0.1, shortage=30.0)
    plan = solve_lead_time(laws, 1, rng=np.random.default_rng(0))
    assert plan.table is not None
    assert played(plan, laws, np.random.default_rng(1)) == pytest.approx(plan.cost, rel=0.04)
    if kind == "fixed":
        assert plan.cost == pytest.approx(5.32, abs=0.01)  # by the same programme with every order up to 60
        assert plan.order(0, 0.0) > 30


def test_what_is_certain_is_ordered_in_time() -> None:
    """Three units a day, two days ahead: order three, and nothing is left or missing."""
    law = np.zeros((1, 1, 9))
    law[..., 3] = 1.0
    plan = solve_lead_time(laws_of(law, Operations(cycle=True)), 2, rng=np.random.default_rng(0))
    assert plan.cost == pytest.approx(0.0, abs=1e-9)
    assert plan.order(5, 3.0, [3.0]) == 3.0
    with pytest.raises(ValueError, match="there are 1 orders on their way"):
        plan.order(0, 3.0)


@pytest.mark.parametrize(
    ("operations", "lead_time", "message"),
    [
        (Operations(), 1, "for a cycle"),
        (Operations(cycle=True, pack=2), 1, "any amount"),
        (Operations(cycle=True, discount=0.9), 1, "without discount"),
        (Operations(cycle=True), 0, "lead_time"),
    ],
)
def test_lead_times_that_cannot_be_planned(operations: Operations, lead_time: int, message: str) -> None:
    laws = laws_of(drawn_laws(np.random.default_rng(0), 1, 2, 10), operations)
    with pytest.raises(ValueError, match=message):
        solve_lead_time(laws, lead_time, rng=np.random.default_rng(0))


# Demand that waits.


def waiting_laws(mean: float, days: int = 1, **facts: Any) -> UnitLaws:
    chance = np.tile(poisson(np.array(mean), int(4 * mean) + 40), (1, days, 1))
    return laws_of(chance, Operations(cycle=True, **facts), holding=1.0, shortage=9.0)


@pytest.mark.parametrize("mean", ZHENG_FEDERGRUEN)
def test_fixed_costs_with_backlog_are_those_published(mean: int) -> None:
    plan = solve_backlog(waiting_laws(mean, fixed=64.0))
    low, high, cost = ZHENG_FEDERGRUEN[mean]
    assert plan.cost == pytest.approx(cost, abs=6e-4)
    assert plan.order(0, low) == high - low
    assert plan.order(0, low + 1) == 0
    assert plan.order(0, -200.0) == high + 200  # far below the lattice, too


@pytest.mark.parametrize("lead_time", [0, 1, 3])
def test_without_a_fixed_cost_the_level_is_a_quantile(lead_time: int) -> None:
    """Of the demand until an order shows: the least y with P(D ≤ y) ≥ b / (b + h)."""
    laws = waiting_laws(6.0)
    plan = solve_backlog(laws, lead_time)
    total = np.ones(1)
    for _ in range(lead_time + 1):
        total = np.convolve(total, laws.chance[0, 0])
    level = int(np.argmax(np.cumsum(total) >= 0.9))
    assert plan.order(0, 0.0) == level
    amounts = np.arange(len(total))
    exact = total @ (np.maximum(level - amounts, 0) + 9.0 * np.maximum(amounts - level, 0))
    assert plan.cost == pytest.approx(exact, rel=1e-6)
    # Two days alike are one day twice.
    assert solve_backlog(waiting_laws(6.0, days=2), lead_time).cost == pytest.approx(2 * exact, rel=1e-6)


def test_what_waits_is_refused_where_nothing_waits(model: PrivateModel) -> None:
    with pytest.raises(ValueError, match="demand that waits"):
        plan_backlog(model, Operations(cycle=True))
    for facts, message in (({"pack": 2.0}, "any amount"), ({"discount": 0.9}, "without discount")):
        with pytest.raises(ValueError, match=message):
            solve_backlog(waiting_laws(5.0, **facts))
