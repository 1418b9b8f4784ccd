"""The rules for rows: against the same for one number at a time, and as multiples of a scale, worked by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import (
    Backlog,
    Boundary,
    LostSales,
    OutcomeProblem,
    ReserveAuction,
    SeededNoise,
    SeparableProblem,
    Trajectories,
)
from poolrl.checks import FloatArray
from poolrl.data.cells import outcome_cells
from poolrl.data.row_rules import (
    PARTS,
    as_counted,
    bound_rules,
    bounds,
    fit_rules,
    fits_in_any_unit,
    moved_inside,
    multiples_of,
    possible,
    usable_divisor,
)
from poolrl.geometry.bins import bin_edges, bin_of
from poolrl.privacy.release import release_outcomes
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import ROUNDING
from tests.helpers.own_problems import Wear
from tests.helpers.tables import UNUSABLE, wide

Limits = tuple[list[float], list[float]]


class Stock(OutcomeProblem):
    """Stock at least at a floor, which cuts the outcome off; two goods whose rows stand or fall together."""

    horizon = 2

    def __init__(
        self, state: Limits, action: Limits, outcome: Limits, *, side: str = "lower", cuts: bool = True
    ) -> None:
        self.state_low, self.state_high = map(np.array, state)
        self.action_low, self.action_high = map(np.array, action)
        self.outcome_low, self.outcome_high = map(np.array, outcome)
        self.initial_state, self.censored = self.state_low, cuts
        share = np.full((2, 4), 1.0 if side == "lower" else 0.0)
        self.boundary = Boundary(share, side=side)  # type: ignore[arg-type]

    def feasible(self, step: int, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        low = np.maximum(state, self.action_low)
        return low, np.maximum(low, np.minimum(state + 2, self.action_high))

    def next_state(self, step: int, state: FloatArray, action: FloatArray, outcome: FloatArray) -> FloatArray:
        # Whole numbers only: a row that is made anew without need shows it.
        return np.floor(np.clip(action - outcome, self.state_low, self.state_high))

    def observe(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> Any:
        return action - next_state, next_state <= self.state_low

    def reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        return -next_state.sum(axis=-1)

    def reward_range(self, step: int) -> tuple[float, float]:
        return -100.0, 100.0


class Apart(Stock, SeparableProblem):
    """The same, good by good."""

    reward = Stock.reward

    def coordinate_reward(self, step: int, state: FloatArray, action: FloatArray, next_state: FloatArray) -> FloatArray:
        return -next_state


# Ranges of 8 and 3, of 5 and 9, and of 4 and 7. None starts at 0.
ODD: tuple[Limits, Limits, Limits] = (([-3, 1], [5, 4]), ([2, -4], [7, 5]), ([1, -2], [5, 5]))
# Bounds on every side of zero, and at it.
SIGNS: tuple[Limits, Limits, Limits] = (([0, -3], [5, 0]), ([-4, 0], [0, 5]), ([-2, 1], [-1, 6]))
# Bounds within one of zero, and actions below what any state needs.
CLOSE: tuple[Limits, Limits, Limits] = (([-3, -0.5], [5, 0.5]), ([-2, -0.5], [7, 0.5]), ([-2, -1], [5, 9]))
# Actions that are never positive, and states that allow less than that.
LOW: tuple[Limits, Limits, Limits] = (([-5, -5], [3, 3]), ([-4, -4], [0, -1]), ([-2, 1], [1, 6]))
PROBLEMS = [
    kind(*limits, side=side, cuts=cuts)
    for kind in (Stock, Apart)
    for limits in (ODD, SIGNS, CLOSE, LOW)
    for side, cuts in (("lower", True), ("higher", True), ("lower", False))
]


def rows_of(problem: Stock, count: int = 1500) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Whole numbers in and around the bounds, and numbers that are off a bound by half, one or two rounding errors."""
    rng = np.random.default_rng(5)
    parts = []
    for low, high in bounds(problem):
        slack = ROUNDING * (high - low)
        near = np.stack(
            [low - 2 * slack, low - slack, low - slack / 2, high + slack / 2, high + slack, high + 2 * slack]
        )
        far = rng.integers(-12, 17, (count, 2)) / 2
        parts.append(np.where(rng.uniform(size=(count, 2)) < 0.3, near[rng.integers(0, 6, (count, 2)), [0, 1]], far))
    # Actions that are off what the state allows, by the same.
    allowed, slack = problem.feasible(0, parts[0])[0], ROUNDING * (problem.action_high - problem.action_low)
    off = rng.choice([-2.0, -1.0, -0.5, 0.0], (count, 2)) * slack
    parts[1] = np.where(rng.uniform(size=(count, 2)) < 0.3, allowed + off, parts[1])
    # Next states that follow from an outcome within its bounds.
    outcome = rng.integers(problem.outcome_low, problem.outcome_high + 1, (count, 2))
    parts[2] = np.where(rng.uniform(size=(count, 1)) < 0.5, parts[1] - outcome, parts[2])
    # Rows of which nothing has to move, if the outcome leads to a state at all.
    good, halves = rng.uniform(size=(count, 1)) < 0.4, rng.integers(0, 2, (count, 2)) / 2
    state = np.clip(parts[0], problem.state_low, problem.state_high)
    action = np.clip(parts[1], *problem.feasible(0, state))
    whole = (state, action, action - np.minimum(outcome + halves, problem.outcome_high))
    return tuple(np.where(good, each, part) for each, part in zip(whole, parts, strict=True))  # type: ignore[return-value]


def one_by_one(problem: Stock, rows: Any, rule: Callable[..., bool]) -> np.ndarray[Any, Any]:
    """A rule for good i of one row, for all of them; goods that stand or fall together have one answer."""
    each = [[rule(problem, i, *(float(part[m, i]) for part in rows)) for i in (0, 1)] for m in range(len(rows[0]))]
    answers = np.array(each)
    return answers if isinstance(problem, SeparableProblem) else answers.all(axis=1, keepdims=True)


def limits_of(problem: Stock, i: int) -> Iterator[tuple[float, float]]:
    for name in ("state", "action", "outcome"):
        yield float(getattr(problem, f"{name}_low")[i]), float(getattr(problem, f"{name}_high")[i])


def fits(problem: Stock, i: int, state: float, action: float, after: float) -> bool:
    """The action is allowed in its state, the outcome is within its bounds, and cut off only if that can be."""
    (floor, _), (low, high), (least, most) = limits_of(problem, i)
    slack, room = ROUNDING * (high - low), ROUNDING * (most - least)
    low = max(state, low)
    high = max(low, min(state + 2, high))
    allowed = low - slack <= action <= high + slack
    return allowed and least - room <= action - after <= most + room and (problem.censored or after > floor)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_which_rows_fit(problem: Stock) -> None:
    rows = rows_of(problem)
    expected = one_by_one(problem, rows, fits)
    assert 10 < expected.sum() < expected.size - 10
    np.testing.assert_array_equal(possible(problem, 0, rows), expected)
    same, mask = as_counted(problem, 0, rows, relative=False, clip=False)
    assert same is rows
    np.testing.assert_array_equal(mask, expected)


def fits_in_any(problem: Stock, i: int, state: float, action: float, after: float) -> bool:
    """A bound of zero holds in every unit, and so does what the state allows; another bound may be exceeded."""
    (floor, top), (low, high), (least, most) = limits_of(problem, i)
    for amount, below, above in (
        (state, floor, top),
        (action, low, high),
        (after, floor, top),
        (action - after, least, most),
    ):
        slack = ROUNDING * (above - below)
        if (below >= 0 and amount < below - slack) or (above <= 0 and amount > above + slack):
            return False
    slack = ROUNDING * (high - low)
    lowest = max(state, low)
    highest = max(lowest, min(state + 2, high))
    if action < lowest - slack and not (low < 0 and lowest <= low):
        return False
    if action > highest + slack and not (high > 0 and highest >= high):
        return False
    return problem.censored or after > floor


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if isinstance(p, Apart)])
def test_which_rows_fit_in_any_unit(problem: Apart) -> None:
    rows = rows_of(problem)
    expected = one_by_one(problem, rows, fits_in_any)
    assert 10 < expected.sum() < expected.size - 10
    np.testing.assert_array_equal(fits_in_any_unit(problem, 0, rows), expected)
    same, mask = as_counted(problem, 0, rows, relative=True, clip=False)
    assert same is rows
    np.testing.assert_array_equal(mask, expected)


def test_a_count_keeps_its_bounds_in_any_unit_and_amounts_only_their_side_of_zero() -> None:
    """Two lots, bids up to 4: lots before, reserve, lots after, the highest bid and the price."""
    auction = ReserveAuction(horizon=1, lots=2, bid_max=4.0)
    told = [
        ((2, 1.0, 1, 6.0, 5.0), True),  # multiples may exceed their bounds
        ((2, 9.0, 2, 9.0, 9.0), True),
        ((3, 1.0, 2, 2.0, 1.5), False),
        ((2, 1.0, 3, 1.0, 1.0), False),
        ((0, 1.0, -1, 2.0, 1.5), False),
        ((2, 1.0, 1, 2.0, -0.5), False),
        ((2, -1.0, 1, 2.0, 1.5), False),
    ]
    rows = np.array([row for row, _ in told], dtype=np.float64)
    found = fits_in_any_unit(auction, 0, (rows[:, :1], rows[:, 1:2], rows[:, 2:]))
    assert found.tolist() == [[fits] for _, fits in told]


def moved(problem: Stock, i: int, state: float, action: float, after: float) -> tuple[tuple[float, ...], bool, float]:
    """Good i of a row moved inside, whether anything moved, and the next state if the row is made anew."""
    (floor, top), (low, high), (least, most) = limits_of(problem, i)
    seen, is_cut = action - after, after <= floor
    inside = min(max(seen, least), most)
    new_state = min(max(state, floor), top)
    lowest = max(new_state, low)
    new_action = min(max(min(max(action, low), high), lowest), max(lowest, min(new_state + 2, high)))
    new_after = min(max(after, floor), top)
    furthest = most if problem.boundary.side == "lower" else least
    again = float(np.floor(min(max(new_action - (furthest if is_cut else inside), floor), top)))
    changed = (state, action, after, seen) != (new_state, new_action, new_after, inside)
    return (new_state, new_action, new_after), changed, again


@pytest.mark.parametrize("problem", PROBLEMS)
def test_where_impossible_rows_are_moved_to(problem: Stock) -> None:
    rows = rows_of(problem)
    found = moved_inside(problem, 0, rows)
    remade = 0
    for m in range(len(rows[0])):
        goods = [moved(problem, i, *(float(part[m, i]) for part in rows)) for i in (0, 1)]
        together = any(changed for _, changed, _ in goods) and not isinstance(problem, SeparableProblem)
        for i, (kept, changed, again) in enumerate(goods):
            remade += changed or together
            after = again if changed or together else kept[2]
            assert tuple(float(part[m, i]) for part in found) == (*kept[:2], after)
    assert remade > 100
    clipped, mask = as_counted(problem, 0, rows, relative=True, clip=True)
    for mine, theirs in zip(clipped, found, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(mask, possible(problem, 0, found))


def test_rows_without_outcomes_are_only_moved() -> None:
    rows = (np.array([[-1.0], [4.0]]), np.array([[12.0], [3.0]]), np.array([[11.0], [2.0]]))
    found = moved_inside(Wear(2), 0, rows)
    assert [part.ravel().tolist() for part in found] == [[0.0, 4.0], [10.0, 3.0], [10.0, 2.0]]
    assert [rule.part for rule in fit_rules(Wear(2), 0, rows)] == ["actions", "actions"]
    # Without outcomes no row can be judged in multiples: what fits is what is possible.
    _, mask = as_counted(Wear(2), 0, rows, relative=True, clip=False)
    assert mask.ravel().tolist() == [False, True]


def test_every_rule_in_words() -> None:
    """`poolrl check` and every refusal say these words."""
    one = (np.zeros((1, 1)),) * 3
    costs = {"horizon": 1, "holding": 1.0, "shortage": 1.0, "demand_max": 10.0}
    told = [
        *((part, "must lie within the public bounds", "outside the public bounds") for part in PARTS),
        ("actions", "must be feasible, but some lie below", "below the least allowed"),
        ("actions", "must be feasible, but some lie above", "above the largest allowed"),
        ("next_states", "must follow from the actions: some imply an outcome", "with an outcome"),
    ]
    never = ("next_states", "must be such that observe() reports no cut", "cut off")
    for problem, expected in ((LostSales(**costs), told), (Backlog(**costs), [*told, never])):
        rules = [*bound_rules(problem, one), *fit_rules(problem, 0, one)]
        for rule, (part, words, broken) in zip(rules, expected, strict=True):
            assert (rule.part, rule.rule[: len(words)], rule.broken[: len(broken)]) == (part, words, broken)


def test_which_amounts_and_scales_can_be_used() -> None:
    """Up to the limit and at it, but not one step of a double beyond, and never what is no number."""
    inf, nan = np.inf, np.nan
    scales = np.array([1e-50, np.nextafter(1e-50, 0), 1.0, 1e50, np.nextafter(1e50, inf), 0.0, -1.0, inf, -inf, nan])
    assert usable_divisor(scales).tolist() == [True, False, True, True, False, False, False, False, False, False]
    amounts = np.array([1e100, np.nextafter(1e100, inf), -1e100, np.nextafter(-1e100, -inf), 0.0, inf, -inf, nan])
    held = [True, False, True, False, True, False, False, False]
    fine, _ = multiples_of(LostSales(horizon=1, holding=1.0, shortage=1.0, demand_max=8.0), divided=True)
    for part in range(3):
        row = [np.ones((8, 1)) for _ in range(4)]
        row[part] = amounts[:, None]
        assert fine(*row).ravel().tolist() == held
    ones = np.ones((10, 1))
    np.testing.assert_array_equal(fine(ones, ones, ones, scales[:, None]).ravel(), usable_divisor(scales))


def test_bins_by_hand() -> None:
    """Four bins with edges 0, 1/16, 4/16, 9/16, 1."""
    assert bin_edges(4).tolist() == [0.0, 0.0625, 0.25, 0.5625, 1.0]
    below = np.nextafter([0.0625, 0.25, 0.5625, 1.0], 0)
    assert bin_of(below, 4).tolist() == [0, 1, 2, 3]
    assert bin_of(np.array([-1.0, 0.0, 0.0625, 0.25, 0.5625, 1.0, 1e300]), 4).tolist() == [0, 0, 1, 2, 3, 3, 3]
    assert bin_of(below, 4).dtype == np.int64


# Multiples of a scale.


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
        (0, 600, 0, 100): ("cut off", 4),  # at least six is at least four
        (0, 600, 200, 100): ("cut off", 4),  # nobody knows whether it would have been more than four
        (0, 600, 200.01, 100): ("seen", 3.9999),
        (550, 600, 480, 100): ("seen", 1.2),  # the stock at hand may exceed the bound too
        (0, 1e60, 0, 1e-40): ("cut off", 4),  # more than a whole number can hold
    }
    assert_shown(LostSales, shown)
    # Beyond λ nothing is seen.
    behind = {(0, 200, 80, 100): ("seen", 1.2), (0, 201, 81, 100): None, (0, 900, 780, 100): None}
    assert_shown(LostSales, behind, boundary=0.5)  # type: ignore[arg-type]
    waiting = {
        (0, 300, -500, 100): ("seen", 4.0),  # eight were asked for: clipped, and seen, because nothing is ever cut off
        (-900, 300, 180, 100): ("seen", 1.2),  # a backlog of nine multiples, all of it served
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


def test_a_log_with_a_scale_is_never_complete() -> None:
    """It is not public whether a scale was usable, so unobserved slots are released even where λ = 1."""
    released = release_outcomes(
        log_of([(0, 300, 180, 100)]), WAITING, level_sizes=(1, 2, 4), rho=1.0, noise=SeededNoise(0)
    )
    assert released.unobserved is not None
    # L = 3: the root is not public either.
    assert released.guarantee.mechanisms[0].sensitivity_squared == 2 * 3
