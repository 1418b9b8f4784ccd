"""What if costs change? Plans of the same model with other costs, for the page. Nothing but the policy is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.learning.levels import costs_of_levels
from poolrl.learning.model import PrivateModel
from poolrl.learning.policy import Policy
from poolrl.problems.inventory import Inventory
from poolrl.workflow.trades.shop_levels import average_over_cells, log_levels

# Words, and the factor of shortage. Only its ratio to what is left over matters, so that half as much is the same as
# twice as much for what is left.
OTHER_COSTS = (
    ("a missed sale costs half as much", 0.5),
    ("a missed sale costs twice as much", 2.0),
    ("a missed sale costs five times as much", 5.0),
)
# Larger tables are planned again by `poolrl replan`, and not three times for a page.
MOST_LEVELS = 10_000


@dataclass(frozen=True)
class WhatIf:
    """Other costs: by how much the typical level would move, and what planning again would save."""

    words: str
    move: float
    saved: float

    @property
    def row(self) -> list[str]:
        """For the page's table."""
        way = "more" if self.move > 0 else "less"
        order = "as much" if abs(self.move) < 0.005 else f"{abs(self.move):.0%} {way}"
        return [self.words, order, f"{max(self.saved, 0.0):.1%}"]


def what_ifs(policy: Policy) -> list[WhatIf]:
    """Every case; none for tables that are too large."""
    problem = policy.problem
    if not isinstance(problem, Inventory) or policy.outcomes is None or policy.levels.size > MOST_LEVELS:
        return []
    model, found = PrivateModel.of(policy), []
    for words, factor in OTHER_COSTS:
        other = with_shortage(problem, factor)
        planned = model.plan(other)
        kept = cost_by_model(policy, other)
        before = np.where(policy.levels > 0, policy.levels, np.nan)
        move = float(np.nanmedian(planned.levels / before)) - 1 if np.isfinite(before).any() else 0.0
        found.append(WhatIf(words, move, 1 - cost_by_model(planned, other) / kept if kept > 0 else 0.0))
    return found


def with_shortage(problem: Inventory, factor: float) -> Inventory:
    """The same shop, where a missed sale costs so many times as much."""
    facts = {name: fact for name, fact in problem.facts().items() if name != "kind"}
    return type(problem)(**facts | {"shortage": problem.shortage * factor})


def cost_by_model(policy: Policy, problem: Inventory) -> float:
    """Of one trajectory by the policy's model and the costs of a problem, as far as its bounds allow the levels.

    All products together, averaged over label cells.
    """
    outcomes = policy.outcomes
    assert outcomes is not None
    allowed = np.minimum(log_levels(policy), problem.share * problem.label_bounds[..., None, :])
    costs = costs_of_levels(problem, outcomes, allowed)
    return float(average_over_cells(problem, outcomes, costs).sum())
