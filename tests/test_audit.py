"""The audit itself: its bounds against exact distributions, and a sound release, which it must not flag."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from poolrl.audit.audit import attack_case, exceeds
from poolrl.audit.evidence import (
    Errors,
    best_threshold,
    discreteness,
    learned_score,
    rate_limit,
    releases_needed,
    roc,
    stated_score,
)
from poolrl.audit.neighbours import CASES, COUNTED, Case, Exact, Shop, revealed
from poolrl.audit.noise import _windows, noise_faults
from poolrl.privacy import zcdp
from poolrl.privacy.noise.seeded import discrete_gaussian
from tests.helpers.shops import Run


@pytest.mark.parametrize(("errors", "trials"), [(0, 10), (3, 50), (240, 1000), (10, 10)])
def test_the_limit_of_a_rate_is_where_so_few_errors_become_unlikely(errors: int, trials: int) -> None:
    limit = rate_limit(errors, trials, 0.05)
    if errors == trials:
        assert limit == 1.0
    else:
        assert stats.binom.cdf(errors, trials, limit) == pytest.approx(0.05)


def test_bounds_hold_as_often_as_they_say() -> None:
    """Two normal distributions μ apart, exactly; a bound with 90% confidence is too large in at most one of ten."""
    rng, mu, above = np.random.default_rng(0), 1.2, 0
    epsilon = zcdp.gaussian_epsilon(mu**2 / 2, 1e-3)
    for _ in range(400):
        first, second = rng.normal(0, 1, 2000), rng.normal(mu, 1, 2000)
        above += Errors.of(first, second, mu / 2).mu(0.9) > mu
        assert Errors.of(first, second, 2.0).epsilon(1e-3, 0.9) < epsilon
    assert above <= 40


def test_bounds_approach_the_truth() -> None:
    rng, mu = np.random.default_rng(1), 1.5
    first, second = rng.normal(0, 1, 400_000), rng.normal(mu, 1, 400_000)
    assert 0.985 * mu < Errors.of(first, second, mu / 2).mu(0.95) < mu
    # Randomised response is the mechanism for which the bound for any release is tight: ε = log((1 − α) / β).
    answers = rng.random((2, 400_000)) < np.array([[0.2], [0.8]])
    proved = Errors.of(answers[0].astype(float), answers[1].astype(float), 0.5).epsilon(0.0, 0.95)
    assert 0.98 * math.log(4) < proved < math.log(4)


def test_the_score_is_the_likelihood_ratio() -> None:
    rng = np.random.default_rng(2)
    first, second, sigma = rng.integers(0, 5, 7), rng.integers(0, 5, 7), 1.7
    rows = rng.integers(-5, 10, (20, 7)).astype(np.int32)
    by_hand = ((rows - first) ** 2 - (rows - second) ** 2).sum(axis=1) / (2 * sigma**2)
    assert stated_score(rows, first, second, sigma**2) == pytest.approx(by_hand)


def test_the_learned_score_sees_what_the_stated_one_cannot() -> None:
    """Two cells that move alike under one noise: their difference has none, their sum has more than is stated."""
    rng, moved = np.random.default_rng(3), np.array([1, -1])
    noise = rng.normal(0, 3, (2, 4000, 1)).round().astype(np.int32)
    first, second = noise[0] + np.zeros(2, np.int32), noise[1] + moved.astype(np.int32)
    learned = learned_score(first[:1000], second[:1000], 9.0)
    test = Errors.of(learned(first[1000:]), learned(second[1000:]), 0.0)
    assert test.false_positives == test.false_negatives == 0
    assert test.mu(0.999) > 5


def test_discrete_noise_tells_a_little_more_than_a_gaussian() -> None:
    """One count that moves by one under σ² = 1/4, by hand: the best threshold lies between 0 and 1."""
    weights = np.exp(-2.0 * np.arange(-30, 31) ** 2)
    above = weights[31:].sum() / weights.sum()  # P(X ≥ 1)
    assert discreteness(np.array([0, 1, 0]), 0.25) == pytest.approx(-2 * stats.norm.ppf(above) - 2.0)
    assert discreteness(np.array([1]), 0.25) > 0.1
    assert abs(discreteness(np.array([3, -3, 3, -3]), 360.0)) < 1e-4


def test_more_than_a_gaussian_is_flagged_unless_it_is_discreteness() -> None:
    """One count that moves by one under σ² = 1/4: ρ = 2, and the best test reaches more than μ = 2."""
    rng, moved = np.random.default_rng(6), np.array([1])
    noise = discrete((2, 200_000), 0.25, rng)
    test = Errors.of(noise[0], noise[1] + 1, 0.5)
    silent = Errors(500, 1000, 500, 1000)
    assert exceeds(2.0, [test, silent], silent, allowance=0.0)
    assert not exceeds(2.0, [test, silent], silent, allowance=discreteness(moved, 0.25))


def test_a_release_that_seldom_tells_everything_is_flagged() -> None:
    """Right without fail when it speaks, one time in twenty: only the bound for any release sees that."""
    silent, seldom = Errors(500, 1000, 500, 1000), Errors(0, 10**6, 950_000, 10**6)
    assert exceeds(1.0, [silent, silent], seldom, allowance=0.0)
    assert not exceeds(1.0, [silent, silent], Errors(0, 10**4, 9500, 10**4), allowance=0.0)


@pytest.mark.parametrize("mu", [0.2, 1.4, 3.0])
def test_the_number_of_releases_that_is_asked_for_is_enough(mu: float) -> None:
    rng, each = np.random.default_rng(7), releases_needed(mu, 0.9, 0.95) // 2
    proved = [
        Errors.of(rng.normal(0, 1, each), rng.normal(mu, 1, each), mu / 2).mu(0.95) ** 2 / mu**2 for _ in range(20)
    ]
    assert np.median(proved) == pytest.approx(0.9, abs=0.03)


def discrete(shape: tuple[int, ...], variance: float, rng: np.random.Generator) -> NDArray[np.int32]:
    support, weights = discrete_gaussian(math.sqrt(variance))
    return rng.choice(support, p=weights, size=shape).astype(np.int32)


def test_noise_is_looked_at_number_by_number() -> None:
    """Also where no unit moves anything: a number without noise, with less, off centre, or with another's."""
    rng = np.random.default_rng(5)
    first, second = discrete((2, 10_000, 30), 9.0, rng)
    assert noise_faults(first, second, 9.0) == []
    sign = rng.choice([-1, 1], 20_000)
    both = np.concatenate([first, second])
    for column, fault in (
        (np.zeros(20_000), "a number has less noise than is stated"),
        (discrete((20_000,), 8.1, rng), "a number has less noise than is stated"),  # a tenth of its variance
        (both[:, 7] + 1, "the noise of a number is not centred"),
        (2 * (both[:, 7] // 2), "the noise of a number does not have the stated distribution"),
        (np.clip(both[:, 7], -8, 8), "the noise of a number does not have the stated distribution"),
        (both[:, 0], "two numbers share noise"),
        (np.where(rng.random(20_000) < 0.8, both[:, 1], -both[:, 1]), "two numbers share noise"),
        (sign * both[:, 1], "two numbers share the size of their noise"),
        (np.repeat(both[::2, 7], 2), "two releases share the noise of a number"),
    ):
        spoilt = both.copy()
        spoilt[:, 7] = column
        assert fault in noise_faults(spoilt[:10_000], spoilt[10_000:], 9.0), fault
    again = second.copy()
    again[17] = first[4]
    assert noise_faults(first, again, 9.0) == ["two releases have the same noise"]
    twins = second.copy()
    twins[:, 7] = first[:, 7]
    assert noise_faults(first, twins, 9.0) == ["two releases share the noise of a number"]


def test_noise_that_comes_back_at_another_place_is_seen() -> None:
    """A stream that is not moved on far enough, or cut in other places for the other log."""
    rng = np.random.default_rng(6)
    stream = discrete((2000 * 15 + 30,), 9.0, rng)
    overlapping = np.stack([stream[15 * i : 15 * i + 30] for i in range(2000)])
    assert "two releases share the noise of a number" in noise_faults(overlapping[:1000], overlapping[1000:], 9.0)
    first, second = discrete((2, 1000, 30), 9.0, rng)
    second[:, 1:] = first[::-1, :-1]
    assert noise_faults(first, second, 9.0) == ["two releases have the same noise"]
    first, second = discrete((2, 1000, 30), 9.0, rng)
    first[1:, 20] = first[:-1, 5]
    assert noise_faults(first, second, 9.0) == ["two releases share the noise of a number"]
    first, second = discrete((2, 1000, 30), 9.0, rng)
    second[400, 9:] = first[700, 2:23]  # one stretch, once
    assert noise_faults(first, second, 9.0) == ["two releases have the same noise"]


def test_of_many_windows_equal_ones_are_kept_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.tile(discrete((500, 30), 9.0, np.random.default_rng(7)), (2, 1))
    monkeypatch.setattr("poolrl.audit.noise.MOST_WINDOWS", 2000)
    hashes, release, start = _windows(rows, 12)
    assert 1400 < len(hashes) < 2600  # of 19,000
    where = set(zip(release.tolist(), start.tolist(), strict=True))
    assert where == {((r + 500) % 1000, s) for r, s in where}
    assert all(len(np.unique(hashes[(release % 500 == r) & (start == s)])) == 1 for r, s in where if r < 500)


def test_what_one_log_has_too_much_of_does_not_make_up_for_the_other() -> None:
    rng = np.random.default_rng(8)
    first, second = discrete((5000, 30), 7.2, rng), discrete((5000, 30), 10.8, rng)
    assert "a number has less noise than is stated" in noise_faults(first, second, 9.0)
    # Signs that agree in one log and differ in the other tell them apart, and are no correlation of both together.
    first, second = discrete((2, 5000, 30), 9.0, rng)
    for rows, way in ((first, 1), (second, -1)):
        rows[:, 7] = way * np.sign(rows[:, 3]) * np.abs(rows[:, 7])
    assert "two numbers share noise" in noise_faults(first, second, 9.0)


@pytest.mark.parametrize("variance", [0.01, 0.04, 0.1, 0.25, 1.0, 30.0])
@pytest.mark.parametrize("releases", [50, pytest.param(2000, marks=pytest.mark.slow)])
def test_sound_noise_fails_no_oftener_than_it_may(
    variance: float, releases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A millionth cannot be counted: each check may be wrong once in fifty times, and sound noise comes in."""
    monkeypatch.setattr("poolrl.audit.noise.EACH", 0.02)
    rng = np.random.default_rng(9)
    found = [noise_faults(*discrete((2, releases, 30), variance, rng), variance) for _ in range(50)]
    for check in {fault for faults in found for fault in faults}:
        assert sum(check in faults for faults in found) <= 5, check


@pytest.mark.parametrize("rho", [pytest.param(0.001, marks=pytest.mark.slow), 25.0, 300.0])
def test_budgets_at_which_little_can_be_seen(rho: float) -> None:
    """Noise of several hundred, or hardly any: nothing is flagged, and the verdict says that the audit was too weak."""
    found = attack_case(CASES[2], rho=rho, releases=400, noise="seeded")
    assert found.faults == ()
    assert found.verdict == "too weak"


def test_thresholds_and_curves() -> None:
    rng = np.random.default_rng(4)
    first, second = rng.normal(0, 1, 20_000), rng.normal(1, 1, 20_000)
    far = best_threshold(first, second, delta=1e-6, confidence=0.95)
    tests = {at: Errors.of(first, second, at).epsilon(1e-6, 0.95) for at in (far, 0.5)}
    assert tests[far] > tests[0.5] > 0
    false, true = roc(first, second)
    assert (np.diff(false) >= 0).all()
    assert (np.diff(true) >= 0).all()
    assert np.interp(0.2, false, true) == pytest.approx(zcdp.gaussian_attack_power(0.5, 0.2), abs=0.02)


@pytest.mark.parametrize(
    ("case", "shop"),
    [
        pytest.param(case, shop, id=f"{case.name}, {name}")
        for case in CASES
        for name, shop in ({"attacked": case.shop} | (COUNTED if case.others_are_counted else {})).items()
    ],
)
def test_the_logs_use_up_what_was_paid_for(case: Case, shop: Shop) -> None:
    """The worst case indeed: the squared change is Δ₂², of every table, in integers."""
    prepared = case.prepared(1.0, shop)
    rows = [revealed(prepared, prepared.release(log, Exact())) for log in case.logs(shop)]
    paid_for = sum(m.sensitivity_squared for m in rows[0].public["guarantee"].mechanisms)
    assert ((rows[0].numbers - rows[1].numbers) ** 2).sum() == paid_for
    assert rows[0].public == rows[1].public


@pytest.mark.parametrize(
    "noise", ["secure", *(pytest.param(each, marks=pytest.mark.slow) for each in ("opendp", "seeded"))]
)
@pytest.mark.parametrize("case", [CASES[1], pytest.param(CASES[2], marks=pytest.mark.slow)], ids=lambda case: case.name)
def test_a_sound_release_is_not_flagged(case: Case, noise: str) -> None:
    found = attack_case(case, releases=800 if noise == "opendp" else 1600, noise=noise)
    assert found.faults == ()
    assert 0.2 < found.rho_bound < 1.2  # the attack works, and not too well
    assert found.epsilon_bound < found.epsilon


def test_the_command_writes_figures_and_a_picture(tmp_path: Path, run: Run) -> None:
    said = run("audit", "default", "--releases", "100", "--workers", "1", "--out", tmp_path / "audit")
    assert "epsilon = 7.77 at delta = 1e-06" in said
    assert "4 audits, 0 flagged" in said
    facts = json.loads((tmp_path / "audit/audit.json").read_text())
    assert facts["private"] is True
    assert [each["trajectories_per_unit"] for each in facts["audits"]] == [1, 3, 1, 1]
    assert not any(each["flagged"] for each in facts["audits"])
    assert {"audit.svg", "audit.png", "audit.json"} == {path.name for path in (tmp_path / "audit").iterdir()}
    with pytest.raises(ValueError, match="exists, and no audit is written over another"):
        run("audit", "--out", tmp_path / "audit")


def test_an_audit_of_seeded_noise_says_that_it_is_not_private(tmp_path: Path, run: Run) -> None:
    said = run(
        "audit", "default", "--releases", "100", "--noise", "seeded", "--workers", "1", "--out", tmp_path / "dry"
    )
    assert "NOT PRIVATE" in said
    assert "NOT PRIVATE" in (tmp_path / "dry/audit.svg").read_text()
    assert json.loads((tmp_path / "dry/audit.json").read_text())["private"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["defualt"], "did you mean default"),
        (["--noise", "none"], "noise must be one of secure, opendp, seeded"),
        (["--rho", "inf"], "rho must be finite"),
        (["--rho", "-1"], "rho must be positive"),
        (["--rho", "1e-6", "--releases", "100"], "rho must be larger for an audit"),
        (["--rho", "1e4", "--releases", "100"], "rho must be smaller for an audit"),
        (["--releases", "10"], "releases must be a whole number of at least 100"),
        (["--times", "0"], "times must be a whole number"),
        (["--workers", "0"], "workers must be a whole number"),
    ],
)
def test_what_cannot_be_audited_is_said(
    arguments: list[str], words: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=words):
        run("audit", *arguments)
    assert list(tmp_path.iterdir()) == []
