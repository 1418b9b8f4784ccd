"""What a budget would buy for problems other than shops: the simulated fits of `poolrl plan`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poolrl.checks import FloatArray
from poolrl.data.trajectories import Trajectories
from poolrl.learning.policy import Policy
from poolrl.pool import Pool
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.problems.problem import OutcomeProblem
from poolrl.simulation.evaluation import data_free, rollout_cost, saa
from poolrl.simulation.logs import simulate_log
from poolrl.simulation.worlds import World
from poolrl.workflow.prediction import AssumedLog, Prediction

# Paths on which policies are compared.
JUDGING_PATHS = 10_000


@dataclass(frozen=True)
class KindPrediction(Prediction):
    """Mean rewards, with their signs turned, as if they were costs; gaps are shares of what can be earned."""

    @property
    def cost(self) -> float:
        """What is earned."""
        return -float(self.costs.sum())

    @property
    def gap(self) -> float:
        """(best − earned) / |best|."""
        return self._missing(self.costs)

    @property
    def free_gap(self) -> float:
        """The same without any data."""
        return self._missing(self.free)

    def _missing(self, costs: FloatArray) -> float:
        best = float(self.best.sum())
        return (float(costs.sum()) - best) / abs(best) if best else float("nan")


class KindSimulator:
    """Simulated logs of one problem, whose decisions are uniform over what is allowed."""

    def __init__(self, problem: OutcomeProblem) -> None:
        self.problem = problem
        self._free = data_free(problem)
        self._judges: dict[World, tuple[FloatArray, Policy]] = {}

    def predict(self, world: World, log: AssumedLog, budgets: Sequence[float], *, seed: int) -> Iterator[Prediction]:
        """One simulated log, fitted at each budget; the seed makes both the log and the noise."""
        problem, rng = self.problem, np.random.default_rng([seed, log.units, log.per_unit])
        known: dict[str, Any] = {}
        if log.per_unit > 1:
            known = {"unit": np.repeat(np.arange(log.units), log.filled), "max_per_unit": log.per_unit}
        outcomes = world.sample(problem, log.units * log.filled, rng)
        simulated: Trajectories = simulate_log(problem, outcomes, rng=rng, **known)
        paths, best = self._judge(world)
        ends = [np.array([rollout_cost(problem, each, paths)]) for each in (best, self._free)]
        for number, rho in enumerate(budgets):
            policy = Pool(rho).fit(problem, simulated, noise=SeededNoise(seed * 1_000 + number))
            cost = np.array([rollout_cost(problem, policy, paths)])
            yield KindPrediction(world.name, rho, log.units, cost, *ends)

    def _judge(self, world: World) -> tuple[FloatArray, Policy]:
        """Paths that policies are compared on, and the policy of somebody who knows the world."""
        if world not in self._judges:
            rng = np.random.default_rng(0)
            best = saa(self.problem, world.sample(self.problem, 2 * JUDGING_PATHS, rng))
            self._judges[world] = world.sample(self.problem, JUDGING_PATHS, rng), best
        return self._judges[world]
