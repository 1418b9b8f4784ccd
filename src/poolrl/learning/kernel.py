"""The world at the nodes of a partition: expected rewards and a transition kernel P̃_h, from either count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from poolrl.checks import FloatArray, IntArray, fraction
from poolrl.geometry.partition import Partition
from poolrl.geometry.resolution import OUTCOME_DRAWS
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.together import quasi_together
from poolrl.privacy.released import PrivateVisits
from poolrl.privacy.zcdp import noise_bound
from poolrl.problems.problem import OutcomeProblem


@dataclass(frozen=True)
class Visits:
    """Learn from private visit counts of nodes, as the paper does; `failure` is the δ in E_ρ and ι."""

    failure: float = 0.05

    def __post_init__(self) -> None:
        fraction(failure=self.failure)


class Backup(Protocol):
    """Some nodes of one step of the estimated world."""

    @property
    def rows(self) -> IntArray | slice:
        """Which nodes."""

    def backup(self, value: FloatArray) -> FloatArray:
        """r + P̃ V at these nodes, (..., rows)."""


@dataclass(frozen=True)
class Stage:
    """Nodes with their expected rewards and kernel."""

    reward: FloatArray  # (rows,) expected reward at each node
    kernel: FloatArray  # (rows, S) rows sum to one
    visits: FloatArray | None = None  # (rows,) private visit counts ñ, if there are any
    noise_bound: float = 0.0  # E_ρ
    rows: IntArray | slice = field(default_factory=lambda: slice(None))  # by default all nodes

    def backup(self, value: FloatArray) -> FloatArray:
        """r + P̃ V."""
        return self.reward + self.kernel @ value


# A step is given in blocks of rows, because a kernel (N, S) rarely fits in memory.
Stages = Callable[[int], Iterable[Backup]]
BLOCK_CELLS = 2_000_000


def stages_from_visits(
    released: PrivateVisits, partition: Partition, settings: Visits, *, trusted_only: bool = False
) -> Stages:
    """The paper's private kernel: consistent counts, uniform where they are noise-dominated.

    `trusted_only` leaves out nodes that are sure to be noise-dominated, for a caller who gives them the lowest value.
    """
    problem = partition.problem
    bound = noise_bound(variance=released.variance, cells=released.cells, failure=settings.failure)
    arrival = problem.natural_state(partition.states.points)
    uniform = np.full(partition.state_count, 1.0 / partition.state_count)

    def expected_reward(step: int, rows: IntArray, kernel: FloatArray) -> FloatArray:
        state, action = problem.natural_pair(partition.pairs[step].points[rows])
        rewards = problem.reward(step, state[:, None], action[:, None], arrival[None, :])
        # A node and a next node may not fit each other (less stock before than after), so rewards are clipped.
        return np.asarray((kernel * np.clip(rewards, *problem.reward_range(step))).sum(axis=1))

    def stages(step: int) -> Iterator[Stage]:
        pairs = released.pairs[step]
        # A consistent row sums to at most n′ + E_ρ/2. If that is not above E_ρ, the row need not be drawn.
        hopeful = np.maximum(pairs, 0) > bound / 2
        for rows in _blocks(np.flatnonzero(hopeful), partition):
            joint = consistent_counts(released.transitions(step, rows), pairs[rows], slack=bound / 2)
            visits = joint.sum(axis=1)
            trusted = visits > bound
            kernel = np.where(trusted[:, None], joint / np.where(trusted, visits, 1.0)[:, None], uniform)
            yield Stage(expected_reward(step, rows, kernel), kernel, visits, bound, rows)
        if not trusted_only:
            for rows in _blocks(np.flatnonzero(~hopeful), partition):
                kernel = np.tile(uniform, (len(rows), 1))
                yield Stage(expected_reward(step, rows, kernel), kernel, np.zeros(len(rows)), bound, rows)

    return stages


def _blocks(rows: IntArray, partition: Partition, *, per_row: int | None = None) -> list[IntArray]:
    size = max(1, BLOCK_CELLS // ((per_row or partition.state_count) * partition.problem.state_dim))
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def consistent_counts(joint: FloatArray | IntArray, total: FloatArray | IntArray, *, slack: float) -> FloatArray:
    """Move joint counts (N, S) as little as possible in the sup norm until their sums fit the totals (N,).

        min_x max_s |x_s − n′_s⁺|   subject to   |Σ x_s − n′⁺| ≤ E_ρ/2,   x ≥ 0

    In closed form: a sum that is too small is raised evenly, one that is too large is lowered evenly down to zero.
    """
    from poolrl.geometry.compiled import in_blocks
    from poolrl.learning.compiled import lower_to

    moved = np.maximum(joint, 0.0).astype(np.float64, copy=False)
    expected = np.maximum(total, 0.0).astype(np.float64, copy=False)
    low, high = np.maximum(expected - slack, 0.0), expected + slack
    moved += (np.maximum(low - moved.sum(axis=1), 0.0) / moved.shape[1])[:, None]
    in_blocks(lambda rows: lower_to(moved[rows], high[rows]), len(moved))
    return moved


def quasi_outcomes(outcomes: OutcomeDistribution, many: int, together: float) -> FloatArray:
    """Quasi-random outcomes of every step, (H, many, k), drawn from an estimate without labels."""
    cumulative = np.cumsum(outcomes.weights, axis=-1)
    horizon, products, bins = cumulative.shape
    uniform, drawn = quasi_together(products, many, together), np.empty((horizon, many, products))
    for step, i in np.ndindex(horizon, products):
        position = np.searchsorted(cumulative[step, i], uniform[:, i] * cumulative[step, i, -1])
        drawn[step, :, i] = outcomes.points[i, np.minimum(position, bins - 1)]
    return drawn


def stages_from_outcomes(outcomes: OutcomeDistribution, partition: Partition, together: float = 0.0) -> Stages:
    """Replay: every node meets the same quasi-random outcomes, drawn from the estimate."""
    problem = partition.problem
    assert isinstance(problem, OutcomeProblem)  # only such a problem has an estimate of outcomes
    every = quasi_outcomes(outcomes, OUTCOME_DRAWS, together)

    def stages(step: int) -> Iterator[Stage]:
        drawn = every[step]
        targets = partition.state_count
        for rows in _blocks(np.arange(partition.pair_count), partition, per_row=max(OUTCOME_DRAWS, targets)):
            state, action = problem.natural_pair(partition.pairs[step].points[rows])
            nodes = len(rows)
            arrived = problem.next_state(step, state[:, None], action[:, None], drawn[None, :])  # (N, replays, w)
            reward = problem.reward(step, state[:, None], action[:, None], arrived).mean(axis=1)
            state_of = arrived[..., : problem.state_dim].reshape(-1, problem.state_dim)
            target, weight = partition.states.weights(problem.unit_state(state_of))
            cell = np.repeat(np.arange(nodes), OUTCOME_DRAWS)[:, None] * targets + target
            kernel = np.bincount(cell.ravel(), weight.ravel() / OUTCOME_DRAWS, minlength=nodes * targets)
            yield Stage(reward, kernel.reshape(nodes, targets).astype(np.float64, copy=False), rows=rows)

    return stages
