"""`poolrl.toml`: everything that must be public, declared by a person. Nothing in it is read off the log.

Each key of the file is one field below. Its description is the comment in the file, the question that `poolrl init`
asks, and the help of its flag; its type and bounds are the rule by which both the file and an answer are judged.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from poolrl.certificate.parts import AssumedPublic, PeriodFacts, Publication
from poolrl.certificate.verify import Terms
from poolrl.data.log import Columns
from poolrl.learning.policy import Names
from poolrl.ledger.ledger import normal_name
from poolrl.ledger.periods import Period
from poolrl.ledger.units import ProtectedUnit
from poolrl.privacy import zcdp
from poolrl.problems.inventory import Backlog, LostSales

SHOPS: dict[str, type[LostSales] | type[Backlog]] = {"lost sales": LostSales, "backlog": Backlog}
AMOUNTS = ("holding", "shortage", "boundary", "demand_max")

# One number, one per product, or (but for demand_max) one per step and product; `Inventory` knows their bounds.
Amounts = float | list[float] | list[list[float]]


def key(default: Any = ..., *, why: str, answer: str | None = None, asked: bool = True, **rules: Any) -> Any:
    """A key of the file: why it is there, and the text that `init` takes where nobody answers ("" leaves it out)."""
    return Field(default, description=why, json_schema_extra={"answer": answer, "asked": asked}, **rules)


def name_key(*, why: str, answer: str | None = None) -> Any:
    """A key that holds one name."""
    return key(why=why, answer=answer, min_length=1, max_length=10_000)


def _is_name(text: str) -> bool:
    return bool(text.strip()) and text.isprintable()


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class ProblemFacts(_Section):
    """What is decided, how often, at which cost, within which bounds."""

    kind: Literal["lost sales", "backlog"] = key(
        why='"lost sales": unmet demand is gone and unseen; "backlog": it waits, and is seen', answer="lost sales"
    )
    products: list[str] = key(
        why="a name for each product, in the order of all lists below", min_length=1, max_length=10_000
    )
    horizon: int = key(why="steps of one trajectory: 7 days of a week", ge=1, le=10_000)
    steps: list[str] = key([], why="names for the steps, for reports", answer="")
    holding: Amounts = key(
        why="cost of a unit left after a step: a number, one per product, or a list per step of such lists"
    )
    shortage: Amounts = key(why="cost of one unit of demand that was not met: the same forms")
    demand_max: float | list[float] = key(
        why="demand never exceeds this, by shelf size or common sense; too large costs accuracy, not privacy"
    )
    boundary: Amounts = key(
        1.0, why="lambda: feedback exists up to this share of demand_max, and orders stay below it", answer="1"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = []
        for name, names in (("products", self.products), ("steps", self.steps)):
            if len({each.lower() for each in names}) < len(names) or not all(map(_is_name, names)):
                faults.append(f"{name} must be printable names that differ, ignoring case")
        if "step" in self.products:
            faults.append("products must not be called step: decide has a column of that name")
        if self.steps and len(self.steps) != self.horizon:
            faults.append(f"steps must name each of the {self.horizon} steps, or be left out; got {len(self.steps)}")
        products = len(self.products)
        for name in AMOUNTS:
            shape = np.shape(np.asarray(getattr(self, name), dtype=object))
            by_step = [] if name == "demand_max" else [(self.horizon, products), (self.horizon, 1)]
            if shape not in [(), (products,), *by_step]:
                lists = f", or {self.horizon} lists of {products}, one per step" if by_step else ""
                faults.append(f"{name} must be one number, or {products}, one per product{lists}")
        if faults:
            raise ValueError("; ".join(faults))
        _ = self.shop  # says what else is wrong with costs and bounds
        return self

    @cached_property
    def shop(self) -> LostSales | Backlog:
        """The problem that the learner sees."""
        facts = {name: getattr(self, name) for name in AMOUNTS}
        return SHOPS[self.kind](horizon=self.horizon, products=len(self.products), **facts)


class LogTable(_Section):
    """Where the log lies and what its columns mean; column names are public, their contents are not."""

    source: str = name_key(
        why=".csv or .parquet file, folder or glob; a .duckdb file; or postgresql://user@host/database"
    )
    query: str | None = key(None, why="SQL that gives the log's rows; files are the table log in it", answer="")
    trajectory: str = name_key(why="column: which trajectory (week, say) a row belongs to", answer="week")
    step: str = name_key(why="column: which step of it", answer="day")
    first_step: int = key(0, why="the number of the first step in that column", answer="1", ge=-(2**31), le=2**53)
    opening: list[str] = key(
        why="columns: stock at the beginning of the step, before the delivery",
        answer="{product}_opening",
        min_length=1,
    )
    order_up_to: list[str] = key(
        why="columns: stock after the delivery, opening + delivery", answer="{product}_order_up_to", min_length=1
    )
    left: list[str] = key(
        why="columns: stock at the end of the step; 0 means that the shelf ran empty",
        answer="{product}_left",
        min_length=1,
    )
    clip: bool = key(
        False,
        why="move values outside the bounds to the bounds, row by row; otherwise such rows are unobserved",
        asked=False,
    )

    @model_validator(mode="after")
    def _server_is_complete(self) -> Self:
        if not self.source.startswith(("postgresql://", "postgres://")):
            return self
        if not self.query:
            raise ValueError("source is a PostgreSQL server: add a query that gives the log's rows")
        if "password=" in self.source or urlsplit(self.source).password is not None:
            raise ValueError("source must not hold a password, for this file is public: use PGPASSWORD or ~/.pgpass")
        return self


class Privacy(_Section):
    """Who is protected, how strongly, and what may be spent in all."""

    unit: str | None = key(
        None,
        why="column: who is protected with all their trajectories; left out, each trajectory by itself",
        answer="",
        min_length=1,
    )
    max_per_unit: int | None = key(
        None,
        why="goes with unit: how many trajectories of one unit are used; noise grows in proportion",
        answer="",
        ge=1,
        le=10**6,
    )
    owns_at_most: int | None = key(
        None,
        why="goes with unit: every trajectory belongs to one unit, and none owns more of them than this, by a public "
        "fact; needed where other releases of the account protect single trajectories",
        asked=False,
        ge=1,
        le=10**6,
    )
    protects: str = key("", why="what one of those is, in words, for the label: one week of one shop", answer="")
    rho: float = key(
        why="the privacy budget of one fit (zCDP): 0.1 is epsilon 2.15 at delta 1e-6, 1 is 7.77; see poolrl plan",
        ge=1e-9,
    )
    budget: float = key(
        why="what may be spent on this data set in all, over all fits, by the ledger; equal to rho, it allows one fit",
        answer="",
        gt=0,
    )
    data_set: str = name_key(why="the name of its account in the ledger; a corrected or longer log keeps its name")
    ledger: str | None = key(
        None,
        why="the ledger's file, with its secret keys beside it; left out, one place for all data sets of a user",
        asked=False,
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.unit is None and self.max_per_unit is not None:
            raise ValueError("max_per_unit needs unit: name the column that says whose trajectory it is")
        if self.unit is not None and self.max_per_unit is None:
            raise ValueError("unit needs max_per_unit: say how many trajectories of one unit are used")
        if self.unit is None and self.owns_at_most is not None:
            raise ValueError("owns_at_most needs unit: it says how many trajectories one unit owns")
        if not normal_name(self.data_set):
            raise ValueError("data_set must be a name with a letter or a digit")
        if self.rho > self.budget:
            raise ValueError(f"rho must not exceed budget: {self.rho:g} is more than {self.budget:g}")
        return self

    @property
    def per_unit(self) -> int:
        """c, the trajectories that one unit may own."""
        return self.max_per_unit or 1


class PlanFacts(_Section):
    """What `poolrl plan` assumes: how many units the log holds, and which demand to try."""

    units: int = key(
        1000,
        why="about how many units (trajectories, if each is its own) the log holds; their number counts as public",
        ge=1,
        le=10**12,
    )
    trajectories_per_unit: int | None = key(
        None,
        why="goes with unit: how many a unit owns, about; max_per_unit if left out",
        asked=False,
        ge=1,
        le=10**6,
    )
    demand: str = key(
        "any",
        why="the demand to plan with: any, prior, uniform, normal, beta, exponential or bimodal",
        asked=False,
    )


class Config(_Section):
    """The whole file."""

    problem: ProblemFacts
    log: LogTable
    privacy: Privacy
    plan: PlanFacts = PlanFacts()
    publication: Publication = Publication()
    period: PeriodFacts = PeriodFacts()

    @model_validator(mode="after")
    def _columns_fit_products(self) -> Self:
        for name in ("opening", "order_up_to", "left"):
            given, wanted = len(getattr(self.log, name)), len(self.problem.products)
            if given != wanted:
                raise ValueError(f"[log] {name} must name one column for each of the {wanted} products, got {given}")
        return self

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        self.columns()  # refuses a column that is named twice
        self.declared_period()  # and a period that has no beginning or end
        return self

    @model_validator(mode="after")
    def _numbers_are_no_names(self) -> Self:
        first = self.log.first_step
        for number, name in enumerate(self.problem.steps):
            if name.isdecimal() and int(name) != first + number and first <= int(name) < first + self.problem.horizon:
                raise ValueError(f"[problem] steps must not call a step by the number of another one, as {name!r} does")
        return self

    def columns(self) -> Columns:
        """Which column holds what."""
        log = self.log
        opening, order_up_to, left = (tuple(names) for names in (log.opening, log.order_up_to, log.left))
        return Columns(
            log.trajectory, log.step, opening, order_up_to, left, self.privacy.unit, period=self.period.column or None
        )

    def declared_period(self) -> Period | None:
        """Which trajectories a release reads; None stands for all of them."""
        return self.period.of(self.columns().scale)

    def unit(self) -> ProtectedUnit:
        """Whom a release protects, for the ledger."""
        privacy = self.privacy
        return ProtectedUnit(self.log.trajectory, privacy.unit, privacy.per_unit, privacy.owns_at_most)

    def names(self) -> Names:
        """What the user calls products and steps; a step without a name has the number that it has in the log."""
        first, problem = self.log.first_step, self.problem
        numbers = [str(first + step) for step in range(problem.horizon)]
        return Names(problem.products, problem.steps or numbers, first)

    def terms(self, units: int) -> Terms:
        """What a certificate repeats of this file, beside the number of units of the log."""
        public = AssumedPublic(
            problem=self.problem.shop.facts(),
            products=self.problem.products,
            steps=self.names().steps,
            columns=self.columns().names(),
            unit_column=self.privacy.unit,
            clip=self.log.clip,
            query=self.log.query,
            protects=self.privacy.protects,
            publication=self.publication,
            units=units,
        )
        rho, budget = zcdp.finite_budget(rho=self.privacy.rho), zcdp.finite_budget(budget=self.privacy.budget)
        period, forgetting = self.declared_period(), self.period.forgetting
        return Terms(public, self.privacy.data_set, rho, budget, self.unit(), period, forgetting)
