"""The three costs of a policy's page, by the laws that its fit has estimated, product by product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.level_costs import best_costs, costs_of_levels, left_and_missing, step_costs, unseen_demand
from poolrl.learning.policy import Policy
from poolrl.problems.inventory import Inventory
from poolrl.shop.hidden import average_over_cells, cell_shares, log_levels

# A plan takes demand beyond the explored range for lognormal. That is cautious: other usual laws have less of it there.
USUAL_TAIL = 0.75
# If past orders had nothing to do with demand, as much as this times what was left would have been, at most.
FOLLOWING = 2.0
CLEARLY = 3.0  # standard errors


@dataclass(frozen=True)
class EstimatedCosts:
    """Costs of one trajectory by product, (k,), averaged over label cells."""

    policy: FloatArray
    best: FloatArray
    today: FloatArray | None
    why_not: str  # today's cost is not known
    missing: FloatArray  # what past orders cost by shortage
    unseen: FloatArray  # what demand beyond anything that was ordered costs
    reached: FloatArray  # how much of that the policy would save, by ordering more than was ever tried
    left_error: float  # of what past orders cost to hold, over all products
    columns: int  # label cells times products

    @classmethod
    def of(cls, policy: Policy) -> EstimatedCosts:
        """From the laws and sums in the policy."""
        problem, outcomes = policy.problem, policy.outcomes
        assert isinstance(problem, Inventory)
        assert outcomes is not None

        def average(costs: FloatArray) -> FloatArray:
            return average_over_cells(problem, outcomes, costs)

        levels = log_levels(policy)
        # All three meet the same demand beyond what was ever ordered.
        cautious = (1 - USUAL_TAIL) * average(step_costs(problem, 0.0, unseen_demand(outcomes)))
        points = outcomes.points[..., None, :, :]
        over = (outcomes.weights * np.maximum(points - levels[..., None], 0.0)).sum(axis=-1)
        unseen = unseen_demand(outcomes)
        reached = average(step_costs(problem, 0.0, np.where(levels > outcomes.explored, unseen - over, 0.0)))
        today, why_not, error = None, "", 0.0
        missing = np.zeros_like(unseen)
        if outcomes.cutoffs is not None:
            missing = left_and_missing(outcomes)[1]
        if not problem.censored:
            why_not = "unmet demand waits, and the release does not say how much of it there was."
        elif outcomes.left is None:
            why_not = "the release has no sums of what was left on the shelves."
        else:
            today = np.maximum(average(step_costs(problem, outcomes.left[0], missing)) - cautious, 0.0)
            shares = cell_shares(problem, outcomes)[..., None, None]
            error = float(np.sqrt(((shares * problem.holding * problem.scale_profile * outcomes.left[1]) ** 2).sum()))
        return cls(
            policy=average(costs_of_levels(problem, outcomes, levels)) - cautious,
            best=average(best_costs(problem, outcomes)) - cautious,
            today=today,
            why_not=why_not,
            missing=average(step_costs(problem, 0.0, missing)),
            unseen=USUAL_TAIL * average(step_costs(problem, 0.0, unseen)),
            reached=np.maximum(reached, 0.0),
            left_error=error,
            columns=problem.labels.count * problem.products,
        )


def orders_follow_demand(policy: Policy) -> str:
    """Why orders seem to follow demand, by what was released; empty if they do not.

    If levels Y are independent of demand D, E(Y − D)⁺ follows from their laws. Managers who order what they expect have
    far less left than that.
    """
    tested = policy.report.get("dependence")
    words = (
        "Past orders follow demand, so demand is overestimated and no cost can be predicted: give a scale or labels."
    )
    if tested is not None and tested["flagged"]:
        return words
    outcomes, problem = policy.outcomes, policy.problem
    assert isinstance(problem, Inventory)
    assert outcomes is not None
    if outcomes.left is None or outcomes.cutoffs is None:
        return ""
    shares = cell_shares(problem, outcomes)[..., None, None] * problem.scale_profile
    error = float(np.sqrt(((shares * outcomes.left[1]) ** 2).sum()))
    independent = float((shares * left_and_missing(outcomes)[0]).sum())
    left = float((shares * outcomes.left[0]).sum())
    return words if independent > FOLLOWING * (left + CLEARLY * error) else ""
