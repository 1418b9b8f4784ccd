"""Is the table as the configuration says? For the data holder's eyes; not for release: the counts are exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ibis.expr.types as ir

from poolrl.data.column_vector import ColumnVector
from poolrl.data.expressions import finite
from poolrl.data.row_rules import PARTS, Row, bound_rules, fit_rules
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table
from poolrl.ledger.chain import was_made
from poolrl.ledger.ledger import Ledger
from poolrl.privacy import zcdp
from poolrl.problems.problem import ROUNDING
from poolrl.workflow.config.configuration import ConfigFile
from poolrl.workflow.findings import MOSTLY, LogFinding, Standing, many, share_of
from poolrl.workflow.open_log import open_log
from poolrl.workflow.trades.shop_findings import empty_shelves, fields_of_rows, orders_against_demand, weeks_of_shops
from poolrl.workflow.trades.trade import trade_of

# What is looked at when orders are compared with demand.
ORDER_HABITS = "orders and demand"
NOTICE = "For the data holder's eyes; not for release: these counts are exact and protect nobody."


def look_at(file: ConfigFile) -> list[LogFinding]:
    """What `fit` would refuse or leave unobserved, and what the data holder should know before it."""
    config = file.config
    findings = [
        LogFinding("configuration", "good", config.problem.in_words),
        _budget(file),
        *_next_month(file),
    ]
    try:
        if config.sales is not None:
            findings += fields_of_rows(file, config.sales)
        with open_log(file, explained=True) as log:
            log.check(config.problem.posed)
            return [*findings, *trade_of(config.problem.posed).findings(file, log)]
    except (ValueError, OSError) as error:
        return [*findings, LogFinding("table", "bad", str(error))]


def shop_rows(file: ConfigFile, log: Table) -> Iterator[LogFinding]:
    """Of shops: a sales export, or a wide table."""
    if file.config.sales is not None:
        yield from weeks_of_shops(file, log)
        yield empty_shelves(file.config, log)
    else:
        yield from trajectories_of(file, log)
        yield from _rows(file, log)
    yield from _order_habits(file, log)


def _budget(file: ConfigFile) -> LogFinding:
    """What the ledger still allows, if there is one."""
    privacy = file.config.privacy
    first = f"{privacy.budget:g}, of which a fit takes {privacy.rho:g}; the first fit needs --new-account"
    if not was_made(file.ledger):
        return LogFinding("budget", "good", f"{first}, which also makes the ledger {file.ledger}")
    try:
        with Ledger.existing(file.ledger) as ledger:
            account = ledger.account(privacy.data_set)
        if account is None:
            return LogFinding("budget", "good", first)
        period = file.config.declared_period()
        after = account.with_spend(zcdp.finite_budget(rho=privacy.rho), file.config.unit(), period)
        seen = f"{float(account.left):g} left of {float(account.budget):g}, a fit takes {privacy.rho:g}"
    except (ValueError, OSError) as error:
        return LogFinding("budget", "bad", str(error))
    if account.budget != zcdp.budget(privacy.budget):
        return LogFinding("budget", "bad", f"{seen}; but the file says {privacy.budget:g} in all")
    if after - account.spent > zcdp.finite_budget(rho=privacy.rho):
        seen += f", and {float(after - account.spent):g} of what one unit may lose"
    return LogFinding("budget", "good" if after <= account.budget else "bad", seen)


def _next_month(file: ConfigFile) -> Iterator[LogFinding]:
    """A release without a period cannot be continued, which is too late to know after it."""
    if file.config.declared_period() is None:
        later = f"later {file.config.problem.posed.words.trajectory}s"
        says = f"no [period] is declared, so a fit reads everything, and 'poolrl update' cannot add {later} to it"
        yield LogFinding("next month", "note", says)


def trajectories_of(file: ConfigFile, log: Table) -> Iterator[LogFinding]:
    """Ids and steps: who is in the table, and with how many rows."""
    config, horizon, rows = file.config, file.config.problem.horizon, log.rows
    lives = log.lives(horizon)
    seen = _integers_of(rows.aggregate(rows=rows.count())) | _integers_of(
        lives.aggregate(
            trajectories=lives.count(),
            used=lives["count"].sum(),
            short=(lives["count"] < horizon).sum(),
            repeated=lives.repeated.sum(),
            surplus=lives.surplus.sum(),
        )
    )
    query = "; rows that the query leaves out are not among them" if config.query() else ""
    yield LogFinding("table", "good", f"{many(seen['trajectories'], 'trajectory')} of {horizon} steps{query}")
    yield LogFinding("units", "good", f"{log.units:,}, each a {config.privacy.unit or 'trajectory'}")
    last = config.first_step + horizon - 1
    outside = f"have no id, or a step outside {config.first_step} .. {last}, and are not used"
    of_all = f"of {many(seen['trajectories'], 'trajectory')}"
    problems: list[tuple[str, Standing, int, str]] = [
        ("rows", "bad", seen["rows"] - seen["used"], f"of {many(seen['rows'], 'row')} {outside}"),
        ("steps", config.problem.short_is, seen["short"], f"{of_all} do not have {many(horizon, 'row')}"),
        ("steps", "bad", seen["repeated"], f"{of_all} name a step twice and are unobserved"),
        ("max_per_unit", "note", seen["surplus"], f"{of_all} lie beyond max_per_unit and are not used"),
    ]
    for what, stands, number, says in problems:
        if number:
            yield LogFinding(what, stands, f"{number:,} {says}")
    planned = config.plan.units
    if not 0.5 <= planned / log.units <= 2:
        yield LogFinding("plan", "note", f"'poolrl plan' assumes {planned:,} units, the log holds {log.units:,}")


def _rows(file: ConfigFile, log: Table) -> list[LogFinding]:
    """Numbers: which rows break a rule, column by column, and how much of demand the others show."""
    broken, shares = _broken_rules(file, log), _feedback_shares(file, log)
    counted = {f"rule_{i}": rows.fill_null(False).sum() for i, (_, rows) in enumerate(broken)}
    seen = answer(log.rows.aggregate(**counted, **shares)).to_pylist()[0]
    clipped = "will be clipped" if file.config.log.clip else "are unobserved"
    stands: Standing = "note" if file.config.log.clip else "bad"
    found = [
        LogFinding(f"column {column}", stands, f"{many(int(seen[f'rule_{i}']), 'row')} {text} ({clipped})")
        for i, ((column, text), _) in enumerate(broken)
        if seen[f"rule_{i}"]
    ]
    return [*(found or [LogFinding("rows", "good", "every row is possible")]), _used(file, log), *_feedback(file, seen)]


def _used(file: ConfigFile, log: Table) -> LogFinding:
    """How much of the log a fit would use."""
    problem = file.config.problem.posed
    used, most = int(log.outcome_leaves(problem, bins=2).sum()), log.slots * problem.horizon * problem.products
    stands: Standing = "bad" if used < MOSTLY * most else "note" if used < 0.9 * most else "good"
    what = "steps and products of its trajectories" if log.max_per_unit == 1 else "places, max_per_unit for each unit"
    return LogFinding("used by a fit", stands, f"{share_of(used, most)} of all {what}")


def _broken_rules(file: ConfigFile, log: Table) -> list[tuple[tuple[str, str], ir.BooleanValue]]:
    """Column, rule and the rows that break it: those by which a row is counted, said with the column's own bounds."""
    problem, columns = file.config.problem.posed, log.columns
    names = dict(zip(PARTS, (columns.states, columns.actions, columns.next_states), strict=True))
    numbers = {part: [log.rows[name].cast("float64") for name in names[part]] for part in PARTS}
    known: dict[Any, Any] = {}
    state, action, next_state = (ColumnVector(numbers[part], known) for part in PARTS)
    row: Row = (state, action, next_state)
    found: list[tuple[tuple[str, str], ir.BooleanValue]] = []
    for part in PARTS:
        low, high = (problem.action_low if part == "actions" else problem.state_low), problem.demand_max
        (rule,) = (rule for rule in bound_rules(problem, row) if rule.part == part)
        for i, (name, number, held) in enumerate(zip(names[part], numbers[part], rule.held.columns(), strict=True)):
            there = finite(number).fill_null(False)
            found.append(((name, "without a number"), ~there))
            found.append(((name, f"outside {low[i]:g} .. {high[i]:g}"), there & ~held))
    # The rules of inventory are the same at every step.
    for rule in fit_rules(problem, 0, row):
        if not isinstance(rule.held, ColumnVector):
            # Known to hold without a look at the row: backlogged demand is never cut off.
            continue
        for i, held in enumerate(rule.held.columns()):
            there = finite(numbers["actions"][i] - numbers["states"][i] + numbers["next_states"][i])
            found.append(((names[rule.part][i], rule.broken), there & ~held))
    return found


def _feedback_shares(file: ConfigFile, log: Table) -> dict[str, ir.Value]:
    """How often each shelf was empty, and how often an order lay beyond λ."""
    problem, shares = file.config.problem.posed, {}
    for i, (action, left) in enumerate(zip(log.columns.actions, log.columns.next_states, strict=True)):
        limit = float((problem.share[:, i] * problem.demand_max[i]).max()) * (1 + ROUNDING)
        shares[f"empty_{i}"] = (log.rows[left].cast("float64") <= float(ROUNDING * problem.demand_max[i])).mean()
        shares[f"beyond_{i}"] = (log.rows[action].cast("float64") > limit).mean()
    return shares


def _feedback(file: ConfigFile, seen: dict[str, float]) -> list[LogFinding]:
    """How much of demand the log can show at all."""
    problem, found = file.config.problem.posed, []
    for i, product in enumerate(file.config.problem.products):
        parts = []
        if problem.censored:
            parts.append(f"shelf empty on {seen[f'empty_{i}'] or 0:.0%} of days")
        if (problem.share[:, i] < 1).any():
            parts.append(f"{seen[f'beyond_{i}'] or 0:.0%} of orders beyond lambda, which are unobserved")
        if parts:
            found.append(LogFinding(f"feedback on {product}", "good", "; ".join(parts)))
    return found


def _order_habits(file: ConfigFile, log: Table) -> Iterator[LogFinding]:
    """Whether orders follow demand, which the estimate assumes they do not."""
    problem = file.config.problem.posed
    # Backlogged demand is always seen, so nothing is assumed of orders.
    if problem.censored:
        found = orders_against_demand(log, problem, file)
        yield LogFinding(ORDER_HABITS, "note" if found.flagged else "good", found.in_words)


def _integers_of(question: ir.Table) -> dict[str, int]:
    return {name: int(value or 0) for name, value in answer(question).to_pylist()[0].items()}
