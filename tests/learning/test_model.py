"""`PrivateModel`: learned once, planned at no cost; also for joint decisions, beside an exact programme."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import (
    Backlog,
    Depot,
    Fitted,
    Grid,
    LostSales,
    Outcomes,
    Policy,
    Pool,
    PrivateModel,
    SeededNoise,
    Trajectories,
    Visits,
    Zones,
    check_problem,
    simulate_log,
)
from poolrl.checks import FloatArray
from poolrl.learning.fitted import FittedU, fit_values
from poolrl.learning.stored import Names

LABELS: dict[str, list[Any]] = {"promo": ["no", "yes"]}


def shop(**other: Any) -> LostSales:
    facts: dict[str, Any] = {"horizon": 3, "products": 2, "holding": 0.2, "shortage": [0.5, 0.9], "demand_max": 20.0}
    return LostSales(**facts | other)


def log_of(problem: LostSales, weeks: int = 400) -> Trajectories:
    rng = np.random.default_rng(3)
    demand = rng.gamma(4, 2, (weeks, problem.horizon, problem.products)).clip(0, 20)
    labels = {"promo": rng.choice(["no", "yes"], weeks)} if problem.labels else None
    return problem.simulate_log(demand, rng=rng, labels=labels)


@pytest.fixture(scope="module")
def model() -> PrivateModel:
    return Pool(1.0).model(shop(), log_of(shop()), noise=SeededNoise(1))


def test_a_fit_is_a_model_and_its_plan() -> None:
    problem = shop(labels=LABELS)
    log = log_of(problem)
    fitted = Pool(1.0).fit(problem, log, noise=SeededNoise(2))
    planned = Pool(1.0).model(problem, log, noise=SeededNoise(2)).plan(problem)
    np.testing.assert_array_equal(planned.levels, fitted.levels)
    assert (planned.guarantee, planned.report) == (fitted.guarantee, fitted.report)
    again = PrivateModel.of(fitted).plan()
    np.testing.assert_array_equal(again.levels, fitted.levels)
    assert again.report == fitted.report


def test_other_horizons_repeat_the_week(model: PrivateModel) -> None:
    """Backward induction: the last steps of a longer plan do not know what came before them."""
    three, seven = model.plan(), model.plan(shop(horizon=7))
    assert seven.levels.shape == (7, 2)
    # Steps 0 1 2 0 1 2 0. Its last four are a plan of four steps that begins with step 0.
    np.testing.assert_array_equal(seven.levels[3:], model.plan(shop(horizon=4)).levels)
    np.testing.assert_array_equal(model.plan(shop(horizon=2)).levels[:1] <= three.levels[:1] + 1e-9, True)
    assert seven.act(5, [1.0, 2.0]).shape == (2,)
    # Lower bounds hold, and names of steps come again too.
    low = model.plan(shop(demand_max=6.0)).levels
    assert (low <= np.minimum(6.0, three.levels + 1e-9)).all()
    three.report = replace(three.report, names=Names(["a", "b"], ["Fri", "Sat", "Sun"]))
    assert PrivateModel.of(three).plan(shop(horizon=5)).names.steps == ["Fri", "Sat", "Sun", "Fri", "Sat"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: shop(products=3, shortage=0.5), "learned for 2 products"),
        (lambda: shop(labels=LABELS), "labels"),
        (lambda: shop(demand_max=[20.0, 20.1]), "no higher ones"),
        (lambda: "shop", "declares its outcomes"),
        (lambda: Backlog(horizon=3, products=2, holding=0.2, shortage=0.5, demand_max=20.0), "of the same kind"),
        (lambda: shop(scale_profile=[[1.0], [2.0], [1.0]]), "another scale_profile"),
    ],
)
def test_what_the_model_does_not_know_is_refused(model: PrivateModel, other: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.plan(other())


def test_a_plan_orders_no_further_than_feedback_reached() -> None:
    """λ of the release holds for its plans: step by step, also when the week comes again."""
    near = shop(boundary=[[0.4], [0.5], [0.6]])
    model = Pool(1.0).model(near, log_of(near), noise=SeededNoise(1))
    assert (model.plan(shop(boundary=0.3)).levels <= 6.0 + 1e-9).all()
    for farther in (shop(), shop(horizon=4, boundary=[[0.4], [0.5], [0.6], [0.5]])):
        with pytest.raises(ValueError, match="no higher ones"):
            model.plan(farther)
    assert model.plan(shop(horizon=4, boundary=[[0.4], [0.5], [0.6], [0.4]])).levels.shape == (4, 2)


def test_a_model_needs_outcomes() -> None:
    with pytest.raises(ValueError, match="counts of outcomes"):
        Pool(1.0, Visits(), Zones(8)).model(shop(), log_of(shop()))
    visited = Pool(1.0, Visits(), Zones(8)).fit(shop(), log_of(shop()), noise=SeededNoise(1))
    with pytest.raises(ValueError, match="no model of outcomes"):
        PrivateModel.of(visited)
    # Values on zones are planned on the same model.
    zoned = Pool(1.0, Outcomes(), Zones(8)).fit(shop(), log_of(shop()), noise=SeededNoise(1))
    np.testing.assert_array_equal(PrivateModel.of(zoned).plan(values=Zones(8)).act(0, [1, 2]), zoned.act(0, [1, 2]))


def test_samples_have_the_laws_of_the_model() -> None:
    """Shares of every bin of a coarse grid, to five standard deviations, and labels each their own."""
    problem = shop(labels=LABELS)
    model = Pool(1.0).model(problem, log_of(problem), noise=SeededNoise(4))
    paths, edges = 20_000, np.linspace(0, 20, 9)
    for cell, value in enumerate(LABELS["promo"]):
        drawn = model.sample(paths, rng=np.random.default_rng(cell), labels={"promo": value})
        assert drawn.shape == (paths, 3, 2)
        for step, product in np.ndindex(3, 2):
            points, law = model.outcomes.points[cell, product], model.outcomes.weights[cell, step, product]
            ends = np.concatenate([[0.0], points + points[0]])  # of the law's equal bins
            expected = np.diff(np.interp(edges, ends, np.concatenate([[0.0], np.cumsum(law)])))
            found = np.histogram(drawn[:, step, product], edges)[0] / paths
            assert (np.abs(found - expected) <= 5 * np.sqrt(expected / paths) + 1e-3).all()
    with pytest.raises(ValueError, match="promo"):
        model.sample(3, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="must be among the values"):
        model.sample(3, rng=np.random.default_rng(0), labels={"promo": "never"})


def test_a_model_comes_back_from_a_file(model: PrivateModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model.npz")
    again = PrivateModel.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.plan().levels, model.plan().levels)
    assert (again.guarantee, again.report, repr(again)) == (model.guarantee, model.report, repr(model))
    model.plan().save(tmp_path / "policy.npz")
    with pytest.raises(ValueError, match="is not a poolrl model"):
        PrivateModel.load(tmp_path / "policy.npz")
    with pytest.raises(ValueError, match="is not a poolrl policy"):
        Policy.load(tmp_path / "model.npz")
    with pytest.raises(ValueError, match="other public facts"):
        PrivateModel.load(tmp_path / "model.npz", problem=shop(holding=9.0))


TOP = 10.0
SMALL = Fitted(states=64, hinges=32, outcomes=64)


def a_depot(products: int = 2, horizon: int = 3, **more: Any) -> Depot:
    shop = LostSales(horizon=horizon, products=products, holding=0.3, shortage=3.0, demand_max=TOP)
    return Depot(**({"shop": shop, "express": 0.6, "reserve_holding": 0.2, "reserve_max": TOP} | more))


@pytest.fixture(scope="module")
def common() -> PrivateModel:
    problem, rng = a_depot().shop, np.random.default_rng(4)
    common = rng.gamma(4.0, 1.0, (800, 3, 1))
    demand = np.minimum(common * rng.gamma(4.0, 0.25, (800, 3, 2)), TOP)
    return Pool(1.0, together=0.1).model(problem, problem.simulate_log(demand, rng=rng), noise=SeededNoise(2))


@pytest.fixture(scope="module")
def fitted(common: PrivateModel) -> Policy:
    """The plan of a depot by fitted values, which several tests ask; do not change it."""
    return common.plan(a_depot(), values=SMALL)


def exact_cost(depot: Depot, drawn: FloatArray, points: int) -> float:
    """The best cost of two products and their reserve, by a programme on a lattice, for outcomes (H, S, 2)."""
    axis = np.linspace(0.0, TOP, points)
    levels = np.array(list(itertools.product(axis, axis, axis)))
    value = np.zeros((points,) * 3)
    for step in reversed(range(depot.horizon)):
        after = np.zeros(len(levels))
        for outcome in drawn[step]:
            left = depot.next_state(step, levels, levels, outcome) / TOP * (points - 1)
            lower = np.minimum(left.astype(int), points - 2)
            part = left - lower
            total = depot.cost(step, levels, levels, outcome)
            for corner in itertools.product((0, 1), repeat=3):
                weight = np.prod(np.where(corner, part, 1 - part), axis=1)
                total = total + weight * value[tuple((lower + corner).T)]
            after += total / len(drawn[step])
        value = after.reshape((points,) * 3)
        for way in range(3):  # what is there stays: the best of all levels that are no lower
            value = np.flip(np.minimum.accumulate(np.flip(value, way), axis=way), way)
    return float(value[0, 0, 0])


def test_fitted_values_come_near_the_exact_programme() -> None:
    depot, rng = a_depot(), np.random.default_rng(0)
    drawn = np.minimum(rng.gamma(4.0, 1.0, (3, 16, 1)) * rng.gamma(4.0, 0.25, (3, 16, 2)), TOP)
    best = exact_cost(depot, drawn, 17)
    found = fit_values(depot, drawn, SMALL)
    # The same 16 outcomes of each step, in all combinations of some hundred paths.
    paths = np.stack([drawn[step][rng.integers(16, size=3_000)] for step in range(3)], axis=1)
    state, costs = np.zeros((3_000, 3)), np.zeros(3_000)
    for step in range(3):
        action = found.act(depot, step, state)
        assert (action >= state - 1e-9).all()
        costs += depot.cost(step, state, action, paths[:, step])
        state = depot.next_state(step, state, action, paths[:, step])
    assert costs.mean() <= 1.02 * best + 3 * costs.std() / np.sqrt(len(costs))
    assert costs.mean() >= 0.97 * best - 3 * costs.std() / np.sqrt(len(costs))


def test_a_reserve_costs_what_is_said_by_hand() -> None:
    """Two short by 2 and 1, a reserve of 2: two are brought, one is lost; nothing is left."""
    depot = a_depot()
    state, action = np.zeros((1, 3)), np.array([[4.0, 5.0, 2.0]])
    short, ample = np.array([[6.0, 6.0]]), np.array([[1.0, 5.0]])
    assert depot.cost(0, state, action, short) == pytest.approx([2 * 0.6 + 1 * 3.0])
    assert depot.next_state(0, state, action, short).tolist() == [[0.0, 0.0, 0.0]]
    assert depot.cost(0, state, action, ample) == pytest.approx([3 * 0.3 + 2 * 0.2])
    assert depot.next_state(0, state, action, ample).tolist() == [[3.0, 0.0, 2.0]]
    # What a log shows differs from minus the cost by b times all demand, whatever is done.
    for demand in (short, ample):
        for levels in (action, action + 1.0):
            shown = depot.reward(0, state, levels, depot.next_state(0, state, levels, demand))
            assert shown + depot.cost(0, state, levels, demand) == pytest.approx([3.0 * demand.sum()])


def test_a_reserve_that_knows_of_the_weather_is_another_one(common: PrivateModel, fitted: Policy) -> None:
    """Products that run short on the same days leave less to share, so each keeps more for itself."""
    assert common.together > 0.5
    alone = PrivateModel(common.problem, common.outcomes, common.guarantee)
    knows, does_not = (each.act(0, np.zeros(3)) for each in (fitted, alone.plan(a_depot(), values=SMALL)))
    assert knows[:2].sum() > does_not[:2].sum()


def test_a_fitted_policy_is_saved_and_asked(common: PrivateModel, fitted: Policy, tmp_path: Path) -> None:
    depot, policy = a_depot(), fitted
    assert isinstance(policy.rule, FittedU)
    policy.save(tmp_path / "depot.npz")
    again = Policy.load(tmp_path / "depot.npz")
    stocks = np.random.default_rng(0).uniform(0, 5, (20, 3))
    np.testing.assert_array_equal(again.act(1, stocks), policy.act(1, stocks))
    assert (again.act(1, stocks) >= stocks).all()
    assert again.problem.facts() == depot.facts()
    np.testing.assert_array_equal(PrivateModel.of(again).plan().levels, common.plan().levels)
    again.problem = a_depot(horizon=4)  # a file that declares another depot is refused
    again.save(tmp_path / "depot.npz")
    with pytest.raises(ValueError, match="declares steps"):
        Policy.load(tmp_path / "depot.npz")


def test_the_reserve_has_a_name_and_needs_units(common: PrivateModel) -> None:
    named = replace(common, report=replace(common.report, names=Names(["tea", "ice"], ["a", "b", "c"])))
    assert named.plan(a_depot(), values=Grid(2)).names.products == ["tea", "ice", "reserve"]
    scaled = replace(common, guarantee=replace(common.guarantee, scaled=True))
    with pytest.raises(ValueError, match="share nothing in multiples of their own scales"):
        scaled.plan(a_depot(), values=SMALL)


def test_a_depot_learns_from_its_own_log() -> None:
    """A log of a depot, counted row by row like a problem of one's own."""
    depot, rng = a_depot(horizon=2), np.random.default_rng(1)
    check_problem(depot)
    log = simulate_log(depot, np.minimum(rng.gamma(4.0, 1.0, (300, 2, 2)), TOP), rng=rng)
    policy = Pool(1.0, values=SMALL).fit(depot, log, noise=SeededNoise(1))
    level = policy.act(0, np.zeros(3))
    assert (level[:2] > 1.0).all()
    kept = Pool(1.0).model(depot, log, noise=SeededNoise(1))
    assert isinstance(kept.problem, LostSales)  # what it knows is the shop's demand


GIVEN: dict[str, Any] = {"horizon": 2, "products": 2, "holding": 0.1, "demand_max": 5.0}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: a_depot(express=4.0), "express above shortage"),
        (lambda: a_depot(reserve_max=0.0), "reserve_max must be positive"),
        (lambda: a_depot(reserve_holding=-1.0), "must not be negative"),
        (lambda: a_depot(shop=LostSales(**GIVEN, shortage=[1.0, 2.0])), "shortage must be the same for all products"),
        (lambda: a_depot(shop=LostSales(**GIVEN, shortage=1.0, labels={"shop": [1]})), "LostSales without labels"),
        (lambda: Fitted(outcomes=100), "outcomes must be a power of two, got 100"),
    ],
)
def test_depots_that_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
