"""Forecast: what the page predicts, from a policy and public facts alone.

Logs are simulated from the demand that the fit has released an estimate of, which is post-processing and costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from rich.progress import Progress

from poolrl.checks import BoolArray, FloatArray
from poolrl.learning.policy import Policy
from poolrl.privacy.zcdp import attack_power, epsilon
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import ROUNDING
from poolrl.shop.prediction import (
    NOISE_DOMINATED,
    SLIDER_BUDGETS,
    AssumedLog,
    Prediction,
    Simulator,
    most_units,
    noise_share_of_gain,
    runs_for,
    signed_percent,
)
from poolrl.simulation.evaluation import expected_costs
from poolrl.simulation.worlds import World, estimated_world, worlds_of

# Simulated logs: as many where noise decides the cost, a few for the budget that was spent, and two elsewhere.
MOST_RUNS, RUNS_OF_SPENT, LEAST_RUNS = 6, 4, 2
NOISY = 0.2
SELDOM = 0.1  # fewer of the past orders than this: the level rests on the public prior more than on the log


@dataclass(frozen=True)
class BudgetCost:
    """One position of the slider."""

    rho: float
    epsilon: float
    attack: float
    cost: float
    gap: float


@dataclass(frozen=True)
class CostEstimate:
    """Mean cost per trajectory of all products, averaged over label cells, with a 90% interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class ProductCosts:
    """One product: its costs where they are known, and what empty shelves and λ hid of it."""

    product: str
    today: float | None
    policy: float | None
    best: float | None
    binds: list[str]  # steps at which the level stands at λ
    untried: list[str]  # steps at which past orders seldom went as far as the level
    beyond: float  # estimated chance that demand exceeds the level of its step


@dataclass(frozen=True)
class Elsewhere:
    """Gaps on public families of demand, with logs of this size at this budget, where no estimate confirms itself."""

    gap: float  # on average
    worst: float  # of the worst family
    free_gap: float  # on average, without any data

    def noise_dominated(self, best: float, free: float) -> bool:
        """Whether noise took a good part of what the log could teach.

        On demand that nobody estimated, more than a quarter is lost. Or some is lost, and the estimate says that data
        are worth little: an estimate that noise has pushed back to the bounds says that.
        """
        lost = noise_share_of_gain(self.gap, self.free_gap)
        worthless = best > 0 and free / best - 1 < 0.1
        return lost > NOISE_DOMINATED or (worthless and lost > 0.1)

    @property
    def warning(self) -> str:
        """How bad it is, in two sentences."""
        lost = min(1.0, noise_share_of_gain(self.gap, self.free_gap))
        gap, without = signed_percent(self.gap), signed_percent(self.free_gap)
        return (
            f"This log is noise-dominated. With so few units at this rho, about {lost:.0%} of what data could save is "
            f"lost ({gap} above the optimum on demand that nobody estimated, {without} without data). The policy rests "
            "on the declared bounds, and so do the costs predicted from its own estimate."
        )


@dataclass(frozen=True)
class Forecast:
    """What the page says about costs."""

    today: CostEstimate | None
    policy: CostEstimate | None
    best: CostEstimate | None
    unknown: str  # why a number is missing, "" otherwise
    verdict: Literal["switch", "do not switch", "cannot tell"]
    because: str  # one sentence
    products: list[ProductCosts]
    budgets: list[BudgetCost]  # positions of the slider; empty where it was not simulated
    chosen: int
    noise_dominated: bool
    warning: str


def make_forecast(policy: Policy, *, units: int, progress: Progress) -> Forecast:
    """Simulate logs of `units` units from the policy's estimate of demand, and fit each at the slider's budgets."""
    problem, rho, outcomes = policy.problem, policy.guarantee.rho, policy.outcomes
    assert isinstance(problem, Inventory)
    assert outcomes is not None
    if problem.labels or policy.guarantee.scaled:
        unknown = "Costs of a policy with labels or a scale are not predicted."
        products = [ProductCosts(name, None, None, None, [], [], math.nan) for name in policy.names.products]
        return Forecast(None, None, None, unknown, "cannot tell", unknown, products, [], 0, False, "")
    per_unit = policy.guarantee.trajectories_per_unit
    # The places that units leave empty are released as a noisy count: so many does a unit own, on average.
    owned = max(1, round(per_unit * outcomes.observed))
    log = AssumedLog(min(units, most_units(problem, owned)), per_unit, owned)
    budgets = sorted({*SLIDER_BUDGETS, rho})
    most = runs_for(problem, log.units * owned, fits=len(budgets) + 1, least=LEAST_RUNS, most=MOST_RUNS)
    simulator, world = Simulator(problem), estimated_world(problem, outcomes)
    families = worlds_of(problem, "any", runs=1)

    def budgets_of(run: int) -> list[float]:
        return [each for each in budgets if run < (RUNS_OF_SPENT if each == rho else LEAST_RUNS) or each < NOISY]

    spent_in = range(min(most, RUNS_OF_SPENT))
    fits = sum(len(budgets_of(run)) for run in range(most)) + len(families)
    task = progress.add_task("predicting", total=fits)

    def simulate(where: World, what: AssumedLog, at: list[float], seed: int) -> list[Prediction]:
        found = []
        for each in simulator.predict(where, what, at, seed=seed):
            found.append(each)
            progress.advance(task)
        return found

    runs = [simulate(world, log, budgets_of(run), run) for run in range(most)]
    usual = np.array([next(each.costs for each in runs[run] if each.rho == rho) for run in spent_in])
    others = [each for number, family in enumerate(families) for each in simulate(family, log, [rho], number)]
    best, free = float(runs[0][0].best.sum()), float(runs[0][0].free.sum())
    costs = [float(np.mean([each.cost for run in runs for each in run if each.rho == value])) for value in budgets]
    gaps = [each.gap for each in others]
    there = Elsewhere(float(np.mean(gaps)), max(gaps), float(np.mean([each.free_gap for each in others])))
    rows = _products(policy, world, runs[0][0].best)
    now = [float(sum(each)) for each in usual]
    spread = 1.645 * float(np.std(now, ddof=1)) if len(now) > 1 else 0.0
    mine = float(np.mean(now))
    return Forecast(
        None,
        CostEstimate(mine, mine - spread, mine + spread),
        CostEstimate(best, best, best),
        "The cost of today's ordering is not predicted.",
        "cannot tell",
        "The cost of today's ordering is not predicted.",
        rows,
        [
            BudgetCost(
                value, epsilon(value, 1e-6), attack_power(value), cost, cost / best - 1 if best > 0 else math.nan
            )
            for value, cost in zip(budgets, costs, strict=True)
        ],
        budgets.index(rho),
        there.noise_dominated(best, free),
        there.warning,
    )


def _products(policy: Policy, world: World, best: FloatArray) -> list[ProductCosts]:
    problem, levels = policy.problem, policy.levels
    assert isinstance(problem, Inventory)
    names = policy.names
    at_limit = levels >= problem.share * problem.demand_max * (1 - 1e3 * ROUNDING)
    beyond = _share_above(world.probabilities, levels, problem.demand_max)
    tried = np.ones_like(levels) if world.orders is None else _share_above(world.orders, levels, problem.demand_max)
    costs = expected_costs(problem, levels, world.probabilities)

    def steps(marked: BoolArray) -> list[str]:
        return [name for name, mark in zip(names.steps, marked, strict=True) if mark]

    return [
        ProductCosts(
            product,
            None,
            float(costs[i]),
            float(best[i]),
            steps(at_limit[:, i]),
            steps(tried[:, i] < SELDOM),
            float(beyond[:, i].mean()),
        )
        for i, product in enumerate(names.products)
    ]


def _share_above(probabilities: FloatArray, levels: FloatArray, top: FloatArray) -> FloatArray:
    """How much of each distribution (H, k, bins) over [0, top] lies above a level (H, k)."""
    bins = probabilities.shape[-1]
    middles = (np.arange(bins) + 0.5) / bins * top[:, None]
    total = probabilities.sum(axis=-1)
    return np.asarray((probabilities * (middles > levels[..., None])).sum(axis=-1) / total)
