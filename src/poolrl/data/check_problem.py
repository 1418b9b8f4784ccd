"""Check a problem of your own before it meets a log, on public dummy rows made from its declared bounds.

The code of a problem is trusted: it runs in your process, and nothing stops it from reading a log by itself. The check
finds mistakes. In any case a formula never sees rows of a log: only its recorded operations do (`data/trace.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from poolrl.checks import FloatArray
from poolrl.data.row_rules import within
from poolrl.data.trace import Symbol, record
from poolrl.problems.problem import ROUNDING, OutcomeProblem, Problem, SeparableProblem, broken_declarations

# The number of steps that are tried with dummy rows, and of rows that lie within the bounds instead of on them.
MOST_STEPS, INNER_ROWS = 8, 28
# What follows from other declarations. Counts and their noise rest on it, so a problem of your own cannot replace it.
DERIVED = ("arrival_low", "arrival_high", "scales_state", "shows_levels")


@dataclass(frozen=True)
class DummyRows:
    """Rows that the problem itself calls possible: states (m, w), actions (m, d), next states (m, w)."""

    state: FloatArray
    action: FloatArray
    next_state: FloatArray
    outcome: FloatArray | None  # (m, k), where the problem declares outcomes


@dataclass(frozen=True)
class AskedFormula:
    """One formula at one step, the arrays that it is asked with, and the shapes and kinds of its answers."""

    name: str
    ask: Callable[..., Any]
    arrays: tuple[FloatArray, ...]
    answers: tuple[tuple[int, str], ...]  # (coordinates, kind): 0 coordinates for one number, "b" or "f"


def check_problem(problem: Problem) -> None:
    """Refuse a problem whose formulas break a rule; the error names the method and the rule.

    Formulas must treat each row by itself, give the same answer twice, and mean what they declare: a next state must
    show the outcome that led to it, unless it is cut off.
    """
    check_rows(problem)
    for step in np.unique(np.linspace(0, problem.horizon - 1, MOST_STEPS).astype(int)).tolist():
        rows = dummy_rows(problem, step)
        for question in _after_release(problem, step, rows):
            _shaped(problem, question, question.ask(*question.arrays))
        _check_meaning(problem, step, rows)


def check_rows(problem: Problem) -> None:
    """Refuse what a release relies on and does not hold. `fit` asks for no more: a model may be rough, but not leak."""
    _check_facts(problem)
    for step in range(problem.horizon):  # all of them: nothing may turn out to be unrecordable after payment
        for question in _before_release(problem, step, dummy_rows(problem, step)):
            shapes = [array.shape[-1:] for array in question.arrays]
            recording = record(f"{question.name}() of {type(problem).__name__}", question.ask, shapes)
            for part, (size, _) in zip(recording.outputs, question.answers, strict=False):
                # By itself, because the shape of a batch may fit by chance.
                if isinstance(part, Symbol) and part.ndim != min(size, 1):
                    rule = f"return values of shape {(size,) if size else ()} for each row"
                    _break_rule(problem, question.name, rule)
            found, asked = (_shaped(problem, question, ask(*question.arrays)) for ask in (recording, question.ask))
            if not all(map(partial(np.allclose, rtol=1e-9, atol=1e-12, equal_nan=True), found, asked)):
                rule = "give for each row what its recorded operations give: no memory, no chance, no other rows"
                _break_rule(problem, question.name, rule)


def dummy_rows(problem: Problem, step: int) -> DummyRows:
    """Corners and middles of everything, then rows within the bounds, always the same ones."""
    rng = np.random.default_rng(0)
    low, high = problem.state_low, problem.state_high
    on_bounds = [low, high, (low + high) / 2, problem.initial_state]
    shares = np.array(list(product((0.0, 1.0, 0.5), repeat=2)) * len(on_bounds))
    state = np.repeat(np.stack(on_bounds), len(shares) // len(on_bounds), axis=0)
    state = np.concatenate([state, rng.uniform(low, high, (INNER_ROWS, problem.state_dim))])
    shares = np.concatenate([shares, rng.uniform(0, 1, (INNER_ROWS, 2))])
    state = state if problem.scales_state else np.rint(state)
    least, most = (np.broadcast_to(limit, (len(state), problem.action_dim)) for limit in problem.feasible(step, state))
    action = np.clip(least + shares[:, :1] * (most - least), problem.action_low, problem.action_high)
    if not isinstance(problem, OutcomeProblem):
        return DummyRows(state, action, low + shares[:, 1:] * (high - low), None)
    outcome = problem.outcome_low + shares[:, 1:] * (problem.outcome_high - problem.outcome_low)
    arrived = np.array(problem.next_state(step, state.copy(), action.copy(), outcome.copy()), dtype=np.float64)
    return DummyRows(state, action, arrived, outcome)


def _check_facts(problem: Problem) -> None:
    width, pair = problem.state_dim, problem.state_dim + problem.action_dim
    wanted = {"state": width, "action": problem.action_dim, "shown": len(problem.shows)}
    if isinstance(problem, OutcomeProblem):
        wanted["outcome"] = problem.outcome_dim
        for name in DERIVED:
            owner = next(kind for kind in type(problem).__mro__ if name in vars(kind))
            if owner.__module__ != OutcomeProblem.__module__:
                _break_rule(problem, name, "be that of poolrl")
        for what, rule in broken_declarations(problem):
            _break_rule(problem, what, rule)
    for part, length in wanted.items():
        low, high = getattr(problem, f"{part}_low"), getattr(problem, f"{part}_high")
        arrays = all(isinstance(limit, np.ndarray) and limit.shape == (length,) for limit in (low, high))
        if not arrays or not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
            _break_rule(problem, f"{part}_low and {part}_high", f"be finite, of shape ({length},), the lower one below")
    if problem.boundary.share.shape != (problem.horizon, pair):
        _break_rule(problem, "boundary", f"have shape {(problem.horizon, pair)}: steps, then states and actions")


def _before_release(problem: Problem, step: int, rows: DummyRows) -> Iterator[AskedFormula]:
    """What counting asks of a row."""
    state, action, width, choices = rows.state, rows.action, problem.state_dim, problem.action_dim
    pair = width + choices
    yield AskedFormula("feasible", partial(problem.feasible, step), (state,), ((choices, "f"),) * 2)
    yield AskedFormula("unit_state", problem.unit_state, (state,), ((width, "f"),))
    yield AskedFormula("unit_pair", problem.unit_pair, (state, action), ((pair, "f"),))
    unit = np.asarray(problem.unit_pair(state.copy(), action.copy()))
    yield AskedFormula("within", partial(problem.within, step), (unit,), ((pair, "b"),))
    if isinstance(problem, OutcomeProblem) and rows.outcome is not None:
        many, arrived = problem.outcome_dim, len(problem.arrival_low)
        made_of, whole_row = (state, action, rows.outcome), (state, action, rows.next_state)
        yield AskedFormula("next_state", partial(problem.next_state, step), made_of, ((arrived, "f"),))
        yield AskedFormula("observe", partial(problem.observe, step), whole_row, ((many, "f"), (many, "b")))
        yield AskedFormula("seen_coordinates", partial(problem.seen_coordinates, step), (state, action), ((many, "b"),))


def _after_release(problem: Problem, step: int, rows: DummyRows) -> Iterator[AskedFormula]:
    """What planning and simulation ask."""
    whole_row = (rows.state, rows.action, rows.next_state)
    yield AskedFormula("reward", partial(problem.reward, step), whole_row, ((0, "f"),))
    if isinstance(problem, SeparableProblem):
        ask = partial(problem.coordinate_reward, step)
        yield AskedFormula("coordinate_reward", ask, whole_row, ((problem.state_dim, "f"),))
    if isinstance(problem, OutcomeProblem) and rows.outcome is not None:
        asked = (rows.state, rows.action, rows.outcome)
        yield AskedFormula("cost", partial(problem.cost, step), asked, ((0, "f"),))


def _shaped(problem: Problem, question: AskedFormula, found: Any) -> tuple[NDArray[Any], ...]:
    """The answers, of the shapes and kinds that they must have."""
    parts = found if isinstance(found, tuple) else (found,)
    shapes = [(len(question.arrays[0]), *([size] if size else [])) for size, _ in question.answers]
    if len(parts) != len(shapes):
        _break_rule(problem, question.name, f"return {len(shapes)} arrays")
    full = []
    for part, shape, (_, kind) in zip(parts, shapes, question.answers, strict=True):
        try:
            array = np.broadcast_to(np.asarray(part), shape)
        except ValueError:
            _break_rule(problem, question.name, f"return shape {shape}, got {np.shape(part)}")
        if (array.dtype.kind == "b") != (kind == "b") or array.dtype.kind not in "biuf":
            _break_rule(problem, question.name, f"return {'truth values' if kind == 'b' else 'numbers'}")
        full.append(array)
    return tuple(full)


def _check_meaning(problem: Problem, step: int, rows: DummyRows) -> None:
    """Possible rows stay within their bounds, and they show the outcome that made them."""
    low, high = problem.feasible(step, rows.state)
    if not (low <= high + ROUNDING * (problem.action_high - problem.action_low)).all():
        _break_rule(problem, "feasible", "give lower limits that are not above the upper ones")
    if not isinstance(problem, OutcomeProblem) or rows.outcome is None:
        return
    if not within(rows.next_state, problem.arrival_low, problem.arrival_high).all():
        _break_rule(problem, "next_state", "stay within state_low and state_high for every possible outcome")
    seen, cut = problem.observe(step, rows.state, rows.action, rows.next_state)
    if not within(seen, problem.outcome_low, problem.outcome_high).all():
        _break_rule(problem, "observe", "report values within outcome_low and outcome_high")
    slack = ROUNDING * (problem.outcome_high - problem.outcome_low)
    # Where nothing is seen, a row need not mean anything.
    unseen = ~np.asarray(problem.seen_coordinates(step, rows.state, rows.action))
    status = np.isin(np.arange(problem.outcome_dim), problem.current_status)
    if not (np.asarray(cut) | unseen | status | (np.abs(seen - rows.outcome) <= slack)).all():
        _break_rule(problem, "observe", "report the outcome from which next_state came, wherever it is not cut off")
    upwards = problem.boundary.side == "lower"
    beyond, before = rows.outcome >= seen - slack, rows.outcome <= seen + slack
    cut_right, seen_right = (beyond, before) if upwards else (before, beyond)
    if not (unseen | np.where(cut, cut_right, ~status | seen_right)).all():
        _break_rule(problem, "observe", "cut off on the side where the outcome lies")
    if not problem.censored and np.any(cut):
        _break_rule(problem, "observe", "report no cut: the problem declares that outcomes are never cut off")


def _break_rule(problem: Problem, name: str, rule: str) -> NoReturn:
    formula = f"{name}()" if hasattr(type(problem), name) and callable(getattr(type(problem), name)) else name
    raise ValueError(f"{formula} of {type(problem).__name__} must {rule}")
