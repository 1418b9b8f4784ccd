"""Is a table as the configuration says, for problems other than shops? For the data holder's eyes; counts are exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ibis.expr.types as ir
import numpy as np

from poolrl.data.expressions import finite
from poolrl.data.row_rules import bounds
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table
from poolrl.learning.by_count import less_succeeds
from poolrl.learning.dependence import TELLING_ERROR
from poolrl.learning.stored import Dependence
from poolrl.privacy.sensitivity import shows_levels
from poolrl.problems.problem import ROUNDING, OutcomeProblem
from poolrl.problems.rounds import Rounds
from poolrl.problems.words import Words
from poolrl.workflow.config.configuration import ConfigFile
from poolrl.workflow.findings import MOSTLY, LogFinding, Standing, many, share_of
from poolrl.workflow.trades.declared_section import DeclaredFacts
from poolrl.workflow.trades.round_forecast import HARDLY_CHANGES, WIDE
from poolrl.workflow.trades.shop_findings import exact_dependence

# Decisions of which the middle eight in ten lie this near to each other say nothing about others.
HARDLY_VARIES = 1.2
# Rounds should succeed less often the more is asked. By so much less or more a third differs from another for sure.
FOR_SURE = 3.0
# A table in which fewer succeed or fail leaves the others out.
NEARLY_NONE = 0.005
# So few faulty rows are dirt, which a fit leaves out. More of them mean that the file or the table is wrong.
FEW_FAULTY = 0.1
HABITS = "decisions and outcomes"


def kind_rows(file: ConfigFile, log: Table) -> list[LogFinding]:
    """Which rows cannot be used, how much of the log a fit would use, and how decisions were made."""
    facts = file.config.problem
    assert isinstance(facts, DeclaredFacts)
    problem = facts.posed
    counted = dict(_faulty_rows(facts, log, file.config.log.scale))
    seen = answer(
        log.rows.aggregate(**{f"rule_{i}": rows.sum() for i, rows in enumerate(counted.values())})
    ).to_pylist()
    rows = max(1, int(answer(log.rows.aggregate(rows=log.rows.count())).to_pylist()[0]["rows"]))
    found = [
        LogFinding(
            what,
            "bad" if seen[0][f"rule_{i}"] > FEW_FAULTY * rows else "note",
            f"{many(int(seen[0][f'rule_{i}'] or 0), 'row')} {why} and are unobserved",
        )
        for i, (what, why) in enumerate(counted)
        if seen[0][f"rule_{i}"]
    ]
    used, most = int(log.outcome_leaves(problem, bins=2).sum()), log.slots * problem.horizon * problem.outcome_dim
    stands: Standing = "bad" if used < MOSTLY * most else "note" if used < 0.9 * most else "good"
    rounds = "; rounds after the last one is gone show nothing" if problem.counts_down and problem.horizon > 1 else ""
    if rounds:
        # How many rounds take place is not a fault of the table.
        stands = "bad" if used < 0.1 * most else "good"
    good = [LogFinding("rows", "good", "every row is possible")]
    use = LogFinding("used by a fit", stands, f"{share_of(used, most)} of all steps and outcomes{rounds}")
    return [*(found or good), use, *_habits(facts, problem, log)]


def _faulty_rows(
    facts: DeclaredFacts, log: Table, scales: list[str]
) -> Iterator[tuple[tuple[str, str], ir.BooleanValue]]:
    """What is looked at, what is wrong, and the rows in which it is."""
    problem, columns, words = facts.posed, log.columns, facts.trade.words
    after = [f"{name} after the {words.step}" for name in facts.products] + list(problem.shows)
    named = [column.name for column in facts.table_columns if column.reads == "flag"]
    flags = f", or {named[0]} is neither yes nor no ([log] yes and no say which words are)" if named else ""
    decided = [words.decision] * len(columns.actions)
    for names, said, (low, high) in zip(
        (columns.states, columns.actions, columns.next_states),
        (facts.products, decided, after),
        bounds(problem),
        strict=True,
    ):
        for name, what, least, most in zip(names, said, low, high, strict=True):
            number = log.rows[name].cast("float64")
            there = finite(number).fill_null(False)
            slack = ROUNDING * float(most - least)
            inside = (number >= float(least) - slack) & (number <= float(most) + slack)
            # What is left afterwards follows from a flag.
            follows = what in after[: problem.state_dim]
            yield (what, f"have no number{flags if follows else ''}"), ~there
            count = names is columns.states or follows
            if not columns.scale or count:
                hint = "" if count else " (are they multiples? then name a scale)"
                yield (what, f"lie outside {least:g} .. {most:g}{hint}"), there & ~inside
    for name, said_of in zip(columns.scale, scales, strict=True):
        scale = log.rows[name].cast("float64")
        yield (f"scale {said_of}", "have no positive scale"), ~(finite(scale) & (scale > 0)).fill_null(False)
    for name, column in columns.labels.items():
        values = [str(value) for value in problem.labels.values[problem.labels.names.index(name)]]
        known = log.rows[column].cast("string").isin(values)
        yield (f"label {name}", "have a value that was not declared"), ~known.fill_null(False)


def _habits(facts: DeclaredFacts, problem: OutcomeProblem, log: Table) -> Iterator[LogFinding]:
    """Whether decisions varied, and whether they followed what was expected."""
    if not isinstance(problem, Rounds):
        return
    words, rows = facts.trade.words, log.rows
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
    (at,) = answer(rows.aggregate(**edges)).to_pylist()
    if any(value is None for value in at.values()):
        return
    varied = at["q27"] > HARDLY_VARIES * max(at["q3"], 1e-12)
    # In words: a quantile would be a value of the log.
    hardly = f"they hardly vary, so nothing is known of other {words.decisions}; vary some by lot first"
    yield LogFinding(f"{words.decisions} tried", "good" if varied else "note", "they vary" if varied else hardly)
    (hit,) = answer(rows.aggregate(share=rows.hit.mean())).to_pylist()
    if not NEARLY_NONE < hit["share"] < 1 - NEARLY_NONE:
        often = "succeeds" if hit["share"] > 0.5 else "fails"
        says = f"nearly every {words.step} {often}: are the others missing from the table? A fit needs them"
        yield LogFinding("successes", "bad", says)
        return
    thirds = rows.mutate(third=(rows.decision > at["q10"]).cast("int64") + (rows.decision > at["q20"]).cast("int64"))
    groups = thirds.group_by("third").aggregate(rows=thirds.count(), share=thirds.hit.mean())
    by_third = {each["third"]: each for each in answer(groups).to_pylist()}
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
    if not follows and shows_levels(problem):
        tested = exact_dependence(log, problem)
        follows, follow = tested.flagged, f"{_advice(tested, words)} (effect {tested.effect:.2f})"
    yield LogFinding(HABITS, "note" if follows else "good", follow if follows else shares)


def _advice(tested: Dependence, words: Words) -> str:
    if tested.flagged:
        return f"{words.decisions} follow {words.outcome}: give a scale, or labels for what people know"
    follow = f"{words.decisions} follow {words.outcome}"
    return f"it cannot be told whether {follow}" if tested.error > TELLING_ERROR else f"no sign that {follow}"
