"""Policies of shops with labels and a scale: what they answer, refuse and keep, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrl import LostSales, Policy, data_free, relative_gap, rollout_cost
from poolrl.learning.policy import Levels
from poolrl.simulation.evaluation import cost_difference, rollout_costs

LABELS: dict[str, Any] = {"shop": ["north", "south"], "promo": [0, 1]}
PROBLEM = LostSales(horizon=2, products=2, holding=1.0, shortage=2.0, demand_max=4.0, boundary=0.75, labels=LABELS)
# Tens say the shop and the promotion, ones the step and the product: all different.
TABLE = np.arange(1.0, 17.0).reshape(2, 2, 2, 2) / 8


@pytest.fixture
def policy() -> Policy:
    return Policy(PROBLEM, Levels(TABLE.copy()), data_free(PROBLEM).guarantee)


def test_a_row_gets_the_level_of_its_labels_in_its_units(policy: Policy) -> None:
    assert policy.levels.shape == (2, 2, 2, 2)
    assert policy.act(1, [0, 0], labels={"shop": "south", "promo": 1}) == pytest.approx(TABLE[1, 1, 1])
    assert policy.act(1, [0, 0], scale=10, labels={"shop": "south", "promo": 1}) == pytest.approx(10 * TABLE[1, 1, 1])
    assert policy.act(0, [0, 0], scale=[10, 20], labels={"shop": "north", "promo": 0}) == pytest.approx(
        TABLE[0, 0, 0] * [10, 20]
    )
    # Stock is never sent back, and orders stay within λ: 0.75 of 4 times the scale.
    assert policy.act(0, [7, 0], scale=10, labels={"shop": "north", "promo": 0}) == pytest.approx([7, 2.5])
    high = Policy(PROBLEM, Levels(np.full((2, 2, 2, 2), 3.9)), policy.guarantee)
    assert high.act(0, [0, 31], scale=10, labels={"shop": "north", "promo": 0}) == pytest.approx([30, 31])


def test_a_batch_is_its_rows(policy: Policy) -> None:
    rng = np.random.default_rng(0)
    shop, promo = rng.choice(["north", "south"], 50), rng.integers(0, 2, 50)
    stock, scale = rng.uniform(0, 20, (50, 2)), rng.uniform(1, 30, (50, 2))
    batch = policy.act(1, stock, scale=scale, labels={"shop": shop, "promo": promo})
    assert (batch >= stock).all()
    for i in range(50):
        one = policy.act(1, stock[i], scale=scale[i], labels={"shop": shop[i], "promo": promo[i]})
        assert batch[i] == pytest.approx(one)
    # One value serves all rows; one number per row all its products.
    alike = policy.act(1, stock, scale=scale[:, 0], labels={"shop": "north", "promo": promo})
    both = np.repeat(scale[:, :1], 2, axis=1)
    assert np.array_equal(alike, policy.act(1, stock, scale=both, labels={"shop": ["north"] * 50, "promo": promo}))


SOUTH = {"shop": "south", "promo": 1}


@pytest.mark.parametrize(
    ("rows", "known", "message"),
    [
        (1, {"labels": SOUTH | {"shop": "east"}}, "labels must be among the values that the problem declares"),
        (1, {"labels": SOUTH | {"promo": None}}, "labels must be among the values that the problem declares"),
        (1, {}, r"labels must be those of the problem \(shop, promo\), got none"),
        (1, {"labels": {"shop": "south"}}, r"labels must be those of the problem \(shop, promo\), got shop"),
        (1, {"labels": {"shop": "south", "week": 1}}, r"those of the problem \(shop, promo\), got shop, week"),
        (1, {"labels": SOUTH | {"promo": "yes"}}, "label 'promo' must hold numbers, as declared"),
        (1, {"labels": SOUTH | {"shop": 7}}, "label 'shop' must hold text, as declared"),
        (3, {"labels": SOUTH | {"promo": [0, 1]}}, "labels must be single values or arrays of 3 values"),
        (1, {"labels": SOUTH, "scale": 0}, "scale must be positive and finite"),
        (1, {"labels": SOUTH, "scale": np.nan}, "scale must be positive and finite"),
        (1, {"labels": SOUTH, "scale": "large"}, "scale must hold numbers"),
        (3, {"labels": SOUTH, "scale": np.ones(4)}, r"scale must be one number, or have shape \(3, 2\), got \(4,\)"),
        (2, {"labels": SOUTH, "scale": np.ones(2)}, r"must have shape \(2, 2\): \(2,\) could be one for each row"),
    ],
)
def test_what_cannot_be_answered_is_refused(policy: Policy, rows: int, known: dict, message: str) -> None:
    stock = np.zeros((rows, 2)) if rows > 1 else np.zeros(2)
    with pytest.raises(ValueError, match=message):
        policy.act(0, stock, **known)


def test_labels_of_a_problem_without_labels_are_refused() -> None:
    plain = data_free(LostSales(horizon=1, holding=1.0, shortage=1.0, demand_max=1.0))
    assert plain.act(0, [0.0], scale=40).item() == pytest.approx(20, rel=0.01)
    with pytest.raises(ValueError, match=r"labels must be those of the problem \(none\), got shop"):
        plain.act(0, [0.0], labels={"shop": 1})


def test_costs_with_labels_and_a_scale_by_hand() -> None:
    """One product, scale 10 then 5, levels 1 and 2 times it in shop 0, twice that in shop 1, where costs are tenfold.

    Shop 0: up to 10, demand 7: 3 left, cost 3. Up to 2 · 5 = 10, demand 14: 4 missing, cost 4 · 2. Sum 11.
    Shop 1: up to 20, demand 7: 13 left, 130. Up to 4 · 5 = 20, demand 14: 6 left, 60. Sum 190.
    """
    problem = LostSales(
        horizon=2,
        holding=np.array([1.0, 10.0])[:, None, None],
        shortage=np.array([2.0, 20.0])[:, None, None],
        demand_max=4.0,
        labels={"shop": [0, 1]},
    )
    levels = np.array([[1.0, 2.0], [2.0, 4.0]])[..., None]
    policy = Policy(problem, Levels(levels), data_free(problem).guarantee)
    paths = np.array([[[7.0], [14.0]], [[7.0], [14.0]]])
    scale = np.array([10.0, 5.0])[None, :, None]
    assert rollout_costs(problem, policy, paths, scale=scale, labels={"shop": [0, 1]}) == pytest.approx([11, 190])
    assert rollout_cost(problem, policy, paths, scale=scale, labels={"shop": [0, 1]}) == pytest.approx(100.5)
    # A label of a step: shop 0 first, then shop 1, where 3 is left from the first day: 3 + 60.
    changing = rollout_costs(problem, policy, paths[:1], scale=scale, labels={"shop": [[0, 1]]})
    assert changing == pytest.approx([63])
    assert rollout_costs(problem, policy, paths, scale=scale, labels={"shop": 1}) == pytest.approx([190, 190])
    idle = Policy(problem, Levels(0 * levels), policy.guarantee)
    known = {"scale": scale, "labels": {"shop": 0}}
    assert rollout_cost(problem, idle, paths, **known) == pytest.approx(42)
    assert relative_gap(problem, idle, paths, benchmark=policy, **known) == pytest.approx(31 / 11)
    assert cost_difference(problem, idle, paths, benchmark=policy, **known) == pytest.approx(31)
    with pytest.raises(ValueError, match=r"scale must broadcast to shape \(2, 2, 1\), got shape \(3,\)"):
        rollout_cost(problem, policy, paths, scale=np.ones(3), labels={"shop": 0})
    with pytest.raises(ValueError, match=r"label 'shop' must broadcast to shape \(2, 2\), got shape \(3, 1\)"):
        rollout_cost(problem, policy, paths, scale=scale, labels={"shop": [0, 1, 1]})
