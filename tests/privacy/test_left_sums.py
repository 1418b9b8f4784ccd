"""Sums of what was left: which rows add what, how far one unit moves them, and what is paid."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import LostSales, Pool, SeededNoise, Table, Trajectories
from poolrl.checks import IntArray
from poolrl.data.cells import left_cells
from poolrl.data.counts import sum_left
from poolrl.geometry.resolution import LEFT_PARTS
from poolrl.privacy import sensitivity
from poolrl.privacy.noise import secure
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.release import release_outcomes
from poolrl.workflow.config.configuration import Config
from poolrl.workflow.paying import ON_TOP_SHARE, require_payable, shares_on_top
from tests.helpers.neighbours import (
    Pair,
    Recorder,
    labelled_neighbours,
    neighbours,
    plant_layout,
    scaled_neighbours,
    squared_change,
)
from tests.helpers.own_problems import Wear
from tests.helpers.shops import small_shop
from tests.helpers.tables import a_labelled_shop, a_shop, columns

Plant = pytest.MonkeyPatch


def test_each_row_adds_what_it_has_left() -> None:
    """Against a sum row by row: two products, and rows beyond a boundary that add nothing."""
    problem, log = a_shop(LostSales, gridded=True)
    expected = np.zeros((3, 2), dtype=np.int64)
    for row, step, product in itertools.product(range(len(log)), range(3), range(2)):
        bound, limit = problem.demand_max[product], problem.share[step, product] * problem.demand_max[product]
        if max(log.actions[row, step, product], log.states[row, step, product]) <= limit * (1 + 1e-9):
            expected[step, product] += math.floor(log.next_states[row, step, product] / bound * LEFT_PARTS + 0.5)
    np.testing.assert_array_equal(sum_left(log, problem), expected)


def test_an_engine_sums_like_arrays() -> None:
    problem, log = a_shop(LostSales, gridded=True)
    table = Table(ibis.memtable(log.to_arrow()), **columns(2))
    np.testing.assert_array_equal(sum_left(table, problem), sum_left(log, problem))
    labelled, many = a_labelled_shop()
    names = columns(2, scale=["scale_0", "scale_1"], labels=["store", "promo"])
    by_engine = Table(ibis.memtable(many.to_arrow()), **names)
    np.testing.assert_array_equal(sum_left(by_engine, labelled), sum_left(many, labelled))


def test_every_row_of_the_trees_is_in_the_sums_too() -> None:
    """With a scale, labels and unusable rows."""
    problem, log = a_labelled_shop()
    parts = log.outcome_leaves(problem, bins=LEFT_PARTS + 1, formula=left_cells)
    np.testing.assert_array_equal(parts.sum(axis=-1), log.outcome_leaves(problem, bins=16).sum(axis=-1))


def paid_for(problem: Any, first: Trajectories, second: Trajectories) -> None:
    """The sums of two neighbours differ by no more than their mechanism pays for."""
    recorders = Recorder(), Recorder()
    budgets: Any = {"rho": Fraction(1, 2), "on_top": {"left_over": Fraction(1, 10)}}
    for log, recorder in zip((first, second), recorders, strict=True):
        released = release_outcomes(log, problem, level_sizes=(2, 4), noise=recorder, **budgets)
    trees, sums = released.guarantee.mechanisms
    assert (trees.rho, sums.rho) == (Fraction(1, 2), Fraction(1, 10))
    assert sums.cells == recorders[0].tables[-1].size
    assert recorders[0].variances[-1] == sums.variance == sums.sensitivity_squared / (2 * sums.rho)
    assert squared_change(*recorders)[-1] <= sums.sensitivity_squared


KINDS = [neighbours(), scaled_neighbours(), scaled_neighbours(labels_public=False)]
KINDS += [labelled_neighbours(labels_public=public) for public in (False, True)]


@settings(max_examples=150, deadline=None)
@given(st.one_of(KINDS))
def test_sums_never_change_by_more_than_was_paid_for(pair: Pair) -> None:
    paid_for(*pair)


def moves(*, labels: bool, memory: int = 0) -> tuple[LostSales, Trajectories, Trajectories]:
    """All that a trajectory can move: everything was left, and then nothing; or the same under another label."""
    stated = {"labels": {"store": ["a", "b"]}} if labels else {}
    problem = LostSales(horizon=2, products=2, holding=1.0, shortage=1.0, demand_max=8.0, **stated)
    shape = (1 + memory, 2, 2)
    zeros, full = np.zeros(shape), np.full(shape, 8.0)
    more: dict[str, Any] = {"scale": np.ones(shape), "scale_memory": memory} if memory else {}
    logs = []
    for store, left in (("a", full), ("b", full) if labels else ("b", zeros)):
        named = {"labels": {"store": np.full(1 + memory, store)}} if labels else {}
        logs.append(Trajectories(states=zeros, actions=full, next_states=left, **named, **more))
    return problem, logs[0], logs[1]


@pytest.mark.parametrize(("labels", "memory"), [(False, 0), (True, 0), (False, 3)])
def test_the_sensitivity_is_attained(labels: bool, memory: int) -> None:
    problem, first, second = moves(labels=labels, memory=memory)
    recorders = Recorder(), Recorder()
    for log, recorder in zip((first, second), recorders, strict=True):
        release_outcomes(log, problem, level_sizes=(2,), rho=1.0, noise=recorder, on_top={"left_over": 1.0})
    layout = sensitivity.left_sums(problem, per_unit=1 + memory)
    assert squared_change(*recorders)[-1] == layout.sensitivity_squared
    assert layout.sensitivity_squared == (2 if labels else 1) * 4 * (1 + memory) ** 2 * LEFT_PARTS**2


def test_a_label_that_moves_and_is_paid_for_once_is_caught(monkeypatch: Plant) -> None:
    honest = sensitivity.left_sums

    def one_side(problem: Any, *, per_unit: int) -> sensitivity.TableLayout:
        layout = honest(problem, per_unit=per_unit)
        return sensitivity.TableLayout(layout.name, layout.cells, layout.sensitivity_squared / 2)

    plant_layout(monkeypatch, "left_over", one_side)
    with pytest.raises(AssertionError):
        paid_for(*moves(labels=True))


def test_a_memory_that_is_not_paid_for_is_caught(monkeypatch: Plant) -> None:
    monkeypatch.setattr(sensitivity, "moved_trajectories", lambda *, per_unit, **_: per_unit)
    with pytest.raises(AssertionError):
        paid_for(*moves(labels=False, memory=3))


def noise_of_sums() -> float:
    """The mean square of what was added, divided by what the guarantee states."""
    problem = LostSales(horizon=20, products=20, holding=1.0, shortage=1.0, demand_max=8.0)
    log = problem.simulate_log(np.full((3, 20, 20), 2.0), rng=np.random.default_rng(0))
    released = release_outcomes(log, problem, level_sizes=(2,), rho=1.0, noise=SecureNoise(), on_top={"left_over": 1.0})
    left = released.on_top["left_over"]
    assert left.variance == float(released.guarantee.mechanisms[1].variance)
    return float(np.square(left.counts - sum_left(log, problem)).mean()) / left.variance


def test_sums_have_the_noise_that_is_stated() -> None:
    # 400 sums: the mean square of as many normal numbers has a standard error of √(2/400) = 0.07.
    assert noise_of_sums() == pytest.approx(1.0, abs=0.35)


def test_sums_with_too_little_noise_are_caught(monkeypatch: Plant) -> None:
    honest = secure._SecureSampler.add

    def add(self: Any, counts: IntArray, variance: Fraction) -> IntArray:
        return honest(self, counts, variance / 2 if counts.shape == (20, 20) else variance)

    monkeypatch.setattr(secure._SecureSampler, "add", add)
    with pytest.raises(AssertionError):
        test_sums_have_the_noise_that_is_stated()


@pytest.mark.parametrize(("dependence", "left_over"), [(0.0, 0.1), (0.25, 0.1)])
def test_shares_add_up_to_rho(dependence: float, left_over: float) -> None:
    problem, log = a_shop(LostSales, gridded=True, trajectories=30)
    policy = Pool(0.3, dependence=dependence, left_over=left_over).fit(problem, log, noise=SeededNoise(0))
    paid = [each.rho for each in policy.guarantee.mechanisms]
    assert sum(paid) == Fraction(3, 10)
    assert paid[-1] == Fraction(3, 100)


def test_shares_that_leave_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="must leave a part of rho"):
        Pool(1.0, dependence=0.5, left_over=0.5)


def test_what_was_left_is_estimated_without_bias() -> None:
    """Without noise it is the mean of the log, up to half a part of the bound."""
    problem, log = a_shop(LostSales, gridded=False)
    outcomes = Pool(math.inf, left_over=0.1).fit(problem.without_boundary(), log).outcomes
    assert outcomes is not None
    assert outcomes.left is not None
    np.testing.assert_allclose(
        outcomes.left[0], log.next_states.mean(axis=0), atol=problem.demand_max.max() / LEFT_PARTS / 4
    )
    np.testing.assert_array_equal(outcomes.left[1], 0.0)


def test_a_fit_asks_for_sums_where_they_help_and_can_be_drawn(tmp_path: Path) -> None:
    facts = small_shop(tmp_path, units=2)
    assert shares_on_top(Config.model_validate(facts), 0.1)["left_over"] == ON_TOP_SHARE
    backlog = facts | {"problem": facts["problem"] | {"kind": "backlog"}}
    assert shares_on_top(Config.model_validate(backlog), 0.1)["left_over"] == 0.0
    facts["privacy"] |= {"unit": "shop", "max_per_unit": 500}
    assert shares_on_top(Config.model_validate(facts), 0.01)["left_over"] == 0.0  # noise beyond the exact tables


def test_a_policy_that_could_not_be_read_again_is_refused_before_payment(tmp_path: Path) -> None:
    facts = small_shop(tmp_path, units=2)
    facts["problem"] |= {"labels": {"trajectory": "1..60000"}}
    config = Config.model_validate(facts)
    with pytest.raises(ValueError, match=r"60,000 combinations of labels.*too large to be read again: measure amounts"):
        require_payable(config, ON_TOP_SHARE)
    facts["problem"] |= {"labels": {"trajectory": "1..600"}}
    require_payable(Config.model_validate(facts), ON_TOP_SHARE)


def test_sums_are_told_by_name_and_with_their_exact_variance() -> None:
    """Δ₂² = 2 H k P² with labels, σ² = Δ₂² / 2ρ, which is no whole number here."""
    problem, log, _ = moves(labels=True)
    rho = Fraction(7, 3)
    asked = {"level_sizes": (1, 2), "on_top": {"left_over": rho}, "noise": SeededNoise(1)}
    released = release_outcomes(log, problem, rho=Fraction(1), **asked)
    *_, summing = released.guarantee.mechanisms
    variance = Fraction(problem.horizon * problem.products * LEFT_PARTS**2) / rho
    assert (summing.name, summing.variance) == ("stock left over", variance)
    assert released.on_top["left_over"].variance == float(variance) != int(variance)


def test_only_stock_can_be_left() -> None:
    with pytest.raises(ValueError, match="left_over needs a problem of inventory, got Wear"):
        sensitivity.left_sums(Wear(2), per_unit=1)


def test_what_is_left_needs_a_positive_bound() -> None:
    """A sum is counted in parts of the bound. Parts of nothing would be infinitely many."""
    shop = LostSales(horizon=2, products=2, holding=0.1, shortage=0.4, demand_max=10.0)
    shop.outcome_high = np.array([10.0, 0.0])
    with pytest.raises(ValueError, match="left_over needs positive bounds of outcomes"):
        sensitivity.left_sums(shop, per_unit=1)
