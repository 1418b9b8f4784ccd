"""The user's words: names of steps, products and labels, and amounts by product."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from poolrl.learning.stored import Names
from poolrl.problems.labels import Labels, LabelValue
from poolrl.workflow.column_names import weekday_named


class UserWords(ABC):
    """Whatever is asked in the user's words: it has names of products and steps, and labels with their values."""

    names: Names

    @property
    @abstractmethod
    def declared(self) -> Labels:
        """The labels that it was learned with."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels that a question must give."""
        return self.declared.names

    def step(self, name: Any) -> int:
        """A step by its name, by its number in the log, or by its name in small letters."""
        text = str(name).strip()
        numbers = {str(self.names.first_step + number): number for number in range(len(self.names.steps))}
        if text in self.names.steps:
            return self.names.steps.index(text)
        if text in numbers:
            return numbers[text]
        lowered = [step.lower() for step in self.names.steps]
        if lowered.count(text.lower()) == 1:
            return lowered.index(text.lower())
        if (day := weekday_named(text)) in self.names.steps:
            return self.names.steps.index(str(day))
        near = get_close_matches(text.lower(), lowered, n=1)
        hint = f"did you mean {self.names.steps[lowered.index(near[0])]}? " if near else ""
        raise ValueError(
            f"there is no step {text!r}; {hint}Steps are {', '.join(self.names.steps)}, or {_span(numbers)}"
        )

    def product(self, name: Any) -> int:
        """A product by its name."""
        if not isinstance(name, str) or (found := self._products.get(name, self._products.get(name.strip()))) is None:
            near = get_close_matches(str(name), self.names.products, n=1)
            hint = f"did you mean {near[0]}?" if near else f"products are {', '.join(self.names.products)}"
            raise ValueError(f"there is no product {name!r}; {hint}")
        return found

    def place(self, label: str, value: Any) -> int:
        """The place of a value among the declared ones of a label. What was not declared comes after the last.

        Text may differ in case, as no two declared values do. A missing value is refused: it is not a new shop.
        """
        declared = self._places[label]
        if value is None or (isinstance(value, str) and not value.strip()) or isinstance(value, list | dict):
            raise ValueError(f"{label} is missing: the policy has levels for each {label}")
        return declared.get(_spelling(value, numbers=self.has_numbers(label)), len(declared))

    def has_numbers(self, label: str) -> bool:
        """Whether the values of a label are declared as numbers."""
        return not isinstance(self.declared.values[self.labels.index(label)][0], str)

    def stock(self, given: Any) -> list[float]:
        """Stocks as a list in the products' order, or by product name."""
        found = self._by_product("stock", given)
        return [
            finite_amount(f"stock of {name}", value) for name, value in zip(self.names.products, found, strict=True)
        ]

    def positive(self, what: str, given: Any, *, some: bool = False) -> list[float]:
        """Scales or pack sizes: one for all products, a list, or by product name. With `some`, NaN for the others."""
        if isinstance(given, str | int | float):
            given = [given] * len(self.names.products)
        if some and isinstance(given, Mapping):
            given = dict.fromkeys(self.names.products, None) | dict(given)
        found = []
        for name, value in zip(self.names.products, self._by_product(what, given), strict=True):
            number = math.nan if some and value is None else finite_amount(f"{what} of {name}", value)
            if number <= 0:
                raise ValueError(f"the {what} of {name} must be positive")
            found.append(number)
        return found

    @cached_property
    def all_products(self) -> Any:
        """Every product, for questions about all of them."""
        return np.arange(len(self.names.products))[None, :]

    @cached_property
    def _products(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names.products)}

    @cached_property
    def _places(self) -> dict[str, dict[LabelValue, int]]:
        return {
            name: {_spelling(value, numbers=self.has_numbers(name)): place for place, value in enumerate(values)}
            for name, values in zip(self.labels, self.declared.values, strict=True)
        }

    def _by_product(self, what: str, given: Any) -> Sequence[Any]:
        if isinstance(given, Mapping):
            for name in given:
                self.product(name)
            missing = [name for name in self.names.products if name not in given]
            if missing:
                raise ValueError(f"{what} lacks {', '.join(missing)}")
            given = [given[name] for name in self.names.products]
        if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != len(self.names.products):
            raise ValueError(f"{what} must give a number for each of {', '.join(self.names.products)}")
        return given


def amounts_from_text(text: str, what: str) -> Any:
    """`10,20,5` or `bread=10,milk=20,salad=5`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all("=" in part for part in parts):
        return parts
    named = [part.split("=", 1) for part in parts]
    if len({name for name, _ in named}) < len(named):
        raise ValueError(f"{what} must name each product once")
    return {name.strip(): amount.strip() for name, amount in named}


def finite_amount(what: str, value: Any) -> float:
    """A number from a text or a file; refuses, in words, what is none."""
    try:
        number = float(value) if not isinstance(value, bool) else float("nan")
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not np.isfinite(number):
        raise ValueError(f"the {what} must be a finite number")
    return number


def _spelling(value: Any, *, numbers: bool) -> LabelValue:
    """What two spellings of one value have in common; a text that is no declared number stays a text."""
    if not numbers:
        return str(value).strip().casefold()
    try:
        return float(value)
    except (ValueError, OverflowError):
        return str(value)


def _span(numbers: Mapping[str, int]) -> str:
    names = list(numbers)
    return f"{names[0]} to {names[-1]}"
