"""A policy for other problems than shops that is asked in the user's words: one question, or a table of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.policy import Policy
from poolrl.learning.stored import Names
from poolrl.problems.depot import Depot
from poolrl.problems.inventory import Inventory
from poolrl.problems.labels import Labels
from poolrl.problems.problem import OutcomeProblem, Problem
from poolrl.workflow.json_lines import numbered_objects
from poolrl.workflow.stock_table import CsvForm
from poolrl.workflow.streams import answers_to, questions_from
from poolrl.workflow.trades.trade import trade_of
from poolrl.workflow.words import UserWords, finite_amount


@dataclass(frozen=True)
class KindDesk(UserWords):
    """A policy with its names."""

    policy: Policy
    names: Names

    @classmethod
    def open(cls, path: Path, problem: Problem | None) -> KindDesk | None:
        """Read a policy; None for one of a shop, which `Desk` answers."""
        policy = Policy.load(path, problem=problem)
        return None if isinstance(policy.problem, Inventory | Depot) else cls(policy, policy.names)

    @property
    def declared(self) -> Labels:
        """The labels that the policy was learned with."""
        return self.policy.problem.labels

    @property
    def needed(self) -> list[str]:
        """What a question must say: step, labels, the state, and a scale where there is one."""
        problem = self.policy.problem
        steps = ["step"] if problem.horizon > 1 else []
        # Of one lot there is one left, or nothing to decide.
        only = isinstance(problem, OutcomeProblem) and problem.counts_down and problem.state_high[0] == 1
        states = [] if only else self.names.products
        return [*steps, *self.labels, *states, *(["scale"] if self.policy.guarantee.scaled else [])]

    @property
    def decided(self) -> list[str]:
        """What an answer says."""
        word, many = trade_of(self.policy.problem).words.decision, self.policy.problem.action_dim
        return [word] if many == 1 else [f"{word} {i}" for i in range(many)]

    def answers(self, rows: Sequence[tuple[int, Mapping[str, Any]]], source: str) -> FloatArray:
        """Decisions (m, d) for questions with the numbers of their lines."""
        read = []
        for number, row in rows:
            try:
                read.append(self._read(row))
            except ValueError as error:
                raise ValueError(f"{source}, line {number}: {error}" if source else str(error)) from None
        steps = np.array([each[0] for each in read])
        cells, states = np.array([each[1] for each in read]), np.array([each[2] for each in read], dtype=np.float64)
        units = np.array([each[3] for each in read])
        found = np.empty((len(read), self.policy.problem.action_dim))
        for step in np.unique(steps):
            mine = steps == step
            found[mine] = self.policy.rule.act(self.policy.problem, int(step), states[mine], cells[mine])
        return found * units[:, None]

    def _read(self, row: Mapping[str, Any]) -> tuple[int, int, list[float], float]:
        row = {"step": row.get(trade_of(self.policy.problem).words.step), **row}
        for name in self.needed:
            if row.get(name) in (None, ""):
                raise ValueError(f"{name} is missing: a question says {', '.join(self.needed)}")
        places = []
        for name, values in zip(self.labels, self.declared.values, strict=True):
            if (place := self.place(name, row[name])) == len(values):
                known = ", ".join(map(str, values[:8])) + (", ..." if len(values) > 8 else "")
                raise ValueError(f"{name} must be one of those that were declared: {known}")
            places.append(place)
        cell = int(np.ravel_multi_index(places, self.declared.shape)) if places else 0
        problem = self.policy.problem
        usual = zip(self.names.products, problem.initial_state, strict=True)
        state = [finite_amount(name, first if row.get(name) in (None, "") else row[name]) for name, first in usual]
        for name, value, low, high in zip(
            self.names.products, state, problem.state_low, problem.state_high, strict=True
        ):
            if not low <= value <= high:
                raise ValueError(f"{name} must lie in {low:g} .. {high:g}")
        if isinstance(problem, OutcomeProblem) and problem.counts_down and state[0] < problem.state_low[0] + 0.5:
            raise ValueError(f"{self.names.products[0]}: nothing is left to decide about")
        unit = finite_amount("scale", row["scale"]) if self.policy.guarantee.scaled else 1.0
        if unit <= 0:
            raise ValueError("scale must be positive")
        step = self.names.steps[0] if row.get("step") in (None, "") else row["step"]
        return self.step(step), cell, state, unit


def decide_kind_csv(desk: KindDesk, source: Path, out: Path | None, form: CsvForm) -> None:
    """Answer every row of a CSV file; its columns stay, and decisions stand behind them."""
    with questions_from(source) as file, answers_to(out, source) as answers:
        reader = csv.DictReader(file, delimiter=form.delimiter)
        header = list(reader.fieldnames or [])
        # The step may have the name that it has in the trade.
        known = {*header, *(["step"] if trade_of(desk.policy.problem).words.step in header else [])}
        for name in desk.needed:
            if name not in known:
                raise ValueError(f"{source} must have the columns {', '.join(desk.needed)}; {name} is missing")
        numbers = {*desk.names.products, "scale"}
        given = list(reader)
        if not given:
            raise ValueError(f"{source} has no rows")
        rows = [
            (number, {name: form.number_text(cell) if name in numbers and cell else cell for name, cell in row.items()})
            for number, row in enumerate(given, 2)
        ]
        decided = desk.answers(rows, str(source))
        writer = csv.writer(answers, delimiter=form.delimiter, lineterminator="\n")
        writer.writerow([*header, *desk.decided])
        for row, found in zip(given, decided, strict=True):
            shown = [f"{each:.6g}".replace(".", form.decimal) for each in found]
            writer.writerow([*(row[name] for name in header), *shown])


def decide_kind_lines(desk: KindDesk, source: Path, out: Path | None) -> None:
    """Answer every JSON line as it comes."""
    with questions_from(source) as file, answers_to(out, source) as answers:
        for number, row in numbered_objects(source, enumerate(file, 1)):
            (found,) = desk.answers([(number, row)], str(source))
            answers.write(json.dumps(row | _by_name(desk, found)) + "\n")
            answers.flush()


def decide_kind_once(desk: KindDesk, row: Mapping[str, Any], *, as_json: bool) -> None:
    """One question from the command line."""
    (found,) = desk.answers([(1, row)], "")
    if as_json:
        print(json.dumps({**row, **_by_name(desk, found)}))
        return
    for name, value in _by_name(desk, found).items():
        print(f"{name}: {value:.6g}")


def _by_name(desk: KindDesk, found: Iterable[float]) -> dict[str, float]:
    return {name: float(value) for name, value in zip(desk.decided, found, strict=True)}
