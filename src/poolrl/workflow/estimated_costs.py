"""The three costs of a policy's page, by the laws that its fit has estimated, product by product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.level_costs import best_costs, costs_of_levels, left_and_missing, step_costs, unseen_demand
from poolrl.learning.policy import Policy
from poolrl.problems.inventory import Inventory
from poolrl.workflow.hidden import average_over_cells, cell_shares, log_levels

# A plan takes demand beyond the explored range for lognormal. That is cautious: other usual laws have less of it there.
USUAL_TAIL = 0.75
# Past orders follow demand if so much of what they cost, at least, is shortage that they foresaw.
FORESEEN = 0.3
CLEARLY = 2.0  # standard errors


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
    foreseen: float  # what past orders cost less than estimated, over all products, if they follow demand
    clearly_foreseen: float  # of that, what noise does not explain
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
        today, why_not, error, foreseen, clearly = None, "", 0.0, 0.0, 0.0
        missing = np.zeros_like(unseen)
        if outcomes.cutoffs is not None:
            missing = left_and_missing(outcomes)[1]
        if not problem.censored:
            why_not = "unmet demand waits, and the release does not say how much of it there was."
        elif outcomes.left is None:
            why_not = "the release has no sums of what was left on the shelves."
        else:
            today = np.maximum(average(step_costs(problem, outcomes.left[0], missing)) - cautious, 0.0)
            shares = cell_shares(problem, outcomes)[..., None, None] * problem.scale_profile
            error = float(np.sqrt(((shares * problem.holding * outcomes.left[1]) ** 2).sum()))
            if outcomes.cutoffs is not None:
                of_left = float(np.sqrt(((shares * outcomes.left[1]) ** 2).sum()))
                left, independent = (
                    float((shares * each).sum()) for each in (outcomes.left[0], left_and_missing(outcomes)[0])
                )
                missed = float(average(step_costs(problem, 0.0, missing)).sum())
                foreseen, clearly = (
                    missed * foreseen_share(left + errors * of_left, independent) for errors in (0.0, CLEARLY)
                )
        return cls(
            policy=average(costs_of_levels(problem, outcomes, levels)) - cautious,
            best=average(best_costs(problem, outcomes)) - cautious,
            today=today,
            why_not=why_not,
            missing=average(step_costs(problem, 0.0, missing)),
            unseen=USUAL_TAIL * average(step_costs(problem, 0.0, unseen)),
            reached=np.maximum(reached, 0.0),
            left_error=error,
            foreseen=foreseen,
            clearly_foreseen=clearly,
            columns=problem.labels.count * problem.products,
        )


def foreseen_share(left: float, independent: float) -> float:
    """The share of an estimated shortage that never was, because orders followed demand.

    If levels Y are independent of demand D, E(Y − D)⁺ follows from their laws. Managers who order what they expect have
    less left than that, and as much less missing: a share of 1 − left / independent.
    """
    return min(1.0, max(0.0, 1 - left / independent)) if independent > 0 else 0.0


def orders_follow_demand(policy: Policy, costs: EstimatedCosts) -> str:
    """Why orders seem to follow demand, by what was released; empty if they do not."""
    tested = policy.report.dependence
    flagged = tested is not None and tested.flagged
    if flagged or (costs.today is not None and costs.clearly_foreseen > FORESEEN * float(costs.today.sum())):
        return (
            "Past orders follow demand, so demand is overestimated and no cost can be predicted: give a scale, or "
            "labels for what managers know."
        )
    return ""
