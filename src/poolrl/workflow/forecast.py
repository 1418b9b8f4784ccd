"""Forecast: what today's ordering, the policy, and knowing the demand cost, from a policy and public facts alone.

Everything follows from released numbers, so it is free. Costs are those of the estimated laws of demand and of past
orders. How wrong they may be is found by fits to trees that are drawn from known laws (`rehearsal`). Where released
numbers cannot tell a cost, there is none, and `unknown` says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from rich.progress import Progress

from poolrl.learning.policy import Policy
from poolrl.privacy.zcdp import attack_power, epsilon
from poolrl.problems.inventory import Inventory
from poolrl.workflow.estimated_costs import EstimatedCosts, orders_follow_demand
from poolrl.workflow.hidden import Hidden, hidden_from
from poolrl.workflow.prediction import NOISE_DOMINATED, SLIDER_BUDGETS, noise_share_of_gain, signed_percent
from poolrl.workflow.rehearsal import REPETITIONS, Rehearsal, Trial, relative_error

SwitchVerdict = Literal["switch", "do not switch", "cannot tell"]
CANNOT_TELL: SwitchVerdict = "cannot tell"
TOO_NOISY = "The noise of this budget makes predicted costs too uncertain to show."
NOISE_HIDES = "Noise hides what the log could teach, so no cost can be predicted."
UNSEEN = "Shelves ran empty so often that much of the shortage lies beyond anything ever ordered, which no log tells."
# 90% of a normal law lie within so many standard deviations.
WITHIN_90 = 1.645
# What no rehearsal finds: demand is never quite as its law, and steps are never quite independent.
MODEL_ERROR = 0.05
# A cost that is shown should be so near to the truth.
PROMISED = 0.1
# A cost that noise would move further than that in one case of ten is not shown.
MOST_NOISE_ERROR = PROMISED / WITHIN_90
# Noise makes laws wider, so that costs are overestimated. At most so much of that is taken off.
MOST_TAKEN_OFF = 0.03
# Demand beyond what was ever ordered is extrapolated by its shape, and may be half or one and a half times that.
TAIL_DOUBT = 0.5
# Where that demand makes up more of the policy's cost, its doubt breaks the promise too.
MOST_UNSEEN = PROMISED / TAIL_DOUBT
# Data are worth so little or so much, in shares of the best cost, by an estimate itself; and of that so little is lost.
WORTHLESS, WORTH_MUCH, LITTLE_LOST = 0.1, 0.5, 0.1
# The slider simulates a fit for each budget: so many columns times steps of a shop, and so many trees of a policy.
SLIDER_TREES, MOST_SLIDER_TREES = 14, 400


@dataclass(frozen=True)
class CostEstimate:
    """Of one trajectory, all products together, averaged over label cells, with a 90% interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class ProductCosts:
    """One product: its three costs, and what empty shelves and λ hid of it."""

    product: str
    today: float | None
    policy: float | None
    best: float | None
    binds: list[str]  # steps at which the level stands at λ
    untried: list[str]  # steps at which past orders seldom went as far as the level
    beyond: float  # estimated chance that demand exceeds the level of its step


@dataclass(frozen=True)
class BudgetCost:
    """One position of the slider."""

    rho: float
    epsilon: float
    attack: float
    cost: float
    gap: float


@dataclass(frozen=True)
class Forecast:
    """What released numbers say about costs. A number that they cannot tell is None, and `unknown` says why."""

    today: CostEstimate | None
    policy: CostEstimate | None
    best: CostEstimate | None
    unknown: str
    verdict: SwitchVerdict
    because: str
    products: list[ProductCosts]
    budgets: list[BudgetCost]  # empty where it would take long
    chosen: int
    noise_dominated: bool
    warning: str


def make_forecast(policy: Policy, *, progress: Progress) -> Forecast:
    """The forecast of a policy that was learned from outcome trees."""
    problem, outcomes = policy.problem, policy.outcomes
    assert isinstance(problem, Inventory)
    assert outcomes is not None
    hidden = hidden_from(policy)
    if policy.report.trees is None or outcomes.slots is None:
        why = "The policy was saved by an earlier version, which kept no facts about its noise."
        return _without_numbers(hidden, why)
    small = outcomes.slots.size <= MOST_SLIDER_TREES and math.isfinite(policy.guarantee.rho)
    budgets = sorted({*SLIDER_BUDGETS, policy.guarantee.rho})
    task = progress.add_task("predicting", total=REPETITIONS + 2 + (len(budgets) if small else 0))
    families, trials = _rehearsed(policy, lambda: progress.advance(task))
    if _noise_dominated(families, trials):
        return replace(_without_numbers(hidden, NOISE_HIDES), noise_dominated=True, warning=_noise_warning(families))
    costs = EstimatedCosts.of(policy)
    progress.advance(task)
    if follows := orders_follow_demand(policy, costs):
        return _without_numbers(hidden, follows)
    forecast = _with_numbers(costs, families, trials, hidden)
    if small and forecast.policy is not None and forecast.best is not None:
        known = (forecast.policy.mean, forecast.best.mean)
        found = _costs_by_budget(policy, budgets, *known, lambda: progress.advance(task))
        return replace(forecast, budgets=found, chosen=budgets.index(policy.guarantee.rho))
    return forecast


def noise_warning(policy: Policy) -> str:
    """Whether noise hides what the log could teach, in words; empty if it does not, or cannot be told."""
    if policy.report.trees is None or policy.outcomes is None or policy.outcomes.slots is None:
        return ""
    families, trials = _rehearsed(policy, lambda: None)
    return _noise_warning(families) if _noise_dominated(families, trials) else ""


def _rehearsed(policy: Policy, advance: Callable[[], None]) -> tuple[Trial, list[Trial]]:
    """Fits on demand that nobody estimated, and on that of the estimate."""
    rehearsal = Rehearsal(policy)
    families = rehearsal.on_families()
    advance()
    trials = []
    for seed in range(REPETITIONS):
        trials.append(rehearsal.on_estimate(seed))
        advance()
    return families, trials


def _with_numbers(costs: EstimatedCosts, families: Trial, trials: list[Trial], hidden: list[Hidden]) -> Forecast:
    policy_error = relative_error(trials, lambda trial: (trial.policy, trial.true_policy), costs.columns)
    best_error = relative_error(trials, lambda trial: (trial.best, trial.true_best), costs.columns)
    policy = float(costs.policy.sum())
    unseen = float(costs.unseen.sum()) > MOST_UNSEEN * policy
    # A plan is always best by its own estimate. What noise took from it shows where the laws are known.
    gap = max(0.0, float(np.mean([trial.gap for trial in trials])))
    of_knowing = np.minimum(costs.best, costs.policy / (1 + gap))
    tail = TAIL_DOUBT * float(costs.unseen.sum())
    # How much a fit overestimates shows where the laws are known, and are not those of an estimate.
    wide = 1 + min(max(families.overestimate, 0.0), MOST_TAKEN_OFF)
    shown_policy, shown_best = costs.policy / wide, of_knowing / wide
    best = float(of_knowing.sum())
    ours = _estimate(float(shown_policy.sum()), policy * policy_error, policy * MODEL_ERROR, tail)
    known = _estimate(float(shown_best.sum()), best * best_error, best * MODEL_ERROR, tail)
    today, verdict = None, CANNOT_TELL
    unknown = because = f"What past orders cost is not known: {costs.why_not}" if costs.today is None else ""
    if costs.today is not None:
        now = float(costs.today.sum())
        # The shortage rests on the same estimate of demand as the policy's cost does.
        noise = (float(costs.missing.sum()) * policy_error, costs.left_error)
        today = _estimate(now, *noise, now * MODEL_ERROR, tail)
        if math.hypot(*noise) > MOST_NOISE_ERROR * now:
            today, unknown = None, "The noise of this budget makes the cost of past orders too uncertain to show."
        # Demand beyond what was ever ordered costs both the same, but for what the policy orders of it.
        both = (policy * policy_error, *noise, max(now, policy) * MODEL_ERROR, float(costs.reached.sum()))
        difference = _estimate(policy - now, *both)
        # If past orders followed demand, they cost less than estimated, and never more.
        verdict, because = _verdict(replace(difference, high=difference.high + costs.foreseen), now)
    if unseen or max(policy_error, best_error) > MOST_NOISE_ERROR:
        # The verdict has all of this doubt in its interval, so it may still be clear.
        nothing = _without_numbers(hidden, UNSEEN if unseen else TOO_NOISY)
        return replace(nothing, verdict=verdict, because=because)
    products = [
        ProductCosts(
            each.product,
            None if today is None or costs.today is None else float(costs.today[i]),
            float(shown_policy[i]),
            float(shown_best[i]),
            each.binds,
            each.untried,
            each.beyond,
        )
        for i, each in enumerate(hidden)
    ]
    return Forecast(today, ours, known, unknown, verdict, because, products, [], 0, False, "")


def _estimate(mean: float, *errors: float) -> CostEstimate:
    width = WITHIN_90 * math.hypot(*errors)
    return CostEstimate(mean, mean - width, mean + width)


def _verdict(difference: CostEstimate, today: float) -> tuple[SwitchVerdict, str]:
    if today <= 0:
        return CANNOT_TELL, "Today's ordering is predicted to cost nothing, so there is nothing to compare with."
    low, high = max(difference.low / today, -1.0), difference.high / today
    nine = "in nine cases out of ten"
    if high < 0:
        return "switch", f"The policy is predicted to cost {-high:.0%} to {-low:.0%} less than today, {nine}."
    if low > 0:
        return "do not switch", f"The policy is predicted to cost {low:.0%} to {high:.0%} more than today, {nine}."
    return CANNOT_TELL, f"The policy may cost up to {-low:.0%} less than today, or up to {high:.0%} more, {nine}."


def _noise_dominated(families: Trial, trials: list[Trial]) -> bool:
    """Whether noise took a good part of what the log could teach.

    On demand that nobody estimated, more than a quarter is lost. Or some is lost, and the estimate says that data are
    worth little: an estimate that noise has pushed back to the bounds says that.
    """
    lost = noise_share_of_gain(families.gap, families.free_gap)
    gap, free_gap = (float(np.mean([getattr(trial, name) for trial in trials])) for name in ("gap", "free_gap"))
    if free_gap < WORTHLESS:
        return lost > LITTLE_LOST
    # Noise pushes an estimate back to the bounds. One that is far from them, and loses little there, is no such one.
    taught = free_gap > WORTH_MUCH and noise_share_of_gain(gap, free_gap) < LITTLE_LOST
    return lost > NOISE_DOMINATED and not taught


def _noise_warning(families: Trial) -> str:
    lost = min(1.0, noise_share_of_gain(families.gap, families.free_gap))
    gap, without = signed_percent(families.gap), signed_percent(families.free_gap)
    return (
        f"This log is noise-dominated. With so few units at this rho, about {lost:.0%} of what data could save is lost "
        f"({gap} above the optimum on demand that nobody estimated, {without} without data). The policy leans on the "
        "declared bounds, and no cost can be predicted."
    )


def _without_numbers(hidden: list[Hidden], why: str) -> Forecast:
    products = [ProductCosts(each.product, None, None, None, each.binds, each.untried, each.beyond) for each in hidden]
    return Forecast(None, None, None, why, CANNOT_TELL, why, products, [], 0, False, "")


def _costs_by_budget(
    policy: Policy, budgets: list[float], spent: float, best: float, advance: Callable[[], None]
) -> list[BudgetCost]:
    """What fits at other budgets would cost, by trees of the estimate with other noise; `spent` at the policy's own."""
    rehearsal = Rehearsal(policy, most_trees=SLIDER_TREES)
    gaps = []
    trees = policy.report.trees
    assert trees is not None
    for rho in budgets:
        variance = trees.variance * policy.guarantee.rho / rho
        gaps.append(rehearsal.on_estimate(0, variance=variance).gap)
        advance()
    # More noise never helps. Where it seems to, it is the luck of one draw.
    falling = np.maximum.accumulate(np.maximum(gaps, 0.0)[::-1])[::-1]
    # Nor does anybody do better than who knows the demand.
    costs = np.maximum(spent * (1 + falling) / (1 + falling[budgets.index(policy.guarantee.rho)]), best)
    return [
        BudgetCost(rho, epsilon(rho, 1e-6), attack_power(rho), float(cost), float(cost) / best - 1 if best > 0 else 0.0)
        for rho, cost in zip(budgets, costs, strict=True)
    ]
