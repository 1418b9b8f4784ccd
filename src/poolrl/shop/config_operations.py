"""[operations] of `poolrl.toml`: how the shop really works, for `poolrl replan`. A fit does not look at it."""

from __future__ import annotations

from typing import Any

import numpy as np

from poolrl.problems.operations import Operations
from poolrl.shop.config_problem import Amounts
from poolrl.shop.section import ConfigSection, key


class OperationFacts(ConfigSection):
    """Costs and orders beyond those of [problem]; amounts as there: a number, one per product, or a list per step."""

    purchase: Amounts | None = key(None, why="what a unit costs to buy", asked=False)
    price: Amounts | None = key(None, why="what a unit is sold for: lost with a missed sale", asked=False)
    fixed: Amounts | None = key(None, why="cost of placing an order, however large", asked=False)
    spoilage: Amounts | None = key(
        None, why="share of what is left that is gone the next morning; 1 for bread", asked=False
    )
    salvage: Amounts | None = key(None, why="what a unit brings that is left after the last step", asked=False)
    pack: Amounts | None = key(None, why="orders are whole packs of so many units", asked=False)
    minimum: Amounts | None = key(None, why="the smallest order that can be placed", asked=False)
    deliveries: list[str] = key(
        [], why="names of the steps on which an order can be placed; all if left out", asked=False
    )
    cycle: bool = key(False, why="the first step comes again after the last, for ever", asked=False)
    usual_scale: Amounts | None = key(
        None,
        why="goes with a scale: how large it usually is, because packs and costs of an order are in units",
        asked=False,
    )

    @property
    def declared(self) -> bool:
        """Whether anything is said."""
        return self != OperationFacts()

    def of_steps(self, steps: list[str]) -> Operations:
        """For a shop whose steps have these names."""
        if unknown := [name for name in self.deliveries if name not in steps]:
            raise ValueError(f"[operations] deliveries names {unknown[0]!r}; steps are {', '.join(steps)}")
        given: dict[str, Any] = {
            name: value
            for name in ("purchase", "price", "fixed", "spoilage", "salvage", "pack", "minimum")
            if (value := getattr(self, name)) is not None
        }
        if self.deliveries:
            given["deliveries"] = np.array([[name in self.deliveries] for name in steps], dtype=np.float64)
        return Operations(cycle=self.cycle, **given)
