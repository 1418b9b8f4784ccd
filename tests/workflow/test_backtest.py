"""Backtests: a replay worked by hand, bounds that hold, and which weeks are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poolrl import LostSales, Policy, Pool, SeededNoise, Table, Trajectories, rollout_cost
from poolrl.learning.policy import Levels
from poolrl.privacy.guarantee import Guarantee
from poolrl.workflow.backtest import EYES_ONLY, LEFT_OUT, Backtest, Replayed, Weeks, read_weeks, replay_policy
from tests.helpers.shops import Run
from tests.helpers.tables import columns

PROBLEM = LostSales(horizon=2, holding=1.0, shortage=3.0, demand_max=20.0)


def policy_of(levels: Any, problem: LostSales = PROBLEM, *, scaled: bool = False) -> Policy:
    guarantee = Guarantee((), secure=False, steps=problem.horizon, scaled=scaled)
    return Policy(problem, Levels(np.array(levels, dtype=float)), guarantee)


def week(states: Any, actions: Any, left: Any, **known: Any) -> Trajectories:
    arrays = (np.array(part, dtype=float).reshape(1, 2, 1) for part in (states, actions, left))
    return Trajectories(**dict(zip(("states", "actions", "next_states"), arrays, strict=True)), **known)


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


def test_the_first_stock_is_the_weeks_own() -> None:
    """The shelf opens with 9, and the policy cannot send any back: 9 − 6 = 3 are left, then 3 again."""
    found = replay_policy(policy_of([[2.0], [0.0]]), weeks_of(week([9, 3], [9, 3], [3, 3])))
    assert found.in_all.policy == [6.0, 6.0, 6.0]


def test_where_all_demand_was_seen_it_is_a_rollout() -> None:
    rng = np.random.default_rng(0)
    demand = rng.uniform(1, 9, (50, 2, 1))
    log = PROBLEM.simulate_log(demand, rng=rng, behaviour=lambda step, stock, rng: np.full_like(stock, 20.0))
    policy = policy_of([[5.0], [6.0]])
    found = replay_policy(policy, weeks_of(log))
    assert found.ran_empty == 0.0
    assert found.in_all.policy == pytest.approx([rollout_cost(PROBLEM, policy, demand)] * 3)


def test_on_a_day_the_change_lies_between_its_ends() -> None:
    """One step, so nothing carries over: whatever demand was, policy minus shops is between the two scenarios."""
    rng = np.random.default_rng(1)
    problem = LostSales(horizon=1, holding=1.0, shortage=3.0, demand_max=20.0)
    for _ in range(50):
        demand = rng.uniform(0, 20, (1, 1, 1))
        log = problem.simulate_log(demand, rng=rng)
        policy = policy_of([[rng.uniform(0, 20)]], problem)
        change = replay_policy(policy, weeks_of(log, problem)).in_all.change
        true = rollout_cost(problem, policy, demand) - float(
            problem.cost(0, log.states[:, 0], log.actions[:, 0], demand[:, 0])[0]
        )
        assert min(change[0], change[2]) - 1e-9 <= true <= max(change[0], change[2]) + 1e-9


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
    shape = (3, 2, 1)
    log = Trajectories(
        states=np.zeros(shape), actions=np.full(shape, 30.0), next_states=np.full(shape, 20.0),
        scale=np.full(shape, 10.0), labels={"promo": np.array(["no", "yes", "maybe"])},
    )  # fmt: skip
    found = replay_policy(policy_of(levels, problem, scaled=True), weeks_of(log, problem))
    assert (found.weeks, found.left_out) == (2, 1)
    assert found.reasons == {"a label of a day was not declared": 1}
    # Demand is 10 a day. The first policy holds nothing, the second 10 and then 10.
    assert found.in_all.policy == [10.0, 10.0, 10.0]
    assert found.in_all.shops == [40.0, 40.0, 40.0]


def table_of(ids: list[Any], steps: list[Any], left: list[Any], **more: list[Any]) -> Table:
    rows = {"trajectory": ids, "step": steps, "state_0": [0.0] * len(ids), "action_0": [5.0] * len(ids)}
    return Table(pa.table(rows | {"next_state_0": left} | more), **columns(1))


def test_incomplete_weeks_are_left_out() -> None:
    """Week b lacks a step, c has one twice, d has no number, e is complete in another order."""
    ids = ["a", "a", "b", "c", "c", "c", "d", "d", "e", "e"]
    steps = [0, 1, 0, 0, 1, 1, 0, 1, 1, 0]
    left = [1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, None, 4.0, 3.0]
    weeks = read_weeks(table_of(ids, steps, left), PROBLEM)
    why = [None if place == 0 else LEFT_OUT[place - 1] for place in weeks.why[:, 0]]
    assert why == [None, "a day has no row", "a day stands twice", "a field of a day cannot be read", None]
    assert weeks.left[weeks.why[:, 0] == 0, :, 0].tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("since", "by", "kept"),
    [
        (None, None, 3),
        ("2025-03-10", None, 2),  # the date within the id
        ("shop 2", None, 1),
        ("12", "number", 1),
        ("10", "text", 2),  # as every column of a CSV file: "9" is no later than "10"
        ("2025-03-11", "monday", 1),
    ],
)
def test_later_weeks_are_chosen(since: str | None, by: str | None, kept: int) -> None:
    weeks = ["shop 1, week of 2025-03-03", "shop 1, week of 2025-03-10", "shop 2, week of 2025-03-17"]
    ids = [each for each in weeks for _ in range(2)]
    more = {
        "number": [each for each in (9, 10, 12) for _ in range(2)],
        "text": [each for each in ("9", "10", "12") for _ in range(2)],
        "monday": [each for each in ("2025-03-03", "2025-03-10", "2025-03-17") for _ in range(2)],
    }
    weeks = read_weeks(table_of(ids, [0, 1] * 3, [1.0] * 6, **more), PROBLEM, since, by)
    assert weeks.chosen.sum() == kept
    assert (weeks.why == 0).all()


@pytest.mark.parametrize(
    ("since", "by", "message"),
    [
        ("2025-03-03", None, "no value of its column holds one"),
        ("x", "number", "must be a number"),
        ("9", "no", "--by"),
    ],
)
def test_what_cannot_be_compared_is_refused(since: str, by: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_weeks(table_of(["a", "a"], [0, 1], [1.0, 1.0], number=[1, 1]), PROBLEM, since, by)


@pytest.mark.parametrize(
    ("shops", "policy", "words"),
    [
        ([4.0, 5.0, 6.0], [3.0, 4.0, 5.0], "cheaper, whatever"),
        ([4.0, 5.0, 6.0], [5.0, 6.0, 7.0], "dearer, whatever"),
        ([4.0, 5.0, 6.0], [5.0, 4.0, 5.0], "cheaper by the estimate, but"),
        ([4.0, 5.0, 6.0], [5.0, 6.0, 5.0], "not cheaper"),
    ],
)
def test_a_backtest_says_what_it_found(shops: list[float], policy: list[float], words: str) -> None:
    assert words in Backtest(10, 10, 0, {}, 0.1, "none", [Replayed("bread", 10, shops, policy)]).in_words


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
    with pytest.raises(ValueError, match="--by goes with --from"):
        run(*asked, "--by", "step")
