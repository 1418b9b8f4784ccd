"""Order-up-to levels of many shops at once, and their costs: the dynamic programme of inventory, by convolution.

With demand D_h on equal bins and order-up-to levels y on their edges, for each label cell and product by itself,

    G_h(y) = h_h E(y − D)⁺ + b_h E(D − y)⁺ + E V_{h+1}((y − D)⁺),    V_h(x) = min { G_h(y) : y ≥ x },    V_{H+1} = 0

Unmet demand is lost, or waits and is ordered at once: both leave nothing for tomorrow, so the plan is the same. A cost
is that of one trajectory from empty shelves. With a scale it is a multiple: step h counts as its public profile says.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import fft

from poolrl.checks import FloatArray, IntArray
from poolrl.learning import priors
from poolrl.learning.law import Law, cumulative, read_at
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.problems.problem import LevelProblem

# Sales below this share of the best day's count as no sales, and no policy moves its own scale further than this.
LEAST_SALES, LARGEST_SHIFT = 0.02, 3.0
# Each round brings a level a good deal nearer.
UNSETTLING_ROUNDS = 40
# A level lies at most this part of a bin beside the best edge: the parabola through three edges is local.
NEAREST_EDGE = 1.0


def plan_shops(problem: LevelProblem, outcomes: OutcomeDistribution, step_labels: Sequence[str] = ()) -> FloatArray:
    """The best level of every label cell, step and product, (*labels, H, products).

    Amounts are planned in units of the public profile's largest scale, and each level is divided by its own step's.
    Labels of `step_labels` are drawn anew tomorrow, as often as the released trees show them on that step; others stay.
    """
    cells, horizon, products = problem.labels.count, problem.horizon, problem.products
    weights, points = outcomes.by_cell
    bins, per_step = points.shape[-1], (cells, horizon, products)
    changing = tuple(problem.labels.names.index(name) for name in step_labels)
    labelled = (*problem.labels.shape, products)
    # Tomorrow's values are averaged over changing labels, so their cells need one axis.
    widest = outcomes.tops.max(axis=changing, keepdims=True)
    tops = np.broadcast_to(widest, labelled).reshape(cells, products)
    # Cells that may follow each other share one unit.
    labels = len(problem.labels.shape)
    staying = tuple(label for label in range(labels) if label not in changing)
    largest = problem.scale_profile.max(axis=(*changing, labels), keepdims=True)
    profile = (problem.scale_profile / largest).reshape(per_step)
    limits = problem.share * problem.demand_max * problem.bound_share.reshape(cells, 1, products)
    limits = np.minimum(limits, priors.CLIMB * outcomes.explored.reshape(per_step))
    edges = np.arange(bins + 1) / bins * tops[..., None]  # (cells, products, B + 1)
    levels = np.empty(per_step)
    value = np.zeros_like(edges)
    for step in reversed(range(horizon)):
        size = profile[:, step]
        demand = on_axis(weights[:, step], points, size, tops)
        cost = cost_from(problem, step, demand, edges, value)
        cap = np.maximum((edges <= (limits[:, step] * size)[..., None] * (1 + 1e-12)).sum(axis=-1) - 1, 0)
        allowed = np.where(np.arange(bins + 1) <= cap[..., None], cost, np.inf)
        levels[:, step] = np.minimum(_lowest_place(cost, allowed.argmin(axis=-1), edges) / size, limits[:, step])
        best = np.minimum.accumulate(allowed[..., ::-1], axis=-1)[..., ::-1]
        # Above the limit nothing is ordered.
        by_label = np.where(np.isinf(best), cost, best).reshape(*labelled, bins + 1)
        rows = outcomes.rows[..., step].sum(axis=staying, keepdims=True)
        average = ((rows / rows.sum())[..., None, None] * by_label).sum(axis=changing, keepdims=True)
        value = np.broadcast_to(average, by_label.shape).reshape(value.shape)
    return levels.reshape(*problem.labels.shape, horizon, products)


def settled_levels(problem: LevelProblem, outcomes: OutcomeDistribution, levels: FloatArray) -> FloatArray:
    """Levels as multiples of the scale that they will themselves bring about, where it is made from past sales.

    A level e of the log's scale s is e/φ of the new one, where φ compares the sales under new levels and old ones,

        φ = E min(D, e) / E min(D, Y),     Y the past order-up-to levels

    Without φ orders would fall until nothing is sold. Along labels whose costs differ it is taken one by one.
    """
    return levels / _sales_ratio(problem, outcomes, levels)


def unsettled_levels(problem: LevelProblem, outcomes: OutcomeDistribution, levels: FloatArray) -> FloatArray:
    """The inverse of `settled_levels`. Sales rise more slowly than levels do, so repeating e = φ(e) levels finds e."""
    found = levels
    for _ in range(UNSETTLING_ROUNDS):
        found = levels * _sales_ratio(problem, outcomes, found)
    return found


def _sales_ratio(problem: LevelProblem, outcomes: OutcomeDistribution, levels: FloatArray) -> FloatArray:
    """φ: sales under new levels, in shares of those under past orders."""
    if outcomes.cutoffs is None or outcomes.slots is None:
        return np.ones_like(levels)
    points = outcomes.points[..., None, :, :]
    weights = outcomes.weights
    new = (np.minimum(points, levels[..., None]) * weights).sum(axis=-1)
    # E min(D, Y) = ∫ P(D > t) P(Y > t) dt
    looks, lasts = (1 - np.cumsum(law, axis=-1) + law / 2 for law in (outcomes.cutoffs, weights))
    old = (looks * lasts).sum(axis=-1) * 2 * points[..., 0]
    costs = problem.holding, problem.shortage
    axes = tuple(label for label in range(len(problem.labels.shape)) if not any(np.ptp(c, label).any() for c in costs))
    counts = np.maximum(outcomes.slots, 0.0)
    sold, usual = ((part * counts).sum(axis=axes, keepdims=True) for part in (new, old))
    # A day on which hardly anything is sold has no scale to follow.
    open_day = usual > LEAST_SALES * usual.max()
    ratio = np.where(open_day, sold / np.where(open_day, usual, 1.0), 1.0)
    return np.clip(ratio, 1 / LARGEST_SHIFT, LARGEST_SHIFT)


def on_axis(weights: FloatArray, points: FloatArray, size: FloatArray, tops: FloatArray) -> FloatArray:
    """Weights on equal bins up to `size` times their own top, moved to those up to `tops`, (cells, products, B)."""
    bins = weights.shape[-1]
    ratio = tops / ((points[..., -1] + points[..., 0]) * size)
    if (ratio == 1).all():
        return weights
    return Law(weights).between(np.arange(bins + 1) * ratio[..., None])


def cost_from(problem: LevelProblem, step: int, demand: FloatArray, edges: FloatArray, value: FloatArray) -> FloatArray:
    """G_h on the edges y, from V_{h+1} on them, (cells, products, B + 1), with demand in the middles of the bins.

    The amount left lies between two edges, as demand is in the middle of a bin.
    """
    middles, halfway = ((ends[..., :-1] + ends[..., 1:]) / 2 for ends in (edges, value))
    below, amount = cumulative(demand), cumulative(demand * middles)
    beyond = below[..., -1:] - below
    left, missing = edges * below - amount, (amount[..., -1:] - amount) - edges * beyond
    labelled, bins = (*problem.labels.shape, *edges.shape[1:]), demand.shape[-1]
    cost = problem.of_leftovers(np.s_[..., step, :, None], left.reshape(labelled), missing.reshape(labelled))
    length = fft.next_fast_len(2 * bins, real=True)
    sums = fft.irfft(fft.rfft(demand, length) * fft.rfft(halfway, length), length)[..., :bins]
    carried = np.concatenate([np.zeros_like(sums[..., :1]), sums], axis=-1) + beyond * value[..., :1]
    return cost.reshape(edges.shape) + carried


def _lowest_place(cost: FloatArray, best: IntArray, edges: FloatArray) -> FloatArray:
    """Where the cost is lowest near the best allowed edge, (...,): the minimum of the parabola through three edges.

    A limit lies between two edges. Where the cost still falls beyond the last edge below it, the place lies beyond too.
    """
    last = cost.shape[-1] - 1
    middle = np.clip(best, 1, last - 1)[..., None]
    before, here, after = (np.take_along_axis(cost, middle + i, -1)[..., 0] for i in (-1, 0, 1))
    bend = before - 2 * here + after
    move = np.where(bend > 0, (before - after) / (2 * np.where(bend > 0, bend, 1.0)), np.sign(here - after))
    width = edges[..., 1] - edges[..., 0]
    found = np.take_along_axis(edges, best[..., None], -1)[..., 0]
    inside = (best > 0) & (best < last)
    return found + np.where(inside, np.clip(move, -NEAREST_EDGE, NEAREST_EDGE), 0.0) * width


def costs_of_levels(problem: LevelProblem, outcomes: OutcomeDistribution, levels: FloatArray) -> FloatArray:
    """The cost of levels S (*labels, H, k) from zero stock, (*labels, k), if labels stay: V_h(x) = G_h(max(x, S_h))."""
    cells, horizon, products = problem.labels.count, problem.horizon, problem.products
    (weights, points), per_step, bins = outcomes.by_cell, (cells, horizon, products), outcomes.points.shape[-1]
    profile = problem.scale_profile.reshape(per_step)
    wanted = levels.reshape(per_step) * profile
    # Demand and stock of every step fit on one axis.
    reach = outcomes.tops.reshape(cells, 1, products) * profile
    tops = np.maximum(reach.max(axis=1), wanted.max(axis=1))
    edges = np.arange(bins + 1) / bins * tops[..., None]
    value = np.zeros_like(edges)
    for step in reversed(range(horizon)):
        demand = on_axis(weights[:, step], points, profile[:, step], tops)
        after = cost_from(problem, step, demand, edges, value)
        value = read_at(after, np.maximum(np.arange(bins + 1.0), (wanted[:, step] / tops * bins)[..., None]))
    return np.asarray(value[..., 0].reshape(*problem.labels.shape, products))


def best_costs(problem: LevelProblem, outcomes: OutcomeDistribution) -> FloatArray:
    """The cost of somebody who knows these laws and may order any amount, (*labels, k)."""
    free, known = problem.changed(boundary=1.0), replace(outcomes, cutoffs=None)
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
    seen = np.minimum(outcomes.explored, outcomes.tops[..., None, :])
    over = np.maximum(outcomes.points[..., None, :, :] - seen[..., None], 0.0)
    return np.asarray((outcomes.weights * over).sum(axis=-1))


def step_costs(problem: LevelProblem, left: FloatArray | float, missing: FloatArray | float) -> FloatArray:
    """h × left + b × missing over all steps, (*labels, k), from means (*labels, H, k)."""
    return np.asarray((problem.of_leftovers(..., left, missing) * problem.scale_profile).sum(axis=-2))
