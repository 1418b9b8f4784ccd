"""[problem] of every trade but shops: the arguments of the problem's constructor, and the table that people have."""

from __future__ import annotations

import inspect
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, model_validator
from pydantic.fields import FieldInfo

from poolrl.data.log import Columns
from poolrl.data.sources.sales import flag_sql
from poolrl.problems.problem import OutcomeProblem, Problem
from poolrl.workflow.config.sections import (
    SERVER,
    DeclaredValues,
    Key,
    LogTable,
    ProblemSection,
    asked,
    keys_of_model,
)
from poolrl.workflow.trades.trade import TableColumn, Trade, trade_named

if TYPE_CHECKING:
    from poolrl.workflow.config.configuration import Config

# More steps than any log has: a file must not ask for more memory than there is.
MOST_STEPS_OF_FILE = 10_000
# Columns of the rows that `rows_query` gives.
STATE, ACTION, NEXT_STATE, STEP = "poolrl_state_{}", "poolrl_action_{}", "poolrl_next_{}", "poolrl_step"
SCALE = "poolrl_scale"


class DeclaredFacts(ProblemSection):
    """The decision: the kind, its own facts, and names for steps. Other keys are the constructor's arguments."""

    unused: ClassVar[dict[str, str]] = {
        "sales": "[sales] reads exports of shops: for this kind name columns in [log] columns",
        "operations": "[operations] is for shops",
        "privacy.together": "[privacy] together is for shops",
        "privacy.weeks_public": "[privacy] weeks_public goes with [sales]",
    } | {
        f"log.{name}": f"[log] {name} is for shops; name columns in [log] columns"
        for name in ("opening", "order_up_to", "left")
    }

    model_config = ConfigDict(extra="allow")

    kind: str = asked()
    """which problem: one of the registry, or module:Class of your own"""
    steps: list[str] = asked([], "")
    """names for the steps, for reports"""
    labels: dict[str, DeclaredValues] = asked({}, "")
    """public facts of a row with their values, declared and never read off the log: { item = ["a", "b"] }"""
    step_labels: list[str] = asked([], "")
    """those labels that may change from one step to the next"""

    # Rounds end when nothing is left, and tables often end there too.
    short_is: ClassVar[Literal["note"]] = "note"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given, known = self.arguments, arguments_of(self.trade.problem)
        faults = [f"{name} is not known; known are {', '.join(known)}" for name in given if name not in known]
        needed = [name for name, default in known.items() if default is inspect.Parameter.empty]
        faults += [f"{name} is missing" for name in needed if name not in given]
        horizon = given.get("horizon", 1)
        if not isinstance(horizon, int) or not 1 <= horizon <= MOST_STEPS_OF_FILE:
            faults.append(f"horizon must be a whole number from 1 to {MOST_STEPS_OF_FILE:,}")
        faults += self.faults_of_names()
        if not faults:
            if not isinstance(self.posed, OutcomeProblem):
                faults.append(f"kind {self.kind!r} declares no outcomes: the command line needs an OutcomeProblem")
            elif self.steps and len(self.steps) != self.horizon:
                faults.append(f"steps must name each of the {self.horizon} steps, or be left out")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @cached_property
    def trade(self) -> Trade:
        """The trade that `kind` names: found when the file is read, which may trust it."""
        return trade_named(self.kind)

    @property
    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments, but for labels."""
        return dict(self.model_extra or {})

    def with_labels(self, labels: dict[str, list[int | float | str]]) -> Any:
        """The problem, with the values of some labels."""
        try:
            return self.trade.problem(**self.arguments, **({"labels": labels} if labels else {}))
        except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
            raise ValueError(f"kind {self.kind!r} does not take these values: {type(error).__name__}") from None

    @property
    def horizon(self) -> int:
        """H."""
        return int(self.posed.horizon)

    @property
    def products(self) -> list[str]:
        """A name for each coordinate of the state."""
        named, width = self.trade.words.states, self.posed.state_dim
        return list(named) if len(named) == width else [f"state {i}" for i in range(width)]

    def faults(self, config: Config) -> list[str]:
        """What is wrong with the columns that [log] names."""
        log, known = config.log, [column.name for column in self.table_columns]
        faults = [
            f"[log] columns names {name!r}, which this kind does not read; it reads {', '.join(known)}"
            for name in log.columns
            if name not in known
        ]
        if log.scale and len(log.scale) != 1:
            faults.append("[log] scale must name one column: all amounts of a row have the same unit")
        if log.decimal == log.delimiter:
            faults.append("[log] delimiter and decimal must differ")
        if not log.step and self.horizon > 1:
            faults.append(f"[log] step is needed: each trajectory has {self.horizon} steps")
        return faults

    @property
    def table_columns(self) -> tuple[TableColumn, ...]:
        """The columns of a table of this kind: as the words say, or the parts of a row themselves."""
        if self.trade.words.columns:
            return self.trade.words.columns
        problem, decision = self.posed, self.trade.words.decision
        actions = [decision] if problem.action_dim == 1 else [f"action {i}" for i in range(problem.action_dim)]
        names = *self.products, *actions, *(f"next {name}" for name in self.products), *problem.shows
        return tuple(TableColumn(name, "a part of the row") for name in names)

    def _parts(self) -> list[tuple[str, ...]]:
        """The columns of `query` that hold states, actions and next states."""
        sizes = {STATE: self.posed.state_dim, ACTION: self.posed.action_dim, NEXT_STATE: len(self.posed.arrival_low)}
        return [tuple(name.format(i) for i in range(size)) for name, size in sizes.items()]

    def columns(self, config: Config) -> Columns:
        """Those of the rows that `query` gives."""
        log, unit, labels = config.log, config.privacy.unit, {name: name for name in self.labels}
        (state, action, after), scale = self._parts(), (SCALE,) * len(log.scale)
        period = config.period.column or None
        return Columns(log.trajectory, log.step or STEP, state, action, after, unit, scale, labels, period=period)

    def query(self, config: Config, *, explained: bool) -> str:
        """SQL that gives states, actions and next states of every row, each from its own fields."""
        # Here, because engines take long to import.
        from poolrl.data.sources.log_files import quoted_name as quoted

        log = config.log
        # A server's numbers stay as they are: a cast could fail at a row. Files hold text, which may be no number.
        cast = "{}" if log.source.startswith(SERVER) else "TRY_CAST({} AS DOUBLE)"
        if log.decimal == ",":
            # A point beside a decimal comma may separate thousands: it is no number.
            text = "CAST({0} AS VARCHAR)"
            cast = f"CASE WHEN {text} NOT LIKE '%.%' THEN TRY_CAST(replace({text}, ',', '.') AS DOUBLE) END"
        read: dict[str, str] = {}
        for column in self.table_columns:
            name = log.columns.get(column.name, column.name)
            if self._left_out(column, log):
                read[column.name] = column.otherwise.format(**read)
            elif column.reads == "flag":
                read[column.name] = flag_sql(quoted(name), log.yes, log.no)
            else:
                read[column.name] = cast.format(quoted(name))
        words = self.trade.words
        rows = [*chain(*words.rows), *(words.shown[name] for name in self.posed.shows)]
        texts = [text.format(**read) for text in rows] if words.columns else list(read.values())
        chosen = [f"{text} AS {quoted(name)}" for name, text in zip(chain(*self._parts()), texts, strict=True)]
        chosen += [f"{cast.format(quoted(name))} AS {SCALE}" for name in log.scale]
        step = [] if log.step else [f"{log.first_step} AS {STEP}"]
        source = f"({log.query.strip().rstrip(';')}\n) AS log" if log.query else "log"
        return f"SELECT {', '.join([*map(quoted, self._kept(config)), *step, *chosen])} FROM {source}"

    def columns_read(self, config: Config) -> list[str]:
        """The columns of the table that the query reads."""
        log = config.log
        if log.query:
            return []
        parts = [column for column in self.table_columns if not self._left_out(column, log)]
        return [*self._kept(config), *log.scale, *(log.columns.get(part.name, part.name) for part in parts)]

    def _kept(self, config: Config) -> list[str]:
        """Columns of the table that are used as they are."""
        log, named = config.log, (config.privacy.unit, config.period.column, *self.labels)
        return list(dict.fromkeys(name for name in (log.trajectory, log.step, *named) if name))

    @classmethod
    def keys(cls, trade: Trade) -> list[Key]:
        """The constructor's arguments stand behind the kind, each with the reason that the trade's words give."""
        kind, *others = keys_of_model("problem", cls)
        arguments = []
        for name, default in arguments_of(trade.problem).items():
            answer = None if default is inspect.Parameter.empty else ""
            why = trade.words.keys.get(name, "an argument of the problem")
            field: FieldInfo = asked(... if answer is None else default, answer, description=why)
            field.annotation = object
            arguments.append(Key.of("problem", name, field))
        return [kind, *arguments, *others]

    @classmethod
    def usual(cls, trade: Trade) -> dict[str, str]:
        """Columns are called as the trade calls things, and papers speak of its decisions."""
        words, decisions = trade.words, trade.words.decisions.capitalize()
        columns = {"trajectory": words.trajectory, "step": words.step}
        return columns | {"name": decisions, "intended_use": f"{decisions} to come."}

    @classmethod
    def complete(cls, trade: Trade, facts: dict[str, dict[str, Any]]) -> None:
        """One step needs no column."""
        words, log, defaults = trade.words, facts["log"], arguments_of(trade.problem)
        if log["step"] == words.step and (facts["problem"].get("horizon") or defaults.get("horizon")) == 1:
            log["step"] = ""
        alone = log["step"] == "" and words.alone
        facts["privacy"]["protects"] = facts["privacy"].get("protects") or f"one {alone or words.trajectory}"

    def _left_out(self, column: TableColumn, log: LogTable) -> bool:
        return column.name not in log.columns and column.spared(self.posed)


def arguments_of(kind: type[Problem]) -> dict[str, Any]:
    """The constructor's keywords but labels, with their defaults; `inspect.Parameter.empty` where one is needed."""
    found = inspect.signature(kind).parameters
    return {name: each.default for name, each in found.items() if name not in ("self", "labels")}
