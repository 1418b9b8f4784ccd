"""Public facts: rewards, units, boundary, simulation; a problem is built again from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from poolrl import Backlog, Boundary, Guarantee, LostSales, Policy
from poolrl.learning.policy import Levels


def test_the_virtual_reward_is_the_papers() -> None:
    """−(h (y − D)⁺ − b min(y, D)) as a function of (y, x′), and the true cost up to the constant b D."""
    rng = np.random.default_rng(0)
    problem = LostSales(
        horizon=2, products=3, holding=rng.uniform(0, 1, (2, 3)), shortage=rng.uniform(0, 1, (2, 3)), demand_max=10.0
    )
    x, demand = rng.uniform(0, 5, (50, 3)), rng.uniform(0, 10, (50, 3))
    y = rng.uniform(x, 10)
    left = problem.next_state(1, x, y, demand)
    h, b = problem.holding[1], problem.shortage[1]
    printed = -(np.maximum(y - demand, 0) @ h - np.minimum(y, demand) @ b)
    assert problem.reward(1, x, y, left) == pytest.approx(printed)
    assert -problem.reward(1, x, y, left) + demand @ b == pytest.approx(problem.cost(1, x, y, demand))
    low, high = problem.reward_range(1)
    assert (low <= printed).all()
    assert (printed <= high).all()


def test_a_row_worked_by_hand() -> None:
    lost = LostSales(horizon=1, holding=2.0, shortage=5.0, demand_max=10.0)
    waiting = Backlog(horizon=1, holding=2.0, shortage=5.0, demand_max=10.0)
    x, y, demand = np.array([[1.0]]), np.array([[4.0]]), np.array([[7.0]])
    assert lost.next_state(0, x, y, demand) == 0
    assert lost.reward(0, x, y, np.array([[0.0]])) == 20  # sold 4 at 5 each
    assert lost.observe(0, x, y, np.array([[0.0]])) == (4, True)
    assert lost.observe(0, x, y, np.array([[1.5]])) == (2.5, False)
    assert waiting.next_state(0, x, y, demand) == -3
    assert waiting.reward(0, x, y, np.array([[-3.0]])) == -15
    assert waiting.observe(0, x, y, np.array([[-3.0]])) == (7, False)
    assert lost.cost(0, x, y, demand) == waiting.cost(0, x, y, demand) == 15


def test_a_shelf_emptied_by_float_arithmetic_is_empty() -> None:
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=1.0)
    y, sales = np.array([[0.1 * 3]]), np.array([[0.3]])
    left = y - sales
    assert left > 0  # 5.6e-17 of a loaf
    assert problem.observe(0, y * 0, y, left)[1].all()


def test_units_are_the_users_and_go_there_and_back() -> None:
    problem = Backlog(horizon=2, products=2, holding=1, shortage=1, demand_max=[10.0, 400.0], boundary=[[0.5, 1.0]])
    state, action = np.array([[-10.0, 400.0]]), np.array([[0.0, 100.0]])
    unit = problem.unit_pair(state, action)
    assert unit == pytest.approx(np.array([[0, 1, 0, 0.25]]))
    back = problem.natural_pair(unit)
    assert back[0] == pytest.approx(state)
    assert back[1] == pytest.approx(action)
    # λ = 0.5 of demand_max = 10 is y = 5, and a stock of 5 is three quarters of [−10, 10].
    assert problem.boundary.reach[0] == pytest.approx([0.75, 1.0, 0.5, 1.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon must be a whole number of at least 1, got 0"),
        ({"products": 1.5}, r"products must be a whole number of at least 1, got 1\.5"),
        ({"holding": -1}, "holding must not be negative, got -1"),
        ({"shortage": np.nan}, "shortage must be finite"),
        ({"shortage": "dear"}, "shortage must hold numbers"),
        ({"holding": np.ones((3, 3))}, r"holding must broadcast to shape \(2, 1\), got shape \(3, 3\)"),
        ({"demand_max": 0}, "demand_max must be positive, got 0"),
        ({"boundary": 0.0}, r"boundary must lie in \(0, 1\] on the lower side"),
        ({"boundary": 1.2}, r"boundary must lie in \(0, 1\] on the lower side"),
    ],
)
def test_bad_facts(changes: dict, message: str) -> None:
    facts = {"horizon": 2, "holding": 1.0, "shortage": 1.0, "demand_max": 10.0} | changes
    with pytest.raises(ValueError, match=message):
        LostSales(**facts)


def test_bad_boundaries() -> None:
    with pytest.raises(ValueError, match="side must be 'lower' or 'higher', got 'left'"):
        Boundary(np.ones((1, 2)), side="left")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"boundary must lie in \[0, 1\) on the higher side"):
        Boundary(np.ones((1, 2)), side="higher")


def test_simulation_logs_what_a_shop_would_see() -> None:
    problem = LostSales(horizon=4, products=2, holding=1, shortage=1, demand_max=10.0, boundary=0.8)
    rng = np.random.default_rng(0)
    demand = rng.uniform(0, 10, (500, 4, 2))
    log = problem.simulate_log(demand, rng=rng)
    assert (log.states[:, 0] == 0).all()
    assert np.array_equal(log.states[:, 1:], log.next_states[:, :-1])
    assert log.next_states == pytest.approx(np.maximum(log.actions - demand, 0))
    assert (log.actions >= log.states).all()
    assert log.actions.max() <= 8.0
    fixed = problem.simulate_log(demand, rng=rng, behaviour=lambda step, stock, rng: np.full(stock.shape, 6.0 + step))
    assert (fixed.actions[:, 2] == 8.0).all()


def test_simulation_refuses_impossible_demand() -> None:
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=10.0)
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="outcomes must lie within the problem's public bounds"):
        problem.simulate_log(np.full((1, 1, 1), 11.0), rng=rng)
    with pytest.raises(ValueError, match=r"outcomes must have shape \(episodes, 1, 1\), got \(2, 2, 1\)"):
        problem.simulate_log(np.ones((2, 2, 1)), rng=rng)


AXES = st.tuples(*(st.sampled_from([1, n]) for n in (3, 2, 4, 2)))  # shop, promotion, step, product


@settings(max_examples=30, deadline=None)
@given(AXES, AXES, AXES, st.integers(0, 2**32 - 1))
def test_a_problem_is_built_again_from_its_facts(
    holding: tuple[int, ...], profile: tuple[int, ...], bound: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    problem = LostSales(
        horizon=4,
        products=2,
        holding=rng.integers(1, 3, holding),
        shortage=2.0,
        demand_max=rng.integers(1, 3, (*bound[:2], bound[3])),
        scale_profile=rng.integers(1, 3, profile),
        labels={"shop": [1, 2, 3], "promo": ["no", "yes"]},
    )
    declared = {name: value for name, value in json.loads(json.dumps(problem.facts())).items() if name != "kind"}
    again = LostSales(**declared)
    for name in ("holding", "shortage", "label_bounds", "scale_profile", "share"):
        np.testing.assert_array_equal(getattr(again, name), getattr(problem, name))
    assert again.facts() == problem.facts()
    assert LostSales.from_facts(declared, (3, 2, 4)).facts() == problem.facts()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("holding", (4,)),  # a step or a product is missing
        ("holding", (1, 2)),
        ("holding", (2, 1, 4, 2)),
        ("holding", (1, 3, 2, 4, 2)),
        ("demand_max", (1,)),
        ("boundary", (1, 2)),
    ],
)
def test_facts_of_another_shape_are_refused(name: str, shape: tuple[int, ...]) -> None:
    labels = [["shop", [1, 2, 3]], ["promo", ["no", "yes"]]]
    declared = {"horizon": 4, "products": 2, "labels": labels, name: np.ones(shape).tolist()}
    with pytest.raises(ValueError, match=f"the file declares {name} for"):
        LostSales.from_facts(declared, (3, 2, 4))


def test_the_policy_of_a_large_chain_can_be_read(tmp_path: Path) -> None:
    """400 shops, 2 kinds of weeks, 7 days, 40 products: as many costs as once made a file unreadable."""
    facts: dict[str, Any] = {"horizon": 7, "products": 40, "holding": 0.1, "shortage": 0.4, "demand_max": 4.0}
    problem = LostSales(**facts, labels={"shop": range(400), "promo": [0, 1]})
    policy = Policy(problem, Levels(np.ones((400, 2, 7, 40))), Guarantee.of_nothing(7))
    policy.save(tmp_path / "policy.npz")
    np.testing.assert_array_equal(Policy.load(tmp_path / "policy.npz").levels, policy.levels)
