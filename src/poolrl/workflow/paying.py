"""The noise and files of a fit, by public facts: impossible ones are refused before anything is paid for."""

from fractions import Fraction
from typing import Any

from poolrl.geometry.resolution import FEWEST_BINS, MOST_BINS, PLANNING_BINS
from poolrl.learning.dependence import TELLING_ERROR, expected_error_of_effect
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.stored import LARGEST_POLICY
from poolrl.learning.together import USEFUL_ERROR, expected_error
from poolrl.privacy import sensitivity, zcdp
from poolrl.privacy.noise.secure import TABLED, require_sampler
from poolrl.privacy.sensitivity import ON_TOP
from poolrl.problems.problem import OutcomeProblem
from poolrl.workflow.config.configuration import Config

# The share of ρ that pays for each table beside the trees.
ON_TOP_SHARE = 0.1


def shares_on_top(config: Config, rho: float | None = None) -> dict[str, Any]:
    """The share of ρ (of the configuration, or another) for each table beside the trees, by public facts.

    `left_over` tells what today's ordering costs, but not where unmet demand waits. `dependence` tells whether
    decisions followed what only people knew. `together` must be asked for, as most plans do not need it. A share is
    zero where its table would not help, and where its noise would need another sampler than the exact tables.
    """
    problem, budget = config.problem.posed, config.privacy.rho if rho is None else rho
    tells = problem.planner != "levels" and problem.shows_levels
    if tells:  # whether the joint table of decisions and outcomes is not too noisy to help
        # Rounds end when nothing is left: about every second one succeeds.
        take_place = min(1.0, 2 * float(problem.state_high[0]) / problem.horizon)
        error = expected_error_of_effect(
            tables=problem.labels.count * problem.horizon,
            slots=take_place * config.plan.units * config.privacy.per_unit / problem.labels.count,
            variance=float(_variance("dependence", config, budget)),
        )
        tells = error <= TELLING_ERROR
    helps = {
        "left_over": problem.censored and problem.planner == "levels",
        "dependence": tells,
        "together": config.privacy.together and why_not_together(config, budget) is None,
    }
    bought = [name for name, helped in helps.items() if helped and _variance(name, config, budget) <= TABLED[1]]
    return {name: ON_TOP_SHARE if name in bought else 0.0 for name in helps}


def _variance(name: str, config: Config, rho: float) -> Fraction:
    """Of the noise of a table beside the trees."""
    _, budgets = zcdp.shares_of(rho, **{name: ON_TOP_SHARE})
    return ON_TOP[name].layout(config.problem.posed, per_unit=config.moved).mechanism(budgets[name]).variance


def why_not_together(config: Config, rho: float | None = None) -> str | None:
    """Why a correlation of the products' demand would help no plan, in words; None if it may help."""
    problem, budget = config.problem.posed, config.privacy.rho if rho is None else rho
    error = expected_error(
        steps=problem.horizon,
        products=problem.products,
        slots=config.plan.units * config.privacy.per_unit,
        moved=config.moved,
        rho=ON_TOP_SHARE * budget,
    )
    if error > USEFUL_ERROR:
        units = f"{config.plan.units:,} units ([plan] units) at rho = {budget:g}"
        return f"with {units} its error would be about {error:.2f}, and above {USEFUL_ERROR:g} it helps no plan"
    exact = _variance("together", config, budget) <= TABLED[1]
    return None if exact else "its noise is too large to be drawn exactly"


def require_payable(config: Config, share: float) -> None:
    """Refuse a release whose noise cannot be drawn, or whose policy would be too large to be read again.

    `share` of ρ is spent on sums beside the trees.
    """
    problem = config.problem.posed
    rho = zcdp.finite_budget(rho=config.privacy.rho) * (1 - Fraction(str(share)))
    for bins in (FEWEST_BINS, MOST_BINS):  # the number of units will decide between them
        trees = release_layout(problem, slots=1, moved=config.moved, rho=float(rho), trees=Outcomes(bins=bins))
        require_sampler(trees.mechanism(rho).variance)
    # Two laws for each label cell, step and product, and the points on which they stand.
    laws = problem.labels.count * problem.outcome_dim * (2 * problem.horizon + 1)
    if laws * PLANNING_BINS * 8 > LARGEST_POLICY:
        raise ValueError(
            f"a policy for {problem.labels.count:,} combinations of labels, {problem.horizon} steps and "
            f"{problem.outcome_dim:,} products would be too large to be read again: measure amounts by a scale "
            "instead of a label for each shop, or fit the products in several parts"
        )


def release_layout(
    problem: OutcomeProblem,
    *,
    slots: int,
    moved: int,
    rho: float,
    labels_public: bool = False,
    trees: Outcomes | None = None,
) -> sensitivity.TableLayout:
    """The tables that a fit with default settings, or with such `trees`, releases of a table in an engine."""
    sizes = (trees or Outcomes()).level_sizes(problem, slots=slots, per_unit=moved, rho=rho)
    # A table may lack rows, so it is never complete.
    return sensitivity.outcome_trees(
        problem, level_sizes=sizes, per_unit=moved, complete=False, labels_public=labels_public
    )
