"""Bugs that would void the guarantee, planted one at a time: each must be caught."""

from __future__ import annotations

import gc
import io
import pickle
import types
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import LostSales, Policy, Pool, SeededNoise, Trajectories, pool
from poolrl.audit.audit import Finding, audit
from poolrl.audit.neighbours import CASES, Case, Exact
from poolrl.data.counts import OutcomeCounts, VisitCounts
from poolrl.privacy import noise, randomness, release
from poolrl.privacy.ledger import Ledger
from poolrl.privacy.noise import SecureNoise

DEFAULT, DEFAULT_UNITS, PUBLISHED, PUBLISHED_UNITS = CASES
TOLD_APART = "the logs can be told apart better than the claim allows"
TOO_LITTLE = "a number has less noise than is stated"
Plant = pytest.MonkeyPatch


def faults(found: Finding) -> str:
    return "; ".join(found.faults)


def without_engines(monkeypatch: Plant) -> None:
    """For plants that look into arrays."""
    poorer = Case.poorer
    monkeypatch.setattr(Case, "tables", lambda self: self.logs())
    monkeypatch.setattr(Case, "poorer", lambda self: (poorer(self)[0], poorer(self)[0]))


def test_a_tenth_too_little_variance(monkeypatch: Plant) -> None:
    honest = noise._SecureSampler.add
    less = Fraction(9, 10)
    monkeypatch.setattr(noise._SecureSampler, "add", lambda self, counts, v: honest(self, counts, v * less))
    assert TOO_LITTLE in faults(audit(DEFAULT, rho=4.0, releases=16_000))


@pytest.mark.parametrize("case", [DEFAULT, PUBLISHED], ids=lambda case: case.name)
def test_sensitivity_without_its_factor_two(monkeypatch: Plant, case: Any) -> None:
    """√H for √2H, in the guarantee as well, so that its arithmetic holds."""
    monkeypatch.setattr(release, "Fraction", lambda number: Fraction(number, 2))
    assert TOLD_APART in faults(audit(case, releases=2000))


def test_a_variance_that_does_not_fit_the_budget(monkeypatch: Plant) -> None:
    monkeypatch.setattr(release.zcdp, "noise_variance", lambda **_: Fraction(3))
    assert "the guarantee states another rho" in faults(audit(DEFAULT, releases=200))


def test_one_of_two_tables_without_noise(monkeypatch: Plant) -> None:
    honest = release._Transitions
    monkeypatch.setattr(release, "_Transitions", lambda counts, _, variance: honest(counts, Exact(), variance))
    assert TOLD_APART in faults(audit(PUBLISHED, releases=2000))


def test_one_level_of_the_trees_without_noise(monkeypatch: Plant) -> None:
    honest = noise._SecureSampler.add
    monkeypatch.setattr(
        noise._SecureSampler, "add", lambda self, counts, v: honest(self, counts, v if counts.shape[-1] != 4 else 0 * v)
    )
    assert TOO_LITTLE in faults(audit(DEFAULT, releases=2000))


@pytest.mark.parametrize("case", [DEFAULT, PUBLISHED], ids=lambda case: case.name)
def test_noise_on_occupied_cells_alone(monkeypatch: Plant, case: Any) -> None:
    honest = noise._SecureSampler.add
    monkeypatch.setattr(
        noise._SecureSampler, "add", lambda self, counts, v: np.where(counts > 0, honest(self, counts, v), 0)
    )
    found = faults(audit(case, releases=2000))
    assert TOLD_APART in found or TOO_LITTLE in found


def test_bounds_taken_from_the_data(monkeypatch: Plant) -> None:
    """As if demand were bounded by the largest order that the log knows."""
    honest = release.count_outcomes

    def bounded(log: Any, problem: LostSales, *, bins: int) -> OutcomeCounts:
        seen = float(log.actions.max())
        return honest(log, LostSales(horizon=2, holding=1.0, shortage=1.0, demand_max=seen), bins=bins)

    monkeypatch.setattr(release, "count_outcomes", bounded)
    without_engines(monkeypatch)
    assert TOLD_APART in faults(audit(DEFAULT, releases=2000))


def test_bins_taken_from_the_data(monkeypatch: Plant) -> None:
    honest = release.count_outcomes
    monkeypatch.setattr(
        release,
        "count_outcomes",
        lambda log, problem, bins: honest(log, problem, bins=8 if log.actions.max() > 5 else 4),
    )
    without_engines(monkeypatch)
    assert "neighbours differ without noise" in faults(audit(DEFAULT, releases=200))


@pytest.mark.parametrize("case", [DEFAULT, PUBLISHED], ids=lambda case: case.name)
def test_the_same_noise_for_two_tables(monkeypatch: Plant, case: Any) -> None:
    monkeypatch.setattr(randomness.Stream, "take", lambda self, count: 0)
    assert "two numbers share noise" in faults(audit(case, releases=1500))


def test_counts_that_no_attacker_moves_without_noise(monkeypatch: Plant) -> None:
    """The unobserved slots: both logs of the attack leave them as they are."""
    honest = noise._SecureSampler.add
    monkeypatch.setattr(
        noise._SecureSampler, "add", lambda self, counts, v: honest(self, counts, v if counts.ndim != 2 else 0 * v)
    )
    assert TOO_LITTLE in faults(audit(DEFAULT_UNITS, releases=1000))


def test_a_layout_that_follows_the_log(monkeypatch: Plant) -> None:
    """Whether anything is unobserved, read off the log: a neighbour that owns less gets another table."""
    monkeypatch.setattr(Trajectories, "is_full", property(lambda self: len(self) == self.slots))
    assert "neighbours differ without noise" in faults(audit(DEFAULT_UNITS, releases=200))


@pytest.mark.parametrize(
    "plant", ["a seed for every release", "a key for every release", "one generator for all", "one made when needed"]
)
def test_seeded_noise_that_claims_to_be_private(monkeypatch: Plant, plant: str) -> None:
    if plant == "a seed for every release":
        monkeypatch.setattr(SecureNoise, "begin", lambda self: SeededNoise(7).begin())
    elif plant == "a key for every release":
        monkeypatch.setattr(randomness.secrets, "token_bytes", lambda size: bytes(size))
    elif plant == "one generator for all":  # every release is different, and every process draws the same ones
        generator = np.random.default_rng(0)
        monkeypatch.setattr(randomness.secrets, "token_bytes", generator.bytes)
    else:
        made: list[np.random.Generator] = []

        def late(size: int) -> bytes:
            made.append(made[-1] if made else np.random.default_rng())
            return made[-1].bytes(size)

        monkeypatch.setattr(randomness.secrets, "token_bytes", late)
    found = audit(DEFAULT, releases=1000)
    assert "two processes draw the same noise" in faults(found)
    assert (TOLD_APART in faults(found)) == ("every release" in plant)


@pytest.mark.parametrize("case", [DEFAULT_UNITS, PUBLISHED_UNITS], ids=lambda case: case.name)
def test_max_per_unit_left_out_of_the_sensitivity(monkeypatch: Plant, case: Any) -> None:
    monkeypatch.setattr(release, "Fraction", lambda number: Fraction(number, case.per_unit**2))
    assert TOLD_APART in faults(audit(case, releases=1000))


@pytest.mark.parametrize("case", [DEFAULT_UNITS, PUBLISHED_UNITS], ids=lambda case: case.name)
def test_max_per_unit_left_out_of_the_count(monkeypatch: Plant, case: Any) -> None:
    monkeypatch.setattr("poolrl.data.trajectories._rank_within", lambda owner: np.zeros(len(owner), dtype=np.int64))
    found = faults(audit(case, releases=1000))
    assert TOLD_APART in found
    assert "a table in an engine is counted otherwise" in found


def test_max_per_unit_left_out_by_an_engine(monkeypatch: Plant) -> None:
    monkeypatch.setattr("poolrl.data.tables.Table._rank", staticmethod(lambda lives: lives["count"] * 0))
    assert "a table in an engine is counted otherwise" in faults(audit(DEFAULT_UNITS, releases=200))


def test_a_policy_that_remembers_the_log(monkeypatch: Plant) -> None:
    """Through the back door: not in the tables, but in what is learned beside them."""
    honest = release.release_outcomes
    logs: list[Any] = []

    def remembering(log: Any, *args: Any, **named: Any) -> Any:
        logs.append(log)
        return honest(log, *args, **named)

    honest_plan = pool.plan_on_outcomes
    monkeypatch.setattr("poolrl.pool.release_outcomes", remembering)
    monkeypatch.setattr(
        "poolrl.pool.plan_on_outcomes",
        lambda outcomes, where: (honest_plan(outcomes, where)[0], {"mean": float(logs[-1].actions.mean())}),
    )
    without_engines(monkeypatch)
    assert "the policy depends on more than the released tables" in faults(audit(DEFAULT, releases=200))


def test_a_second_fit_that_does_not_pay(released: Path, run: Callable[..., str], monkeypatch: Plant) -> None:
    """Neither by the first one's reservation, nor by none at all: the ledger refuses, or `verify` finds out."""
    config = released / "poolrl.toml"
    with Ledger.existing(released / "ledger.sqlite") as ledger:
        first = next(entry for entry in ledger.entries() if entry.kind == "reserve")
    with monkeypatch.context() as plant:
        plant.setattr(Ledger, "reserve", lambda *_: first)
        with pytest.raises(ValueError, match="entry 2 of the ledger is committed, not reserved"):
            run("fit", "--config", config, "--out", released / "again")
    with monkeypatch.context() as plant:
        plant.setattr(Ledger, "reserve", lambda *_: first)
        plant.setattr("poolrl.privacy.accounts.Account.require", lambda *_: None)
        with pytest.raises(ValueError, match="continues a spend that is committed, not reserved"):
            run("fit", "--config", config, "--out", released / "again")
    with monkeypatch.context() as plant:
        for name in ("reserve", "read", "commit"):
            plant.setattr(Ledger, name, lambda *_: first)
        run("fit", "--config", config, "--out", released / "again")
    files = released / "again/policy.npz", released / "again/certificate.json"
    with pytest.raises(SystemExit):
        run("verify", *files, "--ledger", released / "ledger.sqlite")


def leaks(policy: Policy, log: Trajectories) -> set[str]:
    """What of a log can be reached from a policy: by following every reference, and by pickling it and looking."""
    found: set[str] = set()
    seen: set[int] = set()
    frontier: list[Any] = [policy]
    while frontier:
        item = frontier.pop()
        if id(item) in seen or isinstance(item, type | types.ModuleType):
            continue
        seen.add(id(item))
        if type(item).__module__.startswith("poolrl.data"):
            found.add(f"an object of {type(item).__module__}")
        arrays = (log.states, log.actions, log.next_states)
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
        written = (log.actions.ravel().astype(kind) for kind in ("<f8", ">f8"))
        if any(
            number.tobytes() in content.getvalue() for numbers in written for number in np.split(numbers, len(numbers))
        ):
            found.add("a number of the log")
    return found


@pytest.fixture
def problem() -> LostSales:
    return LostSales(horizon=2, products=1, holding=0.2, shortage=0.3, demand_max=100.0)


@pytest.fixture
def log(problem: LostSales) -> Trajectories:
    rng = np.random.default_rng(0)
    return problem.simulate_log(rng.uniform(0, 100, (50, 2, 1)), rng=rng)


PLANTS: dict[str, Callable[[Policy, Trajectories], None]] = {
    "nothing": lambda policy, log: None,
    "an object of poolrl.data.trajectories": lambda policy, log: policy.report.update(log=log),
    "an array of the log": lambda policy, log: policy.report.update(rows=log.actions[3:4]),
    "a number of the log": lambda policy, log: policy.report.update(rows=float(log.actions[3, 0, 0])),
    "something that cannot be pickled": lambda policy, log: setattr(policy, "act", lambda step, stock: log),
}


@pytest.mark.parametrize("pool", [Pool(1.0), Pool.published(1.0, zones=4)], ids=["default", "published"])
@pytest.mark.parametrize("plant", PLANTS)
def test_a_log_that_can_be_reached_from_the_policy(
    pool: Pool, plant: str, problem: LostSales, log: Trajectories
) -> None:
    policy = pool.fit(problem, log)
    PLANTS[plant](policy, log)
    found = leaks(policy, log)
    assert (plant in found) == bool(found)
    assert bool(found) == (plant != "nothing")


def test_exact_counts_behind_a_function_are_found_too(problem: LostSales, log: Trajectories) -> None:
    prepared = Pool.published(1.0, zones=4).prepare(problem)
    released = prepared.release(log, SecureNoise())
    policy = prepared.learn(released)
    assert leaks(policy, log) == set()
    policy.report["rows"] = released.transitions
    assert leaks(policy, log) >= {f"an object of {VisitCounts.__module__}", "something that cannot be pickled"}
