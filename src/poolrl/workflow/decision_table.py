"""Decisions of a policy as a table: for each label cell, state and step. For pages and spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.policy import Policy
from poolrl.problems.problem import OutcomeProblem
from poolrl.workflow.levels_csv import BYTE_ORDER_MARK, spreadsheet_text
from poolrl.workflow.trades.trade import trade_of

DECISIONS_FILE = "decisions.csv"
# A state that is not a count is shown at so many values.
SHOWN_STATES = 11


def shown_states(policy: Policy) -> FloatArray:
    """The states that a table has a row for, (m, w): all counts but zero, or values between the bounds."""
    problem = policy.problem
    if isinstance(problem, OutcomeProblem) and problem.counts_down:
        return np.arange(problem.state_low[0] + 1, problem.state_high[0] + 1)[:, None]
    if problem.state_dim == 1:
        return np.linspace(problem.state_low, problem.state_high, SHOWN_STATES)
    return problem.initial_state[None]


def decisions_of(policy: Policy) -> Iterator[tuple[tuple[Any, ...], FloatArray]]:
    """For each label cell its values, and decisions (states, H, d); with a scale, multiples of it."""
    problem, states = policy.problem, shown_states(policy)
    for number, values in enumerate(product(*problem.labels.values)):
        steps = [
            policy.rule.act(problem, step, states, np.full(len(states), number)) for step in range(problem.horizon)
        ]
        yield values, np.stack(steps, axis=1)


def decisions_csv(policy: Policy) -> str:
    """Label columns, the state's, `step` and a column for each decision, with six significant digits."""
    names, words, labels = policy.names, trade_of(policy.problem).words, policy.problem.labels
    text = io.StringIO(newline="")
    text.write(BYTE_ORDER_MARK)
    writer = csv.writer(text, lineterminator="\r\n")
    many = policy.problem.action_dim
    decided = [words.decision] if many == 1 else [f"{words.decision} {i}" for i in range(many)]
    writer.writerow(map(spreadsheet_text, [*labels.names, *names.products, "step", *decided]))
    steps, states = list(map(spreadsheet_text, names.steps)), shown_states(policy)
    for values, table in decisions_of(policy):
        shown = [spreadsheet_text(value) if isinstance(value, str) else value for value in values]
        for state, by_step in zip(states, table, strict=True):
            for step, decision in zip(steps, by_step, strict=True):
                writer.writerow([*shown, *(f"{each:g}" for each in state), step, *(f"{each:.6g}" for each in decision)])
    return text.getvalue()
