"""The audit attacks a fit as it is released: trees and sums of what was left, each with its own noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from poolrl import LostSales
from poolrl.audit.attack import attack_case
from poolrl.audit.cases import CASES, AuditCase
from poolrl.audit.noise import noise_parts
from poolrl.checks import IntArray
from poolrl.privacy import release, sensitivity
from poolrl.privacy.noise import secure as noise
from poolrl.privacy.noise.source import discrete_gaussian
from poolrl.workflow.paying import ON_TOP_SHARE
from tests.helpers.neighbours import plant_layout
from tests.helpers.noisy import discrete, noise_faults

FACTS: dict[str, Any] = {"horizon": 3, "products": 2, "holding": 1.0, "shortage": 1.0, "demand_max": [40.0, 60.0]}
SUMS: dict[str, Any] = {"on_top": {"left_over": ON_TOP_SHARE}, "units": 30, "engine": "arrays"}
LABELLED, PAIRED = (replace(case, engine="arrays") for case in CASES[8:10])
SHARED, COUPLED = "two numbers share noise, or its size", "two releases share noise, or its size"
OTHER_VARIANCE = "noise is drawn with another variance than the guarantee states"
TOO_LITTLE = "the noise has another variance than is stated"
UNPAID = "one unit moves more than was paid for"
Plant = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def attacked_alone(monkeypatch: Plant) -> None:
    """For plants in the noise: no engines, and no self-test."""
    monkeypatch.setattr("poolrl.audit.faults._counted_faults", lambda *_: [])
    monkeypatch.setattr(noise, "require_sound_sampler", lambda: None)
    monkeypatch.setattr("poolrl.audit.faults.sampler_faults", list)


VARIANCES = np.repeat([9.0, 900.0], [48, 6])


def from_words(words: Any, variance: float) -> Any:
    """The discrete Gaussian number of each uniform word."""
    support, weights = discrete_gaussian(math.sqrt(variance))
    return support[np.searchsorted(np.cumsum(weights)[:-1], words, side="right")].astype(np.int32)


def two_parts(rng: np.random.Generator, releases: int, numbers: tuple[int, int], variances: tuple[float, float]) -> Any:
    """Sound noise of both logs, (2, releases, numbers), with two variances."""
    parts = [discrete((2, releases, many), variance, rng) for many, variance in zip(numbers, variances, strict=True)]
    return np.concatenate(parts, axis=2)


@pytest.mark.parametrize(
    ("many", "change", "fault"),
    [
        pytest.param(6, lambda drawn: drawn, SHARED, id="the same words"),
        pytest.param(1, lambda drawn: drawn, SHARED, id="one word"),
        pytest.param(
            6, lambda drawn: drawn * np.random.default_rng(1).choice([-1, 1], drawn.shape), SHARED, id="the same size"
        ),
        pytest.param(6, lambda drawn: np.roll(drawn, 1, axis=1), COUPLED, id="of the next release"),
        pytest.param(6, lambda drawn: drawn[::-1], COUPLED, id="of the other log"),
    ],
)
def test_tables_that_share_draws_are_seen(many: int, change: Callable[[Any], Any], fault: str) -> None:
    """Each table by itself is sound: another variance hides the draws from every test of one table."""
    rng = np.random.default_rng(3)
    rows = two_parts(rng, 1000, (48, 6), (9.0, 900.0))
    assert noise_faults(*rows, VARIANCES) == []
    words = rng.random((2, 1000, many))
    rows[..., 10 : 10 + many], rows[..., 48 : 48 + many] = from_words(words, 9.0), change(from_words(words, 900.0))
    assert noise_faults(*rows, VARIANCES) == [fault]


def test_a_part_with_the_other_part_s_variance_is_seen() -> None:
    rows = two_parts(np.random.default_rng(4), 500, (48, 6), (9.0, 9.0))
    assert TOO_LITTLE in noise_faults(*rows, VARIANCES)


@pytest.mark.parametrize("variances", [(0.02, 0.1), (0.1, 30.0), (9.0, 900.0)])
def test_sound_parts_fail_no_oftener_than_they_may(variances: tuple[float, float], monkeypatch: Plant) -> None:
    """Each check may be wrong once in 25 times, and sound noise comes in."""
    monkeypatch.setattr("poolrl.audit.noise.EACH", 0.04)
    rng, found = np.random.default_rng(5), []
    for _ in range(25):
        found += noise_faults(*two_parts(rng, 50, (20, 4), variances), np.repeat(variances, [20, 4]))
    assert all(found.count(fault) <= 5 for fault in found)


def test_numbers_of_one_variance_are_one_part() -> None:
    parts = noise_parts(np.array([9.0, 9.0, 16.0, 9.0]))
    assert [(each.places.tolist(), each.variance) for each in parts] == [([0, 1, 3], 9.0), ([2], 16.0)]


def half(formula: Any, problem: Any, *, per_unit: int) -> sensitivity.TableLayout:
    """A planted bug: half of the sensitivity."""
    layout = formula(problem, per_unit=per_unit)
    return replace(layout, sensitivity_squared=layout.sensitivity_squared / 2)


def begun_anew(sampler: Any, drawn: list[Fraction]) -> Fraction:
    """With the key of the trees."""
    sampler._stream._taken = 0
    return drawn[-1]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        pytest.param(lambda _, drawn: drawn[0], TOO_LITTLE, id="the variance of the trees"),
        pytest.param(lambda _, drawn: drawn[-1] / 10, TOO_LITTLE, id="noise for the whole rho"),
        pytest.param(begun_anew, SHARED, id="the draws of the trees"),
    ],
)
def test_sums_with_other_noise_are_flagged(
    change: Callable[[Any, list[Fraction]], Fraction], fault: str, monkeypatch: Plant
) -> None:
    """In the sampler, after the variance was checked: the tests of noise see it."""
    honest, asked = noise._SecureSampler.add, list[Fraction]()

    def add(self: Any, counts: IntArray, variance: Fraction) -> IntArray:
        asked.append(variance)
        return honest(self, counts, change(self, asked) if counts.shape == (3, 3, 2) else variance)

    monkeypatch.setattr(noise._SecureSampler, "add", add)
    found = attack_case(LABELLED, releases=600)
    assert fault in found.faults
    assert found.verdict == "FLAGGED"
    assert fault != SHARED or {*found.faults} == {SHARED}


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

    monkeypatch.setattr("poolrl.pool.release_outcomes", lambda *log, noise, **to: honest(*log, noise=Door(noise), **to))
    assert OTHER_VARIANCE in attack_case(LABELLED, releases=200).faults


@pytest.mark.parametrize(
    "case",
    [
        AuditCase(LostSales(**FACTS, labels={"size": [1, 2, 3]}), labels_public=True, **SUMS),
        AuditCase(LostSales(**FACTS, boundary=0.6), per_unit=2, **SUMS),
    ],
    ids=["public labels", "a boundary"],
)
def test_a_door_that_pays_half_is_flagged_where_no_pair_of_logs_moves_all(case: AuditCase, monkeypatch: Plant) -> None:
    assert UNPAID not in attack_case(case, releases=200).faults
    halves = {name: replace(table, layout=partial(half, table.layout)) for name, table in sensitivity.ON_TOP.items()}
    monkeypatch.setattr(release, "sensitivity", SimpleNamespace(**vars(sensitivity) | {"ON_TOP": halves}))
    found = attack_case(case, releases=200)
    assert UNPAID in found.faults
    assert all(each.share <= 1 for each in found.tables)


@pytest.mark.parametrize(("table", "case"), [("left_over", LABELLED), ("together", PAIRED)])
def test_a_formula_that_asks_for_half_is_flagged(table: str, case: AuditCase, monkeypatch: Plant) -> None:
    """A label that is paid for once, and pairs with the noise of half a row."""
    plant_layout(monkeypatch, table, partial(half, sensitivity.ON_TOP[table].layout))
    found = attack_case(case, releases=200)
    assert UNPAID in found.faults
    assert [float(each.share) for each in found.tables] == [1.0, 2.0]


def test_sums_that_nobody_paid_for_are_flagged(monkeypatch: Plant) -> None:
    """Released, but missing in the guarantee."""
    honest = release._guarantee
    monkeypatch.setattr(release, "_guarantee", lambda log, problem, noise, *all_: honest(log, problem, noise, all_[0]))
    found = attack_case(LABELLED, releases=200)
    assert {UNPAID, "the guarantee states another rho"} <= set(found.faults)
