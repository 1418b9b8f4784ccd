"""Amounts as multiples of a scale: which rows show what, and what a scale with memory costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import Backlog, LostSales, SeededNoise, Table, Trajectories
from poolrl.data.cells import outcome_cells
from poolrl.data.row_rules import PARTS, bound_rules, fit_rules, fits_in_any_unit, moved_inside
from poolrl.geometry.bins import bin_of
from poolrl.privacy.release import release_outcomes
from poolrl.problems.inventory import Inventory
from tests.helpers.own_problems import PostedPrice
from tests.helpers.tables import UNUSABLE, a_scaled_log, columns, wide

BINS = 16


SHOP = LostSales(horizon=1, holding=1, shortage=1, demand_max=4.0)
WAITING = Backlog(horizon=1, holding=1, shortage=1, demand_max=4.0)


Numbers = tuple[float, float, float, float]  # the stock, the level, what is left, and the scale


def log_of(rows: list[Numbers]) -> Trajectories:
    """One trajectory, a step for each row."""
    columns = np.array(rows, dtype=float).T.reshape(4, 1, -1, 1)
    return Trajectories(**dict(zip(("states", "actions", "next_states", "scale"), columns, strict=True)))


def at(outcome: float) -> int:
    """The bin of an outcome, of 16 up to a bound of 4."""
    return int(bin_of(np.array(outcome / 4), BINS))


def assert_shown(kind: type[Inventory], rows: dict[Numbers, tuple[str, float] | None], **more: Any) -> None:
    """Whether arrays and an engine see or cut off the outcome of each row, in which bin; None is unobserved."""
    problem = kind(horizon=len(rows), holding=1, shortage=1, demand_max=4.0, **more)
    log = log_of([*rows])
    for each in (log, wide(log, False)):
        each.check(problem)
        leaves = each.outcome_leaves(problem, bins=BINS)[:, 0]
        for (row, expected), found in zip(rows.items(), leaves, strict=True):
            shown = [(("seen", "cut off")[cell // BINS], int(cell % BINS)) for cell in np.flatnonzero(found)]
            assert shown == ([] if expected is None else [(expected[0], at(expected[1]))]), row


def test_what_a_row_shows_in_multiples() -> None:
    shown: dict[Numbers, tuple[str, float] | None] = {
        (0, 300, 180, 100): ("seen", 1.2),
        (0, 600, 480, 100): ("seen", 1.2),  # the same, from a shelf of six multiples
        (0, 600, 0, 100): ("cut off", 4),  # at least six is at least four
        (0, 600, 100, 100): ("cut off", 4),  # five were sold, which is at least four
        (0, 300, 0, 100): ("cut off", 3),
        (550, 600, 480, 100): ("seen", 1.2),  # the stock at hand may exceed the bound too
        (0, 300, 180, 1000): ("seen", 0.12),
        (0, 1e60, 0, 1e-40): ("cut off", 4),  # more than a whole number can hold
    }
    assert_shown(LostSales, shown)
    # Beyond λ nothing is seen.
    behind = {(0, 200, 80, 100): ("seen", 1.2), (0, 201, 81, 100): None, (0, 900, 780, 100): None}
    assert_shown(LostSales, behind, boundary=0.5)  # type: ignore[arg-type]
    waiting = {
        (0, 300, -100, 100): ("seen", 4.0),
        (0, 300, -500, 100): ("seen", 4.0),  # eight were asked for: clipped, and seen, because nothing is ever cut off
        (-900, 300, 180, 100): ("seen", 1.2),  # a backlog of nine multiples, all of it served
        (0, 900, 780, 100): ("seen", 1.2),
    }
    assert_shown(Backlog, waiting)  # type: ignore[arg-type]


def test_rows_that_do_not_fit_are_unobserved() -> None:
    rows: list[Numbers] = [
        (0, 300, 400, 100),  # more left than there was
        (500, 300, 100, 100),  # ordered up to less than the stock
        (700, 600, 100, 100),  # the same beyond the bound, where clipping would hide it
        (-1, 300, 100, 100),
        (0, 300, -1, 100),
        (0, 1e120, 1e119, 1.0),
        *((0, 300, 180, scale) for scale in UNUSABLE),
    ]
    assert_shown(LostSales, dict.fromkeys(rows))


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


@settings(max_examples=100, deadline=None)
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


def test_a_scale_is_taken_from_tables() -> None:
    """NULL is missing; arrays and tables give the same log again."""
    rows = a_scaled_log(SHOP, 50).to_arrow()
    missing = pa.array([None if i % 7 == 0 else v for i, v in enumerate(rows["scale_0"].to_pylist())], pa.float64())
    rows = rows.set_column(rows.column_names.index("scale_0"), "scale_0", missing)
    named = columns(1, scale=["scale_0"], scale_memory=3)
    again, table = Trajectories.from_table(rows, **named), Table(rows, **named)
    assert np.isnan(again.scale[::7]).all()
    assert table.facts == again.facts
    assert (table.facts.has_scale, table.facts.scale_memory) == (True, 3)
    np.testing.assert_array_equal(table.outcome_leaves(SHOP, bins=BINS), again.outcome_leaves(SHOP, bins=BINS))


def test_what_a_scale_needs() -> None:
    log = log_of([(0, 300, 180, 100)])
    rows = {name: getattr(log, name) for name in PARTS}
    for facts, words in (
        ({"scale_memory": 1}, "scale_memory needs scale"),
        ({"scale": log.scale, "scale_memory": -1}, "scale_memory must be a whole number of at least 0, got -1"),
        ({"scale": np.ones((1, 1))}, "scale must have the shape of states"),
    ):
        with pytest.raises(ValueError, match=words):
            Trajectories(**rows, **facts)


def test_a_log_with_a_scale_is_never_complete() -> None:
    """It is not public whether a scale was usable, so unobserved slots are released even where λ = 1."""
    released = release_outcomes(
        log_of([(0, 300, 180, 100)]), WAITING, level_sizes=(1, 2, 4), rho=1.0, noise=SeededNoise(0)
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
