"""What a fit will draw and write, by public facts: what cannot be done is refused before anything is paid for."""

from __future__ import annotations

from fractions import Fraction

from poolrl.geometry.resolution import FEWEST_BINS, MOST_BINS, PLANNING_BINS
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.stored import LARGEST_POLICY
from poolrl.learning.together import USEFUL_ERROR, expected_error
from poolrl.privacy import sensitivity, zcdp
from poolrl.privacy.noise.secure import TABLED, require_sampler
from poolrl.problems.inventory import Inventory
from poolrl.shop.config import Config

# The share of ρ that pays for sums of what was left, so that the page can say what today's ordering costs.
LEFT_OVER = 0.1
# The share that pays for the correlation of the products' demand, where it is asked for.
TOGETHER = 0.1


def left_over_share(problem: Inventory, *, moved: int, rho: float) -> float:
    """The share of ρ for sums of what was left, by public facts: none where they would not help.

    Where unmet demand waits they do not tell what was missing. And noise that no table can draw exactly would need
    another sampler.
    """
    if not problem.censored:
        return 0.0
    _, budget = zcdp.shares_of(rho, left_over=LEFT_OVER)
    variance = sensitivity.left_sums(problem, per_unit=moved).mechanism(budget).variance
    return LEFT_OVER if variance <= TABLED[1] else 0.0


def together_share(config: Config) -> float:
    """The share of ρ for the correlation of the products' demand, by public facts: none where it would not help.

    It must be asked for, because most plans do not need it. With too few units, or too much noise, it would be too
    uncertain to help any.
    """
    problem = config.problem.shop
    if not config.privacy.together or problem.products < 2 or error_of_together(config) > USEFUL_ERROR:
        return 0.0
    _, budget = zcdp.shares_of(config.privacy.rho, together=TOGETHER)
    variance = sensitivity.pair_sums(problem, per_unit=config.moved).mechanism(budget).variance
    return TOGETHER if variance <= TABLED[1] else 0.0


def error_of_together(config: Config) -> float:
    """What error the correlation would have, for as many units as [plan] declares."""
    problem, units = config.problem.shop, config.plan.units
    return expected_error(
        steps=problem.horizon,
        products=problem.products,
        slots=units * config.privacy.per_unit,
        moved=config.moved,
        rho=TOGETHER * config.privacy.rho,
    )


def require_payable(config: Config, share: float) -> None:
    """Refuse a release whose noise cannot be drawn, or whose policy would be too large to be read again.

    `share` of ρ is spent on sums beside the trees.
    """
    problem, moved = config.problem.shop, config.moved
    rho = zcdp.finite_budget(rho=config.privacy.rho) * (1 - Fraction(str(share)))
    for bins in (FEWEST_BINS, MOST_BINS):  # how many it will be follows from the number of units
        sizes = Outcomes(bins=bins).level_sizes(
            steps=problem.horizon,
            coordinates=problem.outcome_dim,
            slots=1,
            per_unit=moved,
            rho=float(rho),
            label_cells=problem.labels.count,
        )
        trees = sensitivity.outcome_trees(problem, level_sizes=sizes, per_unit=moved, complete=False)
        require_sampler(trees.mechanism(rho).variance)
    # Two laws for each label cell, step and product, and the points on which they stand.
    laws = problem.labels.count * problem.products * (2 * problem.horizon + 1)
    if laws * PLANNING_BINS * 8 > LARGEST_POLICY:
        raise ValueError(
            f"a policy for {problem.labels.count:,} combinations of labels, {problem.horizon} steps and "
            f"{problem.products:,} products would be too large to be read again: measure amounts by a scale "
            "instead of a label for each shop, or fit the products in several parts"
        )
