"""Verdicts follow from rows: planted truths are found, planted falsehoods too, and nothing can be typed in by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from poolrl.paper import write_up
from poolrl.paper.claims import (
    CLAIMS,
    Estimate,
    Verdict,
    judge,
    mean_slope,
    of_mean,
    slope_of_means,
    target_verdicts,
    verdicts,
)
from poolrl.paper.results import Runs
from poolrl.paper.sweeps import JUDGED, NAMES, SOFTENED
from poolrl.paper.write_up import privacy_verdicts
from poolrl.privacy import release
from poolrl.privacy.guarantee import Mechanism
from tests.helpers.made_up_rows import as_the_paper_says, made_up, superlinear_grid


def verdicts_about(words: str, runs: Runs) -> list[Verdict]:
    """The verdicts on the claims that have these words, for every learner."""
    return [claim.verdict(runs, learner) for claim in CLAIMS if words in claim.text for learner in JUDGED]


def test_where_the_paper_is_right_every_claim_holds() -> None:
    table = made_up(as_the_paper_says, seconds=superlinear_grid)
    found = verdicts(table)
    assert len(found) == len(CLAIMS) * len(JUDGED)
    assert [verdict for verdict in found if verdict.verdict != "holds"] == []
    assert {verdict.worst.seeds for verdict in found} == {10}
    assert table.chosen(SOFTENED).scale == 1e-6
    times = [v for v in found if "time" in v.claim]
    assert all("grid ~ M^2.00" in v.worst.about and "time ~ M^1.00" in v.worst.about for v in times)
    slopes = [v for v in found if "n^(−1/2)" in v.claim]
    assert all("gap ~ n^-0.80" in v.worst.about for v in slopes)


FALSE = {
    "input perturbation": lambda s, g: g * (0.01 if s.method == "input" and s.rho == 5 else 1),
    "output perturbation": lambda s, g: g * (0.01 if s.method == "output" and s.rho == 0.1 else 1),
    "NonPrivate": lambda s, g: g + (0.05 if s.rho == 40 else 0),
    "horizon H": lambda s, g: g / math.log2(s.horizon) ** 2,
    "|λ|": lambda s, g: g / (3 - 2 * s.boundary) ** 2,
    "w + d": lambda s, g: g / (1 + math.log2(2 * s.products)) ** 2,
    "as M grows": lambda s, g: g * s.granularity,
    "beats a grid": lambda s, g: g * (0.01 if s.method == "grid" and s.granularity == 800 else 1),
    "at least as n": lambda s, g: g * (10_000 / s.trajectories) ** -0.7,
    "at most as (1/ρ)": lambda s, g: g * (1 if math.isinf(s.rho) else s.rho**-0.6),
}


@pytest.mark.parametrize("about", [*FALSE, "time grows"])
def test_a_planted_falsehood_is_found(about: str) -> None:
    """One claim made untrue at a time, if only at a single ρ or M: its verdict turns for every learner."""
    plant = FALSE.get(about, lambda s, g: g)
    # Zones that are slower than a grid have a part in the last claim only.
    seconds = superlinear_grid if about in FALSE else lambda s, rng: s.granularity ** (1 + (s.method != "grid") / 2)
    table = made_up(lambda s, rng: plant(s, as_the_paper_says(s, rng)), seconds=seconds)
    assert {v.verdict for v in verdicts_about(about, table)} == {"does not hold"}


def test_noise_alone_decides_nothing() -> None:
    """Gaps that do not depend on anything: no trend is found, and no more than a few by luck."""
    table = made_up(lambda s, rng: 0.05 + 0.02 * rng.normal())
    trends = [v.verdict for v in verdicts_about("The gap", table)]
    assert trends.count("undecided") >= len(trends) - 2


def test_a_policy_that_never_changes_fails_its_trends_and_what_it_keeps_is_vacuous() -> None:
    constant = made_up(lambda s, rng: 1.3)
    for verdict in verdicts_about("The gap", constant):
        assert verdict.verdict == "does not hold"
        assert "the policy never changes" in verdict.worst.about
    assert {v.verdict for v in verdicts_about("at most as (1/ρ)", constant)} == {"vacuous"}


def test_closeness_is_two_sided() -> None:
    """Far better than NonPrivate is not close to it either, and the number shown is the claim's own."""
    for far in (0.5, -0.5):
        table = made_up(lambda s, rng, far=far: 1.0 + (far if s.rho == 40 else 0) + 0.001 * rng.normal())
        found = verdicts_about("NonPrivate", table)
        assert {v.verdict for v in found} == {"does not hold"}
        assert all(v.worst.value == pytest.approx(-49, abs=0.2) for v in found)


def test_nothing_run_is_not_a_verdict() -> None:
    assert {verdict.verdict for verdict in verdicts(Runs([]))} == {"not run"}
    assert {verdict.verdict for verdict in target_verdicts(Runs([]))} == {"not run"}


def test_targets_follow_the_rows() -> None:
    good = made_up(lambda s, rng: {"input": 3, "output": 4}.get(s.method, 0.001))
    assert {v.verdict for v in target_verdicts(good)} == {"holds"}
    found = target_verdicts(made_up(lambda s, rng: {"input": 1.0, "output": 4}.get(s.method, 0.09)))
    failed = {v.claim for v in found if v.verdict == "does not hold"}
    assert "gap at most 1/20 of IP's at ρ = 1" in failed
    assert "gap to SAA on the same 66 weeks at most 8% at ρ = 1" in failed
    assert "gap at most 1/20 of OP's at ρ = 1" not in failed


def spread(low: float, high: float, seeds: int = 10) -> Estimate:
    """Nearly even between the ends of its 95% interval."""
    width = (high - low) / 0.95
    return Estimate((low + high) / 2, np.linspace(low - 0.025 * width, high + 0.025 * width, 1001), seeds)


def test_the_rule() -> None:
    sure, open_, against, tie = spread(1, 3), spread(-1, 3), spread(-3, -1), spread(0, 0)
    assert judge([sure, sure]) == ("holds", sure)
    assert judge([sure, open_]) == ("undecided", open_)
    assert judge([sure, open_, against]) == ("does not hold", against)
    assert judge([tie])[0] == "does not hold"
    assert judge([spread(1e-15, 1e-13)])[0] == "does not hold"  # rounding is no difference
    assert judge([spread(1, 3, seeds=4)])[0] == "undecided"  # too few seeds to say anything
    narrowly = spread(-3, -0.01)
    assert judge([narrowly])[0] == "does not hold"
    assert judge([narrowly, *[sure] * 7])[0] == "undecided"  # one of eight may fail by chance


@pytest.mark.parametrize("seeds", [5, pytest.param(10, marks=pytest.mark.slow)])
def test_intervals_cover_the_mean_also_of_skewed_gaps(seeds: int) -> None:
    rng = np.random.default_rng(1)
    for draw in (lambda: rng.normal(3, 1, seeds), lambda: rng.exponential(3, seeds)):
        estimates = [of_mean(draw()) for _ in range(300)]
        inside = sum(estimate.low <= 3 <= estimate.high for estimate in estimates)
        assert inside >= 300 * 0.88


@pytest.mark.slow
def test_equal_methods_are_seldom_called_worse() -> None:
    """Eight comparisons of two equal methods, 10 seeds: "does not hold" stays near 5%, not 40%."""
    rng = np.random.default_rng(2)
    found = [judge([of_mean(rng.normal(0, 1, 10)) for _ in range(8)])[0] for _ in range(150)]
    assert found.count("does not hold") <= 15
    assert found.count("holds") <= 2


def test_slopes_worked_by_hand() -> None:
    at = np.array([0.0, 1.0, 2.0])
    assert mean_slope(np.array([[1.0, 3.0, 5.0], [0.0, 0.0, 0.0]]), at).value == pytest.approx(1)
    powers = np.array([[1.0, 0.1, 0.01], [3.0, 0.3, 0.03]])
    assert slope_of_means(powers, np.log([10.0, 100.0, 1000.0])).value == pytest.approx(-1)


def test_privacy_is_measured_on_the_real_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_up, "AUDITED_RELEASES", 1_500)
    found = privacy_verdicts()
    assert [v.learner for v in found] == [NAMES[learner] for learner in JUDGED]
    assert {v.verdict for v in found} == {"holds"}
    assert {v.worst.value for v in found} == {0}  # the worst neighbours use up all that was paid for


@pytest.mark.parametrize(
    ("times", "fault"),
    [
        (Fraction(4), "noise is drawn with another variance than the guarantee states"),  # a quarter of it is drawn
        (Fraction(1, 2), "one unit moves more than was paid for"),
    ],
)
def test_a_planted_privacy_bug_is_found(times: Fraction, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guarantee states many times the true Δ₂² and σ²: Σ Δ₂²/2σ² stays ρ, so only the measurement can find it."""
    honest = release._guarantee

    def scaled(stated: Mechanism) -> Mechanism:
        return replace(stated, sensitivity_squared=stated.sensitivity_squared * times, variance=stated.variance * times)

    monkeypatch.setattr(release, "_guarantee", lambda *log, **_: honest(*log[:3], *map(scaled, log[3:])))
    monkeypatch.setattr(write_up, "AUDITED_RELEASES", 200)
    monkeypatch.setattr("poolrl.audit.faults._counted_faults", lambda *_: [])  # engines have no part in it
    for verdict in privacy_verdicts():
        assert verdict.verdict == "does not hold"
        assert fault in verdict.worst.about
        assert "another rho" not in verdict.worst.about
        assert verdict.worst.value == (1 - 1 / times if times > 1 else -1)
