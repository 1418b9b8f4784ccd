"""Which rows are possible, and how an impossible row is moved to the nearest possible one.

Arrays are refused by these rules, tables are counted by them, and `poolrl check` explains them. States (..., w),
actions (..., d) and next states (..., w) are arrays, or vectors of a table's columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np

from poolrl.checks import FloatArray
from poolrl.problems.problem import ROUNDING, OutcomeProblem, Problem, SeparableProblem

# A FloatArray, or a ColumnVector, which behaves like one.
Numbers = Any
Row = tuple[Numbers, Numbers, Numbers]
PARTS = ("states", "actions", "next_states")


@dataclass(frozen=True)
class RowRule:
    """One rule about a part of the row, and where it holds."""

    part: str  # one of PARTS
    rule: str  # in words
    broken: str  # how to describe a row that breaks it
    held: Numbers  # (..., coordinates of that part)


def bounds(problem: Problem) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """The public range of states, actions and next states (with what a row shows beside them)."""
    states = problem.state_low, problem.state_high
    return states, (problem.action_low, problem.action_high), (problem.arrival_low, problem.arrival_high)


def bound_rules(problem: Problem, row: Row) -> list[RowRule]:
    """Every number lies within its public bounds."""
    parts = zip(PARTS, row, bounds(problem), strict=True)
    rule, broken = "must lie within the public bounds of the problem", "outside the public bounds"
    return [RowRule(part, rule, broken, within(value, *limits)) for part, value, limits in parts]


def fit_rules(problem: Problem, step: int, row: Row) -> list[RowRule]:
    """Numbers within their bounds fit each other: the action is feasible, the implied outcome is possible."""
    state, action, _ = row
    low, high = problem.feasible(step, state)
    slack = ROUNDING * (problem.action_high - problem.action_low)
    below, above = "below the least allowed (the stock on hand)", "above the largest allowed"
    rules = [
        RowRule("actions", f"must be feasible, but some lie {below}", below, action >= low - slack),
        RowRule("actions", f"must be feasible, but some lie {above}", above, action <= high + slack),
    ]
    if isinstance(problem, OutcomeProblem):
        seen, cut = problem.observe(step, *row)
        inside = within(seen, problem.outcome_low, problem.outcome_high)
        implied = "an outcome (sales, demand) outside its public bounds"
        rule = f"must follow from the actions: some imply {implied}"
        rules.append(RowRule("next_states", rule, f"with {implied}", inside))
        if not problem.censored:
            never = "must be such that observe() reports no cut: the problem declares that outcomes are never cut off"
            rules.append(RowRule("next_states", never, "cut off", ~cut))
    return rules


def possible(problem: Problem, step: int, row: Row) -> Numbers:
    """Where values within their bounds fit each other: (..., k) coordinate by coordinate, else (..., 1)."""
    masks = [rule.held for rule in fit_rules(problem, step, row)]
    if not isinstance(problem, SeparableProblem):
        masks = [mask.all(axis=-1, keepdims=True) for mask in masks]
    return reduce(and_, masks)


def moved_inside(problem: Problem, step: int, row: Row) -> Row:
    """The row with every value moved into its bounds, the action into what its state allows, and what it shows kept.

    The row is observed first: 120 sold of 600 are 120 sold of the 400 that the bounds allow. A next state is made anew
    only where something moved. A cut-off row stays cut off: it is rebuilt with the furthest outcome that there is.
    """
    state, action, next_state = (np.clip(part, *limits) for part, limits in zip(row, bounds(problem), strict=True))
    action = np.clip(action, *problem.feasible(step, state))
    if not isinstance(problem, OutcomeProblem):
        return state, action, next_state
    seen, cut = problem.observe(step, *row)
    inside = np.clip(seen, problem.outcome_low, problem.outcome_high)
    furthest = problem.outcome_high if problem.boundary.side == "lower" else problem.outcome_low
    rebuilt = problem.next_state(step, state, action, np.where(cut, furthest, inside))
    changes = [before != after for before, after in zip((*row, seen), (state, action, next_state, inside), strict=True)]
    if not isinstance(problem, SeparableProblem):
        changes = [change.any(axis=-1, keepdims=True) for change in changes]
    return state, action, np.where(reduce(or_, changes), rebuilt, next_state)


def within(values: Numbers, low: FloatArray, high: FloatArray) -> Numbers:
    """Whether values lie between public bounds. A rounding error beyond a bound is allowed."""
    slack = ROUNDING * (high - low)
    return (values >= low - slack) & (values <= high + slack)
