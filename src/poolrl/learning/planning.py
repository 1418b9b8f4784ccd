"""From an estimated world to a decision rule: which stages, which values, then backward induction."""

from __future__ import annotations

from collections.abc import Sequence

from poolrl.geometry.axes import Axes, Separable
from poolrl.geometry.grid import Grid
from poolrl.geometry.partition import Partition
from poolrl.geometry.resolution import ACTION_POINTS
from poolrl.geometry.zones import Zones
from poolrl.learning.backward_induction import Solution, backward_induction
from poolrl.learning.by_count import ByCount, CountPoints, plan_by_count
from poolrl.learning.fitted import Fitted, FittedPoints, fit_values
from poolrl.learning.kernel import Visits, quasi_outcomes, stages_from_outcomes, stages_from_visits
from poolrl.learning.outcomes import OutcomeDistribution, Outcomes
from poolrl.learning.pessimism import Bernstein
from poolrl.learning.rules import Levels, PartitionQ, Rule, SeparableQ
from poolrl.learning.separable import order_up_to_levels, stages_from_marginals
from poolrl.learning.shops import plan_shops, settled_levels
from poolrl.learning.stored import Planned, Report
from poolrl.privacy.released import PrivateVisits
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import OutcomeProblem, Problem, SeparableProblem

ValueSettings = Zones | Grid | Separable | Fitted | ByCount
# Where values of a problem stand.
ValuePoints = Axes | Partition | FittedPoints | CountPoints
# In more dimensions of states and actions nodes lie too far apart.
MOST_ON_NODES = 3


def default_values(problem: Problem, counts: Outcomes | Visits) -> ValueSettings:
    """Separable or by count, if possible; a grid in few dimensions. In more, fitted values, or zones for visits."""
    if isinstance(problem, OutcomeProblem) and problem.counts_down and isinstance(counts, Outcomes):
        return ByCount()
    if isinstance(problem, SeparableProblem) and isinstance(counts, Outcomes):
        return Separable()
    dimensions = problem.state_dim + problem.action_dim
    if dimensions > MOST_ON_NODES and isinstance(counts, Outcomes):
        return Fitted()
    return Grid(linear=True) if dimensions <= 2 else Zones()


def lay_out(problem: Problem, values: ValueSettings) -> ValuePoints:
    """The points of a value representation on a problem; refuses a pair that does not fit."""
    shape = (problem.horizon, problem.state_dim + problem.action_dim)
    if problem.boundary.share.shape != shape:
        raise ValueError(f"the problem's boundary must have shape {shape}, got {problem.boundary.share.shape}")
    if isinstance(values, ByCount):
        if not isinstance(problem, OutcomeProblem) or not problem.counts_down:
            raise ValueError(f"ByCount needs a problem whose state is a count; {type(problem).__name__} declares none")
        return CountPoints(problem, values)
    special = isinstance(problem, Inventory) and needs_own_plan(problem)
    if (problem.labels or special) and not (special and values == Separable()):
        raise ValueError(
            "labels and a scale profile need a problem of inventory and values=Separable(), "
            "one table of levels for each label cell"
        )
    if isinstance(values, Fitted):
        if not isinstance(problem, OutcomeProblem):
            raise ValueError("Fitted needs a problem that declares its outcomes: use Grid or Zones")
        return FittedPoints(problem, values)
    if not isinstance(values, Separable):
        return values.partition(problem)
    if not isinstance(problem, SeparableProblem):
        raise ValueError(
            f"Separable needs a problem that declares itself separable; {type(problem).__name__} does not. "
            "Use Grid (few dimensions) or Zones"
        )
    return values.axes(problem)


def needs_own_plan(problem: Inventory) -> bool:
    """Whether only `shops` can plan it: formulas of a problem know neither labels nor a scale profile."""
    return bool(problem.labels) or bool((problem.scale_profile != 1).any())


def plan_on_outcomes(
    outcomes: OutcomeDistribution,
    where: ValuePoints,
    *,
    scale_follows_sales: bool = False,
    step_labels: Sequence[str] = (),
    together: float = 0.0,
) -> tuple[Rule, Report]:
    """The best rule against an outcome distribution, with a report."""
    horizon = where.problem.horizon
    if isinstance(where, CountPoints):
        table = plan_by_count(outcomes, where)
        return table, Report(planned=Planned(table.actions.size))
    if isinstance(where, FittedPoints):
        drawn = quasi_outcomes(outcomes, where.settings.outcomes, together)
        return fit_values(where.problem, drawn, where.settings), Report(planned=Planned(where.settings.states))
    if isinstance(where, Partition):
        solution = backward_induction(horizon, stages_from_outcomes(outcomes, where, together), where)
        return PartitionQ(where, solution.q), _report(solution)
    if isinstance(where.problem, Inventory) and where.points == ACTION_POINTS:
        levels = plan_shops(where.problem, outcomes, step_labels)
        if scale_follows_sales:
            levels = settled_levels(where.problem, outcomes, levels)
        return Levels(levels), Report(planned=Planned(outcomes.weights.size))
    solution = backward_induction(horizon, stages_from_marginals(outcomes, where), where)
    if where.problem.action_sets_state:
        return Levels(order_up_to_levels(outcomes, where, solution.q)), _report(solution)
    return SeparableQ(where, solution.q), _report(solution)


def plan_on_visits(
    partition: Partition, released: PrivateVisits, settings: Visits, pessimism: Bernstein | None
) -> tuple[Rule, Report]:
    """The best rule against the private kernel, with a report."""
    problem = partition.problem
    stages = stages_from_visits(released, partition, settings, trusted_only=pessimism is not None)
    ranges = [problem.reward_range(step) for step in range(problem.horizon)]
    solution = backward_induction(problem.horizon, stages, partition, pessimism=pessimism, reward_ranges=ranges)
    return PartitionQ(partition, solution.q), _report(solution)


def _report(solution: Solution) -> Report:
    return Report(planned=Planned(solution.q[0].size, solution.fell_back, solution.clipped))
