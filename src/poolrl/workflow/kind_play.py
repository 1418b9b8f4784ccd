"""Policies and past decisions, played on the same outcomes of one released model: post-processing, at no cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.learning.model import PrivateModel
from poolrl.learning.policy import Policy
from poolrl.problems.rounds import Rounds

# Paths on which policies are compared.
PLAYED_PATHS = 4_000
# A log in which fewer rounds succeed, or fail, leaves the others out, it seems.
RARELY = 0.01
# Decisions that differ by more than this factor should succeed unlike each other, by more than this share.
WIDE, HARDLY_CHANGES = 1.5, 0.08


@dataclass(frozen=True)
class PastDecisions:
    """Decisions as the log shows them, drawn from their released laws: a behaviour for simulated logs."""

    laws: FloatArray  # (cells, H, B) of decisions on points (cells, B)
    points: FloatArray
    cells: IntArray  # the label cell of each path

    def __call__(self, step: int, state: FloatArray, rng: np.random.Generator) -> FloatArray:
        """One decision for each path, (m, 1)."""
        below = np.cumsum(self.laws[self.cells, step], axis=-1)
        place = (below < rng.random((len(state), 1)) * below[:, -1:]).sum(axis=1).clip(0, below.shape[1] - 1)
        points = self.points[self.cells]
        width = points[:, 1] - points[:, 0]
        return (points[np.arange(len(state)), place] + (rng.random(len(state)) - 0.5) * width)[:, None]


class Played:
    """Policies played on the same outcomes of one model."""

    def __init__(self, model: PrivateModel, rng: np.random.Generator) -> None:
        self.model, self.problem = model, model.problem
        self.cells = label_cells_of(model, PLAYED_PATHS, rng)
        self.paths = drawn_alike(model, self.cells, rng)
        self.past = past_decisions(model, self.cells)

    def earned(self, policy: Policy) -> float:
        """By a policy, a path on average."""

        def act(step: int, state: FloatArray, rng: np.random.Generator) -> FloatArray:
            return policy.rule.act(policy.problem, step, state, self.cells)

        return self._average(act)

    def earned_today(self) -> float | None:
        """By decisions as they were made, if the log tells them."""
        return None if self.past is None else self._average(self.past)

    @property
    def spread_today(self) -> float:
        """The standard deviation of what one trajectory earns so."""
        assert self.past is not None
        return float(self._rewards(self.past).std())

    def successes(self) -> float:
        """How often past decisions succeed in the first round, by the model."""
        return float(self._tried()[1].mean())

    def varied(self) -> bool:
        """Whether past decisions are known, and some of them succeed and some do not, by the model."""
        return self.past is not None and RARELY < self.successes() < 1 - RARELY

    def hardly_matters(self) -> bool:
        """Whether low and high decisions of the past lie far apart, and succeed about equally often, by the model.

        Within label cells, because things of another label are other things.
        """
        action, success = self._tried()
        wide, change, many = 0.0, 0.0, np.bincount(self.cells)
        for cell in np.flatnonzero(many):
            mine, hit = action[self.cells == cell], success[self.cells == cell]
            lowest, low, high, highest = np.quantile(mine, [0.1, 1 / 3, 2 / 3, 0.9])
            share = many[cell] / len(action)
            wide += share * float(highest > WIDE * max(lowest, 1e-12))
            change += share * float(hit[mine >= high].mean() - hit[mine <= low].mean())
        return wide > 0.5 and abs(change) < HARDLY_CHANGES

    def _tried(self) -> tuple[FloatArray, BoolArray]:
        """Past decisions of the first round, and whether they succeed."""
        problem = self.problem
        assert isinstance(problem, Rounds)
        assert self.past is not None
        action = self.past(0, self.paths[:, 0], np.random.default_rng(1))
        return action[:, 0], problem.succeeds(action, self.paths[:, 0])[:, 0]

    def _average(self, act: Any) -> float:
        return float(self._rewards(act).mean())

    def _rewards(self, act: Any) -> FloatArray:
        problem, rng = self.problem, np.random.default_rng(1)
        state, total = np.tile(problem.initial_state, (PLAYED_PATHS, 1)), np.zeros(PLAYED_PATHS)
        for step in range(problem.horizon):
            low, high = problem.feasible(step, state)
            action = np.clip(act(step, state, rng), low, high)
            total -= problem.cost(step, state, action, self.paths[:, step])
            state = problem.next_state(step, state, action, self.paths[:, step])[..., : problem.state_dim]
        return total


def drawn_alike(model: PrivateModel, cells: IntArray, rng: np.random.Generator) -> FloatArray:
    """Outcomes (m, H, k) of trajectories in label cells (m,), each coordinate at the same share of its law.

    So the highest bid is never below the second. What rewards are on average depends on each law alone (`by_count`).
    """
    problem, outcomes = model.problem, model.outcomes
    laws = outcomes.weights.reshape(-1, *outcomes.weights.shape[-3:])
    points = outcomes.points.reshape(-1, *outcomes.points.shape[-2:])
    share, found = (
        rng.random((len(cells), problem.horizon)),
        np.empty((len(cells), problem.horizon, problem.outcome_dim)),
    )
    for cell in np.unique(cells):
        mine = cells == cell
        for step, i in np.ndindex(found.shape[1:]):
            at, law = points[cell, i], laws[cell, step, i]
            ends = np.append(at - (at[1] - at[0]) / 2, at[-1] + (at[1] - at[0]) / 2)
            found[mine, step, i] = np.interp(share[mine, step], np.append(0.0, np.cumsum(law) / law.sum()), ends)
    return np.clip(found, problem.outcome_low, problem.outcome_high)


def past_decisions(model: PrivateModel, cells: IntArray) -> PastDecisions | None:
    """Past decisions, where the levels at which outcomes are cut off are the decisions themselves."""
    outcomes, problem = model.outcomes, model.problem
    if outcomes.cutoffs is None or not problem.counts_down:
        return None
    laws = outcomes.cutoffs.reshape(-1, *outcomes.cutoffs.shape[-3:])[:, :, 0]
    points = outcomes.points.reshape(-1, *outcomes.points.shape[-2:])[:, 0]
    return PastDecisions(laws, points, cells)


def label_cells_of(model: PrivateModel, many: int, rng: np.random.Generator) -> IntArray:
    """Label cells of trajectories, as common as the log has them."""
    count, slots = model.problem.labels.count, model.outcomes.slots
    share = np.ones(count) if slots is None else slots.reshape(count, -1).mean(axis=1) + 1e-9
    return np.asarray(rng.choice(count, size=many, p=share / share.sum()))


def labels_of(model: PrivateModel, cells: IntArray) -> dict[str, Any]:
    """The label values of trajectories in these label cells."""
    labels = model.problem.labels
    places = np.unravel_index(cells, labels.shape) if labels else ()
    return {name: np.array(values)[at] for name, values, at in zip(labels.names, labels.values, places, strict=True)}
