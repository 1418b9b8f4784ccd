"""The door: which tables get noise, in which order, what is told, and that it takes no counts but our own."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import Backlog, Grid, LostSales, Outcomes, Pool, SeededNoise, Table, Trajectories, Visits, Zones
from poolrl.checks import IntArray
from poolrl.data.counts import count_joint, count_outcomes
from poolrl.geometry.resolution import JOINT_BANDS
from poolrl.privacy import release
from poolrl.privacy.guarantee import Mechanism
from poolrl.privacy.noise.secure import OpenDPNoise, SecureNoise
from poolrl.privacy.noise.source import NoiseSource
from poolrl.privacy.release import admit, release_levels, release_outcomes, release_rows, release_visits
from poolrl.privacy.sensitivity import LATTICE
from poolrl.privacy.zcdp import budget
from tests.helpers.broken_problems import FACTS, LEVELS, Untouched, a_log
from tests.helpers.neighbours import Recorder, neighbours, squared_change
from tests.helpers.own_problems import Wear, wear_log
from tests.helpers.tables import a_shop, columns, every_level

# Ranges that neither start at 0 nor have length 1, one for each coordinate.
LOW, HIGH = np.array([-3.0, 2.0]), np.array([5.0, 4.0])


class Uneven(Wear):
    """Two states, one action, and bounds that differ in every coordinate."""

    def __init__(self) -> None:
        super().__init__(2)
        self.state_low, self.state_high, self.initial_state = LOW, HIGH, LOW
        self.action_low, self.action_high = np.array([1.0]), np.array([6.0])
        self.boundary = type(self.boundary)(np.ones((2, 3)))


def uneven_log(rows: int = 20) -> Trajectories:
    rng = np.random.default_rng(4)
    shape = (rows, 2)
    return Trajectories(
        states=rng.uniform(LOW, HIGH, (*shape, 2)),
        actions=rng.uniform(1.0, 6.0, (*shape, 1)),
        next_states=rng.uniform(LOW, HIGH, (*shape, 2)),
    )


def test_every_number_of_a_log_goes_to_its_own_lattice() -> None:
    problem, log, noise = Uneven(), uneven_log(), Recorder()
    found = release_rows(log, problem, rho=Fraction(1, 2), noise=noise)
    (table,) = noise.tables
    assert (table.dtype, table.shape) == (np.int64, (20, 2, 3))
    for row in range(20):
        for step in range(2):
            expected = [round((log.actions[row, step, 0] - 1.0) / 5.0 * LATTICE)]
            expected += [round((log.next_states[row, step, i] - LOW[i]) / (HIGH[i] - LOW[i]) * LATTICE) for i in (0, 1)]
            assert table[row, step].tolist() == expected
    # Half a step of the lattice is all that rounding can move.
    np.testing.assert_array_less(np.abs(found.actions - log.actions), 5.0 / LATTICE)
    np.testing.assert_array_less(np.abs(found.next_states - log.next_states) / (HIGH - LOW), 1 / LATTICE)
    # One trajectory: 2 steps of 3 numbers, each over the whole lattice; σ² = Δ₂² / 2ρ.
    assert noise.variances == [Fraction(6 * LATTICE**2)]
    assert found.guarantee.mechanisms[0].cells == 120


def test_a_value_outside_its_range_moves_no_further_than_the_range() -> None:
    values = np.array([[-1e9, 1e9], [-3.0, 4.0], [np.nextafter(-3.0, -9), np.nextafter(4.0, 9)], [1.0, 3.0]])
    expected = [[0, LATTICE], [0, LATTICE], [0, LATTICE], [LATTICE // 2, LATTICE // 2]]
    noise = Recorder()
    release._on_lattice(values, LOW, HIGH, Mechanism("numbers", 8, Fraction(1), Fraction(1)), noise)
    assert noise.tables[0].tolist() == expected
    with pytest.raises(ValueError, match="2 numbers are paid for, got 1"):
        release._on_lattice(values[:, :1], LOW, HIGH, Mechanism("numbers", 8, Fraction(1), Fraction(1)), noise)


def test_a_decision_table_goes_to_the_lattice_of_actions() -> None:
    problem, log, noise = Uneven(), uneven_log(), Recorder()
    levels = np.array([[1.0], [3.5]])
    found = release_levels(levels, log, problem, rho=Fraction(1, 4), noise=noise)
    assert noise.tables[0].tolist() == [[0], [LATTICE // 2]]
    assert found.levels.tolist() == levels.tolist()
    assert noise.variances == [2 * Fraction(2 * LATTICE**2)]
    assert found.guarantee.rho == Fraction(1, 4)
    for wrong in (np.zeros((2, 2)), np.zeros((1, 1)), np.zeros(2)):
        with pytest.raises(ValueError, match=r"levels must have shape \(2, 1\)"):
            release_levels(wrong, log, problem, rho=Fraction(1), noise=noise)


def test_every_release_asks_what_fits() -> None:
    """Perturbed rows have neither units nor a scale, visits have no scale, and no amount is beyond its bound."""
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0)
    x, noise, rho = np.zeros((4, 1, 1)), Recorder(), Fraction(1)
    parts: dict[str, Any] = {"states": x, "actions": x + 2, "next_states": x + 1}
    scaled, wide = Trajectories(**parts, scale=x + 1), Trajectories(**parts | {"actions": x + 9})
    owned = Trajectories(**parts, unit=[0, 0, 1, 1], max_per_unit=2)
    partition, beyond = Grid(2).partition(problem), "must lie within the public bounds"
    no_place = "labels and a scale need outcome counts"
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: release_rows(owned, problem, rho=rho, noise=noise), "protects single trajectories"),
        (lambda: release_rows(scaled, problem, rho=rho, noise=noise), no_place),
        (lambda: release_levels(np.ones((1, 1)), scaled, problem, rho=rho, noise=noise), no_place),
        (lambda: release_visits(scaled, problem, partition, rho=rho, noise=noise), no_place),
        (lambda: release_rows(wide, problem, rho=rho, noise=noise), beyond),
        (lambda: release_visits(wide, problem, partition, rho=rho, noise=noise), beyond),
        (lambda: release_outcomes(wide, problem, level_sizes=(1, 2), rho=rho, noise=noise), beyond),
        (lambda: admit(noise), "got Recorder"),
    ]
    for act, words in refused:
        with pytest.raises(ValueError, match=words):
            act()
    assert noise.tables == []


@pytest.mark.parametrize("kind", [LostSales, Backlog])
@pytest.mark.parametrize("source", ["arrays", "engine"])
def test_trees_get_noise_level_by_level_and_the_rest_is_public(kind: type, source: str) -> None:
    problem, log = a_shop(kind, gridded=False, trajectories=40)
    given = log if source == "arrays" else Table(log.to_arrow(), **columns(2))
    noise, sizes, joined = Recorder(), (1, 4, 8), kind is LostSales
    asked = {"dependence": Fraction(1, 4)} if joined else {}
    found = release_outcomes(given, problem, level_sizes=sizes, rho=Fraction(1), noise=noise, on_top=asked)
    exact = count_outcomes(log, problem, level_sizes=sizes)
    for mine, theirs in zip(found.levels, exact.levels, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    # Demand that waits is seen entirely: with every row there, the root is the public number of slots.
    complete = kind is Backlog and source == "arrays"
    tables = [*exact.levels[complete:], *([] if complete else [exact.unobserved])]
    trees, *joint = found.guarantee.mechanisms
    variances = [trees.variance] * len(tables)
    if joined:
        tables.append(count_joint(log, problem, bands=JOINT_BANDS))
        variances.append(joint[0].variance)
        assert "dependence" in found.on_top
        assert found.on_top["dependence"].variance == float(variances[-1])
        np.testing.assert_array_equal(found.on_top["dependence"].counts, tables[-1])
    else:
        assert (found.on_top, joint) == ({}, [])
    assert found.guarantee.rho == (1.25 if joined else 1)
    assert noise.variances == variances
    assert found.variance == float(trees.variance)
    for mine, theirs in zip(noise.tables, tables, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (found.total, found.totals, found.step_labels) == (40, None, ())
    assert (found.unobserved is None) == complete
    if complete:
        assert set(found.levels[0].ravel().tolist()) == {40}
    else:
        np.testing.assert_array_equal(found.unobserved, exact.unobserved)


def test_what_a_guarantee_says_of_its_log() -> None:
    x, stores = np.zeros((4, 1, 1)), {"store": [1, 2, 1, 2]}
    parts: dict[str, Any] = {"states": x, "actions": x + 2, "next_states": x}
    some: list[tuple[dict[str, Any], str]] = [
        ({}, "none"),
        ({"scale": x + 1, "scale_memory": 3}, "none"),
        ({"labels": stores, "scale": x + 1, "scale_memory": 3, "labels_public": True}, "public"),
        ({"labels": stores, "unit": [0, 0, 1, 2], "max_per_unit": 2, "scale": x + 1}, "protected"),
    ]
    for known, labels in some:
        noise, log = Recorder(), Trajectories(**parts, **known)
        declared = {"store": [1, 2]} if "labels" in known else {}
        problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0, labels=declared)
        found = release_outcomes(log, problem, level_sizes=(1, 2), rho=Fraction(1), noise=noise).guarantee
        assert found.labels == labels
        assert (found.unit, found.trajectories_per_unit) == (("unit", 2) if "unit" in known else ("trajectory", 1))
        assert (found.scaled, found.scale_memory) == ("scale" in known, known.get("scale_memory", 0))
        assert found.mechanisms[0].cells == sum(table.size for table in noise.tables)
        assert (found.private, found.steps) == (False, 1)
    for sampler, private in ((SecureNoise(), True), (OpenDPNoise(), True), (SeededNoise(1), False)):
        found = release_outcomes(log, problem, level_sizes=(1, 2), rho=Fraction(1), noise=sampler).guarantee
        assert found.private is private


class OwnCounts(Trajectories):
    def outcome_leaves(self, problem: Any, **more: Any) -> IntArray:
        return super().outcome_leaves(problem, **more) * 1_000


class SaysItIsOne:
    """Everything that the door asks for, and a lie about its class."""

    def __init__(self, log: Trajectories) -> None:
        self._log = log

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return Trajectories

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def releases(problem: LostSales) -> list[Callable[[Any, NoiseSource], Any]]:
    partition = Pool(1.0, Visits()).prepare(problem).where  # type: ignore[attr-defined]
    return [
        lambda log, noise: release_outcomes(log, problem, level_sizes=LEVELS, rho=1.0, noise=noise),
        lambda log, noise: release_visits(log, problem, partition, rho=1.0, noise=noise),
        lambda log, noise: release_rows(log, problem, rho=1.0, noise=noise),
        lambda log, noise: release_levels(np.zeros((2, 2)), log, problem, rho=1.0, noise=noise),
        lambda log, noise: Pool(1.0).fit(problem, log, noise=noise),
        lambda log, noise: Pool(1.0, Outcomes()).fit(problem, log, noise=noise),
    ]


class NeverAsked:
    """Noise that must not be drawn."""

    def begin(self) -> Any:
        raise AssertionError("something was counted")


def test_the_door_takes_no_counts_but_our_own() -> None:
    problem, log = LostSales(**FACTS), a_log(rows=20)
    parts = {name: getattr(log, name) for name in ("states", "actions", "next_states")}

    class OwnTable(Table):
        pass

    others = [OwnCounts(**parts), OwnTable(log.to_arrow(), **columns(2)), SaysItIsOne(log), parts, None]
    for made in releases(problem):
        for other in others:
            with pytest.raises(ValueError, match="a log must be a Trajectories or a Table, and no subclass"):
                made(other, NeverAsked())
    Pool(1.0).fit(problem, log, noise=SeededNoise(0))


def test_visits_of_a_formula_that_looks_at_the_batch_are_refused() -> None:
    class Relative(Wear):
        def unit_pair(self, state: Any, action: Any) -> Any:
            return np.concatenate([state, action], axis=-1) / np.maximum(action.max(), 1.0)

    with pytest.raises(ValueError, match=r"unit_pair\(\) of Relative must treat each row by itself"):
        Pool(1.0).fit(Relative(2), Untouched.log())
    partition = Pool(1.0, Visits()).prepare(Wear(2)).where  # type: ignore[attr-defined]
    partition = type(partition)(Relative(2), partition.pairs, partition.states)
    with pytest.raises(ValueError, match="formulas of Relative must treat each row by itself"):
        release_visits(wear_log(Wear(2), 5), Relative(2), partition, rho=1.0, noise=NeverAsked())


@settings(max_examples=40, deadline=None)
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


def test_only_the_secure_sampler_counts_as_secure() -> None:
    problem, log = a_shop(LostSales, gridded=False, trajectories=40)
    for noise in (Boastful(), Equal(), Recorder()):
        assert not Pool(1.0).fit(problem, log, noise=noise).guarantee.private
    with pytest.raises(AttributeError):
        SecureNoise().begin = lambda: Recorder()  # type: ignore[method-assign]
