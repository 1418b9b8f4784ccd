"""The paper's bounds as functions, and the errors that they bound, measured.

Õ hides constants and logarithms: the functions take the hidden constant as one. Rewards lie in [0, 1] at each step, so
no policy can lose more than H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray, fraction, positive, whole
from poolrl.geometry.zones import Zones
from poolrl.privacy.zcdp import noise_bound
from poolrl.problems.inventory import LostSales


@dataclass(frozen=True)
class Sizes:
    """What the bounds depend on."""

    horizon: int  # H
    state_dim: int  # w
    action_dim: int  # d
    zones: int  # M
    rho: float
    failure: float = 0.05  # δ

    def __post_init__(self) -> None:
        whole(horizon=self.horizon, state_dim=self.state_dim, action_dim=self.action_dim, zones=self.zones)
        positive(rho=self.rho)
        fraction(failure=self.failure)

    @property
    def dimensions(self) -> int:
        """w + d."""
        return self.state_dim + self.action_dim

    @property
    def noise_bound(self) -> float:
        """E_ρ = 4 √(H log(4 H M² w (w + d) / δ) / ρ)."""
        cells = self.horizon * self.zones**2 * self.state_dim * self.dimensions
        return noise_bound(variance=2 * self.horizon / self.rho, cells=cells, failure=self.failure)


def approximation_bound(sizes: Sizes, *, lipschitz: float, boundary_norm: float) -> float:
    """Theorem 1 at the first step: L₁ √(w + d) / M + L₁ |w + d − ‖λ‖₂|, with L₁ = H L.

    Even where everything is observed the second term is not zero: ‖(1, …, 1)‖₂ = √(w + d) < w + d.
    """
    first = sizes.horizon * lipschitz
    return first * math.sqrt(sizes.dimensions) / sizes.zones + first * abs(sizes.dimensions - boundary_norm)


def optimality_bound(
    sizes: Sizes, *, trajectories: int, lipschitz: float, boundary_norm: float, least_visited: float | None = None
) -> float:
    """The appendix's bound on v* − v^π̃, at its most favourable.

    4√2 Σ_h √(Var ι / (n d̄)) + (H³ + M w H² E_ρ) / (n d̄) + Theorem 1's two terms, with ι = log(H M (w + d) / δ).
    `least_visited` is d̄, by default its best possible value: all M(w + d) nodes visited equally often. Var is taken
    as (H − h)² / 4, the most it can be.
    """
    nodes = sizes.zones * sizes.dimensions
    share = least_visited if least_visited is not None else 1 / nodes
    iota = math.log(sizes.horizon * nodes / sizes.failure)
    spread = sum(left / 2 for left in range(sizes.horizon)) * math.sqrt(iota / (trajectories * share))
    rest = sizes.horizon**3 + sizes.zones * sizes.state_dim * sizes.horizon**2 * sizes.noise_bound
    approximation = approximation_bound(sizes, lipschitz=lipschitz, boundary_norm=boundary_norm)
    return 4 * math.sqrt(2) * spread + rest / (trajectories * share) + approximation


def sample_size(sizes: Sizes, *, accuracy: float) -> float:
    """Theorem 2's n = (1 + E_ρ) H³ / α². (Its statement prints α⁻¹; the proof and the rest of the paper have α⁻².)"""
    positive(accuracy=accuracy)
    return (1 + sizes.noise_bound) * sizes.horizon**3 / accuracy**2


def zone_count(sizes: Sizes, *, accuracy: float, lipschitz: float) -> float:
    """The M that Theorem 2 asks for: L₁ √(w + d) / α."""
    positive(accuracy=accuracy)
    return sizes.horizon * lipschitz * math.sqrt(sizes.dimensions) / accuracy


def measured_approximation(products: int, zones: int, *, rng: np.random.Generator) -> tuple[float, float]:
    """The largest |Q̲ − Q̄| over random feasible pairs in one step of lost sales, and the reward's Lipschitz constant.

    h = b = 1 for every product, D ~ U[0, 1]: the expected virtual reward is known at every pair, so that the error
    comes from reading between the nodes alone. The constant is the usual one (norm of the difference).
    """
    problem = LostSales(horizon=1, products=products, holding=1.0, shortage=1.0, demand_max=1.0)
    partition = Zones(zones).partition(problem)
    low, high = problem.reward_range(0)

    def reward(action: FloatArray) -> FloatArray:
        """E[−(y − D)⁺ + min(y, D)] = Σ y − y², scaled to [0, 1]."""
        return ((action - action**2).sum(axis=-1) - low) / (high - low)

    at_nodes = reward(problem.natural_pair(partition.pairs[0].points)[1])
    state = rng.uniform(0, 1, (20_000, products))
    action = rng.uniform(state, 1.0)
    read = partition.read(0, at_nodes, state, action)
    # |∇ Σ y − y²| ≤ √k on the cube, divided by the range 2k.
    return float(np.abs(read - reward(action)).max()), math.sqrt(products) / (high - low)
