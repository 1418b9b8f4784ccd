"""How far one unit can move each released table: the formulas of the guarantee, each written once.

`release` draws noise by them, `verify` computes them again for a certificate, and `audit` compares them with what a
unit really moves. H steps, k coordinates, c slots of a unit (`per_unit`). Neighbouring logs replace one unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import Mechanism
from poolrl.problems.problem import OutcomeProblem, Problem

# Noise is exact on integers: a number is rounded to this many steps of its public range.
LATTICE = 2**16


@dataclass(frozen=True)
class TableLayout:
    """The public shape of one released table: its name, its cells and Δ₂², the squared change by one unit."""

    name: str
    cells: int
    sensitivity_squared: Fraction

    def mechanism(self, rho: zcdp.Budget) -> Mechanism:
        """Its release under the budget ρ."""
        variance = zcdp.noise_variance(sensitivity_squared=self.sensitivity_squared, rho=rho)
        return Mechanism(self.name, self.cells, self.sensitivity_squared, variance)


def root_is_public(problem: OutcomeProblem, *, complete: bool) -> bool:
    """If nothing is cut off or unobserved, every slot is under the root. The root is then a public number."""
    return complete and not problem.censored


def outcome_trees(problem: OutcomeProblem, *, bins: int, per_unit: int, complete: bool) -> TableLayout:
    """Dyadic trees of censored outcomes. `complete` means: public facts rule out that a slot is unobserved.

    Guarantee: at each step, coordinate and released level a slot is in at most one node. A unit of c slots takes at
    most c from one node and adds c to another, so Δ₂² = 2 H k L c² for L released levels.
    """
    if bins < 2 or bins & (bins - 1):
        raise ValueError(f"bins must be a power of two, got {bins}")
    trees = problem.horizon * problem.outcome_dim
    public_root = root_is_public(problem, complete=complete)
    levels = bins.bit_length() - public_root
    nodes = (2 * bins - 1 - public_root) * problem.kinds
    # Unless it is complete, each tree also counts its unobserved slots.
    cells = trees * (nodes + (not complete))
    return TableLayout("outcome trees", cells, Fraction(2 * trees * levels * per_unit**2))


def visit_tables(problem: Problem, *, pairs: int, states: int, per_unit: int) -> tuple[TableLayout, TableLayout]:
    """The paper's two tables: visits of N pair nodes, and transitions from them to S state nodes.

    Guarantee: in each table a slot is in at most one cell per step, so Δ₂² = 2 H c² for each.
    """
    moved = Fraction(2 * problem.horizon * per_unit**2)
    return (
        TableLayout("visits of nodes", problem.horizon * pairs, moved),
        TableLayout("transitions between nodes", problem.horizon * pairs * states, moved),
    )


def logged_numbers(problem: Problem, *, trajectories: int) -> TableLayout:
    """Every action and next state on the lattice: one trajectory moves each of its H (d + w) numbers by its range."""
    each = problem.horizon * (problem.action_dim + problem.state_dim)
    return TableLayout("logged numbers", trajectories * each, Fraction(each * LATTICE**2))


def decision_table(problem: Problem) -> TableLayout:
    """A table of H d decisions on the lattice, by any learner, so each entry may move by its range."""
    entries = problem.horizon * problem.action_dim
    return TableLayout("decision table", entries, Fraction(entries * LATTICE**2))
