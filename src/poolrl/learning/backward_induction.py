"""Backward induction on the nodes of a partition, and on the axes of a separable problem.

At nodes the estimated world comes in stages, of one step each: from visits of nodes (the paper's kernel P̃_h) or from a
distribution of outcomes. Γ_h is the penalty on the value of a rarely visited node (Bernstein, Qiao and Wang's DP-APVI).
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray, fraction
from poolrl.geometry.axes import Axes
from poolrl.geometry.partition import Partition
from poolrl.geometry.resolution import FINER_POINTS, OUTCOME_DRAWS
from poolrl.learning.law import Law
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.stored import Planned
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


@dataclass(frozen=True)
class Stage:
    """Nodes with their expected rewards and kernel."""

    reward: FloatArray  # (rows,) expected reward at each node
    kernel: FloatArray  # (rows, S) rows sum to one
    visits: FloatArray  # (rows,) private visit counts ñ; infinite where outcomes tell the kernel
    noise_bound: float = 0.0  # E_ρ
    rows: IntArray | slice = field(default_factory=lambda: slice(None))  # by default all nodes

    @property
    def trusted(self) -> BoolArray:
        """Nodes whose visits are not noise-dominated, ñ > E_ρ. The kernel of others is uniform."""
        return np.asarray(self.visits > self.noise_bound)


Stages = Callable[[int], Iterable[Stage]]
# A step is given in blocks of rows, because a kernel (N, S) rarely fits in memory.
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

    def stage(step: int, rows: IntArray, kernel: FloatArray, visits: FloatArray) -> Stage:
        state, action = problem.natural_pair(partition.pairs[step].points[rows])
        rewards = problem.reward(step, state[:, None], action[:, None], arrival[None, :])
        # A node and a next node may not fit each other (less stock before than after), so rewards are clipped.
        expected = (kernel * np.clip(rewards, *problem.reward_range(step))).sum(axis=1)
        return Stage(np.asarray(expected), kernel, visits, bound, rows)

    def stages(step: int) -> Iterator[Stage]:
        pairs = released.pairs[step]
        # A consistent row sums to at most n′ + E_ρ/2. If that is not above E_ρ, the row need not be drawn.
        hopeful = np.maximum(pairs, 0) > bound / 2
        for rows in _blocks(np.flatnonzero(hopeful), partition):
            joint = consistent_counts(released.transitions(step, rows), pairs[rows], slack=bound / 2)
            visits = joint.sum(axis=1)
            trusted = visits > bound
            kernel = np.where(trusted[:, None], joint / np.where(trusted, visits, 1.0)[:, None], uniform)
            yield stage(step, rows, kernel, visits)
        for rows in [] if trusted_only else _blocks(np.flatnonzero(~hopeful), partition):
            yield stage(step, rows, np.tile(uniform, (len(rows), 1)), np.zeros(len(rows)))

    return stages


def _blocks(rows: IntArray, partition: Partition, *, per_row: int | None = None) -> list[IntArray]:
    size = max(1, BLOCK_CELLS // ((per_row or partition.state_count) * partition.problem.state_dim))
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def consistent_counts(joint: FloatArray | IntArray, total: FloatArray | IntArray, *, slack: float) -> FloatArray:
    """Move joint counts (N, S) as little as possible in the sup norm until their sums fit the totals (N,).

        min_x max_s |x_s − n′_s⁺|   subject to   |Σ x_s − n′⁺| ≤ E_ρ/2,   x ≥ 0

    A sum that is too small is raised evenly. One that is too large is lowered evenly, down to zero, by the largest
    t_j = (Σ_{i≤j} n_(i) − high) / j over its counts, sorted from the largest.
    """
    moved = np.maximum(joint, 0.0).astype(np.float64, copy=False)
    expected = np.maximum(total, 0.0).astype(np.float64, copy=False)
    low, high = np.maximum(expected - slack, 0.0), expected + slack
    moved += (np.maximum(low - moved.sum(axis=1), 0.0) / moved.shape[1])[:, None]
    excess = np.cumsum(-np.sort(-moved, axis=1), axis=1) - high[:, None]
    lowered = np.maximum((excess / np.arange(1, moved.shape[1] + 1)).max(axis=1), 0.0)
    return np.maximum(moved - lowered[:, None], 0.0)


def quasi_outcomes(outcomes: OutcomeDistribution, many: int, together: float) -> FloatArray:
    """Quasi-random outcomes of every step, (H, many, k), drawn from an estimate without labels."""
    horizon, products, _ = outcomes.weights.shape
    uniform, drawn = quasi_together(products, many, together), np.empty((horizon, many, products))
    for step, i in np.ndindex(horizon, products):
        drawn[step, :, i] = outcomes.points[i, Law(outcomes.weights[step, i]).bins_at(uniform[:, i])]
    return drawn


def stages_from_outcomes(outcomes: OutcomeDistribution, partition: Partition, together: float = 0.0) -> Stages:
    """Replay: every node meets the same quasi-random outcomes, drawn from the estimate."""
    problem = partition.problem
    assert isinstance(problem, OutcomeProblem)  # only such a problem has an estimate of outcomes
    every = quasi_outcomes(outcomes, OUTCOME_DRAWS, together)

    def stages(step: int) -> Iterator[Stage]:
        drawn, targets = every[step], partition.state_count
        for rows in _blocks(np.arange(partition.pair_count), partition, per_row=max(OUTCOME_DRAWS, targets)):
            state, action = problem.natural_pair(partition.pairs[step].points[rows])
            arrived = problem.next_state(step, state[:, None], action[:, None], drawn[None, :])  # (N, replays, w)
            reward = problem.reward(step, state[:, None], action[:, None], arrived).mean(axis=1)
            state_of = arrived[..., : problem.state_dim].reshape(-1, problem.state_dim)
            target, weight = partition.states.weights(problem.unit_state(state_of))
            cell = np.repeat(np.arange(len(rows)), OUTCOME_DRAWS)[:, None] * targets + target
            kernel = np.bincount(cell.ravel(), weight.ravel() / OUTCOME_DRAWS, minlength=len(rows) * targets)
            moves = kernel.reshape(-1, targets).astype(np.float64, copy=False)
            yield Stage(reward, moves, np.full(len(rows), np.inf), rows=rows)

    return stages


# Algorithm 1 asks for C > 1. Any such value is clipped to Q = 0.
C1, C2, C = math.sqrt(2), 16.0, 2.0


@dataclass(frozen=True)
class Bernstein:
    """The paper's penalty with its printed constants; `failure` is the δ in ι.

    `scale` multiplies Γ where visits are trusted. Other nodes keep the penalty C H, or they would look better.
    """

    scale: float = 1.0
    failure: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.scale < math.inf:
            raise ValueError(f"scale must be finite and not negative, got {self.scale!r}")
        fraction(failure=self.failure)

    def penalty(self, stage: Stage, value: FloatArray, *, horizon: int, nodes: int | None = None) -> FloatArray:
        """Γ(b), with rewards in [0, 1]; `nodes` is N where the stage has only some of them.

        Γ = C₁ √(Var_P̃(Ṽ) ι / (ñ − E_ρ)) + C₂ S H E_ρ ι / ñ    where ñ > E_ρ,   C H elsewhere
        ι = log(H N / δ)
        """
        rows, states = stage.kernel.shape
        iota = math.log(horizon * (nodes or rows) / self.failure)
        mean = stage.kernel @ value
        variance = np.maximum(stage.kernel @ value**2 - mean**2, 0.0)
        visits = np.where(stage.trusted, stage.visits, np.inf)
        gamma = C1 * np.sqrt(variance * iota / (visits - stage.noise_bound))
        gamma += C2 * states * horizon * stage.noise_bound * iota / visits
        return np.where(stage.trusted, np.minimum(self.scale * gamma, C * horizon), C * horizon)


# So few numbers at a time that they stay in the processor's cache.
CACHED_NUMBERS = 2**15


def expected_on_axes(
    outcomes: OutcomeDistribution, axes: Axes, step: int, state: FloatArray, action: FloatArray, value: FloatArray
) -> FloatArray:
    """Σ w (r + V) over every coordinate's outcomes at states and actions, (N, k): V is linear between axis points."""
    problem, axis = axes.problem, axes.state_axis()
    drawn, sums = outcomes.points.T, np.empty(action.shape)  # (B, k)
    block = max(1, CACHED_NUMBERS // drawn.size)
    for start in range(0, len(action), block):
        here, chosen = (part[start : start + block, None] for part in (state, action))
        arrived = problem.next_state(step, here, chosen, drawn[None])  # (rows, B, k)
        reward = problem.coordinate_reward(step, here, chosen, arrived)
        for i in range(problem.state_dim):
            future = np.interp(arrived[..., i], axis[:, i], value[i])
            sums[start : start + block, i] = (reward[..., i] + future) @ outcomes.weights[step, i]
    return sums


def induction_on_axes(outcomes: OutcomeDistribution, axes: Axes) -> tuple[FloatArray, FloatArray | None]:
    """Q_h at the nodes, (H, k, N), and the best levels (H, k) where the action alone decides what happens next."""
    horizon, by_level = axes.problem.horizon, axes.problem.action_sets_state
    q, value = np.empty((horizon, *axes.q_shape)), np.zeros((axes.problem.state_dim, axes.points))
    levels = np.empty((horizon, axes.problem.state_dim))
    for step in reversed(range(horizon)):
        q[step] = expected_on_axes(outcomes, axes, step, *axes.nodes(step), value).T
        if by_level:
            levels[step] = _finer_levels(outcomes, axes, step, q[step], value)
        value = axes.state_values(step, q[step])
    return q, levels if by_level else None


def _finer_levels(outcomes: OutcomeDistribution, axes: Axes, step: int, q: FloatArray, value: FloatArray) -> FloatArray:
    """The best action of each coordinate (k,). The axis only brackets it.

    Q_h is concave around its maximum, so a second, finer search finds it.
    """
    problem, column = axes.problem, np.arange(axes.problem.state_dim)
    axis, best = axes.action_axis(step), q.argmax(axis=1)
    low = axis[np.maximum(best - 1, 0), column]
    high = axis[np.minimum(best + 1, axes.points - 1), column]
    fine = np.linspace(low, high, FINER_POINTS)  # (F, k)
    lowest = np.broadcast_to(problem.state_low, fine.shape)
    expected = expected_on_axes(outcomes, axes, step, lowest, fine, value)
    return np.clip(fine[expected.argmax(axis=0), column], *problem.allowed(step, problem.state_low))


def backward_induction(
    stages: Stages, nodes: Partition, pessimism: Bernstein | None = None
) -> tuple[FloatArray, Planned]:
    """Q at the nodes, (H, N), from the last step to the first, and what is said of them. V_{H+1} = 0.

        Qₕ(b) = rₕ(b) + Σₛ′ P̃ₕ(s′|b) Ṽₕ₊₁(s′)
        Q̄ₕ(b) = clip( Qₕ(b) − Γₕ(b),  0,  H−h+1 )       with pessimism (Algorithm 1, lines 7-10)

    Pessimism needs rewards in [0, 1]: they are shifted by their least and divided by the widest range, which changes no
    decision. Nodes in no stage stay at zero, the lowest value under pessimism.
    """
    problem = nodes.problem
    ranges = [problem.reward_range(step) for step in range(problem.horizon)]
    scale = max(high - low for low, high in ranges) or 1.0
    solved = np.zeros((problem.horizon, nodes.pair_count))
    shares: list[tuple[float, float]] = []
    value = np.zeros(nodes.state_count)
    for step in reversed(range(problem.horizon)):
        q = solved[step]
        trusted = kept = 0
        for stage in stages(step):
            trusted += int(np.sum(stage.trusted))
            expected = stage.kernel @ value
            if pessimism is None:
                q[stage.rows] = stage.reward + expected
                continue
            reward = (stage.reward - ranges[step][0]) / scale
            lowered = reward + expected - pessimism.penalty(stage, value, horizon=problem.horizon, nodes=q.size)
            q[stage.rows] = np.clip(lowered, 0.0, problem.horizon - step)
            kept += int(np.sum(lowered >= 0))
        shares.append((1 - trusted / q.size, 1 - kept / q.size))
        value = nodes.state_values(step, q)
    untrusted, cut = (float(np.mean(share)) for share in zip(*shares, strict=True))
    return solved, Planned(solved[0].size, untrusted, cut if pessimism else 0.0)
