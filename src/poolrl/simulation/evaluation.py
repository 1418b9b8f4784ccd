"""Costs of policies by simulation. Nothing here reads a sensitive log: demand is simulated, public or paid for.

Policies are compared on the same demand paths, so that their difference is not noise.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, as_floats, finite_array, shaped
from poolrl.geometry.resolution import BENCHMARK_BINS
from poolrl.learning.levels import costs_of_levels
from poolrl.learning.outcomes import OutcomeDistribution, known_outcomes, uniform_outcomes
from poolrl.learning.planning import finest, plan_on_outcomes
from poolrl.learning.policy import Policy
from poolrl.privacy.guarantee import Guarantee
from poolrl.problems.problem import ROUNDING, LevelProblem, OutcomeProblem


def rollout_costs(
    problem: OutcomeProblem,
    policy: Policy,
    outcomes: ArrayLike,
    *,
    scale: ArrayLike | None = None,
    labels: Mapping[str, ArrayLike] | None = None,
) -> FloatArray:
    """The total cost of each path (paths, H, k), from the problem's initial state (zero stock), in the user's units.

    `scale` (paths, H, k) and `labels`, each (paths,) or (paths, H), are what the policy knows before each decision.
    """
    paths = _paths(problem, outcomes, bounded=scale is None)
    state = np.tile(problem.initial_state, (len(paths), 1))
    total = np.zeros(len(paths))
    width = problem.scale_dim or problem.outcome_dim
    scales = None if scale is None else shaped("scale", as_floats("scale", scale), (*paths.shape[:2], width))
    by_step = {}
    for name, given in (labels or {}).items():
        values = np.asarray(given)
        by_step[name] = shaped(f"label {name!r}", values[:, None] if values.ndim == 1 else values, paths.shape[:2])
    for step in range(problem.horizon):
        known = {name: given[:, step] for name, given in by_step.items()}
        action = policy.act(step, state, scale=None if scales is None else scales[:, step], labels=known)
        total += problem.labelled_cost(step, state, action, paths[:, step], problem.labels.cells(known))
        state = problem.next_state(step, state, action, paths[:, step])[..., : problem.state_dim]
    return total


def rollout_cost(problem: OutcomeProblem, policy: Policy, outcomes: ArrayLike, **known: Any) -> float:
    """The mean total cost over the paths; `known` is the scale and labels of `rollout_costs`."""
    return float(rollout_costs(problem, policy, outcomes, **known).mean())


def relative_gap(
    problem: OutcomeProblem, policy: Policy, outcomes: ArrayLike, *, benchmark: Policy, **known: Any
) -> float:
    """(c − c*) / c*, the gap of the paper's section 5.1.1, on common paths; `known` as for `rollout_cost`."""
    best = rollout_cost(problem, benchmark, outcomes, **known)
    # Rounds earn, so costs are below zero: earnings are compared with the benchmark's.
    if best == 0 or (best < 0 and not problem.counts_down):
        raise ValueError("the benchmark's cost must be positive for a ratio; use cost_difference")
    return (rollout_cost(problem, policy, outcomes, **known) - best) / abs(best)


def cost_difference(
    problem: OutcomeProblem, policy: Policy, outcomes: ArrayLike, *, benchmark: Policy, **known: Any
) -> float:
    """c − c*, the gap of the paper's appendix (there with the opposite sign), on common paths."""
    return rollout_cost(problem, policy, outcomes, **known) - rollout_cost(problem, benchmark, outcomes, **known)


def expected_costs(problem: LevelProblem, levels: FloatArray, probabilities: FloatArray) -> FloatArray:
    """The exact mean cost of each product (k,) under levels (H, k) and the probabilities (H, k, bins) of `optimum`."""
    return costs_of_levels(problem, known_outcomes(problem, probabilities), levels)


def saa(problem: OutcomeProblem, outcomes: ArrayLike) -> Policy:
    """Sample average approximation: the dynamic programme on the empirical distribution of each step.

    Actions stay within λ. For the unrestricted optimum pass a problem whose boundary is 1. Every sampled outcome is
    shared between its two neighbours on a fine axis, so that its mean is kept.
    """
    if problem.labels:
        raise ValueError("saa plans one shop: call it for each label cell, with a problem without labels")
    paths = _paths(problem, outcomes)
    # The axis spans the sample, which is not secret here. So a loose public bound costs no resolution.
    low, high = paths.min(axis=(0, 1)), paths.max(axis=(0, 1))
    axis = np.linspace(low, high, BENCHMARK_BINS + 1)
    position = (paths - low) / np.where(high > low, high - low, 1.0) * BENCHMARK_BINS
    below = np.minimum(np.floor(position), BENCHMARK_BINS - 1).astype(np.int64)
    part = position - below
    weights = np.zeros((problem.horizon, problem.outcome_dim, BENCHMARK_BINS + 1))
    for place in np.ndindex(weights.shape[:2]):
        left, share = below[:, *place], part[:, *place]
        weights[place] = np.bincount(left, 1 - share, len(axis)) + np.bincount(left + 1, share, len(axis))
    return _planned(problem, OutcomeDistribution(axis.T, weights / len(paths)))


def optimum(problem: OutcomeProblem, probabilities: FloatArray) -> Policy:
    """The dynamic programme on a known distribution: probabilities (*labels, H, k, bins) of equal outcome bins."""
    return _planned(problem, known_outcomes(problem, probabilities))


def data_free(problem: OutcomeProblem) -> Policy:
    """The plan that knows only costs and bounds, and takes outcomes to be uniform between the bounds."""
    return _planned(problem, uniform_outcomes(problem, BENCHMARK_BINS))


def _planned(problem: OutcomeProblem, outcomes: OutcomeDistribution) -> Policy:
    wanted = (*problem.labels.shape, problem.horizon, problem.outcome_dim)
    if outcomes.weights.shape[:-1] != wanted:
        raise ValueError(f"probabilities must have shape {(*wanted, 'bins')}, got {outcomes.weights.shape}")
    rule, report = plan_on_outcomes(outcomes, problem, finest(problem))
    return Policy(problem, rule, Guarantee.of_nothing(problem.horizon), report)


def _paths(problem: OutcomeProblem, outcomes: ArrayLike, *, bounded: bool = True) -> FloatArray:
    paths = finite_array("outcomes", outcomes)
    if paths.shape[1:] != (problem.horizon, problem.outcome_dim) or len(paths) == 0:
        wanted = f"(paths, {problem.horizon}, {problem.outcome_dim})"
        raise ValueError(f"outcomes must have shape {wanted}, got {paths.shape}")
    slack = ROUNDING * (problem.outcome_high - problem.outcome_low)
    # With a scale the bounds are multiples of it, and a multiple may exceed them.
    if bounded and ((paths < problem.outcome_low - slack).any() or (paths > problem.outcome_high + slack).any()):
        raise ValueError("outcomes must lie within the problem's public bounds")
    return paths
