"""Orders to many questions: what to order for the rows of a CSV file, or for JSON lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from poolrl.checks import FloatArray
from poolrl.workflow.desk import BASIS, Desk
from poolrl.workflow.json_lines import NumberedObject, answers_as_json, json_questions, numbered_objects
from poolrl.workflow.shelf import Orders, Questions, RowRefusedError
from poolrl.workflow.stock_table import CsvForm, StockTable
from poolrl.workflow.streams import PIPE, answers_to, questions_from

# Cells and lines that are in memory together.
CELLS_AT_ONCE, OBJECTS_AT_ONCE = 400_000, 20_000
# Larger numbers are shown as they are: six decimals are more than a double has, or all digits would fill a line.
LARGEST_ROUNDED, LARGEST_WHOLE_SHOWN = 1e9, 1e15
Item = TypeVar("Item")


@dataclass
class Undeclared:
    """How many rows had a label value that was not declared, and got the population's levels."""

    desk: Desk
    rows: int = 0
    found: dict[str, tuple[int, int]] = field(default_factory=dict)  # label: rows, and the line of the first

    def add(self, asked: Questions, lines: Sequence[int]) -> None:
        """Count some rows."""
        self.rows += len(lines)
        for i, name in enumerate(self.desk.labels):
            new = asked.places[:, i] == self.desk.shelf.sizes[i]
            if new.any():
                count, first = self.found.get(name, (0, lines[int(new.argmax())]))
                self.found[name] = (count + int(new.sum()), first)

    def in_words(self) -> list[str]:
        """One sentence for each label."""
        return [
            f"{count:,} of {self.rows:,} rows have a {name} that was not declared (the first in line {line}): they got "
            "the population's levels"
            for name, (count, line) in self.found.items()
        ]


def decide_csv(
    policy: Path,
    source: Path,
    out: Path | None,
    *,
    whole: bool,
    form: CsvForm | None = None,
    packs: dict[str, Any] | None = None,
) -> list[str]:
    """Answer every row of a CSV file (`stock_table` has its columns); other columns stay as they are.

    Returns notes, in words, for the person who asked.
    """
    desk, form = Desk.open(policy), form or CsvForm()
    sizes = None if packs is None else np.array(desk.positive("pack", packs, some=True))
    undeclared = Undeclared(desk)
    with questions_from(source) as file, answers_to(out, source) as answers:
        # Strict: a quote that is not closed would swallow the lines after it.
        rows = csv.reader(file, delimiter=form.delimiter, strict=True)
        line = 1
        try:
            names = next(rows, [])
            try:
                table = StockTable(desk, [name.removeprefix("\ufeff").strip() for name in names], form)
                if table.has_packs and packs is not None:
                    raise ValueError("has a column for packs: leave out --packs, or the column")
            except ValueError as error:
                raise ValueError(f"{source} {error}") from None
            writer = csv.writer(answers, delimiter=form.delimiter, lineterminator="\n")
            writer.writerow([*names, *table.answer_names])
            for lines, batch in _csv_batches(source, rows, len(names)):
                line = lines[-1]
                try:
                    asked = table.questions(batch, sizes)
                    answered = desk.shelf.answer(asked, whole=whole)
                except RowRefusedError as refused:
                    raise ValueError(f"{source}, line {lines[refused.row]}: {refused}") from None
                undeclared.add(asked, lines)
                added = zip(*_answer_columns(desk, answered, form), strict=True)
                writer.writerows([*row, *more] for row, more in zip(batch, added, strict=True))
        except csv.Error as error:
            after = f" (is a quote not closed, after line {line}?)" if "unexpected end" in str(error) else ""
            raise ValueError(f"{source}, line {rows.line_num}: {error}{after}") from None
    return undeclared.in_words()


def decide_lines(
    policy: Path, source: Path, out: Path | None, *, whole: bool, packs: dict[str, Any] | None = None
) -> list[str]:
    """Answer JSON lines (`json_lines` has their keys); other keys are passed through. Returns notes.

    Through a pipe each line is answered before the next is read: a service may be waiting for it.
    """
    desk = Desk.open(policy)
    sizes = None if packs is None else desk.positive("pack", packs, some=True)
    undeclared = Undeclared(desk)
    with questions_from(source) as file, answers_to(out, source) as answers:
        for batch in _in_batches(enumerate(file, start=1), 1 if source == PIPE else OBJECTS_AT_ONCE):
            # One object asks for all products, another for one: each kind is answered together.
            for is_long, group in groupby(numbered_objects(source, batch), key=lambda each: "product" in each[1]):
                objects: list[NumberedObject] = list(group)
                asked = json_questions(desk, source, objects, sizes, is_long=is_long)
                try:
                    answered = desk.shelf.answer(asked, whole=whole)
                except RowRefusedError as refused:
                    raise ValueError(f"{source}, line {objects[refused.row][0]}: {refused}") from None
                undeclared.add(asked, [number for number, _ in objects])
                answers.writelines(f"{text}\n" for text in answers_as_json(desk, objects, answered, is_long=is_long))
            answers.flush()
    return undeclared.in_words()


def _csv_batches(source: Path, rows: Any, width: int) -> Iterator[tuple[list[int], list[list[str]]]]:
    """Rows as long as the header, with the lines on which they end. Empty lines are left out."""
    size = max(1, CELLS_AT_ONCE // max(width, 1))
    filled = (cells for cells in rows if cells)
    while True:
        lines, batch = [], []
        for cells in islice(filled, size):
            if len(cells) != width:
                raise ValueError(f"{source}, line {rows.line_num}: has {len(cells)} cells, the header {width}")
            lines.append(rows.line_num)
            batch.append(cells)
        if not batch:
            return
        yield lines, batch


def _in_batches(rows: Iterator[Item], size: int) -> Iterator[list[Item]]:
    while batch := list(islice(rows, size)):
        yield batch


def _answer_columns(desk: Desk, answered: Orders, form: CsvForm) -> list[list[Any]]:
    columns: list[list[Any]] = []
    for amounts in (answered.up_to, answered.order):
        columns += [_as_shown(amounts[:, i], form) for i in range(amounts.shape[1])]
    if desk.labels:
        columns.append([BASIS[number] for number in answered.population.astype(int).tolist()])
    return columns


def _as_shown(amounts: FloatArray, form: CsvForm) -> list[Any]:
    """Amounts with six decimals at most; whole ones without a point."""
    # Larger ones have few decimals anyway, and NumPy rounds by multiplying.
    rounded = np.where(np.abs(amounts) < LARGEST_ROUNDED, np.round(amounts, 6), amounts)
    shown = [
        int(number) if number.is_integer() and -LARGEST_WHOLE_SHOWN < number < LARGEST_WHOLE_SHOWN else number
        for number in rounded.tolist()
    ]
    return shown if form.decimal == "." else [str(number).replace(".", ",") for number in shown]
