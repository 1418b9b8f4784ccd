"""From an estimated world to a decision rule: which stages, which values, then backward induction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from poolrl.geometry.axes import Axes, Separable
from poolrl.geometry.partition import Grid, Partition, Zones
from poolrl.geometry.resolution import (
    ACTION_POINTS,
    BENCHMARK_BINS,
    BENCHMARK_DRAWS,
    BENCHMARK_GRID_BINS,
    BENCHMARK_RINGS,
    BENCHMARK_STATE_BINS,
)
from poolrl.learning.backward_induction import (
    Bernstein,
    Solution,
    Visits,
    backward_induction,
    order_up_to_levels,
    quasi_outcomes,
    stages_from_marginals,
    stages_from_outcomes,
    stages_from_visits,
)
from poolrl.learning.by_count import ByCount, plan_by_count
from poolrl.learning.fitted import Fitted, fit_values
from poolrl.learning.levels import plan_shops, settled_levels
from poolrl.learning.outcomes import OutcomeDistribution, Outcomes
from poolrl.learning.policy import Levels, PartitionQ, Rule, SeparableQ
from poolrl.learning.stored import Planned, Report
from poolrl.privacy.released import PrivateVisits
from poolrl.problems.problem import LevelProblem, OutcomeProblem, Problem, SeparableProblem

ValueSettings = Zones | Grid | Separable | Fitted | ByCount


@dataclass(frozen=True)
class FoundPoints:
    """Values that stand at all counts of a problem, or at states that are found on the way."""

    problem: OutcomeProblem
    settings: Fitted | ByCount


# Where values of a problem stand.
ValuePoints = Axes | Partition | FoundPoints


def default_values(problem: Problem, counts: Outcomes | Visits) -> ValueSettings:
    """Those of the problem's planner. Visits are counted on nodes."""
    return PLANNERS["nodes" if isinstance(counts, Visits) else problem.planner].values(problem)


def lay_out(problem: Problem, values: ValueSettings) -> ValuePoints:
    """The points of a value representation on a problem; refuses a pair that does not fit."""
    shape = (problem.horizon, problem.state_dim + problem.action_dim)
    if problem.boundary.share.shape != shape:
        raise ValueError(f"the problem's boundary must have shape {shape}, got {problem.boundary.share.shape}")
    if isinstance(values, ByCount):
        if not isinstance(problem, OutcomeProblem) or problem.scales_state:
            raise ValueError(f"ByCount needs a problem whose state is a count; {type(problem).__name__} declares none")
        return FoundPoints(problem, values)
    if problem.needs_own_planner and not (problem.planner == "levels" and values == Separable()):
        raise ValueError(
            "labels and a scale profile need a problem of inventory and values=Separable(), "
            "one table of levels for each label cell"
        )
    if isinstance(values, Fitted):
        if not isinstance(problem, OutcomeProblem):
            raise ValueError("Fitted needs a problem that declares its outcomes: use Grid or Zones")
        return FoundPoints(problem, values)
    if not isinstance(values, Separable):
        return values.partition(problem)
    if not isinstance(problem, SeparableProblem):
        raise ValueError(
            f"Separable needs a problem that declares itself separable; {type(problem).__name__} does not. "
            "Use Grid (few dimensions) or Zones"
        )
    return values.axes(problem)


def finest(problem: OutcomeProblem) -> ValuePoints:
    """Where benchmarks have their values: finer than what is compared with them."""
    return PLANNERS[problem.planner].finest(problem)


@dataclass(frozen=True)
class KnownBesides:
    """What a planner knows beside the laws of outcomes."""

    scale_follows_sales: bool = False  # the scale is made from sales, and will be made from those under the plan
    step_labels: Sequence[str] = ()  # labels that are drawn anew at each step
    together: float = 0.0  # the correlation of outcomes


def plan_on_outcomes(outcomes: OutcomeDistribution, where: ValuePoints, **known: Any) -> tuple[Rule, Report]:
    """The best rule against an outcome distribution and what is `known` besides, with a report."""
    if isinstance(where, Axes):
        # Other resolutions are planned by the problem's formulas.
        name = "levels" if where.problem.planner == "levels" and where.points == ACTION_POINTS else "axes"
    elif isinstance(where, Partition):
        name = "nodes"
    else:
        name = "fitted" if isinstance(where.settings, Fitted) else "counts"
    return PLANNERS[name].plan(outcomes, where, KnownBesides(**known))


def _plan_levels(outcomes: OutcomeDistribution, where: Axes, known: KnownBesides) -> tuple[Rule, Report]:
    problem = where.problem
    assert isinstance(problem, LevelProblem)
    levels = plan_shops(problem, outcomes, known.step_labels)
    if known.scale_follows_sales:
        levels = settled_levels(problem, outcomes, levels)
    return Levels(levels), Report(planned=Planned(outcomes.weights.size))


def _plan_on_axes(outcomes: OutcomeDistribution, where: Axes, known: KnownBesides) -> tuple[Rule, Report]:
    solution = backward_induction(where.problem.horizon, stages_from_marginals(outcomes, where), where)
    if where.problem.action_sets_state:
        return Levels(order_up_to_levels(outcomes, where, solution.q)), _report(solution)
    return SeparableQ(where, solution.q), _report(solution)


def _plan_by_count(outcomes: OutcomeDistribution, where: Any, known: KnownBesides) -> tuple[Rule, Report]:
    table = plan_by_count(outcomes, where.problem, where.settings)
    return table, Report(planned=Planned(table.actions.size))


def _plan_fitted(outcomes: OutcomeDistribution, where: Any, known: KnownBesides) -> tuple[Rule, Report]:
    drawn = quasi_outcomes(outcomes, where.settings.outcomes, known.together)
    return fit_values(where.problem, drawn, where.settings), Report(planned=Planned(where.settings.states))


def _plan_on_nodes(outcomes: OutcomeDistribution, where: Partition, known: KnownBesides) -> tuple[Rule, Report]:
    stages = stages_from_outcomes(outcomes, where, known.together)
    solution = backward_induction(where.problem.horizon, stages, where)
    return PartitionQ(where, solution.q), _report(solution)


def _values_on_nodes(problem: Problem) -> ValueSettings:
    return Grid(linear=True) if problem.state_dim + problem.action_dim <= 2 else Zones()


def _finest_axes(problem: Any) -> Axes:
    if problem.needs_own_planner:
        return Separable().axes(problem)
    points = BENCHMARK_BINS + 1 if problem.action_sets_state else BENCHMARK_STATE_BINS + 1
    # The distribution is known beyond λ too.
    return Axes(problem, points, beyond=True)


def _finest_counts(problem: Any) -> FoundPoints:
    return FoundPoints(problem, ByCount(actions=BENCHMARK_STATE_BINS + 1, outcomes=BENCHMARK_DRAWS))


def _finest_nodes(problem: Any) -> Partition:
    small = problem.state_dim + problem.action_dim <= 2
    return (Grid(bins=BENCHMARK_GRID_BINS, linear=True) if small else Zones(zones=BENCHMARK_RINGS)).partition(problem)


@dataclass(frozen=True)
class Planner:
    """Which values a planner has by default, where they stand in benchmarks, and how it plans on points of them."""

    values: Callable[[Problem], ValueSettings]
    finest: Callable[[OutcomeProblem], ValuePoints]
    plan: Callable[[OutcomeDistribution, Any, KnownBesides], tuple[Rule, Report]]


# A problem names its own (`Problem.planner`).
PLANNERS: dict[str, Planner] = {
    "levels": Planner(lambda _: Separable(), _finest_axes, _plan_levels),
    "axes": Planner(lambda _: Separable(), _finest_axes, _plan_on_axes),
    "counts": Planner(lambda _: ByCount(), _finest_counts, _plan_by_count),
    "fitted": Planner(lambda _: Fitted(), _finest_nodes, _plan_fitted),
    "nodes": Planner(_values_on_nodes, _finest_nodes, _plan_on_nodes),
}


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
