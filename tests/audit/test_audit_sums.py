"""The audit attacks a fit as it is released: trees and sums of what was left, each with its own noise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from poolrl import Backlog, LostSales
from poolrl.audit.attack import attack_case, discreteness, joint_discreteness, stated_score
from poolrl.audit.cases import CASES, AuditCase
from poolrl.audit.faults import Exact, Revealed, moved_share, moved_tables, revealed
from poolrl.audit.noise import noise_parts
from poolrl.checks import IntArray
from poolrl.cli.audit import configured_case
from poolrl.data.counts import ON_TOP, sum_left
from poolrl.privacy import release, sensitivity
from poolrl.privacy.noise import secure as noise
from poolrl.privacy.noise.source import discrete_gaussian
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.paying import ON_TOP_SHARE
from tests.helpers.neighbours import plant_layout
from tests.helpers.noisy import discrete, noise_faults
from tests.helpers.shops import Facts, Run, write_config

FACTS: dict[str, Any] = {"horizon": 3, "products": 2, "holding": 1.0, "shortage": 1.0, "demand_max": [40.0, 60.0]}
LABELS = {"labels": {"size": ["large", "small"]}}
SUMS: dict[str, Any] = {"on_top": {"left_over": ON_TOP_SHARE}, "units": 30}
LABELLED = replace(CASES[8], engine="arrays")
SHARED, COUPLED = "two numbers share noise, or its size", "two releases share noise, or its size"
OTHER_VARIANCE = "noise is drawn with another variance than the guarantee states"
TOO_LITTLE = "the noise has another variance than is stated"
UNPAID = "one unit moves more than was paid for"
Plant = pytest.MonkeyPatch


@pytest.fixture
def attacked_alone(monkeypatch: Plant) -> None:
    """For plants in the noise: no engines, and no self-test."""
    monkeypatch.setattr("poolrl.audit.faults._counted_faults", lambda *_: [])
    monkeypatch.setattr(noise, "require_sound_sampler", lambda: None)
    monkeypatch.setattr("poolrl.audit.faults.sampler_faults", list)


def exact(case: AuditCase, engine: str = "arrays") -> tuple[Revealed, Revealed]:
    prepared = case.prepared(1.0)
    with case.logs(engine) as (one, other):
        first, second = (revealed(prepared, prepared.release(log, Exact())) for log in (one, other))
    return first, second


@pytest.mark.parametrize("engine", ["arrays", pytest.param("table", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("case", "share"),
    [
        (AuditCase(LostSales(**FACTS), **SUMS), 1),
        (AuditCase(LostSales(**FACTS), per_unit=3, **SUMS), 1),
        (AuditCase(LostSales(**FACTS, **LABELS), per_unit=2, **SUMS), 1),
        (AuditCase(LostSales(**FACTS), scaled=True, scale_memory=4, **SUMS), 1),
        # Labels are paid for twice, because a unit may leave a cell for another. Here it stays.
        (AuditCase(LostSales(**FACTS, **LABELS), labels_public=True, **SUMS), Fraction(1, 2)),
        (AuditCase(LostSales(**FACTS, **LABELS), scaled=True, scale_memory=4, **SUMS), Fraction(1, 2)),
        # Behind λ = 3/4 at most 24 of 32 parts are left. With a scale, a quarter of the bound must be sold besides.
        (AuditCase(LostSales(**FACTS, boundary=0.75), **SUMS), Fraction(9, 16)),
        (AuditCase(LostSales(**FACTS, boundary=0.75), scaled=True, scale_memory=4, **SUMS), Fraction(1, 4)),
    ],
    ids=lambda each: each.name if isinstance(each, AuditCase) else None,
)
def test_the_logs_move_both_mechanisms_at_once(case: AuditCase, share: Fraction, engine: str) -> None:
    """All that the trees pay for, and of the sums what is possible at the same time, in whole numbers."""
    first, second = exact(case, engine)
    trees, sums = moved_tables(first, second)
    assert (trees.share, sums.share) == (1, pytest.approx(share, abs=0.02) if share == Fraction(1, 4) else share)
    assert (trees.stated.rho, sums.stated.rho) == (Fraction(9, 10), Fraction(1, 10))
    assert moved_share(first, second) == pytest.approx(float(0.9 + sums.share / 10))


def test_a_backlog_has_no_sums(tmp_path: Path, facts: Facts) -> None:
    assert configured_case(load_config(write_config(tmp_path, facts))).on_top["left_over"] == ON_TOP_SHARE
    facts["problem"] |= {"kind": "backlog"}
    case = configured_case(load_config(write_config(tmp_path, facts)))
    assert isinstance(case.problem, Backlog)
    assert case.on_top["left_over"] == 0.0


def test_the_score_is_the_likelihood_ratio_of_both() -> None:
    """Against the sum of the logarithms of normal densities."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 9, (2, 6))
    variances = np.array([4.0, 4.0, 4.0, 900.0, 900.0, 900.0])
    rows = rng.integers(-40, 60, (20, 6)).astype(np.int32)
    logs = [stats.norm.logpdf(rows, mean, np.sqrt(variances)).sum(axis=1) for mean in (first, second)]
    assert stated_score(rows, first, second, variances) == pytest.approx(logs[1] - logs[0])


def test_discreteness_of_two_variances() -> None:
    """Against every pair of values of two numbers: no test does better than the limit."""
    (one, p), (other, q) = discrete_gaussian(math.sqrt(0.25)), discrete_gaussian(math.sqrt(3.0))
    score = (one[:, None] / 0.25 + 2 * other / 3.0).ravel()
    weight, shift = np.outer(p, q).ravel(), 1 / 0.25 + 4 / 3.0
    best = 0.0
    for threshold in np.unique(np.round(score, 9)) + 1e-6:
        alpha, beta = weight[score > threshold].sum(), weight[score + shift <= threshold].sum()
        if min(alpha, beta) > 1e-7:
            best = max(best, -stats.norm.ppf(alpha) - stats.norm.ppf(beta) - math.sqrt(shift))
    limit = joint_discreteness(np.array([1, -2]), np.array([0.25, 3.0]))
    assert 0.05 < best <= limit
    # √Σ (μᵢ + aᵢ)² − √Σ μᵢ² ≤ Σ aᵢ, and for one variance it is a.
    alone = discreteness(np.array([1]), 0.25), discreteness(np.array([2]), 3.0)
    assert limit <= sum(alone)
    assert joint_discreteness(np.array([1]), np.array([0.25])) == pytest.approx(alone[0])


def test_discreteness_does_not_depend_on_the_unit() -> None:
    """A number that moves by 6 under σ² = 9, by hand: α = P(X > t) and β = P(X + 6 ≤ t)."""
    _, weights = discrete_gaussian(3.0)
    below = np.cumsum(weights)
    alpha, beta = 1 - below[6:], below[:-6]
    kept = (alpha > 1e-7) & (beta > 1e-7)
    by_hand = (-stats.norm.ppf(alpha[kept]) - stats.norm.ppf(beta[kept])).max() - 2.0
    assert discreteness(np.array([6]), 9.0) == pytest.approx(by_hand)


VARIANCES = np.repeat([9.0, 900.0], [48, 6])


def from_words(words: Any, variance: float) -> Any:
    """The discrete Gaussian number of each uniform word."""
    support, weights = discrete_gaussian(math.sqrt(variance))
    return support[np.searchsorted(np.cumsum(weights)[:-1], words, side="right")].astype(np.int32)


def two_parts(rng: np.random.Generator, releases: int) -> list[Any]:
    """Sound noise of both logs, 48 numbers and 6."""
    return [
        np.concatenate([discrete((releases, 48), 9.0, rng), discrete((releases, 6), 900.0, rng)], axis=1)
        for _ in range(2)
    ]


def same_words(rows: list[Any], words: Any) -> None:
    for each, drawn in zip(rows, words, strict=True):
        each[:, 10:16], each[:, 48:] = from_words(drawn, 9.0), from_words(drawn, 900.0)


def one_word(rows: list[Any], words: Any) -> None:
    for each, drawn in zip(rows, words, strict=True):
        each[:, 31], each[:, 50] = from_words(drawn[:, 0], 9.0), from_words(drawn[:, 0], 900.0)


def same_size(rows: list[Any], words: Any) -> None:
    same_words(rows, words)
    for each in rows:
        each[:, 48:] *= np.random.default_rng(1).choice([-1, 1], (len(each), 6))


def of_the_next_release(rows: list[Any], words: Any) -> None:
    same_words(rows, words)
    for each in rows:
        each[:, 48:] = np.roll(each[:, 48:], 1, axis=0)


def of_the_other_log(rows: list[Any], words: Any) -> None:
    same_words(rows, words)
    rows[0][:, 48:], rows[1][:, 48:] = rows[1][:, 48:].copy(), rows[0][:, 48:].copy()


@pytest.mark.parametrize(
    ("share", "fault"),
    [
        (same_words, SHARED),
        (one_word, SHARED),
        (same_size, SHARED),
        (of_the_next_release, COUPLED),
        (of_the_other_log, COUPLED),
    ],
)
def test_tables_that_share_draws_are_seen(share: Callable[[list[Any], Any], None], fault: str) -> None:
    """Each table by itself is sound: another variance hides the draws from every test of one table."""
    rng = np.random.default_rng(3)
    rows = two_parts(rng, 1000)
    assert noise_faults(rows[0], rows[1], VARIANCES) == []
    share(rows, rng.random((2, 1000, 6)))
    assert noise_faults(rows[0], rows[1], VARIANCES) == [fault]


def test_a_part_with_the_other_part_s_variance_is_seen() -> None:
    rng = np.random.default_rng(4)
    rows = two_parts(rng, 500)
    for each in rows:
        each[:, 48:] = discrete((500, 6), 9.0, rng)
    assert TOO_LITTLE in noise_faults(rows[0], rows[1], VARIANCES)


@pytest.mark.parametrize("variances", [(0.02, 0.1), (0.1, 30.0), (9.0, 900.0)])
def test_sound_parts_fail_no_oftener_than_they_may(variances: tuple[float, float], monkeypatch: Plant) -> None:
    """Each check may be wrong once in 25 times, and sound noise comes in."""
    monkeypatch.setattr("poolrl.audit.noise.EACH", 0.04)
    rng, found = np.random.default_rng(5), []
    for _ in range(25):
        first, second = (
            np.concatenate([discrete((50, 20), variances[0], rng), discrete((50, 4), variances[1], rng)], axis=1)
            for _ in range(2)
        )
        found += noise_faults(first, second, np.repeat(variances, [20, 4]))
    assert all(found.count(fault) <= 5 for fault in found)


def test_numbers_of_one_variance_are_one_part() -> None:
    parts = noise_parts(np.array([9.0, 9.0, 16.0, 9.0]))
    assert [(each.places.tolist(), each.variance) for each in parts] == [([0, 1, 3], 9.0), ([2], 16.0)]


def half(formula: Any, problem: Any, *, per_unit: int) -> sensitivity.TableLayout:
    """A planted bug: half of the sensitivity."""
    layout = formula(problem, per_unit=per_unit)
    return replace(layout, sensitivity_squared=layout.sensitivity_squared / 2)


def drawn_otherwise(monkeypatch: Plant, change: Callable[[list[Fraction], Fraction], Fraction]) -> None:
    """Sums (labels, H, k) are drawn with a variance that depends on the trees' and on their own."""
    honest, trees = noise._SecureSampler.add, list[Fraction]()

    def add(self: Any, counts: IntArray, variance: Fraction) -> IntArray:
        if counts.ndim >= 4:
            trees.append(variance)
        return honest(self, counts, change(trees, variance) if counts.shape == (3, 3, 2) else variance)

    monkeypatch.setattr(noise._SecureSampler, "add", add)


@pytest.mark.usefixtures("attacked_alone")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda trees, _: trees[-1], id="the variance of the trees"),
        pytest.param(lambda _, own: own * Fraction(1, 10), id="noise for the whole rho"),
    ],
)
def test_sums_with_too_little_noise_are_flagged(monkeypatch: Plant, change: Any) -> None:
    """In the sampler, after the variance was checked: the tests of noise see it."""
    drawn_otherwise(monkeypatch, change)
    found = attack_case(LABELLED, releases=1000)
    assert TOO_LITTLE in found.faults
    assert found.verdict == "FLAGGED"


@pytest.mark.usefixtures("attacked_alone")
def test_a_door_that_draws_sums_with_the_variance_of_the_trees_is_flagged(monkeypatch: Plant) -> None:
    """Without statistics: the guarantee states the right variances, and any sampler is asked for others."""
    honest = release.release_outcomes

    class Door:
        def __init__(self, source: Any) -> None:
            self.source = source

        def begin(self) -> Any:
            self.sampler, self.trees = self.source.begin(), list[Fraction]()
            return self

        def add(self, counts: IntArray, variance: Fraction) -> IntArray:
            self.trees.append(variance)
            drawn: IntArray = self.sampler.add(counts, self.trees[0])
            return drawn

    def planted(log: Any, problem: Any, *, noise: Any, **budgets: Any) -> Any:
        return honest(log, problem, noise=Door(noise), **budgets)

    monkeypatch.setattr("poolrl.pool.release_outcomes", planted)
    assert OTHER_VARIANCE in attack_case(LABELLED, releases=200).faults


@pytest.mark.usefixtures("attacked_alone")
def test_sums_that_share_the_draws_of_the_trees_are_flagged(monkeypatch: Plant) -> None:
    """The sampler begins anew for the sums, with the key of the trees."""
    honest = noise._SecureSampler.add

    def add(self: Any, counts: IntArray, variance: Fraction) -> IntArray:
        if counts.shape == (3, 3, 2):
            self._stream._taken = 0
        return honest(self, counts, variance)

    monkeypatch.setattr(noise._SecureSampler, "add", add)
    found = attack_case(LABELLED, releases=600)
    assert SHARED in found.faults
    assert {*found.faults} == {SHARED}


@pytest.mark.usefixtures("attacked_alone")
@pytest.mark.parametrize(
    "declared",
    [{"labels_public": True, "labels": {"size": [1, 2, 3]}}, {"per_unit": 2, "boundary": 0.6}],
    ids=["public labels", "a boundary"],
)
def test_a_door_that_pays_half_is_flagged_where_no_pair_of_logs_moves_all(
    monkeypatch: Plant, declared: dict[str, Any]
) -> None:
    def of_problem(name: str) -> dict[str, Any]:
        return {name: declared[name]} if name in declared else {}

    problem = LostSales(**FACTS | of_problem("labels") | of_problem("boundary"))
    case = AuditCase(problem, engine="arrays", **SUMS | of_problem("labels_public") | of_problem("per_unit"))
    assert UNPAID not in attack_case(case, releases=200).faults
    halves = {name: replace(table, layout=partial(half, table.layout)) for name, table in sensitivity.ON_TOP.items()}
    monkeypatch.setattr(release, "sensitivity", SimpleNamespace(**vars(sensitivity) | {"ON_TOP": halves}))
    found = attack_case(case, releases=200)
    assert UNPAID in found.faults
    assert all(each.share <= 1 for each in found.tables)


@pytest.mark.usefixtures("attacked_alone")
def test_a_label_that_is_paid_for_once_is_flagged(monkeypatch: Plant) -> None:
    honest = sensitivity.left_sums

    plant_layout(monkeypatch, "left_over", partial(half, honest))
    found = attack_case(LABELLED, releases=200)
    assert UNPAID in found.faults
    assert [float(each.share) for each in found.tables] == [1.0, 2.0]


@pytest.mark.usefixtures("attacked_alone")
def test_sums_that_nobody_paid_for_are_flagged(monkeypatch: Plant) -> None:
    """Released, but missing in the guarantee."""
    honest = release._guarantee
    monkeypatch.setattr(release, "_guarantee", lambda log, problem, noise, *all_: honest(log, problem, noise, all_[0]))
    found = attack_case(LABELLED, releases=200)
    assert {"one unit moves more than was paid for", "the guarantee states another rho"} <= set(found.faults)


@pytest.mark.slow
def test_sums_of_a_table_are_compared_with_those_of_arrays(monkeypatch: Plant) -> None:
    def lacking(log: Any, problem: Any, _: Any) -> IntArray:
        return sum_left(log, problem) - (type(log).__name__ == "Table")

    monkeypatch.setitem(ON_TOP, "left_over", lacking)
    found = attack_case(LABELLED, releases=200)
    assert "a table in an engine gives other counts than the same arrays" in found.faults


@pytest.mark.slow
def test_the_command_flags_sums_with_the_noise_of_another_budget(
    tmp_path: Path, facts: Facts, run: Run, monkeypatch: Plant
) -> None:
    """A tenth of rho is charged, and noise is drawn for all of it: by `poolrl audit --config`, and honestly before."""
    facts["problem"]["boundary"] = 1.0
    config = write_config(tmp_path, facts | {"plan": {"units": 40}})
    attack = ["audit", "--config", config, "--releases", "400", "--workers", "1", "--out"]
    said = " ".join(run(*attack, tmp_path / "honest").split())
    assert "100% of outcome trees (rho = 0.45), 100% of stock left over (rho = 0.05)" in said
    tables = json.loads((tmp_path / "honest/audit.json").read_text())["audits"][0]["tables"]
    # Δ₂² = H k c² P² with H = 3, k = 2, c = 1, P = 32, and σ² = Δ₂² / 2ρ.
    assert tables[1] == {
        "name": "stock left over",
        "numbers": 6,
        "rho": 0.05,
        "variance": str(3 * 2 * 32**2 * 10),
        "moved_share": 1.0,
    }
    honest = noise._SecureSampler.add
    of_sums = Fraction(tables[1]["variance"])

    def add(self: Any, counts: IntArray, variance: Fraction) -> IntArray:
        return honest(self, counts, variance / 10 if variance == of_sums else variance)

    monkeypatch.setattr(noise._SecureSampler, "add", add)
    with pytest.raises(SystemExit) as ended:
        run(*attack, tmp_path / "planted")
    assert ended.value.code == 1
    found = json.loads((tmp_path / "planted/audit.json").read_text())["audits"][0]
    assert found["verdict"] == "FLAGGED"
    assert TOO_LITTLE in found["faults"]


PAIRED = replace(CASES[9], engine="arrays")


def test_an_honest_release_of_pairs_is_not_flagged() -> None:
    """The two logs move all that pairs pay for: both products sell out, and then nothing is sold."""
    found = attack_case(PAIRED, releases=2_000)
    assert not found.faults
    _, (stated, share) = moved_tables(*exact(PAIRED))
    assert (stated.name, share) == ("products that sell together", 1)


def test_pairs_with_the_noise_of_half_a_row_are_flagged(monkeypatch: Plant) -> None:
    honest = sensitivity.pair_sums

    plant_layout(monkeypatch, "together", partial(half, honest))
    assert UNPAID in attack_case(PAIRED, releases=200).faults


@pytest.mark.parametrize("memory", [0, 2])
def test_pairs_move_all_that_is_paid_for_with_a_scale_too(memory: int) -> None:
    case = AuditCase(
        LostSales(**FACTS), on_top={"together": 0.1}, scaled=True, scale_memory=memory, units=5, engine="arrays"
    )
    shares = {stated.name: share for stated, share in moved_tables(*exact(case))}
    assert shares == {"outcome trees": 1, "products that sell together": 1}
