"""A plan of `poolrl replan` that is asked in the user's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.stored import Names, says_it_is
from poolrl.plans.saved import PLAN_FORMAT, SavedPlan, load_plan
from poolrl.problems.labels import Labels
from poolrl.workflow.words import UserWords


@dataclass(frozen=True)
class PlanDesk(UserWords):
    """A saved plan, with its names."""

    plan: SavedPlan
    names: Names

    @classmethod
    def open(cls, path: Path) -> PlanDesk:
        """Read a plan."""
        plan = load_plan(path)
        return cls(plan, plan.names)

    @property
    def declared(self) -> Labels:
        """The labels that the plan was made for."""
        return self.plan.labels

    def order(self, step: int, stock: list[float], labels: Mapping[str, Any], coming: list[list[float]]) -> FloatArray:
        """What to order of each product."""
        places = []
        for name, values in zip(self.declared.names, self.declared.values, strict=True):
            if name not in labels:
                raise ValueError(f"this plan was made for each {name}: give --labels {name}=...")
            place = self.place(name, labels[name])
            if place == len(values):
                raise ValueError(f"{name} has a value that was not declared: a plan knows no others")
            places.append(place)
        if unknown := [name for name in labels if name not in self.declared.names]:
            raise ValueError(f"the plan has no label {unknown[0]!r}")
        wanted = max(self.plan.lead_time - 1, 0)
        if coming and not wanted:
            raise ValueError("nothing is on its way before an order of this plan: leave out --coming")
        if len(coming) != wanted:
            raise ValueError(
                f"an order of this plan arrives {self.plan.lead_time} steps later, so {wanted} more may be on their "
                "way: give --coming once for each, the next to arrive first, and zeros where nothing is"
            )
        if any(amount < 0 for each in coming for amount in each):
            raise ValueError("what is coming must not be negative")
        cell = int(np.ravel_multi_index(places, self.declared.shape)) if places else 0
        return self.plan.order(step, stock, cell=cell, on_the_way=coming or None)


def is_plan(path: Path) -> bool:
    """Whether a file says that it is a plan."""
    return says_it_is(path, PLAN_FORMAT)
