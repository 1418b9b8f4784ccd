"""Algorithm 1 of the paper in plain NumPy: complete tables, noise in every cell, dense steps.

A test holds the library against it. The rings, their points and the candidate actions come from the library, because
they are public geometry. Counts, noise, kernel, pessimism and values are written here.
"""

from __future__ import annotations

import math

import numpy as np

from poolrl import Trajectories, Zones
from poolrl.checks import FloatArray
from poolrl.geometry.partition import Partition, Rings
from poolrl.problems.problem import Problem


def published(
    problem: Problem,
    log: Trajectories,
    *,
    zones: int,
    rho: float,
    rng: np.random.Generator | None,
    failure: float = 0.05,
) -> FloatArray:
    """Q̄ at the nodes, (H, N); without `rng` there is no noise, but its bound is still subtracted."""
    partition = Zones(zones).partition(problem)
    horizon, nodes, states = problem.horizon, partition.pair_count, partition.state_count
    sigma = math.sqrt(2 * horizon / rho)
    bound = 4 * math.sqrt(horizon * math.log(4 * horizon * nodes * states / failure) / rho)
    iota = math.log(horizon * nodes / failure)
    ranges = [problem.reward_range(step) for step in range(horizon)]
    scale = max(high - low for low, high in ranges)
    arrival = problem.natural_state(partition.states.points)
    found = np.zeros((horizon, nodes))
    value = np.zeros(states)
    for step in reversed(range(horizon)):
        pairs, joint = _noisy_counts(partition, log, step, sigma, rng)
        joint = _consistent(joint, pairs, bound / 2)
        visits = joint.sum(axis=1)
        trusted = visits > bound
        kernel = np.where(trusted[:, None], joint / np.where(trusted, visits, 1.0)[:, None], 1.0 / states)
        state, action = problem.natural_pair(partition.pairs[step].points)
        rewards = problem.reward(step, state[:, None], action[:, None], arrival[None])
        low, high = ranges[step]
        reward = ((kernel * np.clip(rewards, low, high)).sum(axis=1) - low) / scale
        mean = kernel @ value
        variance = np.maximum(kernel @ value**2 - mean**2, 0.0)
        known = np.where(trusted, visits, np.inf)
        penalty = (
            math.sqrt(2) * np.sqrt(variance * iota / (known - bound)) + 16 * states * horizon * bound * iota / known
        )
        penalty = np.where(trusted, np.minimum(penalty, 2 * horizon), 2 * horizon)
        found[step] = np.clip(reward + mean - penalty, 0.0, horizon - step)
        value = _values(partition, step, found[step])
    return found


def _noisy_counts(
    partition: Partition, log: Trajectories, step: int, sigma: float, rng: np.random.Generator | None
) -> tuple[FloatArray, FloatArray]:
    node = partition.pair_index(step, log.states[:, step], log.actions[:, step])
    target = partition.state_index(log.next_states[:, step])
    shape = partition.pair_count, partition.state_count
    joint = np.zeros(shape)
    np.add.at(joint, (node[node >= 0], target[node >= 0]), 1.0)
    pairs = joint.sum(axis=1)
    if rng is not None:
        pairs = pairs + np.rint(rng.normal(0.0, sigma, shape[0]))
        joint = joint + np.rint(rng.normal(0.0, sigma, shape))
    return pairs, joint


def _consistent(joint: FloatArray, total: FloatArray, slack: float) -> FloatArray:
    joint, total = np.maximum(joint, 0.0), np.maximum(total, 0.0)
    low, high = np.maximum(total - slack, 0.0), total + slack
    sums = joint.sum(axis=1)
    raised = joint + np.maximum(low - sums, 0.0)[:, None] / joint.shape[1]
    descending = -np.sort(-joint, axis=1)
    t = ((np.cumsum(descending, axis=1) - high[:, None]) / np.arange(1, joint.shape[1] + 1)).max(axis=1)
    return np.where((sums > high)[:, None], np.maximum(joint - np.maximum(t, 0.0)[:, None], 0.0), raised)


def _values(partition: Partition, step: int, q: FloatArray) -> FloatArray:
    """The best candidate in every state node, each read from the points of its ring."""
    problem, rings = partition.problem, partition.pairs[step]
    assert isinstance(rings, Rings)
    corners, radius = rings.corners, rings.radius
    count, size, reach = len(corners), corners.shape[1], problem.boundary.reach[step]
    state = problem.natural_state(partition.states.points)
    low, high = problem.allowed(step, state)
    best = np.full(len(state), -np.inf)
    for share in partition.candidates:
        unit = problem.unit_pair(state, low + share * (high - low))
        unit = np.where((unit <= reach + 1e-9).all(axis=1, keepdims=True), unit, reach)
        ring = np.clip(np.floor(np.linalg.norm(unit, axis=1) * count / radius), 0, count - 1).astype(int)
        raw = np.maximum(np.linalg.solve(corners[ring].transpose(0, 2, 1), unit[..., None])[..., 0], 0.0)
        total = raw.sum(axis=1, keepdims=True)
        convex = np.where(total > 0, raw / np.where(total > 0, total, 1.0), 1.0 / size)
        best = np.maximum(best, (q.reshape(count, size)[ring] * convex).sum(axis=1))
    return best
