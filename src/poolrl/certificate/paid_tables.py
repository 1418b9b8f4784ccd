"""What a release has paid for, computed again: its tables and their sensitivities, from public facts alone."""

from __future__ import annotations

from collections.abc import Callable

from poolrl.certificate.certificate import Certificate
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.policy import Policy
from poolrl.privacy import sensitivity
from poolrl.privacy.sensitivity import TableLayout
from poolrl.problems.problem import OutcomeProblem


def tables_hold(policy: Policy, claim: Certificate) -> bool:
    """Whether the mechanisms are outcome trees, and sums on top of them, computed again from public facts alone."""
    problem, guarantee, units = policy.problem, policy.guarantee, claim.assumed_public.units
    if not guarantee.mechanisms or not isinstance(problem, OutcomeProblem) or units < 1:
        return False
    per_unit, public = guarantee.trajectories_per_unit, guarantee.labels == "public"
    moved = sensitivity.moved_trajectories(
        per_unit=per_unit, scale_memory=guarantee.scale_memory, has_units=guarantee.unit != "trajectory"
    )
    slots = units * per_unit
    try:
        trees = Outcomes(bins=claim.bins)
    except ValueError:
        return False
    rho = float(guarantee.mechanisms[0].rho)
    layouts = [release_layout(problem, slots=slots, moved=moved, rho=rho, labels_public=public, trees=trees)]
    # What the policy tells must have been paid for. What was paid for it need not tell.
    named = [each.name for each in guarantee.mechanisms]
    left = policy.outcomes is not None and policy.outcomes.left is not None
    on_top: tuple[tuple[bool, Callable[..., TableLayout]], ...] = (
        (policy.report.dependence is not None, sensitivity.joint_table),
        (left, sensitivity.left_sums),
        (policy.report.together is not None, sensitivity.pair_sums),
    )
    for told, formula in on_top:
        try:
            layout = formula(problem, per_unit=moved)
        except ValueError:  # the problem has no such sums
            if told:
                return False
            continue
        layouts += [layout] if told or layout.name in named else []
    carried = [(each.name, each.cells, each.sensitivity_squared) for each in guarantee.mechanisms]
    return carried == [(each.name, each.cells, each.sensitivity_squared) for each in layouts]


def release_layout(
    problem: OutcomeProblem,
    *,
    slots: int,
    moved: int,
    rho: float,
    labels_public: bool = False,
    trees: Outcomes | None = None,
) -> TableLayout:
    """The tables that a fit with default settings, or with such `trees`, releases of a table in an engine."""
    sizes = (trees or Outcomes()).level_sizes(
        steps=problem.horizon,
        coordinates=problem.outcome_dim,
        slots=slots,
        per_unit=moved,
        rho=rho,
        label_cells=problem.labels.count,
    )
    # A table may lack rows, so it is never complete.
    return sensitivity.outcome_trees(
        problem, level_sizes=sizes, per_unit=moved, complete=False, labels_public=labels_public
    )
