"""Dependence is tested, not assumed: whether decisions follow what people know, and what a page then says."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.chain import DAYS
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import (
    Backlog,
    DynamicPricing,
    FirstPriceBidding,
    LostSales,
    Policy,
    Pool,
    ReserveAuction,
    SeededNoise,
    Trajectories,
    Visits,
    simulate_log,
)
from poolrl.checks import FloatArray, IntArray
from poolrl.data.counts import count_joint
from poolrl.geometry.bins import bin_of
from poolrl.geometry.resolution import JOINT_BANDS
from poolrl.learning.dependence import USUAL_BANDS, compare_levels, expected_error_of_effect
from poolrl.learning.model import PrivateModel
from poolrl.learning.stored import LEAST_EFFECT, LEAST_Z, Dependence
from poolrl.problems.rounds import Rounds
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.forecast import CANNOT_TELL, CostEstimate
from poolrl.workflow.paying import shares_on_top
from poolrl.workflow.trades.round_forecast import Played, _judged, forecast_rounds
from poolrl.workflow.trades.shop_findings import advice_about_orders
from tests.helpers.commands import run_poolrl
from tests.helpers.managers import COSTS, IN_MULTIPLES, SHOP, WEEKS, exactly, managers
from tests.helpers.own_problems import PostedPrice


def reported(log: Trajectories, problem: LostSales, *, rho: float) -> Dependence:
    if rho == np.inf:
        return exactly(log, problem)
    policy = Pool(rho, dependence=0.05).fit(problem, log, noise=SeededNoise(0))
    assert policy.report.dependence is not None
    return policy.report.dependence


@pytest.mark.parametrize("rho", [np.inf, 1.0])
def test_managers_are_flagged_without_a_scale_and_not_with_it(rho: float) -> None:
    raw = managers().log(WEEKS)
    found = reported(raw, SHOP, rho=rho)
    assert found.flagged
    assert found.effect > 0.3
    assert found.z > 4
    assert "orders follow demand" in advice_about_orders(found)
    scaled = managers().log(WEEKS, scale=managers().scales(WEEKS), scale_memory=4)
    mended = reported(scaled, IN_MULTIPLES, rho=rho)
    assert not mended.flagged
    assert mended.z < LEAST_Z
    # Sales reach 20,000; a bound of five times that hides nothing.
    assert exactly(raw, LostSales(**COSTS, demand_max=100_000.0)).flagged


def test_shops_that_differ_need_a_label() -> None:
    """Within each shop orders are independent of demand; of all shops together they are not."""
    rng, shop = np.random.default_rng(0), np.repeat(np.arange(8), 150)
    size = 10.0 * (1 + shop[:, None, None])
    demand = np.minimum(size * rng.gamma(9.0, 1 / 9, (len(shop), 2, 1)), 200.0)
    order = 2.5 * size * rng.random(demand.shape)
    rows = {"states": 0 * order, "actions": order, "next_states": np.maximum(order - demand, 0)}
    facts: dict[str, Any] = {"horizon": 2, "holding": 1.0, "shortage": 1.0, "demand_max": 200.0}
    plain, labelled = LostSales(**facts), LostSales(**facts, labels={"shop": range(8)})
    for rho in (np.inf, 10.0):
        assert reported(Trajectories(**rows), plain, rho=rho).flagged
        assert not reported(Trajectories(**rows, labels={"shop": shop}), labelled, rho=rho).flagged


def test_false_alarms_are_rare() -> None:
    """Orders of `simulate_log`, 150 logs: z is standard normal, so the stated error is right with noise and without."""
    problem = LostSales(horizon=3, holding=1.0, shortage=1.0, demand_max=100.0)
    counts = []
    for seed in range(150):
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


def test_what_a_trifle_is() -> None:
    assert Dependence(effect=2 * LEAST_EFFECT, error=0.01, z=10.0).flagged
    assert not Dependence(effect=LEAST_EFFECT / 2, error=0.001, z=25.0).flagged
    assert not Dependence(effect=0.5, error=0.25, z=2.0).flagged
    assert "cannot be told" in advice_about_orders(Dependence(effect=0.5, error=0.25, z=2.0))
    assert "lower demand" in advice_about_orders(Dependence(effect=-0.2, error=0.02, z=-10.0))
    assert advice_about_orders(Dependence(effect=0.0, error=0.01, z=0.0)) == "no sign that orders follow demand"


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


def test_what_has_no_such_table_is_refused_before_anything_is_spent() -> None:
    ask: dict[str, Any] = {"dependence": 0.1}
    with pytest.raises(ValueError, match=r"cut off at the action.*, got Backlog"):
        Pool(1.0, **ask).prepare(Backlog(horizon=2, holding=1.0, shortage=1.0, demand_max=8.0))
    with pytest.raises(ValueError, match="got PostedPrice"):
        Pool(1.0, **ask).prepare(PostedPrice(2))
    with pytest.raises(ValueError, match="dependence needs outcome counts"):
        Pool(1.0, Visits(), **ask).prepare(SHOP)


MANY, FEW = 6_000, 3_000
AUCTION = ReserveAuction(horizon=2, lots=1, bid_max=8.0)
WON = FirstPriceBidding(horizon=2, wins=1, worth=3.0, bid_max=8.0, feedback="won")
PRICE = DynamicPricing(horizon=2, stock=1, price_max=8.0)


def a_season(
    problem: Rounds, *, knows: bool, scaled: bool = False, tries: float = 0.3, seasons: int = FEW
) -> Trajectories:
    """Things of very different quality. Who knows it asks for as much more; who does not asks around one amount."""
    rng = np.random.default_rng(0)
    quality = rng.lognormal(0.0, 0.5, (seasons, problem.horizon, 1))
    values = quality * rng.lognormal(0.0, 0.35, (seasons, problem.horizon, problem.outcome_dim))
    outcomes = problem.arranged(values.clip(0, 7.9))

    def habit(step: int, state: FloatArray, rng: np.random.Generator) -> FloatArray:
        expected = quality[:, step] if knows else 1.0
        return np.clip(expected * rng.lognormal(-0.2, tries, (len(state), 1)), 0.02, 7.9)

    more: dict[str, Any] = {"scale": quality} if scaled else {}
    return simulate_log(problem, outcomes, rng=rng, behaviour=habit, **more)


def fitted(problem: Rounds, log: Trajectories, *, dependence: float = 0.1) -> Policy:
    return Pool(1.0, dependence=dependence).fit(problem, log, noise=SeededNoise(3))


@pytest.mark.parametrize("problem", [AUCTION, WON])
def test_decisions_that_follow_what_people_know_are_found(problem: Rounds) -> None:
    """Clearly where people know more, and never where they do not, or where what they know is the scale."""
    who = {"knows": a_season(problem, knows=True, seasons=MANY), "blind": a_season(problem, knows=False)}
    who["scaled"] = a_season(problem, knows=True, scaled=True)
    found = {name: fitted(problem, log).report.dependence.flagged for name, log in who.items()}
    assert found == {"knows": True, "blind": False, "scaled": False}


def test_who_knows_more_is_not_told_to_switch() -> None:
    found = forecast_rounds(fitted(AUCTION, a_season(AUCTION, knows=True)))
    assert (found.verdict, found.policy, found.gain) == (CANNOT_TELL, None, None)
    assert "reserves follow what people expected: where the reserve was high, bids were high as well" in found.because


def test_prices_that_follow_values_are_not_told_to_switch() -> None:
    """Each thing at nine tenths of what it is worth, about: dear ones sell as often as cheap ones."""
    found = forecast_rounds(fitted(PRICE, a_season(PRICE, knows=True, tries=0.05), dependence=0.0))
    assert (found.verdict, found.today) == (CANNOT_TELL, None)
    assert "succeeded about equally often" in found.because


@pytest.mark.usefixtures("short_forecast")
def test_without_the_table_a_page_says_what_it_rests_on() -> None:
    """Amounts of all sizes were tried by lot, so any plan earns more."""
    rng = np.random.default_rng(1)

    def tried_by_lot(problem: Rounds, seasons: int) -> Trajectories:
        values = problem.arranged(rng.lognormal(0.0, 0.35, (seasons, 2, problem.outcome_dim)).clip(0, 7.9))
        return simulate_log(problem, values, rng=rng, behaviour=lambda h, x, r: r.uniform(0.3, 2.5, x.shape))

    found = forecast_rounds(fitted(PRICE, tried_by_lot(PRICE, FEW), dependence=0.0))
    assert (found.verdict, "ask those who named the prices" in found.because) == ("switch", True)
    policy = fitted(AUCTION, tried_by_lot(AUCTION, 500))
    # A table that is too noisy to tell is as good as none.
    for table, warned in ((Dependence(0.0, 0.02, 0.0), False), (Dependence(0.0, 0.2, 0.0), True), (None, True)):
        policy.report = replace(policy.report, dependence=table)
        verdict, because = _judged(CostEstimate(1.0, 0.5, 1.5), CostEstimate(2.0, 1.9, 2.1), policy)
        assert (verdict, "only people knew" in because) == ("switch", warned)
    assert "'poolrl check' looks at it in the log" in because


def test_things_of_another_label_are_other_things() -> None:
    """Dear classes sell as often as cheap ones, each at its own price; within a class prices matter."""
    rng, classes = np.random.default_rng(0), np.array(["third", "second", "first"])
    problem = DynamicPricing(horizon=2, stock=1, price_max=16.0, labels={"class": classes.tolist()})
    label = rng.integers(0, 3, FEW)
    worth = np.array([1.0, 2.5, 6.0])[label]
    values = (worth[:, None, None] * rng.lognormal(0, 0.35, (FEW, 2, 1))).clip(0, 16)

    def habit(step: int, state: FloatArray, rng: np.random.Generator) -> FloatArray:
        return worth[:, None] * rng.uniform(0.75, 1.3, (FEW, 1))

    log = simulate_log(problem, values, rng=rng, behaviour=habit, labels={"class": classes[label]})
    played = Played(PrivateModel.of(fitted(problem, log, dependence=0.0)), rng)
    assert not played.hardly_matters()
    # The planted bug: classes are not told apart.
    played.cells = np.zeros_like(played.cells)
    assert played.hardly_matters()


@pytest.mark.parametrize("family", ["lognormal", "two peaks"])
def test_prices_that_matter_are_not_suspected(family: str) -> None:
    rng = np.random.default_rng(4)
    values = {
        "lognormal": rng.lognormal(0, 0.45, (3_000, 2, 1)),
        "two peaks": np.where(rng.random((3_000, 2, 1)) < 0.6, 0.7, 1.9) * rng.normal(1, 0.1, (3_000, 2, 1)),
    }[family].clip(0, 7.9)
    log = simulate_log(PRICE, values, rng=rng, behaviour=lambda h, x, r: r.uniform(0.4, 1.3, x.shape))
    policy = Pool(1.0).fit(PRICE, log, noise=SeededNoise(1))
    assert not Played(PrivateModel.of(policy), np.random.default_rng(0)).hardly_matters()


def test_the_error_of_the_test_is_foreseen() -> None:
    """Against the spread of the effect over tables with noise, drawn from independent levels and outcomes."""
    rng, bands, tables, slots, variance = np.random.default_rng(0), 8, 3, 4_000, 40.0
    law = np.array(USUAL_BANDS)
    effects = []
    for _ in range(60):
        counts = np.zeros((tables, bands, 2, bands), dtype=np.int64)
        for table in range(tables):
            level, outcome = (rng.choice(bands, slots, p=law) for _ in range(2))
            seen = outcome <= level
            np.add.at(counts, (table, level, np.where(seen, 0, 1), np.where(seen, outcome, level)), 1)
        counts += np.rint(rng.normal(0.0, variance**0.5, counts.shape)).astype(np.int64)
        effects.append(compare_levels(counts, variance).effect)
    foreseen = expected_error_of_effect(tables=tables, slots=slots, variance=variance)
    assert np.std(effects) == pytest.approx(foreseen, rel=0.25)
    assert expected_error_of_effect(tables=1, slots=0.0, variance=1.0) == 1.0


@pytest.mark.parametrize(
    ("facts", "units", "share"),
    [
        ("reserve-auction; bid_max=4", 10_000, 0.1),
        ("reserve-auction; bid_max=4", 300, 0.0),
        ("reserve-auction; bid_max=4; horizon=30; lots=1", 3_000, 0.0),  # most rounds come after the lot is gone
        ("dynamic-pricing; price_max=4", 10_000, 0.0),
    ],
)
def test_the_table_is_bought_where_public_facts_say_that_it_helps(
    facts: str, units: int, share: float, tmp_path: Path
) -> None:
    kind, _, given = facts.partition("; ")
    asked = ("--facts", given, "--source", "rounds.csv", "--units", str(units), "--data-set", "d", "--rho", "1")
    run_poolrl("init", "--problem", kind, *asked, cwd=tmp_path)
    assert shares_on_top(load_config(tmp_path / "poolrl.toml").config)["dependence"] == share
