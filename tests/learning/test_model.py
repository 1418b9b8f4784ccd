"""`PrivateModel`: learned once, planned at no cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import (
    Backlog,
    LostSales,
    Outcomes,
    Policy,
    Pool,
    PrivateModel,
    SeededNoise,
    Trajectories,
    Visits,
    Zones,
)
from poolrl.learning.stored import Names
from poolrl.workflow.page import what_if_section
from poolrl.workflow.trades.shop_levels import cost_by_model

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


def test_the_last_step_is_a_newsvendor(model: PrivateModel) -> None:
    """Nothing is carried on: the level is the quantile b/(b + h) of the model's own law, to a bin."""
    for holding, shortage in ((0.2, 0.2), (0.1, 0.9), (1.0, 0.25)):
        levels = model.plan(shop(holding=holding, shortage=shortage)).levels[-1]
        points, law = model.outcomes.points, model.outcomes.weights[-1]
        for product in range(2):
            reached = np.cumsum(law[product]) >= shortage / (shortage + holding)
            width = 2 * points[product, 0]
            assert levels[product] == pytest.approx(points[product, reached.argmax()], abs=1.1 * width)


def test_other_horizons_repeat_the_week(model: PrivateModel) -> None:
    """Backward induction: the last steps of a longer plan do not know what came before them."""
    three, seven = model.plan(), model.plan(shop(horizon=7))
    assert seven.levels.shape == (7, 2)
    # Steps 0 1 2 0 1 2 0. Its last four are a plan of four steps that begins with step 0.
    np.testing.assert_array_equal(seven.levels[3:], model.plan(shop(horizon=4)).levels)
    np.testing.assert_array_equal(model.plan(shop(horizon=2)).levels[:1] <= three.levels[:1] + 1e-9, True)
    assert seven.act(5, [1.0, 2.0]).shape == (2,)


def test_lower_bounds_hold(model: PrivateModel) -> None:
    low = model.plan(shop(demand_max=6.0))
    assert low.levels.max() <= 6.0
    np.testing.assert_array_equal(low.levels, np.minimum(low.levels, model.plan().levels + 1e-9))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "another product": (lambda: shop(products=3, shortage=0.5), "learned for 2 products"),
    "labels": (lambda: shop(labels=LABELS), "labels"),
    "a higher bound": (lambda: shop(demand_max=[20.0, 20.1]), "no higher ones"),
    "no problem": (lambda: "shop", "declares its outcomes"),
    "another kind": (
        lambda: Backlog(horizon=3, products=2, holding=0.2, shortage=0.5, demand_max=20.0),
        "of the same kind",
    ),
    "a profile nobody declared": (lambda: shop(scale_profile=[[1.0], [2.0], [1.0]]), "another scale_profile"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_model_does_not_know_is_refused(model: PrivateModel, case: str) -> None:
    other, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        model.plan(other())


def test_a_plan_orders_no_further_than_feedback_reached() -> None:
    """λ of the release holds for its plans: step by step, also when the week comes again."""
    near = shop(boundary=[[0.4], [0.5], [0.6]])
    model = Pool(1.0).model(near, log_of(near), noise=SeededNoise(1))
    assert (model.plan(shop(boundary=0.3)).levels <= 6.0 + 1e-9).all()
    with pytest.raises(ValueError, match="no higher ones"):
        model.plan(shop())
    with pytest.raises(ValueError, match="no higher ones"):
        model.plan(shop(horizon=4, boundary=[[0.4], [0.5], [0.6], [0.5]]))
    assert model.plan(shop(horizon=4, boundary=[[0.4], [0.5], [0.6], [0.4]])).levels.shape == (4, 2)


def test_names_of_steps_come_again_too(model: PrivateModel) -> None:
    policy = model.plan()
    policy.report = replace(policy.report, names=Names(["a", "b"], ["Fri", "Sat", "Sun"]))
    assert PrivateModel.of(policy).plan(shop(horizon=5)).names.steps == ["Fri", "Sat", "Sun", "Fri", "Sat"]


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
    paths = 20_000
    for cell, value in enumerate(LABELS["promo"]):
        drawn = model.sample(paths, rng=np.random.default_rng(cell), labels={"promo": value})
        assert drawn.shape == (paths, 3, 2)
        edges = np.linspace(0, 20, 9)
        for step, product in np.ndindex(3, 2):
            points, law = model.outcomes.points[cell, product], model.outcomes.weights[cell, step, product]
            # A bin of the law may lie across an edge, so each part of it counts.
            low, high = points - points[0], points + points[0]
            part = np.clip((edges[1:, None] - low) / (high - low), 0, 1) - np.clip(
                (edges[:-1, None] - low) / (high - low), 0, 1
            )
            expected = (part * law).sum(axis=1)
            found = np.histogram(drawn[:, step, product], edges)[0] / paths
            assert (np.abs(found - expected) <= 5 * np.sqrt(expected / paths) + 1e-3).all()
    both = model.sample(4, rng=np.random.default_rng(0), labels={"promo": ["no", "yes", "no", "yes"]})
    assert both.shape == (4, 3, 2)
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
    for path in ("policy.npz", "none.npz"):
        (tmp_path / "none.npz").write_bytes(b"PK")
        with pytest.raises(ValueError, match="is not a poolrl model"):
            PrivateModel.load(tmp_path / path)
    with pytest.raises(ValueError, match="is not a poolrl policy"):
        Policy.load(tmp_path / "model.npz")
    with pytest.raises(ValueError, match="other public facts"):
        PrivateModel.load(tmp_path / "model.npz", problem=shop(holding=9.0))


def test_a_model_says_what_it_rests_on(model: PrivateModel) -> None:
    """Noise is √v / n: by hand from the released trees."""
    assert model.outcomes.slots is not None
    assert model.noise == pytest.approx(model.report.trees.variance**0.5 / model.outcomes.slots.mean())
    assert "of outcomes lie in the range that past decisions explored" in repr(model)
    assert "NOT PRIVATE" in repr(model)  # by its seeded noise
    assert model.explored.shape == (3, 2)


def test_what_ifs_are_plans_of_the_same_model() -> None:
    """Dearer shortage, higher levels; and nobody saves by keeping levels that were best for other costs."""
    problem = shop(labels=LABELS)
    policy = Pool(1.0).fit(problem, log_of(problem), noise=SeededNoise(5))
    section = what_if_section(policy)
    assert section is not None
    assert section.table is not None
    half, twice, five = section.table.rows
    assert [row[0].removeprefix("a missed sale costs ") for row in (half, twice, five)] == [
        f"{times} as much" for times in ("half", "twice", "five times")
    ]
    assert half[1].endswith(" lower")
    move, saved = ([float(row[column].split("%")[0]) for row in (twice, five)] for column in (1, 2))
    assert 0 < move[0] < move[1]
    assert 0 < saved[0] < saved[1]
    other = shop(labels=LABELS, shortage=[1.0, 1.8])
    planned = PrivateModel.of(policy).plan(other)
    assert twice[1] == f"{np.median(planned.levels / policy.levels) - 1:.0%} higher"
    assert twice[2] == f"{1 - cost_by_model(planned, other) / cost_by_model(policy, other):.1%}"
