"""Plans for a state that is a count, such as lots that are left: one decision for each step and each count.

    Q_h(n, a) = mean over outcomes ξ of r_h(n, a, ξ) + V_{h+1}(f_h(n, a, ξ)),    V_h(n) = max_a Q_h(n, a)

A second, finer look finds the best action between two of an axis. Outcomes of a step are read off their laws at the
same shares of each: exact where rewards and next counts are sums of functions of single outcomes, as in all problems of
this package. Nothing is decided far from what was tried, on the side where the log shows nothing (`tried_range`).
"""

from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray, IntArray, whole
from poolrl.geometry.resolution import FINER_POINTS
from poolrl.learning import priors
from poolrl.learning.law import Law
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.problems.problem import OutcomeProblem, Problem

# Numbers that are computed at once: counts times actions times outcomes.
OUTCOMES_AT_ONCE = 2**22
# However noisy a log is, the middle half of what was tried was tried.
MOST_DOUBTED = 0.25


@dataclass(frozen=True, kw_only=True)
class ByCount:
    """Values of every count: on `actions` points and, between two of them, a finer look; for `outcomes` of the law."""

    actions: int = 129
    outcomes: int = 1024

    def __post_init__(self) -> None:
        whole(actions=self.actions, outcomes=self.outcomes, at_least=2)


@dataclass(frozen=True)
class CountTable:
    """The best action of each count, (*labels, H, N + 1, 1), and what it is worth from there on, of the same shape."""

    actions: FloatArray
    values: FloatArray

    def act(self, problem: Problem, step: int, state: FloatArray, cell: IntArray | int = 0) -> FloatArray:
        """The action of each row's label cell and count, or the nearest allowed one, (m, 1) for states (m, 1)."""
        low, high = problem.allowed(step, state)
        counts = np.clip(np.rint(state[:, 0] - problem.state_low[0]), 0, self.actions.shape[-2] - 1).astype(np.int64)
        table = self.actions.reshape(-1, *self.actions.shape[-3:])
        return np.clip(table[cell, step, counts], low, high)

    def arrays(self) -> dict[str, FloatArray]:
        """Both tables."""
        return {"actions": self.actions, "values": self.values}


def plan_by_count(outcomes: OutcomeDistribution, problem: OutcomeProblem, settings: ByCount) -> CountTable:
    """The best action of every label cell, step and count."""
    cells, counts = problem.labels.count, round(float(problem.state_high[0] - problem.state_low[0])) + 1
    shape = (cells, problem.horizon, counts, 1)
    actions, values = np.empty(shape), np.empty(shape)
    weights, points = outcomes.by_cell
    even = (np.arange(settings.outcomes) + 0.5) / settings.outcomes
    state = problem.state_low + np.arange(counts)[:, None]  # (N + 1, 1)
    column, tried_by = np.arange(counts), tried_range(outcomes, problem).reshape(2, cells, problem.horizon)
    for cell in range(cells):
        after = np.zeros(counts)
        for step in reversed(range(problem.horizon)):
            drawn = law_at_shares(weights[cell, step], points[cell], even)
            low, high = (
                np.clip(limit[:, 0], tried_by[0, cell, step], tried_by[1, cell, step])
                for limit in problem.allowed(step, state)
            )
            for many in (settings.actions, FINER_POINTS):
                tried = np.linspace(low, high, many, axis=1)  # (N + 1, actions)
                worth = _expected_worth(problem, step, state, tried, drawn, after)
                best = worth.argmax(axis=1)
                low, high = tried[column, np.maximum(best - 1, 0)], tried[column, np.minimum(best + 1, many - 1)]
            actions[cell, step, :, 0], values[cell, step, :, 0] = tried[column, best], worth[column, best]
            after = values[cell, step, :, 0]
    by_label = (*problem.labels.shape, *shape[1:])
    return CountTable(actions.reshape(by_label), values.reshape(by_label))


def tried_range(outcomes: OutcomeDistribution, problem: OutcomeProblem) -> FloatArray:
    """Between which actions a plan may choose, (2, *labels, H): where the log tells what follows, and a bit beyond.

    Where only the side of an outcome is known, nothing is known but at values that were tried. The range is the same
    for all rounds of a season.
    """
    shape = outcomes.weights.shape[:-2]
    limits = np.stack([np.full(shape, -np.inf), np.full(shape, np.inf)])
    if outcomes.cutoffs is None:
        return limits
    # A decision that was tried in one round counts as tried in all of them.
    slots = np.ones(shape) if outcomes.slots is None else np.maximum(outcomes.slots[..., 0], priors.LEAST_WEIGHT)
    laws = (outcomes.cutoffs[..., 0, :] * slots[..., None]).sum(axis=-2, keepdims=True)
    below = np.cumsum(laws, axis=-1) / laws.sum(axis=-1, keepdims=True)
    # A share of rows that noise alone could make was not tried. Rows of both kinds count, so noise counts twice.
    # Caution is for the end at which rounds fail: a price that is too high sells nothing.
    noise = np.sqrt(2 * shape[-1] * outcomes.variance) / slots.sum(axis=-1, keepdims=True)
    careful = np.clip(noise, priors.EXPLORED_BY_CHOICE, MOST_DOUBTED)[..., None]
    ends = (priors.EXPLORED_BY_CHOICE, careful)
    at_low, at_high = ends if less_succeeds(problem) else ends[::-1]
    points = outcomes.points[..., None, 0, :]
    step = points[..., 1] - points[..., 0]
    places = ((below < end).sum(axis=-1, keepdims=True).clip(0, laws.shape[-1] - 1) for end in (at_low, 1 - at_high))
    low, high = (np.take_along_axis(points, place, -1)[..., 0] for place in places)  # (*labels, 1)
    if 0 in problem.current_status:
        limits[0], limits[1] = low - step / 2, high + step / 2
    elif outcomes.higher:
        limits[0] = low / priors.CLIMB
    else:
        limits[1] = high * priors.CLIMB
    return limits


def less_succeeds(problem: OutcomeProblem) -> bool:
    """Whether the count goes down if little is asked, as with prices, and not if much is, as with bids."""
    middle = (problem.outcome_low + problem.outcome_high) / 2
    after = problem.next_state(0, problem.state_high, problem.action_low, middle)
    return bool(after[0] < problem.state_high[0] - 0.5)


def law_at_shares(weights: FloatArray, points: FloatArray, shares: FloatArray) -> FloatArray:
    """Outcomes (m, k) at the same shares (m,) of their laws (k, B), whose weight is spread evenly over each bin."""
    width = points[:, 1:2] - points[:, :1] if points.shape[-1] > 1 else 0.0
    return np.asarray((points[:, :1] + width * (Law(weights).places_at(shares) - 0.5)).T)


def _expected_worth(
    problem: OutcomeProblem, step: int, state: FloatArray, tried: FloatArray, drawn: FloatArray, after: FloatArray
) -> FloatArray:
    """Q of every count and action, (N + 1, actions)."""
    worth = np.empty(tried.shape)
    block = max(1, OUTCOMES_AT_ONCE // (len(state) * len(drawn) * len(problem.arrival_low)))
    for start in range(0, tried.shape[1], block):
        here, does = state[:, None, None, :], tried[:, start : start + block, None, None]
        arrived = problem.next_state(step, here, does, drawn[None, None])  # (N + 1, actions, outcomes, 1 + e)
        count = np.rint(arrived[..., 0] - problem.state_low[0]).astype(np.int64)
        worth[:, start : start + block] = (problem.reward(step, here, does, arrived) + after[count]).mean(axis=-1)
    return worth
