"""[problem] and [operations] of shops, and [problem] of every other trade: what is decided, in which table."""

from __future__ import annotations

import inspect
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from poolrl.certificate.certificate import Facts
from poolrl.data.log import Columns
from poolrl.data.sources.log_files import quoted_name as quoted
from poolrl.problems.inventory import LostSales
from poolrl.problems.problem import OutcomeProblem, Problem
from poolrl.problems.registry import KINDS
from poolrl.workflow.config import sections
from poolrl.workflow.config.sales import LABEL_COLUMN, MONDAY, SALES_ROLES, WEEKDAYS, SalesTable, flag_sql, sales_query
from poolrl.workflow.config.sections import DeclaredValues, Key, LogTable, ProblemSection, asked
from poolrl.workflow.trades.trade import TableColumn, Trade, trade_named

if TYPE_CHECKING:
    from poolrl.problems.operations import Operations
    from poolrl.workflow.config.configuration import Config

AMOUNTS = ("holding", "shortage", "boundary", "demand_max")
# One number, one per product, or (but for demand_max) one per step and product; `Inventory` knows their bounds.
Amounts = float | list[float] | list[list[float]]
# More steps than any log has: a file must not ask for more memory than there is.
MOST_STEPS_OF_FILE = 10_000
# Columns of the rows that `rows_query` gives.
STATE, ACTION, NEXT_STATE, STEP = "poolrl_state_{}", "poolrl_action_{}", "poolrl_next_{}", "poolrl_step"
SCALE = "poolrl_scale"


class ShopFacts(ProblemSection):
    """What is decided, how often, at which cost, within which bounds."""

    has_flags: ClassVar[bool] = True
    unused: ClassVar[dict[str, str]] = {
        f"log.{name}": f"[log] {name} is for other problems than shops; [sales] has its own"
        for name in ("columns", "delimiter", "decimal", "yes", "no")
    }

    kind: Literal["lost sales", "backlog"] = asked(answer="lost sales")
    """"lost sales": unmet demand is gone and unseen; "backlog": it waits, and is seen"""
    products: list[str] = asked(min_length=1, max_length=10_000)
    """a name for each product, in the order of all lists below"""
    horizon: int = asked(ge=1, le=10_000)
    """steps of one trajectory: 7 days of a week"""
    steps: list[str] = asked([], "")
    """names for the steps, for reports"""
    holding: Amounts = asked()
    """cost of a unit left after a step: a number, one per product, or a list per step of such lists"""
    shortage: Amounts = asked()
    """cost of one unit of demand that was not met: the same forms"""
    demand_max: float | list[float] = asked()
    """demand never exceeds this, by shelf size or common sense, in units or in multiples of the scale; too large costs
    accuracy, not privacy"""
    boundary: Amounts = asked(1.0, "1")
    """lambda: feedback exists up to this share of demand_max, and orders stay below it"""
    labels: dict[str, DeclaredValues] = asked({}, "")
    """public facts of a row with their values, declared and never read off the log: { shop = "1..935", promotion =
    ["no", "yes"] }; as an answer: shop=1..935; promotion=no,yes"""
    step_labels: list[str] = asked([], "")
    """those labels that may change from one step to the next, such as a holiday"""
    scale_profile: list[float] = Field(default=[])
    """goes with a scale: how large it usually is on each step, compared with the others"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = self.faults_of_names(products=self.products)
        if "step" in self.products:
            faults.append("products must not be called step: decide has a column of that name")
        if self.steps and len(self.steps) != self.horizon:
            faults.append(f"steps must name each of the {self.horizon} steps, or be left out; got {len(self.steps)}")
        if self.scale_profile and len(self.scale_profile) != self.horizon:
            faults.append(f"scale_profile must have one number for each of the {self.horizon} steps, or be left out")
        products = len(self.products)
        for name in AMOUNTS:
            shape = np.shape(np.asarray(getattr(self, name), dtype=object))
            by_step = [] if name == "demand_max" else [(self.horizon, products), (self.horizon, 1)]
            if shape not in [(), (products,), *by_step]:
                lists = f", or {self.horizon} lists of {products}, one per step" if by_step else ""
                faults.append(f"{name} must be one number, or {products}, one per product{lists}")
        if faults:
            raise ValueError("; ".join(faults))
        _ = self.posed  # says what else is wrong with costs, bounds and labels
        return self

    def with_labels(self, labels: dict[str, list[int | float | str]]) -> Any:
        """The shop, with the values of some labels."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in AMOUNTS}
        facts |= {"horizon": self.horizon, "products": len(self.products), "labels": labels}
        if self.scale_profile:
            facts["scale_profile"] = [[size] for size in self.scale_profile]
        return KINDS[self.kind](**facts)

    def faults(self, config: Config) -> list[str]:
        """What is wrong with the table, and with [operations]."""
        if config.sales is not None:
            faults = self._faults_of_sales(config, config.sales)
        else:
            faults = self._faults_of_columns(config.log)
            if config.privacy.weeks_public:
                faults.append("[privacy] weeks_public goes with [sales]")
        if config.privacy.together and len(self.products) < 2:
            faults.append("[privacy] together needs two products or more")
        if not faults and config.operations.declared:
            steps = config.names().steps
            faults = config.operations.faults(steps, len(self.products))
            if not faults:
                config.operations.of_steps(steps).of(self.posed)  # refuses what no shop can do
        return faults

    def _faults_of_columns(self, log: LogTable) -> list[str]:
        wanted = len(self.products)
        faults = [
            f"[log] {name} must name one column for each of the {wanted} products, got {len(names)}"
            for name, names in (("opening", log.opening), ("order_up_to", log.order_up_to), ("left", log.left))
            if len(names) != wanted
        ]
        if log.scale and len(log.scale) not in (1, wanted):
            faults.append(f"[log] scale must name one column, or one for each of the {wanted} products")
        if not log.step:
            faults.append("[log] step must name a column")
        return faults

    def _faults_of_sales(self, config: Config, sales: SalesTable) -> list[str]:
        log, privacy, days = config.log, config.privacy, len(sales.open_days)
        faults = [
            f"[log] {name} goes without [sales], which says what the columns mean"
            for name in sections.WIDE_ONLY
            if name in log.model_fields_set and getattr(log, name) not in (None, [])
        ]
        if log.source.startswith(sections.SERVER):
            faults.append("[sales] reads files; for a PostgreSQL server give [log] a query instead")
        if log.source.endswith(sections.DATABASE_FILE) != (sales.table is not None):
            faults.append("[sales] table goes with a .duckdb file, and such a file needs it")
        if self.horizon != days:
            faults.append(f"[problem] horizon must be {days}: the days of a week but those of [sales] closed")
        if config.period.column not in ("", MONDAY):
            faults.append(f'[period] column must be "{MONDAY}" with [sales]: the date on which a week begins')
        if privacy.unit not in (None, "shop"):
            faults.append('[privacy] unit must be "shop" with [sales], or be left out: each week of a shop by itself')
        if extra := sorted(set(sales.labels) - set(self.labels)):
            faults.append(f"[sales] labels names {extra[0]!r}, which [problem] labels does not declare")
        if privacy.weeks_public and (sales.weeks is None or privacy.unit is not None):
            faults.append('[privacy] weeks_public goes with a scale of the same weekday, and without unit = "shop"')
        columns = {name: getattr(sales, name) for name in SALES_ROLES if getattr(sales, name) is not None}
        for name, column in columns.items():
            if list(columns.values()).count(column) > 1:
                faults.append(f"[sales] {name} names the column {column!r}, which another key names too")
        return faults

    def query(self, config: Config, *, explained: bool) -> str | None:
        """The recipe of a sales export, or the query of a wide table."""
        if config.sales is None:
            return config.log.query
        labels = config.columns_of_labels()
        return sales_query(config.sales, labels=labels, step_labels=self.step_labels, explained=explained)

    def columns(self, config: Config) -> Columns:
        """Of a sales export those of the recipe; of a wide table those that [log] names."""
        log, unit, period = config.log, config.privacy.unit, config.period.column or None
        if config.sales is not None:
            labels = {name: LABEL_COLUMN.format(name) for name in self.labels}
            by = ("scale",) if config.sales.scale else ()
            amounts = ("opening",), ("order_up_to",), ("left",)
            return Columns("week", "day", *amounts, unit, by, labels, "product", period)
        scale = tuple(log.scale * len(log.opening) if len(log.scale) == 1 else log.scale)
        opening, order_up_to, left = (tuple(names) for names in (log.opening, log.order_up_to, log.left))
        own = {name: name for name in self.labels}
        return Columns(log.trajectory, log.step, opening, order_up_to, left, unit, scale, own, period=period)

    @classmethod
    def complete(cls, trade: Trade, facts: dict[str, dict[str, Any]]) -> None:
        """A sales export says itself how many days a week has, and what a trajectory is."""
        if "sales" not in facts:
            return
        closed = facts["sales"]["closed"] or []
        days = [day for day in WEEKDAYS if day not in closed]
        facts["problem"] |= {"kind": trade.kind, "horizon": len(days), "steps": days}
        facts["privacy"]["protects"] = facts["privacy"]["protects"] or "one week of one shop"
        facts["period"]["column"] = MONDAY if facts["period"]["first"] else None

    @classmethod
    def refuse(cls, key: Key, value: Any, products: int) -> None:
        """The shop itself knows which amounts are possible."""
        per_product = (*AMOUNTS, "opening", "order_up_to", "left")
        if isinstance(value, list) and key.name in per_product and len(value) != products:
            raise ValueError(f"{key.name} must be one, or {products} with commas between: one per product")
        if key.name in AMOUNTS:
            LostSales(horizon=1, products=products, **(dict.fromkeys(AMOUNTS, 1.0) | {key.name: value}))


class OperationFacts(Facts):
    """Costs and orders beyond those of [problem]; amounts as there: a number, one per product, or a list per step."""

    purchase: Amounts | None = None
    """what a unit costs to buy"""
    price: Amounts | None = None
    """what a unit is sold for: lost with a missed sale"""
    fixed: Amounts | None = None
    """cost of placing an order, however large"""
    spoilage: Amounts | None = None
    """share of what is left that is gone the next morning; 1 for bread"""
    salvage: Amounts | None = None
    """what a unit brings that is left after the last step"""
    pack: Amounts | None = None
    """orders are whole packs of this many units"""
    minimum: Amounts | None = None
    """the smallest order that can be placed"""
    deliveries: list[str] = Field(default=[])
    """names of the steps on which an order can be placed; all if left out"""
    cycle: bool = False
    """the first step comes again after the last, for ever"""
    capacity: float | list[float] | None = None
    """room for all that is there after a delivery, all products together: one number, or one per step"""
    volume: float | list[float] | None = None
    """goes with capacity: how much of it a unit of each product takes; 1 if left out"""
    lead_time: int = Field(default=0, ge=0, le=100)
    """an order arrives this many steps later; goes with cycle = true"""
    usual_scale: Amounts | None = None
    """goes with a scale: how large it usually is, because packs and costs of an order are in units"""

    @property
    def declared(self) -> bool:
        """Whether anything is said."""
        return self != OperationFacts()

    def of_steps(self, steps: list[str]) -> Operations:
        """For a shop whose steps have these names."""
        from poolrl.problems.operations import Operations

        names = ("purchase", "price", "fixed", "spoilage", "salvage", "pack", "minimum")
        amounts: dict[str, Any] = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.deliveries:
            amounts["deliveries"] = np.array([[name in self.deliveries] for name in steps], dtype=np.float64)
        return Operations(cycle=self.cycle, **amounts)

    def faults(self, steps: list[str], products: int) -> list[str]:
        """What does not go together, or has another length than the shop. Said long before anything is spent."""
        shared, later = self.capacity is not None, self.lead_time > 0
        unknown = sorted(set(self.deliveries) - set(steps))
        alone = [name for name in ("fixed", "pack", "minimum", "deliveries", "cycle") if getattr(self, name)]
        broken = {
            f"deliveries names {', '.join(map(repr, unknown))}; steps are {', '.join(steps)}": unknown,
            "volume needs capacity: how much room is there for all products together?": self.volume and not shared,
            f"lead_time is longer than the {len(steps)} steps of a trajectory": self.lead_time > len(steps),
            "capacity and lead_time cannot be planned together": later and shared,
            "lead_time needs cycle = true: what is ordered at the end arrives later": later and not self.cycle,
            f"capacity and {' and '.join(alone)} cannot be planned together: a shared capacity is planned for orders "
            "of any amount on every step": shared and alone,
        }
        for name, amounts, length in (("capacity", self.capacity, len(steps)), ("volume", self.volume, products)):
            listed = amounts if isinstance(amounts, list) else [amounts] * length
            broken[f"{name} must be one number, or a list of {length}, got {len(listed)}"] = len(listed) != length
            broken[f"{name} must be positive"] = any(amount is not None and amount <= 0 for amount in listed)
        return [f"[operations] {rule}" for rule, is_broken in broken.items() if is_broken]


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
        return tuple(map(TableColumn, names))

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
        log = config.log
        # A server's numbers stay as they are: a cast could fail at a row. Files hold text, which may be no number.
        cast = "{}" if log.source.startswith(sections.SERVER) else "TRY_CAST({} AS DOUBLE)"
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
        kind, *others = sections.keys_of_model("problem", cls)
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
