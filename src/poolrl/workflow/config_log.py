"""[log] and [sales] of `poolrl.toml`: where the log lies, and what its columns mean."""

from __future__ import annotations

import datetime
import re
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import model_validator

from poolrl.workflow.section import ConfigSection, key, name_key

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SERVER, DATABASE_FILE = ("postgresql://", "postgres://"), (".duckdb", ".ddb", ".db")
# The column of each label in the query of a sales export.
LABEL_COLUMN = "label_{}"
SAME_WEEKDAY = re.compile(r"same weekday, last (\d{1,2}) weeks?")
# Columns of a sales export that no two keys may share.
SALES_ROLES = ("shop", "date", "product", "opening", "delivery", "sales", "stock_out", "open")
# Keys of [log] that a sales export has no use for.
WIDE_ONLY = ("query", "trajectory", "step", "first_step", "opening", "order_up_to", "left", "scale", "scale_memory")


# Words of a flag, as tables write them.
YES = ["1", "1.0", "true", "t", "yes", "y", "sold", "won", "ja", "oui", "si"]
NO = ["0", "0.0", "false", "f", "no", "n", "unsold", "not sold", "passed", "bought in", "lost", "nein", "non"]


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
        why='for other problems than shops, which column of the table holds what: { reserve = "limit" }; what is not '
        "named here has a column of its own name",
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
        if {each.strip().lower() for each in self.yes} & {each.strip().lower() for each in self.no}:
            raise ValueError("yes and no must not share a word")
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
        both = {each.strip().lower() for each in self.yes} & {each.strip().lower() for each in self.no}
        if both:
            faults.append(f"yes and no must not share a word, as they do {sorted(both)[0]!r}")
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
