"""The budget study: what does each budget buy, and how large a log does it take? No row of any log is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from rich.progress import Progress

from poolrl.checks import fraction, one_of, positive, whole
from poolrl.learning.policy import Policy
from poolrl.pool import Pool
from poolrl.privacy.noise.seeded import SeededNoise
from poolrl.privacy.zcdp import attack_power, epsilon
from poolrl.problems.problem import LevelProblem, OutcomeProblem
from poolrl.simulation.evaluation import data_free, expected_costs, optimum, rollout_cost, saa
from poolrl.simulation.families import FAMILIES, World, worlds_of
from poolrl.simulation.logs import simulate_log
from poolrl.workflow.config.configuration import Config
from poolrl.workflow.forecast import noise_share_of_gain
from poolrl.workflow.trades.trade import Trade, trade_of

DEMANDS = ("any", "prior", *FAMILIES)
SIZES = (30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
# Budgets that are compared with each other.
BUDGETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
# Rows times products of one simulated log, so that it fits into memory; and of all, so that they take seconds.
LARGEST_LOG, MOST_ROWS = 20_000_000, 40_000_000
# Paths on which policies of simulated fits are compared.
JUDGING_PATHS = 10_000


@dataclass(frozen=True)
class Prediction:
    """The mean cost per trajectory of one simulated fit."""

    world: str
    rho: float
    units: int
    cost: float
    best: float  # of somebody who knows the world
    free: float  # of somebody who knows only the bounds

    @property
    def gap(self) -> float:
        """(c − c*) / |c*|; NaN where knowing the world costs nothing, for then there is no ratio."""
        return (self.cost - self.best) / abs(self.best) if self.best else math.nan

    @property
    def free_gap(self) -> float:
        """The same without any data."""
        return replace(self, cost=self.free).gap


class Simulator:
    """Simulated logs of one problem, whose decisions are uniform over what is allowed. Nothing sensitive is read.

    A unit may own `per_unit` trajectories, and does own `owned`; the places it leaves empty bring noise and no
    observation. A fit pays for `moved` trajectories at once: noise of variance c² / ρ is that of the budget ρ / c².
    """

    def __init__(self, problem: OutcomeProblem, *, per_unit: int = 1, owned: int | None = None, moved: int = 1) -> None:
        self.problem, self.per_unit, self.moved = problem, per_unit, moved
        # Trajectories of one unit that are used.
        self.filled = min(per_unit, owned or per_unit)
        self._free = data_free(problem)
        self._judges: dict[World, tuple[Callable[[Policy], float], Policy]] = {}

    def predict(self, world: World, units: int, budgets: Sequence[float], *, seed: int) -> Iterator[Prediction]:
        """One simulated log, fitted at each budget; the seed makes both the log and the noise."""
        problem, rng = self.problem, np.random.default_rng([seed, units, self.per_unit])
        known: dict[str, Any] = {}
        if self.per_unit > 1:
            known = {"unit": np.repeat(np.arange(units), self.filled), "max_per_unit": self.per_unit}
        simulated = simulate_log(problem, world.sample(problem, units * self.filled, rng), rng=rng, **known)
        if world not in self._judges:
            self._judges[world] = trade_of(problem).judge(problem, world)
        cost_of, best = self._judges[world]
        ends = cost_of(best), cost_of(self._free)
        for number, rho in enumerate(budgets):
            policy = Pool(rho / self.moved**2).fit(problem, simulated, noise=SeededNoise(seed * 1_000 + number))
            yield Prediction(world.name, rho, units, cost_of(policy), *ends)


def judge_on_paths(problem: OutcomeProblem, world: World) -> tuple[Callable[[Policy], float], Policy]:
    """What a policy costs on simulated paths of a world, and the policy of somebody who knows that world."""
    rng = np.random.default_rng(0)
    best = saa(problem, world.sample(problem, 2 * JUDGING_PATHS, rng))
    paths = world.sample(problem, JUDGING_PATHS, rng)
    return lambda policy: rollout_cost(problem, policy, paths), best


def judge_levels(problem: LevelProblem, world: World) -> tuple[Callable[[Policy], float], Policy]:
    """The same for levels, whose costs are known exactly. Somebody who knows the demand may order beyond λ."""
    best = optimum(problem.changed(boundary=1.0), world.probabilities)
    return lambda policy: float(expected_costs(problem, policy.levels, world.probabilities).sum()), best


@dataclass(frozen=True)
class StudyLine:
    """One budget or one size: mean cost, mean gap, and the gap of the worst family."""

    rho: float
    units: int
    cost: float
    gap: float
    worst: float
    worst_family: str

    @classmethod
    def of(cls, predictions: Sequence[Prediction]) -> StudyLine:
        """Average over worlds; the worst family by its own average."""
        names = sorted({each.world for each in predictions})
        gaps = {name: float(np.mean([each.gap for each in predictions if each.world == name])) for name in names}
        worst = max(gaps, key=lambda name: gaps[name])
        first = predictions[0]
        cost = float(np.mean([each.cost for each in predictions]))
        return cls(first.rho, first.units, cost, float(np.mean(list(gaps.values()))), gaps[worst], worst)


@dataclass(frozen=True, kw_only=True)
class BudgetStudy:
    """A budget, a size of the log, a family of outcomes, and a gap that is good enough; costs by budget and by size."""

    rho: float
    units: int
    demand: str
    within: float
    by_rho: list[StudyLine]
    by_size: list[StudyLine]
    gap_without_data: float
    trade: Trade
    assumed: tuple[str, ...] = ()  # of a scale and of labels, in sentences

    @property
    def units_needed(self) -> int | None:
        """The first size that brings the worst family within reach; None if no size that was tried does."""
        return next((line.units for line in self.by_size if line.worst <= self.within), None)

    @property
    def chosen(self) -> StudyLine:
        """The line of the budget that was asked about."""
        return next(line for line in self.by_rho if line.rho == self.rho)

    @property
    def noise_share(self) -> float:
        """How much of what data could save is lost to noise at that budget."""
        return noise_share_of_gain(self.chosen.gap, self.gap_without_data)

    def judged_by(self, line: StudyLine) -> float:
        """The amount that the trade looks at: the cost, or the earnings, which are a cost below zero."""
        return -line.cost if self.trade.earns else line.cost

    def facts(self) -> dict[str, Any]:
        """For programs. JSON has no NaN, which a gap is where knowing the world costs nothing."""

        def known(line: StudyLine) -> dict[str, Any]:
            values = asdict(line) | {"cost": self.judged_by(line)}
            return {name: None if value != value else value for name, value in values.items()}

        budgets = [
            known(line) | {"epsilon": epsilon(line.rho, 1e-6), "attack": attack_power(line.rho)} for line in self.by_rho
        ]
        free = self.gap_without_data
        return {
            "read_no_row": True,
            "demand": self.demand,
            "budgets": budgets,
            "sizes": [known(line) for line in self.by_size],
            "gap_without_data": free if math.isfinite(free) else None,
            "within": self.within,
            "units_needed": self.units_needed,
            "assumed": list(self.assumed),
        }


def study_budgets(config: Config, bar: Progress, *, rho: float, units: int, demand: str, within: float) -> BudgetStudy:
    """Simulate logs with the public facts of a configuration, and fit each at several budgets and sizes."""
    one_of(DEMANDS, demand=demand)
    positive(rho=rho)
    if math.isinf(rho):
        raise ValueError("rho must be finite: without noise there is nothing to study")
    fraction(within=within)
    whole(units=units)
    # Without labels, as if all label cells had one law and were learned together.
    problem: OutcomeProblem = config.problem.with_labels({})
    per_unit, owned = config.privacy.per_unit, config.plan.trajectories_per_unit
    most = _most_units(problem, owned or per_unit)
    if units > most:
        raise ValueError(f"units must be at most {most:,} to be simulated here; beyond that the gap hardly falls")
    moved = config.moved if config.privacy.unit is None else 1
    simulator = Simulator(problem, per_unit=per_unit, owned=owned, moved=moved)
    budgets = sorted({*BUDGETS, rho})
    families = len(FAMILIES) if demand == "any" else 1
    rows = units * simulator.filled * problem.horizon * problem.outcome_dim * families * len(budgets)
    worlds = worlds_of(problem, demand, runs=max(1, min(1 if families > 1 else 4, MOST_ROWS // rows)))
    fits = (fit for seed, world in enumerate(worlds) for fit in simulator.predict(world, units, budgets, seed=seed))
    predictions = list(bar.track(fits, total=len(worlds) * len(budgets), description="budgets"))
    # Ever larger logs at one budget, until the worst family is good enough.
    by_size: list[StudyLine] = []
    largest = min(_most_units(problem, simulator.filled), max(1, SIZES[-1] // simulator.filled))
    sizes = [size for size in SIZES if size < largest] + [largest]
    for size in bar.track(sizes, description="sizes"):
        by_world = (simulator.predict(world, size, [rho], seed=100 + number) for number, world in enumerate(worlds))
        by_size.append(StudyLine.of([*chain.from_iterable(by_world)]))
        if by_size[-1].worst <= within or math.isnan(by_size[-1].worst):
            break
    return BudgetStudy(
        rho=rho,
        units=units,
        demand=demand,
        within=within,
        by_rho=[StudyLine.of([each for each in predictions if each.rho == budget]) for budget in budgets],
        by_size=by_size,
        gap_without_data=float(np.mean([each.free_gap for each in predictions])),
        trade=trade_of(problem),
        assumed=tuple(assumptions(config)),
    )


def assumptions(config: Config) -> Iterator[str]:
    """What is assumed of a scale and of labels, in sentences."""
    if config.columns().scale:
        paid = f", and pays for {config.moved} trajectories at once" if config.privacy.unit is None else ""
        yield f"Amounts are multiples of the scale, which the simulation knows exactly{paid}."
    if cells := config.problem.posed.labels:
        yield (
            f"Labels are not simulated: their {cells.count:,} combinations are learned as one. Where they differ, "
            "expect larger gaps."
        )


def _most_units(problem: OutcomeProblem, per_unit: int) -> int:
    """The largest log that can be simulated here."""
    return max(1, LARGEST_LOG // (problem.horizon * problem.outcome_dim * per_unit))
