"""Periods: which trajectories are in one, what one trajectory loses to all of them, and the planted bugs (lemma 20)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import LostSales, Table, Trajectories
from poolrl.data.ids import canonical_texts
from poolrl.data.log import Columns, Log
from poolrl.data.periods import rows_of_period
from poolrl.data.row_rules import PARTS
from poolrl.ledger.accounts import Account, OverspendError, Period, ProtectedUnit, Spend, UnitsError, lost_by_one
from poolrl.ledger.ledger import Ledger, Sketch
from poolrl.privacy.release import release_outcomes
from tests.helpers.ledgers import WEEK, rows
from tests.helpers.neighbours import Pair, Recorder, scaled_neighbours, squared_change

RHO = Fraction(1, 10)
WEEKS = 7
Intervals = list[tuple[int, int]]


def portion(first: int, before: int, rho: Fraction = RHO, memory: int = 0, scale: str = "sales") -> Spend:
    period = Period("week", first, before, (scale,) if memory else ())
    return Spend(rho, "committed", ProtectedUnit("trajectory", scale_memory=memory), period)


@st.composite
def intervals(draw: st.DrawFn) -> Intervals:
    """One to four periods of weeks 0 to 6, which may overlap."""
    ends = st.tuples(st.integers(0, WEEKS - 1), st.integers(1, WEEKS)).filter(lambda ends: ends[0] < ends[1])
    return draw(st.lists(ends, min_size=1, max_size=4))


@settings(max_examples=60, deadline=None)
@given(intervals(), st.integers(0, 3), st.lists(st.integers(1, 5), min_size=4, max_size=4))
def test_the_loss_is_the_worst_of_all_places(periods: Intervals, memory: int, costs: list[int]) -> None:
    """Against every place of a trajectory and every way to spread the others that change with it."""
    portions = [portion(*ends, Fraction(cost), memory) for ends, cost in zip(periods, costs, strict=False)]
    places = range(-1, WEEKS + 1)

    def lost(own: int, others: tuple[int, ...]) -> Fraction:
        moved = [sum(each.period.holds(place) for place in (own, *others)) for each in portions if each.period]
        shares = [Fraction(many, 1 + memory) for many in moved]
        return sum((each.rho * share**2 for each, share in zip(portions, shares, strict=True)), Fraction(0))

    worst = max(lost(v, others) for v in places for others in combinations_with_replacement(places, memory))
    assert lost_by_one(portions) == worst


def test_weekly_releases_of_two_years_are_added_up() -> None:
    """All places of all pairs of releases, one by one, would take hours."""
    weeks = [portion(week, week + 1, RHO * (1 + week % 3), memory=4) for week in range(104)]
    assert lost_by_one(weeks) == 3 * RHO


def test_what_one_trajectory_loses_worked_by_hand() -> None:
    months = [portion(4 * month, 4 * month + 4) for month in range(12)]
    assert lost_by_one(months) == RHO
    assert lost_by_one([*months, portion(0, 1)]) == 2 * RHO
    assert lost_by_one([*months, Spend(RHO, "committed", WEEK)]) == 2 * RHO  # a release of everything reads every week
    other_column = Spend(RHO, "committed", WEEK, period=Period("day", 100, 200))
    assert lost_by_one([*months, other_column]) == 2 * RHO
    dates = Spend(RHO, "committed", WEEK, period=Period("week", "2025-01-06", "2025-02-03"))
    assert lost_by_one([*months, dates]) == 2 * RHO
    # Another rule for the scale may change other weeks. So what it reaches into comes on top.
    mixed = [portion(0, 4, memory=4, scale="sales"), portion(4, 8, memory=4, scale="till")]
    assert lost_by_one(mixed) == RHO + RHO * Fraction(4, 5) ** 2


def cost_of(logs: Iterable[Log], problem: LostSales) -> Fraction:
    """What a release really costs for a pair of logs: their squared distance, by the variance of its noise."""
    recorders = Recorder(), Recorder()
    for log, recorder in zip(logs, recorders, strict=True):
        release_outcomes(log, problem, level_sizes=(4, 8), rho=RHO, noise=recorder)
    return Fraction(sum(squared_change(*recorders))) / (2 * recorders[0].variances[0])


def costs_of(pair: Pair, periods: Intervals) -> list[Fraction]:
    """The same of a release for each period of a pair of logs, whose trajectories begin in one week after the other."""
    problem, *logs = pair

    def within(log: Trajectories, first: int, before: int) -> Trajectories:
        parts = {name: getattr(log, name)[first:before] for name in (*PARTS, "scale")}
        return Trajectories(**parts, scale_memory=log.facts.scale_memory)

    weeks = len(logs[0])
    return [cost_of((within(log, *ends) for log in logs), problem) for ends in periods if ends[0] < weeks]


@settings(max_examples=40, deadline=None)
@given(scaled_neighbours(), intervals())
def test_all_periods_together_never_cost_more_than_the_ledger_says(pair: Pair, periods: Intervals) -> None:
    """Weeks of shops whose scale is the mean sale of their shop's last m weeks; one of them is replaced."""
    memory = pair[1].facts.scale_memory
    assert sum(costs_of(pair, periods)) <= lost_by_one(portion(*ends, memory=memory) for ends in periods)


def test_the_bound_is_reached_and_a_week_in_two_periods_exceeds_it() -> None:
    """One week that sells nothing, or everything: it uses up its period. Released in two periods, it loses twice."""
    full = np.full((6, 2, 1), 3.0)

    def log(left: float) -> Trajectories:
        after = full.copy()
        after[2] = left
        return Trajectories(states=0 * full, actions=full, next_states=after, scale=np.ones(full.shape))

    pair = LostSales(horizon=2, holding=1, shortage=1, demand_max=3.0), log(3.0), log(0.0)
    assert costs_of(pair, [(0, 3), (3, 6)]) == [RHO, 0]
    planted = costs_of(pair, [(0, 3), (2, 6)])
    assert sum(planted) == 2 * RHO > lost_by_one([portion(0, 3), portion(3, 6)])
    assert sum(planted) <= lost_by_one([portion(0, 3), portion(2, 6)])


# Which rows belong to a period.

COLUMNS = Columns("trajectory", "step", ("x",), ("y",), ("z",), period="begins")


def table(begins: list[Any], trajectory: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    number = list(range(len(begins)))
    return pa.table(
        {"trajectory": trajectory, "step": number, "x": number, "y": number, "z": number}
        | {"begins": pa.array(begins, kind)}
    )


def rows_in(found: pa.Table, first: Any, before: Any, columns: Columns = COLUMNS) -> set[int]:
    chosen = rows_of_period(ibis.memtable(found), columns, first=first, before=before)
    return {int(step) for step in chosen.to_pyarrow()["step"].to_pylist()}


def test_a_trajectory_is_in_the_period_in_which_it_begins() -> None:
    """Every row of it, in whatever spelling; without a date that can be read it is in none."""
    dates = ["2025-01-30", "2025-02-02", "2025-02-03", None, "soon", "2025-02-01T09:00:00", "2025-01-31", "2025-02-1"]
    ids = ["7", "07", "8", "8", "9", "10", " 10 ", "11"]
    found = table(dates, ids)
    january, february = ("2025-01-01", "2025-02-01"), ("2025-02-01", "2025-03-01")
    assert rows_in(found, *january) == {0, 1, 5, 6}
    assert rows_in(found, *february) == {2, 3}
    assert rows_in(found, "2000-01-01", "2000-02-01") == set()


DAYS = [datetime.date(2025, 1, 6) + datetime.timedelta(days=7 * week) for week in range(12)]


@pytest.mark.parametrize(
    ("given", "kinds", "ends", "expected"),
    [
        (DAYS, (pa.date32(), pa.timestamp("us"), pa.string()), ("2025-02-01", "2025-03-01"), {4, 5, 6, 7}),
        ([datetime.date(2025, 12, 29), datetime.date(2025, 11, 30)], (pa.date32(),), ("2025-12-01", "2025-12-30"), {0}),
        ([9, 10, 100, -3, None], (pa.int64(), pa.float64(), pa.string()), (10, 101), {1, 2}),
        ([9, 10, 100, -3, None], (pa.int64(), pa.float64(), pa.string()), (-3, 10), {0, 3}),
        (["+5", "5.5", "6", "1e1", "-5"], (pa.string(),), (5, 7), {0, 2}),
        ([5.5, 4.9, 7.0, np.inf], (pa.float64(),), (5, 7), {0}),
    ],
    ids=["dates", "ends of months", "numbers", "below zero", "texts", "fractions"],
)
def test_beginnings_of_every_type_are_compared_alike(given: Any, kinds: Any, ends: Any, expected: set[int]) -> None:
    names = [f"w{i}" for i in range(len(given))]
    for kind in kinds:
        assert rows_in(table(pa.array(given).cast(kind).to_pylist(), names, kind), *ends) == expected
    with pytest.raises(ValueError, match=r"'begins' of \[period\] must hold dates"):
        rows_in(table([1, 2], ["a", "b"]), "2025-01-01", "2025-02-01")
    with pytest.raises(ValueError, match=r"'begins' of \[period\] must hold whole numbers"):
        rows_in(table(DAYS[:2], ["a", "b"]), 1, 2)
    with pytest.raises(ValueError, match="a period needs a column"):
        rows_in(table([1, 2], ["a", "b"]), 1, 2, replace(COLUMNS, period=None))


@pytest.mark.parametrize("seed", range(2))
def test_periods_divide_the_rows_of_a_messy_table(seed: int) -> None:
    """No trajectory is in two periods, and all of a trajectory's rows are in one: against a count by hand."""
    rng = np.random.default_rng(seed)
    many = 60
    ids = [f"{'0' * rng.integers(0, 2)}{number}" for number in rng.integers(1, 15, many)]
    units = [str(unit) for unit in rng.choice(["a", "A", "b"], many)]
    days: list[Any] = [None if rng.random() < 0.1 else int(day) for day in rng.integers(0, 40, many)]
    found = table(days, ids, pa.int64()).append_column("unit", pa.array(units))
    columns = Columns("trajectory", "step", ("x",), ("y",), ("z",), unit="unit", period="begins")
    keys = [*zip(canonical_texts(units), canonical_texts(ids), strict=True)]
    begins: dict[Any, int] = {}
    for key, day in zip(keys, days, strict=True):
        if day is not None:
            begins[key] = min(day, begins.get(key, day))
    first, before = [(0, 5), (5, 10)][seed]
    expected = {row for row, key in enumerate(keys) if first <= begins.get(key, -1) < before}
    assert expected
    assert rows_in(found, first, before, columns) == expected


def test_rows_chosen_by_their_own_dates_would_be_caught() -> None:
    """Planted: a week that was noted twice, with dates of two months, is in both, and loses twice."""
    problem = LostSales(horizon=2, holding=1, shortage=1, demand_max=8.0)

    def log(left: float) -> ibis.Table:
        week = {"trajectory": [1, 1, 2, 2, 2, 2, 3, 3], "begins": [1, 2, 6, 6, 7, 7, 8, 9]}
        numbers = {"step": [0, 1] * 4, "x": [0.0] * 8, "y": [8.0] * 8, "z": [8.0, 8.0, *[left] * 4, 8.0, 8.0]}
        return ibis.memtable(pa.table(week | numbers))

    names = {"states": ["x"], "actions": ["y"], "next_states": ["z"]}

    def cost(chosen: Any) -> Fraction:
        pairs = [
            [Table(chosen(log(left), *ends), trajectory="trajectory", step="step", **names) for left in (8.0, 0.0)]
            for ends in ((0, 7), (7, 14))
        ]
        return sum((cost_of(pair, problem) for pair in pairs), Fraction(0))

    def by_row(rows: Any, first: int, before: int) -> Any:
        return rows.filter((rows.begins >= first) & (rows.begins < before))

    def by_trajectory(rows: Any, first: int, before: int) -> Any:
        return rows_of_period(rows, COLUMNS, first=first, before=before)

    said = lost_by_one([portion(0, 7), portion(7, 14)])
    assert cost(by_trajectory) <= said == RHO
    assert cost(by_row) == 2 * RHO


# The ledger.

JANUARY, FEBRUARY = Period("monday", "2025-01-06", "2025-02-03"), Period("monday", "2025-02-03", "2025-03-03")


def paid(ledger: Ledger, period: Period | None, sketch: Sketch, unit: ProtectedUnit = WEEK, name: str = "shop") -> None:
    entry = ledger.reserve(name, RHO, unit, period)
    ledger.read(entry, sketch)
    ledger.commit(entry, {"policy.npz": f"{entry.number}"})


def test_an_account_of_periods_adds_up(tmp_path: Any) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_account("shop", 2 * RHO)
        paid(ledger, JANUARY, rows("january"))
        paid(ledger, FEBRUARY, rows("february"))
        account = ledger.account("shop")
        assert account is not None
        assert (account.spent, account.left) == (RHO, RHO)
        assert account.released_in(FEBRUARY) == [FEBRUARY]
        paid(ledger, FEBRUARY, rows("february"))  # the same weeks again: they add up
        with pytest.raises(OverspendError, match=r"does not allow rho = 0\.1: only 0 of 0\.2 is left"):
            ledger.reserve("shop", RHO, WEEK, Period("monday", "2025-03-01", "2025-04-01"))
        paid(ledger, Period("monday", "2025-03-03", "2025-04-07"), rows("march"))
        # Neighbours of the account keep their dates now, and such a release would promise more than the sum holds.
        for more in (None, Period("monday", 1, 5), Period("tuesday", "2025-05-05", "2025-06-02")):
            with pytest.raises(UnitsError, match="its releases read periods by monday: declare"):
                ledger.reserve("shop", RHO, WEEK, more)
        assert ledger.verify() == []
        assert ledger.account("shop").spent == 2 * RHO  # type: ignore[union-attr]


def spent_by(unit: ProtectedUnit, spends: list[Spend]) -> Fraction:
    return Account("", "shop", Fraction(1), dict(enumerate(spends))).spent_by(unit)


def test_units_that_own_several_weeks_lose_the_sum() -> None:
    shop = ProtectedUnit("week", "shop", max_per_unit=8, owns_at_most=52)
    months = [Period("week", 4 * month, 4 * month + 4) for month in range(3)]
    assert spent_by(shop, [Spend(RHO, "committed", shop, month) for month in months]) == 3 * RHO
    # Releases for weeks: together they cost one week ρ, and so one shop of at most 52 weeks 52² ρ.
    weekly = [Spend(RHO, "committed", WEEK, month) for month in months]
    both = [*weekly, Spend(RHO, "committed", shop, Period("week", 12, 16))]
    assert spent_by(shop, both) == 52**2 * RHO + RHO
    assert spent_by(WEEK, both) == RHO + 4 * RHO
    with pytest.raises(UnitsError, match="declare owns_at_most"):
        spent_by(ProtectedUnit("week", "shop"), weekly)


def test_the_same_rows_under_another_date_are_refused(tmp_path: Any) -> None:
    """Also if rows were dropped. In another account any period is refused."""
    old = rows("january")
    again = Sketch(rows("other").whole, (*old.marks[:14], *rows("new").marks[:6]))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_account("shop", RHO)
        ledger.open_account("renamed", RHO)
        paid(ledger, JANUARY, old)
        entry = ledger.reserve("shop", RHO, WEEK, FEBRUARY)
        with pytest.raises(OverspendError, match=r"released before, in the period monday from 2025-01-06"):
            ledger.read(entry, again)
        for period in (JANUARY, FEBRUARY):
            other = ledger.reserve("renamed", RHO, WEEK, period)
            with pytest.raises(OverspendError, match="these rows already have an account, as 'shop'"):
                ledger.read(other, again)
            ledger.void(other)


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        (("2025-02-03", "2025-01-06"), "must begin before it ends"),
        (("2025-01-06", 7), "two dates like"),
        (("2025-01-06", "2025-02-30"), "two dates like"),
        ((True, 7), "two dates like"),
    ],
)
def test_what_is_no_period_is_refused(ends: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Period("monday", *ends)
