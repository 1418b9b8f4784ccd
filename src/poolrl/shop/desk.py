"""A policy that is asked in the user's words: names of steps and products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.policy import Names, Policy


@dataclass(frozen=True)
class Desk:
    """A policy that is asked in the user's words: names of steps and products."""

    policy: Policy
    names: Names

    @classmethod
    def open(cls, path: Path) -> Desk:
        """Read a policy, with the names that were saved with it."""
        policy = Policy.load(path)
        try:
            return cls(policy, policy.names)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

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
        near = get_close_matches(text.lower(), lowered, n=1)
        hint = f"did you mean {self.names.steps[lowered.index(near[0])]}? " if near else ""
        raise ValueError(
            f"there is no step {text!r}; {hint}Steps are {', '.join(self.names.steps)}, or {_span(numbers)}"
        )

    def stock(self, given: Any) -> list[float]:
        """Stocks as a list in the products' order, or by product name."""
        if isinstance(given, Mapping):
            unknown = [name for name in given if name not in self.names.products]
            if unknown:
                near = get_close_matches(str(unknown[0]), self.names.products, n=1)
                hint = f"did you mean {near[0]}?" if near else f"products are {', '.join(self.names.products)}"
                raise ValueError(f"there is no product {unknown[0]!r}; {hint}")
            missing = [name for name in self.names.products if name not in given]
            if missing:
                raise ValueError(f"stock lacks {', '.join(missing)}")
            given = [given[name] for name in self.names.products]
        if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != len(self.names.products):
            raise ValueError(f"stock must give a number for each of {', '.join(self.names.products)}")
        found = [_finite_stock(name, value) for name, value in zip(self.names.products, given, strict=True)]
        for name, number, lowest in zip(self.names.products, found, self.policy.problem.state_low, strict=True):
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


def stock_from_text(text: str) -> Any:
    """`10,20,5` or `bread=10,milk=20,salad=5`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all("=" in part for part in parts):
        return parts
    named = [part.split("=", 1) for part in parts]
    if len({name for name, _ in named}) < len(named):
        raise ValueError("stock must name each product once")
    return {name.strip(): amount.strip() for name, amount in named}


def _finite_stock(name: str, value: Any) -> float:
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
