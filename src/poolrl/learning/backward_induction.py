"""Backward induction: one loop for every count and every value representation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray
from poolrl.geometry.axes import Axes
from poolrl.geometry.partition import Partition
from poolrl.learning.kernel import Stage, Stages
from poolrl.learning.pessimism import Bernstein, fell_back


@dataclass(frozen=True)
class Solution:
    """Q_h at the nodes, (H, ..., N), and two shares of all nodes."""

    q: FloatArray
    fell_back: float  # visited too rarely to be trusted
    clipped: float  # with a pessimistic value that was cut at zero


def pessimistic_q(reward: FloatArray, expected: FloatArray, penalty: FloatArray, *, ceiling: float) -> FloatArray:
    """One Bellman backup, lowered by its uncertainty (Algorithm 1, lines 7-10).

    Q̄ₕ(b) = clip( rₕ(b) + Σₛ′ P̃ₕ(s′|b) Ṽₕ₊₁(s′) − Γₕ(b),  0,  H−h+1 )
    """
    return np.clip(reward + expected - penalty, 0.0, ceiling)


def backward_induction(
    horizon: int,
    stages: Stages,
    values: Axes | Partition,
    *,
    pessimism: Bernstein | None = None,
    reward_ranges: list[tuple[float, float]] | None = None,
) -> Solution:
    """Qₕ = rₕ + P̃ₕ Vₕ₊₁ from the last step to the first, V_{H+1} = 0.

    Pessimism needs rewards in [0, 1]. So the rewards of each step are shifted by `reward_ranges` and divided by the
    widest range, which changes no decision. Nodes in no stage stay at zero, the lowest value under pessimism.
    """
    ranges = reward_ranges or [(0.0, 1.0)] * horizon
    scale = max(high - low for low, high in ranges) or 1.0
    solved = np.zeros((horizon, *values.q_shape))
    untrusted: list[float] = []
    cut: list[float] = []
    value = np.zeros(values.v_shape)
    for step in reversed(range(horizon)):
        q = solved[step]
        trusted = kept = 0
        for stage in stages(step):
            trusted += int(np.sum(~fell_back(stage))) if isinstance(stage, Stage) else q.size
            if pessimism is None:
                q[..., stage.rows] = stage.backup(value)
                continue
            assert isinstance(stage, Stage)  # pessimism needs visit counts
            expected = stage.kernel @ value
            reward = (stage.reward - ranges[step][0]) / scale
            penalty = pessimism.penalty(stage, value, horizon=horizon, nodes=q.shape[-1])
            q[..., stage.rows] = pessimistic_q(reward, expected, penalty, ceiling=horizon - step)
            kept += int(np.sum(reward + expected - penalty >= 0))
        untrusted.append(1 - trusted / q.size)
        cut.append(1 - kept / q.size)
        value = values.state_values(step, q)
    return Solution(solved, float(np.mean(untrusted)), float(np.mean(cut)) if pessimism else 0.0)
