"""JSON lines: an object for each question, which gets its answer as more keys.

    {"step": "Sat", "stock": [10, 20] or {"bread": 10, "milk": 20}}            all products
    {"step": "Sat", "product": "bread", "stock": 10}                           one product

Labels stand there by their names, and `scale` and `pack` as one number, or as the stock does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from poolrl.workflow.desk import BASIS, Desk
from poolrl.workflow.shelf import Orders, Questions

NumberedLine = tuple[int, str]
NumberedObject = tuple[int, dict[str, Any]]


def numbered_objects(source: Path, lines: Iterable[NumberedLine]) -> Iterator[NumberedObject]:
    """The objects of lines that are not empty, with the numbers of the lines."""

    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is not JSON")

    for number, line in lines:
        if not line.strip():
            continue
        try:
            found = json.loads(line, parse_constant=refuse)
        except (ValueError, RecursionError):
            raise ValueError(f"{source}, line {number}: not JSON") from None
        if not isinstance(found, dict):
            raise ValueError(f'{source}, line {number}: must be an object {{"step": ..., "stock": ...}}')
        yield number, found


class Question(NamedTuple):
    """One question: numbers of step, product and label places, with amounts for each product that is asked for."""

    step: int
    places: list[int]
    product: int
    stock: list[float]
    scale: list[float]
    pack: list[float]


def json_questions(
    desk: Desk, source: Path, objects: list[NumberedObject], packs: list[float] | None, *, is_long: bool
) -> Questions:
    """The questions of some objects, all of one kind, in columns."""
    read = []
    for number, row in objects:
        try:
            read.append(question_of(desk, row, packs, is_long=is_long))
        except KeyError as missing:
            raise ValueError(f"{source}, line {number}: {missing} is missing") from None
        except ValueError as error:
            raise ValueError(f"{source}, line {number}: {error}") from None
    return in_columns(desk, read, is_long=is_long)


def in_columns(desk: Desk, questions: list[Question], *, is_long: bool = False) -> Questions:
    """Questions of one kind as arrays."""
    step, places, product, stock, scale, pack = zip(*questions, strict=True)
    return Questions(
        np.array(step, dtype=np.int64),
        np.array(places, dtype=np.int64).reshape(len(step), len(desk.labels)),
        np.array(product, dtype=np.int64)[:, None] if is_long else desk.all_products,
        np.array(stock, dtype=np.float64),
        np.array(scale, dtype=np.float64) if desk.scaled else None,
        np.array(pack, dtype=np.float64),
    )


def question_of(desk: Desk, row: dict[str, Any], packs: list[float] | None, *, is_long: bool = False) -> Question:
    """The question of one object, by its keys."""
    step, places = desk.step(row["step"]), [desk.place(name, row[name]) for name in desk.labels]
    stock, scale = row["stock"], desk.positive("scale", row["scale"]) if desk.scaled else []
    if "pack" in row and packs is not None:
        raise ValueError("has a pack: leave it out, or --packs")
    if "pack" in row:
        packs = desk.positive("pack", row["pack"], some=True)
    pack = packs or [math.nan] * len(desk.names.products)
    if not is_long:
        return Question(step, places, 0, desk.stock(stock), scale, pack)
    if isinstance(stock, dict | list):
        raise ValueError("stock must be one number where one product is named")
    product = desk.product(row["product"])
    stocks = desk.stock([stock] * len(desk.names.products))
    return Question(step, places, product, *(part[product : product + 1] for part in (stocks, scale, pack)))


def answers_as_json(
    desk: Desk, objects: list[NumberedObject], answered: Orders, *, is_long: bool = False
) -> Iterator[str]:
    """Each object with what to order and whose levels decided."""
    up_to, order = (np.asarray(amounts).tolist() for amounts in (answered.up_to, answered.order))
    for i, (_, row) in enumerate(objects):
        found: dict[str, Any] = {}
        for what, amounts in (("order_up_to", up_to[i]), ("order", order[i])):
            rounded = [round(amount, 6) for amount in amounts]
            found[what] = rounded[0] if is_long else dict(zip(desk.names.products, rounded, strict=True))
        if desk.labels:
            found["basis"] = BASIS[int(answered.population[i])]
        yield json.dumps(row | found, ensure_ascii=False)
