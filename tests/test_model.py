"""`PrivateModel`: learned once, planned at no cost; and `poolrl replan`, whose plans can be made again."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import (
    Backlog,
    LostSales,
    Operations,
    Outcomes,
    Policy,
    Pool,
    PrivateModel,
    SeededNoise,
    Trajectories,
    Visits,
    Zones,
    plan_orders,
)
from poolrl.certificate.files import CERTIFICATE, CERTIFIED, POLICY
from poolrl.learning.policy import Names
from poolrl.learning.rules import Levels
from poolrl.shop.config_file import load_config
from poolrl.shop.fit import Released
from poolrl.shop.orders_csv import orders_csv
from poolrl.shop.replan import replan_orders
from poolrl.shop.report import verify_folder
from poolrl.shop.what_if import cost_by_model, what_ifs
from tests.helpers.shops import Run

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
    policy.report["labels"] = {"products": ["a", "b"], "steps": ["Fri", "Sat", "Sun"], "first_step": 0}
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
    assert model.noise == pytest.approx(model.report["trees"]["variance"] ** 0.5 / model.outcomes.slots.mean())
    assert "of demand lies in the range that past orders explored" in repr(model)
    assert "NOT PRIVATE" in repr(model)  # by its seeded noise
    assert model.explored.shape == (3, 2)


def test_what_ifs_are_plans_of_the_same_model() -> None:
    """Dearer shortage, higher levels; and nobody saves by keeping levels that were best for other costs."""
    problem = shop(labels=LABELS)
    policy = Pool(1.0).fit(problem, log_of(problem), noise=SeededNoise(5))
    half, twice, five = what_ifs(policy)
    assert half.move < 0 < twice.move < five.move
    assert 0 < twice.saved < five.saved
    other = shop(labels=LABELS, shortage=[1.0, 1.8])
    planned = PrivateModel.of(policy).plan(other)
    assert twice.move == pytest.approx(np.median(planned.levels / policy.levels) - 1)
    assert twice.saved == pytest.approx(1 - cost_by_model(planned, other) / cost_by_model(policy, other))
    assert twice.row[1] == f"{twice.move:.0%} more"


# The command.


def replanned(released: Path, run: Run) -> Path:
    config = released / "poolrl.toml"
    config.write_text(config.read_text().replace("shortage = ", "shortage = 9.0 # ", 1))
    out = released / "again"
    said = " ".join(run("replan", released / "release", "--config", config, "--out", out).split())
    assert "Planned again at no cost in privacy" in said
    assert "By the model, keeping the old levels, as far as they are allowed, would cost" in said
    return out


def faults(folder: Path, **others: Path) -> list[str]:
    checks = verify_folder(folder / POLICY, folder / CERTIFICATE, **others)
    return [check.what for check in checks if not check.good]


def test_a_plan_can_be_made_again_by_whoever_gets_it(released: Path, run: Run) -> None:
    """Neither the log nor the ledger is there while it is planned."""
    ledger = (released / "ledger.sqlite").read_bytes()
    hidden = [path for path in released.iterdir() if path.suffix in (".parquet", ".csv") or "ledger" in path.name]
    kept = {path: path.read_bytes() for path in hidden}
    for path in hidden:
        path.unlink()
    folder = replanned(released, run)
    assert faults(folder) == []
    for path, content in kept.items():
        path.write_bytes(content)
    assert (released / "ledger.sqlite").read_bytes() == ledger
    assert faults(folder, ledger=released / "ledger.sqlite") == []
    before, after = (Policy.load(each / POLICY) for each in (released / "release", folder))
    assert (after.levels >= before.levels - 1e-9).all()  # a missing unit costs more
    assert after.levels.sum() > before.levels.sum()
    assert (folder / "report.html").exists()
    # A plan of a plan comes from the same certified model.
    run("replan", folder, "--config", released / "poolrl.toml", "--out", released / "third")
    assert faults(released / "third") == []
    facts = json.loads(run("replan", folder, "--config", released / "poolrl.toml", "--out", released / "4", "--json"))
    assert facts["planned"] <= facts["kept"]


def test_lower_bounds_are_not_called_a_saving(released: Path, run: Run) -> None:
    """The old levels are not allowed any more, so they are cut; and a release may lack its signature."""
    config = released / "poolrl.toml"
    config.write_text(config.read_text().replace("demand_max = ", "demand_max = 9.0 # ", 1))
    (released / "release" / "certificate.sig").unlink()
    said = " ".join(run("replan", released / "release", "--config", config, "--out", released / "low").split())
    assert "as far as they are allowed" in said
    assert "(-" not in said
    assert not (released / "low" / "certificate.sig").exists()


FORGERIES: dict[str, Callable[[Policy], Policy]] = {
    "a level": lambda policy: replace(policy, rule=Levels(policy.levels * 1.01)),
    "the guarantee": lambda policy: replace(policy, guarantee=replace(policy.guarantee, trajectories_per_unit=2)),
    "the report": lambda policy: replace(policy, report=policy.report | {"units": 10**6}),
    "the estimate": lambda policy: replace(
        policy, outcomes=replace(policy.outcomes, weights=policy.outcomes.weights[..., ::-1].copy())
    ),  # type: ignore[type-var]
}


@pytest.mark.parametrize("forged", FORGERIES)
def test_a_forged_plan_is_found(released: Path, run: Run, forged: str) -> None:
    folder = replanned(released, run)
    FORGERIES[forged](Policy.load(folder / POLICY)).save(folder / POLICY)
    assert faults(folder) == ["the policy is a plan on the certified model, made again here"]


def test_another_certified_policy_is_found(released: Path, run: Run) -> None:
    folder = replanned(released, run)
    (folder / CERTIFIED).write_bytes((folder / POLICY).read_bytes())
    assert "the policy file has the certified hash" in faults(folder)


def test_what_cannot_be_planned_again_is_refused(released: Path, run: Run) -> None:
    config = released / "poolrl.toml"
    text = config.read_text()
    for change, message in (
        (("demand_max = ", "demand_max = 999.0 # "), "no higher ones"),
        (('products = ["bread"', 'products = ["rolls"'), "other products or steps"),
    ):
        config.write_text(text.replace(*change, 1))
        with pytest.raises(ValueError, match=message):
            run("replan", released / "release", "--config", config, "--out", released / "again")
        assert not (released / "again").exists()
    # Days in another order would get the costs of others.
    config.write_text(re.sub(r"steps = \[.*\]", 'steps = ["Sun", "Sat", "Fri"]', text))
    with pytest.raises(ValueError, match="other products or steps"):
        run("replan", released / "release", "--config", config, "--out", released / "again")
    config.write_text(text)
    with pytest.raises(ValueError, match="exists"):
        run("replan", released / "release", "--config", config, "--out", released / "release")


OPERATIONS = """
[operations]
pack = [3.0, 2.0]
fixed = 0.5
cycle = true
deliveries = ["{}", "{}"]
"""


def test_orders_of_a_shop_as_it_is(released: Path, run: Run) -> None:
    """Every line of the file says what the plan orders at both of its ends."""
    config = released / "poolrl.toml"
    steps = Policy.load(released / "release" / POLICY).names.steps
    config.write_text(config.read_text().split("[operations]")[0] + OPERATIONS.format(*steps[:2]))
    said = " ".join(run("replan", released / "release", "--config", config, "--out", released / "orders").split())
    assert "Planned for [operations] at no cost in privacy" in said
    assert "as far as the shop can" in said
    file, source = load_config(config), Released.load(released / "release")
    plan = replan_orders(source, file, released / "again").plan
    text = (released / "orders" / "orders.csv").read_text(encoding="utf-8-sig")
    lines = list(csv.DictReader(io.StringIO(text)))
    assert {line["step"] for line in lines if line["order"] != "0"} == set(steps[:2])
    for line in lines:
        product = ["bread", "milk"].index(line["product"])
        for stock in (float(line["stock_from"]), float(line["stock_to"])):
            held = [0.0, 0.0]
            held[product] = stock
            assert plan.order(steps.index(line["step"]), held)[product] == float(line["order"])
    config.write_text(config.read_text().replace(f'"{steps[0]}", "{steps[1]}"]\n', '"Someday"]\n'))
    with pytest.raises(ValueError, match="names 'Someday'; steps are"):
        load_config(config)


def test_levels_of_orders_are_one_line(model: PrivateModel) -> None:
    """A fixed cost alone: below some stock one level, above it nothing."""
    plan = plan_orders(model, Operations(fixed=3.0, cycle=True))
    text = orders_csv(plan, Names(["bread", "milk"], ["Mon", "Tue", "Wed"]), model.problem.labels)
    lines = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    assert len(lines) == 2 * 3 * 2
    assert [bool(line["up_to"]) for line in lines] == [True, False] * 6
    assert all(line["order"] == "0" for line in lines[1::2])
