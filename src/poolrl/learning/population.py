"""What a shop should order that the log never saw: the plan on the population's demand.

A label value that was not declared has no cell. Such a shop is taken for one that is drawn from the population, as
often as the released trees show each value v of the label at that step,

    P(D ≤ d) = Σ_v p(v) P(D ≤ d | v)

and the best plan on this mixture is its policy. All of it is post-processing of released numbers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from poolrl.checks import FloatArray
from poolrl.geometry.axes import Separable
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.planning import plan_on_outcomes
from poolrl.learning.policy import Policy
from poolrl.learning.shops import on_axis
from poolrl.problems.problem import LevelProblem

# A cell without an observed slot still counts a little, so that a population of empty cells is their plain average.
LEAST_SLOTS = 1e-9


def population_policy(policy: Policy, unknown: Collection[str]) -> Policy:
    """The policy for shops whose values of some labels were not declared; the other labels are asked as before."""
    problem, outcomes = policy.problem, policy.outcomes
    if not isinstance(problem, LevelProblem) or outcomes is None:
        raise ValueError("a value that was not declared needs the policy's estimate of demand, which it does not hold")
    axes = tuple(problem.labels.names.index(name) for name in unknown)
    chance = _chances_of_values(problem, outcomes, axes)
    everybody = problem.averaged_over(unknown, chance)
    mixed = _mixture(outcomes, chance, axes)
    changing = [name for name in policy.report.step_labels if name not in unknown]
    rule, report = plan_on_outcomes(
        mixed,
        Separable().axes(everybody),
        scale_follows_sales=policy.guarantee.scale_memory > 0,
        step_labels=changing,
    )
    return Policy(everybody, rule, policy.guarantee, replace(policy.report, planned=report.planned), mixed)


def _chances_of_values(problem: LevelProblem, outcomes: OutcomeDistribution, axes: tuple[int, ...]) -> FloatArray:
    """How common each value of the unknown labels is, given the other labels and the step, (*labels, H)."""
    shape = (*problem.labels.shape, problem.horizon)
    counts = np.zeros(shape) if outcomes.slots is None else np.maximum(outcomes.slots.sum(axis=-1), 0.0)
    counts = counts + LEAST_SLOTS
    return np.asarray(counts / counts.sum(axis=axes, keepdims=True))


def _mixture(outcomes: OutcomeDistribution, chance: FloatArray, axes: tuple[int, ...]) -> OutcomeDistribution:
    """The distribution of outcomes of a cell that is drawn by `chance` along some labels."""
    tops = outcomes.points[..., -1] + outcomes.points[..., 0]  # (*labels, k)
    widest = np.broadcast_to(tops.max(axis=axes, keepdims=True), tops.shape)
    bins = outcomes.points.shape[-1]

    def mixed(weights: FloatArray) -> FloatArray:
        found = []
        # Step by step: a chain of a thousand shops would need its weights several times over.
        for step in range(weights.shape[-3]):
            moved = on_axis(weights[..., step, :, :], outcomes.points, np.ones_like(tops), widest)
            found.append((chance[..., step, None, None] * moved).sum(axis=axes))
        return np.stack(found, axis=-3)

    return OutcomeDistribution(
        tops.max(axis=axes)[..., None] * (np.arange(bins) + 0.5) / bins,
        mixed(outcomes.weights),
        None if outcomes.cutoffs is None else mixed(outcomes.cutoffs),
        outcomes.observed,
        None if outcomes.slots is None else outcomes.slots.sum(axis=axes),
    )
