"""PrivateModel: what was learned of the world. Learning it has cost ρ; every plan against it is free.

    model = Pool(rho=1.0).model(problem, log)      # pays, once
    policy = model.plan(other_problem)             # other costs, lower bounds, another horizon: post-processing

A policy that was planned on outcomes carries its model (`PrivateModel.of`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, whole
from poolrl.learning.law import Law
from poolrl.learning.levels import on_axis
from poolrl.learning.outcomes import OutcomeDistribution, Outcomes, outcomes_from_arrays
from poolrl.learning.planning import ValueSettings, default_values, lay_out, plan_on_outcomes
from poolrl.learning.policy import Policy, facts_of, problem_of
from poolrl.learning.stored import NOTHING_SAID, Report, complete, read_learned, write_learned
from poolrl.learning.together import drawn_together
from poolrl.privacy.guarantee import Guarantee
from poolrl.problems.problem import LevelProblem, OutcomeProblem

MODEL_FORMAT = "poolrl model 1"


@dataclass(repr=False, eq=False)
class PrivateModel:
    """Estimated outcomes under the public facts of `problem`, with the guarantee that their release was paid for."""

    problem: OutcomeProblem
    outcomes: OutcomeDistribution
    guarantee: Guarantee
    report: Report = NOTHING_SAID

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """The model that a policy was planned on."""
        if policy.outcomes is None or not isinstance(policy.problem, OutcomeProblem):
            raise ValueError("this policy was planned on visits of nodes, which are no model of outcomes")
        report = replace(policy.report, planned=None)
        return cls(policy.problem.world, policy.outcomes, policy.guarantee, report)

    def __repr__(self) -> str:
        labels = f", {self.problem.labels.count:,} label cells" if self.problem.labels else ""
        size = f"{self.problem.horizon} steps, {self.problem.outcome_dim} coordinates{labels}"
        points, end = self.outcomes.points[..., None, :, :], self.explored[..., None]
        beyond = (points < end if self.outcomes.higher else points > end) * self.outcomes.weights
        explored = 1 - float(beyond.sum(axis=-1).mean())
        rests_on = f"{explored:.0%} of outcomes lie in the range that past decisions explored."
        if self.outcomes.slots is not None and self.report.trees is not None and self.outcomes.slots.any():
            noise = math.sqrt(self.report.trees.variance) / float(self.outcomes.slots.mean())
            rests_on += f" Noise is {noise:.1%} of what a cell counted."
        if self.together > 0:
            rests_on += f" Outcomes move together, with a correlation of {self.together:.2f}."
        return f"PrivateModel({size})\n{rests_on}\n{self.guarantee}"

    @property
    def explored(self) -> FloatArray:
        """Up to which level a tenth of the log looked, (*labels, H, k). Beyond it, laws go on by their shape alone."""
        return self.outcomes.explored

    @property
    def together(self) -> float:
        """The correlation of the products' demand at a step; zero if none was released (`Pool(together=...)`)."""
        return 0.0 if self.report.together is None else float(self.report.together.correlation)

    def plan(self, problem: OutcomeProblem | None = None, values: ValueSettings | None = None) -> Policy:
        """The best policy against the model. Free: no log, no noise, no cost.

        `problem` may have other costs, bounds below the public ones and another horizon: after the last step the first
        one comes again. Its products and labels are the model's.
        """
        wanted = self.problem if problem is None else problem
        outcomes = self.for_problem(wanted)  # says what does not fit
        where = lay_out(wanted, values or default_values(wanted, Outcomes()))
        rule, report = plan_on_outcomes(
            outcomes,
            wanted,
            where,
            # A scale with memory was made from the log's own sales, and will be made from ours.
            scale_follows_sales=self.guarantee.scale_memory > 0,
            step_labels=self.report.step_labels,
            together=self.together,
        )
        names = self.report.names
        if names is not None:
            steps = [names.steps[h % len(names.steps)] for h in range(wanted.horizon)]
            names = replace(names, products=[*names.products, *wanted.shared], steps=steps)
        report = replace(self.report, names=names, planned=report.planned)
        return Policy(wanted, rule, self.guarantee, report, outcomes)

    def under(self, problem: OutcomeProblem) -> PrivateModel:
        """The same laws under the public facts of another problem."""
        return PrivateModel(problem, self.for_problem(problem), self.guarantee, self.report)

    def for_problem(self, problem: OutcomeProblem) -> OutcomeDistribution:
        """The laws that another problem meets; refuses, in words, one that the model does not know."""
        own = self.problem
        if problem is own:
            return self.outcomes
        if not isinstance(problem, OutcomeProblem):
            raise ValueError(f"plan takes a problem that declares its outcomes, got {type(problem).__name__}")
        if problem.world is not problem:
            if self.guarantee.scaled:
                raise ValueError("products share nothing in multiples of their own scales: plan with a model in units")
            return self.for_problem(problem.world)
        if problem.outcome_dim != own.outcome_dim or problem.labels.facts() != own.labels.facts():
            raise ValueError(
                f"the model was learned for {own.outcome_dim} products and labels {dict(own.labels.facts())}: a plan "
                "must have the same"
            )
        if why := own.why_unknown(problem):
            raise ValueError(why)
        if problem.horizon == own.horizon:
            return self.outcomes
        steps = np.arange(problem.horizon) % own.horizon
        # The steps of each table stand before its coordinates.
        known, places = self.outcomes.arrays(), {"weights": -3, "cutoffs": -3, "slots": -2, "left": -2}
        repeated: Any = {name: np.take(known[name], steps, at) for name, at in places.items() if name in known}
        return replace(self.outcomes, **repeated)

    def sample(
        self, paths: int, *, rng: np.random.Generator, labels: Mapping[str, ArrayLike] | None = None
    ) -> FloatArray:
        """Outcomes (paths, H, k) that the model expects: demand nobody owns. With a scale, multiples of it.

        `labels` gives a value, or one for each path, of every label. Given these, steps are independent.
        """
        whole(paths=paths)
        cell = np.broadcast_to(self.problem.labels.cells(labels or {}), (paths,))
        if (cell < 0).any():
            raise ValueError("labels must be among the values that the problem declares")
        laws, points = self.outcomes.by_cell
        drawn = np.empty((paths, *laws.shape[1:3]))
        share = drawn_together(rng, drawn.shape, self.together)
        for number in np.unique(cell):
            mine = np.flatnonzero(cell == number)
            for step, coordinate in np.ndindex(*laws.shape[1:3]):
                at = points[number, coordinate]
                place = Law(laws[number, step, coordinate]).bins_at(share[mine, step, coordinate])
                # Anywhere in the bin: points are the middles of equal bins.
                drawn[mine, step, coordinate] = at[place] + (rng.random(len(mine)) - 0.5) * (at[1] - at[0])
        return drawn

    def save(self, path: str | PathLike[str]) -> None:
        """Write one npz file."""
        facts = {"format": MODEL_FORMAT} | facts_of(self.problem, self.guarantee, self.report)
        write_learned(path, facts, dict(self.outcomes.arrays()))

    @classmethod
    def load(cls, path: str | PathLike[str], *, problem: OutcomeProblem | None = None) -> Self:
        """Read what `save` wrote. Your own problem must be passed as `problem`, and must match the file's facts."""
        facts, arrays = read_learned(path, MODEL_FORMAT, "model")
        with complete(path, "model"):
            # Laws are (*labels, H, k, bins).
            own = problem_of(facts["problem"], arrays["weights"].shape[:-2], problem)
            if not isinstance(own, OutcomeProblem):
                raise ValueError("the problem declares no outcomes")
            outcomes = outcomes_from_arrays(arrays, own)
            return cls(own, outcomes, Guarantee.from_dict(facts["guarantee"]), Report.from_dict(facts["report"]))


def population_policy(policy: Policy, unknown: Collection[str]) -> Policy:
    """The policy for shops whose values of some labels were not declared; the other labels are asked as before.

    Its policy is the best plan on the mixture P(D ≤ d) = Σ_v p(v) P(D ≤ d | v), where p(v) is how often the released
    trees show each value v of the label at that step.
    """
    problem, outcomes = policy.problem, policy.outcomes
    if not isinstance(problem, LevelProblem) or outcomes is None:
        raise ValueError("a value that was not declared needs the policy's estimate of demand, which it does not hold")
    axes = tuple(problem.labels.names.index(name) for name in unknown)
    # How common each value is, given the other labels and the step, (*labels, H).
    chance = outcomes.rows / outcomes.rows.sum(axis=axes, keepdims=True)
    everybody = problem.averaged_over(unknown, chance)
    tops, bins = outcomes.tops, outcomes.points.shape[-1]
    widest = np.broadcast_to(tops.max(axis=axes, keepdims=True), tops.shape)

    def mixed(weights: FloatArray) -> FloatArray:
        found = []
        # Step by step: a chain of a thousand shops would need its weights several times over.
        for step in range(weights.shape[-3]):
            moved = on_axis(weights[..., step, :, :], outcomes.points, np.ones_like(tops), widest)
            found.append((chance[..., step, None, None] * moved).sum(axis=axes))
        return np.stack(found, axis=-3)

    mixture = OutcomeDistribution(
        tops.max(axis=axes)[..., None] * (np.arange(bins) + 0.5) / bins,
        mixed(outcomes.weights),
        None if outcomes.cutoffs is None else mixed(outcomes.cutoffs),
        outcomes.observed,
        None if outcomes.slots is None else outcomes.slots.sum(axis=axes),
    )
    changing = tuple(name for name in policy.report.step_labels if name not in unknown)
    return PrivateModel(everybody, mixture, policy.guarantee, replace(policy.report, step_labels=changing)).plan()
