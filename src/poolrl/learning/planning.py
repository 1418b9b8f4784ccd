"""From an estimated world to a decision rule: which stages, which values, then backward induction."""

from __future__ import annotations

from typing import Any

import numpy as np

from poolrl.geometry.axes import Axes, Separable
from poolrl.geometry.grid import Grid
from poolrl.geometry.partition import Partition
from poolrl.geometry.zones import Zones
from poolrl.learning.backward_induction import Solution, backward_induction
from poolrl.learning.kernel import Visits, stages_from_outcomes, stages_from_visits
from poolrl.learning.outcomes import OutcomeDistribution, Outcomes
from poolrl.learning.pessimism import Bernstein
from poolrl.learning.rules import Levels, PartitionQ, Rule, SeparableQ
from poolrl.learning.separable import order_up_to_levels, stages_from_marginals
from poolrl.privacy.released import PrivateVisits
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import Problem, SeparableProblem

ValueSettings = Zones | Grid | Separable


def default_values(problem: Problem, counts: Outcomes | Visits) -> ValueSettings:
    """Separable if possible; else a grid in few dimensions, and zones in more."""
    if isinstance(problem, SeparableProblem) and isinstance(counts, Outcomes):
        return Separable()
    dimensions = problem.state_dim + problem.action_dim
    return Grid(linear=True) if dimensions <= 2 else Zones()


def lay_out(problem: Problem, values: ValueSettings) -> Axes | Partition:
    """The points of a value representation on a problem; refuses a pair that does not fit."""
    shape = (problem.horizon, problem.state_dim + problem.action_dim)
    if problem.boundary.share.shape != shape:
        raise ValueError(f"the problem's boundary must have shape {shape}, got {problem.boundary.share.shape}")
    if not isinstance(values, Separable):
        if problem.labels:
            raise ValueError("labels are planned with values=Separable(), one table of levels for each label cell")
        return values.partition(problem)
    if not isinstance(problem, SeparableProblem):
        raise ValueError(
            f"Separable needs a problem that declares itself separable; {type(problem).__name__} does not. "
            "Use Grid (few dimensions) or Zones"
        )
    return values.axes(problem)


def plan_on_outcomes(outcomes: OutcomeDistribution, where: Axes | Partition) -> tuple[Rule, dict[str, Any]]:
    """The best rule against an outcome distribution, with a report."""
    horizon = where.problem.horizon
    if isinstance(where, Partition):
        solution = backward_induction(horizon, stages_from_outcomes(outcomes, where), where)
        return PartitionQ(where, solution.q), _report(solution)
    if isinstance(where.problem, Inventory):
        return plan_shops(outcomes, where)
    solution = backward_induction(horizon, stages_from_marginals(outcomes, where), where)
    if where.problem.action_sets_state:
        return Levels(order_up_to_levels(outcomes, where, solution.q)), _report(solution)
    return SeparableQ(where, solution.q), _report(solution)


def plan_shops(outcomes: OutcomeDistribution, where: Axes) -> tuple[Rule, dict[str, Any]]:
    """Order-up-to levels of every label cell, step and product, (*labels, H, products).

    All cells are planned as products of one shop, each on an axis that reaches as far as its own demand does. With a
    scale, stock that is left over is worth other multiples tomorrow: amounts are planned in units of the public
    profile's largest scale, and levels are divided by their own step's.
    """
    problem = where.problem
    assert isinstance(problem, Inventory)
    shops = problem.cells_as_products()
    count, bins = shops.products, outcomes.points.shape[-1]
    points = outcomes.points.reshape(count, bins)
    weights = np.moveaxis(outcomes.weights.reshape(-1, problem.horizon, problem.products, bins), 1, 0)
    largest = shops.scale_profile.max(axis=0)
    profile = shops.scale_profile / largest
    bound = (problem.demand_max * problem.bound_share).ravel()
    top = bound if where.beyond else np.minimum(points[:, -1] + (points[:, -1] - points[:, 0]) / bins, bound)
    shares = np.minimum(shops.share * bound * profile / top, 1.0)
    costs = {"holding": shops.holding, "shortage": shops.shortage}
    planned = type(problem)(
        horizon=problem.horizon, products=count, demand_max=top, boundary=shares, **costs
    )
    axes = Axes(planned, where.points, where.beyond)
    demand = OutcomeDistribution(points, weights.reshape(problem.horizon, count, bins))
    solution = backward_induction(problem.horizon, stages_from_marginals(demand, axes, profile), axes)
    levels = order_up_to_levels(demand, axes, solution.q, profile) / profile
    labelled = levels.reshape(problem.horizon, problem.labels.count, problem.products)
    return Levels(np.moveaxis(labelled, 0, 1).reshape(problem.holding.shape)), _report(solution)


def plan_on_visits(
    partition: Partition, released: PrivateVisits, settings: Visits, pessimism: Bernstein | None
) -> tuple[Rule, dict[str, Any]]:
    """The best rule against the private kernel, with a report."""
    problem = partition.problem
    stages = stages_from_visits(released, partition, settings, trusted_only=pessimism is not None)
    ranges = [problem.reward_range(step) for step in range(problem.horizon)]
    solution = backward_induction(problem.horizon, stages, partition, pessimism=pessimism, reward_ranges=ranges)
    return PartitionQ(partition, solution.q), _report(solution)


def _report(solution: Solution) -> dict[str, Any]:
    shares = {"fell_back_to_uniform": solution.fell_back, "clipped_to_zero": solution.clipped}
    return {"nodes": solution.q[0].size} | shares
