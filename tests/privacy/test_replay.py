"""A log shows in the released tables alone: by record and replay, and by all that can be reached from a policy."""

from __future__ import annotations

import gc
import io
import json
import pickle
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from poolrl import Backlog, Grid, LostSales, Policy, Pool, Trajectories, Visits
from poolrl.audit.faults import revealed
from poolrl.checks import IntArray
from poolrl.data.counts import VisitCounts
from poolrl.pool import Prepared
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.workflow.config.answers import write_toml
from tests.helpers.tables import a_shop


@dataclass
class Recorder:
    """Secure noise that is remembered: what was drawn, and the tables that went out."""

    noise: list[IntArray] = field(default_factory=list)
    tables: list[IntArray] = field(default_factory=list)

    def begin(self) -> Recorder:
        self.sampler = SecureNoise().begin()
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        noisy = self.sampler.add(counts, variance)
        self.noise.append(noisy - counts)
        self.tables.append(noisy)
        return noisy


@dataclass
class Replay:
    """The same noise again (`onto_counts`), or the same tables whatever the counts."""

    recorded: list[IntArray]
    onto_counts: bool
    tables: list[IntArray] = field(default_factory=list)

    def begin(self) -> Replay:
        self.left = iter(self.recorded)
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        numbers = next(self.left)
        assert numbers.shape == counts.shape
        self.tables.append(counts + numbers if self.onto_counts else numbers)
        return self.tables[-1].copy()


@pytest.fixture(params=["default", "published", "grid", "backlog", "units"])
def fitted(request: pytest.FixtureRequest) -> tuple[Prepared, Trajectories, Trajectories, Trajectories]:
    """A learner, a log, and a neighbour of it: one of forty trajectories is another, its rows at the extremes.

    And a log of zeros, in which each of twenty units owns one trajectory instead of two, where there are units.
    """
    kind = Backlog if request.param == "backlog" else LostSales
    problem = kind(horizon=3, products=1, holding=0.2, shortage=0.3, demand_max=10.0)
    pools = {"published": Pool.published(3.0, zones=4), "grid": Pool(3.0, Visits(), Grid(4))}
    rng = np.random.default_rng(0)
    log = problem.simulate_log(rng.uniform(0, 10, (40, 3, 1)), rng=rng)
    parts = {name: getattr(log, name).copy() for name in ("states", "actions", "next_states")}
    parts["states"][7], parts["actions"][7], parts["next_states"][7] = 0.0, 10.0, 10.0
    owners = {"unit": np.arange(40) // 2, "max_per_unit": 3} if request.param == "units" else {}
    few = {name: np.zeros_like(part[:: 2 if owners else 1]) for name, part in parts.items()}
    logs = [Trajectories(**{name: getattr(log, name) for name in parts}, **owners), Trajectories(**parts, **owners)]
    logs.append(Trajectories(**few, **(owners | {"unit": np.arange(20)} if owners else {})))
    return pools.get(request.param, Pool(3.0)).prepare(problem), *logs


def saved(prepared: Prepared, released: Any, path: Path) -> bytes:
    prepared.learn(released).save(path)
    return path.read_bytes()


def test_with_the_noise_frozen_only_the_tables_change(fitted: tuple[Any, ...]) -> None:
    prepared, log, neighbour, _ = fitted
    recorder = Recorder()
    first = revealed(prepared, prepared.release(log, recorder))
    second = revealed(prepared, prepared.release(neighbour, Replay(recorder.noise, onto_counts=True)))
    assert first.public == second.public
    # What differs is the one trajectory's: it leaves as many cells as it enters, by one each.
    moved = second.numbers - first.numbers
    assert set(np.unique(moved)) == {-1, 0, 1}
    assert moved.sum() == 0
    paid = sum(mechanism.sensitivity_squared for mechanism in first.public["guarantee"].mechanisms)
    assert 0 < (moved**2).sum() <= paid


def test_with_the_tables_frozen_the_policy_is_the_same_to_the_byte(fitted: tuple[Any, ...], tmp_path: Path) -> None:
    prepared, log, *others = fitted
    recorder = Recorder()
    first = saved(prepared, prepared.release(log, recorder), tmp_path / "p.npz")
    for other in others:
        # Which rows of transitions are asked for follows from the tables, so the recording fits.
        released = prepared.release(other, Replay(recorder.tables, onto_counts=False))
        assert saved(prepared, released, tmp_path / "p.npz") == first


def test_a_complete_release_is_the_same_to_the_byte(
    tmp_path: Path, facts: dict[str, dict[str, Any]], run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`poolrl fit` on neighbours, with the tables, the ledger's keys and the clock frozen: every file, every word."""
    import poolrl.ledger.chain as chain

    monkeypatch.setattr(chain.secrets, "token_hex", lambda size: "ab" * size)
    key = Ed25519PrivateKey.generate()
    monkeypatch.setattr(Ed25519PrivateKey, "generate", lambda: key)

    class Clock(chain.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)

    monkeypatch.setattr(chain, "datetime", Clock)
    recorder = Recorder().begin()
    table = pq.read_table(tmp_path / "log.parquet")
    mine = np.array(table["trajectory"].to_pylist()) == 17
    neighbour = table
    for number, name in enumerate(table.column_names):
        if name.startswith(("action", "next_state")):
            moved = np.where(mine, 36.0 if name.startswith("action") else 0.0, table[name].to_numpy())
            neighbour = neighbour.set_column(number, name, pa.array(moved))
    found = []
    for name, log in (("first", table), ("second", neighbour)):
        folder = tmp_path / name
        folder.mkdir()
        pq.write_table(log, folder / "log.parquet")
        (folder / "poolrl.toml").write_text(write_toml(facts))
        replay = recorder if name == "first" else Replay(recorder.tables, onto_counts=False).begin()
        monkeypatch.setattr(SecureNoise, "begin", lambda self, replay=replay: replay)
        monkeypatch.chdir(folder)
        said = "".join(run("fit", "--new-account").split()).replace(str(folder), "")
        found.append((said, {path.name: path.read_bytes() for path in Path("release").iterdir()}))
    assert found[0][0] == found[1][0]
    assert found[0][1].keys() == found[1][1].keys()
    for name, content in found[0][1].items():
        assert content == found[1][1][name], name
    assert json.loads(found[0][1]["certificate.json"])["private"] is True


# What can be reached from a policy.


def leaks(policy: Policy, log: Trajectories) -> set[str]:
    """What of a log can be reached from a policy: by following every reference, and by pickling it and looking."""
    found: set[str] = set()
    seen: set[int] = set()
    frontier: list[Any] = [policy]
    arrays = (log.states, log.actions, log.next_states)
    while frontier:
        item = frontier.pop()
        if id(item) in seen or isinstance(item, type | types.ModuleType):
            continue
        seen.add(id(item))
        if type(item).__module__.startswith("poolrl.data"):
            found.add(f"an object of {type(item).__module__}")
        if isinstance(item, np.ndarray) and any(np.shares_memory(item, each) for each in arrays):
            found.add("an array of the log")
        if isinstance(item, types.FunctionType):  # what it has closed over; its module is everybody's
            frontier.extend([item.__closure__, item.__defaults__, item.__kwdefaults__])
        else:
            frontier.extend(gc.get_referents(item))
    try:
        content = io.BytesIO()
        pickle.Pickler(content, protocol=5).dump(policy)
    except (TypeError, AttributeError, pickle.PicklingError):
        found.add("something that cannot be pickled")
    else:
        # Arrays keep numbers with their last byte first, pickle those of Python with their first.
        numbers = np.unique(np.concatenate([each.ravel() for each in arrays]))
        for kind in ("<f8", ">f8", "<f4"):
            # Whole numbers may be anybody's, and four bytes may once be chance.
            written = numbers[numbers % 1 != 0].astype(kind)
            if sum(each.tobytes() in content.getvalue() for each in np.split(written, len(written))) > (kind == "<f4"):
                found.add("a number of the log")
    return found


# What is planted, and what it must be found as.
PLANTS: dict[str, tuple[Callable[[Policy, Trajectories], None], str | None]] = {
    "nothing": (lambda policy, log: None, None),
    "the log": (lambda policy, log: setattr(policy, "log", log), "an object of poolrl.data.trajectories"),
    "a view": (lambda policy, log: setattr(policy, "rows", log.actions[3:4]), "an array of the log"),
    "a number": (lambda policy, log: setattr(policy, "rows", float(log.actions[3, 0, 0])), "a number of the log"),
    "a copy": (lambda policy, log: setattr(policy, "rows", log.next_states.copy()), "a number of the log"),
    "a coarse copy": (lambda policy, log: setattr(policy, "x", log.states.astype("f4")), "a number of the log"),
    "a function": (lambda policy, log: setattr(policy, "act", lambda *_: log), "something that cannot be pickled"),
}


@pytest.mark.parametrize("pool", [Pool(1.0), Pool.published(1.0, zones=4)], ids=["default", "published"])
@pytest.mark.parametrize("plant", PLANTS)
def test_a_log_that_can_be_reached_from_the_policy(pool: Pool, plant: str) -> None:
    problem, log = a_shop(LostSales, gridded=False, trajectories=50)
    policy = pool.fit(problem, log)
    plants, found_as = PLANTS[plant]
    plants(policy, log)
    found = leaks(policy, log)
    assert found_as in found if found_as else found == set()


def test_exact_counts_behind_a_function_are_found_too() -> None:
    problem, log = a_shop(LostSales, gridded=False, trajectories=50)
    prepared = Pool.published(1.0, zones=4).prepare(problem)
    released = prepared.release(log, SecureNoise())
    policy = prepared.learn(released)
    assert leaks(policy, log) == set()
    policy.rows = released.transitions
    assert leaks(policy, log) >= {f"an object of {VisitCounts.__module__}", "something that cannot be pickled"}
