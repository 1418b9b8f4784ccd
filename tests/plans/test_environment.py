"""A private model as an environment: what Gymnasium demands, and the costs of a plan played in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv

from poolrl import Operations, PrivateModel, plan_orders
from poolrl.plans.environment import ModelEnv
from tests.helpers.plans import small_model


@pytest.fixture(scope="module")
def model() -> PrivateModel:
    return small_model()


SHOPS = {
    "the paper's": Operations(),
    "a cycle in packs": Operations(cycle=True, pack=4.0, fixed=1.0),
    "bread, sold": Operations(spoilage=1.0, price=2.0, purchase=0.5, salvage=0.1),
}


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("kind", SHOPS)
def test_it_is_what_gymnasium_calls_an_environment(model: PrivateModel, kind: str) -> None:
    check_env(ModelEnv(model, SHOPS[kind], rounds=2), skip_render_check=True)


@pytest.mark.parametrize("kind", ["the paper's", "bread, sold"])
def test_a_plan_costs_in_it_what_it_said(model: PrivateModel, kind: str) -> None:
    """800 shops that order up to the plan's levels, to four standard errors."""
    plan = plan_orders(model, SHOPS[kind])
    shop = ModelEnv(model, SHOPS[kind])
    levels = [plan.order(step, [0.0, 0.0]) for step in range(3)]  # no fixed cost: up to one level from every stock
    rewards = np.zeros(800)
    for number in range(800):
        shop.reset(seed=3 if number == 0 else None)
        for step in range(3):
            _, reward, ended, _, _ = shop.step(levels[step] / shop.world.high)
            rewards[number] += reward
        assert ended
    assert -rewards.mean() == pytest.approx(plan.cost.sum(), abs=4 * rewards.std() / 800**0.5)


def test_gymnasium_makes_many_of_it(model: PrivateModel) -> None:
    one, many = ModelEnv(model, rounds=2), SyncVectorEnv([lambda: ModelEnv(model, rounds=2)] * 2)
    seen, _ = one.reset(seed=5)
    both, _ = many.reset(seed=5)
    np.testing.assert_array_equal(seen, both[0])
    rng = np.random.default_rng(0)
    for _ in range(6):
        action = rng.random(2).astype(np.float32)
        seen, reward, ended, cut, _ = one.step(action)
        both, rewards, ends, cuts, _ = many.step(np.stack([action, action]))
        np.testing.assert_array_equal(seen, both[0])
        assert (reward, ended, cut) == (rewards[0], ends[0], cuts[0])
    assert ended


def test_orders_are_what_the_shop_can_place(model: PrivateModel) -> None:
    facts: dict[str, Any] = {"pack": 4.0, "minimum": 8.0, "deliveries": [[True], [False], [True]]}
    shop = ModelEnv(model, Operations(cycle=True, **facts))
    shop.reset(seed=1)
    top = shop.world.high
    for wanted, ordered in ((11.9, 8.0), (7.0, 0.0), (12.0, 12.0)):
        np.testing.assert_allclose(shop.world.order(0, shop.state, np.array([[wanted, wanted] / top])), ordered)
    for packs in range(2, int(top.min() // 4)):  # an action is in single precision
        action = (np.full(2, 4.0 * packs) / top).astype(np.float32).astype(np.float64)
        np.testing.assert_allclose(shop.world.order(0, shop.state, action[None]), 4.0 * packs)
    shop.step(np.ones(2, dtype=np.float32))
    # Nothing is delivered on the second day.
    np.testing.assert_array_equal(shop.world.order(1, shop.state, np.ones((1, 2))), 0.0)
