"""Is the table as the configuration says? For the data holder's eyes; not for release: the counts are exact.

All trades look at these things alike. A trade without findings of its own looks at `rows_of_table`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ibis.expr.types as ir
import numpy as np

from poolrl.data.counts import count_joint
from poolrl.data.expressions import comparable, finite
from poolrl.data.row_rules import bounds, part_divisors, usable_divisor
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table
from poolrl.geometry.resolution import JOINT_BANDS
from poolrl.learning.by_count import less_succeeds
from poolrl.learning.dependence import compare_levels, compared
from poolrl.learning.stored import Dependence
from poolrl.ledger.chain import was_made
from poolrl.ledger.ledger import Ledger
from poolrl.privacy import zcdp
from poolrl.problems.labels import Labels
from poolrl.problems.problem import ROUNDING, OutcomeProblem
from poolrl.workflow.config.configuration import ConfigFile
from poolrl.workflow.forecast import HARDLY_CHANGES, WIDE
from poolrl.workflow.open_log import open_log
from poolrl.workflow.trades.trade import Words, trade_of

NOTICE = "For the data holder's eyes; not for release: these counts are exact and protect nobody."
Standing = Literal["good", "note", "bad"]
# A column of which more cannot be read was declared wrongly. A log of which less is used is not worth its rho.
MOSTLY = 0.5
# A table in which a larger share of the rows breaks one rule is not as its configuration says.
FEW_FAULTY = 0.1
# Decisions of which the middle eight in ten lie this near to each other say nothing about others.
HARDLY_VARIES = 1.2
# Rounds should succeed less often the more is asked. Thirds differ for sure by this many standard errors.
FOR_SURE = 3.0
# A table in which fewer succeed or fail leaves the others out.
NEARLY_NONE = 0.005


@dataclass(frozen=True)
class LogFinding:
    """One line: what was looked at, how it stands, and what was seen."""

    what: str
    stands: Standing
    seen: str


def look_at(file: ConfigFile) -> list[LogFinding]:
    """What `fit` would refuse or leave unobserved, and what the data holder should know before it."""
    config, trade = file.config, trade_of(file.config.problem.posed)
    findings = [LogFinding("configuration", "good", config.in_words), _budget(file)]
    if config.declared_period() is None:  # such a release cannot be continued, which is too late to know after it
        says = f"no [period] is declared, so 'poolrl update' cannot add later {trade.words.trajectory}s to a fit"
        findings.append(LogFinding("next month", "note", says))
    try:
        findings += trade.fields(file)
        with open_log(file, explained=True) as log:
            log.check(config.problem.posed)
            return [*findings, *trade.findings(file, log)]
    except (ValueError, OSError) as error:
        return [*findings, LogFinding("table", "bad", str(error))]


def _budget(file: ConfigFile) -> LogFinding:
    """The rest of the budget in the ledger, if it exists."""
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


def trajectories_of(file: ConfigFile, log: Table) -> Iterator[LogFinding]:
    """Ids and steps: who is in the table, and with how many rows."""
    config, horizon, rows = file.config, file.config.problem.horizon, log.rows
    lives = log.lives(horizon)
    seen = integers_of(rows.aggregate(rows=rows.count())) | integers_of(
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


@dataclass(frozen=True)
class RowFault:
    """A rule about one column: what is looked at, what is wrong, and in which rows."""

    what: str
    why: str
    rows: ir.BooleanValue
    moved: bool = False  # whether [log] clip = true moves such values into their bounds
    most: float = FEW_FAULTY  # the largest share of rows that is no fault of the whole table
    hint: str = ""  # where more rows than that are faulty


def faults_of_numbers(
    file: ConfigFile, log: Table, called: Sequence[Sequence[str]], *, most: float = FEW_FAULTY, missing: str = ""
) -> Iterator[RowFault]:
    """Numbers that are missing or outside their bounds, column by column, scales, and labels nobody declared.

    `called` says how states, actions and next states are called; `missing`, what else a missing next state may mean.
    """
    problem, columns = file.config.problem.posed, log.columns
    parts = columns.states, columns.actions, columns.next_states
    # Amounts in a unit of their own have no bounds, but counts have.
    divided = part_divisors(problem, np.full(1, 2.0 if columns.scale else 1.0))
    for place, (names, words, limits, divisor) in enumerate(zip(parts, called, bounds(problem), divided, strict=True)):
        for i, (name, what, low, high) in enumerate(zip(names, words, *limits, strict=True)):
            number = log.rows[name].cast("float64")
            there = finite(number).fill_null(False)
            follows = place == 2 and i < problem.state_dim
            yield RowFault(what, f"have no number{missing if follows else ''}", ~there, most=most)
            if np.broadcast_to(divisor, len(names))[i] == 1:
                slack = ROUNDING * float(high - low)
                inside = (number >= float(low) - slack) & (number <= float(high) + slack)
                hint = "" if place == 0 or follows else "; if they are multiples, name a scale"
                yield RowFault(what, f"lie outside {low:g} .. {high:g}", there & ~inside, True, most, hint)
    for name in dict.fromkeys(columns.scale):
        usable = usable_divisor(log.rows[name].cast("float64"))
        yield RowFault("scale", "have no positive scale", ~usable.fill_null(False), most=MOSTLY)
    for name, column in columns.labels.items():
        known = declared(log.rows[column], problem.labels, name)
        yield RowFault(f"label {name}", "have a value that was not declared", ~known, most=MOSTLY)


def declared(column: ir.Value, labels: Labels, name: str) -> ir.BooleanValue:
    """Whether a row has one of the declared values of a label."""
    values = labels.values[labels.names.index(name)]
    known: ir.BooleanValue = comparable(column, labels, name).isin(list(values)).fill_null(False)
    return known


def faulty_rows(file: ConfigFile, log: Table, faults: Iterable[RowFault]) -> list[LogFinding]:
    """How many rows break each rule. One scan of the log."""
    rules, clip = list(faults), file.config.log.clip
    counted = {f"rule_{i}": fault.rows.fill_null(False).sum() for i, fault in enumerate(rules)}
    seen = integers_of(log.rows.aggregate(**counted, rows=log.rows.count()))
    findings = []
    for i, fault in enumerate(rules):
        if number := seen[f"rule_{i}"]:
            clipped, wrong = fault.moved and clip, number > fault.most * seen["rows"]
            hint = fault.hint if number > FEW_FAULTY * seen["rows"] else ""
            text = f"{many(number, 'row')} {fault.why} ({'will be clipped' if clipped else 'are unobserved'}){hint}"
            findings.append(LogFinding(fault.what, "bad" if wrong and not clipped else "note", text))
    return findings or [LogFinding("rows", "good", "every row is possible")]


def rows_of_table(file: ConfigFile, log: Table) -> Iterator[LogFinding]:
    """Which rows cannot be used, how much of the log a fit would use, and how decisions were made."""
    facts: Any = file.config.problem
    problem = facts.posed
    words = trade_of(problem).words
    after = [f"{name} after the {words.step}" for name in facts.products] + list(problem.shows)
    called = facts.products, [words.decision] * problem.action_dim, after
    named = [column.name for column in facts.table_columns if column.reads == "flag"]
    flags = f", or {named[0]} is neither yes nor no ([log] yes and no say which words are)" if named else ""
    yield from trajectories_of(file, log)
    yield from faulty_rows(file, log, faults_of_numbers(file, log, called, missing=flags))
    yield used_by_a_fit(log, problem)
    if problem.counts_down:
        yield from _habits(words, problem, log)


def _habits(words: Words, problem: OutcomeProblem, log: Table) -> Iterator[LogFinding]:
    """Whether decisions varied, and whether they followed what was expected."""
    rows = log.rows
    state, decision, after = (
        rows[names[0]].cast("float64") for names in (log.columns.states, log.columns.actions, log.columns.next_states)
    )
    if log.columns.scale:
        decision = decision / rows[log.columns.scale[0]].cast("float64")
    usable = finite(decision + state + after).fill_null(False) & (state >= 0.5)
    rows = rows.mutate(decision=decision, hit=(after < state - 0.5).cast("float64")).filter(usable)
    if by := list(log.columns.labels.values()):
        # Things of another label are other things: each decision beside those of its own label.
        rows = rows.mutate(decision=rows.decision / rows.decision.mean().over(group_by=by).nullif(0.0))
    edges: dict[str, Any] = {f"q{q}": rows.decision.quantile(q / 30) for q in (3, 10, 20, 27)}
    (at,) = answer(rows.aggregate(**edges, hit=rows.hit.mean())).to_pylist()
    if any(value is None for value in at.values()):
        return
    varied = at["q27"] > HARDLY_VARIES * max(at["q3"], 1e-12)
    # In words: a quantile would be a value of the log.
    hardly = f"they hardly vary, so nothing is known of other {words.decisions}; vary some by lot first"
    yield LogFinding(f"{words.decisions} tried", "good" if varied else "note", "they vary" if varied else hardly)
    if not NEARLY_NONE < at["hit"] < 1 - NEARLY_NONE:
        often = "succeeds" if at["hit"] > 0.5 else "fails"
        says = f"nearly every {words.step} {often}: are the others missing from the table? A fit needs them"
        yield LogFinding("successes", "bad", says)
        return
    thirds = rows.mutate(third=(rows.decision > at["q10"]).cast("int64") + (rows.decision > at["q20"]).cast("int64"))
    groups = thirds.group_by("third").aggregate(rows=thirds.count(), share=thirds.hit.mean())
    by_third = {row["third"]: row for row in answer(groups).to_pylist()}
    if 0 not in by_third or 2 not in by_third:
        return
    low, high = by_third[0], by_third[2]
    # Does asking for more succeed less often, as with prices, or more often, as with bids?
    rise = (high["share"] - low["share"]) * (1 if less_succeeds(problem) else -1)
    doubt = np.sqrt(sum(max(e["share"] * (1 - e["share"]), 0.01) / e["rows"] for e in (low, high)))
    shares = f"of the lowest third of {words.decisions} {low['share']:.0%} succeed, of the highest {high['share']:.0%}"
    follow = f"{shares}: {words.decisions} follow what was expected; measure amounts by a scale, or declare labels"
    # Over a wide range of decisions the share should change clearly, and in the other direction.
    wide = at["q27"] > WIDE * max(at["q3"], 1e-12)
    follows = bool(rise > FOR_SURE * doubt) or (wide and rise > -HARDLY_CHANGES)
    if not follows and problem.shows_levels:
        tested = exact_dependence(log, problem)
        mend = "give a scale, or labels for what people know"
        follow = f"{words.decisions} follow {words.outcome}: {mend} (effect {tested.effect:.2f})"
        follows = tested.flagged
    yield LogFinding(habits_of(words), "note" if follows else "good", follow if follows else shares)


def used_by_a_fit(log: Table, problem: OutcomeProblem) -> LogFinding:
    """How much of the log a fit would use. Steps after the end of a season show nothing by right."""
    used, most = int(log.outcome_leaves(problem, bins=2).sum()), log.slots * problem.horizon * problem.outcome_dim
    several = log.facts.max_per_unit > 1
    what = "places, max_per_unit for each unit" if several else "steps and outcomes of its trajectories"
    stands: Standing = "bad" if used < MOSTLY * most else "note" if used < 0.9 * most else "good"
    if problem.counts_down and problem.horizon > 1:
        what += "; steps after the last one is gone show nothing"
        stands = "bad" if used < 0.1 * most else "good"
    return LogFinding("used by a fit", stands, f"{share_of(used, most)} of all {what}")


def habits_of(words: Words) -> str:
    """The columns by which decisions are compared with what they showed."""
    return f"{words.past} and {words.outcome}"


def exact_dependence(log: Table, problem: OutcomeProblem) -> Dependence:
    """Whether decisions follow outcomes: the statistic without noise. Not for release."""
    return compare_levels(compared(count_joint(log, problem, bands=JOINT_BANDS), problem), 0.0)


def many(number: int, word: str) -> str:
    """A number of things."""
    plural = word[:-1] + "ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else word + "s"
    return f"{number:,} {word if number == 1 else plural}"


def share_of(part: float, whole: float) -> str:
    """A share for people. Less than all is never 100%, and more than nothing never 0%."""
    if not whole or part in (0, whole):
        return f"{part / whole if whole else 0:.0%}"
    return f"{min(max(part / whole, 0.001), 0.999):.1%}"


def integers_of(question: ir.Table) -> dict[str, int]:
    """The one row of counts that answers a question."""
    return {name: int(value or 0) for name, value in answer(question).to_pylist()[0].items()}
