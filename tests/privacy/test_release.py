"""What release pays for: sensitivity in integers, for any two neighbouring logs, and the guarantee's words."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import Backlog, Grid, LostSales, Pool, SeededNoise, Trajectories, Visits, Zones
from poolrl.audit.faults import Frozen
from poolrl.checks import IntArray
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.release import release_outcomes, release_visits
from poolrl.privacy.sensitivity import every_level
from poolrl.privacy.zcdp import budget
from tests.helpers.neighbours import Recorder, neighbours, squared_change


@settings(max_examples=80, deadline=None)
@given(neighbours(), st.sampled_from([Zones(3), Grid(2), Zones(1)]))
def test_visits_never_change_by_more_than_was_paid_for(pair: tuple, values: Zones | Grid) -> None:
    problem, first, second = pair
    partition = values.partition(problem)
    recorders = Recorder(), Recorder()
    for log, recorder in zip((first, second), recorders, strict=True):
        released = release_visits(log, problem, partition, rho=budget(0.5), noise=recorder)
        everything = [released.transitions(step, np.arange(partition.pair_count)) for step in range(log.horizon)]
        assert np.stack(everything).size == released.cells == released.guarantee.mechanisms[1].cells
    pairs, *transitions = squared_change(*recorders)
    for change, mechanism in zip((pairs, sum(transitions)), released.guarantee.mechanisms, strict=True):
        assert change <= mechanism.sensitivity_squared
    assert released.guarantee.rho == 0.5
    cap = first.facts.max_per_unit
    assert set(recorders[0].variances) == {Fraction(2 * first.horizon * cap**2) / Fraction(1, 2)}  # σ² = 2Hc²/ρ


def test_empty_slots_keep_the_total_public() -> None:
    """A unit with one trajectory and one with three are neighbours: both fill three slots."""
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0)

    def log(owned: int) -> Trajectories:
        x = np.zeros((1 + owned, 1, 1))
        unit = [0] + [1] * owned
        return Trajectories(states=x, actions=x + 5, next_states=x + 2, unit=unit, max_per_unit=3)

    one, three = (
        release_outcomes(log(owned), problem, level_sizes=every_level(4), rho=budget(1.0), noise=Recorder())
        for owned in (1, 3)
    )
    assert one.total == three.total == 6
    assert one.unobserved is not None
    assert three.unobserved is not None
    assert one.unobserved.item() == 4
    assert three.unobserved.item() == 2


@pytest.fixture
def problem() -> LostSales:
    return LostSales(horizon=5, holding=0.2, shortage=0.3, demand_max=100.0)


@pytest.fixture
def log(problem: LostSales) -> Trajectories:
    rng = np.random.default_rng(0)
    return problem.simulate_log(rng.uniform(0, 100, (200, 5, 1)), rng=rng)


@pytest.mark.parametrize(
    ("rho", "noise", "why"),
    [(1.0, SeededNoise(1), "seeded noise"), (math.inf, None, "rho = inf"), (math.inf, SeededNoise(1), "rho = inf")],
)
def test_what_is_not_private_says_so(
    problem: LostSales, log: Trajectories, rho: float, noise: SeededNoise | None, why: str
) -> None:
    policy = Pool(rho).fit(problem, log, noise=noise)
    assert not policy.guarantee.private
    assert policy.guarantee.epsilon() == math.inf
    assert str(policy.guarantee).startswith("NOT PRIVATE")
    assert why in str(policy.guarantee)
    assert "NOT PRIVATE" in repr(policy)
    facts = policy.guarantee.to_dict()
    assert facts["private"] is False
    assert "NOT PRIVATE" in facts["notice"]


class Boastful(SecureNoise):
    """Something that looks like the secure sampler and adds what it likes."""

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        return counts


class Chameleon(type):
    """A class that equals every other."""

    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return hash(SecureNoise)


class Equal(Boastful, metaclass=Chameleon):
    """As boastful, and equal to the secure one."""


def test_only_the_secure_sampler_counts_as_secure(problem: LostSales, log: Trajectories) -> None:
    for noise in (Boastful(), Equal(), Recorder()):
        assert not Pool(1.0).fit(problem, log, noise=noise).guarantee.private
    with pytest.raises(AttributeError):
        SecureNoise().begin = lambda: Recorder()  # type: ignore[method-assign]


def test_a_plain_number_buys_the_noise_it_says(problem: LostSales, log: Trajectories) -> None:
    trees = release_outcomes(log, problem, level_sizes=every_level(16), rho=0.5, noise=SeededNoise(0))
    visits = release_visits(log, problem, Grid(3).partition(problem), rho=1, noise=SeededNoise(0))
    assert trees.guarantee.rho == 0.5
    assert visits.guarantee.rho == 1
    with pytest.raises(ValueError, match="bins must be a power of two, got 6"):
        release_outcomes(log, problem, level_sizes=every_level(6), rho=0.5, noise=SeededNoise(0))


@pytest.mark.parametrize("pool", [Pool(1.0), Pool.published(1.0, zones=4), Pool(1.0, Visits(), Grid(3))])
@pytest.mark.parametrize("kind", [LostSales, Backlog])
@pytest.mark.parametrize("cap", [1, 3])
def test_with_the_released_tables_frozen_nothing_depends_on_the_log(
    pool: Pool, kind: type, cap: int, tmp_path: Path
) -> None:
    """Non-interference: the policy's file is the same to the byte, whatever the log holds and whatever units own."""
    problem = kind(horizon=2, products=1, holding=0.2, shortage=0.3, demand_max=10.0)
    files = []
    for seed, owned in ((1, [1, 1, 1]), (2, [3, 1, 2])):
        rng = np.random.default_rng(seed)
        log = problem.simulate_log(rng.uniform(0, 10, (sum(owned), 2, 1)), rng=rng)
        unit = np.repeat(np.arange(3), owned)
        parts = {"states": log.states, "actions": log.actions, "next_states": log.next_states}
        pool.fit(problem, Trajectories(**parts, unit=unit, max_per_unit=cap), noise=Frozen()).save(tmp_path / "p.npz")
        files.append((tmp_path / "p.npz").read_bytes())
    assert files[0] == files[1]
