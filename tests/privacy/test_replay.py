"""Record and replay: with the noise frozen a log shows in the released tables alone, and with those frozen nowhere."""

from __future__ import annotations

import json
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

from poolrl import Backlog, Grid, LostSales, Pool, Trajectories, Visits
from poolrl.audit.faults import revealed
from poolrl.checks import IntArray
from poolrl.pool import Prepared
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.workflow.config.answers import write_toml


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


@pytest.fixture(params=["default", "published", "grid", "backlog"])
def fitted(request: pytest.FixtureRequest) -> tuple[Prepared, Trajectories, Trajectories]:
    """A learner, a log, and a neighbour of it: one of forty trajectories is another, its rows at the extremes."""
    kind = Backlog if request.param == "backlog" else LostSales
    problem = kind(horizon=3, products=1, holding=0.2, shortage=0.3, demand_max=10.0)
    pools = {"published": Pool.published(3.0, zones=4), "grid": Pool(3.0, Visits(), Grid(4))}
    rng = np.random.default_rng(0)
    log = problem.simulate_log(rng.uniform(0, 10, (40, 3, 1)), rng=rng)
    parts = {name: getattr(log, name).copy() for name in ("states", "actions", "next_states")}
    parts["states"][7], parts["actions"][7], parts["next_states"][7] = 0.0, 10.0, 10.0
    return pools.get(request.param, Pool(3.0)).prepare(problem), log, Trajectories(**parts)


def saved(prepared: Prepared, released: Any, path: Path) -> bytes:
    prepared.learn(released).save(path)
    return path.read_bytes()


def test_with_the_noise_frozen_the_fit_is_a_function(
    fitted: tuple[Prepared, Trajectories, Trajectories], tmp_path: Path
) -> None:
    prepared, log, _ = fitted
    recorder = Recorder()
    first = saved(prepared, prepared.release(log, recorder), tmp_path / "p.npz")
    again = Replay(recorder.noise, onto_counts=True)
    assert saved(prepared, prepared.release(log, again), tmp_path / "p.npz") == first


def test_with_the_noise_frozen_only_the_tables_change(fitted: tuple[Prepared, Trajectories, Trajectories]) -> None:
    prepared, log, neighbour = fitted
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


def test_with_the_tables_frozen_the_policy_is_the_same_to_the_byte(
    fitted: tuple[Prepared, Trajectories, Trajectories], tmp_path: Path
) -> None:
    prepared, log, neighbour = fitted
    recorder = Recorder()
    first = saved(prepared, prepared.release(log, recorder), tmp_path / "p.npz")
    empty = Trajectories(**{name: np.zeros_like(log.states) for name in ("states", "actions", "next_states")})
    for other in (neighbour, empty):
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
