"""Dependence is tested, not assumed: whether orders follow demand, with noise and without."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.chain import DAYS
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import Backlog, LostSales, Policy, Pool, SeededNoise, Trajectories, Visits
from poolrl.checks import IntArray
from poolrl.data.counts import count_joint
from poolrl.geometry.bins import bin_of
from poolrl.geometry.resolution import JOINT_BANDS
from poolrl.learning.dependence import compare_levels
from poolrl.learning.stored import LEAST_EFFECT, LEAST_Z, Dependence
from poolrl.privacy import zcdp
from poolrl.workflow.trades.shop_findings import advice_about_orders
from tests.helpers.managers import COSTS, IN_MULTIPLES, SHOP, WEEKS, exactly, managers
from tests.helpers.own_problems import OrderQuantity, PostedPrice


def reported(log: Trajectories, problem: LostSales, *, rho: float, seed: int = 0) -> Dependence:
    policy = Pool(rho, dependence=0.05).fit(problem, log, noise=SeededNoise(seed))
    assert policy.report.dependence is not None
    return policy.report.dependence


def test_managers_are_flagged_without_a_scale_and_not_with_it() -> None:
    raw = managers().log(WEEKS)
    scaled = managers().log(WEEKS, scale=managers().scales(WEEKS), scale_memory=4)
    for rho in (np.inf, 10.0, 1.0):
        found = exactly(raw, SHOP) if rho == np.inf else reported(raw, SHOP, rho=rho)
        assert found.flagged
        assert found.effect > 0.3
        assert found.z > 4
        assert "orders follow demand" in advice_about_orders(found)
        mended = exactly(scaled, IN_MULTIPLES) if rho == np.inf else reported(scaled, IN_MULTIPLES, rho=rho)
        assert not mended.flagged
        assert mended.z < LEAST_Z


def test_a_bound_that_is_far_too_large_hides_nothing() -> None:
    """Sales reach 20,000, the bound is five times that."""
    found = exactly(managers().log(WEEKS), LostSales(**COSTS, demand_max=100_000.0))
    assert found.flagged


def own_sizes(seed: int) -> tuple[dict[str, Any], IntArray]:
    """Weeks of shops that sell from 10 to 80 a day, and order at random up to two and a half times that."""
    rng = np.random.default_rng(seed)
    shop = np.repeat(np.arange(8), 150)
    size = 10.0 * (1 + shop[:, None, None] % 8)
    demand = np.minimum(size * rng.gamma(9.0, 1 / 9, (len(shop), 2, 1)), 200.0)
    order = 2.5 * size * rng.random(demand.shape)
    rows = {"states": np.zeros_like(order), "actions": order, "next_states": np.maximum(order - demand, 0)}
    return rows, shop


def test_shops_that_differ_need_a_label() -> None:
    """Within each shop orders are independent of demand; of all shops together they are not."""
    facts: dict[str, Any] = {"horizon": 2, "holding": 1.0, "shortage": 1.0, "demand_max": 200.0}
    plain, labelled = LostSales(**facts), LostSales(**facts, labels={"shop": range(8)})
    for seed in range(2):
        rows, shop = own_sizes(seed)
        assert exactly(Trajectories(**rows), plain).flagged
        assert reported(Trajectories(**rows), plain, rho=10.0, seed=seed).flagged
        mended = Trajectories(**rows, labels={"shop": shop})
        assert not exactly(mended, labelled).flagged
        assert not reported(mended, labelled, rho=10.0, seed=seed).flagged


def test_false_alarms_are_rare() -> None:
    """Orders of `simulate_log`, 300 logs: z is standard normal, and at a threshold of 3 one log in 740 is flagged."""
    problem = LostSales(horizon=3, holding=1.0, shortage=1.0, demand_max=100.0)
    counts = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        log = problem.simulate_log(np.minimum(rng.gamma(4.0, 10.0, (300, 3, 1)), 100.0), rng=rng)
        counts.append(count_joint(log, problem, bands=JOINT_BANDS))
    for variance in (0, 2, 60):
        noisy = (SeededNoise(seed).begin().add(exact, Fraction(variance)) for seed, exact in enumerate(counts))
        found = [compare_levels(each, variance) for each in noisy]
        z = np.array([each.z for each in found])
        assert sum(each.flagged for each in found) <= 2
        assert abs(z.mean()) < 4 / np.sqrt(len(z))
        assert 0.85 < z.std() < 1.15


def test_noise_leaves_the_effect_right_on_average() -> None:
    exact = count_joint(managers().log(WEEKS), SHOP, bands=JOINT_BANDS)
    truth = compare_levels(exact, 0.0).effect
    effects = [compare_levels(SeededNoise(i).begin().add(exact, Fraction(50)), 50.0).effect for i in range(200)]
    assert np.mean(effects) == pytest.approx(truth, abs=0.02)
    assert np.std(effects) < 0.1


@pytest.mark.parametrize("variance", [0, 20])
def test_the_error_is_what_sampling_and_noise_make(variance: int) -> None:
    """The stated error against the spread of the effect over 300 logs of independent orders."""
    problem = LostSales(horizon=1, holding=1.0, shortage=1.0, demand_max=100.0)
    found = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        log = problem.simulate_log(rng.uniform(0, 100.0, (1000, 1, 1)), rng=rng)
        exact = count_joint(log, problem, bands=JOINT_BANDS)
        found.append(compare_levels(SeededNoise(seed).begin().add(exact, Fraction(variance)), variance))
    errors = [each.error for each in found]
    assert np.mean(errors) == pytest.approx(np.std([each.effect for each in found]), rel=0.15)


def test_what_a_trifle_is() -> None:
    assert Dependence(effect=2 * LEAST_EFFECT, error=0.01, z=10.0).flagged
    assert not Dependence(effect=LEAST_EFFECT / 2, error=0.001, z=25.0).flagged
    assert not Dependence(effect=0.5, error=0.25, z=2.0).flagged
    assert "cannot be told" in advice_about_orders(Dependence(effect=0.5, error=0.25, z=2.0))
    assert "lower demand" in advice_about_orders(Dependence(effect=-0.2, error=0.02, z=-10.0))
    assert advice_about_orders(Dependence(effect=0.0, error=0.01, z=0.0)) == "no sign that orders follow demand"


def test_four_rows_by_hand() -> None:
    """Bands of a bound of 64 begin at 0, 1, 4, 9, 16, ...: band i at i².

    Orders up to 10 (band 3) and 20 (band 4). At 10 one sold 2 (band 1), one ran out. At 20 one sold 5 (band 2), one ran
    out. Both levels are at least 4 and 9. Below 4 is the row with 2: against the three others that is one tie and two
    pairs that agree. Below 9 are the rows with 2 and 5: 2 against both empty shelves is a tie and an agreement, and 5
    against them a disagreement and a tie. Only the level 20 is at least 16: one pair there, and a tie.
    """
    problem = LostSales(horizon=1, holding=1.0, shortage=1.0, demand_max=64.0)
    level, sold = np.array([10.0, 10.0, 20.0, 20.0]), np.array([2.0, 10.0, 5.0, 20.0])
    shape = (4, 1, 1)
    log = Trajectories(states=np.zeros(shape), actions=level.reshape(shape), next_states=(level - sold).reshape(shape))
    # Edge 4: 3 pairs, 2 agree. Edge 9: 4 pairs, 1 agrees, 1 disagrees. Edge 16: 1 pair.
    assert exactly(log, problem).effect == pytest.approx((2 + 1 - 1) / (3 + 4 + 1))


def by_pairs(level: IntArray, cut: IntArray, outcome: IntArray) -> float:
    """Somers' D by its definition, over all pairs of rows of one step."""
    signed = pairs = 0
    for i, j in itertools.combinations(range(len(level)), 2):
        for edge in range(1, JOINT_BANDS):
            if min(level[i], level[j]) < edge:
                continue
            below = [not cut[row] and outcome[row] < edge for row in (i, j)]
            if below[0] != below[1]:
                low, high = (i, j) if below[0] else (j, i)
                pairs += 1
                signed += int(np.sign(level[high] - level[low]))
    return signed / pairs if pairs else 0.0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 20))
def test_the_effect_is_that_of_all_pairs(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    problem = LostSales(horizon=1, holding=1.0, shortage=1.0, demand_max=64.0)
    level = rng.integers(0, 65, rows).astype(float)
    left = np.maximum(level - rng.integers(0, 65, rows), 0)
    parts = {"states": np.zeros(rows), "actions": level, "next_states": left}
    log = Trajectories(**{name: part.reshape(rows, 1, 1) for name, part in parts.items()})
    expected = by_pairs(
        bin_of(level / 64, JOINT_BANDS), (left == 0).astype(np.int64), bin_of((level - left) / 64, JOINT_BANDS)
    )
    found = exactly(log, problem)
    assert found.effect == pytest.approx(expected)
    assert -1 <= found.effect <= 1


def test_a_log_that_shows_nothing_is_not_flagged() -> None:
    """All orders are equal, or there is no row."""
    zeros, full = np.zeros((20, DAYS, 1)), np.full((20, DAYS, 1), 100.0)
    alike = Trajectories(states=zeros, actions=full, next_states=full * np.linspace(0, 1, 20)[:, None, None])
    for counts in (count_joint(alike, SHOP, bands=JOINT_BANDS), np.zeros((7, 1, 8, 2, 8), dtype=np.int64)):
        found = compare_levels(counts, 0.0)
        assert (found.effect, found.z, found.flagged) == (0.0, 0.0, False)


@pytest.mark.parametrize("rho", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("share", [0.05, 0.1, 1 / 3])
def test_shares_add_up_exactly(rho: float, share: float) -> None:
    rest, parts = zcdp.shares_of(rho, dependence=share)
    part = parts["dependence"]
    assert rest + part == zcdp.budget(rho)
    assert part == Fraction(str(share)) * Fraction(str(rho))
    assert zcdp.shares_of(rho, dependence=0) == (zcdp.budget(rho), {"dependence": 0})
    # Without a budget there is neither.
    assert zcdp.shares_of(np.inf, dependence=0.0) == (np.inf, {"dependence": 0})
    assert zcdp.shares_of(np.inf, dependence=share) == (np.inf, {"dependence": np.inf})


def test_the_guarantee_carries_both_mechanisms(tmp_path: Path) -> None:
    policy = Pool(1.0, dependence=0.05).fit(SHOP, managers().log(slice(0, 5)))
    trees, joint = policy.guarantee.mechanisms
    assert policy.guarantee.private
    assert (trees.rho, joint.rho, policy.guarantee.rho) == (Fraction(19, 20), Fraction(1, 20), 1.0)
    assert (joint.name, joint.cells) == ("levels and outcomes", DAYS * JOINT_BANDS * 2 * JOINT_BANDS)
    assert "levels and outcomes: 896 counts" in str(policy.guarantee)
    policy.save(tmp_path / "policy.npz")
    again = Policy.load(tmp_path / "policy.npz")
    assert again.report.dependence == policy.report.dependence
    assert again.guarantee == policy.guarantee


def test_a_dry_run_says_so() -> None:
    log = managers().log(slice(0, 5))
    first, second = (Pool(1.0, dependence=0.05).fit(SHOP, log, noise=SeededNoise(7)) for _ in range(2))
    assert not first.guarantee.private
    assert "NOT PRIVATE" in str(first.guarantee)
    assert first.report.dependence == second.report.dependence
    assert not Pool(np.inf, dependence=0.05).fit(SHOP, log).guarantee.private
    # By default nothing is released.
    usual, asked = (Pool(1.0, **share).fit(SHOP, log, noise=SeededNoise(7)) for share in ({}, {"dependence": 0}))
    assert len(usual.guarantee.mechanisms) == 1
    assert usual.report.dependence is None
    np.testing.assert_array_equal(usual.levels, asked.levels)


@pytest.mark.parametrize("share", [-0.1, 1, 1.0, 2.0, np.nan, np.inf, "0.1", None, True])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    with pytest.raises(ValueError, match="dependence must be a share of rho, at least 0 and less than 1, got"):
        Pool(1.0, dependence=share)


def test_what_has_no_such_table_is_refused_before_anything_is_spent() -> None:
    ask: dict[str, Any] = {"dependence": 0.1}
    with pytest.raises(ValueError, match=r"cut off at the action.*, got Backlog"):
        Pool(1.0, **ask).prepare(Backlog(horizon=2, holding=1.0, shortage=1.0, demand_max=8.0))
    with pytest.raises(ValueError, match="got PostedPrice"):
        Pool(1.0, **ask).prepare(PostedPrice(2))
    with pytest.raises(ValueError, match="dependence needs outcome counts"):
        Pool(1.0, Visits(), **ask).prepare(SHOP)


def test_a_problem_of_your_own_is_tested_by_its_action() -> None:
    """Amounts ordered, not levels: what is on the shelf is at least that, so the outcome below it is always seen."""
    problem, rng = OrderQuantity(2, 1, 1.0, 1.0, cap=60.0), np.random.default_rng(5)
    size = rng.uniform(10, 40, (2000, 1, 1))
    demand, order = size * rng.gamma(20.0, 1 / 20, (2000, 2, 1)), 1.1 * size * np.ones((1, 2, 1))
    for ordered, flagged in ((order, True), (rng.permutation(order), False)):
        left = np.maximum(ordered - demand, 0)
        log = Trajectories(states=np.zeros_like(left), actions=ordered, next_states=left)
        tested = Pool(10.0, dependence=0.1).fit(problem, log).report.dependence
        assert tested is not None
        assert tested.flagged is flagged
