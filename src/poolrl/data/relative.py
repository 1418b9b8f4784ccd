"""Amounts as multiples of a scale: which rows are usable, and how they are counted.

With a scale, and where a label cell has a bound of its own, a row's amounts are divided before any formula sees them.
A multiple may then exceed the problem's bounds through no fault of the row. What such a row shows is kept, and moved
into the outcome's bounds. Arrays and tables are judged by the same functions.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

import numpy as np

from poolrl.checks import FloatArray
from poolrl.data.log import Log
from poolrl.data.row_rules import Numbers, Row, bound_rules, bounds, moved_inside, possible
from poolrl.problems.problem import OutcomeProblem, Problem, SeparableProblem

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
    if is_relative(log, problem) and not isinstance(problem, SeparableProblem):
        raise ValueError(
            f"a scale needs a problem whose coordinates have a unit each (SeparableProblem); {type(problem).__name__} "
            "is none"
        )


def refuse_visits(log: Log, problem: Problem) -> None:
    """Refuse to count visits of a log with labels or a scale: nodes have no place for them."""
    if log.has_scale or log.label_names or problem.labels:
        raise ValueError("labels and a scale need outcome counts: use counts=Outcomes(), or leave them out")


def usable_divisor(divisor: Numbers) -> Numbers:
    """Whether amounts can be divided by it; false, or NULL, where a scale is missing, NaN, infinite, 0 or negative."""
    return (divisor >= SMALLEST_SCALE) & (divisor <= LARGEST_SCALE)


def usable_amount(amount: Numbers) -> Numbers:
    """Whether it can be divided by every scale."""
    return (amount >= -LARGEST_AMOUNT) & (amount <= LARGEST_AMOUNT)


def as_counted(problem: Problem, step: int, row: Row, *, relative: bool, clip: bool) -> tuple[Row, Numbers]:
    """The row as it is counted, and where its values fit each other. Rows that are not relative are within bounds."""
    if clip:
        row = moved_inside(problem, step, row)
    elif relative and isinstance(problem, OutcomeProblem):
        return moved_inside(problem, step, row), fits_when_shrunk(problem, step, row)
    return row, possible(problem, step, row)


def fits_when_shrunk(problem: OutcomeProblem, step: int, row: Row) -> Numbers:
    """Where the amounts of a row fit each other, also if they or the outcome exceed their bounds, (..., k).

    Whether they do (sales are not negative, an order is not less than the stock) does not depend on the unit. So a row
    that exceeds its bounds is judged in the unit in which it just fits them. No unit mends an amount on the wrong side
    of zero.
    """
    seen, _ = problem.observe(step, *row)
    limits = (*bounds(problem), (problem.outcome_low, problem.outcome_high))
    shares = [_share_inside(part, low, high) for part, (low, high) in zip((*row, seen), limits, strict=True)]
    share: Numbers = reduce(np.minimum, shares)
    state, action, next_state = (part * share for part in row)
    shrunk = state, action, next_state
    held = [rule.held for rule in bound_rules(problem, shrunk)]
    return reduce(and_, held) & possible(problem, step, shrunk)


def _share_inside(amount: Numbers, low: FloatArray, high: FloatArray) -> Numbers:
    """The largest share of an amount, up to all of it, that is within its bounds on its own side of zero."""
    top, bottom = np.where(high > 0, high, 1.0), np.where(low < 0, low, -1.0)
    above: Numbers = np.where(high > 0, top / np.maximum(amount, top), 1.0)
    below: Numbers = np.where(low < 0, bottom / np.minimum(amount, bottom), 1.0)
    return np.minimum(above, below)
