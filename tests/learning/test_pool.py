"""Pool: limits of the budget, every combination, your own problems, censoring."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np
import pytest

from poolrl import (
    Backlog,
    Bernstein,
    Grid,
    LostSales,
    Outcomes,
    Pool,
    SeededNoise,
    Separable,
    Trajectories,
    Visits,
    Zones,
    data_free,
    relative_gap,
    rollout_cost,
    saa,
    simulate_log,
)
from poolrl.checks import BoolArray, FloatArray
from poolrl.geometry.partition import Partition
from poolrl.learning.policy import GreedyQ
from tests.helpers.own_problems import BrokenReward, Pinned, PostedPrice, Wear, wear_log


def shop(horizon: int = 4, products: int = 2, **changes: object) -> LostSales:
    rng = np.random.default_rng(5)
    costs = {
        "holding": rng.uniform(0.1, 0.5, (horizon, products)),
        "shortage": rng.uniform(0.1, 0.5, (horizon, products)),
    }
    return LostSales(**({"horizon": horizon, "products": products, "demand_max": 100.0} | costs | changes))


def demand(episodes: int, problem: LostSales | Backlog, seed: int = 0) -> FloatArray:
    rng = np.random.default_rng(seed)
    return np.clip(rng.normal(35, 12, (episodes, problem.horizon, problem.products)), 0, 100)


def test_more_budget_and_more_data_help() -> None:
    problem = shop()
    paths = demand(2000, problem, seed=9)
    best = saa(problem, paths)

    def gap(rho: float, episodes: int) -> float:
        log = problem.simulate_log(demand(episodes, problem, seed=1), rng=np.random.default_rng(1))
        fits = [Pool(rho).fit(problem, log, noise=SeededNoise(seed)) for seed in range(2)]
        return float(np.mean([relative_gap(problem, fit, paths, benchmark=best) for fit in fits]))

    free = relative_gap(problem, data_free(problem), paths, benchmark=best)
    assert gap(0.1, 20_000) < 0.01
    assert gap(1.0, 2000) < gap(0.01, 2000) < free
    assert gap(0.01, 20_000) < gap(0.01, 1000)


class Naive(LostSales):
    """The bug that censoring invites: sales are taken for demand, sold out or not."""

    censored = False

    def observe(
        self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        sales, cut = super().observe(step, state, action, next_state)
        return sales, np.zeros_like(cut)


def test_a_censored_log_teaches_the_same_policy_and_the_naive_reading_does_not() -> None:
    facts = {"horizon": 3, "products": 1, "holding": 0.1, "shortage": 0.5, "demand_max": 100.0}
    lost, waiting, naive = LostSales(**facts), Backlog(**facts), Naive(**facts)
    paths = demand(20_000, waiting, seed=3)
    best = saa(lost, paths)

    def low_orders(step: int, stock: FloatArray, rng: np.random.Generator) -> FloatArray:
        return np.maximum(stock, rng.choice([20.0, 30.0, 40.0, 60.0, 100.0], stock.shape))

    gaps = {}
    for episodes in (500, 20_000):
        wanted = demand(episodes, waiting, seed=4)
        full = Pool(1.0).fit(waiting, waiting.simulate_log(wanted, rng=np.random.default_rng(0)), noise=SeededNoise(0))
        log = lost.simulate_log(wanted, rng=np.random.default_rng(0), behaviour=low_orders)
        assert (log.next_states == 0).mean() > 0.25  # the shelf was often empty
        cut = Pool(1.0).fit(lost, log, noise=SeededNoise(0))
        wrong = Pool(1.0).fit(naive, log, noise=SeededNoise(0))
        gaps[episodes] = [relative_gap(lost, fit, paths, benchmark=best) for fit in (full, cut, wrong)]
        if episodes == 20_000:
            assert cut.levels == pytest.approx(full.levels, abs=2.0)
            assert (wrong.levels < cut.levels - 3).all()
    assert gaps[20_000][1] < 0.005
    assert gaps[20_000][1] < gaps[500][1]
    assert gaps[20_000][2] > 0.05
    assert gaps[20_000][2] > 20 * gaps[20_000][1]


@pytest.mark.parametrize("counts", [Outcomes(), Visits()])
@pytest.mark.parametrize("values", [Zones(8), Grid(4), Grid(4, linear=True), Separable(33)])
@pytest.mark.parametrize("kind", [LostSales, Backlog])
def test_every_combination_works_or_says_why(
    counts: Outcomes | Visits, values: Zones | Grid | Separable, kind: type
) -> None:
    problem = kind(horizon=3, products=2, holding=0.2, shortage=0.3, demand_max=100.0, boundary=0.8)
    log = problem.simulate_log(demand(200, problem), rng=np.random.default_rng(0))
    pool = Pool(1.0, counts, values)
    if isinstance(counts, Visits) and isinstance(values, Separable):
        with pytest.raises(ValueError, match="Visits counts joint nodes"):
            pool.fit(problem, log)
        return
    policy = pool.fit(problem, log, noise=SeededNoise(0))
    stock = np.random.default_rng(1).uniform(problem.state_low, 100, (50, 2))
    for step in range(3):
        action = policy.act(step, stock)
        assert (action >= np.maximum(stock, 0) - 1e-9).all()
        assert (action <= np.maximum(stock, 80.0) + 1e-9).all()


def test_combinations_that_make_no_sense_say_why() -> None:
    wear, price, log = Wear(3), PostedPrice(3), wear_log(Wear(3), 20)
    with pytest.raises(ValueError, match="Outcomes needs a problem that declares its outcomes; Wear does not"):
        Pool(1.0, Outcomes()).fit(wear, log)
    with pytest.raises(ValueError, match="Separable needs a problem that declares itself separable; PostedPrice"):
        Pool(1.0, values=Separable()).fit(price, simulate_log(price, np.ones((5, 3, 1)), rng=np.random.default_rng(0)))
    with pytest.raises(ValueError, match="pessimism needs visit counts"):
        Pool(1.0, Outcomes(), pessimism=Bernstein()).fit(shop(), log)
    for rho in (-1.0, 0, math.nan):
        with pytest.raises(ValueError, match="rho must be positive, got"):
            Pool(rho)


def test_defaults_follow_what_the_problem_declares() -> None:
    price, wear, rng = PostedPrice(3), Wear(3), np.random.default_rng(0)
    seen = Pool(1.0).fit(price, simulate_log(price, rng.uniform(0, 50, (50, 3, 1)), rng=rng))
    assert seen.guarantee.mechanisms[0].name == "outcome trees"
    with pytest.raises(AttributeError, match="no order-up-to table"):
        _ = seen.levels
    visited = Pool(1.0).fit(wear, wear_log(wear, 50))
    assert [m.name for m in visited.guarantee.mechanisms] == ["visits of nodes", "transitions between nodes"]
    assert Pool.published(0.7, zones=9) == Pool(0.7, Visits(0.05), Zones(9), Bernstein(1.0, 0.05))


def test_your_own_problem_with_feedback_on_the_higher_side() -> None:
    """Values uniform on [20, 40]: price a sells with probability (40 − a)/20, so the best price is 20, revenue 20."""
    for low, best_price, best_revenue in ((20.0, 20.0, 20.0), (0.0, 20.0, 10.0)):
        problem = PostedPrice(horizon=2, lowest_price=5.0)
        rng = np.random.default_rng(0)
        values = rng.uniform(low, 40, (8_000, 2, 1))
        log = simulate_log(problem, values, rng=rng)
        policy = Pool(1.0, values=Grid(25)).fit(problem, log, noise=SeededNoise(0))
        price = policy.act(0, np.zeros(1))
        assert price == pytest.approx([best_price], abs=2.5)
        assert price >= 5.0
        revenue = -rollout_cost(problem, policy, values) / 2
        assert revenue == pytest.approx(best_revenue, rel=0.08)


def pinned_log(rng: np.random.Generator) -> Trajectories:
    states = rng.uniform(0, 10, (200, 3, 2))
    next_states = rng.uniform(0, 10, states.shape)
    return Trajectories(states=states, actions=states.mean(axis=-1, keepdims=True), next_states=next_states)


def test_zones_are_laid_where_feasible_pairs_fill_a_plane() -> None:
    """It ended in "Singular matrix" after the release: the points of a ring must span the space."""
    policy = Pool(1.0).fit(Pinned(3), pinned_log(np.random.default_rng(0)), noise=SeededNoise(1))
    assert isinstance(policy.rule, GreedyQ)
    assert isinstance(policy.rule.where, Partition)
    rings = policy.rule.where.pairs
    assert not any(each.dependent.any() for each in rings)
    state = np.array([[2.0, 6.0], [10.0, 0.0]])
    np.testing.assert_allclose(policy.act(0, state), [[4.0], [5.0]])


def test_a_mistake_in_a_problem_is_found_before_anything_is_released() -> None:
    class Untouched:
        def begin(self) -> NoReturn:
            raise AssertionError("noise was drawn: the release has begun")

    with pytest.raises(ZeroDivisionError, match="a mistake in a problem of your own"):
        Pool(1.0).fit(BrokenReward(3), pinned_log(np.random.default_rng(0)), noise=Untouched())
