"""Backward induction: one loop for every count and every value representation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.kernel import Stage, Stages
from poolrl.learning.pessimism import Bernstein, fell_back


class Values(Protocol):
    """What the loop asks of a value representation."""

    @property
    def q_shape(self) -> tuple[int, ...]:
        """The shape of Q_h, nodes last."""

    @property
    def v_shape(self) -> tuple[int, ...]:
        """The shape of V_h, state nodes last."""

    def state_values(self, step: int, q: FloatArray) -> FloatArray:
        """V_h at the state nodes, the best that Q_h offers there."""


@dataclass(frozen=True)
class Solution:
    """Q_h at the nodes, (H, ..., N), with the report of pessimism as shares of all nodes."""

    q: FloatArray
    fell_back: float  # nodes too seldom visited to be trusted
    clipped: float  # nodes whose pessimistic value was cut at zero


def pessimistic_q(reward: FloatArray, expected: FloatArray, penalty: FloatArray, *, ceiling: float) -> FloatArray:
    """One Bellman backup, lowered by its uncertainty (Algorithm 1, lines 7-10).

    Q̄ₕ(b) = clip( rₕ(b) + Σₛ′ P̃ₕ(s′|b) Ṽₕ₊₁(s′) − Γₕ(b),  0,  H−h+1 )
    """
    return np.clip(reward + expected - penalty, 0.0, ceiling)


def backward_induction(
    horizon: int,
    stages: Stages,
    values: Values,
    *,
    pessimism: Bernstein | None = None,
    reward_ranges: list[tuple[float, float]] | None = None,
) -> Solution:
    """Qₕ = rₕ + P̃ₕ Vₕ₊₁ from the last step to the first, V_{H+1} = 0.

    Pessimism needs rewards in [0, 1]: `reward_ranges` shifts each step's and divides all by the widest, which
    changes no decision. A node of which no stage speaks stays at zero, the bottom under pessimism.
    """
    ranges = reward_ranges or [(0.0, 1.0)] * horizon
    scale = max(high - low for low, high in ranges) or 1.0
    found: list[FloatArray] = []
    untrusted: list[float] = []
    cut: list[float] = []
    value = np.zeros(values.v_shape)
    for step in reversed(range(horizon)):
        q = np.zeros(values.q_shape)
        trusted = kept = 0
        for stage in stages(step):
            if pessimism is None:
                q[..., stage.rows] = stage.backup(value)
                trusted += int(np.sum(~fell_back(stage))) if isinstance(stage, Stage) else q.size
                continue
            assert isinstance(stage, Stage)  # pessimism goes with visit counts
            expected = stage.kernel @ value
            reward = (stage.reward - ranges[step][0]) / scale
            penalty = pessimism.penalty(stage, value, horizon=horizon, nodes=q.shape[-1])
            q[..., stage.rows] = pessimistic_q(reward, expected, penalty, ceiling=horizon - step)
            kept += int(np.sum(reward + expected - penalty >= 0))
            trusted += int(np.sum(~fell_back(stage)))
        untrusted.append(1 - trusted / q.size)
        cut.append(1 - kept / q.size)
        value = values.state_values(step, q)
        found.insert(0, q)
    return Solution(np.stack(found), float(np.mean(untrusted)), float(np.mean(cut)) if pessimism else 0.0)
