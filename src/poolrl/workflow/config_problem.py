"""[problem] of `poolrl.toml`: what is decided, at which cost, within which bounds, and which labels there are."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from poolrl.problems.inventory import Backlog, LostSales
from poolrl.problems.labels import MOST_LABEL_CELLS
from poolrl.workflow.config_log import LogTable
from poolrl.workflow.section import ConfigSection, is_name, key

SHOPS: dict[str, type[LostSales] | type[Backlog]] = {"lost sales": LostSales, "backlog": Backlog}
AMOUNTS = ("holding", "shortage", "boundary", "demand_max")

# One number, one per product, or (but for demand_max) one per step and product; `Inventory` knows their bounds.
Amounts = float | list[float] | list[list[float]]
# Declared values of a label: a list, in which "1..935" stands for all numbers between, or such a range alone.
DeclaredValues = list[int | float | str] | str
VALUE_RANGE = re.compile(r"(-?\d{1,15})\.\.(-?\d{1,15})")


class ProblemFacts(ConfigSection):
    """What is decided, how often, at which cost, within which bounds."""

    kind: Literal["lost sales", "backlog"] = key(
        why='"lost sales": unmet demand is gone and unseen; "backlog": it waits, and is seen', answer="lost sales"
    )
    products: list[str] = key(
        why="a name for each product, in the order of all lists below", min_length=1, max_length=10_000
    )
    horizon: int = key(why="steps of one trajectory: 7 days of a week", ge=1, le=10_000)
    steps: list[str] = key([], why="names for the steps, for reports", answer="")
    holding: Amounts = key(
        why="cost of a unit left after a step: a number, one per product, or a list per step of such lists"
    )
    shortage: Amounts = key(why="cost of one unit of demand that was not met: the same forms")
    demand_max: float | list[float] = key(
        why="demand never exceeds this, by shelf size or common sense, in units or in multiples of the scale; too "
        "large costs accuracy, not privacy"
    )
    boundary: Amounts = key(
        1.0, why="lambda: feedback exists up to this share of demand_max, and orders stay below it", answer="1"
    )
    labels: dict[str, DeclaredValues] = key(
        {},
        why='public facts of a row with their values, declared and never read off the log: { shop = "1..935", '
        'promotion = ["no", "yes"] }; as an answer: shop=1..935; promotion=no,yes',
        answer="",
    )
    step_labels: list[str] = key(
        [], why="those labels that may change from one step to the next, such as a holiday", answer=""
    )
    scale_profile: list[float] = key(
        [], why="goes with a scale: how large it usually is on each step, compared with the others", asked=False
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = []
        for name, names in (("products", self.products), ("steps", self.steps), ("labels", list(self.labels))):
            if len({each.lower() for each in names}) < len(names) or not all(map(is_name, names)):
                faults.append(f"{name} must be printable names that differ, ignoring case")
        if "step" in self.products:
            faults.append("products must not be called step: decide has a column of that name")
        if self.steps and len(self.steps) != self.horizon:
            faults.append(f"steps must name each of the {self.horizon} steps, or be left out; got {len(self.steps)}")
        if not set(self.step_labels) <= set(self.labels):
            faults.append("step_labels must be among the labels")
        if self.scale_profile and len(self.scale_profile) != self.horizon:
            faults.append(f"scale_profile must have one number for each of the {self.horizon} steps, or be left out")
        products = len(self.products)
        for name in AMOUNTS:
            shape = np.shape(np.asarray(getattr(self, name), dtype=object))
            by_step = [] if name == "demand_max" else [(self.horizon, products), (self.horizon, 1)]
            if shape not in [(), (products,), *by_step]:
                lists = f", or {self.horizon} lists of {products}, one per step" if by_step else ""
                faults.append(f"{name} must be one number, or {products}, one per product{lists}")
        if faults:
            raise ValueError("; ".join(faults))
        _ = self.posed  # says what else is wrong with costs, bounds and labels
        return self

    # A trajectory of a shop that lacks days is a fault of the table.
    short_is: ClassVar[Literal["bad"]] = "bad"

    @property
    def in_words(self) -> str:
        """What it is about, for `poolrl check` and for an audit."""
        return f"{self.kind}: {len(self.products)} products, {self.horizon} steps"

    def faults_of_log(self, log: LogTable) -> list[str]:
        """What is wrong with the columns that [log] names."""
        faults, wanted = [], len(self.products)
        for name in ("opening", "order_up_to", "left"):
            given = len(getattr(log, name))
            if given != wanted:
                faults.append(f"[log] {name} must name one column for each of the {wanted} products, got {given}")
        if log.scale and len(log.scale) not in (1, wanted):
            faults.append(f"[log] scale must name one column, or one for each of the {wanted} products")
        if not log.step:
            faults.append("[log] step must name a column")
        if (log.delimiter, log.decimal) != (",", "."):
            faults.append("[log] delimiter and decimal are for other problems than shops; [sales] has its own")
        if log.columns:
            faults.append("[log] columns is for other problems than shops: name opening, order_up_to and left")
        return faults

    def unlabelled(self) -> LostSales | Backlog:
        """The same shop without labels."""
        facts = self.model_copy(update={"labels": {}, "step_labels": []})
        return ProblemFacts.model_validate(facts.model_dump()).posed

    @cached_property
    def posed(self) -> LostSales | Backlog:
        """The problem that the learner sees."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in AMOUNTS}
        if self.scale_profile:
            facts["scale_profile"] = [[each] for each in self.scale_profile]
        labels = {name: declared_values(given) for name, given in self.labels.items()}
        return SHOPS[self.kind](horizon=self.horizon, products=len(self.products), labels=labels, **facts)


def declared_values(given: DeclaredValues) -> list[int | float | str]:
    """The values that a declaration stands for."""
    values: list[int | float | str] = []
    for each in [given] if isinstance(given, str) else given:
        found = VALUE_RANGE.fullmatch(each) if isinstance(each, str) else None
        if found is None:
            values.append(each)
            continue
        first, last = int(found[1]), int(found[2])
        if not 0 <= last - first < MOST_LABEL_CELLS:
            raise ValueError(f"labels: {each} is no range of numbers, from the smallest to the largest")
        values += range(first, last + 1)
    return values
