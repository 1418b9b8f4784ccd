"""Backtests: a replay worked by hand, bounds that hold, which weeks are read, and `poolrl backtest`."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import LostSales, Policy, Pool, SeededNoise, Table, Trajectories, rollout_cost
from poolrl.checks import FloatArray, IntArray
from poolrl.learning.policy import Levels
from poolrl.learning.stored import Names, Report
from poolrl.privacy.guarantee import Guarantee
from poolrl.workflow.backtest import (
    EYES_ONLY,
    RECORDED,
    REMADE,
    SameWeekday,
    Weeks,
    costs_of,
    read_weeks,
    remade_scales,
    replay_policy,
    replayed_orders,
)
from poolrl.workflow.config.answers import write_toml
from poolrl.workflow.config.configuration import ConfigFile, load_config
from poolrl.workflow.open_log import open_log
from poolrl.workflow.trades.shop_example import (
    FIRST_MONDAY,
    PRODUCTS,
    SHOP_COUNT,
    WEEK_COUNT,
    simulated_chain,
    write_example,
)
from tests.helpers.exports import configured, export_facts, write_export
from tests.helpers.shops import Run
from tests.helpers.tables import columns

PROBLEM = LostSales(horizon=2, holding=1.0, shortage=3.0, demand_max=20.0)


def policy_of(levels: Any, problem: LostSales = PROBLEM, *, scaled: bool = False, **report: Any) -> Policy:
    guarantee = Guarantee((), secure=False, steps=problem.horizon, scaled=scaled)
    return Policy(problem, Levels(np.array(levels, dtype=float)), guarantee, Report(**report))


def week(*parts: list[float]) -> Trajectories:
    """States, actions and next states of one trajectory."""
    states, actions, left = (np.array(part, dtype=float).reshape(1, 2, 1) for part in parts)
    return Trajectories(states=states, actions=actions, next_states=left)


def weeks_of(log: Trajectories, problem: LostSales = PROBLEM) -> Weeks:
    """The same log, by way of a wide table."""
    scale = {} if log.scale is None else {"scale": [f"scale_{i}" for i in range(log.states.shape[-1])]}
    names = columns(log.states.shape[-1], **scale, labels=log.facts.label_names)
    return read_weeks(Table(log.to_arrow(), **names), problem)


def test_a_week_worked_by_hand() -> None:
    """Day 1: 10 on the shelf, 4 left, so demand 6. Day 2: 8 on the shelf, none left, so demand 8 or more, up to 20.

    The shops paid 4 · 1, then 0, or (20 − 8) · 3 = 36. The policy fills up to 7 and to 12: 1 is left on day 1; on day
    2 it is 12 − 8 = 4 left, or (20 − 12) · 3 = 24 missing.
    """
    found = replay_policy(policy_of([[7.0], [12.0]]), weeks_of(week([0, 4], [10, 8], [4, 0])))
    (only,) = found.products
    assert (only.shops[0], only.shops[2]) == (4.0, 40.0)
    assert (only.policy[0], only.policy[2]) == (5.0, 25.0)
    assert found.ran_empty == 0.5
    assert only.change[0] == 1.0
    assert "rests on what was missed" in found.in_words or "not cheaper by the estimate" in found.in_words
    # A shelf opens with 9, and the policy cannot send any back: 9 − 6 = 3 are left, then 3 again.
    found = replay_policy(policy_of([[2.0], [0.0]]), weeks_of(week([9, 3], [9, 3], [3, 3])))
    assert found.in_all.policy == [6.0, 6.0, 6.0]


def test_the_estimate_fills_in_demand_as_it_was() -> None:
    """Half of the days are cut off: costs by the estimate come near those of the demand that only nature knew."""
    rng = np.random.default_rng(2)
    problem = LostSales(horizon=2, holding=1.0, shortage=3.0, demand_max=60.0)
    demand = np.minimum(rng.gamma(6.0, 2.5, (4_000, 2, 1)), 60.0)

    def habit(step: int, stock: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.maximum(stock, rng.uniform(8, 34, stock.shape))

    log = problem.simulate_log(demand, rng=rng, behaviour=habit)
    policy = Pool(10.0).fit(problem, log, noise=SeededNoise(0))
    found = replay_policy(policy, weeks_of(log, problem))
    true = rollout_cost(problem, policy, demand)
    low, middle, _ = found.in_all.policy
    assert middle == pytest.approx(true, rel=0.05)
    assert abs(low / true - 1) > 0.1


def test_scale_and_labels_reach_the_policy() -> None:
    """Levels are multiples of the scale in the label's own table; a week of an unknown label is left out."""
    problem = LostSales(horizon=2, holding=1.0, shortage=3.0, demand_max=4.0, labels={"promo": ["no", "yes"]})
    levels = [[[1.0], [1.0]], [[2.0], [2.0]]]
    nothing, labels = np.zeros((3, 2, 1)), {"promo": np.array(["no", "yes", "maybe"])}
    moved = {"states": nothing, "actions": nothing + 30, "next_states": nothing + 20, "scale": nothing + 10}
    log = Trajectories(**moved, labels=labels)
    found = replay_policy(policy_of(levels, problem, scaled=True), weeks_of(log, problem))
    assert (found.weeks, found.left_out) == (2, 1)
    # Demand is 10 a day. The first policy holds nothing, the second 10 and then 10.
    assert found.in_all.policy == [10.0, 10.0, 10.0]
    assert found.in_all.shops == [40.0, 40.0, 40.0]


def test_the_command(one_release: Path, run: Run) -> None:
    """It says whose eyes it is for, spends nothing, and gives the same numbers to a program."""
    before = (one_release / "ledger.sqlite").read_bytes()
    asked = ("backtest", one_release / "release", "--config", one_release / "poolrl.toml")
    assert " ".join(run(*asked).split()).startswith(EYES_ONLY)
    facts = json.loads(run(*asked, "--json"))
    assert facts["notice"] == EYES_ONLY
    assert facts["weeks"] + facts["left_out"] == 300
    assert [each["product"] for each in facts["costs"]] == ["bread", "milk", "in all"]
    first, second, both = (np.array(each["policy"]) for each in facts["costs"])
    np.testing.assert_allclose(first + second, both)
    assert (one_release / "ledger.sqlite").read_bytes() == before
    later = json.loads(run(*asked, "--from", "200", "--json"))
    assert later["weeks"] == 100


# Of a sales export, against the demand that only nature knows.


RULE = SameWeekday(4, 1.0)


def opened(file: ConfigFile, since: str | None = None) -> Weeks:
    with open_log(file, explained=True, every_period=True) as log:
        return read_weeks(log, file.config.problem.posed, since, file.config.declared_period())


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> ConfigFile:
    """The example's chain."""
    folder = tmp_path_factory.mktemp("example")
    (folder / "poolrl.toml").write_text(write_toml(write_example(folder, seed=1)), encoding="utf-8")
    return load_config(folder / "poolrl.toml")


@pytest.fixture(scope="module")
def weeks(example: ConfigFile) -> Weeks:
    """Its weeks."""
    return opened(example)


def in_chain(weeks: Weeks, values: FloatArray) -> FloatArray:
    """An array (weeks, shops, ...) of the chain in the order of the weeks that were read."""
    # Shops are numbered as they were met, so each is found by what it sold.
    table = simulated_chain(1)[0]
    sold = table["sales"].to_numpy().reshape(SHOP_COUNT, WEEK_COUNT, 7, 3).transpose(1, 0, 2, 3)
    order = {each.tobytes(): place for place, each in enumerate(sold.astype(np.float64).reshape(-1, 21))}
    at = [order[np.ascontiguousarray(each).tobytes()] for each in weeks.sold.reshape(-1, 21)]
    return values.reshape(-1, *values.shape[2:])[at]


def test_the_true_change_lies_between_the_ends(example: ConfigFile, weeks: Weeks) -> None:
    """Nature's demand, played against the policy week by week: its change of cost is between least and most.

    The policy orders a multiple of the scale, and half as much again for a promotion.
    """
    problem, levels = example.config.problem.posed, np.full((2, 7, 3), 1.5)
    levels[1] *= 1.5
    policy = policy_of(levels, problem, scaled=True, names=Names(list(PRODUCTS), [*map(str, range(7))]))
    table, demand = simulated_chain(1)
    promotion = table["promotion"].to_numpy(zero_copy_only=False).reshape(SHOP_COUNT, WEEK_COUNT, 21)[:, :, 0]
    shape = (SHOP_COUNT, WEEK_COUNT, 7, 3)
    opening, delivery, sales = (table[name].to_numpy().reshape(shape) for name in ("opening", "delivery", "sales"))
    own, change = sales.astype(float), np.zeros(3)
    holding, shortage = problem.holding.reshape(-1, 7, 3)[0], problem.shortage.reshape(-1, 7, 3)[0]

    def cost(level: FloatArray, wanted: FloatArray, day: int) -> FloatArray:
        left, missing = np.maximum(level - wanted, 0), np.maximum(wanted - level, 0)
        return (holding[day] * left + shortage[day] * missing).sum(axis=0)

    for week in range(2, WEEK_COUNT):
        scale = np.maximum(own[:, max(week - 4, 0) : week].round(3).mean(axis=1), 1.0)
        stock = opening[:, week, 0].astype(float)
        for day in range(7):
            wanted = demand[week, :, day]
            level = policy.act(day, stock, scale=scale[:, day], labels={"promotion": promotion[:, week]})
            change += cost(level, wanted, day) - cost((opening + delivery)[:, week, day], wanted, day)
            own[:, week, day] = np.minimum(level, wanted)
            stock = np.maximum(level - wanted, 0)
    change /= SHOP_COUNT * (WEEK_COUNT - 2)
    found = replay_policy(policy, weeks, remade=RULE)
    assert (found.scale, replay_policy(policy, weeks).scale) == (REMADE, RECORDED)
    for true, each in zip(change, found.products, strict=True):
        assert each.change[2] <= true <= each.change[0]
        assert each.change[0] - each.change[2] < each.shops[0]
    # With the true demand itself in place of a scenario, the replay is that simulation.
    used = weeks.usable
    kept = np.flatnonzero(used[:, 0])
    known, cells = in_chain(weeks, demand)[kept], weeks.cells[kept]

    def orders(step: int, rows: IntArray, stock: FloatArray, scale: FloatArray) -> FloatArray:
        return np.maximum(policy.levels[cells[rows, step, 0], step] * scale, stock)

    scales = remade_scales(problem, weeks, used, known, orders, RULE)
    levels = replayed_orders(problem, weeks.opening[kept, 0], known, scales, orders, np.arange(len(kept)))
    ours, theirs = (costs_of(problem, each, known, cells, used[kept]) for each in (levels, weeks.level[kept]))
    np.testing.assert_allclose(ours - theirs, change)


def row(day: int, product: str, shop: str = "1", **fields: str) -> list[str]:
    """Twelve on the shelf, five sold."""
    usual = {"opening": "2", "delivery": "10", "sales": "5", "stock_out": "no"} | fields
    return [shop, f"2025-03-{2 + day:02d}", product, *usual.values()]


def test_products_are_lost_one_by_one_and_counted(tmp_path: Path) -> None:
    """Shop 1 lacks a day of milk; 2 has bread twice; 3 has sales in words; 4 sold more than there was; 5 is whole."""
    rows = [row(day, product, shop) for shop in "12345" for day in (1, 2) for product in ("bread", "milk")]
    rows.remove(row(2, "milk", "1"))
    rows.append(row(1, "bread", "2"))
    rows[rows.index(row(1, "milk", "3"))] = row(1, "milk", "3", sales="five")
    rows[rows.index(row(1, "milk", "4"))] = row(1, "milk", "4", sales="50")
    write_export(tmp_path, rows)
    found = opened(configured(tmp_path, export_facts()))
    assert found.usable.tolist() == [[True, False], [False, True], [True, False], [True, False], [True, True]]
    problem = LostSales(horizon=2, products=2, holding=1.0, shortage=2.0, demand_max=20.0)
    result = replay_policy(policy_of(np.full((2, 2), 5.0), problem), found)
    assert (result.weeks, result.complete, result.left_out) == (5, 1, 0)
    assert [each.weeks for each in result.products] == [4, 2]
    # Seven are left each day. The policy fills up to five, and all is sold.
    assert [each.shops for each in result.products] == [[14.0] * 3] * 2
    assert [each.policy for each in result.products] == [[0.0] * 3] * 2


def test_a_period_chooses_weeks_and_keeps_what_was_sold_before(tmp_path: Path) -> None:
    """Weeks of the period and --from are chosen; scales of its first weeks come from before it."""
    dates = [(FIRST_MONDAY + datetime.timedelta(7 * week + day), week) for week in range(6) for day in (0, 1)]
    rows = [["1", str(each), "bread", "0", "30", str(10 + week), "no"] for each, week in dates]
    write_export(tmp_path, rows)
    facts = export_facts(["bread"], scale="same weekday, last 2 weeks")
    facts["period"] = {"column": "monday", "first": "2025-01-20", "before": "2025-02-10"}
    weeks = opened(configured(tmp_path, facts))
    assert weeks.chosen.tolist() == [False, False, True, True, True, False]
    assert weeks.scale[2:, 0, 0].tolist() == [10.5, 11.5, 12.5, 13.5]
    assert opened(configured(tmp_path, facts), "2025-02-03").chosen.tolist() == [False] * 4 + [True, False]
