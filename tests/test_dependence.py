"""Dependence is tested, not assumed: whether orders follow demand, with noise and without."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.chain import DAYS, Weeks, made_up_chain, run_chain
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import Backlog, LostSales, Policy, Pool, SeededNoise, Trajectories, Visits
from poolrl.checks import FloatArray, IntArray
from poolrl.data.counts import count_joint
from poolrl.geometry.bins import bin_of
from poolrl.geometry.resolution import JOINT_BANDS
from poolrl.learning.dependence import LEAST_EFFECT, LEAST_Z, Dependence, compare_levels
from poolrl.privacy import release, sensitivity, zcdp
from poolrl.privacy.noise import secure
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.release import release_outcomes
from poolrl.shop.check import look_at
from poolrl.shop.config_file import load_config
from poolrl.shop.toml import write_toml
from tests.helpers.neighbours import (
    Pair,
    Recorder,
    labelled_neighbours,
    neighbours,
    scaled_neighbours,
    squared_change,
)
from tests.helpers.own_problems import OrderQuantity, PostedPrice
from tests.helpers.shops import Facts, Run
from tests.helpers.tables import a_labelled_shop, a_shop

Plant = pytest.MonkeyPatch
STORES, WEEKS = 60, slice(0, 60)
COSTS: dict[str, Any] = {"horizon": DAYS, "holding": 1.0, "shortage": 3.0}
SHOP = LostSales(**COSTS, demand_max=30_000.0)
IN_MULTIPLES = LostSales(**COSTS, demand_max=4.0)


@cache
def managers() -> Weeks:
    """Every store orders 1.15 times the mean sales of its last four same weekdays."""
    chain = made_up_chain(np.random.default_rng(1), stores=STORES, weeks=64)
    known = {"sold": chain.demand[:, :4], "stock": np.zeros(STORES)}
    return run_chain(chain, lambda week, day, scale, stock: 1.15 * scale, weeks=slice(4, 64), **known)


def exactly(log: Trajectories, problem: LostSales) -> Dependence:
    return compare_levels(count_joint(log, problem, bands=JOINT_BANDS), 0.0)


def reported(log: Trajectories, problem: LostSales, *, rho: float, seed: int = 0) -> dict[str, Any]:
    policy = Pool(rho, dependence=0.05).fit(problem, log, noise=SeededNoise(seed))
    return dict(policy.report["dependence"])


# --- what is flagged, and what is not


@pytest.mark.parametrize("rho", [np.inf, 10.0, 1.0])
def test_managers_are_flagged_without_a_scale_and_not_with_it(rho: float) -> None:
    raw = managers().log(WEEKS)
    scaled = managers().log(WEEKS, scale=managers().scales(WEEKS), scale_memory=4)
    for seed in range(3):
        found = reported(raw, SHOP, rho=rho, seed=seed)
        assert found["flagged"]
        assert found["effect"] > 0.3
        assert found["z"] > 4
        assert "give a scale" in found["advice"]
        mended = reported(scaled, IN_MULTIPLES, rho=rho, seed=seed)
        assert not mended["flagged"]
        assert mended["z"] < LEAST_Z


def test_a_bound_that_is_far_too_large_hides_nothing() -> None:
    """Sales reach 20,000, the bound is five times that."""
    found = exactly(managers().log(WEEKS), LostSales(**COSTS, demand_max=100_000.0))
    assert found.flagged


def own_sizes(seed: int, **known: Any) -> tuple[dict[str, Any], FloatArray]:
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
    for seed in range(5):
        rows, shop = own_sizes(seed)
        assert exactly(Trajectories(**rows), plain).flagged
        assert reported(Trajectories(**rows), plain, rho=10.0, seed=seed)["flagged"]
        mended = Trajectories(**rows, labels={"shop": shop})
        assert not exactly(mended, labelled).flagged
        assert not reported(mended, labelled, rho=10.0, seed=seed)["flagged"]


@pytest.mark.parametrize("variance", [0, 2, 60], ids=["exact", "some noise", "much noise"])
def test_false_alarms_are_rare(variance: int) -> None:
    """Orders of `simulate_log`, 300 logs: z is standard normal, and at a threshold of 3 one log in 740 is flagged."""
    problem = LostSales(horizon=3, holding=1.0, shortage=1.0, demand_max=100.0)
    found = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        log = problem.simulate_log(np.minimum(rng.gamma(4.0, 10.0, (300, 3, 1)), 100.0), rng=rng)
        exact = count_joint(log, problem, bands=JOINT_BANDS)
        found.append(compare_levels(SeededNoise(seed).begin().add(exact, Fraction(variance)), variance))
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
    assert "cannot be told" in Dependence(effect=0.5, error=0.25, z=2.0).advice
    assert "lower demand" in Dependence(effect=-0.2, error=0.02, z=-10.0).advice
    assert Dependence(effect=0.0, error=0.01, z=0.0).advice == "no sign that orders follow demand"


# --- the statistic


def test_four_rows_by_hand() -> None:
    """Bands of a bound of 64 begin at 0, 1, 4, 9, 16, ...: band i at i².

    Orders up to 10 (band 3) and 20 (band 4). At 10 one sold 2 (band 1), one ran out. At 20 one sold 5 (band 2), one ran
    out. Both levels are at least 4 and 9. Below 4 is the row with 2: against the three others that is one tie and two
    pairs that agree. Below 9 are the rows with 2 and 5: 2 against both empty shelves is a tie and an agreement, and 5
    against them a disagreement and a tie. From 16 on one level is left, and ties. Below 16 are 5 against its neighbour.
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


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
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


# --- counting


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
    joint = log.joint_leaves(problem, bands=JOINT_BANDS)
    np.testing.assert_array_equal(joint.sum(axis=-1), log.outcome_leaves(problem, bins=16).sum(axis=-1))
    kinds = joint.reshape(*joint.shape[:-1], JOINT_BANDS, 2, JOINT_BANDS).sum(axis=(-3, -1))
    trees = log.outcome_leaves(problem, bins=16).reshape(*joint.shape[:-1], 2, 16).sum(axis=-1)
    np.testing.assert_array_equal(kinds, trees)


# --- what it costs


def paid_for(problem: Any, first: Trajectories, second: Trajectories) -> None:
    """No table of two neighbours differs by more than its mechanism pays for, and all that is released is paid for."""
    recorders = Recorder(), Recorder()
    budgets = {"rho": Fraction(1, 2), "dependence": Fraction(1, 10)}
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
    moved = first.max_per_unit if first.has_units else 1 + first.scale_memory
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
        release_outcomes(log, problem, level_sizes=(2,), rho=1.0, noise=recorder, dependence=1.0)
    assert squared_change(*recorders)[-1] == 2 * 2 * 2 * (1 + memory) ** 2


def test_a_memory_that_the_table_does_not_pay_for(monkeypatch: Plant) -> None:
    monkeypatch.setattr(sensitivity, "moved_trajectories", lambda *, per_unit, **_: per_unit)
    with pytest.raises(AssertionError):
        paid_for(*ends(memory=3))


def noise_of_the_table(rho: float) -> float:
    """The variance of what was added to the table, divided by what the guarantee states."""
    log, problem = managers().log(slice(0, 5)), SHOP
    released = release_outcomes(log, problem, level_sizes=(2,), rho=1.0, noise=SecureNoise(), dependence=rho)
    assert released.dependence is not None
    added = released.dependence.counts - count_joint(log, problem, bands=JOINT_BANDS)
    assert released.dependence.variance == float(released.guarantee.mechanisms[1].variance)
    return float(np.square(added).mean()) / released.dependence.variance


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


# --- asking for it


@pytest.mark.parametrize("rho", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("share", [0.05, 0.1, 1 / 3])
def test_shares_add_up_exactly(rho: float, share: float) -> None:
    rest, part = zcdp.split(rho, dependence=share)
    assert rest + part == zcdp.budget(rho)
    assert part == Fraction(str(share)) * Fraction(str(rho))
    assert zcdp.split(rho, dependence=0) == (zcdp.budget(rho), 0)


def test_without_a_budget_there_is_neither() -> None:
    assert zcdp.split(np.inf, dependence=0.0) == (np.inf, 0)
    assert zcdp.split(np.inf, dependence=0.5) == (np.inf, np.inf)


def test_the_guarantee_carries_both_mechanisms(tmp_path: Path) -> None:
    log = managers().log(slice(0, 5))
    policy = Pool(1.0, dependence=0.05).fit(SHOP, log)
    trees, joint = policy.guarantee.mechanisms
    assert policy.guarantee.private
    assert (trees.rho, joint.rho, policy.guarantee.rho) == (Fraction(19, 20), Fraction(1, 20), 1.0)
    assert (joint.name, joint.cells) == ("levels and outcomes", DAYS * JOINT_BANDS * 2 * JOINT_BANDS)
    assert "levels and outcomes: 896 counts" in str(policy.guarantee)
    policy.save(tmp_path / "policy.npz")
    again = Policy.load(tmp_path / "policy.npz")
    assert again.report["dependence"] == json.loads(json.dumps(policy.report["dependence"]))
    assert again.guarantee == policy.guarantee


def test_a_dry_run_says_so() -> None:
    log = managers().log(slice(0, 5))
    policies = [Pool(1.0, dependence=0.05).fit(SHOP, log, noise=SeededNoise(7)) for _ in range(2)]
    assert not policies[0].guarantee.private
    assert "NOT PRIVATE" in str(policies[0].guarantee)
    assert policies[0].report["dependence"] == policies[1].report["dependence"]
    assert not Pool(np.inf, dependence=0.05).fit(SHOP, log).guarantee.private


def test_the_tables_of_a_dry_run_have_different_noise() -> None:
    log = managers().log(slice(0, 5))
    released = release_outcomes(log, SHOP, level_sizes=(64,), rho=1.0, noise=SeededNoise(7), dependence=1.0)
    assert released.dependence is not None
    first = released.levels[0] - log.outcome_leaves(SHOP, bins=64).reshape(released.levels[0].shape)
    second = released.dependence.counts - count_joint(log, SHOP, bands=JOINT_BANDS)
    assert not np.array_equal(np.sign(first.ravel()[:500]), np.sign(second.ravel()[:500]))


def test_by_default_nothing_is_released() -> None:
    log = managers().log(slice(0, 5))
    policy = Pool(1.0).fit(SHOP, log, noise=SeededNoise(7))
    assert len(policy.guarantee.mechanisms) == 1
    assert "dependence" not in policy.report
    asked = Pool(1.0, dependence=0).fit(SHOP, log, noise=SeededNoise(7))
    np.testing.assert_array_equal(policy.levels, asked.levels)


@pytest.mark.parametrize("share", [-0.1, 1, 1.0, 2.0, np.nan, np.inf, "0.1", None, True])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    with pytest.raises(ValueError, match="dependence must be a share of rho, at least 0 and less than 1, got"):
        Pool(1.0, dependence=share)


def test_what_has_no_such_table_is_refused_before_anything_is_spent() -> None:
    ask: dict[str, Any] = {"dependence": 0.1}
    with pytest.raises(ValueError, match=r"cut off coordinate by coordinate .* Backlog is none"):
        Pool(1.0, **ask).prepare(Backlog(horizon=2, holding=1.0, shortage=1.0, demand_max=8.0))
    with pytest.raises(ValueError, match="PostedPrice is none"):
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
        assert Pool(10.0, dependence=0.1).fit(problem, log).report["dependence"]["flagged"] is flagged


# --- what `poolrl check` says


def chain_facts(folder: Path, facts: Facts, log: Trajectories, shop: Any, **privacy: Any) -> Path:
    """The log as a Parquet file with a column `shop`, and a configuration for it."""
    table = log.to_arrow()
    pq.write_table(table.append_column("shop", pa.array(shop)), folder / "log.parquet")
    facts["problem"] |= {"products": ["bread"], "horizon": log.horizon, "steps": [], "demand_max": 30_000.0}
    facts["problem"] |= {"holding": 1.0, "shortage": 3.0, "boundary": 1.0}
    facts["log"] |= {"opening": ["state_0"], "order_up_to": ["action_0"], "left": ["next_state_0"]}
    facts["privacy"] |= privacy
    (folder / "poolrl.toml").write_text(write_toml(facts))
    return folder / "poolrl.toml"


def orders(config: Path) -> tuple[str, str]:
    (found,) = (each for each in look_at(load_config(config)) if each.what == "orders and demand")
    return found.stands, found.seen


def test_check_says_what_would_help(tmp_path: Path, facts: Facts, run: Run) -> None:
    log, shop = managers().log(WEEKS), [f"shop {i // (60 * DAYS)}" for i in range(STORES * 60 * DAYS)]
    config = chain_facts(tmp_path, facts, log, shop, unit="shop", max_per_unit=60)
    stands, seen = orders(config)
    assert stands == "note"
    assert seen.startswith("orders follow demand (effect +0.46, z +43.2), so demand is overestimated; give a scale")
    assert "the last 4 trajectories of the same shop and step, in the order of their ids (then effect +0.00" in seen
    assert "or make the column 'shop' a label (then effect +0.02" in seen
    assert seen.count("no longer flagged") == 2
    printed = json.loads(run("check", "--config", config, "--json"))
    assert printed["notice"].startswith("For the data holder's eyes; not for release")
    assert printed["good"]  # the log can be fitted: what to do about it is a person's decision


def test_check_without_a_unit_says_what_it_could_not_try(tmp_path: Path, facts: Facts) -> None:
    log = managers().log(WEEKS)
    stands, seen = orders(chain_facts(tmp_path, facts, log, np.zeros(STORES * 60 * DAYS)))
    assert stands == "note"
    assert "give a scale, for example a forecast" in seen
    assert "then effect" not in seen


def test_check_of_independent_orders(tmp_path: Path, facts: Facts) -> None:
    rng = np.random.default_rng(2)
    log = SHOP.simulate_log(rng.gamma(4.0, 2000.0, (800, DAYS, 1)).clip(0, 30_000), rng=rng)
    stands, seen = orders(chain_facts(tmp_path, facts, log, np.zeros(800 * DAYS)))
    assert stands == "good"
    assert seen.startswith("no sign that orders follow demand (effect ")


def test_check_where_a_remedy_cannot_be_tried(tmp_path: Path, facts: Facts) -> None:
    """Units that are dates have no label, and with 2,001 units there would be too many."""
    log, rows = managers().log(WEEKS), STORES * 60 * DAYS
    dates = np.datetime64("2025-01-01") + np.arange(rows) // (60 * DAYS)
    _, seen = orders(chain_facts(tmp_path, facts, log, dates, unit="shop", max_per_unit=60))
    assert "(not tried: label 'shop' must have values, all numbers or all text)" in seen
    _, seen = orders(chain_facts(tmp_path, facts, log, np.arange(rows) // DAYS, unit="shop", max_per_unit=60))
    assert "(not tried: it has more than 2,000 values)" in seen


def test_check_of_a_log_in_which_nothing_can_be_compared(tmp_path: Path, facts: Facts) -> None:
    zeros = np.zeros((5, DAYS, 1))
    log = Trajectories(states=zeros, actions=zeros + 100.0, next_states=zeros)
    stands, seen = orders(chain_facts(tmp_path, facts, log, np.zeros(5 * DAYS)))
    assert stands == "good"
    assert seen.startswith("it cannot be told whether orders follow demand")


def test_backlogged_demand_is_always_seen(tmp_path: Path, facts: Facts) -> None:
    log = managers().log(slice(0, 5))
    facts["problem"]["kind"] = "backlog"
    config = chain_facts(tmp_path, facts, log, np.zeros(STORES * 5 * DAYS))
    assert not [each for each in look_at(load_config(config)) if each.what == "orders and demand"]
