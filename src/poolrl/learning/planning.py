"""From an estimated world to a decision rule: which stages, which values, then backward induction."""

from collections.abc import Sequence

from poolrl.geometry import resolution
from poolrl.geometry.axes import Axes, Separable
from poolrl.geometry.partition import Grid, Partition, Zones
from poolrl.learning.backward_induction import (
    Bernstein,
    Visits,
    backward_induction,
    induction_on_axes,
    quasi_outcomes,
    stages_from_outcomes,
    stages_from_visits,
)
from poolrl.learning.by_count import ByCount, plan_by_count
from poolrl.learning.fitted import Fitted, fit_values
from poolrl.learning.levels import plan_shops, settled_levels
from poolrl.learning.outcomes import OutcomeDistribution, Outcomes
from poolrl.learning.policy import GreedyQ, Levels, Rule
from poolrl.learning.stored import Planned, Report
from poolrl.privacy.released import PrivateVisits
from poolrl.problems.problem import LevelProblem, OutcomeProblem, Problem, SeparableProblem

ValueSettings = Zones | Grid | Separable | Fitted | ByCount
# Where values of a problem stand: on points, at all its counts, or at states that are found on the way.
ValuePoints = Axes | Partition | ByCount | Fitted
# The values of each planner. A problem names its own (`Problem.planner`).
PLANNERS: dict[str, ValueSettings] = {
    "levels": Separable(),
    "axes": Separable(),
    "counts": ByCount(),
    "fitted": Fitted(),
    "nodes": Zones(),
}


def parts_of(
    problem: Problem, counts: Outcomes | Visits | None, values: ValueSettings | None
) -> tuple[Outcomes | Visits, ValueSettings, ValuePoints]:
    """The counts, the values, and the points of these values: as asked, or as the problem declares."""
    counts = counts or (Outcomes() if isinstance(problem, OutcomeProblem) else Visits())
    values = values or default_values(problem, counts)
    return counts, values, lay_out(problem, values)


def quickest(values: ValueSettings) -> ValueSettings:
    """For a trial: fitted values take long, and a few of them find the same faults."""
    return Fitted(states=8, hinges=1, outcomes=8) if isinstance(values, Fitted) else values


def default_values(problem: Problem, counts: Outcomes | Visits) -> ValueSettings:
    """Those of the problem's planner. Visits are counted on nodes, and few dimensions have room for a grid."""
    name = "nodes" if isinstance(counts, Visits) else problem.planner
    return _on_nodes(problem, Grid(linear=True), Zones()) if name == "nodes" else PLANNERS[name]


def _on_nodes(problem: Problem, grid: Grid, zones: Zones) -> Grid | Zones:
    return grid if problem.state_dim + problem.action_dim <= 2 else zones


def lay_out(problem: Problem, values: ValueSettings) -> ValuePoints:
    """The points of a value representation on a problem; refuses a pair that does not fit."""
    shape = (problem.horizon, problem.state_dim + problem.action_dim)
    if problem.boundary.share.shape != shape:
        raise ValueError(f"the problem's boundary must have shape {shape}, got {problem.boundary.share.shape}")
    kind = type(problem).__name__
    if isinstance(values, ByCount):
        if not isinstance(problem, OutcomeProblem) or problem.scales_state:
            raise ValueError(f"ByCount needs a problem whose state is a count; {kind} declares none")
        return values
    if problem.needs_own_planner and not (problem.planner == "levels" and values == Separable()):
        raise ValueError("labels and a scale profile need a problem of inventory and values=Separable(), for its table")
    if isinstance(values, Fitted):
        if not isinstance(problem, OutcomeProblem):
            raise ValueError("Fitted needs a problem that declares its outcomes: use Grid or Zones")
        return values
    if not isinstance(values, Separable):
        return values.partition(problem)
    if not isinstance(problem, SeparableProblem):
        raise ValueError(f"Separable needs a problem that declares itself separable; {kind} does not: use Zones")
    return values.axes(problem)


def misfit(problem: Problem, counts: Outcomes | Visits, on_top: Sequence[str]) -> str:
    """Why these parts make no fit."""
    if isinstance(counts, Outcomes):
        if isinstance(problem, OutcomeProblem):
            return "pessimism needs visit counts: use counts=Visits(), or leave it out"
        kind = type(problem).__name__
        return f"Outcomes needs a problem that declares its outcomes; {kind} does not: use counts=Visits()"
    if on_top:
        return f"{on_top[0]} needs outcome counts: use counts=Outcomes(), or leave it out"
    return "Separable plans on outcomes, but Visits counts joint nodes: use counts=Outcomes(), Zones(...) or Grid(...)"


def finest(problem: OutcomeProblem) -> ValuePoints:
    """Where benchmarks have their values: finer than what is compared with them."""
    if isinstance(problem, SeparableProblem):
        if problem.needs_own_planner:
            return Separable().axes(problem)
        points = resolution.BENCHMARK_BINS + 1 if problem.action_sets_state else resolution.BENCHMARK_STATE_BINS + 1
        # The distribution is known beyond λ too.
        return Axes(problem, points, beyond=True)
    if problem.planner == "counts":
        actions, outcomes = resolution.BENCHMARK_STATE_BINS + 1, resolution.BENCHMARK_DRAWS
        return ByCount(actions=actions, outcomes=outcomes)
    finer = Grid(resolution.BENCHMARK_GRID_BINS, linear=True), Zones(resolution.BENCHMARK_RINGS)
    return _on_nodes(problem, *finer).partition(problem)


def plan_on_outcomes(
    outcomes: OutcomeDistribution,
    problem: OutcomeProblem,
    where: ValuePoints,
    *,
    scale_follows_sales: bool = False,
    step_labels: Sequence[str] = (),
    together: float = 0.0,
) -> tuple[Rule, Report]:
    """The best rule against an outcome distribution, with a report.

    `scale_follows_sales`: the scale is made from sales. `step_labels` are drawn anew. `together` is a correlation.
    """
    if isinstance(where, Partition):
        q, planned = backward_induction(stages_from_outcomes(outcomes, where, together), where)
        return GreedyQ(where, q), Report(planned=planned)
    if isinstance(where, ByCount):
        table = plan_by_count(outcomes, problem, where)
        return table, Report(planned=Planned(table.actions.size))
    if isinstance(where, Fitted):
        drawn = quasi_outcomes(outcomes, where.outcomes, together)
        return fit_values(problem, drawn, where), Report(planned=Planned(where.states))
    # Other resolutions are planned by the problem's formulas.
    if isinstance(problem, LevelProblem) and where.points == resolution.ACTION_POINTS:
        levels = plan_shops(problem, outcomes, step_labels)
        if scale_follows_sales:
            levels = settled_levels(problem, outcomes, levels)
        return Levels(levels), Report(planned=Planned(outcomes.weights.size))
    q, best = induction_on_axes(outcomes, where)
    return GreedyQ(where, q) if best is None else Levels(best), Report(planned=Planned(q[0].size))


def plan_on_visits(
    partition: Partition, released: PrivateVisits, settings: Visits, pessimism: Bernstein | None
) -> tuple[Rule, Report]:
    """The best rule against the private kernel, with a report."""
    stages = stages_from_visits(released, partition, settings, trusted_only=pessimism is not None)
    q, planned = backward_induction(stages, partition, pessimism)
    return GreedyQ(partition, q), Report(planned=planned)
