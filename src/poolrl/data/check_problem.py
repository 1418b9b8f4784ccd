"""Check a problem of your own before it meets a log, on public dummy rows made from its declared bounds.

The code of a problem is trusted: it runs in your process, and nothing stops it from reading a log by itself. The check
finds mistakes. `row_by_row` limits in any case what a formula can do with its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from poolrl.checks import FloatArray, IntArray
from poolrl.data.row_by_row import is_our_own, refuse_hidden, row_by_row
from poolrl.data.row_rules import within
from poolrl.problems.problem import ROUNDING, OutcomeProblem, Problem, SeparableProblem, broken_declarations

# The number of steps that are tried with dummy rows, and of rows that lie within the bounds instead of on them.
MOST_STEPS, INNER_ROWS = 8, 28
# How often the rows are repeated in a large batch, of some thousands.
MANY = 40
SAME = {"rtol": 1e-9, "atol": 1e-12, "equal_nan": True}
# What follows from other declarations. Counts and their noise rest on it, so a problem of your own cannot replace it.
DERIVED = ("arrival_low", "arrival_high", "scales_state", "shows_levels")
# How many functions deep names are followed; and modules whose entries are nobody's rows.
CALLS_DEEP, LIBRARIES = 2, {"numpy", "scipy", "poolrl", "math"}
# Classes whose objects are rows of somebody, by the first part of their module's name.
TABLE_CLASSES = {
    "poolrl": {"Trajectories", "Table"},
    "pandas": {"DataFrame", "Series"},
    "polars": {"DataFrame", "LazyFrame", "Series"},
    "pyarrow": {"Table", "RecordBatch", "ChunkedArray"},
    "ibis": {"Table", "Column"},
    "duckdb": {"DuckDBPyRelation", "DuckDBPyConnection"},
    "_duckdb": {"DuckDBPyRelation", "DuckDBPyConnection"},
}

FormulaAnswers = tuple[NDArray[Any], ...]


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

    Formulas must treat each row by itself, give the same answer twice, leave their arguments alone, and mean what they
    declare: a next state must show the outcome that led to it, unless it is cut off.
    """
    check_rows(problem)
    for step in _some_steps(problem):
        rows = dummy_rows(problem, step)
        for question in _after_release(problem, step, rows):
            _refuse_batches(problem, question)
        _check_meaning(problem, step, rows)


def check_rows(problem: Problem) -> None:
    """Refuse what a release relies on and does not hold. `fit` asks for no more: a model may be rough, but not leak."""
    _check_facts(problem)
    for step in _some_steps(problem):
        for question in _before_release(problem, step, dummy_rows(problem, step)):
            _refuse_batches(problem, question)
    if is_our_own(problem):
        return
    recorded, some = row_by_row(problem), _some_steps(problem)
    for step in range(problem.horizon):  # all of them: nothing may turn out to be unrecordable after payment
        rows = dummy_rows(problem, step)
        for plain, question in zip(
            _before_release(problem, step, rows), _before_release(recorded, step, rows), strict=True
        ):
            found = _answers(problem, question, question.arrays)
            if step in some and not _equal_answers(found, _answers(problem, plain, plain.arrays)):
                _break_rule(problem, plain.name, "give what its recorded operations give (does it write into arrays?)")


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


def _some_steps(problem: Problem) -> list[int]:
    return sorted({int(step) for step in np.linspace(0, problem.horizon - 1, MOST_STEPS)})


def _check_facts(problem: Problem) -> None:
    refuse_hidden(problem)
    refuse_held_logs(problem)
    width, pair = problem.state_dim, problem.state_dim + problem.action_dim
    wanted = {"state": width, "action": problem.action_dim, "shown": len(problem.shows)}
    if isinstance(problem, OutcomeProblem):
        wanted["outcome"] = problem.outcome_dim
        for name in DERIVED:
            if (
                next(kind for kind in type(problem).__mro__ if name in vars(kind)).__module__
                != OutcomeProblem.__module__
            ):
                _break_rule(problem, name, "be that of poolrl")
        for what, rule in broken_declarations(problem):
            _break_rule(problem, what, rule)
    for part, length in wanted.items():
        low, high = getattr(problem, f"{part}_low"), getattr(problem, f"{part}_high")
        if low.shape != (length,) or high.shape != (length,) or not (np.isfinite(low) & (low < high)).all():
            _break_rule(problem, f"{part}_low and {part}_high", f"have shape ({length},), finite, the lower one below")
        if not np.isfinite(high).all():
            _break_rule(problem, f"{part}_high", "be finite")
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


def _refuse_batches(problem: Problem, question: AskedFormula) -> None:
    """Refuse a formula whose answer for a row depends on anything but the row."""
    name, arrays, rows = question.name, question.arrays, len(question.arrays[0])
    first = _answers(problem, question, arrays)
    kept = tuple(answer.copy() for answer in first)
    if not _equal_answers(kept, _answers(problem, question, arrays)):
        _break_rule(problem, name, "give the same answer twice: no randomness and no memory")
    for how, chosen in _batches(rows):
        asked = tuple(array[chosen] for array in arrays)
        if not _equal_answers(tuple(answer[chosen] for answer in kept), _answers(problem, question, asked)):
            _break_rule(problem, name, f"treat each row by itself, but its answers change with {how}")
    if not _equal_answers(first, kept):
        _break_rule(problem, name, "return arrays of its own: a later call changed an earlier answer")


def _batches(rows: int) -> Iterator[tuple[str, IntArray]]:
    """Other batches of the same rows, by their numbers."""
    every = np.arange(rows)
    yield from (("the other rows of a batch", half) for half in np.array_split(every, 2))
    yield "the rows on the bounds", every[-INNER_ROWS:]
    yield "the order of rows", np.random.default_rng(1).permutation(rows)
    yield "rows that are repeated", np.repeat(every, 3)
    yield "the size of the batch", np.tile(every, MANY)
    yield from (("the other rows of a batch", every[i : i + 1]) for i in range(0, rows, 9))


def _answers(problem: Problem, question: AskedFormula, arrays: tuple[FloatArray, ...]) -> FormulaAnswers:
    """The answers, of the shapes that they must have."""
    given = tuple(array.copy() for array in arrays)
    found = question.ask(*given)
    if not all(np.array_equal(before, after, equal_nan=True) for before, after in zip(arrays, given, strict=True)):
        _break_rule(problem, question.name, "not change the arrays that it is given")
    parts = found if isinstance(found, tuple) else (found,)
    shapes = [(len(arrays[0]), *([size] if size else [])) for size, _ in question.answers]
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


def _equal_answers(one: FormulaAnswers, two: FormulaAnswers) -> bool:
    return all(
        np.array_equal(a, b) if a.dtype.kind == "b" else np.allclose(a, b, **SAME)  # type: ignore[arg-type]
        for a, b in zip(one, two, strict=True)
    )


def _break_rule(problem: Problem, name: str, rule: str) -> NoReturn:
    formula = f"{name}()" if hasattr(type(problem), name) and callable(getattr(type(problem), name)) else name
    raise ValueError(f"{formula} of {type(problem).__name__} must {rule}")


def refuse_held_logs(problem: Problem) -> None:
    """Refuse a problem that can reach a table of rows: in itself, in its class, or by a name in what it calls.

    `row_by_row` records what a formula does with its row, and not what it brings along: a mean of the log in a
    formula looks like any number. This finds mistakes, not malice: an array of numbers may be a public fact, and code
    can read a file by itself.
    """
    kind = type(problem).__name__
    classes = [k for k in type(problem).__mro__ if not k.__module__.startswith("poolrl.") and k is not object]
    for owner in (problem, *classes):
        for name, value in vars(owner).items():
            if _holds_rows(value):
                raise ValueError(f"{name} of {kind} holds a table of rows: a problem may hold public facts only")
            for function in _functions_of(value):
                if (found := _reached_rows(function, CALLS_DEEP)) is not None:
                    raise ValueError(
                        f"{name}() of {kind} reads {found}, a table of rows: an observation must follow "
                        "from its own row and from public facts"
                    )


def _functions_of(value: Any) -> list[FunctionType]:
    """The functions of a class's entry: a method, a property or a class method."""
    if isinstance(value, property):
        return [each for each in (value.fget, value.fset, value.fdel) if isinstance(each, FunctionType)]
    plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return [plain] if isinstance(plain, FunctionType) else []


def _reached_rows(function: FunctionType, deep: int) -> str | None:
    """The name of a table that a function can reach, also through functions that it names."""
    for name, value in _reached(function):
        if _holds_rows(value):
            return name
        ours = isinstance(value, FunctionType) and not value.__module__.startswith(("poolrl.", "numpy"))
        if deep and ours and (found := _reached_rows(value, deep - 1)) is not None:
            return found
    return None


def _reached(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function can reach by name: globals, entries of modules, what it encloses, and its defaults."""
    names = set(_names_in(function.__code__))
    for name in names & set(function.__globals__):
        value = function.__globals__[name]
        yield name, value
        if isinstance(value, ModuleType) and value.__name__.split(".")[0] not in LIBRARIES:
            yield from ((f"{name}.{entry}", vars(value)[entry]) for entry in names & set(vars(value)))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from ((f"a default of {function.__name__}", value) for value in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()


def _names_in(code: CodeType) -> Iterator[str]:
    """Names in a function's code, and in functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _holds_rows(value: Any, depth: int = 2) -> bool:
    if any(kind.__name__ in TABLE_CLASSES.get(kind.__module__.split(".")[0], ()) for kind in type(value).__mro__):
        return True
    if depth and isinstance(value, Mapping):
        return any(_holds_rows(each, depth - 1) for each in value.values())
    return bool(depth) and isinstance(value, list | tuple | set) and any(_holds_rows(e, depth - 1) for e in value)
