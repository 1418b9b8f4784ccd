"""People who know more than the log shows: decisions that follow what is about to happen, and what the page says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import (
    DynamicPricing,
    FirstPriceBidding,
    Policy,
    Pool,
    ReserveAuction,
    SeededNoise,
    Trajectories,
    simulate_log,
)
from poolrl.checks import FloatArray
from poolrl.learning.dependence import USUAL_BANDS, compare_levels, expected_error_of_effect
from poolrl.learning.model import PrivateModel
from poolrl.problems.rounds import Rounds
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.forecast import CANNOT_TELL, CostEstimate
from poolrl.workflow.paying import shares_on_top
from poolrl.workflow.trades.round_forecast import Played, _judged, forecast_rounds
from tests.helpers.commands import run_poolrl

MANY, FEW = 4_000, 1_500
AUCTION = ReserveAuction(horizon=2, lots=1, bid_max=8.0)
PRICE_ONLY = ReserveAuction(horizon=2, lots=1, bid_max=8.0, sees_highest=False)
LOST = FirstPriceBidding(horizon=2, wins=1, worth=3.0, bid_max=8.0, feedback="lost")
WON = FirstPriceBidding(horizon=2, wins=1, worth=3.0, bid_max=8.0, feedback="won")
PRICE = DynamicPricing(horizon=2, stock=1, price_max=8.0)


def a_season(
    problem: Rounds, *, knows: bool, scaled: bool = False, tries: float = 0.3, seasons: int = MANY
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


@pytest.mark.parametrize("problem", [AUCTION, PRICE_ONLY, LOST, WON])
def test_decisions_that_follow_what_people_know_are_found(problem: Rounds) -> None:
    """Clearly where people know more, and never where they do not, or where what they know is the scale."""
    who = {"knows": a_season(problem, knows=True), "blind": a_season(problem, knows=False)}
    who["scaled"] = a_season(problem, knows=True, scaled=True)
    found = {name: fitted(problem, log).report.dependence.flagged for name, log in who.items()}
    assert found == {"knows": True, "blind": False, "scaled": False}


def test_who_knows_more_is_not_told_to_switch() -> None:
    found = forecast_rounds(fitted(AUCTION, a_season(AUCTION, knows=True, seasons=FEW)))
    assert (found.verdict, found.policy, found.gain) == (CANNOT_TELL, None, None)
    assert "reserves follow what people expected: where the reserve was high, bids were high as well" in found.because


def test_prices_that_follow_values_are_not_told_to_switch() -> None:
    """Each thing at nine tenths of what it is worth, about: dear ones sell as often as cheap ones."""
    found = forecast_rounds(fitted(PRICE, a_season(PRICE, knows=True, tries=0.05, seasons=FEW), dependence=0.0))
    assert (found.verdict, found.today) == (CANNOT_TELL, None)
    assert "succeeded about equally often" in found.because


@pytest.mark.usefixtures("short_forecast")
def test_without_the_table_a_page_says_what_it_rests_on() -> None:
    """Amounts of all sizes were tried by lot, so any plan earns more."""
    rng = np.random.default_rng(1)
    for problem, says in (
        (AUCTION, "'poolrl check' looks at it in the log"),
        (PRICE, "ask those who named the prices"),
    ):
        values = problem.arranged(rng.lognormal(0.0, 0.35, (MANY, 2, problem.outcome_dim)).clip(0, 7.9))
        log = simulate_log(problem, values, rng=rng, behaviour=lambda h, x, r: r.uniform(0.3, 2.5, x.shape))
        found = forecast_rounds(fitted(problem, log, dependence=0.0))
        assert (found.verdict, says in found.because) == ("switch", True)
        if problem is AUCTION:
            policy = fitted(problem, log)
            tested = forecast_rounds(policy)
            assert (tested.verdict, "only people knew" in tested.because) == ("switch", False)
            # A table that is too noisy to tell is as good as none.
            policy.report = replace(policy.report, dependence=replace(policy.report.dependence, error=0.2))
            assert "only people knew" in _judged(CostEstimate(1.0, 0.5, 1.5), CostEstimate(2.0, 1.9, 2.1), policy)[1]


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


@pytest.mark.parametrize("family", ["lognormal", "exponential", "uniform", "two peaks"])
def test_prices_that_matter_are_not_suspected(family: str) -> None:
    rng = np.random.default_rng(4)
    values = {
        "lognormal": rng.lognormal(0, 0.45, (3_000, 2, 1)),
        "exponential": rng.exponential(1.0, (3_000, 2, 1)),
        "uniform": rng.uniform(0.2, 2.0, (3_000, 2, 1)),
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
        ("reserve-auction; bid_max=4; horizon=30; lots=20", 10_000, 0.1),
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
