"""A policy that is asked in the user's words: names of steps, products and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.policy import Policy
from poolrl.learning.stored import Names
from poolrl.problems.labels import Labels
from poolrl.workflow.shelf import Questions, RowRefusedError, Shelf
from poolrl.workflow.words import UserWords

BASIS = ("own", "population")


@dataclass(frozen=True)
class Desk(UserWords):
    """A policy that is asked in the user's words: names of steps, products and labels."""

    policy: Policy
    names: Names
    shelf: Shelf = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shelf", Shelf(self.policy))

    @classmethod
    def open(cls, path: Path) -> Desk:
        """Read a policy, with the names that were saved with it."""
        policy = Policy.load(path)
        try:
            return cls(policy, policy.names)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @property
    def declared(self) -> Labels:
        """The labels that the policy was learned with."""
        return self.policy.problem.labels

    @property
    def scaled(self) -> bool:
        """Whether a question must give a scale."""
        return self.policy.guarantee.scaled

    def levels(self, steps: Sequence[int], stocks: Sequence[Sequence[float]], *, whole: bool) -> FloatArray:
        """Order-up-to levels (m, products) of a policy without labels and scale."""
        stock = np.asarray(stocks, dtype=np.float64)
        places = np.zeros((len(stock), 0), dtype=np.int64)
        asked = Questions(np.asarray(steps, dtype=np.int64), places, self.all_products, stock)
        try:
            return self.shelf.answer(asked, whole=whole).up_to
        except RowRefusedError as refused:
            raise ValueError(str(refused)) from None
