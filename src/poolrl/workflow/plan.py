"""What does each budget buy, and how large a log does it take? By simulation: no row of any log is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from rich.progress import Progress

from poolrl.checks import fraction, one_of, positive, whole
from poolrl.privacy.zcdp import attack_power, epsilon
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import OutcomeProblem
from poolrl.problems.words import Words
from poolrl.simulation.families import FAMILIES
from poolrl.simulation.worlds import World, worlds_of
from poolrl.workflow.config.configuration import Config
from poolrl.workflow.prediction import (
    SIZES,
    AssumedLog,
    Prediction,
    most_units,
    noise_share_of_gain,
    runs_for,
    units_needed,
)
from poolrl.workflow.trades.trade import trade_of

COMPARED_BUDGETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
DEMANDS = ("any", "prior", *FAMILIES)


@dataclass(frozen=True)
class PlanLine:
    """One budget or one size: mean cost, mean gap, and the gap of the worst family."""

    rho: float
    units: int
    cost: float
    gap: float
    worst: float
    worst_family: str

    @classmethod
    def of(cls, predictions: Sequence[Prediction]) -> PlanLine:
        """Average over worlds; the worst family by its own average."""
        names = sorted({each.world for each in predictions})
        gaps = {name: float(np.mean([each.gap for each in predictions if each.world == name])) for name in names}
        worst = max(gaps, key=lambda name: gaps[name])
        first = predictions[0]
        cost = float(np.mean([each.cost for each in predictions]))
        return cls(first.rho, first.units, cost, float(np.mean(list(gaps.values()))), gaps[worst], worst)

    def facts(self) -> dict[str, Any]:
        """For programs. JSON has no NaN, which a gap is where knowing the demand costs nothing."""
        return {name: None if value != value else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class PlanQuestion:
    """What is asked: a budget, a size of the log, a demand, and which gap is good enough."""

    rho: float
    units: int
    demand: str
    within: float

    def check(self, config: Config) -> None:
        """Refuse what cannot be simulated."""
        one_of(DEMANDS, demand=self.demand)
        positive(rho=self.rho)
        if math.isinf(self.rho):
            raise ValueError("rho must be finite: without noise there is nothing to plan")
        fraction(within=self.within)
        whole(units=self.units)
        owned = config.plan.trajectories_per_unit or config.privacy.per_unit
        most = most_units(assumed_problem(config), owned)
        if self.units > most:
            raise ValueError(f"units must be at most {most:,} to be simulated here; beyond that the gap hardly falls")


@dataclass(frozen=True)
class BudgetPlan:
    """The answer: costs by budget at one size, and by size at one budget."""

    question: PlanQuestion
    by_rho: list[PlanLine]
    by_size: list[PlanLine]
    gap_without_data: float
    assumed: list[str] = field(default_factory=list)  # of a scale and of labels, in sentences
    words: Words = Inventory.words

    @property
    def units_needed(self) -> int | None:
        """How many units bring the worst family within reach, in two digits; None if no size that was tried does."""
        needed = units_needed([(line.units, line.worst) for line in self.by_size], self.question.within)
        return None if needed is None else _two_digits(needed)

    @property
    def chosen(self) -> PlanLine:
        """The line of the budget that was asked about."""
        return next(line for line in self.by_rho if line.rho == self.question.rho)

    @property
    def noise_share(self) -> float:
        """How much of what data could save is lost to noise at that budget."""
        return noise_share_of_gain(self.chosen.gap, self.gap_without_data)

    def facts(self) -> dict[str, Any]:
        """For programs."""
        budgets = [
            line.facts() | {"epsilon": epsilon(line.rho, 1e-6), "attack": attack_power(line.rho)}
            for line in self.by_rho
        ]
        free = self.gap_without_data
        return {
            "read_no_row": True,
            "demand": self.question.demand,
            "budgets": budgets,
            "sizes": [line.facts() for line in self.by_size],
            "gap_without_data": free if math.isfinite(free) else None,
            "within": self.question.within,
            "units_needed": self.units_needed,
            "assumed": self.assumed,
        }


def plan_budgets(config: Config, question: PlanQuestion, progress: Progress) -> BudgetPlan:
    """Simulate shops with the public facts of a configuration, and fit each at several budgets and sizes."""
    question.check(config)
    problem, rho = assumed_problem(config), question.rho
    log = AssumedLog(question.units, config.privacy.per_unit, config.plan.trajectories_per_unit)
    budgets = sorted({*COMPARED_BUDGETS, rho})
    worlds = _worlds(problem, question.demand, log, fits=len(budgets))
    simulator = _WithMemory(simulator_of(problem), config.moved if config.privacy.unit is None else 1)
    task = progress.add_task("budgets", total=len(worlds) * len(budgets))
    found: list[Prediction] = []
    for number, world in enumerate(worlds):
        for each in simulator.predict(world, log, budgets, seed=number):
            found.append(each)
            progress.advance(task)
    by_rho = [PlanLine.of([each for each in found if each.rho == value]) for value in budgets]
    by_size = _grow(simulator, worlds, log, question, progress)
    free = float(np.mean([each.free_gap for each in found]))
    return BudgetPlan(question, by_rho, by_size, free, assumptions(config), problem.words)


def assumed_problem(config: Config) -> OutcomeProblem:
    """The problem that is simulated: without labels, as if all label cells had one law and were learned together."""
    problem: OutcomeProblem = config.problem.unlabelled()
    return problem


def simulator_of(problem: OutcomeProblem) -> Any:
    """Shops know their costs exactly; other problems are judged on simulated paths."""
    return trade_of(problem).simulator(problem)


def assumptions(config: Config) -> list[str]:
    """What is assumed of a scale and of labels, in sentences."""
    said = []
    if config.columns().scale:
        paid = f", and pays for {config.moved} trajectories at once" if config.privacy.unit is None else ""
        said.append(f"Amounts are multiples of the scale, which the simulation knows exactly{paid}.")
    if cells := config.problem.posed.labels:
        said.append(
            f"Labels are not simulated: their {cells.count:,} combinations are planned as one. Where they differ, "
            "expect larger gaps."
        )
    return said


class _WithMemory:
    """Simulated fits that pay for c trajectories at once: noise of variance c² / ρ is that of the budget ρ / c²."""

    def __init__(self, simulator: Any, moved: int) -> None:
        self.problem: OutcomeProblem = simulator.problem
        self._simulator, self._moved = simulator, moved

    def predict(self, world: World, log: AssumedLog, budgets: Sequence[float], *, seed: int) -> Iterator[Prediction]:
        """At each budget, as it is left when c trajectories are paid for."""
        paid = [rho / self._moved**2 for rho in budgets]
        for rho, found in zip(budgets, self._simulator.predict(world, log, paid, seed=seed), strict=True):
            yield replace(found, rho=rho)


def _worlds(problem: OutcomeProblem, demand: str, log: AssumedLog, *, fits: int) -> list[World]:
    families = len(FAMILIES) if demand == "any" else 1
    runs = runs_for(problem, log.units * log.filled, fits=families * fits, most=1 if families > 1 else 4)
    return worlds_of(problem, demand, runs=runs)


def _grow(
    simulator: _WithMemory, worlds: Sequence[World], log: AssumedLog, question: PlanQuestion, progress: Progress
) -> list[PlanLine]:
    """Ever larger logs at one budget, until the worst family is good enough."""
    lines: list[PlanLine] = []
    largest = min(most_units(simulator.problem, log.filled), max(1, SIZES[-1] // log.filled))
    sizes = [size for size in SIZES if size < largest] + [largest]
    task = progress.add_task("sizes", total=len(sizes))
    for size in sizes:
        found = [
            each
            for number, world in enumerate(worlds)
            for each in simulator.predict(world, replace(log, units=size), [question.rho], seed=100 + number)
        ]
        lines.append(PlanLine.of(found))
        progress.advance(task)
        if lines[-1].worst <= question.within or math.isnan(lines[-1].worst):
            break
    return lines


def _two_digits(number: float) -> int:
    """Rounded up to two digits: a prediction has no more."""
    scale = 10 ** max(0, int(np.floor(np.log10(number))) - 1)
    return int(np.ceil(number / scale) * scale)
