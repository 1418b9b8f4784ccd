"""Which rows a log can hold at all, and how one that cannot is moved to the nearest that can.

States (..., w), actions (..., d) and next states (..., w) are arrays, or vectors of a table's columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poolrl.checks import FloatArray
from poolrl.problems.problem import ROUNDING, OutcomeProblem, Problem, SeparableProblem

# A FloatArray, or a ColumnVector, which behaves like one.
Numbers = Any
Row = tuple[Numbers, Numbers, Numbers]


def bounds(problem: Problem) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """The public range of states, actions and next states."""
    states = problem.state_low, problem.state_high
    return states, (problem.action_low, problem.action_high), states


def possible(problem: Problem, step: int, row: Row) -> Numbers:
    """Whether values within their bounds fit each other: (..., k) coordinate by coordinate, else (..., 1)."""
    state, action, _ = row
    low, high = problem.feasible(step, state)
    slack = ROUNDING * (problem.action_high - problem.action_low)
    rules = [(action >= low - slack) & (action <= high + slack)]
    if isinstance(problem, OutcomeProblem):
        seen, cut = problem.observe(step, *row)
        rules.append(within(seen, problem.outcome_low, problem.outcome_high))
        if not problem.censored:
            rules.append(~cut)
    if not isinstance(problem, SeparableProblem):
        rules = [rule.all(axis=-1, keepdims=True) for rule in rules]
    held = rules[0]
    for rule in rules[1:]:
        held = held & rule
    return held


def moved_inside(problem: Problem, step: int, row: Row) -> Row:
    """The row with every value moved into its bounds, the action into what its state allows."""
    state, action, next_state = (
        np.clip(part, low, high) for part, (low, high) in zip(row, bounds(problem), strict=True)
    )
    action = np.clip(action, *problem.feasible(step, state))
    if not isinstance(problem, OutcomeProblem):
        return state, action, next_state
    seen, _ = problem.observe(step, state, action, next_state)
    inside = np.clip(seen, problem.outcome_low, problem.outcome_high)
    out = (seen != inside).any(axis=-1, keepdims=True)
    return state, action, np.where(out, problem.next_state(step, state, action, inside), next_state)


def within(values: Numbers, low: FloatArray, high: FloatArray) -> Numbers:
    """Whether values lie between public bounds; a rounding error outside is inside."""
    slack = ROUNDING * (high - low)
    return (values >= low - slack) & (values <= high + slack)
