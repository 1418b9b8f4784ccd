"""All decisions of a release or a plan as CSV files for a spreadsheet, and as arrays for a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.policy import Policy
from poolrl.learning.stored import Names
from poolrl.problems.labels import Labels
from poolrl.workflow.trades.trade import trade_of

if TYPE_CHECKING:
    from poolrl.plans.orders import OrderPlan
    from poolrl.plans.saved import SavedPlan

ORDERS_FILE = "orders.csv"
# Spreadsheets read UTF-8 only with this mark, and take text that begins with one of these signs for a formula.
BYTE_ORDER_MARK = "\ufeff"
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
# A state that is not a count is shown at this many values.
SHOWN_STATES = 11
# A level that moved by more than this share is worth a word.
MOVED = 0.05


def levels_csv(policy: Policy) -> str:
    """A line for each label cell, product and step; with a scale a level is a multiple of it."""
    names, levels = policy.names, np.swapaxes(policy.levels, -1, -2)
    axes = {"product": names.products, "step": names.steps}
    return _spreadsheet(policy.problem.labels, axes, ["level"], levels.reshape(-1, 1, 1))


def decisions_csv(policy: Policy) -> str:
    """Label columns, the state's, `step` and a column for each decision: a line for each label cell, state and step."""
    names, word, many = policy.names, trade_of(policy.problem).words.decision, policy.problem.action_dim
    decided = [word] if many == 1 else [f"{word} {i}" for i in range(many)]
    # A state has one coordinate, or is the only one.
    axes = dict(zip(names.products, shown_states(policy).T, strict=True)) | {"step": names.steps}
    return _spreadsheet(policy.problem.labels, axes, decided, decisions_of(policy).reshape(-1, 1, many))


def orders_csv(plan: OrderPlan, names: Names, labels: Labels) -> str:
    """A line for each range of stocks with one answer: a level where orders fill the shelf, or an amount of packs."""
    axes, places = {"product": names.products, "step": names.steps}, np.ndindex(plan.orders.shape[:2])
    ranges = (_ranges(plan, column, step) for column, step in places)
    return _spreadsheet(labels, axes, ["stock_from", "stock_to", "up_to", "order"], ranges)


def _ranges(plan: OrderPlan, column: int, step: int) -> Iterator[tuple[Any, ...]]:
    """Stocks from and to, and the level or the amount to order there."""
    width, packs = float(plan.laws.width[column]), plan.laws.terms.pack[column] > 0
    last = int(plan.laws.caps[column].max())
    orders = plan.orders[column, step, : last + 1]
    same = orders if packs else np.where(orders > 0, orders + np.arange(last + 1), -1)
    begins = np.flatnonzero(np.diff(same, prepend=same[0] - 1))
    for begin, end in zip(begins, [*begins[1:], last + 1], strict=True):
        by_level = orders[begin] > 0 and not packs
        answer = ((orders[begin] + begin) * width, "") if by_level else ("", orders[begin] * width)
        yield begin * width, (end - 1) * width, *answer


def from_empty_csv(plan: SavedPlan) -> str:
    """Label columns, `step`, `product` and `order`: what to order when every shelf is empty and nothing is coming."""
    names, empty = plan.names, np.zeros(len(plan.names.products))
    places = np.ndindex(plan.labels.count, len(names.steps))
    orders = np.array([plan.order(step, empty, cell=cell) for cell, step in places])
    axes = {"step": names.steps, "product": names.products}
    return _spreadsheet(plan.labels, axes, ["order"], orders.reshape(-1, 1, 1))


def shown_states(policy: Policy) -> FloatArray:
    """The states that a table has a row for, (m, w): all counts but zero, or values between the bounds.

    Where a decision sets what follows, whatever the state is, one state is enough.
    """
    problem = policy.problem
    if problem.planner == "counts":
        return np.arange(problem.state_low[0] + 1, problem.state_high[0] + 1)[:, None]
    if problem.state_dim == 1 and not getattr(problem, "action_sets_state", False):
        return np.linspace(problem.state_low, problem.state_high, SHOWN_STATES)
    return problem.initial_state[None]


def decisions_of(policy: Policy) -> FloatArray:
    """Decisions (cells, states, H, d) of every label cell; with a scale, multiples of it."""
    problem, states = policy.problem, shown_states(policy)
    cells = np.repeat(np.arange(problem.labels.count), len(states))
    everywhere = np.tile(states, (problem.labels.count, 1))
    steps = [policy.rule.act(problem, step, everywhere, cells) for step in range(problem.horizon)]
    return np.stack(steps, axis=1).reshape(problem.labels.count, len(states), problem.horizon, -1)


def in_one_sentence(before: FloatArray, after: FloatArray, decisions: str) -> str:
    """How much of a table of decisions changed at all."""
    some = before > 0
    shares = np.abs(after[some] / before[some] - 1)
    typical = float(np.median(shares)) if some.any() else 0.0
    large = int((shares > MOVED).sum())
    size = f"Of {before.size:,} {decisions} {large:,}"
    return f"{size} moved by more than {MOVED:.0%}; the typical one moved by {typical:.1%}."


def scale_in_words(policy: Policy) -> str:
    """The scale in words, as a fit has put it into its report; nothing without a scale."""
    return policy.report.scale_in_words or "the expected amount" if policy.guarantee.scaled else ""


def _spreadsheet(
    labels: Labels, axes: Mapping[str, Sequence[Any]], decided: Sequence[str], answers: Iterable[Iterable[Any]]
) -> str:
    """A table that has the lines of an answer for every label cell and every combination of the axes."""
    text = io.StringIO(newline="")
    text.write(BYTE_ORDER_MARK)
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(map(_shown, [*labels.names, *axes, *decided]))
    places = product(*(map(_shown, values) for values in (*labels.values, *axes.values())))
    for place, lines in zip(places, answers, strict=True):
        writer.writerows([*place, *map(_shown, line)] for line in lines)
    return text.getvalue()


def _shown(cell: Any) -> Any:
    """A name that no spreadsheet takes for a formula; a computed number with six digits, far more than noise leaves."""
    if isinstance(cell, str):
        return f"'{cell}" if cell.startswith(FORMULA_SIGNS) else cell
    return f"{cell:.6g}" if isinstance(cell, np.floating) else cell
