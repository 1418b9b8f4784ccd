"""The earnings of past decisions and of the policy, played on the released model: so they are free.

A model flatters the plan that was made on it. So a whole fit is rehearsed on logs that are drawn from the model. Its
prediction then misses what it earns: the mean miss is taken off, and the spread of misses gives the interval. Today's
earnings are counted, where released counts tell them. Where past decisions followed what only people knew, nothing can
be predicted, and nothing is.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from rich.progress import Progress

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.geometry.bins import bin_edges
from poolrl.learning.by_count import law_at_shares
from poolrl.learning.dependence import TELLING_ERROR
from poolrl.learning.faded_trees import FadedTrees
from poolrl.learning.law import cumulative
from poolrl.learning.model import PrivateModel
from poolrl.learning.policy import Policy
from poolrl.learning.shapes import Observed
from poolrl.pool import Pool
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.privacy.sensitivity import moved_trajectories
from poolrl.problems.problem import OutcomeProblem
from poolrl.simulation.evaluation import data_free
from poolrl.simulation.logs import Behaviour, simulate_log
from poolrl.workflow import forecast as forecasts
from poolrl.workflow.forecast import CostEstimate, Forecast, SwitchVerdict, cell_shares, estimate, judged
from poolrl.workflow.trades.trade import Words, trade_of

# Rehearsed fits, and the most trajectories of a rehearsed log.
REHEARSED_FITS, MOST_REHEARSED = 12, 5_000
# The error that no rehearsal finds, in shares of what is earned: outcomes are never quite as their laws.
UNREHEARSED = 0.02
# This many standard errors apart, a model contradicts the counts that it was made from.
CONTRADICTED = 2.5
# Paths on which policies are compared.
PLAYED_PATHS = 4_000
# A log in which fewer rounds succeed, or fail, leaves the others out, it seems.
RARELY = 0.01
NOISY = "Noise and sampling take much of what the log could teach: a larger budget or log would help."


def forecast_rounds(policy: Policy, trees: FadedTrees | None = None, progress: Progress | None = None) -> Forecast:
    """Today's decisions beside the policy's, and whether to switch. The released `trees` count what today's earn."""
    model, words = PrivateModel.of(policy), trade_of(policy.problem).words
    played = Played(model, np.random.default_rng(0))
    counted = None if trees is None else counted_today(trees, model)
    error, known = 0.0, None
    if counted is not None:
        spread_today = 0.0 if played.today is None else played.today.std()
        error = float(np.hypot(counted[1], spread_today / np.sqrt(_logged_trajectories(model))))
        known = estimate(counted[0], error)
    if why := _followed(policy, played, words):
        return Forecast(today=known, because=why)
    predicted = played.earned(policy)
    errors, truths = _rehearse(model, played, progress)
    flattered, spread = errors[:, 0].mean(), errors[:, 0].std(ddof=1)
    free = played.earned(data_free(model.problem))
    unrehearsed = UNREHEARSED * predicted
    ours = estimate(predicted - flattered, spread, unrehearsed)
    noisy = (
        predicted <= free
        or forecasts.noise_share_of_gain(predicted - truths.mean(), predicted - free) > forecasts.NOISE_DOMINATED
    )
    forecast = Forecast(
        policy=ours,
        because=f"The released numbers do not tell past {words.past}, so nothing is compared with today.",
        lost=float(np.clip(1 - truths.mean() / predicted, 0.0, 1.0)) if predicted > 0 else 0.0,
        warning=NOISY if noisy else "",
    )
    if played.today is None:
        return forecast
    if played.succeeded is not None and not played.varied():
        end = "succeeded" if played.succeeded.mean() > 0.5 else "failed"
        why = f"By the released numbers nearly every {words.step} {end}. Are the others missing from the log?"
        return replace(forecast, because=why)
    today, missed = float(played.today.mean()), errors[:, 0] - errors[:, 1]
    modelled, doubt = today - missed.mean(), missed.std(ddof=1)
    if known is None:
        now = estimate(modelled, doubt, UNREHEARSED * today)
        gain = estimate(predicted - today - errors[:, 1].mean(), errors[:, 1].std(ddof=1), unrehearsed)
    else:
        apart = abs(known.mean - modelled)
        if apart > CONTRADICTED * float(np.hypot(error, doubt)) and apart > UNREHEARSED * abs(modelled):
            why = (
                f"Past {words.past} earned {known.mean:.3g}, as the released counts say, but the model of "
                f"{words.outcome} says {modelled:.3g}. A model that errs about today may err about another policy too."
            )
            return replace(forecast, today=known, because=why)
        now, gain = known, estimate(ours.mean - known.mean, spread, error, unrehearsed)
    verdict, because = _judged(gain, now, policy)
    return replace(forecast, today=now, gain=gain, verdict=verdict, because=because)


def played_cost(policy: Policy, problem: OutcomeProblem) -> float:
    """The cost of a trajectory by the policy's model and by a problem's costs; earnings are a cost below zero."""
    return -Played(PrivateModel.of(policy).under(problem), np.random.default_rng(0)).earned(policy)


def _followed(policy: Policy, played: Played, words: Words) -> str:
    """Why past decisions seem to follow what only people knew, by what was released; empty if they do not.

    Where outcomes are seen on one side of a decision, a table of both was paid for. Where only the side is seen, trees
    have it all: over a wide range of decisions the share of successes should change clearly.
    """
    tested, why = policy.report.dependence, ""
    if tested is not None and tested.flagged:
        why = (
            f"Past {words.decisions} follow what people expected: where the {words.decision} was high, {words.outcome} "
            "were high as well."
        )
    elif 0 in played.problem.current_status and played.varied() and played.hardly_matters():
        why = (
            f"Over a wide range of past {words.decisions} a {words.step} succeeded about equally often, as where they "
            "follow what people expected."
        )
    mend = "Measure amounts by a scale, such as what an expert expected, or declare labels for what people know."
    return why and f"{why} So nobody can say what other {words.decisions} would earn. {mend}"


def _logged_trajectories(model: PrivateModel) -> int:
    return max(1, (model.report.units or MOST_REHEARSED) * model.guarantee.trajectories_per_unit)


def _judged(gain: CostEstimate, now: CostEstimate, policy: Policy) -> tuple[SwitchVerdict, str]:
    words, tested = trade_of(policy.problem).words, policy.report.dependence
    verdict, because = judged(gain, now.mean, decisions=words.decisions, earns=True)
    if verdict == "switch" and (tested is None or tested.error > TELLING_ERROR):
        because += f" That holds if past {words.decisions} did not follow what only people knew. "
        because += (
            "Too little was released to tell; 'poolrl check' looks at it in the log."
            if PrivateModel.of(policy).problem.shows_levels
            else f"No count of successes can tell that: ask those who named the {words.decisions}."
        )
    return verdict, because


def _rehearse(model: PrivateModel, played: Played, progress: Progress | None) -> tuple[FloatArray, FloatArray]:
    """By how much predictions of rehearsed fits miss, of what is earned and of what is gained; and the truth."""
    guarantee, problem = model.guarantee, model.problem
    moved = moved_trajectories(
        per_unit=guarantee.trajectories_per_unit,
        scale_memory=guarantee.scale_memory,
        has_units=guarantee.unit != "trajectory",
    )
    many = min(MOST_REHEARSED, _logged_trajectories(model))
    # Noise of a unit that moves c trajectories is that of the budget ρ / c². Trees have their share of it.
    pool = Pool(float(guarantee.mechanisms[0].rho) / moved**2)
    errors, truths = np.zeros((REHEARSED_FITS, 2)), np.zeros(REHEARSED_FITS)
    fits = range(REHEARSED_FITS)
    for number in fits if progress is None else progress.track(fits, description="rehearsing the fit"):
        rng = np.random.default_rng([number, 2])
        cells = label_cells_of(model, many, rng)
        outcomes = drawn_alike(model, cells, rng)
        known: dict[str, Any] = {}
        if labels := problem.labels:
            values = zip(labels.values, np.unravel_index(cells, labels.shape), strict=True)
            known["labels"] = dict(zip(labels.names, (np.array(declared)[at] for declared, at in values), strict=True))
        log = simulate_log(problem, outcomes, rng=rng, behaviour=past_decisions(model, cells), **known)
        rehearsed = pool.model(problem, log, noise=SeededNoise(number))
        plan, own = rehearsed.plan(), Played(rehearsed, np.random.default_rng([number, 3]))
        truths[number] = played.earned(plan)
        errors[number, 0] = own.earned(plan) - truths[number]
        if played.today is not None and own.today is not None:
            errors[number, 1] = errors[number, 0] - float(own.today.mean() - played.today.mean())
    return errors, truths


class Played:
    """Policies and past decisions, played on the same outcomes of one released model."""

    def __init__(self, model: PrivateModel, rng: np.random.Generator) -> None:
        self.model, self.problem = model, model.problem
        self.cells = label_cells_of(model, PLAYED_PATHS, rng)
        self.paths = drawn_alike(model, self.cells, rng)
        past, succeeds = past_decisions(model, self.cells), getattr(self.problem, "succeeds", None)
        # What each path earns by decisions as they were made, if the log tells them.
        self.today = None if past is None else self._rewards(past)
        # Those of the first round, and which of them succeed where the problem is one of rounds that do or do not.
        self.tried: FloatArray | None = None
        self.succeeded: BoolArray | None = None
        if past is not None and succeeds is not None:
            action = past(0, self.paths[:, 0], np.random.default_rng(1))
            self.tried, self.succeeded = action[:, 0], succeeds(action, self.paths[:, 0])[:, 0]

    def earned(self, policy: Policy) -> float:
        """By a policy, a path on average."""

        def act(step: int, state: FloatArray, rng: np.random.Generator) -> FloatArray:
            return policy.rule.act(policy.problem, step, state, self.cells)

        return float(self._rewards(act).mean())

    def varied(self) -> bool:
        """Whether past decisions are known, and some of them succeed and some do not, by the model."""
        return self.succeeded is not None and RARELY < self.succeeded.mean() < 1 - RARELY

    def hardly_matters(self) -> bool:
        """Whether low and high decisions of the past lie far apart, and succeed about equally often in a cell."""
        assert self.tried is not None
        assert self.succeeded is not None
        wide, change, many = 0.0, 0.0, np.bincount(self.cells)
        for cell in np.flatnonzero(many):
            decisions, hit = self.tried[self.cells == cell], self.succeeded[self.cells == cell]
            lowest, low, high, highest = np.quantile(decisions, [0.1, 1 / 3, 2 / 3, 0.9])
            share = many[cell] / PLAYED_PATHS
            wide += share * float(highest > forecasts.WIDE * max(lowest, 1e-12))
            change += share * float(hit[decisions >= high].mean() - hit[decisions <= low].mean())
        return wide > 0.5 and abs(change) < forecasts.HARDLY_CHANGES

    def _rewards(self, act: Behaviour) -> FloatArray:
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

    So the highest bid is never below the second. Mean rewards depend on each law alone (`by_count`).
    """
    problem, outcomes = model.problem, model.outcomes
    laws, points = outcomes.by_cell
    share = rng.random((len(cells), problem.horizon))
    drawn = np.empty((*share.shape, problem.outcome_dim))
    for cell, step in product(np.unique(cells), range(problem.horizon)):
        here = cells == cell
        drawn[here, step] = law_at_shares(laws[cell, step], points[cell], share[here, step])
    return np.clip(drawn, problem.outcome_low, problem.outcome_high)


def past_decisions(model: PrivateModel, cells: IntArray) -> Behaviour | None:
    """Decisions as the log shows them, drawn from their released laws for trajectories in label cells (m,).

    None unless the levels at which outcomes are cut off are the decisions themselves.
    """
    outcomes = model.outcomes
    if outcomes.cutoffs is None or not model.problem.counts_down:
        return None
    laws = outcomes.cutoffs.reshape(-1, *outcomes.cutoffs.shape[-3:])[:, :, 0]
    points = outcomes.by_cell[1][cells, 0]
    width = points[:, 1] - points[:, 0]

    def behaviour(step: int, state: FloatArray, rng: np.random.Generator) -> FloatArray:
        below = np.cumsum(laws[cells, step], axis=-1)
        place = (below < rng.random((len(state), 1)) * below[:, -1:]).sum(axis=1).clip(0, below.shape[1] - 1)
        return (points[np.arange(len(state)), place] + (rng.random(len(state)) - 0.5) * width)[:, None]

    return behaviour


def label_cells_of(model: PrivateModel, many: int, rng: np.random.Generator) -> IntArray:
    """Label cells of trajectories, as common as the log has them."""
    shares = cell_shares(model.outcomes).ravel()
    return np.asarray(rng.choice(len(shares), size=many, p=shares))


def counted_today(trees: FadedTrees, model: PrivateModel) -> tuple[float, float] | None:
    """What the log's own decisions earned, by the released counts; None where counts do not tell it.

    The mean reward of a trajectory, and the standard deviation of its noise.
    A tree counts rows by what they show, and what a row earned follows from that (`Rounds.reward_weights`). So the sum
    of rewards is a sum over leaves, whose noise is known, and nothing is assumed of outcomes.
    """
    problem, outcomes = model.problem, model.outcomes
    reward_weights = getattr(problem, "reward_weights", None)
    if reward_weights is None or outcomes.cutoffs is None:
        return None
    bins = trees.bins
    levels = [level.reshape(-1, *level.shape[-2:]) for level in trees.levels]  # (cells, 2, size)
    observed = Observed.of(levels, trees.variance, bins)
    inverse = np.linalg.inv(observed.precision)
    shape = (-1, problem.horizon, problem.outcome_dim)
    leaves = (observed.sums @ inverse).reshape(*shape, 2, bins)
    if outcomes.higher:
        leaves, inverse = leaves[..., ::-1], inverse[::-1, ::-1]
    laws, tried = (law.reshape(*shape, law.shape[-1]) for law in (outcomes.weights, outcomes.cutoffs))
    points = np.broadcast_to(outcomes.points[..., None, :, :], outcomes.weights.shape).reshape(laws.shape)
    total = variance = 0.0
    for cell, step in np.ndindex(*laws.shape[:2]):
        means = [bin_means(law[cell, step], points[cell, step], problem.outcome_high, bins) for law in (laws, tried)]
        weights = reward_weights(*means)
        if weights is None:
            return None
        of_kinds = np.stack(weights, axis=1)  # (k, 2, B)
        total += float((leaves[cell, step] * of_kinds).sum())
        variance += trees.variance * float(np.einsum("kcb,bd,kcd->", of_kinds, inverse, of_kinds))
    # Trajectories whose first row cannot be used are not among those that earned; later rows may lack for good reasons.
    there = trees.slots
    if outcomes.slots is not None:
        there = float(np.clip(outcomes.slots.reshape(shape)[:, 0, 0].sum(), 0.1 * trees.slots, trees.slots))
    return total / there, variance**0.5 / there


def bin_means(weights: FloatArray, points: FloatArray, high: FloatArray, bins: int) -> FloatArray:
    """The mean of each law (k, B) inside each of the trees' bins, (k, bins); the middle where a law has nothing."""
    means = np.empty((len(weights), bins))
    for i, (law, at) in enumerate(zip(weights, points, strict=True)):
        edges = bin_edges(bins) * high[i]
        ends = np.append(at - at[0], at[-1] + at[0])
        mass, moment = (np.diff(np.interp(edges, ends, cumulative(part))) for part in (law, law * at))
        middle = (edges[:-1] + edges[1:]) / 2
        # A bin with almost nothing would have a mean of rounding errors.
        means[i] = np.clip(np.where(mass > 1e-9, moment / np.maximum(mass, 1e-12), middle), edges[:-1], edges[1:])
    return means
