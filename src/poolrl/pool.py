"""POOL: release once, then learn from what was released. The whole algorithm on one screen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from poolrl.checks import IntArray
from poolrl.data.check_problem import check_rows
from poolrl.data.log import Log
from poolrl.data.row_rules import is_ours
from poolrl.geometry.partition import Partition, Zones
from poolrl.geometry.resolution import RING_COUNT
from poolrl.learning.backward_induction import Bernstein, Visits
from poolrl.learning.dependence import read_dependence
from poolrl.learning.estimation import estimate_outcomes
from poolrl.learning.model import PrivateModel
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.planning import ValueSettings, misfit, parts_of, plan_on_visits, quickest
from poolrl.learning.policy import Policy
from poolrl.learning.stored import ReleasedTrees, Report
from poolrl.learning.together import choose_edges, measure_together
from poolrl.privacy import zcdp
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.noise.source import NoiseSource
from poolrl.privacy.release import admit, moved_by, release_outcomes, release_visits
from poolrl.privacy.released import PrivateOutcomes, PrivateVisits
from poolrl.privacy.sensitivity import ON_TOP
from poolrl.problems.problem import OutcomeProblem, Problem

# What is read from tables on top of the trees, into the report of the model. Sums of what was left are read with it.
READINGS: dict[str, Callable[..., Any]] = {"dependence": read_dependence, "together": measure_together}


@dataclass(frozen=True)
class Pool:
    """Private learning under the budget ρ (zCDP); `rho=inf` is the same code without noise or privacy.

    By default `counts` and `values` follow from what the problem declares: outcomes and separable values, else
    visits and a partition. `pessimism` lowers the values of rarely visited nodes. It needs `Visits`. The other settings
    are shares of ρ, each for a table on top of the trees.

        Pool(rho=1.0).fit(problem, log)

    Guarantee: `fit` is ρ-zCDP for one unit of the log, by the release it makes; the rest is post-processing.
    """

    rho: float
    counts: Outcomes | Visits | None = None
    values: ValueSettings | None = None
    pessimism: Bernstein | None = None
    dependence: float = 0.0  # for a test whether orders follow demand; the policy's report says what it found
    left_over: float = 0.0  # for sums of what was left, so that forecasts know what the past orders cost to hold
    together: float = 0.0  # for a correlation of the products' demand, for plans in which products share something

    def __post_init__(self) -> None:
        self.budgets()

    def budgets(self) -> tuple[zcdp.Budget, dict[str, zcdp.Budget]]:
        """The budget of the trees, and those of the tables on top of them."""
        return zcdp.shares_of(self.rho, **{name: getattr(self, name) for name in ON_TOP})

    @classmethod
    def published(cls, rho: float, zones: int = RING_COUNT, *, scale: float = 1.0, failure: float = 0.05) -> Self:
        """Algorithm 1 of the paper, in its most charitable reading (docs/departures.md).

        `scale` multiplies the pessimism Γ, which is vacuous at the printed constants (scale 1); `failure` is δ.
        """
        return cls(rho, Visits(failure), Zones(zones), Bernstein(scale, failure))

    def fit(self, problem: Problem, log: Log, *, noise: NoiseSource | None = None) -> Policy:
        """Spend ρ on the log (`Trajectories` or `Table`), once, and learn a policy. Fitting again spends again.

        Without `noise` the noise is exact and unpredictable; `SeededNoise` makes a reproducible dry run that is
        not private.
        """
        prepared = self.prepare(problem)
        return prepared.learn(prepared.release(log, noise or SecureNoise()))

    def model(self, problem: Problem, log: Log, *, noise: NoiseSource | None = None) -> PrivateModel:
        """Spend ρ on the log, once, and learn what its outcomes are like. Every `plan` on the model is free."""
        prepared = self.prepare(problem)
        if not isinstance(prepared, OnOutcomes):
            raise ValueError("a model is learned from counts of outcomes: use counts=Outcomes(), or fit a policy")
        return prepared.model(prepared.release(log, noise or SecureNoise()))

    def prepare(self, problem: Problem) -> "Prepared":
        """Choose the parts for a problem. Parts that do not fit are refused here, before anything is spent.

        Your own problem is tried on public dummy rows and on empty tables: its formulas must treat each row by itself,
        and must not fail after the release.
        """
        if not isinstance(problem, Problem):
            raise ValueError(f"fit takes a problem and a log (Trajectories or Table), got {type(problem).__name__}")
        if not (ours := is_ours(problem)):
            check_rows(problem)
        prepared = self._choose(problem)
        if not ours:
            prepared.learn_from_nothing()
        return prepared

    def _choose(self, problem: Problem) -> "Prepared":
        counts, values, where = parts_of(problem, self.counts, self.values)
        on_top = [name for name in ON_TOP if getattr(self, name)]
        if isinstance(counts, Outcomes) and isinstance(problem, OutcomeProblem) and self.pessimism is None:
            for name in on_top:
                ON_TOP[name].layout(problem, per_unit=1)  # it refuses a problem that has no such table
            return OnOutcomes(problem, *self.budgets(), counts, values)
        if isinstance(counts, Visits) and isinstance(where, Partition) and not on_top:
            return OnVisits(problem, zcdp.budget(self.rho), counts, where, self.pessimism)
        raise ValueError(misfit(problem, counts, on_top))


@dataclass(frozen=True)
class OnOutcomes:
    """A fit on counts of outcomes, in two halves: `release` sees the log and pays, `learn` sees what was released."""

    problem: OutcomeProblem
    rho: zcdp.Budget  # of the trees
    on_top: Mapping[str, zcdp.Budget]  # of each table on top
    counts: Outcomes
    values: ValueSettings
    edges: Callable[[PrivateOutcomes], IntArray] | None = None  # for an audit

    def release(self, log: Log, noise: NoiseSource) -> PrivateOutcomes:
        """Trees as fine as public facts suggest, and tables on top. Guarantee: ρ-zCDP for one unit of the log."""
        admit(log)
        moved = moved_by(log)
        sizes = self.counts.level_sizes(self.problem, slots=log.slots, per_unit=moved, rho=float(self.rho))
        edges = self.edges or (lambda trees: choose_edges(self.problem, estimate_outcomes(trees, self.problem)))
        door = partial(release_outcomes, log, self.problem, level_sizes=sizes, rho=self.rho, noise=noise)
        return door(on_top=self.on_top, edges=edges)

    def learn(self, released: PrivateOutcomes) -> Policy:
        """Distributions of outcomes, then a plan on them."""
        return self.model(released).plan(self.problem, self.values)

    def model(self, released: PrivateOutcomes) -> PrivateModel:
        """Distributions of outcomes, with a report: a table refuses no row, so it says how much was observed."""
        outcomes = estimate_outcomes(released, self.problem)
        tables = [(name, table) for name, table in released.on_top.items() if name in READINGS]
        report = Report(
            observed=outcomes.observed,
            trees=ReleasedTrees(tuple(level.shape[-1] for level in released.levels), released.variance),
            step_labels=tuple(released.step_labels),  # public, by declaration; plans for the population need it
            **{name: READINGS[name](table, self.problem, outcomes) for name, table in tables},
        )
        return PrivateModel(self.problem.world, outcomes, released.guarantee, report)

    def learn_from_nothing(self) -> None:
        """Learn once from empty tables, so that a fault shows before anything is paid."""
        replace(self, values=quickest(self.values)).learn(PrivateOutcomes.of_nothing(self.problem))


@dataclass(frozen=True)
class OnVisits:
    """The same on counts of visits, with values on their nodes."""

    problem: Problem
    rho: zcdp.Budget
    counts: Visits
    where: Partition
    pessimism: Bernstein | None

    def release(self, log: Log, noise: NoiseSource) -> Any:  # PrivateVisits; callers hand on what any fit releases
        """Both of the paper's tables. Guarantee: ρ-zCDP for one unit of the log."""
        return release_visits(log, self.problem, self.where, rho=self.rho, noise=noise)

    def learn(self, released: Any) -> Policy:
        """A kernel between nodes, then a plan on it."""
        rule, report = plan_on_visits(self.where, released, self.counts, self.pessimism)
        return Policy(self.problem, rule, released.guarantee, report)

    def learn_from_nothing(self) -> None:
        """As for outcomes."""
        self.learn(PrivateVisits.of_nothing(self.problem.horizon, self.where.pair_count, self.where.state_count))


Prepared = OnOutcomes | OnVisits
