"""What past decisions earned, by the released counts themselves: no model of outcomes, and nothing assumed of them.

A tree counts rows by what they show, and what a row earned follows from that (`Rounds.reward_weights`). So the sum of
rewards is a sum over leaves, whose noise is known. A model that says something else about the same decisions is not to
be trusted about others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray
from poolrl.geometry.bins import bin_edges
from poolrl.learning.faded_trees import FadedTrees
from poolrl.learning.likelihood import Observed
from poolrl.learning.model import PrivateModel
from poolrl.problems.rounds import Rounds


@dataclass(frozen=True)
class CountedReward:
    """The mean reward of a trajectory, and the standard deviation of its noise."""

    mean: float
    noise: float


def counted_today(trees: FadedTrees, model: PrivateModel) -> CountedReward | None:
    """What the log's own decisions earned; None where counts do not tell it."""
    problem, outcomes = model.problem, model.outcomes
    if not isinstance(problem, Rounds) or outcomes.cutoffs is None:
        return None
    bins = trees.bins
    levels = [level.reshape(-1, *level.shape[-2:]) for level in trees.levels]  # (cells, 2, size)
    observed = Observed.of(levels, trees.variance, bins)
    inverse = np.linalg.inv(observed.precision)
    shape = (-1, problem.horizon, problem.outcome_dim)
    leaves = (observed.sums @ inverse).reshape(*shape, 2, bins)
    if outcomes.higher:
        leaves, inverse = leaves[..., ::-1], inverse[::-1, ::-1]
    laws, tried = (each.reshape(*shape, each.shape[-1]) for each in (outcomes.weights, outcomes.cutoffs))
    points = np.broadcast_to(outcomes.points[..., None, :, :], outcomes.weights.shape).reshape(laws.shape)
    total = variance = 0.0
    for cell, step in np.ndindex(*laws.shape[:2]):
        means = [bin_means(each[cell, step], points[cell, step], problem.outcome_high, bins) for each in (laws, tried)]
        weights = problem.reward_weights(*means)
        if weights is None:
            return None
        of_kinds = np.stack(weights, axis=1)  # (k, 2, B)
        total += float((leaves[cell, step] * of_kinds).sum())
        variance += trees.variance * float(np.einsum("kcb,bd,kcd->", of_kinds, inverse, of_kinds))
    # Trajectories whose first row cannot be used are not among those that earned; later rows may lack for good reasons.
    there = trees.slots
    if outcomes.slots is not None:
        there = float(np.clip(outcomes.slots.reshape(shape)[:, 0, 0].sum(), 0.1 * trees.slots, trees.slots))
    return CountedReward(total / there, variance**0.5 / there)


def bin_means(weights: FloatArray, points: FloatArray, high: FloatArray, bins: int) -> FloatArray:
    """The mean of each law (k, B) inside each of the trees' bins, (k, bins); the middle where a law has nothing."""
    found = np.empty((len(weights), bins))
    for i, (law, at) in enumerate(zip(weights, points, strict=True)):
        edges = bin_edges(bins) * high[i]
        ends = np.append(at - at[0], at[-1] + at[0])
        mass = np.diff(np.interp(edges, ends, np.append(0.0, np.cumsum(law))))
        moment = np.diff(np.interp(edges, ends, np.append(0.0, np.cumsum(law * at))))
        middle = (edges[:-1] + edges[1:]) / 2
        # A bin with almost nothing would have a mean of rounding errors.
        found[i] = np.clip(np.where(mass > 1e-9, moment / np.maximum(mass, 1e-12), middle), edges[:-1], edges[1:])
    return found
