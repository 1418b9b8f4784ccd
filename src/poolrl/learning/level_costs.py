"""What ordering costs by estimated laws: up to given levels, by past orders, and by somebody who knows the laws.

All label cells and products at once, by the convolutions of `shops`. A cost is that of one trajectory which begins with
empty shelves. With a scale it is a multiple of it: step h counts as much as its public profile says.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.shops import carried, expected_cost_on, on_axis, plan_shops
from poolrl.problems.problem import LevelProblem


def costs_of_levels(problem: LevelProblem, outcomes: OutcomeDistribution, levels: FloatArray) -> FloatArray:
    """The expected cost of ordering up to levels (*labels, H, k), (*labels, k), if labels stay as they are.

    G_h(y) = h_h E(y − D)⁺ + b_h E(D − y)⁺ + E V_{h+1}((y − D)⁺),    V_h(x) = G_h(max(x, S_h)),   from zero stock
    """
    cells, horizon, products = problem.labels.count, problem.horizon, problem.products
    per_step, bins = (cells, horizon, products), outcomes.points.shape[-1]
    points = outcomes.points.reshape(cells, products, bins)
    profile = problem.scale_profile.reshape(per_step)
    holding, shortage = problem.holding.reshape(per_step), problem.shortage.reshape(per_step)
    weights, wanted = outcomes.weights.reshape(*per_step, bins), levels.reshape(per_step) * profile
    # Demand and stock of every step fit on one axis.
    reach = (points[..., -1] + points[..., 0])[:, None] * profile
    tops = np.maximum(reach.max(axis=1), wanted.max(axis=1))
    edges = np.arange(bins + 1) / bins * tops[..., None]
    value = np.zeros_like(edges)
    for step in reversed(range(horizon)):
        demand = on_axis(weights[:, step], points, profile[:, step], tops)
        after = expected_cost_on(demand, edges, holding[:, step], shortage[:, step]) + carried(demand, value)
        place = np.maximum(np.arange(bins + 1.0), (wanted[:, step] / tops * bins)[..., None])
        lower = np.minimum(place.astype(np.int64), bins - 1)
        part = place - lower
        value = np.take_along_axis(after, lower, -1) * (1 - part) + np.take_along_axis(after, lower + 1, -1) * part
    return np.asarray(value[..., 0].reshape(*problem.labels.shape, products))


def best_costs(problem: LevelProblem, outcomes: OutcomeDistribution) -> FloatArray:
    """The cost of somebody who knows these laws and may order any amount, (*labels, k)."""
    free, known = problem.without_boundary(), replace(outcomes, cutoffs=None)
    return costs_of_levels(free, known, plan_shops(free, known))


def left_and_missing(outcomes: OutcomeDistribution) -> tuple[FloatArray, FloatArray]:
    """E(Y − D)⁺ and E(D − Y)⁺ of past order-up-to levels Y, (*labels, H, k), if they are independent of demand.

        E(Y − D)⁺ = ∫ P(D ≤ t) P(Y > t) dt,     E(D − Y)⁺ = ∫ P(D > t) P(Y ≤ t) dt

    The first one only as far as demand reaches: beyond, no tree shows a level.
    """
    assert outcomes.cutoffs is not None
    width = 2 * outcomes.points[..., None, :, 0]
    below, tried = (np.cumsum(law, axis=-1) - law / 2 for law in (outcomes.weights, outcomes.cutoffs))
    return (below * (1 - tried)).sum(axis=-1) * width, ((1 - below) * tried).sum(axis=-1) * width


def unseen_demand(outcomes: OutcomeDistribution) -> FloatArray:
    """E(D − e)⁺, demand beyond the explored range, (*labels, H, k): nothing in the log tells it."""
    points = outcomes.points[..., None, :, :]
    over = np.maximum(points - np.minimum(outcomes.explored, points[..., -1] + points[..., 0])[..., None], 0.0)
    return np.asarray((outcomes.weights * over).sum(axis=-1))


def step_costs(problem: LevelProblem, left: FloatArray | float, missing: FloatArray | float) -> FloatArray:
    """h × left + b × missing over all steps, (*labels, k), from means (*labels, H, k)."""
    costs = (problem.holding * left + problem.shortage * missing) * problem.scale_profile
    return np.asarray(costs.sum(axis=-2))
