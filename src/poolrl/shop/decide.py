"""`poolrl decide`: order-up-to levels for stocks on the command line, in a CSV file, or as JSON lines."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.policy import Policy

BATCH = 100_000


@dataclass(frozen=True)
class Desk:
    """A policy that is asked in the user's words: names of steps and products."""

    policy: Policy
    products: list[str]
    steps: list[str]
    first_step: int

    @classmethod
    def open(cls, path: Path) -> Desk:
        """Read a policy; without names of its own, products and steps are numbered."""
        policy = Policy.load(path)
        width, horizon = policy.problem.state_dim, policy.problem.horizon
        labels = policy.report.get("labels", {})
        if not isinstance(labels, dict) or not isinstance(first := labels.get("first_step", 0), int):
            raise ValueError(f"{path} has no names that fit: labels must be products, steps and first_step")
        products, steps = (labels.get(name, [*range(n)]) for name, n in (("products", width), ("steps", horizon)))
        if not all(isinstance(names, list) for names in (products, steps)) or (len(products), len(steps)) != (
            width,
            horizon,
        ):
            raise ValueError(f"{path} names other products or steps than it decides on")
        return cls(policy, [*map(str, products)], [*map(str, steps)], first)

    def step(self, name: Any) -> int:
        """A step by its name, by its number in the log, or by its name in small letters."""
        text = str(name).strip()
        numbers = {str(self.first_step + number): number for number in range(len(self.steps))}
        if text in self.steps:
            return self.steps.index(text)
        if text in numbers:
            return numbers[text]
        lowered = [step.lower() for step in self.steps]
        if lowered.count(text.lower()) == 1:
            return lowered.index(text.lower())
        near = get_close_matches(text.lower(), lowered, n=1)
        hint = f"did you mean {self.steps[lowered.index(near[0])]}? " if near else ""
        raise ValueError(f"there is no step {text!r}; {hint}Steps are {', '.join(self.steps)}, or {_span(numbers)}")

    def stock(self, given: Any) -> list[float]:
        """Stocks as a list in the products' order, or by product name."""
        if isinstance(given, Mapping):
            unknown = [name for name in given if name not in self.products]
            if unknown:
                near = get_close_matches(str(unknown[0]), self.products, n=1)
                hint = f"did you mean {near[0]}?" if near else f"products are {', '.join(self.products)}"
                raise ValueError(f"there is no product {unknown[0]!r}; {hint}")
            missing = [name for name in self.products if name not in given]
            if missing:
                raise ValueError(f"stock lacks {', '.join(missing)}")
            given = [given[name] for name in self.products]
        if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != len(self.products):
            raise ValueError(f"stock must give a number for each of {', '.join(self.products)}")
        found = [_number(name, value) for name, value in zip(self.products, given, strict=True)]
        for name, number, lowest in zip(self.products, found, self.policy.problem.state_low, strict=True):
            if number < lowest:
                rule = "must not be negative" if lowest == 0 else "lies below what can wait"
                raise ValueError(f"the stock of {name} {rule}")
        return found

    def levels(self, steps: Sequence[int], stocks: Sequence[Sequence[float]], *, whole: bool) -> FloatArray:
        """Order-up-to levels (m, products), step by step in batches; rounded to whole units if asked."""
        where, stock = np.asarray(steps, dtype=np.int64), np.asarray(stocks, dtype=np.float64)
        found = np.empty_like(stock)
        for step in np.unique(where):
            rows = where == step
            found[rows] = self.policy.act(int(step), stock[rows])
        # Rounding neither asks for goods to be sent back nor orders where enough is there.
        return np.where(found > stock, np.maximum(np.rint(found), stock), stock) if whole else found


def decide_one(policy: Path, step: str, stock: str | None, *, whole: bool, as_json: bool) -> None:
    """Answer one question from the command line; without a stock the shelf is empty."""
    desk = Desk.open(policy)
    number = desk.step(step)
    given = desk.stock([0.0] * len(desk.products) if stock is None else _from_text(stock))
    levels = desk.levels([number], [given], whole=whole)[0]
    if as_json:
        named = dict(zip(desk.products, given, strict=True))
        print(_as_json(desk, {"step": desk.steps[number], "stock": named}, levels, given))
        return
    width = max(len("product"), *map(len, desk.products))
    print(f"{'product':<{width}}  {'stock':>10}  {'order up to':>11}  {'order':>10}")
    for name, have, level in zip(desk.products, given, levels, strict=True):
        print(f"{name:<{width}}  {have:>10.10g}  {level:>11.2f}  {level - have:>10.2f}")


def decide_csv(policy: Path, source: Path, out: Path | None, *, whole: bool) -> None:
    """Answer every row of a CSV file with columns step and one per product; other columns are passed through."""
    desk = Desk.open(policy)
    with _reading(source) as file, _writing(out, source) as answers:
        rows = csv.reader(file)
        try:
            names = next(rows, [])
        except csv.Error as error:
            raise ValueError(f"{source}, line 1: {error}") from None
        for name in ("step", *desk.products):
            if names.count(name) != 1:
                raise ValueError(
                    f"{source} must have one column {name!r}: step, {', '.join(desk.products)}, with commas"
                )
        writer = csv.writer(answers, lineterminator="\n")
        added = [f"{what}_{name}" for what in ("order_up_to", "order") for name in desk.products]
        if not set(names).isdisjoint(added):
            raise ValueError(f"{source} has answers already: columns order_up_to_{desk.products[0]}, ...")
        writer.writerow([*names, *added])
        try:
            for batch in _batches(_csv_rows(source, rows, names)):
                steps, stocks = _questions(desk, source, batch, lambda row: [row[name] for name in desk.products])
                answered = desk.levels(steps, stocks, whole=whole)
                for (_, row), levels, have in zip(batch, answered, stocks, strict=True):
                    numbers = [*levels, *(levels - np.asarray(have))]
                    writer.writerow([*row.values(), *(repr(round(float(number), 6)) for number in numbers)])
        except csv.Error as error:
            raise ValueError(f"{source}, line {rows.line_num}: {error}") from None


def decide_lines(policy: Path, source: Path, out: Path | None, *, whole: bool) -> None:
    """Answer JSON lines {"step": ..., "stock": [...] or {product: ...}}; other keys are passed through."""
    desk = Desk.open(policy)
    with _reading(source) as file, _writing(out, source) as answers:
        for batch in _batches(_json_lines(source, file)):
            steps, stocks = _questions(desk, source, batch, lambda row: row["stock"])
            answered = desk.levels(steps, stocks, whole=whole)
            for (_, row), levels, have in zip(batch, answered, stocks, strict=True):
                answers.write(_as_json(desk, row, levels, have) + "\n")


Numbered = tuple[int, dict[str, Any]]  # a question and the line it stands on


def _questions(
    desk: Desk, source: Path, batch: list[Numbered], stock: Callable[[dict[str, Any]], Any]
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


def _csv_rows(source: Path, rows: Any, names: list[str]) -> Iterator[Numbered]:
    for cells in rows:
        if not cells:
            continue
        if len(cells) != len(names):
            raise ValueError(f"{source}, line {rows.line_num}: has {len(cells)} cells, the header {len(names)}")
        yield rows.line_num, dict(zip(names, cells, strict=True))


def _json_lines(source: Path, file: IO[str]) -> Iterator[Numbered]:
    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is not JSON")

    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            question = json.loads(line, parse_constant=refuse)
        except (ValueError, RecursionError):
            raise ValueError(f"{source}, line {number}: not JSON") from None
        if not isinstance(question, dict):
            raise ValueError(f'{source}, line {number}: must be an object {{"step": ..., "stock": ...}}')
        yield number, question


def _batches(rows: Iterator[Numbered]) -> Iterator[list[Numbered]]:
    while batch := list(islice(rows, BATCH)):
        yield batch


def _as_json(desk: Desk, question: dict[str, Any], levels: FloatArray, stock: Sequence[float]) -> str:
    up_to = {name: round(float(level), 6) for name, level in zip(desk.products, levels, strict=True)}
    order = {name: round(level - have, 6) for (name, level), have in zip(up_to.items(), stock, strict=True)}
    return json.dumps(question | {"order_up_to": up_to, "order": order}, ensure_ascii=False)


def _from_text(text: str) -> Any:
    """`10,20,5` or `bread=10,milk=20,salad=5`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all("=" in part for part in parts):
        return parts
    named = [part.split("=", 1) for part in parts]
    if len({name for name, _ in named}) < len(named):
        raise ValueError("stock must name each product once")
    return {name.strip(): amount.strip() for name, amount in named}


def _number(name: str, value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else float("nan")
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not np.isfinite(number):
        raise ValueError(f"the stock of {name} must be a finite number")
    return number


def _span(numbers: Mapping[str, int]) -> str:
    names = list(numbers)
    return f"{names[0]} to {names[-1]}"


@contextmanager
def _reading(source: Path) -> Iterator[IO[str]]:
    try:
        if str(source) == "-":
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
    # A name that nobody can have taken. Half a character, which JSON can name and UTF-8 cannot write, stays as named.
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
