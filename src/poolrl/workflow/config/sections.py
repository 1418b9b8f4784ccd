"""Sections of `poolrl.toml` that every trade has: [log], [privacy], [plan], what [problem] must say, and [sales]."""

from __future__ import annotations

import datetime
import re
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import model_validator

from poolrl.data.log import Columns
from poolrl.ledger.ledger import normal_name
from poolrl.problems.labels import MOST_LABEL_CELLS
from poolrl.workflow.config.keys import ConfigSection, Key, key, keys_of_model, name_key

if TYPE_CHECKING:
    from poolrl.workflow.config.configuration import Config
    from poolrl.workflow.trades.trade import Trade

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SERVER, DATABASE_FILE = ("postgresql://", "postgres://"), (".duckdb", ".ddb", ".db")
# The column of each label in the query of a sales export.
LABEL_COLUMN = "label_{}"
SAME_WEEKDAY = re.compile(r"same weekday, last (\d{1,2}) weeks?")
# Columns of a sales export that no two keys may share.
# The column of a sales export's rows that says when a week begins.
MONDAY = "monday"
SALES_ROLES = ("shop", "date", "product", "opening", "delivery", "sales", "stock_out", "open")
# Keys of [log] that a sales export has no use for.
WIDE_ONLY = ("query", "trajectory", "step", "first_step", "opening", "order_up_to", "left", "scale", "scale_memory")


# Words of a flag, as tables write them.
YES = ["1", "1.0", "true", "t", "yes", "y", "sold", "won", "ja", "oui", "si"]
NO = ["0", "0.0", "false", "f", "no", "n", "unsold", "not sold", "passed", "bought in", "lost", "nein", "non"]


def flag_sql(column: str, yes: list[str], no: list[str]) -> str:
    """SQL that reads a field as 1 or 0, and as NULL where it holds neither a word for yes nor one for no."""
    word = f"coalesce(lower(trim(CAST({column} AS VARCHAR))), '')"

    def among(words: list[str]) -> str:
        return ", ".join("'" + _plain(word).replace("'", "''") + "'" for word in words)

    return f"(CASE WHEN {word} IN ({among(yes)}) THEN 1.0 WHEN {word} IN ({among(no)}) THEN 0.0 END)"


def _require_different(yes: list[str], no: list[str]) -> None:
    if both := {_plain(word) for word in yes} & {_plain(word) for word in no}:
        raise ValueError(f"yes and no must not share a word, as they do {sorted(both)[0]!r}")


def _plain(word: str) -> str:
    return word.strip().lower()


class LogTable(ConfigSection):
    """Where the log lies and what its columns mean; column names are public, their contents are not."""

    source: str = name_key(
        why=".csv or .parquet file, folder or glob; a .duckdb file; or postgresql://user@host/database"
    )
    query: str | None = key(None, why="SQL that gives the log's rows; files are the table log in it", answer="")
    trajectory: str = name_key("week", why="column: which trajectory (week, say) a row belongs to", answer="week")
    step: str = key("day", why='column: which step of it; "" where each trajectory has one step', answer="day")
    first_step: int = key(0, why="the number of the first step in that column", answer="1", ge=-(2**31), le=2**53)
    opening: list[str] = key(
        [], why="columns: stock at the beginning of the step, before the delivery", answer="{product}_opening"
    )
    order_up_to: list[str] = key(
        [], why="columns: stock after the delivery, opening + delivery", answer="{product}_order_up_to"
    )
    left: list[str] = key(
        [], why="columns: stock at the end of the step; 0 means that the shelf ran empty", answer="{product}_left"
    )
    columns: dict[str, str] = key(
        {},
        why='for other problems than shops, which column of the table holds what: { reserve = "limit" }; a part that '
        "is not named here has a column of its own name",
        asked=False,
    )
    delimiter: Literal[",", ";", "\t", "|"] = key(
        ",", why="for other problems than shops, what stands between fields of a CSV file", asked=False
    )
    decimal: Literal[".", ","] = key(
        ".", why="for other problems than shops, what stands before the decimals of a number", asked=False
    )
    yes: list[str] = key(YES, why="for other problems than shops, words that mean yes, as in sold", asked=False)
    no: list[str] = key(NO, why="and words that mean no", asked=False)
    scale: list[str] = key(
        [],
        why="columns: what was expected before the order, one for all products or one for each; amounts are divided "
        "by it",
        asked=False,
    )
    scale_memory: int | None = key(
        None,
        why="goes with scale: how many other trajectories' scales may change with one; 0 if it comes from outside",
        asked=False,
        ge=0,
        le=10_000,
    )
    clip: bool = key(
        False,
        why="move values outside the bounds to the bounds, row by row; otherwise such rows are unobserved",
        asked=False,
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if bool(self.scale) != (self.scale_memory is not None):
            raise ValueError("scale and scale_memory go together: a scale from outside the log has memory 0")
        _require_different(self.yes, self.no)
        if not self.source.startswith(SERVER):
            return self
        if not self.query:
            raise ValueError("source is a PostgreSQL server: add a query that gives the log's rows")
        if "password=" in self.source or urlsplit(self.source).password is not None:
            raise ValueError("source must not hold a password, for this file is public: use PGPASSWORD or ~/.pgpass")
        return self


def _column(role: str, why: str, *, optional: bool = False) -> str:
    default = {"default": None, "answer": ""} if optional else {}
    field: str = name_key(why=f"column: {why}", flag=f"{role}_column", **default)
    return field


class SalesTable(ConfigSection):
    """How to read a sales export: a row per shop, date and product. A week of a shop is a trajectory."""

    shop: str = _column("shop", "which shop")
    date: str = _column("date", "which day")
    product: str = _column("product", "which product, by a name of [problem] products")
    opening: str = _column("opening", "stock in the morning, before the delivery")
    delivery: str = _column("delivery", "what was delivered on that day")
    sales: str = _column("sales", "what was sold on that day")
    stock_out: str | None = _column(
        "stock_out", "whether the shelf ran empty; left out, it did where all that was there was sold", optional=True
    )
    open: str | None = _column("open", "whether the shop was open; a row of a closed day is unobserved", optional=True)
    labels: dict[str, str] = key(
        {},
        why='columns of the labels of [problem]: { promotion = "Aktion" }; a label that is not named here has a column '
        "of its own name",
        answer="",
        flag="label_columns",
    )
    table: str | None = name_key(None, why="goes with a .duckdb file: the name of its table", answer="", flag="table")
    delimiter: Literal[",", ";", "\t", "|"] = key(",", why="CSV: what stands between fields", answer=",")
    encoding: Literal["utf-8", "latin-1"] = key(
        "utf-8", why='CSV: how letters are written; "latin-1" for many exports of Windows', answer="utf-8"
    )
    decimal: Literal[".", ","] = key(".", why="what stands before the decimals of a number", answer=".")
    thousands: Literal["", ".", ",", "'", " "] = key(
        "", why="what stands between groups of three digits, if anything", answer=""
    )
    date_format: str | None = name_key(
        None, why="how dates are written: %d.%m.%Y for 31.12.2025; left out, 2025-12-31", answer=""
    )
    yes: list[str] = key(
        ["true", "yes", "1"],
        why='words that mean yes in the columns stock_out and open ("" is an empty field)',
        answer="true,yes,1",
        min_length=1,
    )
    no: list[str] = key(["false", "no", "0"], why="words that mean no there", answer="false,no,0", min_length=1)
    closed: list[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]] = key(
        [], why="days on which no shop ever opens (Mon ... Sun): they are no steps", answer="", max_length=6
    )
    missing_days: Literal["unobserved", "nothing happened"] = key(
        "unobserved",
        why='a day without a row: "unobserved", or "nothing happened" (the stock of the row before in that week, no '
        "delivery, no sale)",
        answer="unobserved",
    )
    scale: str | None = name_key(
        None,
        why='what amounts are measured in: "same weekday, last 4 weeks" (mean sales of shop, product and weekday), or '
        "the name of a column; left out, units",
        answer="",
        flag="scale",
    )
    scale_memory: int | None = key(
        None,
        why="goes with a column as scale: how many other weeks' scales may change with one week; 0 if it comes from "
        "outside the log",
        answer="",
        ge=0,
        le=10_000,
        flag="scale_memory",
    )
    scale_floor: float = key(
        1.0,
        why="goes with same weekday: the least scale, in units, for products that hardly sell",
        asked=False,
        gt=0,
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = []
        if self.date_format is not None and not reads_dates(self.date_format):
            faults.append("date_format must give day, month and year, such as %d.%m.%Y or %m/%d/%y")
        _require_different(self.yes, self.no)
        if self.decimal == self.thousands:
            faults.append("decimal and thousands must differ")
        if len(set(self.closed)) < len(self.closed):
            faults.append("closed must not name a day twice")
        if self.weeks is not None and not 1 <= self.weeks <= 52:
            faults.append('scale must be "same weekday, last m weeks" with m in 1 .. 52')
        by_column = self.scale is not None and self.weeks is None
        if by_column and self.scale_memory is None:
            faults.append(
                "scale names a column, so scale_memory is needed: how many other weeks' scales may change when one "
                'week is replaced (0 if it comes from outside the log), or write "same weekday, last 4 weeks"'
            )
        if not by_column and self.scale_memory is not None:
            faults.append("scale_memory goes with a column as scale: that of the same weekday is known")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def weeks(self) -> int | None:
        """m of "same weekday, last m weeks"; None for another scale, or none."""
        found = None if self.scale is None else SAME_WEEKDAY.fullmatch(self.scale.strip())
        return None if found is None else int(found[1])

    def memory(self, *, weeks_public: bool) -> int:
        """How many other weeks' scales may change when one week of a shop is replaced.

        The mean over the m weeks before serves the m weeks after. A week that becomes another one changes m scales
        where it leaves and m where it arrives. Where shop and week are public and stay, these are the same m.
        """
        if self.weeks is None:
            return self.scale_memory or 0
        return self.weeks if weeks_public else 2 * self.weeks

    @property
    def open_days(self) -> list[int]:
        """The days of a week that are steps, Monday being 1."""
        return [number for number, day in enumerate(WEEKDAYS, 1) if day not in self.closed]

    def label_columns(self, labels: list[str]) -> dict[str, str]:
        """Which column holds which label."""
        return {name: self.labels.get(name, self.shop if name == "shop" else name) for name in labels}


def reads_dates(form: str) -> bool:
    """Whether a format gives back the dates that it has written."""
    days = [datetime.date(2025, 3, 4), datetime.date(2024, 12, 31), datetime.date(1999, 1, 10)]
    try:
        return all(datetime.datetime.strptime(day.strftime(form), form).date() == day for day in days)
    except (ValueError, re.error):
        return False


class Privacy(ConfigSection):
    """The protection: for whom, how strong, and what may be spent in all."""

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
    labels_public: bool = key(
        False,
        why="goes with labels: neighbours keep them, and how many rows have which labels is released exactly",
        asked=False,
    )
    weeks_public: bool = key(
        False,
        why="goes with a scale of the same weekday: it is public which shop has rows in which week, so neighbours "
        "replace what happened in a week; halves the memory",
        answer="",
    )
    protects: str = key("", why="what one of those is, in words, for the leaflet: one week of one shop", answer="")
    rho: float = key(
        why="the privacy budget of one fit (zCDP): 0.1 is epsilon 2.15 at delta 1e-6, 1 is 7.77; see poolrl plan",
        ge=1e-9,
    )
    budget: float = key(
        why="what may be spent on this data set in all, over all fits, by the ledger; equal to rho, it allows one fit",
        answer="",
        gt=0,
    )
    together: bool = key(
        False,
        why="spend a tenth of rho on how far products sell much or little together, for a shared reserve; left out "
        "where [plan] units are too few for it",
        asked=False,
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


class PlanFacts(ConfigSection):
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
        why="the demand to study: any, prior, uniform, normal, beta, exponential or bimodal",
        asked=False,
    )


# Declared values of a label: a list, in which "1..935" stands for all numbers between, or such a range alone.
DeclaredValues = list[int | float | str] | str
VALUE_RANGE = re.compile(r"(-?\d{1,15})\.\.(-?\d{1,15})")


class ProblemSection(ConfigSection, ABC):
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
        scale_profile: list[float]

        @property
        def horizon(self) -> int:
            """H."""

        @property
        def products(self) -> list[str]:
            """A name for each coordinate of the state."""

    @cached_property
    @abstractmethod
    def posed(self) -> Any:
        """The problem that the learner sees."""

    @abstractmethod
    def unlabelled(self) -> Any:
        """The same problem without labels."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """Its subject, for `poolrl check` and for an audit."""

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

    def label_values(self) -> dict[str, list[int | float | str]]:
        """The values that the declared labels stand for."""
        return {name: declared_values(declared) for name, declared in self.labels.items()}

    def usual_publication(self) -> dict[str, str]:
        """The words of a record where nobody has chosen others."""
        return {}

    @classmethod
    def keys(cls, trade: Trade) -> list[Key]:
        """Its keys in the file of a trade."""
        return keys_of_model("problem", cls)

    @classmethod
    def usual(cls, trade: Trade) -> dict[str, str]:
        """Answers that stand for no answer, where the trade has better ones than the keys themselves, by flag."""
        return {}

    @classmethod
    def complete(cls, trade: Trade, facts: dict[str, dict[str, Any]]) -> None:
        """Add to the facts of a file what follows from others."""

    @classmethod
    def refuse(cls, key: Key, value: Any, products: int) -> bool:
        """Refuse an answer by rules that no type has; whether the answer was judged so."""
        return False


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
