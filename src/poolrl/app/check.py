"""`poolrl check`: is the table as the configuration says? For the data holder's eyes; not for release."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from poolrl.app.config import ConfigFile, load_config
from poolrl.app.logs import IMPOSSIBLE, read_rows, to_arrays
from poolrl.arrays import BoolArray
from poolrl.data.trajectories import Trajectories
from poolrl.privacy import zcdp
from poolrl.privacy.ledger import Ledger
from poolrl.problems.problem import ROUNDING

NOTICE = "For the data holder's eyes; not for release: these counts are exact and protect nobody."


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it stands, and what was seen, in counts and never in values."""

    what: str
    stands: Literal["good", "note", "bad"]
    seen: str


COLOURS = {"good": "green", "note": "yellow", "bad": "red"}


def run_check(path: Path, *, as_json: bool) -> bool:
    """Print the findings; whether `fit` would accept the log."""
    file = load_config(path)
    findings = look_at(file)
    good = all(finding.stands != "bad" for finding in findings)
    if as_json:
        facts = {"notice": NOTICE, "good": good, "findings": [vars(finding) for finding in findings]}
        print(json.dumps(facts, indent=2))
        return good
    console = Console()
    console.print(f"[bold red]{NOTICE}[/]\n", highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        table.add_row(f"[{COLOURS[finding.stands]}]{finding.stands}[/]", escape(finding.what), escape(finding.seen))
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
        Finding("configuration", "good", f"{len(config.problem.products)} products, {config.problem.horizon} steps"),
        *_budget(file),
    ]
    table = None
    try:
        table = read_rows(file)
        arrays = to_arrays(file, table)
        log = Trajectories(**arrays, max_per_unit=config.privacy.per_unit)
    except (ValueError, OSError) as error:
        return [*findings, Finding("table", "bad", str(error)), *_lengths(file, table)]
    query = "; rows that the query leaves out are not among them" if config.log.query else ""
    count = len(arrays["states"])
    findings.append(Finding("table", "good", f"{_many(count, 'trajectory')} of {log.horizon} steps{query}"))
    if log.horizon != problem.horizon:
        return [*findings, Finding("horizon", "bad", f"the file says {problem.horizon} steps")]
    findings += [*_units(file, count, log), *_bounds(file, log)]
    try:
        (log.clipped(problem) if config.log.clip else log).check(problem)
        clipped = ", after clipping" if config.log.clip else ""
        findings.append(Finding("rows", "good", f"every row is possible{clipped}"))
    except ValueError:
        findings.append(Finding("rows", "bad", IMPOSSIBLE))
    return findings + _feedback(file, log)


def _budget(file: ConfigFile) -> list[Finding]:
    """What the ledger still allows, if there is one."""
    privacy = file.config.privacy
    if not file.ledger.exists():
        return [Finding("budget", "good", f"{privacy.budget:g}, of which a fit takes {privacy.rho:g}")]
    try:
        with Ledger.existing(file.ledger) as ledger:
            account = ledger.account(privacy.data_set)
    except (ValueError, OSError) as error:
        return [Finding("budget", "bad", str(error))]
    left = float(account.left) if account else privacy.budget
    seen = f"{left:g} left of {float(account.budget) if account else privacy.budget:g}, a fit takes {privacy.rho:g}"
    if account and account.budget != zcdp.budget(privacy.budget):
        return [Finding("budget", "bad", f"{seen}; but the file says {privacy.budget:g} in all")]
    enough = account is None or zcdp.budget(privacy.rho) <= account.left
    return [Finding("budget", "good" if enough else "bad", seen)]


def _lengths(file: ConfigFile, table: pa.Table | None) -> list[Finding]:
    """How many trajectories have another number of rows than they should: where to look when steps do not fit."""
    config = file.config
    if table is None or config.log.trajectory not in table.column_names:
        return []
    try:
        counts = table.group_by(config.log.trajectory).aggregate([([], "count_all")])["count_all"]
    except pa.ArrowException:
        return []
    wrong = sum(count.as_py() != config.problem.horizon for count in counts)
    seen = f"{wrong:,} of {_many(len(counts), 'trajectory')} do not have {_many(config.problem.horizon, 'row')}"
    return [Finding("steps", "note", seen)] if wrong else []


def _units(file: ConfigFile, count: int, log: Trajectories) -> list[Finding]:
    privacy, planned = file.config.privacy, file.config.plan.units
    found = [Finding("units", "good", f"{log.units:,}, each a {privacy.unit or 'trajectory'}")]
    dropped = count - len(log)
    if dropped:
        seen = f"{_many(dropped, 'trajectory')} of {count:,} lie beyond max_per_unit and are not used"
        found.append(Finding("max_per_unit", "note", seen))
    if not 0.5 <= planned / log.units <= 2:
        found.append(Finding("plan", "note", f"'poolrl plan' assumes {planned:,} units, the log holds {log.units:,}"))
    return found


def _many(number: int, word: str) -> str:
    plural = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{number:,} {word if number == 1 else plural}"


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
        ("with sales below 0 or above demand_max", config.log.left, _outside(sold, 0, problem.demand_max, slack)),
    ]
    found = []
    for rule, columns, broken in rules:
        for column, rows in zip(columns, broken.sum(axis=(0, 1)), strict=True):
            if rows:
                clipped = " (will be clipped)" if config.log.clip else ""
                stands: Literal["note", "bad"] = "note" if config.log.clip else "bad"
                found.append(Finding(f"column {column}", stands, f"{_many(int(rows), 'row')} {rule}{clipped}"))
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
            found.append(Finding(f"feedback on {product}", "good", "; ".join(parts)))
    return found


def _outside(values: Any, low: Any, high: Any, slack: Any) -> BoolArray:
    return np.asarray((values < low - slack) | (values > high + slack))
