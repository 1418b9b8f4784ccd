"""A policy is all that leaves: what it answers, how it is kept, and that no log is inside."""

from __future__ import annotations

import gc
import json
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
    Zones,
    data_free,
    simulate_log,
)
from poolrl.data.counts import OutcomeCounts, VisitCounts
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


def test_zones_policies_answer_between_their_nodes(log: Trajectories) -> None:
    policy = Pool(5.0, Outcomes(), Zones(10)).fit(PROBLEM, log, noise=SeededNoise(0))
    stocks = np.column_stack([np.linspace(0, 90, 50), np.full(50, 5.0)])
    assert len(np.unique(policy.act(0, stocks).round(3), axis=0)) > 5
