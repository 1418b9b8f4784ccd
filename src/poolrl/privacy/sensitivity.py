"""How far one unit can move each released table: the formulas of the guarantee, each written once.

`release` draws noise by them, `verify` computes them again for a certificate, and `audit` compares them with what a
unit really moves. H steps, k coordinates, c trajectories that one unit moves (`per_unit`). Neighbouring logs replace
one unit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from poolrl.geometry.resolution import JOINT_BANDS, LEFT_PARTS, TOGETHER_PARTS
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import Mechanism
from poolrl.problems.problem import OutcomeProblem, Problem, SeparableProblem

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


def root_is_public(problem: OutcomeProblem, *, level_sizes: tuple[int, ...], complete: bool) -> bool:
    """If nothing is cut off or unobserved, every slot is under the root. The root is then a public number."""
    return complete and not problem.censored and level_sizes[0] == 1


def moved_trajectories(*, per_unit: int, scale_memory: int, has_units: bool) -> int:
    """c: how many trajectories may change their cells when one unit is replaced.

    A trajectory that is its own unit may have served for the scales of m others, which then change too: c = 1 + m. With
    units, the data holder declares that every scale comes from rows of its own unit, or from outside the log. Then
    nothing else changes but the unit's own `per_unit` trajectories.
    """
    return per_unit if has_units else 1 + scale_memory


def level_count(level_sizes: tuple[int, ...]) -> int:
    """How many levels a tree has; refuses sizes that do not make a tree of dyadic ranges."""
    powers = all(size >= 1 and size & (size - 1) == 0 for size in level_sizes)
    if not powers or not level_sizes or list(level_sizes) != sorted(set(level_sizes)):
        raise ValueError(f"level_sizes must be ascending powers of two, got {level_sizes}")
    return len(level_sizes)


def outcome_trees(
    problem: OutcomeProblem,
    *,
    level_sizes: tuple[int, ...],
    per_unit: int,
    complete: bool,
    labels_public: bool = False,
) -> TableLayout:
    """Trees of censored outcomes. `complete` means: public facts rule out that a slot is unobserved.

    Guarantee: at each step, coordinate and released level a trajectory is in at most one node of at most one label
    cell. A unit that moves c trajectories takes at most c from one node and adds c to another, so Δ₂² = 2 H k L c² for
    L released levels, however many label cells there are.
    """
    trees = problem.horizon * problem.outcome_dim
    public_root = root_is_public(problem, level_sizes=level_sizes, complete=complete)
    levels = level_count(level_sizes) - public_root
    nodes = (sum(level_sizes) - public_root) * problem.kinds * problem.labels.count
    # Unless it is complete, unobserved slots are counted too: in each label cell, or in all of them together.
    unobserved = 0 if complete else problem.labels.count if labels_public else 1
    return TableLayout("outcome trees", trees * (nodes + unobserved), Fraction(2 * trees * levels * per_unit**2))


def joint_table(problem: Problem, *, bands: int = JOINT_BANDS, per_unit: int) -> TableLayout:
    """Joint counts of the level that was chosen and of what it showed, on `bands` of each, seen or cut off.

    Guarantee: at each step and coordinate a trajectory is in at most one cell of at most one label cell. A unit that
    moves c trajectories takes at most c from one cell and adds c to another, so Δ₂² = 2 H k c².
    """
    if not isinstance(problem, OutcomeProblem) or not problem.shows_levels:
        raise ValueError(
            "dependence needs a problem whose outcomes are cut off at the action, and seen on one side of it (such as "
            f"LostSales or ReserveAuction), got {type(problem).__name__}"
        )
    tables = problem.horizon * problem.outcome_dim
    cells = tables * problem.labels.count * bands * 2 * bands
    return TableLayout("levels and outcomes", cells, Fraction(2 * tables * per_unit**2))


def left_sums(problem: Problem, *, per_unit: int) -> TableLayout:
    """Sums of what was left, in whole parts of the bound, for every label cell, step and coordinate.

    Guarantee: at each step and coordinate a trajectory adds 0 .. P to one sum of one label cell. A unit that moves c
    trajectories changes one sum by at most c P, or two of them by at most c P each where its labels change too. So
    Δ₂² = H k c² P², and twice that with labels.
    """
    if not isinstance(problem, SeparableProblem) or not problem.action_sets_state:
        raise ValueError(f"left_over needs a problem of inventory, got {type(problem).__name__}")
    if not (problem.outcome_high > 0).all():
        raise ValueError("left_over needs positive bounds of outcomes: sums are counted in parts of them")
    sums, sides = problem.horizon * problem.outcome_dim, 2 if problem.labels else 1
    changed = Fraction(sides * sums * per_unit**2 * LEFT_PARTS**2)
    return TableLayout("stock left over", sums * problem.labels.count, changed)


def pair_sums(problem: Problem, *, per_unit: int) -> TableLayout:
    """Pairs of products that sell much or little together, for every step: both beyond their edges, both below, mixed.

    Guarantee: whatever the edges are, a trajectory adds three whole numbers to the sums of a step, none negative and
    together at most P. Two such triples differ by at most 2 P², squared and summed. So Δ₂² = 2 H c² P².
    """
    if not isinstance(problem, SeparableProblem) or problem.outcome_dim < 2:
        raise ValueError(
            "together needs a problem with two coordinates or more, each with an outcome of its own (such as "
            f"LostSales with two products), got {type(problem).__name__}"
        )
    moved = 2 * problem.horizon * (per_unit * TOGETHER_PARTS) ** 2
    return TableLayout("products that sell together", problem.horizon * 3, Fraction(moved))


@dataclass(frozen=True)
class OnTop:
    """A table that may be released beside the trees: its formula, and whether earlier releases choose where it counts.

    What follows from its name in other rooms: its count (`data.counts.ON_TOP`), its share of ρ (a field of `Pool`), its
    reading (`pool.READINGS`), its case in an audit, and its place in a certificate.
    """

    layout: Callable[..., TableLayout]  # of the problem and of c, the trajectories that one unit moves
    beside_edges: bool = False


# By the name of the budget of each, in the order of their release.
ON_TOP = {
    "dependence": OnTop(joint_table),
    "left_over": OnTop(left_sums),
    "together": OnTop(pair_sums, beside_edges=True),
}


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
