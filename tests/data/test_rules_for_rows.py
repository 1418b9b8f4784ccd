"""The rules for rows against the same rules for one number at a time, on problems whose bounds are nowhere 0 or 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from poolrl import Backlog, Boundary, LostSales, OutcomeProblem, SeparableProblem
from poolrl.checks import FloatArray
from poolrl.data.row_rules import (
    PARTS,
    as_counted,
    bound_rules,
    bounds,
    fit_rules,
    fits_in_any_unit,
    moved_inside,
    possible,
    usable_amount,
    usable_divisor,
    within,
)
from poolrl.geometry.bins import bin_edges, bin_of
from poolrl.problems.problem import ROUNDING
from tests.helpers.own_problems import Wear

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


def test_bounds_are_those_of_their_part() -> None:
    """A rounding error beyond a bound is allowed, twice as much is not."""
    problem = PROBLEMS[0]
    rows = rows_of(problem)
    rules = bound_rules(problem, rows)
    assert [rule.part for rule in rules] == list(PARTS) == ["states", "actions", "next_states"]
    for part, rule, (low, high) in zip(rows, rules, bounds(problem), strict=True):
        room = ROUNDING * (high - low)
        expected = [[low[i] - room[i] <= row[i] <= high[i] + room[i] for i in (0, 1)] for row in part]
        np.testing.assert_array_equal(rule.held, expected)
        np.testing.assert_array_equal(within(part, low, high), expected)


def test_every_rule_in_words() -> None:
    """`poolrl check` and every refusal say these."""
    one = (np.zeros((1, 1)),) * 3
    costs = {"horizon": 1, "holding": 1.0, "shortage": 1.0, "demand_max": 10.0}
    within_bounds = ("must lie within the public bounds of the problem", "outside the public bounds")
    below, above = "below the least allowed (the stock on hand)", "above the largest allowed"
    implied = "an outcome (sales, demand) outside its public bounds"
    told = [
        ("states", *within_bounds),
        ("actions", *within_bounds),
        ("next_states", *within_bounds),
        ("actions", f"must be feasible, but some lie {below}", below),
        ("actions", f"must be feasible, but some lie {above}", above),
        ("next_states", f"must follow from the actions: some imply {implied}", f"with {implied}"),
    ]
    never = "must be such that observe() reports no cut: the problem declares that outcomes are never cut off"
    for problem, more in ((LostSales(**costs), []), (Backlog(**costs), [("next_states", never, "cut off")])):
        rules = [*bound_rules(problem, one), *fit_rules(problem, 0, one)]
        assert [(rule.part, rule.rule, rule.broken) for rule in rules] == told + more


def test_which_amounts_and_scales_can_be_used() -> None:
    """Up to the limit and at it, but not one step of a double beyond, and never what is no number."""
    inf, nan = np.inf, np.nan
    scales = np.array([1e-50, np.nextafter(1e-50, 0), 1.0, 1e50, np.nextafter(1e50, inf), 0.0, -1.0, inf, -inf, nan])
    assert usable_divisor(scales).tolist() == [True, False, True, True, False, False, False, False, False, False]
    amounts = np.array([1e100, np.nextafter(1e100, inf), -1e100, np.nextafter(-1e100, -inf), 0.0, inf, -inf, nan])
    assert usable_amount(amounts).tolist() == [True, False, True, False, True, False, False, False]


def test_bins_by_hand() -> None:
    """Four bins with edges 0, 1/16, 4/16, 9/16, 1."""
    assert bin_edges(4).tolist() == [0.0, 0.0625, 0.25, 0.5625, 1.0]
    below = np.nextafter([0.0625, 0.25, 0.5625, 1.0], 0)
    assert bin_of(below, 4).tolist() == [0, 1, 2, 3]
    assert bin_of(np.array([-1.0, 0.0, 0.0625, 0.25, 0.5625, 1.0, 1e300]), 4).tolist() == [0, 0, 1, 2, 3, 3, 3]
    assert bin_of(below, 4).dtype == np.int64
