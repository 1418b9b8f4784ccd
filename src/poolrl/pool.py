"""POOL: release once, then learn from what was released. The whole algorithm on one screen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from poolrl.checks import IntArray
from poolrl.data.log import Log
from poolrl.geometry.partition import Partition, Zones
from poolrl.geometry.resolution import RING_COUNT
from poolrl.learning.backward_induction import Bernstein, Visits
from poolrl.learning.dependence import compare_levels, compared
from poolrl.learning.estimation import estimate_outcomes
from poolrl.learning.fitted import Fitted
from poolrl.learning.model import PrivateModel
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.planning import ValueSettings, default_values, lay_out, plan_on_visits
from poolrl.learning.policy import Policy
from poolrl.learning.stored import ReleasedTrees, Report
from poolrl.learning.together import choose_edges, measure_together
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import Guarantee
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.noise.source import NoiseSource
from poolrl.privacy.release import admit, release_outcomes, release_visits
from poolrl.privacy.released import PrivateOutcomes, PrivateVisits
from poolrl.privacy.sensitivity import ON_TOP, moved_trajectories
from poolrl.problems.problem import OutcomeProblem, Problem


@dataclass(frozen=True)
class Pool:
    """Private learning under the budget ρ (zCDP); `rho=inf` is the same code without noise or privacy.

    By default `counts` and `values` follow from what the problem declares: outcomes and separable values, else
    visits and a partition. `pessimism` lowers the values of rarely visited nodes. It needs `Visits`.
    `dependence` is the share of ρ that pays for a test whether orders follow demand. The policy's report says what it
    found. `left_over` is the share of ρ that pays for sums of what was left, so that forecasts know what the past
    orders cost to hold. `together` is the share of ρ that pays for a correlation of the products' demand, for plans in
    which products share something.

        Pool(rho=1.0).fit(problem, log)

    Guarantee: `fit` is ρ-zCDP for one unit of the log, by the release it makes; the rest is post-processing.
    """

    rho: float
    counts: Outcomes | Visits | None = None
    values: ValueSettings | None = None
    pessimism: Bernstein | None = None
    dependence: float = 0.0
    left_over: float = 0.0
    together: float = 0.0

    def __post_init__(self) -> None:
        self._budgets()

    def _budgets(self) -> dict[str, zcdp.Budget]:
        """The budgets of the trees (`rho`), and of each of the tables on top of them."""
        shares = {name: getattr(self, name) for name in ON_TOP}
        on_top = {name: zcdp.shares_of(self.rho, **{name: share})[1] for name, share in shares.items()}
        if sum(shares.values()) >= 1:
            raise ValueError(f"{', '.join(ON_TOP)} must leave a part of rho to the trees")
        whole = zcdp.budget(self.rho)
        return {"rho": whole if whole == math.inf else whole - sum(on_top.values()), **on_top}

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
        """Spend ρ on the log, once, and learn what its outcomes are like. Every plan against the model is free.

        `fit` is `model(problem, log).plan(problem)`.
        """
        prepared = self.prepare(problem)
        if not isinstance(prepared, OnOutcomes):
            raise ValueError("a model is learned from counts of outcomes: use counts=Outcomes(), or fit a policy")
        return prepared.model(prepared.release(log, noise or SecureNoise()))

    def prepare(self, problem: Problem) -> Prepared:
        """Choose the parts for a problem. Parts that do not fit are refused here, before anything is spent.

        Your own problem is tried on public dummy rows and on empty tables: its formulas must treat each row by itself,
        and must not fail after the release.
        """
        if not isinstance(problem, Problem):
            raise ValueError(f"fit takes a problem and a log (Trajectories or Table), got {type(problem).__name__}")
        # Also where a formula was set on an object of ours.
        replaced = any(map(callable, vars(problem).values()))
        own = replaced or not type(problem).__module__.startswith("poolrl.problems.")
        if own:
            from poolrl.data.check_problem import check_rows

            check_rows(problem)
        prepared = self._choose(problem)
        if own:
            prepared.learn_from_nothing()
        return prepared

    def _choose(self, problem: Problem) -> Prepared:
        counts = self.counts or (Outcomes() if isinstance(problem, OutcomeProblem) else Visits())
        values = self.values or default_values(problem, counts)
        where = lay_out(problem, values)
        asked = [name for name in ON_TOP if getattr(self, name)]
        if isinstance(counts, Outcomes):
            if not isinstance(problem, OutcomeProblem):
                raise ValueError(
                    f"Outcomes needs a problem that declares its outcomes; {type(problem).__name__} does not. "
                    "Subclass OutcomeProblem, or use counts=Visits()"
                )
            if self.pessimism is not None:
                raise ValueError("pessimism needs visit counts: use counts=Visits(), or leave it out")
            for name in asked:
                ON_TOP[name](problem, per_unit=1)  # it refuses a problem that has no such table
            return OnOutcomes(problem, self._budgets(), counts, values)
        if asked:
            raise ValueError(f"{asked[0]} needs outcome counts: use counts=Outcomes(), or leave it out")
        if not isinstance(where, Partition):
            raise ValueError(
                "Separable and Fitted plan on outcomes, but Visits counts joint nodes: use counts=Outcomes(), or "
                "values=Zones(...) or Grid(...)"
            )
        return OnVisits(problem, zcdp.budget(self.rho), counts, where, self.pessimism)


@dataclass(frozen=True)
class OnOutcomes:
    """A fit on counts of outcomes, in its two halves: `release` sees the log and pays, `learn` sees what was released.

    `learn_from_nothing` learns once from empty tables, so that a fault shows before anything is paid.
    """

    problem: OutcomeProblem
    budgets: Mapping[str, zcdp.Budget]  # `rho` of the trees, and of each table on top
    counts: Outcomes
    values: ValueSettings
    fixed_edges: IntArray | None = None  # for an audit; otherwise the trees tell where pairs are compared

    def release(self, log: Log, noise: NoiseSource) -> PrivateOutcomes:
        """Trees with as many bins as public facts suggest. Guarantee: ρ-zCDP for one unit of the log."""
        admit(log)
        facts = log.facts
        moved = moved_trajectories(
            per_unit=facts.max_per_unit, scale_memory=facts.scale_memory, has_units=facts.has_units
        )
        rho = float(self.budgets["rho"])
        sizes = self.counts.level_sizes(self.problem, slots=log.slots, per_unit=moved, rho=rho)
        return release_outcomes(log, self.problem, level_sizes=sizes, noise=noise, edges=self._edges, **self.budgets)

    def _edges(self, released: PrivateOutcomes) -> IntArray:
        """Where pairs are compared: from released trees alone."""
        if self.fixed_edges is not None:
            return self.fixed_edges
        return choose_edges(self.problem, estimate_outcomes(released, self.problem))

    def learn(self, released: PrivateOutcomes) -> Policy:
        """Distributions of outcomes, then a plan on them."""
        return self.model(released).plan(self.problem, self.values)

    def model(self, released: PrivateOutcomes) -> PrivateModel:
        """Distributions of outcomes."""
        outcomes = estimate_outcomes(released, self.problem)
        joint, pairs = released.dependence, released.together
        # A table refuses no row, so the report says how much was observed, by released numbers (docs/large-logs.md).
        report = Report(
            observed=outcomes.observed,
            trees=ReleasedTrees(tuple(level.shape[-1] for level in released.levels), released.variance),
            step_labels=tuple(released.step_labels),  # public, by declaration; plans for the population need it
            dependence=None if joint is None else compare_levels(compared(joint.counts, self.problem), joint.variance),
            together=None if pairs is None else measure_together(pairs, self.problem, outcomes),
        )
        return PrivateModel(self.problem.world, outcomes, released.guarantee, report)

    def learn_from_nothing(self) -> None:
        """Trees of two leaves without a count."""
        trees = (self.problem.horizon, self.problem.outcome_dim)
        leaves = np.zeros((*self.problem.labels.shape, *trees, self.problem.kinds, 2), dtype=np.int64)
        empty = np.zeros(trees, dtype=np.int64)
        nothing = PrivateOutcomes((leaves,), empty, 1, 1.0, Guarantee.of_nothing(self.problem.horizon))
        # Fitted values take long, and a few of them find the same faults.
        few = Fitted(states=8, hinges=1, outcomes=8) if isinstance(self.values, Fitted) else self.values
        replace(self, values=few).learn(nothing)


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
        """Tables without a visit."""
        horizon, states = self.problem.horizon, self.where.state_count
        pairs = np.zeros((horizon, self.where.pair_count), dtype=np.int64)

        def transitions(step: int, rows: IntArray) -> IntArray:
            return np.zeros((len(rows), states), dtype=np.int64)

        self.learn(PrivateVisits(pairs, transitions, pairs.size * states, 1.0, Guarantee.of_nothing(horizon)))


# A fit, ready to release.
Prepared = OnOutcomes | OnVisits
