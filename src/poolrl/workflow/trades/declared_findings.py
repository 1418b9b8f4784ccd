"""Is a table as the configuration says, for problems other than shops? For the data holder's eyes; counts are exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from poolrl.data.expressions import finite
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table
from poolrl.learning.by_count import less_succeeds
from poolrl.problems.problem import OutcomeProblem
from poolrl.workflow.check import (
    LogFinding,
    exact_dependence,
    faults_of_numbers,
    faulty_rows,
    habits_of,
    trajectories_of,
    used_by_a_fit,
)
from poolrl.workflow.config.configuration import ConfigFile
from poolrl.workflow.trades.round_forecast import HARDLY_CHANGES, WIDE
from poolrl.workflow.trades.trade import trade_of
from poolrl.workflow.trades.vocabulary import Words

# Decisions of which the middle eight in ten lie this near to each other say nothing about others.
HARDLY_VARIES = 1.2
# Rounds should succeed less often the more is asked. Thirds differ for sure by this many standard errors.
FOR_SURE = 3.0
# A table in which fewer succeed or fail leaves the others out.
NEARLY_NONE = 0.005


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
    if problem.one_season:
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
