"""`poolrl check`: is the table as the configuration says? For the data holder's eyes; not for release."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from poolrl.app.config import ConfigFile, load_config
from poolrl.app.logs import read_arrays
from poolrl.arrays import BoolArray
from poolrl.data.trajectories import Trajectories
from poolrl.problems.problem import ROUNDING

NOTICE = "For the data holder's eyes; not for release: these counts are exact and protect nobody."


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, whether it is as it should be, and what was seen, in counts and never in values."""

    what: str
    good: bool
    seen: str


def run_check(path: Path, *, as_json: bool) -> bool:
    """Print the findings; whether `fit` would accept the log."""
    file = load_config(path)
    findings = look_at(file)
    good = all(finding.good for finding in findings)
    if as_json:
        facts = {"notice": NOTICE, "good": good, "findings": [vars(finding) for finding in findings]}
        print(json.dumps(facts, indent=2))
        return good
    console = Console()
    console.print(f"[bold red]{NOTICE}[/]\n", highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        mark = "[green]good[/]" if finding.good else "[red]bad[/]"
        table.add_row(mark, escape(finding.what), escape(finding.seen))
    console.print(table, highlight=False)
    if good:
        console.print("\nThe table is as the file says. Next: [bold]poolrl plan[/], then [bold]poolrl fit[/].")
    else:
        console.print("\nCorrect the table or the file before 'poolrl fit'; nothing was spent.")
    return good


def look_at(file: ConfigFile) -> list[Finding]:
    """Everything that `fit` would refuse, and what the data holder should know before it."""
    config, problem = file.config, file.config.problem.problem()
    findings = [
        Finding("configuration", True, f"{len(config.problem.products)} products, {config.problem.horizon} steps")
    ]
    try:
        arrays = read_arrays(file)
        everything = Trajectories(**{name: arrays[name] for name in arrays if name != "unit"})
        log = Trajectories(**arrays, max_per_unit=config.privacy.per_unit)
    except (ValueError, OSError) as error:
        return [*findings, Finding("table", False, str(error))]
    findings.append(Finding("table", True, f"{len(everything):,} trajectories of {log.horizon} steps"))
    if log.horizon != problem.horizon:
        return [*findings, Finding("horizon", False, f"the file says {problem.horizon} steps")]
    unit = config.privacy.unit or "trajectory"
    dropped = len(everything) - len(log)
    kept = f"; {dropped:,} trajectories beyond max_per_unit are not used" if dropped else ""
    findings.append(Finding("units", True, f"{log.units:,}, each a {unit}{kept}"))
    findings += _bounds(file, log)
    try:
        (log.clipped(problem) if config.log.clip else log).check(problem)
        findings.append(Finding("log", True, "every row is possible" + (", after clipping" if config.log.clip else "")))
    except ValueError as error:
        findings.append(Finding("log", False, str(error)))
    return findings + _feedback(file, log)


def _bounds(file: ConfigFile, log: Trajectories) -> list[Finding]:
    config, problem = file.config, file.config.problem.problem()
    slack = ROUNDING * problem.demand_max
    sold = log.actions - log.next_states
    rules: list[tuple[str, list[str], BoolArray]] = [
        ("outside the bounds", config.log.opening, _outside(log.states, problem.state_low, problem.state_high, slack)),
        ("outside 0 .. demand_max", config.log.order_up_to, _outside(log.actions, 0, problem.demand_max, slack)),
        (
            "outside the bounds",
            config.log.left,
            _outside(log.next_states, problem.state_low, problem.state_high, slack),
        ),
        ("below the opening stock", config.log.order_up_to, log.actions < log.states - slack),
        ("less or more sold than is possible", config.log.left, _outside(sold, 0, problem.demand_max, slack)),
    ]
    found = []
    for rule, columns, broken in rules:
        for column, rows in zip(columns, broken.sum(axis=(0, 1)), strict=True):
            if rows:
                clipped = " (will be clipped)" if config.log.clip else ""
                found.append(Finding(f"column {column}", config.log.clip, f"{rows:,} rows {rule}{clipped}"))
    return found


def _feedback(file: ConfigFile, log: Trajectories) -> list[Finding]:
    """How much of demand the log can show at all."""
    problem, products = file.config.problem.problem(), file.config.problem.products
    found = []
    for i, product in enumerate(products):
        parts = []
        if problem.censored:
            empty = (log.next_states[..., i] <= ROUNDING * problem.demand_max[i]).mean()
            parts.append(f"shelf empty on {empty:.0%} of days")
        limit = problem.share[:, i] * problem.demand_max[i]
        beyond = (log.actions[..., i] > limit * (1 + ROUNDING)).mean()
        if (problem.share[:, i] < 1).any():
            parts.append(f"{beyond:.0%} of orders beyond lambda, which tell nothing")
        if parts:
            found.append(Finding(f"feedback on {product}", True, "; ".join(parts)))
    return found


def _outside(values: Any, low: Any, high: Any, slack: Any) -> BoolArray:
    return np.asarray((values < low - slack) | (values > high + slack))
