"""Tables of decisions: CSV files of questions, answered row by row, and all decisions for a spreadsheet.

A question is about one product of a shop, or about a state by its names; other columns stay as they are. A column is
read as a whole, and only if that fails cell by cell, to name the line.
"""

from __future__ import annotations

import csv
import io
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.learning.policy import Policy
from poolrl.learning.stored import PLAN_FORMAT, Names, says_it_is
from poolrl.problems.labels import Labels
from poolrl.problems.problem import Problem
from poolrl.workflow.desk import Desk, PlanDesk, Questions, RowRefusedError, number_or_nan, refuse_rows
from poolrl.workflow.trades.trade import trade_of

if TYPE_CHECKING:
    from poolrl.plans.orders import OrderPlan
    from poolrl.plans.saved import SavedPlan

PIPE = Path("-")
# What stands between cells, and before decimals.
PLAIN = (",", ".")
# Numbers that are in memory together.
CELLS_AT_ONCE = 400_000
# Larger numbers are shown as they are: they have few decimals anyway, and NumPy rounds by multiplying.
LARGEST_ROUNDED = 1e9
COMMA_IS_POINT = str.maketrans({",": ".", ".": "?"})
# The cells of columns, by their names.
Cells = Mapping[str, Sequence[str]]
ORDERS_FILE = "orders.csv"
# Spreadsheets read UTF-8 only with this mark, and take text that begins with one of these signs for a formula.
BYTE_ORDER_MARK = "\ufeff"
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
# A state that is not a count is shown at this many values.
SHOWN_STATES = 11
# A level that moved by more than this share is worth a word.
MOVED = 0.05


def open_desk(path: Path, problem: Problem | None = None) -> Desk:
    """Read a policy or a plan, once. A policy of the user's own problem needs that problem."""
    if says_it_is(path, PLAN_FORMAT):
        from poolrl.plans.saved import load_plan

        return PlanDesk(load_plan(path))
    policy = Policy.load(path, problem=problem)
    return trade_of(policy.problem).desk(policy)


@dataclass
class QuestionTable:
    """The columns of a table by their meaning."""

    desk: Desk
    delimiter: str = PLAIN[0]  # between the cells of a CSV file
    decimal: str = PLAIN[1]  # before its decimals
    whole: bool = False
    header: Sequence[str] = ()
    at_once: int = 1  # rows that are answered together

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n\0 ' or self.delimiter.isalnum():
            raise ValueError("--delimiter must be one sign, for example ';', or the word tab")
        if self.decimal not in (".", ","):
            raise ValueError("--decimal must be . or ,")
        if self.decimal == self.delimiter:
            raise ValueError("--delimiter and --decimal must differ: for a decimal comma give --delimiter ';'")

    def begin(self, header: Sequence[str]) -> None:
        """Look for the columns; refuse a table that lacks one."""
        self.header = header
        self.at_once = max(1, CELLS_AT_ONCE // max(len(header), len(self.desk.names.products)))
        if self.desk.together:
            raise ValueError(f"cannot be answered: {self.desk.together}")
        if twice := [name for name in self.header if name and self.header.count(name) > 1]:
            many = self.header.count(twice[0])
            raise ValueError(f"must have one column {twice[0]!r}, but the header names it {many} times")
        if missing := [name for name in self.desk.needed if not self.has(name)]:
            declared = self.desk.names.columns.get(missing[0], missing[0])
            or_declared = f" or {declared!r}" if declared != missing[0] else ""
            hint = " (is the delimiter another one? Give --delimiter)" if len(self.header) == 1 else ""
            raise ValueError(f"must have one column {missing[0]!r}{or_declared}{hint}: {', '.join(self.desk.needed)}")
        if not set(self.header).isdisjoint(self.desk.answered):
            raise ValueError(f"has answers already: columns {', '.join(self.desk.answered)}")

    def called(self, meaning: str) -> str:
        """The name of a column in this table: that of the log, as poolrl.toml declares it, or our own."""
        declared = self.desk.names.columns.get(meaning, meaning)
        return declared if declared in self.header else meaning

    def has(self, meaning: str) -> bool:
        """Whether there is such a column."""
        return self.called(meaning) in self.header

    def answer(self, cells: Cells, rows: int) -> list[Any]:
        """The columns of answers to some rows."""
        desk = self.desk
        step = self._words(cells, "step") if self.has("step") else np.zeros(rows, dtype=np.int64)
        places = [self._words(cells, name) for name in desk.labels.names]
        product = self._words(cells, "product") if desk.by_product else None
        state = np.tile(desk.initial[:1] if desk.by_product else desk.initial, (rows, 1))
        for i, name in enumerate(["stock"] if desk.by_product else desk.asked):
            state[:, i] = self._amounts(cells, name, f"the {name}")
        scale = self._amounts(cells, "scale", "scale", positive=True)[:, None] if desk.scaled else None
        pack = None
        if "packs" in desk.takes and self.has("pack"):
            pack = self._amounts(cells, "pack", "pack", positive=True)[:, None]
        empty: IntArray = np.zeros((rows, 0), dtype=np.int64)
        known = np.stack(places, axis=1) if places else empty
        asked = Questions(step, known, state, scale, pack, product)
        answers = self.desk.answer(asked, whole=self.whole)
        for name, amounts in answers.items():
            if not isinstance(amounts, list):
                small = np.abs(amounts[:, 0]) < LARGEST_ROUNDED
                rounded = np.round(amounts[:, 0], self.desk.decimals) + 0.0  # no number is minus zero
                answers[name] = np.where(small, rounded, amounts[:, 0])
        return list(answers.values())

    def _words(self, cells: Cells, name: str) -> IntArray:
        """What the words of a column mean, each looked up once."""
        words, desk, numbers = cells[self.called(name)], self.desk, {}
        try:
            for word in dict.fromkeys(words):
                if name not in desk.labels.names:
                    numbers[word] = desk.step(word) if name == "step" else desk.product(word)
                else:
                    numbers[word] = desk.place(name, self._number_text(word) if desk.has_numbers(name) else word)
        except ValueError as error:
            raise RowRefusedError(words.index(word), str(error)) from None
        return np.fromiter(map(numbers.__getitem__, words), dtype=np.int64, count=len(words))

    def _amounts(self, cells: Cells, name: str, words: str, *, positive: bool = False) -> FloatArray:
        texts = cells[self.called(name)]
        amounts = np.array([number_or_nan(self._number_text(text)) for text in texts])
        wrong = f"{words} must be a finite number, with {self.decimal!r} before its decimals (--decimal)"
        refuse_rows(~np.isfinite(amounts), wrong)
        if positive:
            refuse_rows(amounts <= 0, f"{words} must be positive")
        return amounts

    def _number_text(self, cell: str) -> str:
        """A cell as Python reads numbers. A point beside a decimal comma may separate thousands: it is no number."""
        return cell.translate(COMMA_IS_POINT) if self.decimal == "," else cell


def decide_table(
    desk: Desk,
    source: Path,
    out: Path | None,
    *,
    delimiter: str = PLAIN[0],
    decimal: str = PLAIN[1],
    whole: bool = False,
) -> None:
    """Answer every row of a CSV file."""
    table = QuestionTable(desk, delimiter, decimal, whole)
    read = 0 if source == PIPE else source
    with (
        open(read, encoding="utf-8-sig", newline="", closefd=source != PIPE) as file,
        _answers_to(out, source) as answers,
    ):
        # Strict: a quote that is not closed would swallow the lines after it.
        rows, line = csv.reader(file, delimiter=table.delimiter, strict=True), 1
        try:
            names = next(rows, [])
            with _said_of(f"{source}"):
                table.begin([name.strip() for name in names])
            writer = csv.writer(answers, delimiter=table.delimiter, lineterminator="\n")
            writer.writerow([*names, *table.desk.answered])
            filled = ((rows.line_num, row) for row in rows if row)
            while numbered := list(islice(filled, table.at_once)):
                lines, batch = zip(*numbered, strict=True)
                if wrong := [(place, len(row)) for place, row in numbered if len(row) != len(names)]:
                    place, cells = wrong[0]
                    raise ValueError(f"{source}, line {place}: has {cells} cells, the header {len(names)}")
                line = lines[-1]
                columns = dict(zip(table.header, zip(*batch, strict=True), strict=True))
                with _said_of(f"{source}, line", lines):
                    added = table.answer(columns, len(batch))
                shown = []
                for column in added:
                    if not isinstance(column, list):  # amounts as text shows them: whole ones without a point
                        column = [repr(number).removesuffix(".0") for number in column.tolist()]
                        column = column if table.decimal == "." else [text.replace(".", ",") for text in column]
                    shown.append(column)
                writer.writerows([*row, *more] for row, *more in zip(batch, *shown, strict=True))
        except csv.Error as error:
            raise ValueError(f"{source}, line {rows.line_num}: {error}; the last good line is {line}") from None
        except UnicodeDecodeError:
            raise ValueError(f"{source} is not text in UTF-8: a table of questions is a CSV file") from None


@contextmanager
def _said_of(where: str, lines: Sequence[int] = ()) -> Iterator[None]:
    """Say where something is wrong: in which file, and in which of its lines if a row is refused."""
    try:
        yield
    except RowRefusedError as refused:
        raise ValueError(f"{where} {lines[refused.row]}: {refused}") from None
    except ValueError as error:
        raise ValueError(f"{where} {error}") from None


@contextmanager
def _answers_to(out: Path | None, source: Path) -> Iterator[IO[str]]:
    """Standard output, or a file that appears when everything is answered."""
    if out is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        yield sys.stdout
        return
    if out.exists() and source.exists() and out.samefile(source):
        raise ValueError("--out must not be the file that is read")
    if out.exists() and not out.is_file():
        raise ValueError(f"--out must be a file, and {out} is another thing")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent}")
    # A name that nobody can have taken, nor made a link of.
    part = out.with_name(f".{out.name}.{secrets.token_hex(8)}")
    try:
        with open(part, mode="x", encoding="utf-8", newline="") as file:
            yield file
        os.replace(part, out)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


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
