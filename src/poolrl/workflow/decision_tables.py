"""All decisions of a release or a plan as CSV files for a spreadsheet, and as arrays for a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
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
    """Label columns, `product`, `step` and `level`: a line for each label cell, product and step.

    With a scale a level is a multiple of it. Levels have six significant digits, far more than noise leaves.
    """
    names, labels = policy.names, policy.problem.labels
    products, steps = (list(map(spreadsheet_text, part)) for part in (names.products, names.steps))
    cells = policy.levels.reshape(-1, *policy.levels.shape[-2:])
    rows = (
        [*values, name, step, f"{level:.6g}"]
        for values, levels in zip(_cells(labels), cells, strict=True)
        for name, column in zip(products, levels.T, strict=True)
        for step, level in zip(steps, column, strict=True)
    )
    return _spreadsheet([*labels.names, "product", "step", "level"], rows)


def decisions_csv(policy: Policy) -> str:
    """Label columns, the state's, `step` and a column for each decision: a line for each label cell, state and step."""
    names, word, labels = policy.names, trade_of(policy.problem).words.decision, policy.problem.labels
    many = policy.problem.action_dim
    decided = [word] if many == 1 else [f"{word} {i}" for i in range(many)]
    steps, states = list(map(spreadsheet_text, names.steps)), shown_states(policy)
    rows = (
        [*values, *(f"{part:g}" for part in state), step, *(f"{part:.6g}" for part in decision)]
        for values, table in zip(_cells(labels), decisions_of(policy), strict=True)
        for state, by_step in zip(states, table, strict=True)
        for step, decision in zip(steps, by_step, strict=True)
    )
    return _spreadsheet([*labels.names, *names.products, "step", *decided], rows)


def orders_csv(plan: OrderPlan, names: Names, labels: Labels) -> str:
    """Label columns, `product`, `step`, stocks from and to, and the order: a level to order up to, or an amount.

    One line for each range of stocks with the same answer. A range has one level where orders fill the shelf up to it,
    and one amount where orders are packs.
    """

    def rows() -> Iterator[list[Any]]:
        for cell, values in enumerate(_cells(labels)):
            for i, name in enumerate(names.products):
                column = cell * len(names.products) + i
                for step, called in enumerate(names.steps):
                    known = [*values, spreadsheet_text(name), spreadsheet_text(called)]
                    yield from ([*known, *answer] for answer in _ranges(plan, column, step))

    return _spreadsheet([*labels.names, "product", "step", "stock_from", "stock_to", "up_to", "order"], rows())


def _ranges(plan: OrderPlan, column: int, step: int) -> Iterator[list[str]]:
    """Stocks from and to, and the level or the amount to order there."""
    width, packs = float(plan.laws.width[column]), plan.laws.terms.pack[column] > 0
    last = int(plan.laws.caps[column].max())
    orders = plan.orders[column, step, : last + 1]
    same = orders if packs else np.where(orders > 0, orders + np.arange(last + 1), -1)
    begins = np.flatnonzero(np.diff(same, prepend=same[0] - 1))
    for begin, end in zip(begins, [*begins[1:], last + 1], strict=True):
        answer = ["", f"{orders[begin] * width:.6g}"]
        if orders[begin] > 0 and not packs:
            answer = [f"{(orders[begin] + begin) * width:.6g}", ""]
        yield [f"{begin * width:.6g}", f"{(end - 1) * width:.6g}", *answer]


def from_empty_csv(plan: SavedPlan) -> str:
    """Label columns, `step`, `product` and `order`: what to order when every shelf is empty and nothing is coming."""
    names, empty = plan.names, np.zeros(len(plan.names.products))
    rows = (
        [*values, spreadsheet_text(called), spreadsheet_text(name), f"{order:.6g}"]
        for cell, values in enumerate(_cells(plan.labels))
        for step, called in enumerate(names.steps)
        for name, order in zip(names.products, plan.order(step, empty, cell=cell), strict=True)
    )
    return _spreadsheet([*plan.labels.names, "step", "product", "order"], rows)


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


def spreadsheet_text(name: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{name}" if name.startswith(FORMULA_SIGNS) else name


def _cells(labels: Labels) -> Iterator[list[Any]]:
    """The values of each label cell. A label's numbers stay numbers, also negative ones."""
    for values in product(*labels.values):
        yield [spreadsheet_text(value) if isinstance(value, str) else value for value in values]


def _spreadsheet(header: Iterable[str], rows: Iterable[list[Any]]) -> str:
    text = io.StringIO(newline="")
    text.write(BYTE_ORDER_MARK)
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(map(spreadsheet_text, header))
    writer.writerows(rows)
    return text.getvalue()
