"""Amounts as multiples of a scale: which rows show what, and what a scale with memory costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import Backlog, Guarantee, LostSales, SeededNoise, Table, Trajectories, Zones
from poolrl.data.cells import outcome_cells
from poolrl.data.row_rules import bound_rules, fit_rules, fits_in_any_unit, moved_inside
from poolrl.geometry.bins import bin_of
from poolrl.privacy.release import release_outcomes, release_rows, release_visits
from tests.helpers.own_problems import OrderQuantity, PostedPrice, Wear
from tests.helpers.tables import columns

BINS = 16
UNUSABLE = [np.nan, np.inf, -np.inf, 0.0, -2.0, 1e-60, 1e60]
SHOP = LostSales(horizon=1, holding=1, shortage=1, demand_max=4.0)
WAITING = Backlog(horizon=1, holding=1, shortage=1, demand_max=4.0)


def one_row(stock: float, level: float, left: float, scale: float) -> Trajectories:
    numbers = {"states": stock, "actions": level, "next_states": left, "scale": scale}
    return Trajectories(**{name: np.full((1, 1, 1), value) for name, value in numbers.items()})


def table_of(log: Trajectories, **more: Any) -> Table:
    """The same log in DuckDB."""
    wide = log.states.shape[2]
    scale = {"scale": [f"scale_{i}" for i in range(wide)]} if log.facts.has_scale else {}
    declared = {name: getattr(log.facts, name) for name in ("scale_memory", "labels_public")}
    declared["labels"] = log.facts.label_names
    return Table(log.to_arrow(), **columns(wide, **scale, **declared, **more))


def at(outcome: float) -> int:
    """The bin of an outcome, of 16 up to a bound of 4."""
    return int(bin_of(np.array(outcome / 4), BINS))


def shown(log: Trajectories, problem: Any) -> list[tuple[str, int]]:
    """What a log of one row shows: whether the outcome was seen or cut off, and in which bin."""
    for each in (log, table_of(log)):
        each.check(problem)
        leaves = each.outcome_leaves(problem, bins=BINS)[0, 0]
        found = [(("seen", "cut off")[cell // BINS], int(cell % BINS)) for cell in np.flatnonzero(leaves)]
        if each is log:
            first = found
    assert found == first
    return found


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((0, 300, 180, 100), ("seen", 1.2)),
        ((0, 600, 480, 100), ("seen", 1.2)),  # the same, from a shelf of six multiples
        ((0, 600, 0, 100), ("cut off", 4)),  # at least six is at least four
        ((0, 600, 100, 100), ("cut off", 4)),  # five were sold, which is at least four
        ((0, 300, 0, 100), ("cut off", 3)),
        ((550, 600, 480, 100), ("seen", 1.2)),  # the stock at hand may exceed the bound too
        ((0, 300, 180, 1000), ("seen", 0.12)),
        ((0, 1e60, 0, 1e-40), ("cut off", 4)),  # more than a whole number can hold
    ],
)
def test_what_a_row_shows_in_multiples(row: tuple[float, ...], expected: tuple[str, float]) -> None:
    assert shown(one_row(*row), SHOP) == [(expected[0], at(expected[1]))]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((0, 300, -100, 100), 4),
        ((0, 300, -500, 100), 4),  # eight were asked for: clipped, and seen, because nothing is ever cut off
        ((-900, 300, 180, 100), 1.2),  # a backlog of nine multiples, all of it served
        ((0, 900, 780, 100), 1.2),
    ],
)
def test_what_a_row_shows_where_demand_waits(row: tuple[float, ...], expected: float) -> None:
    assert shown(one_row(*row), WAITING) == [("seen", at(expected))]


@pytest.mark.parametrize(
    "row",
    [
        (0, 300, 400, 100),  # more left than there was
        (500, 300, 100, 100),  # ordered up to less than the stock
        (700, 600, 100, 100),  # the same beyond the bound, where clipping would hide it
        (-1, 300, 100, 100),
        (0, 300, -1, 100),
        (0, 1e120, 1e119, 1.0),
        *((0, 300, 180, scale) for scale in UNUSABLE),
    ],
)
def test_rows_that_do_not_fit_are_unobserved(row: tuple[float, ...]) -> None:
    assert shown(one_row(*row), SHOP) == []


def test_beyond_lambda_nothing_is_seen() -> None:
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=4.0, boundary=0.5)
    assert shown(one_row(0, 200, 80, 100), problem) == [("seen", at(1.2))]
    assert shown(one_row(0, 201, 81, 100), problem) == []
    assert shown(one_row(0, 900, 780, 100), problem) == []


def test_clipping_keeps_what_a_row_shows() -> None:
    """In the user's units: 120 sold of 600 are 120 sold of the 400 that may be ordered, not none."""
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=400.0)

    def moved(*row: float) -> list[float]:
        return [float(part[0]) for part in moved_inside(problem, 0, tuple(np.array([part]) for part in row))]

    assert moved(0.0, 600.0, 480.0) == [0, 400, 280]
    assert moved(0.0, 600.0, 0.0) == [0, 400, 0]  # sold out stays sold out
    assert moved(0.0, 600.0, 100.0) == [0, 400, 0]  # 500 sold are at least 400
    assert moved(0.0, 300.0, 310.0) == [0, 300, 300]  # less than nothing sold is nothing sold
    assert moved(50.0, 30.0, 0.0) == [50, 50, 0]  # still sold out, of what was there
    assert moved(50.0, 30.0, 10.0) == [50, 50, 30]  # 20 sold
    assert moved(0.0, 100.0, 1e-9) == [0, 100, 1e-9]  # what is possible is not touched, to the last bit


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([SHOP, WAITING]), *(st.integers(-80, 80).map(lambda v: v / 8) for _ in range(3)))
def test_moving_a_row_keeps_what_it_shows(problem: Any, stock: float, order: float, left: float) -> None:
    """For rows that fit in some unit: the outcome up to its bounds; cut off if it was, or if it lies beyond them."""
    row = tuple(np.array([part]) for part in (stock, order, left))
    moved = moved_inside(problem, 0, row)
    assert all(rule.held.all() for rule in (*bound_rules(problem, moved), *fit_rules(problem, 0, moved)))
    if not fits_in_any_unit(problem, 0, row).all():
        return
    (seen,), (cut,) = problem.observe(0, *row)
    (now_seen,), (now_cut,) = problem.observe(0, *moved)
    assert now_seen == min(seen, 4.0)
    assert now_cut == (cut or (problem.censored and seen >= 4.0))
    # Counting it as it is gives the same cell.
    cell, _ = outcome_cells(problem, 0, *row, bins=BINS, relative=True)
    assert cell == outcome_cells(problem, 0, *moved, bins=BINS, relative=False)[0]
    for part in range(3):
        if stock >= problem.state_low[0] and max(abs(stock), order, abs(left), seen) <= 4.0:
            assert moved[part][0] == row[part][0]


def test_clipping_with_feedback_on_the_higher_side() -> None:
    """A price above the bound that was not paid: still not paid."""
    problem = PostedPrice(1)
    state, action, next_state = moved_inside(problem, 0, (np.array([0.0]), np.array([60.0]), np.array([0.0])))
    assert (state[0], action[0], next_state[0]) == (0, 50, 0)
    seen, cut = problem.observe(0, state, action, next_state)
    assert (seen[0], cut[0]) == (50, True)


def test_clipping_by_choice_mends_rows_of_a_scaled_log() -> None:
    """A value that does not fit is moved, not unobserved, in arrays and in an engine; a scale cannot be mended."""
    rng = np.random.default_rng(1)
    shape = (400, 2, 2)
    problem = LostSales(horizon=2, products=2, holding=1, shortage=1, demand_max=[4.0, 2.0])
    log = Trajectories(
        states=rng.integers(0, 40, shape) / 4,
        actions=rng.integers(0, 40, shape) / 4,
        next_states=rng.integers(-4, 40, shape) / 4,
        scale=rng.choice([1.0, 2.0, 0.5, *UNUSABLE], shape),
    )
    plain, mended = log.outcome_leaves(problem, bins=BINS), log.clipped(problem).outcome_leaves(problem, bins=BINS)
    usable = np.isin(log.scale, [1.0, 2.0, 0.5])
    assert plain.sum() < mended.sum() == usable.sum()
    np.testing.assert_array_equal(table_of(log, clip=True).outcome_leaves(problem, bins=BINS), mended)


def a_scaled_log(problem: Any, rng: np.random.Generator, trajectories: int = 600) -> Trajectories:
    """Rows of every kind, most of them possible: sevenths, so that the last bit decides on many edges."""
    shape = (trajectories, problem.horizon, problem.state_dim)
    order = rng.integers(0, 60, shape) / 7
    stock, left = np.floor(order * rng.random(shape)), order - rng.integers(-3, 40, shape) / 7
    if problem.censored:
        left = np.where(rng.random(shape) < 0.95, np.maximum(left, 0), left)
    scale = rng.integers(1, 30, shape) / 7
    return Trajectories(
        states=np.where(rng.random(shape) < 0.05, order + 1, stock),
        actions=order,
        next_states=left,
        scale=np.where(rng.random(shape) < 0.1, rng.choice(UNUSABLE, shape), scale),
    )


@pytest.mark.parametrize(
    "problem",
    [
        LostSales(horizon=2, products=2, holding=1, shortage=1, demand_max=[4.0, 2.0], boundary=[[1.0, 0.7], [0.5, 1]]),
        Backlog(horizon=2, products=2, holding=1, shortage=1, demand_max=[4.0, 2.0]),
        OrderQuantity(2, 2, 0.2, 0.4, cap=3.0),
    ],
    ids=["lost sales", "backlog", "own problem"],
)
def test_duckdb_counts_multiples_like_arrays(problem: Any) -> None:
    log = a_scaled_log(problem, np.random.default_rng(3))
    expected = log.outcome_leaves(problem, bins=64)
    assert expected.sum() > 600
    np.testing.assert_array_equal(table_of(log).outcome_leaves(problem, bins=64), expected)


def test_a_scale_is_taken_from_tables() -> None:
    """NULL is missing; arrays and tables give the same log again."""
    log = a_scaled_log(SHOP, np.random.default_rng(5), 50)
    rows = log.to_arrow()
    missing = pa.array([None if i % 7 == 0 else v for i, v in enumerate(rows["scale_0"].to_pylist())], pa.float64())
    rows = rows.set_column(rows.column_names.index("scale_0"), "scale_0", missing)
    named = columns(1, scale=["scale_0"], scale_memory=3)
    again = Trajectories.from_table(rows, **named)
    assert np.isnan(again.scale[::7]).all()
    table = Table(rows, **named)
    assert table.facts == again.facts
    assert (table.facts.has_scale, table.facts.scale_memory) == (True, 3)
    np.testing.assert_array_equal(table.outcome_leaves(SHOP, bins=BINS), again.outcome_leaves(SHOP, bins=BINS))


def test_what_a_scale_needs() -> None:
    log = one_row(0, 300, 180, 100)
    rows = {name: getattr(log, name) for name in ("states", "actions", "next_states")}
    with pytest.raises(ValueError, match="scale_memory needs scale"):
        Trajectories(**rows, scale_memory=1)
    with pytest.raises(ValueError, match="scale_memory needs scale"):
        Table(log.to_arrow(), **columns(1), scale_memory=1)
    with pytest.raises(ValueError, match="scale_memory must be a whole number of at least 0, got -1"):
        Trajectories(**rows, scale=log.scale, scale_memory=-1)
    with pytest.raises(ValueError, match="scale must have the shape of states"):
        Trajectories(**rows, scale=np.ones((1, 1)))
    wide = LostSales(horizon=1, products=2, holding=1, shortage=1, demand_max=4.0)
    parts = [f"{part}_{i}" for part in ("state", "action", "next_state") for i in range(2)]
    rows_of_two = pa.table({name: [0.0] for name in ("trajectory", "step", "scale_0", *parts)})
    narrow = Table(rows_of_two, **columns(2), scale=["scale_0"])
    with pytest.raises(ValueError, match="scale must name 2 columns, got 1"):
        narrow.check(wide)
    with pytest.raises(AttributeError):
        log.facts.scale_memory = 0  # type: ignore[misc]
    for each in (log, table_of(log)):
        with pytest.raises(ValueError, match=r"a scale needs .*SeparableProblem.*; Wear is another kind"):
            each.check(Wear(1))


def test_visits_have_no_scale() -> None:
    """Refused before a row is read: the rows of this log do not even fit."""
    log = one_row(0, 900, 950, 1)
    for each in (log, table_of(log)):
        with pytest.raises(ValueError, match="labels and a scale need outcome counts"):
            release_visits(each, SHOP, Zones(2).partition(SHOP), rho=1.0, noise=SeededNoise(0))
        with pytest.raises(ValueError, match="labels and a scale need outcome counts"):
            each.visit_tallies(Zones(2).partition(SHOP))
    with pytest.raises(ValueError, match="labels and a scale need outcome counts"):
        release_rows(log, SHOP, rho=1.0, noise=SeededNoise(0))


def test_a_log_with_a_scale_is_never_complete() -> None:
    """It is not public whether a scale was usable, so unobserved slots are released even where λ = 1."""
    released = release_outcomes(
        one_row(0, 300, 180, 100), WAITING, level_sizes=(1, 2, 4), rho=1.0, noise=SeededNoise(0)
    )
    assert released.unobserved is not None
    # L = 3: the root is not public either.
    assert released.guarantee.mechanisms[0].sensitivity_squared == 2 * 3


def test_a_week_that_moves_changes_the_scales_at_both_places() -> None:
    """The mean of the last m weeks: m change if a week stays in its place, 2m if it may come at another date."""
    memory, weeks = 4, 30
    sold = 2.0 ** np.arange(weeks)  # no two windows have the same mean

    def scales(order: list[int]) -> dict[int, float]:
        before = {week: order[max(0, place - memory) : place] for place, week in enumerate(order)}
        return {week: float(sold[used].mean()) if used else 0.0 for week, used in before.items()}

    usual, moving = scales(list(range(weeks))), 10
    sold_then = sold[moving]
    sold[moving] = 3.0
    replaced = scales(list(range(weeks)))
    sold[moving] = sold_then
    others = [week for week in range(weeks) if week != moving]
    assert sum(usual[week] != replaced[week] for week in others) == memory
    moved = scales(others[:20] + [moving] + others[20:])
    assert sum(usual[week] != moved[week] for week in others) == 2 * memory


def test_the_guarantee_says_what_was_declared_of_a_scale() -> None:
    def guarantee(**declared: Any) -> Guarantee:
        rows = {name: np.ones((4, 1, 1)) for name in ("states", "actions", "next_states", "scale")}
        log = Trajectories(**rows, **declared)
        return release_outcomes(log, SHOP, level_sizes=(1, 2), rho=1.0, noise=SeededNoise(0)).guarantee

    outside, remembering = guarantee(), guarantee(scale_memory=4)
    owned = guarantee(scale_memory=4, unit=[1, 1, 2, 2], max_per_unit=2)
    assert "the scale comes from outside the log" in str(outside)
    assert "changes the scales of at most 4 others; 5 trajectories are paid for" in str(remembering)
    assert "comes from rows of its own unit, or from outside the log" in str(owned)
    assert [g.mechanisms[0].sensitivity_squared for g in (outside, remembering, owned)] == [4, 4 * 25, 4 * 4]
    for each in (outside, remembering, owned):
        assert Guarantee.from_dict(each.to_dict()) == each
    old = {k: v for k, v in outside.to_dict().items() if k not in ("scaled", "scale_memory", "labels")}
    assert Guarantee.from_dict(old).scale_memory == 0
    for lie in ({"scale_memory": -1}, {"scaled": False, "scale_memory": 2}, {"labels": "perhaps"}):
        with pytest.raises(ValueError, match="a guarantee knows"):
            Guarantee.from_dict(outside.to_dict() | lie)
