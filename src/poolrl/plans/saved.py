"""Plans in files: what a shop needs to ask one, whatever kind it is of.

    save_plan("plan.npz", plan_orders(model, operations), names, problem.labels)
    load_plan("plan.npz").order(step=0, stock=[3.0, 20.0])

The file does not keep the cost of a plan.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, as_floats, whole
from poolrl.learning.stored import PLAN_FORMAT, Names, as_stated, complete, read_learned, write_learned
from poolrl.npz import Arrays
from poolrl.plans.capacity import CapacityPlan, CapacityRule
from poolrl.plans.lead_time import LeadTimePlan
from poolrl.plans.orders import OrderPlan, OrderRule
from poolrl.problems.labels import Labels

CAPACITY_PARTS = ("volumes", "room", "capacity", "levels")
# One plan for all columns; one for each label cell; or one for each column.
AnyPlan = OrderPlan | Sequence[CapacityPlan] | Sequence[LeadTimePlan]


@dataclass(frozen=True)
class SavedPlan:
    """A plan that can be asked by step, stock and label cell."""

    names: Names
    labels: Labels
    rule: OrderRule | list[CapacityRule] | list[LeadTimePlan]

    @property
    def lead_time(self) -> int:
        """How many steps an order takes to arrive."""
        first = self.rule[0] if isinstance(self.rule, list) else None
        return first.lead_time if isinstance(first, LeadTimePlan) else 0

    def order(self, step: int, stock: ArrayLike, *, cell: int = 0, on_the_way: ArrayLike | None = None) -> FloatArray:
        """What to order, (k,), in units. With a lead time L, `on_the_way` (L − 1, k) arrives in 1, 2, ... steps."""
        held, many = as_floats("stock", stock), len(self.names.products)
        if held.shape != (many,) or (held < 0).any() or not np.isfinite(held).all():
            raise ValueError(f"stock must be amounts of {many} products, none of them negative")
        whole(at_least=0, step=step, cell=cell)
        if step >= len(self.names.steps) or cell >= self.labels.count:
            raise ValueError(f"step must lie in 0 .. {len(self.names.steps) - 1}, cell in 0 .. {self.labels.count - 1}")
        shape = (max(self.lead_time - 1, 0), many)
        coming = np.zeros(shape) if on_the_way is None else as_floats("on_the_way", on_the_way)
        if coming.shape != shape:
            raise ValueError(f"on_the_way must have shape {shape}: with a lead time of L, L − 1 orders are coming")
        if isinstance(self.rule, OrderRule):
            return self.rule.order(step, held, cell=cell)
        if self.lead_time:
            mine = [self.rule[cell * many + i] for i in range(many)]
            return np.array([each.order(step, held[i], coming[:, i]) for i, each in enumerate(mine)])  # type: ignore[union-attr]
        shared = self.rule[cell]
        assert isinstance(shared, CapacityRule)
        return shared.order_up_to(step, held) - held


def save_plan(path: str | PathLike[str], plan: AnyPlan, names: Names, labels: Labels) -> None:
    """Write one npz file: what the plan says, and the names of products, steps and labels."""
    facts: dict[str, Any] = {"format": PLAN_FORMAT, "names": asdict(names), "labels": labels.facts()}
    arrays: Arrays = {}
    if isinstance(plan, OrderPlan):
        facts |= {"kind": "orders", "cycle": plan.cycle}
        arrays = {"orders": plan.orders, "width": plan.width}
    elif isinstance(plan[0], CapacityPlan):
        facts["kind"] = "capacity"
        arrays = {name: np.stack([getattr(cell, name) for cell in plan]) for name in CAPACITY_PARTS}
    else:
        facts |= {"kind": "lead time", "lead_time": plan[0].lead_time}
        for number, own in enumerate(plan):
            assert isinstance(own, LeadTimePlan)
            tables = {"width": np.array([own.width]), "table": own.table, "base": own.base_stock, "cap": own.cap}
            arrays |= {f"{name}_{number}": table for name, table in tables.items() if table is not None}
    write_learned(path, facts, arrays)


def load_plan(path: str | PathLike[str]) -> SavedPlan:
    """Read what `save_plan` wrote."""
    facts, arrays = read_learned(path, PLAN_FORMAT, "plan")
    with complete(path, "plan"):
        names, labels = as_stated(Names, facts["names"]), Labels(dict(facts["labels"]))
        if not names.products or not names.steps:
            raise ValueError("a plan names its products and steps")
        if any((array < 0).any() for array in arrays.values()):
            raise ValueError("no number of a plan is negative")
        return SavedPlan(names, labels, _rule(facts, arrays, labels.count, len(names.steps), len(names.products)))


def _rule(
    facts: dict[str, Any], arrays: Arrays, cells: int, steps: int, many: int
) -> OrderRule | list[CapacityRule] | list[LeadTimePlan]:
    """What a file says, for label cells, steps and products by their number."""

    def part(name: str, *shape: int, positive: bool = False) -> Any:
        if arrays[name].shape != shape:
            raise ValueError(f"an array has shape {arrays[name].shape}, where the names ask for {shape}")
        if positive and not (arrays[name] > 0).all():
            raise ValueError("widths and volumes must be positive")
        return arrays[name]

    if facts["kind"] == "orders":
        orders = part("orders", cells * many, steps, arrays["orders"].shape[-1]).astype(np.int64)
        return OrderRule(orders, part("width", cells * many, positive=True), many, bool(facts["cycle"]))
    if facts["kind"] == "capacity":
        prices = arrays["levels"].shape[2]
        if prices < 2:
            raise ValueError("levels are for two prices or more")
        volumes, levels = part("volumes", cells, many, positive=True), part("levels", cells, steps, prices, many)
        rooms = (part(name, cells, steps) for name in ("room", "capacity"))
        return [CapacityRule(*cell) for cell in zip(volumes, *rooms, levels, strict=True)]
    if facts["kind"] != "lead time":
        raise ValueError("a plan of this kind is not known to this version")
    lead_time, plans, unknown = facts["lead_time"], [], float("nan")
    whole(lead_time=lead_time)
    if lead_time > steps:
        raise ValueError("the lead time is longer than a trajectory")
    for number in range(cells * many):
        width = float(part(f"width_{number}", 1, positive=True)[0])
        table = arrays.get(f"table_{number}")
        if table is not None and (table.ndim != 1 + lead_time or len(table) != steps):
            raise ValueError("a table of orders has other steps than the names")
        # Without a table, base stock and cap.
        base, cap = (None if table is not None else part(f"{name}_{number}", steps) for name in ("base", "cap"))
        plans.append(LeadTimePlan(width, lead_time, table, base, cap, unknown, unknown, None))
    return plans
