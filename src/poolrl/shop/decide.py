"""Answers to many questions: order-up-to levels for the rows of a CSV file, or for JSON lines."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from poolrl.checks import FloatArray
from poolrl.shop.desk import Desk

# Questions that are answered together.
ROWS_AT_ONCE = 100_000
PIPE = Path("-")
NumberedLine = tuple[int, str]
Question = tuple[int, dict[str, Any]]  # with the number of the line it stands on
Numbered = TypeVar("Numbered", NumberedLine, Question)


def decide_csv(policy: Path, source: Path, out: Path | None, *, whole: bool) -> None:
    """Answer every row of a CSV file with columns step and one per product; other columns are passed through."""
    desk = Desk.open(policy)
    with _questions_in(source) as file, _writing(out, source) as answers:
        rows = csv.reader(file)
        try:
            names = next(rows, [])
        except csv.Error as error:
            raise ValueError(f"{source}, line 1: {error}") from None
        for name in ("step", *desk.names.products):
            if names.count(name) != 1:
                raise ValueError(
                    f"{source} must have one column {name!r}: step, {', '.join(desk.names.products)}, with commas"
                )
        writer = csv.writer(answers, lineterminator="\n")
        added = [f"{what}_{name}" for what in ("order_up_to", "order") for name in desk.names.products]
        if not set(names).isdisjoint(added):
            raise ValueError(f"{source} has answers already: columns order_up_to_{desk.names.products[0]}, ...")
        writer.writerow([*names, *added])
        try:
            for batch in _in_batches(_csv_rows(source, rows, names), ROWS_AT_ONCE):
                steps, stocks = _questions(desk, source, batch, lambda row: [row[name] for name in desk.names.products])
                answered = desk.levels(steps, stocks, whole=whole)
                for (_, row), levels, have in zip(batch, answered, stocks, strict=True):
                    numbers = [*levels, *(levels - np.asarray(have))]
                    writer.writerow([*row.values(), *(repr(round(float(number), 6)) for number in numbers)])
        except csv.Error as error:
            raise ValueError(f"{source}, line {rows.line_num}: {error}") from None


def decide_lines(policy: Path, source: Path, out: Path | None, *, whole: bool) -> None:
    """Answer JSON lines {"step": ..., "stock": [...] or {product: ...}}; other keys are passed through.

    Through a pipe each line is answered before the next is read: a service may be waiting for it.
    """
    desk = Desk.open(policy)
    with _questions_in(source) as file, _writing(out, source) as answers:
        for lines in _in_batches(enumerate(file, start=1), 1 if source == PIPE else ROWS_AT_ONCE):
            batch = list(_json_lines(source, lines))
            if not batch:
                continue
            steps, stocks = _questions(desk, source, batch, lambda row: row["stock"])
            answered = desk.levels(steps, stocks, whole=whole)
            for (_, row), levels, have in zip(batch, answered, stocks, strict=True):
                answers.write(answer_as_json(desk, row, levels, have) + "\n")
            answers.flush()


def _questions(
    desk: Desk, source: Path, batch: list[Question], stock: Callable[[dict[str, Any]], Any]
) -> tuple[list[int], list[list[float]]]:
    steps, stocks = [], []
    for number, row in batch:
        try:
            steps.append(desk.step(row["step"]))
            stocks.append(desk.stock(stock(row)))
        except KeyError as missing:
            raise ValueError(f"{source}, line {number}: {missing} is missing") from None
        except ValueError as error:
            raise ValueError(f"{source}, line {number}: {error}") from None
    return steps, stocks


def _csv_rows(source: Path, rows: Any, names: list[str]) -> Iterator[Question]:
    for cells in rows:
        if not cells:
            continue
        if len(cells) != len(names):
            raise ValueError(f"{source}, line {rows.line_num}: has {len(cells)} cells, the header {len(names)}")
        yield rows.line_num, dict(zip(names, cells, strict=True))


def _json_lines(source: Path, lines: Iterable[NumberedLine]) -> Iterator[Question]:
    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is not JSON")

    for number, line in lines:
        if not line.strip():
            continue
        try:
            question = json.loads(line, parse_constant=refuse)
        except (ValueError, RecursionError):
            raise ValueError(f"{source}, line {number}: not JSON") from None
        if not isinstance(question, dict):
            raise ValueError(f'{source}, line {number}: must be an object {{"step": ..., "stock": ...}}')
        yield number, question


def _in_batches(rows: Iterator[Numbered], size: int) -> Iterator[list[Numbered]]:
    while batch := list(islice(rows, size)):
        yield batch


def answer_as_json(desk: Desk, question: dict[str, Any], levels: FloatArray, stock: Sequence[float]) -> str:
    """One answer: the question, the levels and what to order."""
    up_to = {name: round(float(level), 6) for name, level in zip(desk.names.products, levels, strict=True)}
    order = {name: round(level - have, 6) for (name, level), have in zip(up_to.items(), stock, strict=True)}
    return json.dumps(question | {"order_up_to": up_to, "order": order}, ensure_ascii=False)


@contextmanager
def _questions_in(source: Path) -> Iterator[IO[str]]:
    try:
        if source == PIPE:
            yield sys.stdin
        else:
            with open(source, encoding="utf-8-sig", newline="") as file:
                yield file
    except UnicodeDecodeError:
        raise ValueError(f"{source} is not text in UTF-8") from None


@contextmanager
def _writing(out: Path | None, source: Path) -> Iterator[IO[str]]:
    """Standard output, or a file that appears when everything is answered."""
    if out is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        yield sys.stdout
        return
    if out.exists() and source.exists() and out.samefile(source):
        raise ValueError("--out must not be the file that is read")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent}")
    # A name that cannot be taken. JSON can name half a character, which UTF-8 cannot write: it stays escaped.
    with tempfile.NamedTemporaryFile(
        "w",
        encoding="utf-8",
        errors="backslashreplace",
        newline="",
        dir=out.parent,
        prefix=f".{out.name}.",
        delete=False,
    ) as file:
        try:
            yield file
            file.close()
            os.chmod(file.name, 0o666 & ~_umask())
            os.replace(file.name, out)
        except BaseException:
            os.unlink(file.name)
            raise


def _umask() -> int:
    """What the user's other programs leave out of a new file's rights; temporary files leave out everything."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
