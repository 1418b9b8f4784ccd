"""What release pays for: sensitivity in integers, for any two neighbouring logs, and the guarantee's words."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import Backlog, Grid, Guarantee, LostSales, Outcomes, Pool, SeededNoise, Trajectories, Visits, Zones
from poolrl.audit.faults import Frozen
from poolrl.checks import IntArray
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.release import release_outcomes, release_visits
from poolrl.privacy.sensitivity import every_level
from poolrl.privacy.zcdp import budget
from tests.helpers.neighbours import Recorder, neighbours, squared_change


@settings(max_examples=120, deadline=None)
@given(neighbours(), st.sampled_from([2, 16, 64]))
def test_outcome_trees_never_change_by_more_than_was_paid_for(pair: tuple, bins: int) -> None:
    problem, first, second = pair
    recorders = Recorder(), Recorder()
    for log, recorder in zip((first, second), recorders, strict=True):
        released = release_outcomes(log, problem, level_sizes=every_level(bins), rho=budget(0.5), noise=recorder)
    (mechanism,) = released.guarantee.mechanisms
    assert sum(squared_change(*recorders)) <= mechanism.sensitivity_squared
    assert set(recorders[0].variances) == {mechanism.sensitivity_squared / (2 * Fraction(1, 2))}
    assert mechanism.cells == sum(table.size for table in recorders[0].tables)
    # What is published without noise must be the same for both: the total, and a public root.
    assert first.slots == second.slots


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


def test_the_sensitivity_is_attained() -> None:
    """Not a loose bound: a unit that moves from one end of the trees to the other pays for all of it."""
    problem = LostSales(horizon=2, products=2, holding=1, shortage=1, demand_max=8.0)
    shape = (3, 2, 2)
    full, zeros = np.full(shape, 8.0), np.zeros(shape)
    units = [0, 0, 0]
    low = Trajectories(states=zeros, actions=full, next_states=full, unit=units, max_per_unit=3)  # sold nothing
    high = Trajectories(states=zeros, actions=full, next_states=zeros, unit=units, max_per_unit=3)  # ran out
    recorders = Recorder(), Recorder()
    for log, recorder in zip((low, high), recorders, strict=True):
        released = release_outcomes(log, problem, level_sizes=every_level(8), rho=budget(1.0), noise=recorder)
    # H k L c² · 2 with L = 4 levels (kinds, 2, 4, 8 bins)
    assert sum(squared_change(*recorders)) == released.guarantee.mechanisms[0].sensitivity_squared == 2 * 2 * 2 * 4 * 9


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


def test_the_guarantee_speaks_in_three_lines(problem: LostSales, log: Trajectories) -> None:
    guarantee = Pool(rho=0.5).fit(problem, log).guarantee
    assert guarantee.private
    assert guarantee.rho == 0.5
    assert guarantee.epsilon(delta=1e-6) == pytest.approx(5.2, abs=0.1)
    first, second, third = str(guarantee).splitlines()
    assert first.startswith("Private: rho = 0.5 (zCDP), that is epsilon = 5.2")
    assert "one trajectory: all its 5 steps" in second
    assert "replace one" in second
    assert "secure" in third
    assert "outcome trees" in third


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


def test_a_guarantee_survives_json_exactly(problem: LostSales, log: Trajectories) -> None:
    for pool in (Pool(0.3), Pool.published(1 / 3, zones=5), Pool(math.inf)):
        guarantee = pool.fit(problem, log).guarantee
        assert Guarantee.from_dict(json.loads(json.dumps(guarantee.to_dict()))) == guarantee


def test_units_are_named_in_the_guarantee(problem: LostSales, log: Trajectories) -> None:
    owned = Trajectories(
        states=log.states, actions=log.actions, next_states=log.next_states, unit=np.arange(200) // 4, max_per_unit=2
    )
    assert len(owned) == 100
    guarantee = Pool(rho=1.0).fit(problem, owned).guarantee
    assert "one unit: up to 2 trajectories of 5 steps" in str(guarantee)
    assert guarantee.rho == 1.0
    # 2 H k L c², with as many levels as 100 slots at c = 2 and 200 at c = 1 can fill.
    few, many = (len(Outcomes().level_sizes(problem, rho=1.0, slots=n, per_unit=c)) for n, c in ((100, 2), (200, 1)))
    assert guarantee.mechanisms[0].sensitivity_squared == 2 * 5 * 1 * few * 2**2
    assert Pool(rho=1.0).fit(problem, log).guarantee.mechanisms[0].sensitivity_squared == 2 * 5 * 1 * many


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


@pytest.mark.parametrize(
    ("entry", "value"),
    [("variance", "-1"), ("variance", "1e999999999"), ("variance", "1/0"), ("sensitivity_squared", "0"), ("cells", 0)],
)
def test_an_impossible_mechanism_is_refused(problem: LostSales, log: Trajectories, entry: str, value: object) -> None:
    facts = Pool(1.0).fit(problem, log).guarantee.to_dict()
    facts["mechanisms"][0][entry] = value
    with pytest.raises(ValueError, match=r"a mechanism has|not a number written"):
        Guarantee.from_dict(facts)


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


def test_a_table_that_nobody_knows_is_refused() -> None:
    """It would be neither paid for nor counted."""
    problem = LostSales(horizon=1, products=1, holding=1.0, shortage=1.0, demand_max=8.0)
    log = problem.simulate_log(np.full((3, 1, 1), 2.0), rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"^there is no table 'left'; known tables: dependence, left_over, together$"):
        release_outcomes(log, problem, level_sizes=(2,), rho=1.0, noise=Recorder(), on_top={"left": 0.1})
    assert not log.owner.flags.writeable
