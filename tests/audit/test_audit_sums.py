"""The audit attacks a fit as it is released: trees and sums of what was left, each with its own noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from poolrl import LostSales
from poolrl.audit.attack import attack_case
from poolrl.audit.cases import CASES, AuditCase
from poolrl.checks import IntArray
from poolrl.privacy import release, sensitivity
from poolrl.privacy.noise import secure as noise
from poolrl.workflow.paying import ON_TOP_SHARE
from tests.helpers.neighbours import plant_layout

FACTS: dict[str, Any] = {"horizon": 3, "products": 2, "holding": 1.0, "shortage": 1.0, "demand_max": [40.0, 60.0]}
SUMS: dict[str, Any] = {"on_top": {"left_over": ON_TOP_SHARE}, "engine": "arrays"}
LABELLED, PAIRED = (replace(case, engine="arrays") for case in CASES[8:10])
SHARED = "two numbers share noise, or its size"
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
