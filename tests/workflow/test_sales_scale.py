"""How far one week of a shop moves the counts, when scales are means of earlier weeks: through the generated query."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import Policy
from poolrl.certificate.certificate import Certificate
from poolrl.cli.audit import configured_case
from poolrl.data.counts import count_outcomes
from poolrl.ledger.accounts import Spend, UnitsError, totals
from poolrl.privacy.release import release_outcomes
from poolrl.privacy.sensitivity import outcome_trees
from poolrl.workflow.config.sales import SalesTable
from poolrl.workflow.open_log import open_log
from poolrl.workflow.release_folder import fit_release
from poolrl.workflow.trades.shop_example import write_example
from tests.helpers.exports import ROLES, configured, export_facts, write_export
from tests.helpers.neighbours import Recorder, squared_change
from tests.helpers.shops import Facts, faults_of
from tests.helpers.tables import every_level

# (shop, week) → the rows of that week: day, opening, delivery, sales, stock_out.
Chain = dict[tuple[str, int], list[tuple[str, ...]]]
MONDAY = datetime.date(2025, 3, 3)
SIZES = every_level(4)


def facts_of(days: int, **more: Any) -> dict[str, dict[str, Any]]:
    facts = export_facts(["bread"], days=days, scale_floor=0.01, **more)
    facts["problem"] |= {"demand_max": 4.0}
    return facts


def lines_of(chain: Chain, prefix: str = "", *also: str) -> list[tuple[str, ...]]:
    return [
        (f"{prefix}{shop}", str(MONDAY + datetime.timedelta(7 * week + int(day))), "bread", *fields, *also)
        for (shop, week), rows in chain.items()
        for day, *fields in rows
    ]


def hostile_week(rng: np.random.Generator, days: int) -> list[tuple[str, ...]]:
    """A week as bad as can be: days are missing or stand twice, and numbers are words, negative or huge."""
    sold = ["0", "1", "2", "4", "8", "x", "-3", "1e11", "nan", "0.0004"]
    rows = []
    for day in rng.integers(0, days, rng.integers(1, days + 2)):
        opening = str(rng.choice(["0", "0", "50", "x"], p=[0.4, 0.3, 0.25, 0.05]))
        flag = str(rng.choice(["true", "false", "ja"], p=[0.2, 0.75, 0.05]))
        delivery = str(rng.choice(["3", "9", "-5", "100"]))
        rows.append((str(day), opening, delivery, str(rng.choice(sold)), flag))
    return rows


def neighbouring(rng: np.random.Generator, days: int, *, ids_stay: bool) -> tuple[Chain, Chain]:
    """Two chains of two shops that differ in one week. It becomes another week of any shop, unless ids stay."""
    weeks = [(shop, week) for shop in "ab" for week in range(6) if rng.random() < 0.8] or [("a", 0)]
    chain = {each: hostile_week(rng, days) for each in weeks}
    leaves = weeks[int(rng.integers(len(weeks)))]
    free = [leaves, *((shop, week) for shop in "ab" for week in range(7) if (shop, week) not in chain)]
    arrives = leaves if ids_stay else free[int(rng.integers(len(free)))]
    other = {each: rows for each, rows in chain.items() if each != leaves} | {arrives: hostile_week(rng, days)}
    return chain, other


@contextmanager
def opened(folder: Path, facts: dict[str, Any], lines: list[tuple[str, ...]], *also: str) -> Iterator[tuple[Any, Any]]:
    write_export(folder, lines, (*ROLES, *also))
    file = configured(folder, facts)
    with open_log(file) as log:
        yield log, file.config


@pytest.mark.parametrize(
    ("declared", "memory"),
    [({}, 4), ({"weeks_public": True}, 2), ({"unit": "shop", "max_per_unit": 7}, 4)],
    ids=["weeks may move", "weeks are public", "a shop owns its weeks"],
)
@pytest.mark.parametrize("missing", [pytest.param("unobserved", marks=pytest.mark.slow), "nothing happened"])
def test_one_week_never_moves_more_than_is_paid_for(
    tmp_path: Path, declared: Mapping[str, Any], memory: int, missing: str
) -> None:
    """Sixty pairs of chains at once, each under a label of its own, so that each has its own table of counts."""
    days, pairs, counted = 2, 60, []
    rng = np.random.default_rng(sum(map(ord, missing)) + memory)
    facts = facts_of(days, scale="same weekday, last 2 weeks", missing_days=missing)
    facts["problem"] |= {"labels": {"chain": f"0..{pairs - 1}"}}
    facts["privacy"] |= declared
    ids_stay = "weeks_public" in declared
    chains = [neighbouring(rng, days, ids_stay=ids_stay) for _ in range(pairs)]
    if "unit" in declared:  # all of one shop is another
        chains = [(one, {key: one[key] for key in one if key[0] != "a"} | _only_a(rng, days)) for one, _ in chains]
    for side in (0, 1):
        lines = [line for i, pair in enumerate(chains) for line in lines_of(pair[side], f"{i}-", str(i))]
        with opened(tmp_path, facts, lines, "chain") as (log, config):
            assert (log.facts.scale_memory, log.facts.ids_public) == (memory, ids_stay)
            problem = config.problem.posed
            counted.append(count_outcomes(log, problem, level_sizes=SIZES).levels)
            paid_for = outcome_trees(problem, level_sizes=SIZES, per_unit=config.moved, complete=False)
    changes = np.zeros(pairs)
    for before, after in zip(*counted, strict=True):
        changes += ((before - after) ** 2).reshape(pairs, -1).sum(axis=1)
    # Slots stay as many, so as many rows become unobserved as are no longer under the root.
    observed = [levels[0].reshape(pairs, days, -1).sum(axis=-1) for levels in counted]
    changes += ((observed[0] - observed[1]) ** 2).sum(axis=1)
    assert 0 < changes.max() <= paid_for.sensitivity_squared


def _only_a(rng: np.random.Generator, days: int) -> Chain:
    return {("a", week): hostile_week(rng, days) for week in range(6) if rng.random() < 0.9} or {("a", 0): []}


def sale(sold: str) -> list[tuple[str, ...]]:
    return [("0", "0", "100", sold, "false")]


# Week 1 of shop a becomes week 1 of shop b. It cannot be counted itself (less than nothing was delivered), but four
# other weeks have another scale then. By hand: their multiples rise from 8/22, 16/24, 32/40, 26/32, all below 1, to
# 8/4, 16/8, 32/20, 26/16, all above it; and 1 is an edge of bins.
BEFORE: Chain = {
    ("a", 0): sale("4"),
    ("a", 1): [("0", "50", "-5", "40", "false")],
    ("a", 2): sale("8"),
    ("a", 3): sale("16"),
    ("b", 0): sale("40"),
    ("b", 2): sale("32"),
    ("b", 3): sale("26"),
}
AFTER = {week: rows for week, rows in BEFORE.items() if week != ("a", 1)} | {("b", 1): [("0", "5", "-5", "0", "false")]}


def moved_by_one_week(folder: Path) -> tuple[int, int]:
    """What four weeks that change their scales move, and what the release pays for."""
    recorders = []
    for chain in (BEFORE, AFTER):
        recorders.append(Recorder())
        with opened(folder, facts_of(1, scale="same weekday, last 2 weeks"), lines_of(chain)) as (log, config):
            problem = config.problem.posed
            released = release_outcomes(log, problem, level_sizes=(2,), rho=1.0, noise=recorders[-1])
    (mechanism,) = released.guarantee.mechanisms
    return sum(squared_change(*recorders)), int(mechanism.sensitivity_squared)


def test_a_week_that_moves_changes_scales_where_it_leaves_and_where_it_arrives(tmp_path: Path) -> None:
    """Four leave one bin for the other: 4² + 4². With m = 2, five trajectories are paid for: 2 · 5²."""
    assert moved_by_one_week(tmp_path) == (32, 50)


def test_a_memory_of_m_where_weeks_may_move_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: as if every week stayed in its shop and place. Three trajectories are then too few."""
    monkeypatch.setattr(SalesTable, "memory", lambda sales, weeks_public: sales.weeks)
    moved, paid_for = moved_by_one_week(tmp_path)
    assert moved > paid_for == 18


def test_rounding_of_a_mean_does_not_depend_on_other_weeks(tmp_path: Path) -> None:
    """Sums of tenths: the scale of the last week is the same with and without weeks that are no part of it."""
    near: Chain = {("a", week): sale(sold) for week, sold in ((7, "0.1"), (8, "0.2"), (9, "0.3"), (10, "1"))}
    far = near | {("a", week): sale("123456789.123") for week in range(5)}
    scales = []
    for chain in (near, far):
        with opened(tmp_path, facts_of(1, scale="same weekday, last 3 weeks"), lines_of(chain)) as (log, _):
            rows = log.rows.order_by("week").to_pyarrow().to_pylist()
            scales.append(rows[-1]["scale"])
    assert scales == [0.2, 0.2]  # 600 thousandths by 3


# A release of a sales export with a scale and labels.


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Facts, Path]:
    """The example's facts, and its folder with a release; a test that changes something restores it."""
    folder = tmp_path_factory.mktemp("example")
    facts = write_example(folder, seed=1)
    fit_release(configured(folder, facts), folder / "release", new_account=True)
    return facts, folder


def test_the_example_is_released_and_verified(example: tuple[Facts, Path]) -> None:
    """Every paper says which logs are neighbours: ids stay, four other weeks have another scale, labels may change."""
    facts, place = example
    file, folder = configured(place, facts), place / "release"
    policy = Policy.load(folder / "policy.npz")
    assert faults_of(folder, ledger=file.ledger) == []
    assert policy.levels.shape == (2, 7, 3)
    promoted = policy.levels[1] / policy.levels[0]
    assert 1.1 < promoted.mean() < 1.9  # nature sells half as much again
    claim = Certificate.read((folder / "certificate.json").read_bytes())
    assert (claim.scaled, claim.scale_memory, claim.labels) == (True, 4, "protected")
    assert claim.adjacency == "replace what happened in one"
    assert "same weekday" not in (claim.assumed_public.query or "")  # it is SQL
    assert "RANGE BETWEEN 4 PRECEDING AND 1 PRECEDING" in (claim.assumed_public.query or "")
    leaflet, record = (" ".join((folder / name).read_text().split()) for name in ("leaflet.txt", "registry.yaml"))
    assert "replace what happened in one trajectory; the list of trajectories, by their ids, is public" in leaflet
    assert "changes the scales of at most 4 others; 5 trajectories are paid for" in leaflet
    assert "the list of trajectories" in record
    assert "replace what happened in one trajectory; the list of trajectories" in str(policy.guarantee)


def test_one_account_for_one_kind_of_neighbours(example: tuple[Facts, Path], tmp_path: Path) -> None:
    """A second release for weeks that may move cannot be added to one for weeks that stay: refused, nothing spent."""
    known, folder = example
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    facts = known | {"privacy": known["privacy"] | {"weeks_public": False}}
    with pytest.raises(ValueError, match=r"its releases compare other neighbours .*keep to weeks_public as it was"):
        fit_release(configured(tmp_path, facts), tmp_path / "second")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("sales", "date", "booked"), ("sales", "date_format", "%d.%m.%Y"), ("sales", "shop", "region")],
)
def test_weeks_of_other_columns_are_other_trajectories(tmp_path: Path, section: str, key: str, value: str) -> None:
    """Every export has weeks and shops, but not the same ones: cut by another date, two of them share rows."""
    facts = export_facts(scale="same weekday, last 4 weeks")
    usual = configured(tmp_path, facts).config
    facts[section][key] = value
    other = configured(tmp_path, facts).config
    with pytest.raises(UnitsError, match="is not known"):
        totals([Spend(Fraction(1), "committed", each.unit()) for each in (usual, other)])
    facts["period"] = {"column": "monday", "first": "2025-01-06", "before": "2025-02-03"}
    january = configured(tmp_path, facts).config.declared_period()
    facts[section][key] = "elsewhere" if key != "date_format" else "%m/%d/%Y"
    again = configured(tmp_path, facts).config.declared_period()
    assert january.overlaps(again) == (january.axis != again.axis or january == again)
    assert (january.axis != again.axis) == (key != "shop")


def test_an_audit_attacks_the_configured_scale_and_labels(tmp_path: Path) -> None:
    """Its two logs, opened as long rows, move all that is paid for: five trajectories, by 2 H k L c²."""
    facts = write_example(tmp_path, seed=1)
    facts["plan"]["units"] = 20
    case = configured_case(configured(tmp_path, facts))
    recorders = Recorder(), Recorder()
    with case.logs() as logs:
        for log, recorder in zip(logs, recorders, strict=True):
            released = release_outcomes(log, case.problem, level_sizes=(2, 4), rho=1.0, noise=recorder)
    (mechanism,) = released.guarantee.mechanisms
    assert released.guarantee.scale_memory == 4
    assert sum(squared_change(*recorders)) == mechanism.sensitivity_squared == 2 * 7 * 3 * 2 * 5**2
