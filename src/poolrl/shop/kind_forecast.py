"""What past decisions and the policy earn, for problems other than shops: from released numbers, so it is free.

Both are played against the model of outcomes. A model flatters the plan that was made on it. So a whole fit is
rehearsed on logs that are drawn from the model: by how much its prediction misses what it then earns is taken off, and
its spread gives the interval. What people earn today is counted, where counts tell it (`counted_today`). Whether past
decisions followed what only people knew, no released number tells here: `poolrl check` looks at it in the log itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.progress import Progress

from poolrl.checks import FloatArray, IntArray
from poolrl.learning.faded_trees import FadedTrees
from poolrl.learning.model import PrivateModel
from poolrl.learning.policy import Policy
from poolrl.pool import Pool
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.privacy.sensitivity import moved_trajectories
from poolrl.problems.problem import OutcomeProblem
from poolrl.problems.rounds import Rounds
from poolrl.shop.counted_today import counted_today
from poolrl.shop.forecast import CANNOT_TELL, WITHIN_90, CostEstimate, SwitchVerdict
from poolrl.simulation.evaluation import data_free
from poolrl.simulation.logs import simulate_log

# Paths on which policies are compared, rehearsed fits, and the most trajectories of a rehearsed log.
PLAYED_PATHS, REHEARSED_FITS, MOST_REHEARSED = 4_000, 12, 5_000
# What no rehearsal finds: outcomes are never quite as their laws, in shares of what is earned.
UNREHEARSED = 0.02
# So many standard errors apart, a model contradicts the counts that it was made from.
CONTRADICTED = 2.5
# A log in which fewer rounds succeed, or fail, leaves the others out, it seems.
RARELY = 0.01
# Where noise and sampling lose more of what data can earn, a policy is not worth its budget.
MOST_LOST = 0.25


@dataclass(frozen=True)
class KindForecast:
    """What one trajectory earns on average, today and with the policy, with 90% intervals; None if it is not known."""

    today: CostEstimate | None
    policy: CostEstimate
    gain: CostEstimate | None
    lost: float  # the share of what could be earned that noise and sampling cost
    verdict: SwitchVerdict
    because: str
    noise_dominated: bool
    warning: str = "Noise and sampling take much of what the log could teach: a larger budget or log would help."


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


def forecast_kind(policy: Policy, trees: FadedTrees | None = None, *, progress: Progress | None = None) -> KindForecast:
    """Today's decisions beside the policy's, and whether to switch.

    With the released `trees`, what today's decisions earn is counted, and the model is held against it.
    """
    model, rng = PrivateModel.of(policy), np.random.default_rng(0)
    problem, words = model.problem, model.problem.words
    played = _Played(model, rng)
    predicted = played.earned(policy)
    today = played.earned_today()
    errors, truths = _rehearse(model, played, progress)
    flattered, spread = errors[:, 0].mean(), errors[:, 0].std(ddof=1)
    mine = _with_interval(predicted - flattered, spread, predicted)
    free = played.earned(data_free(problem))
    lost = float(np.clip(1 - truths.mean() / predicted, 0.0, 1.0)) if predicted > 0 else 0.0
    noisy = predicted <= free or (predicted - truths.mean()) / (predicted - free) > MOST_LOST
    if today is None:
        why = f"The released numbers do not tell past {words.past}, so nothing is compared with today."
        return KindForecast(None, mine, None, lost, CANNOT_TELL, why, noisy)
    if isinstance(problem, Rounds) and not RARELY < (often := played.successes()) < 1 - RARELY:
        end = "succeeded" if often > 0.5 else "failed"
        why = f"By the released numbers nearly every {words.step} {end}. Are the others missing from the log?"
        return KindForecast(None, mine, None, lost, CANNOT_TELL, why, noisy)
    missed = errors[:, 0] - errors[:, 1]
    said, doubt = today - missed.mean(), missed.std(ddof=1)
    counted = None if trees is None else counted_today(trees, model)
    if counted is None:
        now = _with_interval(said, doubt, today)
        gain = _with_interval(predicted - today - errors[:, 1].mean(), errors[:, 1].std(ddof=1), predicted)
        return KindForecast(now, mine, gain, lost, *_judged(gain, now, problem), noisy)
    error = float(np.hypot(counted.noise, played.spread_today / np.sqrt(_logged_trajectories(model))))
    now = CostEstimate(counted.mean, counted.mean - WITHIN_90 * error, counted.mean + WITHIN_90 * error)
    apart = abs(counted.mean - said)
    if apart > CONTRADICTED * float(np.hypot(error, doubt)) and apart > UNREHEARSED * abs(said):
        why = (
            f"Past {words.past} earned {counted.mean:.3g}, as the released counts say, but the model of "
            f"{words.outcome} says {said:.3g}. Who errs about today may err about another policy too."
        )
        return KindForecast(now, mine, None, lost, CANNOT_TELL, why, noisy)
    gain = _with_interval(mine.mean - now.mean, float(np.hypot(spread, error)), predicted)
    return KindForecast(now, mine, gain, lost, *_judged(gain, now, problem), noisy)


def _logged_trajectories(model: PrivateModel) -> int:
    return max(1, int(model.report.get("units", MOST_REHEARSED)) * model.guarantee.trajectories_per_unit)


def _judged(gain: CostEstimate, now: CostEstimate, problem: OutcomeProblem) -> tuple[SwitchVerdict, str]:
    words, share = problem.words, f"{gain.mean / abs(now.mean):+.0%}" if now.mean else "more"
    between = f"between {gain.low:.3g} and {gain.high:.3g} for each {words.trajectory}"
    if gain.low > 0:
        return "switch", f"These {words.decisions} earn more than today's: {share}, {between}."
    if gain.high <= 0:
        return "do not switch", f"These {words.decisions} earn no more than today's: {share}, {between}."
    return CANNOT_TELL, f"The gain is too small, or too uncertain, to be sure of: {share}, {between}."


def _with_interval(mean: float, spread: float, scale: float) -> CostEstimate:
    half = WITHIN_90 * float(np.hypot(spread, UNREHEARSED * abs(scale)))
    return CostEstimate(float(mean), float(mean - half), float(mean + half))


class _Played:
    """Policies played on the same outcomes of one model."""

    def __init__(self, model: PrivateModel, rng: np.random.Generator) -> None:
        self.model, self.problem = model, model.problem
        self.cells = _cells_of(model, PLAYED_PATHS, rng)
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
        problem = self.problem
        assert isinstance(problem, Rounds)
        assert self.past is not None
        action = self.past(0, self.paths[:, 0], np.random.default_rng(1))
        return float(problem.succeeds(action, self.paths[:, 0]).mean())

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


def _rehearse(model: PrivateModel, played: _Played, progress: Progress | None) -> tuple[FloatArray, FloatArray]:
    """By how much predictions of rehearsed fits miss, of what is earned and of what is gained; and the truth."""
    guarantee = model.guarantee
    moved = moved_trajectories(
        per_unit=guarantee.trajectories_per_unit,
        scale_memory=guarantee.scale_memory,
        has_units=guarantee.unit != "trajectory",
    )
    many = min(MOST_REHEARSED, _logged_trajectories(model))
    # Noise of a unit that moves c trajectories is that of the budget ρ / c².
    pool = Pool(float(guarantee.rho) / moved**2)
    task = None if progress is None else progress.add_task("rehearsing the fit", total=REHEARSED_FITS)
    errors, truths = np.zeros((REHEARSED_FITS, 2)), np.zeros(REHEARSED_FITS)
    now = played.earned_today()
    for number in range(REHEARSED_FITS):
        rng = np.random.default_rng([number, 2])
        cells = _cells_of(model, many, rng)
        outcomes = drawn_alike(model, cells, rng)
        known = {} if not model.problem.labels else {"labels": _labels(model, cells)}
        behaviour = past_decisions(model, cells)
        log = simulate_log(model.problem, outcomes, rng=rng, behaviour=behaviour, **known)
        found = pool.model(model.problem, log, noise=SeededNoise(number))
        plan = found.plan()
        truths[number] = played.earned(plan)
        own = _Played(found, np.random.default_rng([number, 3]))
        errors[number, 0] = own.earned(plan) - truths[number]
        if now is not None and (predicted_now := own.earned_today()) is not None:
            errors[number, 1] = errors[number, 0] - (predicted_now - now)
        if progress is not None and task is not None:
            progress.advance(task)
    return errors, truths


def _cells_of(model: PrivateModel, many: int, rng: np.random.Generator) -> IntArray:
    """Label cells of trajectories, as common as the log has them."""
    count, slots = model.problem.labels.count, model.outcomes.slots
    share = np.ones(count) if slots is None else slots.reshape(count, -1).mean(axis=1) + 1e-9
    return np.asarray(rng.choice(count, size=many, p=share / share.sum()))


def _labels(model: PrivateModel, cells: IntArray) -> dict[str, Any]:
    labels = model.problem.labels
    places = np.unravel_index(cells, labels.shape) if labels else ()
    return {name: np.array(values)[at] for name, values, at in zip(labels.names, labels.values, places, strict=True)}
