"""A policy is all that leaves: what it answers, in which units, how it is kept, and that no log is inside."""

from __future__ import annotations

import gc
import json
import math
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import (
    Grid,
    LostSales,
    Outcomes,
    Policy,
    Pool,
    SeededNoise,
    Separable,
    Trajectories,
    Visits,
    data_free,
    relative_gap,
    rollout_cost,
    simulate_log,
)
from poolrl.data.counts import OutcomeCounts, VisitCounts
from poolrl.learning.policy import Levels
from poolrl.learning.stored import Dependence, Names, PeriodRead, Planned, ReleasedTrees, Report, Together
from poolrl.simulation.evaluation import cost_difference, rollout_costs
from tests.helpers.own_problems import OrderQuantity, PostedPrice

POOLS = [
    Pool(1.0),
    Pool.published(1.0, zones=6),
    Pool(1.0, Outcomes(), Grid(4, linear=True)),
    Pool(1.0, Visits(), Grid(3)),
]
PROBLEM = LostSales(horizon=3, products=2, holding=[[0.1, 0.2]], shortage=0.3, demand_max=[100.0, 50.0], boundary=0.9)


@pytest.fixture(scope="module")
def log() -> Trajectories:
    rng = np.random.default_rng(0)
    return PROBLEM.simulate_log(rng.uniform(0, [100, 50], (150, 3, 2)), rng=rng)


@pytest.fixture(scope="module", params=POOLS)
def policy(request: pytest.FixtureRequest, log: Trajectories) -> Policy:
    """Of every representation; do not change it."""
    return request.param.fit(PROBLEM, log, noise=SeededNoise(0))


def test_act_takes_one_state_or_a_batch(policy: Policy) -> None:
    stocks = np.array([[0.0, 0.0], [10.0, 45.5], [99.0, 3.0]])
    batch = policy.act(1, stocks)
    assert batch.shape == (3, 2)
    for stock, action in zip(stocks, batch, strict=True):
        assert policy.act(1, stock) == pytest.approx(action)
    assert (batch >= stocks).all()
    assert batch[1, 1] == 45.5  # above λ = 45 already: order nothing more
    assert (batch[0] <= [90.0, 45.0]).all()
    assert policy.act(np.int64(2), [1, 2]).shape == (2,)


def test_saving_and_loading_changes_nothing(policy: Policy, tmp_path: Path) -> None:
    policy.save(tmp_path / "policy.npz")
    again = Policy.load(tmp_path / "policy.npz")
    stocks = np.random.default_rng(1).uniform(0, [100, 50], (40, 2))
    for step in range(3):
        assert np.array_equal(policy.act(step, stocks), again.act(step, stocks))
    assert (again.guarantee, again.report) == (policy.guarantee, policy.report)
    assert again.problem.facts() == PROBLEM.facts()
    # A dry run says so in its file.
    with np.load(tmp_path / "policy.npz") as file:
        text = file["facts"].tobytes().decode()
    assert "NOT PRIVATE" in text
    assert json.loads(text)["guarantee"]["private"] is False
    assert "NOT PRIVATE" in repr(again)


@pytest.mark.parametrize(
    ("step", "stock", "message"),
    [
        (3, [0, 0], r"step must lie in 0 \.\. 2, got 3"),
        (-1, [0, 0], r"step must lie in 0 \.\. 2, got -1"),
        (0.0, [0, 0], "step must be a whole number, got float"),
        (True, [0, 0], "step must be a whole number, got bool"),
        (0, [0.0], r"stock must have shape \(2,\) or \(m, 2\), got \(1,\)"),
        (0, [[[0.0, 0.0]]], r"stock must have shape"),
        (0, [np.nan, 0.0], "stock must be finite"),
        (0, ["many", "few"], "stock must hold numbers in a regular array"),
    ],
)
def test_a_bad_question_gets_a_clear_answer(step: int, stock: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        data_free(PROBLEM).act(step, stock)


def test_policies_for_your_own_problems(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for problem, values in ((PostedPrice(2), Grid(5)), (OrderQuantity(2, 1, 0.1, 0.2, 50.0), Separable(9))):
        log = simulate_log(problem, rng.uniform(0, 50, (60, 2, 1)), rng=rng)
        policy = Pool(1.0, values=values).fit(problem, log)
        policy.save(tmp_path / "policy.npz")
        with pytest.raises(ValueError, match=f"your own problem {type(problem).__name__}: pass it as problem="):
            Policy.load(tmp_path / "policy.npz")
        again = Policy.load(tmp_path / "policy.npz", problem=problem)
        assert np.array_equal(again.act(1, [3.0]), policy.act(1, [3.0]))
        with pytest.raises(ValueError, match="other public facts"):
            Policy.load(tmp_path / "policy.npz", problem=PostedPrice(3))


def rewrite(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change one array of an npz and write a perfectly valid file again."""
    with np.load(path) as file:
        arrays = dict(file)
    arrays[name] = change(arrays[name])
    np.savez(path, **arrays)


def test_tampering_and_truncation_are_noticed(tmp_path: Path) -> None:
    path, policy = tmp_path / "policy.npz", data_free(PROBLEM)

    def forged(text: np.ndarray) -> np.ndarray:  # a forger turns the dry run into a private one
        lie = text.tobytes().replace(b'"secure_noise": false', b'"secure_noise": true')
        assert lie != text.tobytes()
        return np.frombuffer(lie, np.uint8)

    for name, change in (("levels", lambda levels: levels + 1e-9), ("facts", forged)):
        policy.save(path)
        rewrite(path, name, change)
        with pytest.raises(ValueError, match="was changed after it was saved"):
            Policy.load(path)

    policy.save(path)
    data = path.read_bytes()
    for end in (0, 10, len(data) // 2, len(data) - 5):
        path.write_bytes(data[:end])
        with pytest.raises(ValueError, match="not a poolrl policy, or is truncated"):
            Policy.load(path)
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(flipped))
    with pytest.raises(ValueError, match=r"not a poolrl policy|was changed after"):
        Policy.load(path)


@pytest.mark.parametrize("content", [b"", b"hello", pickle.dumps({"a": 1})])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a poolrl policy"):
        Policy.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("facts.npy", pickle.dumps(object))
    with pytest.raises(ValueError, match="not a poolrl policy"):
        Policy.load(path)
    with pytest.raises(FileNotFoundError):
        Policy.load(tmp_path / "nothing.npz")


def test_no_log_is_reachable_from_a_policy(policy: Policy, log: Trajectories, tmp_path: Path) -> None:
    seen: set[int] = set()
    frontier: list[object] = [policy]
    while frontier:
        item = frontier.pop()
        if id(item) in seen or isinstance(item, type) or type(item).__name__ in ("module", "function"):
            continue
        seen.add(id(item))
        assert not isinstance(item, Trajectories | OutcomeCounts | VisitCounts)
        if isinstance(item, np.ndarray):
            for sensitive in (log.states, log.actions, log.next_states):
                assert not np.shares_memory(item, sensitive)
        frontier.extend(gc.get_referents(item))
    policy.save(tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz") as file:
        contents = [pickle.dumps(policy), *(file[name].tobytes() for name in file.files)]
    for row in log.actions[:, 0]:  # real numbers that only the log knows
        assert all(number.tobytes() not in content for number in row for content in contents)


LABELS: dict[str, Any] = {"shop": ["north", "south"], "promo": [0, 1]}
SOUTH = {"shop": "south", "promo": 1}
LABELLED = LostSales(horizon=2, products=2, holding=1.0, shortage=2.0, demand_max=4.0, boundary=0.75, labels=LABELS)
# Tens say the shop and the promotion, ones the step and the product: all different.
EXACTLY = np.arange(1.0, 17.0).reshape(2, 2, 2, 2) / 8


@pytest.fixture
def labelled() -> Policy:
    return Policy(LABELLED, Levels(EXACTLY.copy()), data_free(LABELLED).guarantee)


def test_a_row_gets_the_level_of_its_labels_in_its_units(labelled: Policy) -> None:
    assert labelled.levels.shape == (2, 2, 2, 2)
    north = {"shop": "north", "promo": 0}
    assert labelled.act(1, [0, 0], labels=SOUTH) == pytest.approx(EXACTLY[1, 1, 1])
    assert labelled.act(1, [0, 0], scale=10, labels=SOUTH) == pytest.approx(10 * EXACTLY[1, 1, 1])
    assert labelled.act(0, [0, 0], scale=[10, 20], labels=north) == pytest.approx(EXACTLY[0, 0, 0] * [10, 20])
    # Stock is never sent back, and orders stay within λ: 0.75 of 4 times the scale.
    assert labelled.act(0, [7, 0], scale=10, labels=north) == pytest.approx([7, 2.5])
    high = Policy(LABELLED, Levels(np.full((2, 2, 2, 2), 3.9)), labelled.guarantee)
    assert high.act(0, [0, 31], scale=10, labels=north) == pytest.approx([30, 31])


def test_a_batch_is_its_rows(labelled: Policy) -> None:
    rng = np.random.default_rng(0)
    shop, promo = rng.choice(["north", "south"], 50), rng.integers(0, 2, 50)
    stock, scale = rng.uniform(0, 20, (50, 2)), rng.uniform(1, 30, (50, 2))
    batch = labelled.act(1, stock, scale=scale, labels={"shop": shop, "promo": promo})
    assert (batch >= stock).all()
    for i in range(50):
        one = labelled.act(1, stock[i], scale=scale[i], labels={"shop": shop[i], "promo": promo[i]})
        assert batch[i] == pytest.approx(one)
    # One value serves all rows; one number per row all its products.
    alike = labelled.act(1, stock, scale=scale[:, 0], labels={"shop": "north", "promo": promo})
    both = np.repeat(scale[:, :1], 2, axis=1)
    assert np.array_equal(alike, labelled.act(1, stock, scale=both, labels={"shop": ["north"] * 50, "promo": promo}))


@pytest.mark.parametrize(
    ("rows", "known", "message"),
    [
        (1, {"labels": SOUTH | {"shop": "east"}}, "labels must be among the values that the problem declares"),
        (1, {"labels": SOUTH | {"promo": None}}, "labels must be among the values that the problem declares"),
        (1, {}, r"labels must be those of the problem \(shop, promo\), got none"),
        (1, {"labels": {"shop": "south", "week": 1}}, r"those of the problem \(shop, promo\), got shop, week"),
        (1, {"labels": SOUTH | {"promo": "yes"}}, "label 'promo' must hold numbers, as declared"),
        (1, {"labels": SOUTH | {"shop": 7}}, "label 'shop' must hold text, as declared"),
        (3, {"labels": SOUTH | {"promo": [0, 1]}}, "labels must be single values or arrays of 3 values"),
        (1, {"labels": SOUTH, "scale": 0}, "scale must be positive and finite"),
        (1, {"labels": SOUTH, "scale": np.nan}, "scale must be positive and finite"),
        (3, {"labels": SOUTH, "scale": np.ones(4)}, r"scale must be one number, or have shape \(3, 2\), got \(4,\)"),
        (2, {"labels": SOUTH, "scale": np.ones(2)}, r"must have shape \(2, 2\): \(2,\) could be one for each row"),
    ],
)
def test_what_cannot_be_answered_is_refused(labelled: Policy, rows: int, known: dict, message: str) -> None:
    stock = np.zeros((rows, 2)) if rows > 1 else np.zeros(2)
    with pytest.raises(ValueError, match=message):
        labelled.act(0, stock, **known)


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
    labelled = Policy(problem, Levels(levels), data_free(problem).guarantee)
    paths = np.array([[[7.0], [14.0]], [[7.0], [14.0]]])
    scale = np.array([10.0, 5.0])[None, :, None]
    assert rollout_costs(problem, labelled, paths, scale=scale, labels={"shop": [0, 1]}) == pytest.approx([11, 190])
    assert rollout_cost(problem, labelled, paths, scale=scale, labels={"shop": [0, 1]}) == pytest.approx(100.5)
    # A label of a step: shop 0 first, then shop 1, where 3 is left from the first day: 3 + 60.
    changing = rollout_costs(problem, labelled, paths[:1], scale=scale, labels={"shop": [[0, 1]]})
    assert changing == pytest.approx([63])
    assert rollout_costs(problem, labelled, paths, scale=scale, labels={"shop": 1}) == pytest.approx([190, 190])
    idle = Policy(problem, Levels(0 * levels), labelled.guarantee)
    known = {"scale": scale, "labels": {"shop": 0}}
    assert rollout_cost(problem, idle, paths, **known) == pytest.approx(42)
    assert relative_gap(problem, idle, paths, benchmark=labelled, **known) == pytest.approx(31 / 11)
    assert cost_difference(problem, idle, paths, benchmark=labelled, **known) == pytest.approx(31)
    with pytest.raises(ValueError, match=r"scale must broadcast to shape \(2, 2, 1\), got shape \(3,\)"):
        rollout_cost(problem, labelled, paths, scale=np.ones(3), labels={"shop": 0})
    with pytest.raises(ValueError, match=r"label 'shop' must broadcast to shape \(2, 2\), got shape \(3, 1\)"):
        rollout_cost(problem, labelled, paths, scale=scale, labels={"shop": [0, 1, 1]})


FULL = Report(
    observed=0.9,
    trees=ReleasedTrees((2, 4, 8), 12.5),
    step_labels=("promo",),
    dependence=Dependence(0.2, 0.01, 20.0),
    together=Together(0.4, 0.5, 0.1),
    names=Names(["tea"], ["Mon", "Tue"], 1),
    units=120,
    scale_in_words="the average of four weeks",
    periods=(PeriodRead("week", 1, 9, ("mean",)), PeriodRead("day", "2025-01-06", "2025-02-03")),
    planned=Planned(64, 0.25, 0.0),
)


@pytest.mark.parametrize("report", [FULL, Report()])
def test_a_report_survives_a_file(report: Report) -> None:
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    # What is not known is left out.
    assert Report().to_dict() == {}
    assert Report(units=0).to_dict() == {"units": 0}


@pytest.mark.parametrize(
    "lie",
    [
        [],
        3,
        {"note": "forged"},
        {"observed": 1.5},
        {"observed": math.nan},
        {"scale_in_words": ["mean"]},
        {"trees": {"sizes": [2, 0], "variance": 1.0}},
        {"trees": {"sizes": [2], "variance": -1.0}},
        {"dependence": {"effect": 2.0, "error": 0.1, "z": 1.0}},
        {"together": {"correlation": 0.99, "measured": 0.5, "error": 0.1}},
        {"names": {"products": [1], "steps": ["Mon"]}},
        {"periods": [{"column": "week", "first": 1, "before": []}]},
        {"planned": {"nodes": -1}},
    ],
)
def test_what_no_report_says_is_refused(lie: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Report.from_dict(lie)
