"""Which rows are possible, how an impossible row is moved to the nearest possible one, and amounts as multiples.

Arrays are refused by these rules, tables are counted by them, and `poolrl check` explains them. States (..., w),
actions (..., d) and next states (..., w) are arrays, or symbols of a formula that is recorded.

With a scale, and where a label cell has a bound of its own, a row's amounts are divided before any formula sees them. A
multiple may then exceed the public bounds through no fault of the row: its outcome counts as "at least the bound".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrl.checks import FloatArray
from poolrl.data.trace import Recording, record, record_steps
from poolrl.problems.problem import ROUNDING, OutcomeProblem, Problem, SeparableProblem

Numbers = Any  # a FloatArray, or a Symbol, which behaves like one
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


def widths(problem: Problem) -> dict[str, int]:
    """How many numbers a row has in each part."""
    return {part: len(low) for part, (low, _) in zip(PARTS, bounds(problem), strict=True)}


def recorded_row(problem: Problem, formula: Callable[..., Any], *more: NDArray[Any]) -> Recording:
    """A formula of a row's state, action and next state, and of vectors like `more`."""
    shapes = [(width,) for width in widths(problem).values()]
    return record(f"formulas of {type(problem).__name__}", formula, [*shapes, *more])


def is_ours(problem: Problem) -> bool:
    """Whether its formulas are this package's: its class is, and none was set on the object."""
    return type(problem).__module__.startswith("poolrl.problems.") and not any(map(callable, vars(problem).values()))


def recorded_by_step(problem: Problem, formula: Callable[..., Any], *more: NDArray[Any]) -> list[Recording]:
    """The same for each step, which the formula takes first."""
    shapes = [(width,) for width in widths(problem).values()]
    whose, ours = f"formulas of {type(problem).__name__}", is_ours(problem)
    return record_steps(whose, formula, [*shapes, *more], problem.horizon, any_step=ours)


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


def recorded_rules(problem: Problem, rules: Callable[..., list[RowRule]]) -> tuple[list[Recording], list[RowRule]]:
    """Where each rule holds, recorded for each step, beside the rules in words, which are those of every step."""
    found: list[RowRule] = []

    def held(step: int, *row: Numbers) -> tuple[Numbers, ...]:
        found[:] = rules(step, (row[0], row[1], row[2]))
        return tuple(rule.held for rule in found)

    return recorded_by_step(problem, held), found


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
    lowest, highest = _with_slack(low, high)
    return (values >= lowest) & (values <= highest)


def _with_slack(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    slack = ROUNDING * (high - low)
    return low - slack, high + slack


# Beyond them amounts and scales count as infinite or zero: no quotient or square overflows, which fails in engines.
LARGEST_AMOUNT = 1e100
SMALLEST_SCALE, LARGEST_SCALE = 1e-50, 1e50
LARGEST_NUMBER = 1e150  # larger numbers that are to be clipped count as infinite, because their squares would overflow


def has_own_bounds(problem: Problem) -> bool:
    """Whether a label cell has another public bound than the problem."""
    return isinstance(problem, OutcomeProblem) and bool((problem.bound_share != 1).any())


def usable_divisor(divisor: Numbers) -> Numbers:
    """Whether amounts can be divided by it; false, or NULL, where a scale is missing, NaN, infinite, 0 or negative."""
    return (divisor >= SMALLEST_SCALE) & (divisor <= LARGEST_SCALE)


def part_divisors(problem: Problem, divisor: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """What states, actions and next states are divided by. A count is divided by nothing."""
    if problem.scales_state:
        return divisor, divisor, divisor
    # One, or missing where the divisor is: a table's numbers are then missing together.
    one = divisor / divisor
    amount = np.arange(len(problem.arrival_low)) >= problem.state_dim
    return one, divisor, np.where(amount, divisor, one)


def multiples_of(problem: Problem, *, divided: bool, clip: bool = False) -> tuple[Recording, Recording]:
    """Which rows can be used, and each row as multiples of a unit, which is missing where it cannot.

    So what a formula cannot take is missing, in a coordinate or in a row whose coordinates belong together. Rows that
    are `divided` have a divisor, and their multiples may exceed their bounds. The unit of others is 1.
    """
    together = not isinstance(problem, SeparableProblem)
    divisors = [np.ones(problem.scale_dim)] if divided else []

    def fine(*numbers: Numbers) -> Numbers:
        limits = [_with_slack(low, high) for low, high in bounds(problem)]
        if divided or clip:
            largest = LARGEST_AMOUNT if divided else LARGEST_NUMBER
            limits = [(np.full_like(low, -largest), np.full_like(high, largest)) for low, high in limits]
        # By equality: a comparison with a bound alone is dropped by engines that trust a file's statistics without NaN.
        inside = [np.clip(part, *limit) == part for part, limit in zip(numbers, limits, strict=False)]
        if together:
            inside = [each.all(axis=-1, keepdims=True) for each in inside]
        if divided:
            inside.insert(0, np.clip(numbers[3], SMALLEST_SCALE, LARGEST_SCALE) == numbers[3])
        return reduce(and_, inside)

    def multiples(*numbers: Numbers) -> tuple[Numbers, ...]:
        *row, unit = numbers
        units = part_divisors(problem, unit) if divided else (unit, unit, unit)
        return tuple(part / each for part, each in zip(row, units, strict=True))

    first = recorded_row(problem, fine, *divisors)
    return first, recorded_row(problem, multiples, first.outputs[0].sample.astype(np.float64))


def recorded_counts(
    problem: Problem,
    formula: Callable[..., Any],
    *,
    relative: bool,
    clip: bool = False,
    judged: bool = False,
    all_usable: bool = False,
) -> list[Recording]:
    """`formula(step, row, usable)` of rows as multiples, and of where they can be used: (k,), or (1,) for a whole row.

    Rows that were `judged` before are not asked again whether their values fit each other.
    """

    def counted(step: int, *numbers: Numbers) -> Any:
        row, usable = (numbers[0], numbers[1], numbers[2]), [*numbers[3:]]
        if relative or not judged:
            row, fits = as_counted(problem, step, row, relative=relative, clip=clip)
            usable.append(fits)
        return formula(step, row, reduce(and_, usable) if usable else True)

    usable = np.ones(problem.state_dim if isinstance(problem, SeparableProblem) else 1, dtype=bool)
    return recorded_by_step(problem, counted, *([] if all_usable else [usable]))


def as_counted(problem: Problem, step: int, row: Row, *, relative: bool, clip: bool) -> tuple[Row, Numbers]:
    """The row as it is counted, and where its values fit each other. Rows that are not relative are within bounds."""
    if clip:
        row = moved_inside(problem, step, row)
    elif relative and isinstance(problem, OutcomeProblem):
        return row, fits_in_any_unit(problem, step, row)
    return row, possible(problem, step, row)


def fits_in_any_unit(problem: OutcomeProblem, step: int, row: Row) -> Numbers:
    """Where the amounts of a row fit each other, although they may exceed their bounds, (..., k).

    Bounds of zero (sales are not negative), and limits that follow from the state, are the same in every unit.
    """
    state, action, _ = row
    least, most = problem.feasible(step, state)
    lowest, highest = problem.action_low, problem.action_high
    slack = ROUNDING * (highest - lowest)
    seen, cut = problem.observe(step, *row)
    limits = (*bounds(problem), (problem.outcome_low, problem.outcome_high))
    held = [_on_its_side(amount, low, high) for amount, (low, high) in zip((*row, seen), limits, strict=True)]
    # Where an outcome may have either sign, a NaN or an infinity must not pass for a number.
    held.append(np.where(problem.outcome_low < 0, seen - seen == 0.0, True))
    # A limit that is the bound itself may be exceeded, unless it is zero.
    held.append((action >= least - slack) | np.where(lowest < 0, least <= lowest, False))
    held.append((action <= most + slack) | np.where(highest > 0, most >= highest, False))
    uncut: Numbers = ~cut
    if not problem.scales_state:
        counts = row[0], row[2][..., : problem.state_dim]
        held += [within(count, problem.state_low, problem.state_high) for count in counts]
        held = [rule.all(axis=-1, keepdims=True) for rule in held]
        uncut = ~cut.all(axis=-1, keepdims=True)
    return reduce(and_, held if problem.censored else [*held, uncut])


def _on_its_side(amount: Numbers, low: FloatArray, high: FloatArray) -> Numbers:
    """Whether an amount is on the side of zero on which its bounds are."""
    slack = ROUNDING * (high - low)
    above: Numbers = np.where(low < 0, True, amount >= low - slack)
    below: Numbers = np.where(high > 0, True, amount <= high + slack)
    return above & below
