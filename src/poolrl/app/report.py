"""`poolrl report`: from a policy and its certificate to the page; everything on it is post-processing or public."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from poolrl.app.decide import Desk
from poolrl.app.files import CERTIFICATE, PAGE, POLICY
from poolrl.app.page import page
from poolrl.app.prediction import (
    BUDGETS,
    Log,
    Prediction,
    Simulator,
    World,
    estimated_world,
    most_units,
    runs_for,
    worlds_of,
)
from poolrl.app.verify import verify
from poolrl.arrays import BoolArray, FloatArray
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.policy import Policy
from poolrl.privacy.certificate import read_certificate
from poolrl.privacy.zcdp import attack_power, epsilon
from poolrl.problems.inventory import Backlog, LostSales
from poolrl.problems.problem import ROUNDING

MOST_RUNS = 3
SELDOM = 0.1  # fewer of the past orders than this: the level rests on the public prior more than on the log


@dataclass(frozen=True)
class Budget:
    """One position of the slider."""

    rho: float
    epsilon: float
    attack: float
    cost: float
    gap: float


@dataclass(frozen=True)
class Hidden:
    """What empty shelves and λ hid of one product."""

    product: str
    binds: list[str]  # steps at which the level stands at λ
    untried: list[str]  # steps at which past orders seldom went as far as the level
    beyond: float  # estimated chance that demand exceeds the level of its step
    lost: float  # predicted cost per trajectory that full shelves would have saved
    error: float  # standard error of that


@dataclass(frozen=True)
class Elsewhere:
    """Gaps on public families of demand, with logs of this size at this budget, where no estimate confirms itself."""

    gap: float  # on average
    worst: float  # of the worst family
    free_gap: float  # on average, without any data


@dataclass(frozen=True)
class Forecast:
    """What the simulations on the released estimate say."""

    budgets: list[Budget]
    chosen: int
    units: int  # of the simulated logs
    best: float
    free: float
    hidden: list[Hidden]
    elsewhere: Elsewhere

    @property
    def drowned(self) -> bool:
        """Whether, on demand that nobody estimated, less than half of what data could save is saved."""
        return self.elsewhere.gap > 0.5 * self.elsewhere.free_gap


@dataclass(frozen=True)
class Facts:
    """All that the page shows."""

    certificate: dict[str, Any]
    certificate_text: str
    products: list[str]
    steps: list[str]
    levels: FloatArray  # (H, k)
    limit: FloatArray  # (H, k): λ in the user's units
    demand: FloatArray  # (2, H, k): 10th and 90th percentile of the released estimate
    forecast: Forecast


def draw_page(folder: Path, console: Console) -> Forecast:
    """Write the page of a release folder beside its policy and its certificate; what it forecasts."""
    policy_file, certificate_file = folder / POLICY, folder / CERTIFICATE
    if not certificate_file.exists():
        raise ValueError(f"{folder} is not a release: it has no {CERTIFICATE}. 'poolrl fit' makes one")
    broken = [check for check in verify(policy_file, certificate_file) if not check.good]
    if broken:
        raise ValueError(f"{certificate_file} does not hold ({broken[0].what}); see 'poolrl verify'")
    policy, content = Policy.load(policy_file), certificate_file.read_bytes()
    if not isinstance(policy.problem, LostSales | Backlog) or policy.outcomes is None or not hasattr(policy, "levels"):
        raise ValueError("the page draws order-up-to policies that 'poolrl fit' has made")
    certificate = read_certificate(content)
    with Progress(console=console, transient=True) as progress:
        forecast = _forecast(policy, policy.outcomes, certificate, progress)
    desk = Desk.open(policy_file)
    facts = Facts(
        certificate,
        content.decode(),
        desk.products,
        desk.steps,
        policy.levels,
        policy.problem.share * policy.problem.demand_max,
        np.stack([_percentile(policy.outcomes, share) for share in (0.1, 0.9)]),
        forecast,
    )
    (folder / PAGE).write_text(page(facts), encoding="utf-8")
    return forecast


def _forecast(
    policy: Policy, outcomes: OutcomeDistribution, certificate: dict[str, Any], progress: Progress
) -> Forecast:
    """Logs simulated from the released estimate, fitted at every budget of the slider."""
    problem, rho = policy.problem, policy.guarantee.rho
    assert isinstance(problem, LostSales | Backlog)
    per_unit = policy.guarantee.trajectories_per_unit
    log = Log(min(int(certificate["assumed_public"]["units"]), most_units(problem, per_unit)), per_unit)
    budgets = sorted({*BUDGETS, rho})
    runs = runs_for(problem, log.units * per_unit, fits=len(budgets) + 1, least=2, most=MOST_RUNS)
    simulator, world = Simulator(problem), estimated_world(outcomes)
    families = worlds_of(problem, "any", runs=1)
    task = progress.add_task("predicting", total=runs * (len(budgets) + 1) + len(families))
    found: list[Prediction] = []
    saved: list[FloatArray] = []
    for run in range(runs):
        here = []
        for each in simulator.predict(world, log, budgets, seed=run):
            here.append(each)
            progress.advance(task)
        full = Log(log.units, per_unit, shelves_never_empty=True)
        seen = next(simulator.predict(world, full, [rho], seed=run))
        progress.advance(task)
        saved.append(here[budgets.index(rho)].costs - seen.costs)
        found += here
    others: list[Prediction] = []
    for number, family in enumerate(families):
        others += simulator.predict(family, log, [rho], seed=number)
        progress.advance(task)
    gaps, free_gaps = [each.gap for each in others], [each.free_gap for each in others]
    costs = [float(np.mean([each.cost for each in found if each.rho == value])) for value in budgets]
    best, free = float(found[0].best.sum()), float(found[0].free.sum())
    return Forecast(
        [
            Budget(value, epsilon(value, 1e-6), attack_power(value), cost, cost / best - 1 if best > 0 else math.nan)
            for value, cost in zip(budgets, costs, strict=True)
        ],
        budgets.index(rho),
        log.units,
        best,
        free,
        _hidden(policy, world, np.array(saved)),
        Elsewhere(float(np.mean(gaps)), max(gaps), float(np.mean(free_gaps))),
    )


def _hidden(policy: Policy, world: World, saved: FloatArray) -> list[Hidden]:
    problem, levels = policy.problem, policy.levels
    assert isinstance(problem, LostSales | Backlog)
    labels = policy.report["labels"]
    at_limit = levels >= problem.share * problem.demand_max * (1 - 1e3 * ROUNDING)
    beyond = _share_above(world.probabilities, levels, problem.demand_max)
    tried = np.ones_like(levels) if world.orders is None else _share_above(world.orders, levels, problem.demand_max)
    runs = len(saved)
    error = saved.std(axis=0, ddof=1) / np.sqrt(runs)

    def steps(marked: BoolArray) -> list[str]:
        return [name for name, mark in zip(labels["steps"], marked, strict=True) if mark]

    return [
        Hidden(
            product,
            steps(at_limit[:, i]),
            steps(tried[:, i] < SELDOM),
            float(beyond[:, i].mean()),
            float(saved[:, i].mean()),
            float(error[i]),
        )
        for i, product in enumerate(labels["products"])
    ]


def _share_above(probabilities: FloatArray, levels: FloatArray, top: FloatArray) -> FloatArray:
    """How much of each distribution (H, k, bins) over [0, top] lies above a level (H, k)."""
    bins = probabilities.shape[-1]
    middles = (np.arange(bins) + 0.5) / bins * top[:, None]
    total = probabilities.sum(axis=-1)
    return np.asarray((probabilities * (middles > levels[..., None])).sum(axis=-1) / total)


def _percentile(outcomes: OutcomeDistribution, share: float) -> FloatArray:
    """Of the estimated demand, (H, k)."""
    cumulative = np.cumsum(outcomes.weights, axis=-1)
    place = (cumulative < share * cumulative[..., -1:]).sum(axis=-1).clip(0, cumulative.shape[-1] - 1)
    return np.take_along_axis(outcomes.points[None], place[..., None], axis=-1)[..., 0]
