"""What empty shelves and λ hid: where a level stands at its limit, or further than past orders went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.checks import BoolArray, FloatArray
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.policy import Policy
from poolrl.learning.shops import unsettled_levels
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import ROUNDING


@dataclass(frozen=True)
class Hidden:
    """Of one product: step names, and the chance that demand exceeds the level of its step."""

    product: str
    binds: list[str]
    untried: list[str]
    beyond: float


def hidden_from(policy: Policy) -> list[Hidden]:
    """Product by product. With labels a step is named if it is so in half of the cells, as common as they are."""
    problem, outcomes, names = policy.problem, policy.outcomes, policy.names
    assert isinstance(problem, Inventory)
    assert outcomes is not None
    beyond = _share_above(outcomes, outcomes.weights, log_levels(policy))
    binds, untried, often = (
        average_over_cells(problem, outcomes, part.astype(np.float64))
        for part in (levels_at_limit(policy), levels_seldom_tried(policy), beyond)
    )
    return [
        Hidden(
            product,
            [name for name, share in zip(names.steps, binds[:, i], strict=True) if share >= 0.5],
            [name for name, share in zip(names.steps, untried[:, i], strict=True) if share >= 0.5],
            float(often[:, i].mean()),
        )
        for i, product in enumerate(names.products)
    ]


def levels_at_limit(policy: Policy) -> BoolArray:
    """Which levels (*labels, H, k) stand at λ: orders were never let go further."""
    problem = policy.problem
    assert isinstance(problem, Inventory)
    limit = problem.share * problem.label_bounds[..., None, :]
    return np.asarray(log_levels(policy) >= limit * (1 - 1e3 * ROUNDING))


def levels_seldom_tried(policy: Policy) -> BoolArray:
    """Which levels (*labels, H, k) lie beyond the explored range: fewer than a tenth of past orders went as far."""
    assert policy.outcomes is not None
    return np.asarray(log_levels(policy) > policy.outcomes.explored * (1 + ROUNDING))


def log_levels(policy: Policy) -> FloatArray:
    """The levels as multiples of the log's own scale, where the policy's orders will change that scale."""
    assert isinstance(policy.problem, Inventory)
    assert policy.outcomes is not None
    if policy.guarantee.scale_memory == 0:
        return policy.levels
    return unsettled_levels(policy.problem, policy.outcomes, policy.levels)


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


def _share_above(outcomes: OutcomeDistribution, law: FloatArray, levels: FloatArray) -> FloatArray:
    """How much of each law (*labels, H, k, B) lies above a level (*labels, H, k)."""
    return np.asarray((law * (outcomes.points[..., None, :, :] > levels[..., None])).sum(axis=-1) / law.sum(axis=-1))
