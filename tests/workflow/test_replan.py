"""`poolrl replan`: plans at no cost, which anybody can make again; and orders of a shop as it is."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import Operations, Policy, PrivateModel, plan_capacity, plan_orders
from poolrl.certificate.release_files import CERTIFIED, POLICY
from poolrl.learning.policy import POLICY_FORMAT, Levels
from poolrl.learning.stored import PLAN_FORMAT, Names, read_learned, says_it_is, write_learned
from poolrl.plans.saved import load_plan, save_plan
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.release_folder import Released
from poolrl.workflow.replan import replan_orders
from tests.helpers.commands import run_poolrl
from tests.helpers.plans import small_model
from tests.helpers.shops import Run, faults_of


@pytest.fixture(scope="module")
def one_plan(one_release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release, planned again where a missing unit costs more. Neither the log nor the ledger is there."""
    folder = tmp_path_factory.mktemp("plan")
    shutil.copytree(one_release / "release", folder / "release")
    text = (one_release / "poolrl.toml").read_text()
    (folder / "poolrl.toml").write_text(text.replace("shortage = ", "shortage = 9.0 # ", 1))
    command = ("replan", "release", "--config", "poolrl.toml", "--out", "again")
    said = " ".join(run_poolrl(*command, cwd=folder).split())
    assert "Planned again at no cost in privacy" in said
    assert "By the model, keeping the old order-up-to levels, as far as they are allowed, would cost" in said
    return folder


@pytest.fixture
def replanned(one_plan: Path, tmp_path: Path) -> Path:
    """The same, to be tampered with."""
    shutil.copytree(one_plan, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_plan_can_be_made_again_by_whoever_gets_it(replanned: Path, one_release: Path, run: Run) -> None:
    folder = replanned / "again"
    assert faults_of(folder) == []
    assert faults_of(folder, ledger=one_release / "ledger.sqlite") == []
    before, after = (Policy.load(each / POLICY) for each in (one_release / "release", folder))
    assert (after.levels >= before.levels - 1e-9).all()  # a missing unit costs more
    assert after.levels.sum() > before.levels.sum()
    assert "were planned again from a certified release" in (folder / "report.html").read_text()
    # A plan of a plan comes from the same certified model. Old levels are cut to bounds, which is no saving.
    config = replanned / "poolrl.toml"
    config.write_text(config.read_text().replace("demand_max = ", "demand_max = 9.0 # ", 1))
    (folder / "certificate.sig").unlink()
    facts = json.loads(run("replan", folder, "--config", config, "--out", replanned / "third", "--json"))
    assert facts["planned"] <= facts["kept"]
    assert faults_of(replanned / "third") == []


FORGERIES: dict[str, Callable[[Any], Policy]] = {
    "a level": lambda plan: replace(plan, rule=Levels(plan.levels * 1.01)),
    "the guarantee": lambda plan: replace(plan, guarantee=replace(plan.guarantee, trajectories_per_unit=2)),
    "the report": lambda plan: replace(plan, report=replace(plan.report, units=10**6)),
    "the estimate": lambda plan: replace(plan, outcomes=replace(plan.outcomes, points=plan.outcomes.points * 1.01)),
}


def test_a_forged_plan_is_found(replanned: Path) -> None:
    folder, plan = replanned / "again", replanned / "again" / POLICY
    good, not_made_again = plan.read_bytes(), ["the policy is a plan on the certified model, made again here"]
    for what, forge in FORGERIES.items():
        plan.write_bytes(good)
        forge(Policy.load(plan)).save(plan)
        assert faults_of(folder) == not_made_again, what
    # No hash of a plan is certified, so an array that nobody reads could carry anything out of the house.
    plan.write_bytes(good)
    facts, arrays = read_learned(plan, POLICY_FORMAT, "policy")
    write_learned(plan, facts, dict(arrays) | {"secret": np.arange(3.0)})
    assert faults_of(folder) == not_made_again
    plan.write_bytes(good)
    (folder / CERTIFIED).write_bytes(good)
    assert "the policy file has the certified hash" in faults_of(folder)


def test_what_cannot_be_planned_again_is_refused(released: Path, run: Run) -> None:
    config = released / "poolrl.toml"
    text = config.read_text()
    for pattern, new, message in (
        ("demand_max = ", "demand_max = 999.0 # ", "no higher ones"),
        (r'products = \["bread"', 'products = ["rolls"', "other products or steps"),
        # Days in another order would get the costs of others.
        (r"steps = \[.*\]", 'steps = ["Sun", "Sat", "Fri"]', "other products or steps"),
    ):
        config.write_text(re.sub(pattern, new, text, count=1))
        with pytest.raises(ValueError, match=message):
            run("replan", released / "release", "--config", config, "--out", released / "again")
        assert not (released / "again").exists()
    with pytest.raises(ValueError, match="exists"):
        run("replan", released / "release", "--config", config, "--out", released / "release")


def with_operations(released: Path, keys: str) -> Path:
    config = released / "poolrl.toml"
    config.write_text(config.read_text().split("[operations]")[0] + f"\n[operations]\n{keys}\n")
    return config


def planned(released: Path, keys: str, run: Run) -> tuple[Path, str]:
    """Plan the release again for these operations: the folder of the plan, and what was said."""
    out = released / "planned"
    command = ("replan", released / "release", "--config", with_operations(released, keys), "--out", out)
    return out, " ".join(run(*command).split())


def lines_of(table: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table.read_text(encoding="utf-8-sig"))))


def test_orders_of_a_shop_as_it_is(released: Path, run: Run) -> None:
    """Every line of the file says what the plan orders at both of its ends."""
    steps = Policy.load(released / "release" / POLICY).names.steps
    keys = f'pack = [3.0, 2.0]\nfixed = 0.5\ncycle = true\ndeliveries = ["{steps[0]}", "{steps[1]}"]'
    out, said = planned(released, keys, run)
    assert "Planned for [operations] at no cost in privacy" in said
    assert "as far as the shop can" in said
    file = load_config(released / "poolrl.toml")
    plan = replan_orders(Released.load(released / "release"), file, released / "again").plan
    lines = lines_of(out / "orders.csv")
    assert {line["step"] for line in lines if line["order"] != "0"} == set(steps[:2])
    for line in lines:
        product = ["bread", "milk"].index(line["product"])
        for stock in (float(line["stock_from"]), float(line["stock_to"])):
            held = [0.0, 0.0]
            held[product] = stock
            assert plan.order(steps.index(line["step"]), held)[product] == float(line["order"])
    rows = [f"{step},{product},3\n" for step in steps for product in ("bread", "milk")]
    (released / "stocks.csv").write_text("step,product,stock\n" + "".join(rows))
    answers = run("decide", out / "plan.npz", "--table", released / "stocks.csv").splitlines()
    expected = [float(amount) for step in range(len(steps)) for amount in plan.order(step, [3.0, 3.0])]
    assert [float(answer.split(",")[-1]) for answer in answers[1:]] == expected


def test_a_shared_capacity_from_the_command_line(released: Path, run: Run) -> None:
    """Planned, certified, saved, and asked in the user's words: what is there and what is ordered fits."""
    out, said = planned(released, "capacity = 14.0\nvolume = [1.0, 2.0]", run)
    assert "No plan costs less than" in said
    assert "all lowered by the same share until they fit" in said
    config = released / "poolrl.toml"
    facts = json.loads(run("replan", released / "release", "--config", config, "--out", released / "t2", "--json"))
    assert facts["planned"] < facts["kept"]
    assert facts["bound"] < 1.03 * facts["planned"]
    asked = ["decide", out / "plan.npz", "--step", "0", "--stock", "bread=2,milk=1", "--json"]
    answer = json.loads(run(*asked))
    levels = [2 + answer["order"]["bread"], 1 + answer["order"]["milk"]]
    assert levels[0] + 2 * levels[1] <= 14.0 + 2e-6
    model = PrivateModel.of(Policy.load(released / "release" / POLICY)).under(load_config(config).config.problem.posed)
    truck = {"volumes": [1.0, 2.0], "capacity": 14.0, "rng": np.random.default_rng(0)}
    assert plan_capacity(model, Operations(), **truck).order_up_to(0, [2.0, 1.0]).tolist() == pytest.approx(levels)
    assert float(lines_of(out / "from_empty.csv")[0]["order"]) > 0
    (released / "stocks.csv").write_text("step,product,stock\n0,bread,1\n")
    for wrong, message in (
        (["--step", "0", "--stock", "9,9"], "takes more than the capacity"),
        (["--step", "0", "--coming", "1,1"], "leave out --coming"),
        (["--table", released / "stocks.csv"], "this plan decides on all products together"),
    ):
        with pytest.raises(ValueError, match=message):
            run("decide", out / "plan.npz", *wrong)


def test_a_lead_time_from_the_command_line(released: Path, run: Run) -> None:
    out, said = planned(released, "lead_time = 2\ncycle = true", run)
    assert "and to what is sold until then" in said
    question = ["decide", out / "plan.npz", "--step", "0", "--stock", "1,1", "--json"]
    nothing, much = (json.loads(run(*question, "--coming", coming)) for coming in ("0,0", "70,70"))
    assert all(nothing["order"][name] > much["order"][name] == 0 for name in ("bread", "milk"))
    for coming in ([], ["--coming", "0,0", "--coming", "0,0"]):  # forgotten, or too much: nothing is assumed
        with pytest.raises(ValueError, match=r"so 1 more may be on their way: give --coming once for each"):
            run(*question, *coming)
    with pytest.raises(ValueError, match="coming amounts must not be negative"):
        run(*question, "--coming=-1,0")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("lead_time = 99\ncycle = true", "lead_time is longer than the 3 steps"),
        ("lead_time = 1", "lead_time needs cycle = true"),
        ("lead_time = 1\ncycle = true\ncapacity = 3.0", "capacity and lead_time cannot be planned together"),
        ("capacity = [9.0, 8.0]", "capacity must be one number, or a list of 3, got 2"),
        ("capacity = 0.0", "capacity must be positive"),
        ('deliveries = ["Someday"]', "names 'Someday'; steps are"),
    ],
)
def test_operations_that_do_not_go_together(released: Path, keys: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_config(with_operations(released, keys))


def test_a_plan_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    model, path = small_model(), tmp_path / "plan.npz"
    plan = plan_orders(model, Operations(fixed=3.0, cycle=True))
    save_plan(path, plan, Names(["bread", "milk"], ["Mon", "Tue", "Wed"]), model.problem.labels)
    assert load_plan(path).order(1, [3.0, 9.0]).tolist() == plan.order(1, [3.0, 9.0]).tolist()
    save_plan(path, plan, Names(["bread"], ["Mon", "Tue", "Wed"]), model.problem.labels)
    with pytest.raises(ValueError, match=r"an array has shape \(2, 3, \d+\), where the names ask for \(1, 3"):
        load_plan(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="is not a poolrl plan, or is truncated"):
        load_plan(path)


HOSTILE: dict[str, dict[str, Any]] = {
    "no products": {"names": {"products": [], "steps": ["Mon", "Tue", "Wed"], "first_step": 0}},
    "numbers as names": {"names": {"products": [1, 2], "steps": ["Mon", "Tue", "Wed"], "first_step": 0}},
    "a lead time beyond all": {"kind": "lead time", "lead_time": 10**12},
    "negative orders": {"orders": np.full((2, 3, 9), -5)},
    "two axes": {"orders": np.ones((2, 3), dtype=np.int64)},
    "no width": {"width": np.zeros(2)},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_plans_are_refused_in_words(tmp_path: Path, what: str) -> None:
    names = {"products": ["bread", "milk"], "steps": ["Mon", "Tue", "Wed"], "first_step": 0}
    good = {"format": "poolrl plan 1", "kind": "orders", "cycle": True, "labels": [], "names": names}
    arrays: dict[str, Any] = {"orders": np.ones((2, 3, 9), dtype=np.int64), "width": np.ones(2)}
    write_learned(tmp_path / "plan.npz", good, arrays)
    assert load_plan(tmp_path / "plan.npz").order(0, [0.0, 0.0]).tolist() == [1.0, 1.0]
    bad = HOSTILE[what]
    facts = good | {name: value for name, value in bad.items() if name not in arrays}
    write_learned(tmp_path / "plan.npz", facts, arrays | {n: v for n, v in bad.items() if n in arrays})
    with pytest.raises(ValueError, match=r"plan\.npz"):
        load_plan(tmp_path / "plan.npz")


def test_a_damaged_policy_is_not_taken_for_a_plan(released: Path) -> None:
    policy = released / "release" / POLICY
    content = bytearray(policy.read_bytes())
    for place in range(0, len(content), max(1, len(content) // 40)):
        policy.write_bytes(bytes(content[:place]) + b"\xff\x00" + bytes(content[place + 2 :]))
        assert not says_it_is(policy, PLAN_FORMAT)
