"""Γ_h: the penalty on the value of a rarely visited node (Bernstein, Qiao and Wang's DP-APVI)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from poolrl.checks import BoolArray, FloatArray, fraction
from poolrl.learning.kernel import Stage

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
        if stage.visits is None:
            raise ValueError("Bernstein pessimism needs visit counts: use counts=Visits(), or pessimism=None")
        rows, states = stage.kernel.shape
        iota = math.log(horizon * (nodes or rows) / self.failure)
        mean = stage.kernel @ value
        variance = np.maximum(stage.kernel @ value**2 - mean**2, 0.0)
        trusted = ~fell_back(stage)
        visits = np.where(trusted, stage.visits, np.inf)
        gamma = C1 * np.sqrt(variance * iota / (visits - stage.noise_bound))
        gamma += C2 * states * horizon * stage.noise_bound * iota / visits
        return np.where(trusted, np.minimum(self.scale * gamma, C * horizon), C * horizon)


def fell_back(stage: Stage) -> BoolArray:
    """Nodes whose visits are noise-dominated (ñ ≤ E_ρ): their kernel is uniform."""
    if stage.visits is None:
        return np.zeros(stage.reward.shape, dtype=bool)
    return np.asarray(stage.visits <= stage.noise_bound)
