"""Bugs that would void the guarantee, planted one at a time: each must be caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pytest

from poolrl import LostSales, Trajectories
from poolrl.audit.attack import AuditFinding, attack_case
from poolrl.audit.cases import CASES
from poolrl.audit.faults import Exact
from poolrl.data import counts, expressions, table
from poolrl.data.counts import OutcomeCounts
from poolrl.data.log import Log
from poolrl.data.log_labels import LogLabel
from poolrl.learning import model
from poolrl.learning.stored import Planned, Report
from poolrl.ledger.ledger import Ledger
from poolrl.privacy import release, sensitivity
from poolrl.privacy.noise import secure as noise
from tests.helpers.long_tables import BOUND, change_and_price, week_of
from tests.helpers.noisy import spoil_noise

DEFAULT, DEFAULT_UNITS, PUBLISHED, PUBLISHED_UNITS, FOLLOWED, LABELLED = (
    replace(c, engine="arrays") for c in CASES[:6]
)
TOLD_APART = "the logs can be distinguished better than the claim allows"
TOO_LITTLE = "the noise has another variance than is stated"
Plant = pytest.MonkeyPatch
slow = pytest.mark.slow


def faults(found: AuditFinding) -> str:
    return "; ".join(found.faults)


@pytest.fixture
def engines() -> None:
    """For plants that show where a table in an engine is counted beside the arrays."""


@pytest.fixture(autouse=True)
def attacked_alone(request: pytest.FixtureRequest, monkeypatch: Plant) -> None:
    """An audit must see by itself what the self-test would refuse to release; and without engines, which are sound."""
    monkeypatch.setattr(noise, "require_sound_sampler", lambda: None)
    monkeypatch.setattr("poolrl.audit.faults.sampler_faults", list)
    if "engines" not in request.fixturenames:
        monkeypatch.setattr("poolrl.audit.faults._counted_faults", lambda *_: [])


@pytest.mark.parametrize(
    ("case", "releases", "share"),
    [
        pytest.param(DEFAULT, 16_000, lambda counts: Fraction(9, 10), id="a tenth", marks=slow),
        pytest.param(DEFAULT, 2_000, lambda counts: Fraction(2, 3), id="a third"),
        pytest.param(DEFAULT, 1_000, lambda counts: counts.shape[-1] != 4, id="one level of the trees"),
        # The unobserved slots: both logs of the attack leave them as they are.
        pytest.param(DEFAULT_UNITS, 1_000, lambda counts: counts.ndim != 2, id="counts that no attacker moves"),
    ],
)
def test_too_little_variance(monkeypatch: Plant, case: Any, releases: int, share: Callable[[Any], Any]) -> None:
    """A part of the noise is missing, or all noise of a table."""
    spoil_noise(monkeypatch, lambda add, counts, v: add(counts, v * share(counts)))
    assert TOO_LITTLE in faults(attack_case(case, rho=4.0, releases=releases))


@pytest.mark.parametrize(
    ("case", "too_small"),
    [
        (DEFAULT, 2),  # √H for √2H
        pytest.param(PUBLISHED, 2, marks=slow),
        (DEFAULT_UNITS, DEFAULT_UNITS.per_unit**2),
        pytest.param(PUBLISHED_UNITS, PUBLISHED_UNITS.per_unit**2, marks=slow),
    ],
)
def test_a_factor_left_out_of_the_sensitivity(monkeypatch: Plant, case: Any, too_small: int) -> None:
    """In the guarantee as well, so that its arithmetic holds."""
    monkeypatch.setattr(sensitivity, "Fraction", lambda number: Fraction(number, too_small))
    assert TOLD_APART in faults(attack_case(case, releases=2000))


def test_a_variance_that_does_not_fit_the_budget(monkeypatch: Plant) -> None:
    monkeypatch.setattr(release.zcdp, "noise_variance", lambda **_: Fraction(3))
    assert "the guarantee states another rho" in faults(attack_case(DEFAULT, releases=200))


def test_one_of_two_tables_without_noise(monkeypatch: Plant) -> None:
    honest = release._Transitions
    monkeypatch.setattr(release, "_Transitions", lambda counts, _, variance: honest(counts, Exact(), variance))
    assert TOLD_APART in faults(attack_case(PUBLISHED, releases=1000))


@pytest.mark.parametrize("case", [DEFAULT, pytest.param(PUBLISHED, marks=slow)], ids=lambda case: case.name)
def test_noise_on_occupied_cells_alone(monkeypatch: Plant, case: Any) -> None:
    spoil_noise(monkeypatch, lambda add, counts, v: np.where(counts > 0, add(counts, v), 0))
    found = faults(attack_case(case, releases=2000))
    assert TOLD_APART in found or TOO_LITTLE in found


def test_bounds_taken_from_the_data(monkeypatch: Plant) -> None:
    """As if demand were bounded by the largest order that the log knows."""
    honest = counts.count_outcomes

    def bounded(log: Any, problem: LostSales, *, level_sizes: tuple[int, ...]) -> OutcomeCounts:
        seen = float(log.actions.max())
        return honest(
            log, LostSales(horizon=3, products=2, holding=1.0, shortage=1.0, demand_max=seen), level_sizes=level_sizes
        )

    monkeypatch.setattr(counts, "count_outcomes", bounded)
    assert TOLD_APART in faults(attack_case(DEFAULT, releases=2000))


def test_bins_taken_from_the_data(monkeypatch: Plant) -> None:
    honest = counts.count_outcomes
    monkeypatch.setattr(
        counts,
        "count_outcomes",
        lambda log, problem, level_sizes: honest(
            log, problem, level_sizes=(1, 2, 4, 8) if log.actions.max() > 5 else (1, 2, 4)
        ),
    )
    assert "neighbours differ without noise" in faults(attack_case(DEFAULT, releases=200))


@pytest.mark.parametrize("case", [DEFAULT, pytest.param(PUBLISHED, marks=slow)], ids=lambda case: case.name)
def test_the_same_noise_for_two_tables(monkeypatch: Plant, case: Any) -> None:
    monkeypatch.setattr(noise.Stream, "take", lambda self, count: 0)
    assert "two numbers share noise, or its size" in faults(attack_case(case, releases=1500))


def test_two_releases_under_one_key(monkeypatch: Plant) -> None:
    """Every process has keys of its own, and uses each of them twice: the difference of two releases has no noise."""
    honest, keys = noise.urandom, list[bytes]()

    def twice(size: int) -> bytes:
        if keys:
            return keys.pop()
        keys.append(honest(size))
        return keys[0]

    monkeypatch.setattr(noise, "urandom", twice)
    assert "a stretch of noise comes twice" in faults(attack_case(DEFAULT, releases=200))


@pytest.mark.parametrize(
    ("case", "plant"),
    [
        (DEFAULT, lambda noisy, sigma: 2 * np.rint(noisy / 2)),  # whether a count is even shows
        pytest.param(PUBLISHED, lambda noisy, sigma: 3 * np.rint(noisy / 3), marks=slow),
        # Anything beyond is certain.
        pytest.param(DEFAULT, lambda noisy, sigma: np.clip(noisy, -3 * sigma, 3 * sigma).round(), marks=slow),
    ],
    ids=["even", "of three", "clipped"],
)
def test_noise_of_the_right_variance_and_another_shape(
    monkeypatch: Plant, case: Any, plant: Callable[[Any, float], Any]
) -> None:
    spoil_noise(
        monkeypatch,
        lambda add, counts, v: counts + plant(add(np.zeros_like(counts), v), float(v) ** 0.5).astype(np.int64),
    )
    assert "does not have the stated distribution" in faults(attack_case(case, releases=4000))


@pytest.mark.usefixtures("engines")
def test_a_layout_that_follows_the_log(monkeypatch: Plant) -> None:
    """Whether anything is unobserved, read off the log: a neighbour that owns less gets another table."""
    monkeypatch.setattr(Trajectories, "is_full", property(lambda self: len(self) == self.slots))
    everywhere = replace(DEFAULT_UNITS, problem=DEFAULT.problem)
    assert "neighbours differ without noise" in faults(attack_case(everywhere, releases=200))


@pytest.mark.usefixtures("engines")
def test_max_per_unit_left_out_of_the_count(monkeypatch: Plant) -> None:
    monkeypatch.setattr("poolrl.data.trajectories.first_of_each", lambda owner, most: np.ones(len(owner), dtype=bool))
    found = faults(attack_case(DEFAULT_UNITS, releases=1000))
    assert TOLD_APART in found
    assert "a table in an engine gives other counts" in found


@pytest.mark.usefixtures("engines")
def test_max_per_unit_left_out_by_an_engine(monkeypatch: Plant) -> None:
    monkeypatch.setattr("poolrl.data.table.Table._rank", staticmethod(lambda lives: lives["count"] * 0))
    assert "a table in an engine gives other counts" in faults(attack_case(DEFAULT_UNITS, releases=200))


def test_a_policy_that_remembers_the_log(monkeypatch: Plant) -> None:
    """Through the back door: not in the tables, but in what is learned beside them."""
    honest = release.release_outcomes
    logs: list[Any] = []

    def remembering(log: Any, *args: Any, **named: Any) -> Any:
        logs.append(log)
        return honest(log, *args, **named)

    honest_plan = model.plan_on_outcomes
    monkeypatch.setattr("poolrl.pool.release_outcomes", remembering)
    monkeypatch.setattr(
        "poolrl.learning.model.plan_on_outcomes",
        lambda *args, **named: (
            honest_plan(*args, **named)[0],
            Report(planned=Planned(int(1e6 * logs[-1].actions.mean()))),
        ),
    )
    assert "the policy depends on more than the released tables" in faults(attack_case(DEFAULT, releases=200))


def test_a_scale_whose_memory_is_not_paid_for(monkeypatch: Plant) -> None:
    """As if the weeks whose scale a week served for did not change with it."""
    monkeypatch.setattr(sensitivity, "moved_trajectories", lambda *, per_unit, **_: per_unit)
    found = faults(attack_case(FOLLOWED, releases=1000))
    assert TOLD_APART in found
    assert "one unit moves more than was paid for" in found


def test_label_values_read_off_the_log(monkeypatch: Plant) -> None:
    """The last value that the log knows comes first: a unit with a new label moves everybody to another cell."""
    monkeypatch.setattr(LogLabel, "places", lambda self, *_: len(self.values) - 1 - self.codes)
    found = faults(attack_case(LABELLED, releases=1000))
    assert TOLD_APART in found
    assert "one unit moves more than was paid for" in found


def test_totals_of_protected_labels_without_noise(monkeypatch: Plant) -> None:
    """How many rows have which labels, released exactly although a neighbour may have others."""
    public = property(lambda self: replace(self._facts, labels_public=bool(self._facts.label_names)))
    monkeypatch.setattr(Log, "facts", public)
    assert "neighbours differ without noise" in faults(attack_case(LABELLED, releases=200))


def test_rows_of_a_long_table_that_come_twice(monkeypatch: Plant) -> None:
    """Six rows for one product and day: without the rule, a week moves six times as far."""
    pair = week_of(0, 0.0, times=6), week_of(0, BOUND, times=6)
    assert change_and_price(pair, most=1, labels_public=False) == (0, 24)
    honest = expressions.count_steps
    with monkeypatch.context() as plant:
        plant.setattr(expressions, "count_steps", lambda *given: honest(*given).mutate(repeated=ibis.literal(False)))
        change, price = change_and_price(pair, most=1, labels_public=False)
        assert change == 36 * price
    # A rule that looks at the step without its product takes every week of two products for a double one.
    with monkeypatch.context() as plant:
        plant.setattr(table.Table, "_life", property(lambda self: self._keys))
        assert change_and_price((week_of(0, 0.0), week_of(0, BOUND)), most=1, labels_public=False)[0] == 0


def test_trajectories_of_a_long_table_beyond_their_slots(monkeypatch: Plant) -> None:
    """As if every week of a unit were its first: two weeks move where one is paid for."""
    pair = tuple([row for name in (0, 1) for row in week_of(name, left)] for left in (0.0, BOUND))
    assert change_and_price(pair, most=1, labels_public=False) == (24, 24)
    monkeypatch.setattr("poolrl.data.table.Table._rank", staticmethod(lambda lives: lives["count"] * 0))
    assert change_and_price(pair, most=1, labels_public=False) == (96, 24)


@pytest.mark.usefixtures("no_page")
def test_a_second_fit_that_does_not_pay(released: Path, run: Callable[..., str], monkeypatch: Plant) -> None:
    """Neither by the first one's reservation, nor by none at all: the ledger refuses, or `verify` finds out."""
    config = released / "poolrl.toml"
    with Ledger.existing(released / "ledger.sqlite") as ledger:
        first = next(entry for entry in ledger.entries() if entry.kind == "reserve")
    with monkeypatch.context() as plant:
        plant.setattr(Ledger, "reserve", lambda *_: first)
        with pytest.raises(ValueError, match=f"continues entry {first.number}, which is committed, not reserved"):
            run("fit", "--config", config, "--out", released / "again")
    with monkeypatch.context() as plant:
        for name in ("reserve", "commit"):
            plant.setattr(Ledger, name, lambda *_: first)
        plant.setattr(Ledger, "read", lambda ledger, *_: ledger.account("small shop"))
        run("fit", "--config", config, "--out", released / "again")
    files = released / "again/policy.npz", released / "again/certificate.json"
    with pytest.raises(SystemExit):
        run("verify", *files, "--ledger", released / "ledger.sqlite")
