"""[operations] of `poolrl.toml`: how the shop really works, for `poolrl replan`. A fit does not look at it."""

from __future__ import annotations

from typing import Any

import numpy as np

from poolrl.problems.operations import Operations
from poolrl.workflow.config_problem import Amounts
from poolrl.workflow.section import ConfigSection, key


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
    capacity: float | list[float] | None = key(
        None,
        why="room for all that is there after a delivery, all products together: one number, or one per step",
        asked=False,
    )
    volume: float | list[float] | None = key(
        None, why="goes with capacity: how much of it a unit of each product takes; 1 if left out", asked=False
    )
    lead_time: int = key(
        0, why="an order arrives so many steps later; goes with cycle = true", asked=False, ge=0, le=100
    )
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
        self._refuse_what_does_not_go_together(len(steps))
        if self.deliveries:
            given["deliveries"] = np.array([[name in self.deliveries] for name in steps], dtype=np.float64)
        return Operations(cycle=self.cycle, **given)

    def _refuse_what_does_not_go_together(self, horizon: int) -> None:
        """Before anything is planned, and long before anything is spent."""
        if self.volume is not None and self.capacity is None:
            raise ValueError("[operations] volume needs capacity: how much room is there for all products together?")
        if self.lead_time > horizon:
            raise ValueError(f"[operations] lead_time is longer than the {horizon} steps of a trajectory")
        if self.lead_time and self.capacity is not None:
            raise ValueError("[operations] capacity and lead_time cannot be planned together")
        if self.lead_time and not self.cycle:
            raise ValueError("[operations] lead_time needs cycle = true: what is ordered at the end arrives later")
        alone = [name for name in ("fixed", "pack", "minimum") if getattr(self, name) is not None]
        alone += [name for name, given in (("deliveries", self.deliveries), ("cycle", self.cycle)) if given]
        if self.capacity is not None and alone:
            raise ValueError(
                f"[operations] capacity and {alone[0]} cannot be planned together: a shared capacity is planned for "
                "orders of any amount on every step"
            )

    def require_lengths(self, *, steps: int, products: int) -> None:
        """Refuse lists of another length than the shop's, and amounts that are none."""
        for name, given, length in (("capacity", self.capacity, steps), ("volume", self.volume, products)):
            amounts = given if isinstance(given, list) else [] if given is None else [given]
            if isinstance(given, list) and len(given) != length:
                raise ValueError(f"[operations] {name} must be one number, or a list of {length}, got {len(given)}")
            if not all(0 < amount < float("inf") for amount in amounts):
                raise ValueError(f"[operations] {name} must be positive")
