"""The joint table of levels and outcomes: which rows stand where, and how far one unit moves it."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import LostSales, SeededNoise, Trajectories
from poolrl.checks import IntArray
from poolrl.data.cells import joint_cells
from poolrl.data.counts import count_joint
from poolrl.geometry.bins import bin_of
from poolrl.geometry.resolution import JOINT_BANDS
from poolrl.privacy import release, sensitivity
from poolrl.privacy.noise import secure
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.release import release_outcomes
from tests.helpers.managers import SHOP, managers
from tests.helpers.neighbours import (
    Pair,
    Recorder,
    labelled_neighbours,
    neighbours,
    scaled_neighbours,
    squared_change,
)
from tests.helpers.tables import a_labelled_shop, a_shop

Plant = pytest.MonkeyPatch


def test_rows_stand_in_the_cell_of_their_level_and_outcome() -> None:
    """Against a count row by row: two products, a boundary, numbers on the edges of bands."""
    problem, log = a_shop(LostSales, gridded=True)
    expected = np.zeros((3, 2, JOINT_BANDS, 2, JOINT_BANDS), dtype=np.int64)
    for row, step, product in itertools.product(range(len(log)), range(3), range(2)):
        level, left = log.actions[row, step, product], log.next_states[row, step, product]
        bound, limit = problem.demand_max[product], problem.share[step, product] * problem.demand_max[product]
        if max(level, log.states[row, step, product]) <= limit * (1 + 1e-9):
            bands = [int(bin_of(np.array(amount / bound), JOINT_BANDS)) for amount in (level, level - left)]
            expected[step, product, bands[0], int(left <= 1e-9 * bound), bands[1]] += 1
    np.testing.assert_array_equal(count_joint(log, problem, bands=JOINT_BANDS), expected)


def test_every_row_of_the_trees_stands_in_the_table_too() -> None:
    """With a scale, labels and unusable rows: in each label cell, step and product as many as the trees have."""
    problem, log = a_labelled_shop()
    joint = log.outcome_leaves(problem, bins=JOINT_BANDS, formula=joint_cells)
    np.testing.assert_array_equal(joint.sum(axis=-1), log.outcome_leaves(problem, bins=16).sum(axis=-1))
    kinds = joint.reshape(*joint.shape[:-1], JOINT_BANDS, 2, JOINT_BANDS).sum(axis=(-3, -1))
    trees = log.outcome_leaves(problem, bins=16).reshape(*joint.shape[:-1], 2, 16).sum(axis=-1)
    np.testing.assert_array_equal(kinds, trees)


def paid_for(problem: Any, first: Trajectories, second: Trajectories) -> None:
    """No table of two neighbours differs by more than its mechanism pays for, and all that is released is paid for."""
    recorders = Recorder(), Recorder()
    budgets: Any = {"rho": Fraction(1, 2), "on_top": {"dependence": Fraction(1, 10)}}
    for log, recorder in zip((first, second), recorders, strict=True):
        released = release_outcomes(log, problem, level_sizes=(2, 4), noise=recorder, **budgets)
    trees, joint = released.guarantee.mechanisms
    assert (trees.rho, joint.rho) == (Fraction(1, 2), Fraction(1, 10))
    assert joint.cells == recorders[0].tables[-1].size
    assert recorders[0].variances[-1] == joint.variance == joint.sensitivity_squared / (2 * joint.rho)
    *of_trees, of_joint = squared_change(*recorders)
    assert sum(of_trees) <= trees.sensitivity_squared
    assert of_joint <= joint.sensitivity_squared


def censored(pair: Pair) -> bool:
    return pair[0].censored


KINDS = [neighbours(), scaled_neighbours(), scaled_neighbours(labels_public=False)]
KINDS += [labelled_neighbours(labels_public=public) for public in (False, True)]


@settings(max_examples=150, deadline=None)
@given(st.one_of(KINDS).filter(censored))
def test_the_table_never_changes_by_more_than_was_paid_for(pair: Pair) -> None:
    problem, first, second = pair
    paid_for(problem, first, second)
    moved = first.facts.max_per_unit if first.facts.has_units else 1 + first.facts.scale_memory
    layout = sensitivity.joint_table(problem, bands=JOINT_BANDS, per_unit=moved)
    assert layout.sensitivity_squared == 2 * problem.horizon * problem.products * moved**2


def ends(*, memory: int = 0) -> tuple[LostSales, Trajectories, Trajectories]:
    """All that a trajectory and those that follow its scale can move: from the lowest level to the highest."""
    problem = LostSales(horizon=2, products=2, holding=1.0, shortage=1.0, demand_max=8.0)
    shape = (1 + memory, 2, 2)
    zeros, ones = np.zeros(shape), np.ones(shape)
    more = {"scale_memory": memory} if memory else {}
    low, high = (
        Trajectories(
            states=zeros, actions=level * ones, next_states=zeros, **({"scale": ones, **more} if memory else {})
        )
        for level in (1.0, 8.0)
    )
    return problem, low, high


@pytest.mark.parametrize("memory", [0, 3])
def test_the_sensitivity_of_the_table_is_attained(memory: int) -> None:
    problem, low, high = ends(memory=memory)
    paid_for(problem, low, high)
    recorders = Recorder(), Recorder()
    for log, recorder in zip((low, high), recorders, strict=True):
        release_outcomes(log, problem, level_sizes=(2,), rho=1.0, noise=recorder, on_top={"dependence": 1.0})
    assert squared_change(*recorders)[-1] == 2 * 2 * 2 * (1 + memory) ** 2


def test_a_memory_that_the_table_does_not_pay_for(monkeypatch: Plant) -> None:
    monkeypatch.setattr(sensitivity, "moved_trajectories", lambda *, per_unit, **_: per_unit)
    with pytest.raises(AssertionError):
        paid_for(*ends(memory=3))


def noise_of_the_table(rho: float) -> float:
    """The variance of what was added to the table, divided by what the guarantee states."""
    log, problem = managers().log(slice(0, 5)), SHOP
    released = release_outcomes(
        log, problem, level_sizes=(2,), rho=1.0, noise=SecureNoise(), on_top={"dependence": rho}
    )
    joint = released.on_top["dependence"]
    assert joint.variance == float(released.guarantee.mechanisms[1].variance)
    return float(np.square(joint.counts - count_joint(log, problem, bands=JOINT_BANDS)).mean()) / joint.variance


def test_the_table_has_the_noise_that_is_stated() -> None:
    # 896 cells: the mean square of as many normal numbers has a standard error of √(2/896) = 0.047.
    assert noise_of_the_table(0.05) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("share", [0, Fraction(1, 2)], ids=["none", "half"])
def test_a_table_with_too_little_noise_is_caught(monkeypatch: Plant, share: Fraction) -> None:
    honest = secure._SecureSampler.add

    def add(self: Any, counts: IntArray, variance: Fraction) -> IntArray:
        return honest(self, counts, variance * share if counts.shape[-3:] == (8, 2, 8) else variance)

    monkeypatch.setattr(secure._SecureSampler, "add", add)
    with pytest.raises(AssertionError):
        test_the_table_has_the_noise_that_is_stated()


def test_a_table_that_is_not_stated_is_caught(monkeypatch: Plant) -> None:
    """Released and not paid for: the guarantee names the trees alone."""
    honest = release._guarantee
    monkeypatch.setattr(release, "_guarantee", lambda *args: honest(*args[:4]))
    with pytest.raises(ValueError, match="not enough values to unpack"):
        paid_for(*ends())


def test_the_tables_of_a_dry_run_have_different_noise() -> None:
    log = managers().log(slice(0, 5))
    released = release_outcomes(log, SHOP, level_sizes=(64,), rho=1.0, noise=SeededNoise(7), on_top={"dependence": 1.0})
    first = released.levels[0] - log.outcome_leaves(SHOP, bins=64).reshape(released.levels[0].shape)
    second = released.on_top["dependence"].counts - count_joint(log, SHOP, bands=JOINT_BANDS)
    assert not np.array_equal(np.sign(first.ravel()[:500]), np.sign(second.ravel()[:500]))
