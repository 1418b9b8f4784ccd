"""What past decisions and the policy earn, for problems other than shops: from released numbers, so it is free.

Both are played against the model of outcomes. A model flatters the plan that was made on it. So a whole fit is
rehearsed on logs that are drawn from the model: by how much its prediction misses what it then earns is taken off, and
its spread gives the interval. What people earn today is counted, where counts tell it (`counted_today`). Where past
decisions followed what only people knew, nothing can be predicted, and nothing is (`_followed`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.progress import Progress

from poolrl.checks import FloatArray
from poolrl.learning.dependence import TELLING_ERROR
from poolrl.learning.faded_trees import FadedTrees
from poolrl.learning.model import PrivateModel
from poolrl.learning.policy import Policy
from poolrl.pool import Pool
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.privacy.sensitivity import moved_trajectories, shows_levels
from poolrl.problems.rounds import Rounds
from poolrl.simulation.evaluation import data_free
from poolrl.simulation.logs import simulate_log
from poolrl.workflow.counted_today import counted_today
from poolrl.workflow.forecast import CANNOT_TELL, WITHIN_90, CostEstimate, SwitchVerdict
from poolrl.workflow.kind_play import Played, drawn_alike, label_cells_of, labels_of, past_decisions

# Rehearsed fits, and the most trajectories of a rehearsed log.
REHEARSED_FITS, MOST_REHEARSED = 12, 5_000
# What no rehearsal finds: outcomes are never quite as their laws, in shares of what is earned.
UNREHEARSED = 0.02
# So many standard errors apart, a model contradicts the counts that it was made from.
CONTRADICTED = 2.5
# Where noise and sampling lose more of what data can earn, a policy is not worth its budget.
MOST_LOST = 0.25


@dataclass(frozen=True)
class KindForecast:
    """What one trajectory earns on average, today and with the policy, with 90% intervals; None if it is not known."""

    today: CostEstimate | None
    policy: CostEstimate | None
    gain: CostEstimate | None
    lost: float  # the share of what could be earned that noise and sampling cost
    verdict: SwitchVerdict
    because: str
    noise_dominated: bool
    warning: str = "Noise and sampling take much of what the log could teach: a larger budget or log would help."


def forecast_kind(policy: Policy, trees: FadedTrees | None = None, *, progress: Progress | None = None) -> KindForecast:
    """Today's decisions beside the policy's, and whether to switch.

    With the released `trees`, what today's decisions earn is counted, and the model is held against it.
    """
    model, rng = PrivateModel.of(policy), np.random.default_rng(0)
    problem, words = model.problem, model.problem.words
    played = Played(model, rng)
    counted = None if trees is None else counted_today(trees, model)
    error = 0.0
    if counted is not None and played.past is not None:
        error = float(np.hypot(counted.noise, played.spread_today / np.sqrt(_logged_trajectories(model))))
    known = None if counted is None else _between(counted.mean, WITHIN_90 * error)
    if why := _followed(policy, played):
        return KindForecast(known, None, None, 0.0, CANNOT_TELL, why, noise_dominated=False)
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
    if isinstance(problem, Rounds) and not played.varied():
        end = "succeeded" if played.successes() > 0.5 else "failed"
        why = f"By the released numbers nearly every {words.step} {end}. Are the others missing from the log?"
        return KindForecast(None, mine, None, lost, CANNOT_TELL, why, noisy)
    missed = errors[:, 0] - errors[:, 1]
    said, doubt = today - missed.mean(), missed.std(ddof=1)
    if counted is None or known is None:
        now = _with_interval(said, doubt, today)
        gain = _with_interval(predicted - today - errors[:, 1].mean(), errors[:, 1].std(ddof=1), predicted)
        return KindForecast(now, mine, gain, lost, *_judged(gain, now, policy), noisy)
    apart = abs(counted.mean - said)
    if apart > CONTRADICTED * float(np.hypot(error, doubt)) and apart > UNREHEARSED * abs(said):
        why = (
            f"Past {words.past} earned {counted.mean:.3g}, as the released counts say, but the model of "
            f"{words.outcome} says {said:.3g}. Who errs about today may err about another policy too."
        )
        return KindForecast(known, mine, None, lost, CANNOT_TELL, why, noisy)
    gain = _with_interval(mine.mean - known.mean, float(np.hypot(spread, error)), predicted)
    return KindForecast(known, mine, gain, lost, *_judged(gain, known, policy), noisy)


def _followed(policy: Policy, played: Played) -> str:
    """Why past decisions seem to follow what only people knew, by what was released; empty if they do not.

    Where outcomes are seen on one side of a decision, a table of both was paid for. Where only the side is seen, trees
    have it all: over a wide range of decisions the share of successes should change clearly.
    """
    words, tested = policy.problem.words, policy.report.dependence
    mend = "Measure amounts by a scale, such as what an expert expected, or declare labels for what people know."
    if tested is not None and tested.flagged:
        return (
            f"Past {words.decisions} follow what people expected: where the {words.decision} was high, {words.outcome} "
            f"were high as well. So nobody can say what other {words.decisions} would earn. {mend}"
        )
    problem = played.problem
    if isinstance(problem, Rounds) and 0 in problem.current_status and played.varied() and played.hardly_matters():
        return (
            f"Over a wide range of past {words.decisions} a {words.step} succeeded about equally often, as where they "
            f"follow what people expected. So nobody can say what other {words.decisions} would earn. {mend}"
        )
    return ""


def _logged_trajectories(model: PrivateModel) -> int:
    return max(1, (model.report.units or MOST_REHEARSED) * model.guarantee.trajectories_per_unit)


def _judged(gain: CostEstimate, now: CostEstimate, policy: Policy) -> tuple[SwitchVerdict, str]:
    words, share = policy.problem.words, f"{gain.mean / abs(now.mean):+.0%}" if now.mean else "from nothing"
    between = f"between {gain.low:.3g} and {gain.high:.3g} for each {words.trajectory}"
    if gain.low > 0:
        found = f"These {words.decisions} earn more than today's: {share}, {between}."
        tested = policy.report.dependence
        if tested is None or tested.error > TELLING_ERROR:
            found += f" That holds if past {words.decisions} did not follow what only people knew. "
            found += (
                "Too little was released to tell; 'poolrl check' looks at it in the log."
                if shows_levels(policy.problem)
                else f"No count of successes can tell that: ask those who named the {words.decisions}."
            )
        return "switch", found
    if gain.high <= 0:
        return "do not switch", f"These {words.decisions} earn no more than today's: {share}, {between}."
    return CANNOT_TELL, f"The gain is too small, or too uncertain, to be sure of: {share}, {between}."


def _with_interval(mean: float, spread: float, scale: float) -> CostEstimate:
    return _between(mean, WITHIN_90 * float(np.hypot(spread, UNREHEARSED * abs(scale))))


def _between(mean: float, half: float) -> CostEstimate:
    return CostEstimate(float(mean), float(mean - half), float(mean + half))


def _rehearse(model: PrivateModel, played: Played, progress: Progress | None) -> tuple[FloatArray, FloatArray]:
    """By how much predictions of rehearsed fits miss, of what is earned and of what is gained; and the truth."""
    guarantee = model.guarantee
    moved = moved_trajectories(
        per_unit=guarantee.trajectories_per_unit,
        scale_memory=guarantee.scale_memory,
        has_units=guarantee.unit != "trajectory",
    )
    many = min(MOST_REHEARSED, _logged_trajectories(model))
    # Noise of a unit that moves c trajectories is that of the budget ρ / c². Trees have their share of it.
    pool = Pool(float(guarantee.mechanisms[0].rho) / moved**2)
    task = None if progress is None else progress.add_task("rehearsing the fit", total=REHEARSED_FITS)
    errors, truths = np.zeros((REHEARSED_FITS, 2)), np.zeros(REHEARSED_FITS)
    now = played.earned_today()
    for number in range(REHEARSED_FITS):
        rng = np.random.default_rng([number, 2])
        cells = label_cells_of(model, many, rng)
        outcomes = drawn_alike(model, cells, rng)
        known = {} if not model.problem.labels else {"labels": labels_of(model, cells)}
        behaviour = past_decisions(model, cells)
        log = simulate_log(model.problem, outcomes, rng=rng, behaviour=behaviour, **known)
        found = pool.model(model.problem, log, noise=SeededNoise(number))
        plan = found.plan()
        truths[number] = played.earned(plan)
        own = Played(found, np.random.default_rng([number, 3]))
        errors[number, 0] = own.earned(plan) - truths[number]
        if now is not None and (predicted_now := own.earned_today()) is not None:
            errors[number, 1] = errors[number, 0] - (predicted_now - now)
        if progress is not None and task is not None:
            progress.advance(task)
    return errors, truths
