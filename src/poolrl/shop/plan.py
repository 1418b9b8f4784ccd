"""`poolrl plan`: what does each budget buy, and how large a log does it take? Reads no row of any log."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from poolrl.certificate.label import percent
from poolrl.checks import fraction, positive, whole
from poolrl.privacy.zcdp import attack_power, epsilon, rounded_up
from poolrl.problems.inventory import Backlog, LostSales
from poolrl.shop.config import load_config
from poolrl.shop.prediction import (
    DROWNING,
    SIZES,
    AssumedLog,
    Prediction,
    Simulator,
    drowned_share,
    most_units,
    runs_for,
    signed_percent,
    units_needed,
)
from poolrl.simulation.families import FAMILIES
from poolrl.simulation.worlds import World, worlds_of

SHOWN = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
DEMANDS = ("any", "prior", *FAMILIES)


@dataclass(frozen=True)
class Line:
    """One budget or one size: mean cost, mean gap, and the gap of the worst family."""

    rho: float
    units: int
    cost: float
    gap: float
    worst: float
    worst_family: str

    @classmethod
    def of(cls, predictions: Sequence[Prediction]) -> Line:
        """Average over worlds; the worst family by its own average."""
        names = sorted({each.world for each in predictions})
        gaps = {name: float(np.mean([each.gap for each in predictions if each.world == name])) for name in names}
        worst = max(gaps, key=lambda name: gaps[name])
        first = predictions[0]
        cost = float(np.mean([each.cost for each in predictions]))
        return cls(first.rho, first.units, cost, float(np.mean(list(gaps.values()))), gaps[worst], worst)


def run_plan(
    path: Path, *, rho: float | None, units: int | None, demand: str | None, within: float, as_json: bool
) -> None:
    """Simulate, print two tables and one sentence."""
    config = load_config(path).config
    chosen = demand or config.plan.demand
    if chosen not in DEMANDS:
        near = get_close_matches(chosen, DEMANDS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"there is no demand {chosen!r}; {hint}choose from {', '.join(DEMANDS)}")
    asked = config.privacy.rho if rho is None else rho
    size = config.plan.units if units is None else units
    positive(rho=asked)
    if math.isinf(asked):
        raise ValueError("rho must be finite: without noise there is nothing to plan")
    fraction(within=within)
    whole(units=size)
    most = most_units(config.problem.problem(), config.plan.trajectories_per_unit or config.privacy.per_unit)
    if size > most:
        raise ValueError(f"units must be at most {most:,} to be simulated here; beyond that the gap hardly falls")
    console = Console(quiet=as_json)
    with Progress(console=console, transient=True) as progress:
        by_rho, by_size, free = _simulate(
            config.problem.problem(),
            chosen,
            asked,
            AssumedLog(size, config.privacy.per_unit, config.plan.trajectories_per_unit),
            within,
            progress,
        )
    needed = units_needed([(line.units, line.worst) for line in by_size], within)
    if as_json:
        print(json.dumps(_facts(by_rho, by_size, free, needed, chosen, within), indent=2))
        return
    _print(console, by_rho, by_size, free, chosen, size, asked)
    who = config.privacy.unit or "trajectory"
    sentence = f"To stay within {within:.0%} of the optimum at rho = {asked:g}, even for the worst demand tried, "
    if needed is None:
        sentence += f"{by_size[-1].units:,} units are not enough: allow more cost (--within) or a larger rho."
    else:
        sentence += f"the log should hold about {_two_digits(needed):,} units (each a {who})."
    console.print(sentence, highlight=False, markup=False)
    chosen_line = next(line for line in by_rho if line.rho == asked)
    lost = drowned_share(chosen_line.gap, free)
    if lost > DROWNING:
        console.print(
            f"[bold red]Do not spend it like this:[/] with {size:,} units at rho = {asked:g} noise would drown about "
            f"{min(1.0, lost):.0%} of what data could save ({signed_percent(chosen_line.gap)} above the optimum, "
            f"{signed_percent(free)} without any data).",
            highlight=False,
        )
    console.print("Predicted by simulation; no row of the log was read and nothing was spent.", highlight=False)


def _simulate(
    problem: LostSales | Backlog, demand: str, rho: float, log: AssumedLog, within: float, progress: Progress
) -> tuple[list[Line], list[Line], float]:
    budgets = sorted({*SHOWN, rho})
    families = 5 if demand == "any" else 1
    runs = runs_for(problem, log.units * log.filled, fits=families * len(budgets), most=1 if families > 1 else 4)
    worlds = worlds_of(problem, demand, runs=runs)
    simulator = Simulator(problem)
    task = progress.add_task("budgets", total=len(worlds) * len(budgets))
    found: list[Prediction] = []
    for number, world in enumerate(worlds):
        for each in simulator.predict(world, log, budgets, seed=number):
            found.append(each)
            progress.advance(task)
    by_rho = [Line.of([each for each in found if each.rho == value]) for value in budgets]
    by_size = _grow(simulator, worlds, log, rho, within, progress)
    return by_rho, by_size, float(np.mean([each.free_gap for each in found]))


def _grow(
    simulator: Simulator, worlds: Sequence[World], log: AssumedLog, rho: float, within: float, progress: Progress
) -> list[Line]:
    """Ever larger logs at one budget, until the worst family is good enough."""
    lines: list[Line] = []
    largest = min(most_units(simulator.problem, log.filled), max(1, SIZES[-1] // log.filled))
    sizes = [size for size in SIZES if size < largest] + [largest]
    task = progress.add_task("sizes", total=len(sizes))
    for size in sizes:
        found = [
            each
            for number, world in enumerate(worlds)
            for each in simulator.predict(world, replace(log, units=size), [rho], seed=100 + number)
        ]
        lines.append(Line.of(found))
        progress.advance(task)
        if lines[-1].worst <= within or math.isnan(lines[-1].worst):
            break
    return lines


def _print(
    console: Console, by_rho: list[Line], by_size: list[Line], free: float, demand: str, size: int, rho: float
) -> None:
    where = "five families of demand" if demand == "any" else f"{demand} demand"
    budgets = Table(
        title=f"What a budget buys with {size:,} units, on {where}",
        caption=f"Gap: mean cost above that of somebody who knows the demand. Without any data: {free:+.0%}.\n"
        "Demand is invented between your bounds: compare costs with each other only; tenths of a percent are chance.\n"
        "Attack: what an attacker finds out at most, with 5% false alarms; guessing finds 5%. Epsilon at delta 1e-6.",
        title_justify="left",
        caption_justify="left",
        title_style="bold",
    )
    for name in ("rho", "epsilon", "attack", "cost", "gap", "worst gap"):
        budgets.add_column(name, justify="right")
    for line in by_rho:
        mark = "[bold]" if line.rho == rho else ""
        cells = (
            f"{line.rho:g}",
            rounded_up(epsilon(line.rho, 1e-6)),
            percent(attack_power(line.rho)),
            f"{line.cost:,.1f}",
            signed_percent(line.gap),
            f"{signed_percent(line.worst)} {line.worst_family if demand == 'any' else ''}",
        )
        budgets.add_row(*(mark + cell for cell in cells))
    console.print(budgets)
    sizes = Table(title=f"How large a log, at rho = {rho:g}", title_justify="left", title_style="bold")
    for name in ("units", "gap", "worst gap"):
        sizes.add_column(name, justify="right")
    for line in by_size:
        sizes.add_row(f"{line.units:,}", signed_percent(line.gap), signed_percent(line.worst))
    console.print(sizes)


def _facts(
    by_rho: Iterable[Line], by_size: Iterable[Line], free: float, needed: float | None, demand: str, within: float
) -> dict[str, Any]:
    return {
        "read_no_row": True,
        "demand": demand,
        "budgets": [
            _numbers(line) | {"epsilon": epsilon(line.rho, 1e-6), "attack": attack_power(line.rho)} for line in by_rho
        ],
        "sizes": [_numbers(line) for line in by_size],
        "gap_without_data": free if math.isfinite(free) else None,
        "within": within,
        "units_needed": None if needed is None else _two_digits(needed),
    }


def _numbers(line: Line) -> dict[str, Any]:
    """JSON has no NaN, which a gap is where knowing the demand costs nothing."""
    return {key: None if value != value else value for key, value in vars(line).items()}


def _two_digits(number: float) -> int:
    """Rounded up to two digits: a prediction has no more."""
    scale = 10 ** max(0, int(np.floor(np.log10(number))) - 1)
    return int(np.ceil(number / scale) * scale)
