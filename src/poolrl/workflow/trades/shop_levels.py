"""Levels of a shop as people look at them: what empty shelves and λ hid, and averages over label cells."""

from __future__ import annotations

import numpy as np

from poolrl.checks import BoolArray, FloatArray
from poolrl.learning.levels import unsettled_levels
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.policy import Policy
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import ROUNDING
from poolrl.workflow.forecast import ProductCosts


def shop_of(policy: Policy) -> tuple[Inventory, OutcomeDistribution]:
    """The shop of a policy, and its laws of demand."""
    problem, outcomes = policy.problem, policy.outcomes
    assert isinstance(problem, Inventory)
    assert outcomes is not None
    return problem, outcomes


def hidden_from(policy: Policy) -> list[ProductCosts]:
    """What was hidden, product by product, without costs.

    With labels a step is named if half of the cells say it, each of them counted as often as it occurs.
    """
    (problem, outcomes), names = shop_of(policy), policy.names
    above = outcomes.points[..., None, :, :] > log_levels(policy)[..., None]
    beyond = (outcomes.weights * above).sum(axis=-1) / outcomes.weights.sum(axis=-1)
    binds, untried, often = (
        average_over_cells(problem, outcomes, part.astype(np.float64))
        for part in (levels_at_limit(policy), levels_seldom_tried(policy), beyond)
    )

    def steps(shares: FloatArray) -> list[str]:
        return [name for name, share in zip(names.steps, shares, strict=True) if share >= 0.5]

    return [
        ProductCosts(product, None, None, None, steps(binds[:, i]), steps(untried[:, i]), float(often[:, i].mean()))
        for i, product in enumerate(names.products)
    ]


def levels_at_limit(policy: Policy) -> BoolArray:
    """Which levels (*labels, H, k) stand at λ: orders were never let go further."""
    problem, _ = shop_of(policy)
    limit = problem.share * problem.label_bounds[..., None, :]
    return np.asarray(log_levels(policy) >= limit * (1 - 1e3 * ROUNDING))


def levels_seldom_tried(policy: Policy) -> BoolArray:
    """Which levels (*labels, H, k) lie beyond the explored range: fewer than a tenth of past orders went as far."""
    return np.asarray(log_levels(policy) > shop_of(policy)[1].explored * (1 + ROUNDING))


def log_levels(policy: Policy) -> FloatArray:
    """The levels as multiples of the log's own scale, where the policy's orders will change that scale."""
    if policy.guarantee.scale_memory == 0:
        return policy.levels
    return unsettled_levels(*shop_of(policy), policy.levels)


def cell_shares(problem: Inventory, outcomes: OutcomeDistribution) -> FloatArray:
    """How common each label cell is, (*labels), by the released trees."""
    if outcomes.slots is None:
        return np.full(problem.labels.shape, 1 / problem.labels.count)
    many = np.maximum(outcomes.slots.sum(axis=(-2, -1)), 0.0) + 1e-9
    return np.asarray(many / many.sum())


def average_over_cells(problem: Inventory, outcomes: OutcomeDistribution, values: FloatArray) -> FloatArray:
    """Values (*labels, ...) averaged over label cells."""
    labels = len(problem.labels.shape)
    shares = cell_shares(problem, outcomes)
    return np.asarray(
        (shares.reshape(shares.shape + (1,) * (values.ndim - labels)) * values).sum(axis=tuple(range(labels)))
    )
