"""`poolrl.toml`: everything that must be public, declared by a person. Nothing in it is read off the log.

Each key of the file is one field below. Its description is the comment in the file, the question that `poolrl init`
asks, and the help of its flag; its type and bounds are the rule by which both the file and an answer are judged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import Discriminator, Tag, model_validator

from poolrl.certificate.terms import (
    FORGETTING,
    FORGETTING_SCALED,
    AssumedPublic,
    CertifiedWords,
    PeriodFacts,
    Publication,
    Terms,
)
from poolrl.data.log import Columns
from poolrl.learning.stored import Names
from poolrl.ledger.units import REPLACE_ONE, Period, ProtectedUnit
from poolrl.privacy import zcdp
from poolrl.privacy.guarantee import KEEP_IDS
from poolrl.privacy.sensitivity import moved_trajectories
from poolrl.workflow.config_kind import SCALE, STEP, KindFacts
from poolrl.workflow.config_log import (
    DATABASE_FILE,
    LABEL_COLUMN,
    SALES_ROLES,
    SERVER,
    WEEKDAYS,
    WIDE_ONLY,
    LogTable,
    SalesTable,
)
from poolrl.workflow.config_operations import OperationFacts
from poolrl.workflow.config_privacy import PlanFacts, Privacy
from poolrl.workflow.config_problem import SHOPS, ProblemFacts
from poolrl.workflow.section import ConfigSection

# The column of a sales export's rows that says when a week begins.
MONDAY = "monday"


def _shop_or_kind(problem: Any) -> str:
    """Which of both sections a [problem] is, by its kind."""
    kind = problem.get("kind", "lost sales") if isinstance(problem, dict) else getattr(problem, "kind", None)
    return "kind" if isinstance(kind, str) and kind not in SHOPS else "shop"


class Config(ConfigSection):
    """The whole file."""

    problem: Annotated[
        Annotated[ProblemFacts, Tag("shop")] | Annotated[KindFacts, Tag("kind")], Discriminator(_shop_or_kind)
    ]
    log: LogTable
    sales: SalesTable | None = None
    privacy: Privacy
    plan: PlanFacts = PlanFacts()
    publication: Publication = Publication()
    period: PeriodFacts = PeriodFacts()
    operations: OperationFacts = OperationFacts()

    @model_validator(mode="after")
    def _table_is_complete(self) -> Self:
        if isinstance(self.problem, KindFacts):
            self._refuse_shops_keys()
        faults = self._faults_of_columns() if self.sales is None else self._faults_of_sales(self.sales)
        if self.privacy.labels_public and not self.problem.labels:
            faults.append("[privacy] labels_public needs [problem] labels")
        if self.privacy.together and len(self.problem.products) < 2:
            faults.append("[privacy] together needs two products or more")
        if faults:
            raise ValueError("; ".join(faults))
        self.columns()  # refuses a column that is named twice
        self.declared_period()  # and a period that has no beginning or end
        if isinstance(self.problem, KindFacts):
            return self
        self.operations.require_lengths(steps=self.problem.horizon, products=len(self.problem.products))
        self.operations.of_steps(self.names().steps).of(self.problem.posed)  # and what no shop can do
        return self

    def _refuse_shops_keys(self) -> None:
        if self.sales is not None:
            raise ValueError("[sales] reads exports of shops: for this kind name columns in [log] columns")
        if self.operations.declared:
            raise ValueError("[operations] is for shops")
        if self.privacy.together:
            raise ValueError("[privacy] together is for shops")

    def _faults_of_columns(self) -> list[str]:
        faults = self.problem.faults_of_log(self.log)
        if self.privacy.weeks_public:
            faults.append("[privacy] weeks_public goes with [sales]")
        return faults

    def _faults_of_sales(self, sales: SalesTable) -> list[str]:
        faults = [
            f"[log] {name} goes without [sales], which says what the columns mean"
            for name in WIDE_ONLY
            if name in self.log.model_fields_set and getattr(self.log, name) not in (None, [])
        ]
        if self.log.source.startswith(SERVER):
            faults.append("[sales] reads files; for a PostgreSQL server give [log] a query instead")
        if self.log.source.endswith(DATABASE_FILE) != (sales.table is not None):
            faults.append("[sales] table goes with a .duckdb file, and such a file needs it")
        if self.problem.horizon != len(sales.open_days):
            faults.append(
                f"[problem] horizon must be {len(sales.open_days)}: the days of a week but those of [sales] closed"
            )
        if self.period.column not in ("", MONDAY):
            faults.append(f'[period] column must be "{MONDAY}" with [sales]: the date on which a week begins')
        if self.privacy.unit not in (None, "shop"):
            faults.append('[privacy] unit must be "shop" with [sales], or be left out: each week of a shop by itself')
        if extra := sorted(set(sales.labels) - set(self.problem.labels)):
            faults.append(f"[sales] labels names {extra[0]!r}, which [problem] labels does not declare")
        if self.privacy.weeks_public and (sales.weeks is None or self.privacy.unit is not None):
            faults.append('[privacy] weeks_public goes with a scale of the same weekday, and without unit = "shop"')
        roles = [name for name in SalesTable.model_fields if name in SALES_ROLES and getattr(sales, name) is not None]
        columns = [getattr(sales, name) for name in roles]
        for name, column in zip(roles, columns, strict=True):
            if columns.count(column) > 1:
                faults.append(f"[sales] {name} names the column {column!r}, which another key names too")
        return faults

    @model_validator(mode="after")
    def _numbers_are_no_names(self) -> Self:
        first = self.first_step
        for number, name in enumerate(self.problem.steps):
            if name.isdecimal() and int(name) != first + number and first <= int(name) < first + self.problem.horizon:
                raise ValueError(f"[problem] steps must not call a step by the number of another one, as {name!r} does")
        return self

    @property
    def first_step(self) -> int:
        """The number of the first step in the log; Monday is day 1 of a sales export."""
        return self.log.first_step if self.sales is None else 1

    @property
    def scale_memory(self) -> int:
        """How many other trajectories' scales may change with one."""
        if self.sales is None:
            return self.log.scale_memory or 0
        return self.sales.memory(weeks_public=self.privacy.weeks_public)

    @property
    def scale_in_words(self) -> str:
        """What levels are multiples of, for the page; nothing where they are in units."""
        columns = list(self.log.scale)
        if self.sales is not None:
            if self.sales.weeks is not None:
                last = "last same weekday" if self.sales.weeks == 1 else f"last {self.sales.weeks} same weekdays"
                return f"the average of the {last}"
            columns = [self.sales.scale] if self.sales.scale else []
        return f"what {columns[0]} says" if len(columns) == 1 else "the expected amount" if columns else ""

    @property
    def moved(self) -> int:
        """c, the trajectories that one unit moves."""
        privacy = self.privacy
        return moved_trajectories(
            per_unit=privacy.per_unit, scale_memory=self.scale_memory, has_units=privacy.unit is not None
        )

    def query(self, *, explained: bool = False) -> str | None:
        """The SQL that gives the log's rows, from the answer to `export` if there is one.

        `explained` adds why a row of a sales export is unobserved.
        """
        if isinstance(self.problem, KindFacts):
            return self.problem.rows_query(self.log, self._kept_columns())
        if self.sales is None:
            return self.log.query
        # Here, because engines take long to import.
        from poolrl.workflow.sales import sales_query

        steps = self.problem.step_labels
        return sales_query(self.sales, labels=self.columns_of_labels(), step_labels=steps, explained=explained)

    def _kept_columns(self) -> list[str]:
        """Columns of a table that are used as they are."""
        log, privacy, period = self.log, self.privacy, self.period
        named = [log.trajectory, log.step, privacy.unit, period.column, *self.problem.labels]
        return [name for name in named if name]

    def columns_read(self) -> list[str]:
        """The columns that a file must have for a query of ours, as far as that is known."""
        if self.log.query or not isinstance(self.problem, KindFacts):
            return []
        return [*self._kept_columns(), *self.log.scale, *self.problem.columns_read(self.log)]

    def export(self) -> str | None:
        """The SQL that gives the rows of a sales export in a database file."""
        from poolrl.workflow.sales import export_query

        return None if self.sales is None else export_query(self.sales, self.columns_of_labels())

    def export_and_query(self) -> str | None:
        """Both as one, for a certificate."""
        query, export = self.query(), self.export()
        return query if query is None or export is None else query.replace("WITH ", f"WITH log AS ({export}), ", 1)

    def columns_of_labels(self) -> dict[str, str]:
        """Which column of a sales export holds which label."""
        return {} if self.sales is None else self.sales.label_columns(list(self.problem.labels))

    def columns(self) -> Columns:
        """Which column holds what."""
        log, names, period = self.log, list(self.problem.labels), self.period.column or None
        if self.sales is not None:
            labels = {name: LABEL_COLUMN.format(name) for name in names}
            by = ("scale",) if self.sales.scale else ()
            amounts = ("opening",), ("order_up_to",), ("left",)
            return Columns("week", "day", *amounts, self.privacy.unit, by, labels, "product", period)
        opening, order_up_to, left = (tuple(names) for names in (log.opening, log.order_up_to, log.left))
        step = log.step
        if isinstance(self.problem, KindFacts):
            (opening, order_up_to, left), step = self.problem.parts(), log.step or STEP
        scale = tuple(log.scale * len(opening) if len(log.scale) == 1 else log.scale)
        if isinstance(self.problem, KindFacts):
            scale = (SCALE,) * len(log.scale)
        labels = {name: name for name in names}
        return Columns(
            *(log.trajectory, step, opening, order_up_to, left, self.privacy.unit, scale, labels), period=period
        )

    def declared_period(self) -> Period | None:
        """Which trajectories a release reads; None stands for all of them."""
        rule = () if self.sales is None or self.sales.scale is None else (self.sales.scale,)
        found = self.period.of(rule or self.columns().scale)
        return found if found is None or self.sales is None else replace(found, column=f"{MONDAY} by {self._dates}")

    @property
    def forgetting(self) -> float:
        """What earlier periods count for in each update, as declared or as is usual."""
        usual = FORGETTING_SCALED if self.columns().scale else FORGETTING
        return usual if self.period.forgetting is None else self.period.forgetting

    @property
    def _dates(self) -> str:
        """Which column of a sales export holds dates, and how they are read."""
        assert self.sales is not None
        return f"{self.sales.date} ({self.sales.date_format or 'ISO'})"

    def unit(self) -> ProtectedUnit:
        """Whom a release protects, for the ledger, by names that differ where other columns say who it is.

        Every sales export has weeks and shops. Those of another column, or of dates read in another way, are others.
        """
        privacy, trajectory, owner = self.privacy, self.columns().trajectory, self.privacy.unit
        if self.sales is not None:
            trajectory, owner = f"week of {self.sales.shop} by {self._dates}", owner and self.sales.shop
        return ProtectedUnit(
            trajectory,
            owner,
            privacy.per_unit,
            privacy.owns_at_most,
            scale_memory=self.scale_memory,
            labels_kept=privacy.labels_public,
            adjacency=KEEP_IDS if privacy.weeks_public else REPLACE_ONE,
        )

    def _published(self) -> Publication:
        """What the record says, in the words of the problem where nobody has chosen others."""
        given, words = self.publication, self.problem.posed.words
        if not isinstance(self.problem, KindFacts):
            return given
        usual = {"name": f"{words.decisions.capitalize()}", "intended_use": f"{words.decisions.capitalize()} to come."}
        return given.model_copy(
            update={name: text for name, text in usual.items() if name not in given.model_fields_set}
        )

    def names(self) -> Names:
        """What the user calls products and steps; a step without a name has the number that it has in the log."""
        first, problem, sales = self.first_step, self.problem, self.sales
        numbers = [str(first + step) for step in range(problem.horizon)]
        days = [] if sales is None else [WEEKDAYS[number - 1] for number in sales.open_days]
        return Names(problem.products, problem.steps or days or numbers, first)

    def terms(self, units: int) -> Terms:
        """What a certificate repeats of this file, beside the number of units of the log."""
        posed = self.problem.posed
        public = AssumedPublic(
            problem=posed.facts(),
            products=self.problem.products,
            steps=self.names().steps,
            columns=[self.unit().trajectory, *self.columns().names()[1:]],
            unit_column=self.unit().column,
            clip=self.log.clip,
            query=self.export_and_query(),
            protects=self.privacy.protects,
            publication=self._published(),
            words=CertifiedWords.of(posed.words, self.problem.products, censored=getattr(posed, "censored", True)),
            units=units,
        )
        rho, budget = zcdp.finite_budget(rho=self.privacy.rho), zcdp.finite_budget(budget=self.privacy.budget)
        fades = self.forgetting, self.period.forgetting is not None
        return Terms(public, self.privacy.data_set, rho, budget, self.unit(), self.declared_period(), *fades)
