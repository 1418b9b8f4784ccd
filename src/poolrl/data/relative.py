"""Amounts as multiples of a scale: which rows are usable, and how they are counted.

With a scale, and where a label cell has a bound of its own, a row's amounts are divided before any formula sees them.
A multiple may then exceed the problem's bounds through no fault of the row. What such a row shows is kept: an outcome
at its bound or beyond is "at least the bound". Arrays and tables are judged by the same functions.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

import numpy as np

from poolrl.checks import FloatArray
from poolrl.data.log import Log
from poolrl.data.row_rules import Numbers, Row, bounds, moved_inside, possible, within
from poolrl.problems.problem import ROUNDING, OutcomeProblem, Problem, SeparableProblem

# Beyond them amounts and scales count as infinite or zero: no quotient and no square of one can then overflow, also in
# engines whose arithmetic fails where NumPy's gives infinity.
LARGEST_AMOUNT = 1e100
SMALLEST_SCALE, LARGEST_SCALE = 1e-50, 1e50


def is_relative(log: Log, problem: Problem) -> bool:
    """Whether rows are divided before they are counted."""
    return log.has_scale or has_own_bounds(problem)


def has_own_bounds(problem: Problem) -> bool:
    """Whether a label cell has another public bound than the problem."""
    return isinstance(problem, OutcomeProblem) and bool((problem.bound_share != 1).any())


def check_relative(log: Log, problem: Problem) -> None:
    """Refuse, by public facts alone, a problem whose rows cannot be divided or have other labels than the log."""
    problem.labels.require(log.label_names)
    separable = isinstance(problem, SeparableProblem)
    if is_relative(log, problem) and not (separable or (isinstance(problem, OutcomeProblem) and problem.scale_dim)):
        raise ValueError(
            "a scale needs a problem whose coordinates have a unit each (SeparableProblem), or whose state is a count; "
            f"{type(problem).__name__} is none"
        )
    if log.has_coordinates and not isinstance(problem, SeparableProblem):
        raise ValueError(
            "a table with one row per coordinate needs a problem whose coordinates are counted one by one "
            f"(SeparableProblem); {type(problem).__name__} is none"
        )


def refuse_visits(log: Log, problem: Problem) -> None:
    """Refuse to count visits of a log with labels or a scale, for which nodes have no place, or with rows in parts."""
    if log.has_coordinates:
        raise ValueError("a table with one row per coordinate needs outcome counts: use counts=Outcomes()")
    if len(problem.arrival_low) != problem.state_dim:
        raise ValueError("rows that show more than the next state need outcome counts: use counts=Outcomes()")
    if log.has_scale or log.label_names or problem.labels:
        raise ValueError("labels and a scale need outcome counts: use counts=Outcomes(), or leave them out")


def usable_divisor(divisor: Numbers) -> Numbers:
    """Whether amounts can be divided by it; false, or NULL, where a scale is missing, NaN, infinite, 0 or negative."""
    return (divisor >= SMALLEST_SCALE) & (divisor <= LARGEST_SCALE)


def usable_amount(amount: Numbers) -> Numbers:
    """Whether it can be divided by every scale."""
    return (amount >= -LARGEST_AMOUNT) & (amount <= LARGEST_AMOUNT)


def part_divisors(problem: Problem, divisor: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """What states, actions and next states are divided by. A count is divided by nothing."""
    if not isinstance(problem, OutcomeProblem) or not problem.counts_down:
        return divisor, divisor, divisor
    # One, or missing where the divisor is: a table's numbers are then missing together.
    one = divisor / divisor
    amount = np.arange(len(problem.arrival_low)) >= problem.state_dim
    return one, divisor, np.where(amount, divisor, one)


def as_counted(problem: Problem, step: int, row: Row, *, relative: bool, clip: bool) -> tuple[Row, Numbers]:
    """The row as it is counted, and where its values fit each other. Rows that are not relative are within bounds."""
    if clip:
        row = moved_inside(problem, step, row)
    elif relative and isinstance(problem, OutcomeProblem):
        return row, fits_in_any_unit(problem, step, row)
    return row, possible(problem, step, row)


def fits_in_any_unit(problem: OutcomeProblem, step: int, row: Row) -> Numbers:
    """Where the amounts of a row fit each other, although they may exceed their bounds, (..., k).

    A bound of zero is the same in every unit: sales are not negative. So are limits that follow from the state: an
    order is not less than the stock. All other bounds a multiple may exceed through no fault of the row.
    """
    state, action, _ = row
    least, most = problem.feasible(step, state)
    lowest, highest = problem.action_low, problem.action_high
    slack = ROUNDING * (highest - lowest)
    seen, cut = problem.observe(step, *row)
    limits = (*bounds(problem), (problem.outcome_low, problem.outcome_high))
    held = [_on_its_side(amount, low, high) for amount, (low, high) in zip((*row, seen), limits, strict=True)]
    # Where an outcome may have either sign, what is no number at all must not pass for one.
    held.append(np.where(problem.outcome_low < 0, seen - seen == 0.0, True))
    # A limit that is the bound itself may be exceeded, unless it is zero.
    held.append((action >= least - slack) | np.where(lowest < 0, least <= lowest, False))
    held.append((action <= most + slack) | np.where(highest > 0, most >= highest, False))
    if problem.counts_down:
        # A count is the same in every unit, and its bounds are.
        counts = row[0], row[2][..., : problem.state_dim]
        held += [within(count, problem.state_low, problem.state_high) for count in counts]
        held = [each.all(axis=-1, keepdims=True) for each in held]
    uncut = ~cut.all(axis=-1, keepdims=True) if problem.counts_down else ~cut
    return reduce(and_, held if problem.censored else [*held, uncut])


def _on_its_side(amount: Numbers, low: FloatArray, high: FloatArray) -> Numbers:
    """Whether an amount is on the side of zero on which its bounds are."""
    slack = ROUNDING * (high - low)
    above: Numbers = np.where(low < 0, True, amount >= low - slack)
    below: Numbers = np.where(high > 0, True, amount <= high + slack)
    return above & below
