"""The noise and files of a fit, by public facts: impossible ones are refused before anything is paid for."""

from __future__ import annotations

from fractions import Fraction

from poolrl.geometry.resolution import FEWEST_BINS, MOST_BINS, PLANNING_BINS
from poolrl.learning.dependence import TELLING_ERROR, expected_error_of_effect
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.stored import LARGEST_POLICY
from poolrl.learning.together import USEFUL_ERROR, expected_error
from poolrl.privacy import sensitivity, zcdp
from poolrl.privacy.noise.secure import TABLED, require_sampler
from poolrl.problems.problem import OutcomeProblem
from poolrl.workflow.config.configuration import Config

# The share of ρ that pays for sums of what was left, so that the page can say what today's ordering costs.
LEFT_OVER = 0.1
# The share that pays for the correlation of the products' demand, where it is asked for.
TOGETHER = 0.1
# The share that pays for a table of decisions and what they showed, so that the page can say whether decisions followed
# what only people knew.
DEPENDENCE = 0.1


def left_over_share(problem: OutcomeProblem, *, moved: int, rho: float) -> float:
    """The share of ρ for sums of what was left, by public facts: zero where they would not help.

    Where unmet demand waits they do not tell what was missing. And noise that no table can draw exactly would need
    another sampler.
    """
    if not problem.censored or problem.planner != "levels":
        return 0.0
    _, budget = zcdp.shares_of(rho, left_over=LEFT_OVER)
    variance = sensitivity.left_sums(problem, per_unit=moved).mechanism(budget).variance
    return LEFT_OVER if variance <= TABLED[1] else 0.0


def dependence_share(config: Config, rho: float | None = None) -> float:
    """The share of ρ (of the configuration, or another) for the joint table of decisions and outcomes, by public facts.

    Zero where sums of what was left tell the same, and where the table would be too noisy to help.
    """
    problem, budget = config.problem.posed, config.privacy.rho if rho is None else rho
    if problem.planner == "levels" or not problem.shows_levels:
        return 0.0
    _, share = zcdp.shares_of(budget, dependence=DEPENDENCE)
    layout = sensitivity.joint_table(problem, per_unit=config.moved)
    variance = layout.mechanism(share).variance
    # Rounds end when nothing is left: about every second one succeeds.
    take_place = min(1.0, 2 * float(problem.state_high[0]) / problem.horizon)
    error = expected_error_of_effect(
        tables=problem.labels.count * problem.horizon,
        slots=take_place * config.plan.units * config.privacy.per_unit / problem.labels.count,
        variance=float(variance),
    )
    return DEPENDENCE if error <= TELLING_ERROR and variance <= TABLED[1] else 0.0


def together_share(config: Config, rho: float | None = None) -> float:
    """The share of ρ (of the configuration, or another) for the correlation of demand, by public facts.

    It must be asked for, because most plans do not need it. And it must help (`why_not_together`).
    """
    return TOGETHER if config.privacy.together and why_not_together(config, rho) is None else 0.0


def why_not_together(config: Config, rho: float | None = None) -> str | None:
    """Why a correlation of the products' demand would help no plan, in words; None if it may help."""
    problem, budget = config.problem.posed, config.privacy.rho if rho is None else rho
    error = expected_error(
        steps=problem.horizon,
        products=problem.products,
        slots=config.plan.units * config.privacy.per_unit,
        moved=config.moved,
        rho=TOGETHER * budget,
    )
    if error > USEFUL_ERROR:
        units = f"{config.plan.units:,} units ([plan] units) at rho = {budget:g}"
        return f"with {units} its error would be about {error:.2f}, and above {USEFUL_ERROR:g} it helps no plan"
    _, share = zcdp.shares_of(budget, together=TOGETHER)
    variance = sensitivity.pair_sums(problem, per_unit=config.moved).mechanism(share).variance
    return None if variance <= TABLED[1] else "its noise is too large to be drawn exactly"


def require_payable(config: Config, share: float) -> None:
    """Refuse a release whose noise cannot be drawn, or whose policy would be too large to be read again.

    `share` of ρ is spent on sums beside the trees.
    """
    problem, moved = config.problem.posed, config.moved
    rho = zcdp.finite_budget(rho=config.privacy.rho) * (1 - Fraction(str(share)))
    for bins in (FEWEST_BINS, MOST_BINS):  # the number of units will decide between them
        sizes = Outcomes(bins=bins).level_sizes(problem, slots=1, per_unit=moved, rho=float(rho))
        trees = sensitivity.outcome_trees(problem, level_sizes=sizes, per_unit=moved, complete=False)
        require_sampler(trees.mechanism(rho).variance)
    # Two laws for each label cell, step and product, and the points on which they stand.
    laws = problem.labels.count * problem.outcome_dim * (2 * problem.horizon + 1)
    if laws * PLANNING_BINS * 8 > LARGEST_POLICY:
        raise ValueError(
            f"a policy for {problem.labels.count:,} combinations of labels, {problem.horizon} steps and "
            f"{problem.outcome_dim:,} products would be too large to be read again: measure amounts by a scale "
            "instead of a label for each shop, or fit the products in several parts"
        )
