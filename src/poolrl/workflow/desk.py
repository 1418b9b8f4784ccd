"""Desks: a policy or a plan that is asked in the user's words, whatever the trade.

    desk = trade_of(policy.problem).desk(policy)
    desk.answer(desk.question("Sat", stock="bread=10,milk=20"))

Every answer of a policy is that of `Policy.act`, which is asked for all rows of a step at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from poolrl.checks import FloatArray, IntArray, nearest
from poolrl.learning.policy import Policy
from poolrl.learning.stored import Names
from poolrl.problems.labels import Labels, LabelValue
from poolrl.workflow.column_names import STOCK_MEANINGS, weekday_named
from poolrl.workflow.trades.trade import trade_of

# Amounts by their names, each of the shape of the questions' states; and whose levels decided, where that may differ.
Answers = dict[str, Any]


class RowRefusedError(ValueError):
    """A row that has no answer; its number counts from 0."""

    def __init__(self, row: int, words: str) -> None:
        super().__init__(words)
        self.row = row


@dataclass(frozen=True)
class Questions:
    """Questions in columns. A row asks about a whole state, or about one product of it."""

    step: IntArray  # (m,)
    places: IntArray  # (m, labels): the place of each label's value; a value that was not declared is behind the last
    state: FloatArray  # (m, w); (m, 1) where a row asks about one product
    scale: FloatArray | None = None  # of the same shape, or (m, 1)
    pack: FloatArray | None = None  # of the same shape; NaN where there are no packs
    product: IntArray | None = None  # (m,)
    coming: FloatArray | None = None  # (m, L - 1, w), where orders take L steps to arrive

    def only(self, rows: IntArray) -> Questions:
        """Some of the rows."""
        return replace(self, **{name: column[rows] for name, column in vars(self).items() if column is not None})

    def whole_states(self, width: int) -> FloatArray:
        """States (m, w). Where a row asks about one product, the others are zero, and do not matter."""
        if self.product is None:
            return self.state
        states = np.zeros((len(self.step), width))
        np.put_along_axis(states, self.product[:, None], self.state, axis=1)
        return states

    def asked_of(self, amounts: FloatArray) -> FloatArray:
        """Amounts (m, w), or of each row that of the product that it asks about, (m, 1)."""
        return amounts if self.product is None else np.take_along_axis(amounts, self.product[:, None], axis=1)


class Desk(ABC):
    """Answers questions, and reads names of steps, products, states and labels as people write them."""

    takes: tuple[str, ...] = ()  # flags of orders that it understands
    refusal: str  # what is said of the others
    together = ""  # why a row of a table cannot ask about one product, if it cannot
    by_product = True  # whether a row of a table asks about one product, by the columns product and stock
    decimals = 6  # of answers in files

    def __init__(self, names: Names, labels: Labels, answered: list[str], *, scaled: bool = False) -> None:
        self.names, self.labels, self.answered, self.scaled = names, labels, answered, scaled
        self.initial: FloatArray = np.zeros(len(names.products))
        # The columns that say the state, and what columns may be called beside labels and states.
        self.asked, self.meanings = ["product", "stock"], STOCK_MEANINGS
        self._numbers = {name: number for number, name in enumerate(names.products)}
        self._places: dict[str, dict[LabelValue, int]] = {
            name: {_spelling(value, numbers=self.has_numbers(name)): place for place, value in enumerate(values)}
            for name, values in zip(labels.names, labels.values, strict=True)
        }

    @abstractmethod
    def answer(self, asked: Questions, *, whole: bool = False) -> Answers:
        """The answers; a row that has none is refused by `RowRefusedError`."""

    @property
    def needed(self) -> list[str]:
        """The columns that a table of questions must have."""
        steps = ["step"] if len(self.names.steps) > 1 else []
        return [*steps, *self.asked, *self.labels.names, *(["scale"] if self.scaled else [])]

    def question(
        self,
        step: str,
        *,
        stock: str | None = None,
        labels: str | None = None,
        scale: str | None = None,
        packs: str | None = None,
        coming: Sequence[str] = (),
    ) -> Questions:
        """One question about a whole state, by the texts of the command line."""
        values = pairs_from_text(labels, "labels")
        if unknown := [name for name in values if name not in self.labels.names]:
            raise ValueError(
                f"there is no label {unknown[0]!r}; known labels: {', '.join(self.labels.names) or 'none'}"
            )
        if missing := [name for name in self.labels.names if name not in values]:
            raise ValueError(f"{missing[0]} is missing, which this was learned with: give --labels {missing[0]}=...")
        if self.scaled != (scale is not None):
            missing_one = "scale is missing, which this was learned with: give --scale"
            raise ValueError(missing_one if self.scaled else "this was learned without a scale: leave out --scale")
        later = [self.amounts("coming", text) for text in coming]
        return Questions(
            np.array([self.step(step)]),
            np.array([[self.place(name, values[name]) for name in self.labels.names]], dtype=np.int64),
            (self.initial if stock is None else self.amounts("stock", stock))[None],
            None if scale is None else self.amounts("scale", scale, positive=True)[None],
            None if packs is None else self.packs(packs)[None],
            coming=np.array([later]) if later else None,
        )

    def step(self, name: Any) -> int:
        """A step by its name, by its number in the log, or by its name in small letters."""
        text, steps = _as_text(name), self.names.steps
        numbers = [str(self.names.first_step + number) for number in range(len(steps))]
        lowered = [step.lower() for step in steps]
        for known, word in ((steps, text), (numbers, text), (lowered, text.lower()), (steps, weekday_named(text))):
            if known.count(word or "") == 1:
                return known.index(word or "")
        raise ValueError(f"there is no step {text!r}; {nearest(text, [*steps, f'{numbers[0]} to {numbers[-1]}'])}")

    def product(self, name: Any) -> int:
        """A product, or a coordinate of the state, by its name."""
        text, called = _as_text(name), "product" if self.by_product else "state"
        if text in self._numbers:
            return self._numbers[text]
        raise ValueError(f"there is no {called} {text!r}; {nearest(text, self.names.products)}")

    def place(self, label: str, value: Any) -> int:
        """The place of a value among the declared ones of a label. A value that was not declared comes after the last.

        Text may differ in case, as no two declared values do. A missing value is refused: it is not a new shop.
        """
        places = self._places[label]
        if value is None or value != value or not str(value).strip():
            raise ValueError(f"{label} is missing: answers differ by {label}")
        return places.get(_spelling(value, numbers=self.has_numbers(label)), len(places))

    def has_numbers(self, label: str) -> bool:
        """Whether the values of a label are declared as numbers."""
        return not isinstance(self.labels.values[self.labels.names.index(label)][0], str)

    def packs(self, text: str) -> FloatArray:
        """The size of each product's packs, (w,); NaN for products that come singly."""
        sizes = np.full(len(self.names.products), np.nan)
        for name, size in pairs_from_text(text, "packs").items():
            sizes[self.product(name)] = _amount(f"pack of {name}", size, positive=True)
        return sizes

    def amounts(self, what: str, text: str, *, positive: bool = False) -> FloatArray:
        """`10,20,5` or `bread=10,milk=20,salad=5`, (w,). One number may serve for all where it must be positive."""
        names, parts = self.names.products, _parts(text, what)
        if isinstance(parts, dict):
            by_number = {self.product(name): amount for name, amount in parts.items()}
            if missing := [name for i, name in enumerate(names) if i not in by_number]:
                raise ValueError(f"{what} lacks {', '.join(missing)}")
            parts = [by_number[i] for i in range(len(names))]
        if positive and len(parts) == 1:
            return np.full(len(names), _amount(what, parts[0], positive=True))
        if len(parts) != len(names):
            raise ValueError(f"{what} must give a number for each of {', '.join(names)}")
        pairs = zip(names, parts, strict=True)
        return np.array([_amount(f"{what} of {name}", part, positive=positive) for name, part in pairs])

    def refuse_undeclared(self, asked: Questions) -> None:
        """Refuse values of labels that were not declared, for which there is no answer."""
        for i, (name, values) in enumerate(zip(self.labels.names, self.labels.values, strict=True)):
            if (new := asked.places[:, i] == len(values)).any():
                known = ", ".join(map(str, values[:8])) + (", ..." if len(values) > 8 else "")
                raise RowRefusedError(int(new.argmax()), f"{name} must be one of those that were declared: {known}")


class StateDesk(Desk):
    """A policy of any problem: a question says every coordinate of the state, an answer the decision."""

    refusal = "is for orders of shops"
    by_product = False
    decimals = 12  # prices may be small

    def __init__(self, policy: Policy) -> None:
        problem, words = policy.problem, trade_of(policy.problem).words
        decision = words.decision
        decisions = [decision] if problem.action_dim == 1 else [f"{decision} {i}" for i in range(problem.action_dim)]
        super().__init__(policy.names, problem.labels, decisions, scaled=policy.guarantee.scaled)
        self.policy, self.initial = policy, problem.initial_state
        # Where only one state leaves something to decide, nobody has to say it.
        self.asked = [] if problem.ended(problem.state_high - 1.0) else self.names.products
        steps = f"{STOCK_MEANINGS['step']}, {words.step}"
        self.meanings = {"step": steps, "scale": STOCK_MEANINGS["scale"]}

    def answer(self, asked: Questions, *, whole: bool = False) -> Answers:
        """What `Policy.act` decides in every row, in the units of the scale."""
        problem, names = self.policy.problem, self.names.products
        self.refuse_undeclared(asked)
        outside = (asked.state < problem.state_low) | (asked.state > problem.state_high)
        if outside.any():
            row, i = (int(place) for place in np.argwhere(outside)[0])
            raise RowRefusedError(row, f"{names[i]} must lie in {problem.state_low[i]:g} .. {problem.state_high[i]:g}")
        if (ended := problem.ended(asked.state)).any():
            raise RowRefusedError(int(ended.argmax()), f"{names[0]}: nothing is left to decide about")
        with np.errstate(over="ignore"):
            decided = act(self.policy, asked)
        refuse_infinite(decided)
        return {name: decided[:, [i]] for i, name in enumerate(self.answered)}


def act(policy: Policy, asked: Questions) -> FloatArray:
    """What `Policy.act` answers to all rows."""
    labels, states = policy.problem.labels, asked.whole_states(policy.problem.state_dim)
    declared = zip(labels.names, labels.values, asked.places.T, strict=True)
    named = {name: np.array(values)[places] for name, values, places in declared}
    decided = np.empty((len(states), policy.problem.action_dim))
    for step in np.unique(asked.step):
        rows = np.flatnonzero(asked.step == step)
        scale, here = None if asked.scale is None else asked.scale[rows], {name: named[name][rows] for name in named}
        decided[rows] = policy.act(int(step), states[rows], scale=scale, labels=here)
    return asked.asked_of(decided)


def refuse_infinite(answers: FloatArray) -> None:
    """Refuse the first row whose answer is no finite number."""
    if not (good := np.isfinite(answers).all(axis=1)).all():
        raise RowRefusedError(int(good.argmin()), "stock, scale or pack is too large or too small to compute with")


def pairs_from_text(text: str | None, what: str) -> dict[str, str]:
    """`shop=7,promo=yes`; without a text, no pairs."""
    pairs = {} if text is None else _parts(text, what)
    if isinstance(pairs, dict):
        return pairs
    raise ValueError(f"--{what} must be pairs, for example {'bread=12,milk=6' if what == 'packs' else 'shop=7'}")


def number_or_nan(value: Any) -> float:
    """A number; NaN where there is no number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _parts(text: str, what: str) -> list[str] | dict[str, str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all("=" in part for part in parts):
        return parts
    pairs = {name.strip(): amount.strip() for name, _, amount in (part.partition("=") for part in parts)}
    if len(pairs) < len(parts):
        raise ValueError(f"{what} must name each product once")
    return pairs


def _amount(what: str, text: str, *, positive: bool) -> float:
    number = number_or_nan(text)
    if not math.isfinite(number):
        raise ValueError(f"the {what} must be a finite number")
    if positive and number <= 0:
        raise ValueError(f"the {what} must be positive")
    return number


def _as_text(value: Any) -> str:
    """A name as text. Some tables hold the number 7 as 7.0."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def _spelling(value: Any, *, numbers: bool) -> LabelValue:
    """One form for all spellings of a value; a text that is no declared number stays a text."""
    if not numbers:
        return _as_text(value).casefold()
    number = number_or_nan(value)
    return str(value) if math.isnan(number) else number
