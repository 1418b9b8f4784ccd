"""A problem in the registry can be saved, loaded and asked, whatever planner it has, and planned with other costs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import (
    DynamicPricing,
    FirstPriceBidding,
    OutcomeProblem,
    Policy,
    Pool,
    PrivateModel,
    ReserveAuction,
    SeededNoise,
    simulate_log,
)
from poolrl.learning import stored
from poolrl.learning.planning import PLANNERS
from poolrl.problems.registry import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "own-problem.md"
SIZES: dict[str, Any] = {"horizon": 3, "beds": 20, "come_max": 15}


@pytest.fixture
def ward(monkeypatch: pytest.MonkeyPatch) -> OutcomeProblem:
    """The ward of the documentation, in the registry. Its facts are the constructor's arguments."""
    (code,) = re.findall(r"```python\n(import numpy.*?)```", PAGE.read_text(), flags=re.DOTALL)[:1]
    names: dict[str, Any] = {}
    exec(code, names)

    class Ward(names["Ward"]):  # type: ignore[misc]
        def facts(self) -> dict[str, Any]:
            return {"kind": "Ward", **SIZES, "horizon": self.horizon, "care": self.care}

    monkeypatch.setitem(KINDS, "ward", Ward)
    return Ward(**SIZES)


def learned(problem: OutcomeProblem, rows: int = 400) -> Policy:
    rng = np.random.default_rng(0)
    outcomes = problem.arranged(
        rng.uniform(problem.outcome_low, problem.outcome_high, (rows, problem.horizon, problem.outcome_dim))
    )
    return Pool(1.0).fit(problem, simulate_log(problem, outcomes, rng=rng), noise=SeededNoise(1))


def test_the_documented_ward_is_saved_loaded_and_asked(ward: OutcomeProblem, tmp_path: Path) -> None:
    policy = learned(ward)
    assert ward.planner == "nodes"
    assert type(policy.rule).__name__ == "GreedyQ"
    assert type(policy.rule.where).__name__ == "Partition"
    policy.save(tmp_path / "policy.npz")
    again = Policy.load(tmp_path / "policy.npz")
    for step in range(ward.horizon):
        np.testing.assert_array_equal(again.act(step, [[0.0], [6.0]]), policy.act(step, [[0.0], [6.0]]))
    PrivateModel.of(policy).save(tmp_path / "model.npz")
    model = PrivateModel.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(model.plan().act(0, [3.0]), policy.act(0, [3.0]))


def test_a_ward_of_more_days_than_its_file_holds_is_refused(ward: OutcomeProblem, tmp_path: Path) -> None:
    learned(ward).save(tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz") as file:
        arrays = dict(file)
    facts = json.loads(arrays.pop("facts").tobytes())
    del facts["sha256"]
    facts["problem"]["horizon"] = 10**12
    stored.write_learned(tmp_path / "policy.npz", facts, arrays)
    with pytest.raises(ValueError, match="declares steps"):
        Policy.load(tmp_path / "policy.npz")


@pytest.mark.parametrize("kind", KINDS.values())
def test_every_kind_names_a_planner_and_its_costs(kind: type[OutcomeProblem]) -> None:
    shop: dict[str, Any] = {"horizon": 2, "holding": 1.0, "shortage": 2.0, "demand_max": 9.0}
    problem = kind(**(dict(kind.example) or shop))
    assert problem.planner in PLANNERS
    assert problem.costs
    assert {*problem.costs} < problem.facts().keys()


ROUNDS = {
    "auction": (ReserveAuction, {"horizon": 3, "lots": 2, "bid_max": 4.0, "keep": 0.2}, {"keep": 1.0}, "lots"),
    "pricing": (DynamicPricing, {"horizon": 3, "stock": 2, "price_max": 4.0, "keep": 0.1}, {"keep": 1.0}, "stock"),
    "bidding": (FirstPriceBidding, {"horizon": 3, "wins": 2, "worth": 1.5, "bid_max": 4.0}, {"worth": 3.0}, "wins"),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_rounds_are_planned_again_with_other_costs(name: str) -> None:
    kind, facts, costs, count = ROUNDS[name]
    model = PrivateModel.of(learned(kind(**facts), 2_000))
    usual, other = model.plan(), model.plan(kind(**facts | costs))
    assert other.guarantee == usual.guarantee
    # A seller who keeps something of worth asks for more; whoever wins something of more worth bids more.
    assert (other.rule.arrays()["actions"][..., 1:, :] > usual.rule.arrays()["actions"][..., 1:, :]).all()
    # The same decisions as those of a model that was learned for it: laws do not depend on costs.
    fresh = learned(kind(**facts | costs), 2_000)
    np.testing.assert_array_equal(other.rule.arrays()["actions"], fresh.rule.arrays()["actions"])
    fewer, longer = model.plan(kind(**facts | {count: 1})), model.plan(kind(**facts | {"horizon": 5}))
    assert fewer.rule.arrays()["actions"].shape == (3, 2, 1)
    assert longer.rule.arrays()["actions"].shape == (5, 3, 1)
    np.testing.assert_array_equal(fewer.rule.arrays()["actions"], usual.rule.arrays()["actions"][:, :2])


@pytest.mark.parametrize("name", ROUNDS)
def test_rounds_with_other_laws_are_refused(name: str) -> None:
    kind, facts, _, _ = ROUNDS[name]
    model = PrivateModel.of(learned(kind(**facts)))
    bound = "price_max" if name == "pricing" else "bid_max"
    with pytest.raises(ValueError, match=f"learned with another {bound}: in a plan only horizon, "):
        model.plan(kind(**facts | {bound: 5.0}))
    other = DynamicPricing(price_max=4.0) if name != "pricing" else FirstPriceBidding(**ROUNDS["bidding"][1])
    with pytest.raises(ValueError, match=r"learned (for|with)"):
        model.plan(other)
