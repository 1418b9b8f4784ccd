"""`poolrl check`: is the table as the configuration says? For the data holder's eyes; not for release."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import ibis.expr.types as ir
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Lines

from poolrl.data.expressions import finite
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table
from poolrl.ledger.ledger import Ledger
from poolrl.privacy import zcdp
from poolrl.problems.problem import ROUNDING
from poolrl.shop.config import ConfigFile, load_config
from poolrl.shop.log import open_log

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
    table = Lines(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        table.add_row(f"[{COLOURS[finding.stands]}]{finding.stands}[/]", escape(finding.what), escape(finding.seen))
    console.print(table, highlight=False)
    if good:
        console.print("\nThe table is as the file says. Next: [bold]poolrl plan[/], then [bold]poolrl fit[/].")
    else:
        console.print(
            "\nCorrect the table or the file before 'poolrl fit', which would take such rows for telling nothing of "
            "their product; nothing was spent."
        )
    return good


def look_at(file: ConfigFile) -> list[Finding]:
    """What `fit` would refuse or pass over, and what the data holder should know before it."""
    config = file.config
    findings = [
        Finding("configuration", "good", f"{len(config.problem.products)} products, {config.problem.horizon} steps"),
        *_budget(file),
    ]
    try:
        with open_log(file) as log:
            return [*findings, *_trajectories(file, log), *_rows(file, log)]
    except (ValueError, OSError) as error:
        return [*findings, Finding("table", "bad", str(error))]


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


def _trajectories(file: ConfigFile, log: Table) -> list[Finding]:
    """Ids and steps: who is in the table, and with how many rows."""
    config, horizon, rows = file.config, file.config.problem.horizon, log.rows
    lives = log.lives(horizon)
    seen = _counted(rows.aggregate(rows=rows.count())) | _counted(
        lives.aggregate(
            trajectories=lives.count(),
            used=lives["count"].sum(),
            short=(lives["count"] < horizon).sum(),
            repeated=lives.repeated.sum(),
            surplus=lives.surplus.sum(),
        )
    )
    query = "; rows that the query leaves out are not among them" if config.log.query else ""
    found = [
        Finding("table", "good", f"{_many(seen['trajectories'], 'trajectory')} of {horizon} steps{query}"),
        Finding("units", "good", f"{log.units:,}, each a {config.privacy.unit or 'trajectory'}"),
    ]
    last = config.log.first_step + horizon - 1
    outside = f"have no id, or a step outside {config.log.first_step} .. {last}, and are not used"
    of_all = f"of {_many(seen['trajectories'], 'trajectory')}"
    problems: list[tuple[str, Literal["note", "bad"], int, str]] = [
        ("rows", "bad", seen["rows"] - seen["used"], f"of {_many(seen['rows'], 'row')} {outside}"),
        ("steps", "bad", seen["short"], f"{of_all} do not have {_many(horizon, 'row')}"),
        ("steps", "bad", seen["repeated"], f"{of_all} name a step twice and tell nothing"),
        ("max_per_unit", "note", seen["surplus"], f"{of_all} lie beyond max_per_unit and are not used"),
    ]
    found += [Finding(what, stands, f"{many:,} {says}") for what, stands, many, says in problems if many]
    planned = config.plan.units
    if not 0.5 <= planned / log.units <= 2:
        found.append(Finding("plan", "note", f"'poolrl plan' assumes {planned:,} units, the log holds {log.units:,}"))
    return found


def _rows(file: ConfigFile, log: Table) -> list[Finding]:
    """Numbers: which rows break a declared rule, column by column, and how much of demand the others show."""
    config, problem = file.config, file.config.problem.problem()
    rows, slack, sums = log.rows, ROUNDING * problem.demand_max, {}
    rules: list[tuple[str, str]] = []

    def rule(column: str, text: str, broken: ir.BooleanValue) -> None:
        sums[f"rule_{len(rules)}"] = broken.fill_null(False).sum()
        rules.append((column, text))

    for i in range(problem.products):
        most, least, spare = float(problem.demand_max[i]), float(problem.state_low[i]), float(slack[i])
        names = config.log.opening[i], config.log.order_up_to[i], config.log.left[i]
        opening, order, left = (rows[name].cast("float64") for name in names)
        for name, number, low in zip(names, (opening, order, left), (least, 0.0, least), strict=True):
            held = finite(number).fill_null(False)
            rule(name, "without a number", ~held)
            rule(name, f"outside {low:g} .. {most:g}", held & ~number.between(low - spare, most + spare))
        sold = order - left
        rule(names[1], "below the opening stock", finite(order - opening) & (order < opening - spare))
        rule(names[2], "with sales below 0 or above demand_max", finite(sold) & ~sold.between(-spare, most + spare))
        limit = float(problem.share[:, i].max() * problem.demand_max[i]) * (1 + ROUNDING)
        sums[f"empty_{i}"], sums[f"beyond_{i}"] = (left <= spare).mean(), (order > limit).mean()
    seen = answer(rows.aggregate(**sums)).to_pylist()[0]
    clipped = "will be clipped" if config.log.clip else "tell nothing"
    stands: Literal["note", "bad"] = "note" if config.log.clip else "bad"
    found = [
        Finding(f"column {column}", stands, f"{_many(int(seen[f'rule_{i}'] or 0), 'row')} {text} ({clipped})")
        for i, (column, text) in enumerate(rules)
        if seen[f"rule_{i}"]
    ]
    if not found:
        found = [Finding("rows", "good", "every row is possible")]
    return found + _feedback(file, seen)


def _feedback(file: ConfigFile, seen: dict[str, float]) -> list[Finding]:
    """How much of demand the log can show at all."""
    problem, found = file.config.problem.problem(), []
    for i, product in enumerate(file.config.problem.products):
        parts = []
        if problem.censored:
            parts.append(f"shelf empty on {seen[f'empty_{i}'] or 0:.0%} of days")
        if (problem.share[:, i] < 1).any():
            parts.append(f"{seen[f'beyond_{i}'] or 0:.0%} of orders beyond lambda, which tell nothing")
        if parts:
            found.append(Finding(f"feedback on {product}", "good", "; ".join(parts)))
    return found


def _counted(question: ir.Table) -> dict[str, int]:
    return {name: int(value or 0) for name, value in answer(question).to_pylist()[0].items()}


def _many(number: int, word: str) -> str:
    plural = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{number:,} {word if number == 1 else plural}"
