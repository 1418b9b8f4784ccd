"""The methods that POOL is compared with, each a short composition that states its guarantee.

IP and OP run over the default learner, so that they differ from it only in where the noise goes.
"""

from __future__ import annotations

import math

import numpy as np

from poolrl.data.trajectories import Trajectories
from poolrl.geometry.axes import Separable
from poolrl.geometry.grid import Grid
from poolrl.learning.kernel import Visits
from poolrl.learning.pessimism import Bernstein
from poolrl.learning.policy import Policy
from poolrl.learning.rules import Levels
from poolrl.pool import Pool
from poolrl.privacy.guarantee import Guarantee
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.noise.source import NoiseSource
from poolrl.privacy.release import release_levels, release_rows
from poolrl.privacy.zcdp import budget
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import SeparableProblem


def non_private(points: int | None = None) -> Pool:
    """NonPrivate: the default learner with ρ = ∞. Guarantee: none."""
    return Pool(math.inf, values=Separable(points))


def dp_apvi(rho: float, bins: int, *, scale: float = 1.0, failure: float = 0.05) -> Pool:
    """Qiao and Wang's DP-APVI (arXiv 2206.00810) on a grid of `bins` cells per axis, the paper's comparison in RQ3.

    Guarantee: ρ-zCDP, by the same two tables of visits as POOL; only the nodes differ.
    """
    return Pool(rho, Visits(failure), Grid(bins), Bernstein(scale, failure))


def partial_discretisation(zones: int) -> Pool:
    """Qin et al.'s partial discretisation as POOL describes it: its zones at w = d = 1, without noise.

    Guarantee: none.
    """
    return Pool.published(math.inf, zones, scale=0.0)


def input_perturbation(
    problem: SeparableProblem,
    log: Trajectories,
    rho: float,
    *,
    points: int | None = None,
    noise: NoiseSource | None = None,
) -> Policy:
    """IP: noise on every logged number, then the default learner on the noisy log.

    In its favour, states are not logged twice: a trajectory starts at the public initial state, and each later state
    is the noisy next state before it.

    Guarantee: ρ-zCDP for one trajectory (`release_rows`); the rest is post-processing.
    """
    rows = release_rows(log, problem, rho=budget(rho), noise=noise or SecureNoise())
    first = np.broadcast_to(problem.initial_state, (len(rows.actions), 1, problem.state_dim))
    after = np.clip(rows.next_states, problem.state_low, problem.state_high)
    noisy = Trajectories(
        states=np.concatenate([first, after[:, :-1]], axis=1), actions=rows.actions, next_states=after
    ).clipped(problem)
    learned = non_private(points).fit(problem, noisy)
    return Policy(problem, learned.rule, rows.guarantee, learned.report)


def output_perturbation(
    problem: SeparableProblem,
    log: Trajectories,
    rho: float,
    *,
    points: int | None = None,
    noise: NoiseSource | None = None,
) -> Policy:
    """OP: the default learner without privacy, then noise on its table of order-up-to levels.

    Guarantee: ρ-zCDP for one unit (`release_levels`), because every log gives levels in their public range.
    """
    learned = non_private(points).fit(problem, log)
    noisy = release_levels(learned.levels, log, problem, rho=budget(rho), noise=noise or SecureNoise())
    inside = np.clip(noisy.levels, problem.action_low, problem.action_high)
    return Policy(problem, Levels(inside), noisy.guarantee)  # no budget was paid for the learner's report


def order_to_the_middle(problem: Inventory) -> Policy:
    """Order up to half of the public bound, whatever the costs. Guarantee: no log is read."""
    levels = np.tile(problem.demand_max / 2, (problem.horizon, 1))
    return Policy(problem, Levels(levels), Guarantee.of_nothing(problem.horizon))
