"""Sections of `poolrl.toml` that every trade has, and their keys. A key's docstring is the reason for it.

The reason is the comment in the file, the question that `poolrl init` asks, and the help of the key's flag. Type and
bounds are the rule by which both the file and an answer are judged.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, model_validator
from pydantic.fields import FieldInfo

from poolrl.certificate.certificate import Facts
from poolrl.data.log import Columns
from poolrl.ledger.accounts import Period, When, normal_name
from poolrl.problems.labels import MOST_LABEL_CELLS

if TYPE_CHECKING:
    from poolrl.workflow.config.configuration import Config
    from poolrl.workflow.trades.trade import Trade

SERVER, DATABASE_FILE = ("postgresql://", "postgres://"), (".duckdb", ".ddb", ".db")
# Keys of [log] that a sales export has no use for.
WIDE_ONLY = ("query", "trajectory", "step", "first_step", "opening", "order_up_to", "left", "scale", "scale_memory")
# Words of a flag, as tables write them.
YES = ["1", "1.0", "true", "t", "yes", "y", "sold", "won", "ja", "oui", "si"]
NO = ["0", "0.0", "false", "f", "no", "n", "unsold", "not sold", "passed", "bought in", "lost", "nein", "non"]
# What earlier periods count for in each update, unless a configuration says otherwise. Of all values that were tried,
# this one's largest regret is the smallest: 1.4 times the best value's gap, without drift and with four drifts
# (benchmarks/updates.py). It keeps (1 + 0.6) / (1 - 0.6) = 4 periods' worth of counts.
FORGETTING = 0.6
# A scale follows demand itself, so that its multiples hardly drift.
FORGETTING_SCALED = 0.9
# What a key holds that is one name.
Name = Annotated[str, Field(min_length=1, max_length=10_000)]


def asked(default: Any = ..., answer: str | None = None, *, flag: str = "", **rules: Any) -> Any:
    """A key that `init` asks for. `answer` stands for no answer; "" leaves the key out, None asks until there is one.

    `flag` is the name of its flag, where two sections have a key of one name.
    """
    return Field(default, json_schema_extra={"answer": answer, "flag": flag}, **rules)


@dataclass(frozen=True)
class Key:
    """One key of the file, as everything that writes, asks for or explains it needs it."""

    section: str
    name: str
    field: FieldInfo
    why: str  # the reason for it
    asked: bool  # whether `init` asks for it
    answer: str | None  # the text that stands for no answer: "" leaves the key out, None means that one is needed
    flag: str  # columns of a sales export have another flag than those of a wide table

    @classmethod
    def of(cls, section: str, name: str, field: FieldInfo) -> Key:
        """A field of a section."""
        extra: Any = field.json_schema_extra or {}
        flag, why = extra.get("flag") or name, " ".join(str(field.description).split())
        return cls(section, name, field, why, bool(extra), extra.get("answer"), flag)

    @property
    def place(self) -> str:
        """Its name in the whole file."""
        return f"{self.section}.{self.name}"


def keys_of_model(section: str, model: type[BaseModel]) -> list[Key]:
    """Every key of a section."""
    return [Key.of(section, name, field) for name, field in model.model_fields.items()]


def plain_word(word: str) -> str:
    """A word of a flag, as it is compared."""
    return word.strip().lower()


def require_different(yes: list[str], no: list[str]) -> None:
    """Refuse one word that means both."""
    if both := {plain_word(word) for word in yes} & {plain_word(word) for word in no}:
        raise ValueError(f"yes and no must not share a word, as they do {sorted(both)[0]!r}")


class LogTable(Facts):
    """Where the log lies and what its columns mean; column names are public, their contents are not."""

    source: Name = asked()
    """.csv or .parquet file, folder or glob; a .duckdb file; or postgresql://user@host/database"""
    query: str | None = asked(None, "")
    """SQL that gives the log's rows; files are the table log in it"""
    trajectory: Name = asked("week", "week")
    """column: which trajectory (week, say) a row belongs to"""
    step: str = asked("day", "day")
    """column: which step of it; "" where each trajectory has one step"""
    first_step: int = asked(0, "1", ge=-(2**31), le=2**53)
    """the number of the first step in that column"""
    opening: list[str] = asked([], "{product}_opening")
    """columns: stock at the beginning of the step, before the delivery"""
    order_up_to: list[str] = asked([], "{product}_order_up_to")
    """columns: stock after the delivery, opening + delivery"""
    left: list[str] = asked([], "{product}_left")
    """columns: stock at the end of the step; 0 means that the shelf ran empty"""
    columns: dict[str, str] = Field(default={})
    """for other problems than shops, which column of the table holds what: { reserve = "limit" }; a part that is
    not named here has a column of its own name"""
    delimiter: Literal[",", ";", "\t", "|"] = ","
    """for other problems than shops, what stands between fields of a CSV file"""
    decimal: Literal[".", ","] = "."
    """for other problems than shops, what stands before the decimals of a number"""
    yes: list[str] = YES
    """for other problems than shops, words that mean yes, as in sold"""
    no: list[str] = NO
    """and words that mean no"""
    scale: list[str] = Field(default=[])
    """columns: what was expected before the order, one for all products or one for each; amounts are divided by it"""
    scale_memory: int | None = Field(default=None, ge=0, le=10_000)
    """goes with scale: how many other trajectories' scales may change with one; 0 if it comes from outside"""
    clip: bool = False
    """move values outside the bounds to the bounds, row by row; otherwise such rows are unobserved"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if bool(self.scale) != (self.scale_memory is not None):
            raise ValueError("scale and scale_memory go together: a scale from outside the log has memory 0")
        require_different(self.yes, self.no)
        if not self.source.startswith(SERVER):
            return self
        if not self.query:
            raise ValueError("source is a PostgreSQL server: add a query that gives the log's rows")
        if "password=" in self.source or urlsplit(self.source).password is not None:
            raise ValueError("source must not hold a password, for this file is public: use PGPASSWORD or ~/.pgpass")
        return self


class Privacy(Facts):
    """The protection: for whom, how strong, and what may be spent in all."""

    unit: str | None = asked(None, "", min_length=1)
    """column: who is protected with all their trajectories; left out, each trajectory by itself"""
    max_per_unit: int | None = asked(None, "", ge=1, le=10**6)
    """goes with unit: how many trajectories of one unit are used; noise grows in proportion"""
    owns_at_most: int | None = Field(default=None, ge=1, le=10**6)
    """goes with unit: every trajectory belongs to one unit, and none owns more of them than this, by a public fact;
    needed where other releases of the account protect single trajectories"""
    labels_public: bool = False
    """goes with labels: neighbours keep them, and how many rows have which labels is released exactly"""
    weeks_public: bool = asked(False, "")
    """goes with a scale of the same weekday: it is public which shop has rows in which week, so neighbours replace what
    happened in a week; halves the memory"""
    protects: str = asked("", "")
    """what one of those is, in words, for the leaflet: one week of one shop"""
    rho: float = asked(ge=1e-9)
    """the privacy budget of one fit (zCDP): 0.1 is epsilon 2.15 at delta 1e-6, 1 is 7.77; see poolrl plan"""
    budget: float = asked(answer="", gt=0)
    """what may be spent on this data set in all, over all fits, by the ledger; equal to rho, it allows one fit"""
    together: bool = False
    """spend a tenth of rho on how far products sell together, for a shared reserve; not if [plan] units are too few"""
    data_set: Name = asked()
    """the name of its account in the ledger; a corrected or longer log keeps its name"""
    ledger: str | None = None
    """the ledger's file, with its secret keys beside it; left out, one place for all data sets of a user"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in ("max_per_unit", "owns_at_most"):
            if self.unit is None and getattr(self, name) is not None:
                raise ValueError(f"{name} needs unit: name the column that says whose trajectory it is")
        if self.unit is not None and self.max_per_unit is None:
            raise ValueError("unit needs max_per_unit: say how many trajectories of one unit are used")
        if not normal_name(self.data_set):
            raise ValueError("data_set must be a name with a letter or a digit")
        if self.rho > self.budget:
            raise ValueError(f"rho must not exceed budget: {self.rho:g} is more than {self.budget:g}")
        return self

    @property
    def per_unit(self) -> int:
        """c, the trajectories that one unit may own."""
        return self.max_per_unit or 1


class PlanFacts(Facts):
    """What `poolrl plan` assumes: how many units the log holds, and which demand to try."""

    units: int = asked(1000, ge=1, le=10**12)
    """about how many units (trajectories, if each is its own) the log holds; their number counts as public"""
    trajectories_per_unit: int | None = Field(default=None, ge=1, le=10**6)
    """goes with unit: how many a unit owns, about; max_per_unit if left out"""
    demand: str = "any"
    """the demand to study: any, prior, uniform, normal, beta, exponential or bimodal"""


class PeriodFacts(Facts):
    """Which trajectories a release reads, where it reads the weeks of one period only."""

    column: str = asked("", "", flag="period_column")
    """column: the date (2025-01-31) or number by which a trajectory belongs to a period; of several in its rows the
    smallest counts. With it, 'poolrl update' adds later periods"""
    first: When = asked("", "", flag="period_first")
    """the first date (2025-01-31) or number of the period; without one no update can add to what a fit has read"""
    before: When = asked("", "", flag="period_before")
    """the first one after it: begin the next period there"""
    forgetting: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="what earlier periods count for, in each update: 1 keeps them, 0.5 halves them. If left out, "
        f"{FORGETTING}, or {FORGETTING_SCALED} with a scale, which follows demand itself",
    )

    def of(self, scale: tuple[str, ...]) -> Period | None:
        """The period of a log with such a scale; None if none is declared. Refuses half a period."""
        if self.column == self.first == self.before == "":
            return None
        try:
            return Period(self.column, self.first, self.before, scale)
        except ValueError as error:
            raise ValueError(f"[period] {error}") from None


# Declared values of a label: a list, in which "1..935" stands for all numbers between, or such a range alone.
DeclaredValues = list[int | float | str] | str
VALUE_RANGE = re.compile(r"(-?\d{1,15})\.\.(-?\d{1,15})")


class ProblemSection(Facts, ABC):
    """[problem]: what is decided. Each trade has its own keys; this is what all of them have and can."""

    # Sections and keys of the file that the trade has no use for, with what to say about each.
    unused: ClassVar[dict[str, str]] = {}
    # Whether `init` has a flag for each of its keys; others go into --facts.
    has_flags: ClassVar[bool] = False
    # How a trajectory stands that lacks steps.
    short_is: ClassVar[Literal["note", "bad"]] = "bad"

    if TYPE_CHECKING:
        # Keys, or made from keys: each trade has its own order of them.
        kind: str
        steps: list[str]
        labels: dict[str, DeclaredValues]
        step_labels: list[str]

        @property
        def horizon(self) -> int:
            """H."""

        @property
        def products(self) -> list[str]:
            """A name for each coordinate of the state."""

    @abstractmethod
    def with_labels(self, labels: dict[str, list[int | float | str]]) -> Any:
        """The problem, with the values of some labels."""

    @cached_property
    def posed(self) -> Any:
        """The problem that the learner sees."""
        return self.with_labels({name: declared_values(declared) for name, declared in self.labels.items()})

    @abstractmethod
    def faults(self, config: Config) -> list[str]:
        """What is wrong with the other sections, as far as this one says what they must be."""

    @abstractmethod
    def query(self, config: Config, *, explained: bool) -> str | None:
        """The SQL that gives the log's rows; `explained` adds why a row of a sales export is unobserved."""

    @abstractmethod
    def columns(self, config: Config) -> Columns:
        """Which column of these rows holds what."""

    def columns_read(self, config: Config) -> list[str]:
        """The columns that a file must have for a query of ours, as far as that is known."""
        return []

    def faults_of_names(self, **more: list[str]) -> list[str]:
        """What is wrong with the names of steps and labels, and with more lists of names, by their keys."""
        faults = [
            f"{key} must be printable names that differ, ignoring case"
            for key, names in {"steps": self.steps, "labels": list(self.labels), **more}.items()
            if len({name.lower() for name in names}) < len(names)
            or not all(name.strip() and name.isprintable() for name in names)
        ]
        among = set(self.step_labels) <= set(self.labels)
        return faults if among else [*faults, "step_labels must be among the labels"]

    @classmethod
    def keys(cls, trade: Trade) -> list[Key]:
        """Its keys in the file of a trade."""
        return keys_of_model("problem", cls)

    @classmethod
    def usual(cls, trade: Trade) -> dict[str, str]:
        """What stands for no answer, by flag, where the trade has better words than the keys themselves."""
        return {}

    @classmethod
    def complete(cls, trade: Trade, facts: dict[str, dict[str, Any]]) -> None:
        """Add to the facts of a file what follows from others."""

    @classmethod
    def refuse(cls, key: Key, value: Any, products: int) -> None:
        """Refuse an answer by rules that no type has."""


def declared_values(declared: DeclaredValues) -> list[int | float | str]:
    """The values that a declaration stands for."""
    values: list[int | float | str] = []
    for part in [declared] if isinstance(declared, str) else declared:
        ends = VALUE_RANGE.fullmatch(part) if isinstance(part, str) else None
        if ends is None:
            values.append(part)
            continue
        first, last = int(ends[1]), int(ends[2])
        if not 0 <= last - first < MOST_LABEL_CELLS:
            raise ValueError(f"labels: {part} is no range of numbers, from the smallest to the largest")
        values += range(first, last + 1)
    return values
