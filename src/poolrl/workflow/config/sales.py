"""The query that [sales] stands for (data/sources/sales.sql): from an export to a row per week, shop, day and product.

Order-up-to is opening + delivery, and the rest of it was not sold. On a day that ran out, only "at least the
sales" is known: if less was sold than there should have been (spoilt, stolen, miscounted), the shelf held no more than
the sales.

A week of a shop is there if a row names the shop and one of the days that count, whatever else its rows say. So shop
and date are read in a way that cannot fail. A field that a week lacks, has twice or has in words is unobserved (NULL).
So no row decides whether a week counts, or what is read of another week, but for the scale "same weekday, last m
weeks": that is a mean over the m calendar weeks before, which `SalesTable.memory` counts.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from poolrl.certificate.certificate import Facts
from poolrl.data.sources.log_files import ID_FUNCTION, quoted_name, quoted_text
from poolrl.workflow.config.sections import Name, asked, plain_word, require_different

if TYPE_CHECKING:
    from jinja2 import Template

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONDAY = "monday"  # the column of the query that says when a week begins
LABEL_COLUMN = "label_{}"  # the column of each label in the query
LARGEST_READ = 10**12  # the largest number that is read. Sums of thousandths of such numbers are exact
# Columns that are read as yes and no; others are numbers. A row is unobserved if one of them cannot be read.
FLAGS = ("open", "stock_out")
# Columns of a sales export that no two keys may share.
SALES_ROLES = ("shop", "date", "product", "opening", "delivery", "sales", "stock_out", "open")
SAME_WEEKDAY = re.compile(r"same weekday, last (\d{1,2}) weeks?")
TWICE, SHUT = "double rows", "closed"  # other reasons why a row is unobserved
# Counts of rows on which the shelf ran out, of these with stock left, of rows that sold all, of these without a flag.
FLAG_COUNTS = ("flag_out", "flag_out_left", "flag_sold", "flag_sold_not_out")


def _column(role: str, why: str) -> Any:
    return asked(flag=f"{role}_column", description=f"column: {why}")


class SalesTable(Facts):
    """How to read a sales export: a row per shop, date and product. A week of a shop is a trajectory."""

    shop: Name = _column("shop", "which shop")
    date: Name = _column("date", "which day")
    product: Name = _column("product", "which product, by a name of [problem] products")
    opening: Name = _column("opening", "stock in the morning, before the delivery")
    delivery: Name = _column("delivery", "what was delivered on that day")
    sales: Name = _column("sales", "what was sold on that day")
    stock_out: Name | None = asked(None, "", flag="stock_out_column")
    """column: whether the shelf ran empty; left out, it did where all that was there was sold"""
    open: Name | None = asked(None, "", flag="open_column")
    """column: whether the shop was open; a row of a closed day is unobserved"""
    labels: dict[str, str] = asked({}, "", flag="label_columns")
    """columns of the labels of [problem]: { promotion = "Aktion" }; one left out has a column of its own name"""
    table: Name | None = asked(None, "")
    """goes with a .duckdb file: the name of its table"""
    delimiter: Literal[",", ";", "\t", "|"] = asked(",", ",")
    """CSV: what stands between fields"""
    encoding: Literal["utf-8", "latin-1"] = asked("utf-8", "utf-8")
    """CSV: how letters are written; "latin-1" for many exports of Windows"""
    decimal: Literal[".", ","] = asked(".", ".")
    """what stands before the decimals of a number"""
    thousands: Literal["", ".", ",", "'", " "] = asked("", "")
    """what stands between groups of three digits, if anything"""
    date_format: Name | None = asked(None, "")
    """how dates are written: %d.%m.%Y for 31.12.2025; left out, 2025-12-31"""
    yes: list[str] = asked(["true", "yes", "1"], "true,yes,1", min_length=1)
    """words that mean yes in the columns stock_out and open ("" is an empty field)"""
    no: list[str] = asked(["false", "no", "0"], "false,no,0", min_length=1)
    """words that mean no there"""
    closed: list[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]] = asked([], "", max_length=6)
    """days on which no shop ever opens (Mon ... Sun): they are no steps"""
    missing_days: Literal["unobserved", "nothing happened"] = asked("unobserved", "unobserved")
    """a day without a row: "unobserved", or "nothing happened" (stock of that week's row before, nothing else)"""
    scale: Name | None = asked(None, "")
    """what amounts are measured in: "same weekday, last 4 weeks" (mean sales of shop, product and weekday), or the name
    of a column; left out, units"""
    scale_memory: int | None = asked(None, "", ge=0, le=10_000)
    """goes with a column: how many other weeks' scales may change with one week; 0 if it is from outside the log"""
    scale_floor: float = Field(default=1.0, gt=0)
    """goes with same weekday: the least scale, in units, for products that hardly sell"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = []
        if self.date_format is not None and not reads_dates(self.date_format):
            faults.append("date_format must give day, month and year, such as %d.%m.%Y or %m/%d/%y")
        require_different(self.yes, self.no)
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


def reads_dates(form: str) -> bool:
    """Whether a format gives back the dates that it has written."""
    days = [datetime.date(2025, 3, 4), datetime.date(2024, 12, 31), datetime.date(1999, 1, 10)]
    try:
        return all(datetime.datetime.strptime(day.strftime(form), form).date() == day for day in days)
    except (ValueError, re.error):
        return False


def flag_sql(column: str, yes: list[str], no: list[str]) -> str:
    """SQL that reads a field as 1 or 0, and as NULL where it holds neither a word for yes nor one for no."""
    word = f"coalesce(lower(trim(CAST({column} AS VARCHAR))), '')"
    true, false = (", ".join(quoted_text(plain_word(word)) for word in words) for words in (yes, no))
    return f"(CASE WHEN {word} IN ({true}) THEN 1.0 WHEN {word} IN ({false}) THEN 0.0 END)"


def sales_query(
    sales: SalesTable, *, labels: Mapping[str, str], step_labels: Collection[str] = (), explained: bool = False
) -> str:
    """SQL of DuckDB on the table `log`: a row per week, day and product, with shop, monday, amounts, scale and labels.

    `labels` says which column holds which label. With `explained` a column `why` says what was wrong with a row.
    """
    named = {LABEL_COLUMN.format(name): column for name, column in labels.items()}
    return _recipe().render(
        sales=sales,
        typed=typed_rows(sales, named),
        known={name: unreadable(name) for name in readings(sales)},
        labels=list(map(quoted_name, named)),
        step_labels=[quoted_name(LABEL_COLUMN.format(name)) for name in labels if name in step_labels],
        explained=explained,
        twice=TWICE,
        shut=SHUT,
        largest=LARGEST_READ,
    )


@cache
def _recipe() -> Template:
    """The template, compiled once."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # here, because not every command needs it

    environment = Environment(loader=PackageLoader("poolrl.data", "sources"), undefined=StrictUndefined)
    return environment.get_template("sales.sql")


def number_reading(column: str, sales: SalesTable) -> str:
    """A field as a number; NULL where it has another spelling than the declared one."""
    text = f"CAST({quoted_name(column)} AS VARCHAR)"
    if sales.thousands:
        # Groups of three digits, or none: in "1.5" the point is no separator of thousands.
        group, point = f"[{sales.thousands}]", f"[{sales.decimal}]"
        pattern = f" *[+-]?([0-9]+|[0-9]{{1,3}}({group}[0-9]{{3}})+)({point}[0-9]*)? *"
        plain = f"replace({text}, {quoted_text(sales.thousands)}, '')"
        text = f"CASE WHEN regexp_full_match({text}, {quoted_text(pattern)}) THEN {plain} END"
    if sales.decimal == ",":
        # A point is then no part of a number, so it becomes a sign that makes it unreadable.
        text = f"translate({text}, ',.', '.#')"
    return f"TRY_CAST({text} AS DOUBLE)"


def date_reading(sales: SalesTable) -> str:
    """A field as a date; NULL where it is spelt otherwise than declared, or lies outside four centuries."""
    column = quoted_name(sales.date)
    read = f"TRY_CAST({column} AS DATE)"
    if sales.date_format is not None:
        text = f"trim(CAST({column} AS VARCHAR))"
        read = f"CAST(try_strptime({text}, {quoted_text(sales.date_format)}) AS DATE)"
    return f"CASE WHEN {read} BETWEEN DATE '1800-01-01' AND DATE '2199-12-31' THEN {read} END"


def readings(sales: SalesTable) -> dict[str, str]:
    """How each column that must be readable is read; those that are not there are left out."""
    amounts = ["opening", "delivery", "sales", *(["scale"] if sales.scale is not None and sales.weeks is None else [])]
    flags = [name for name in FLAGS if getattr(sales, name) is not None]
    words = {name: f"{flag_sql(quoted_name(getattr(sales, name)), sales.yes, sales.no)} > 0" for name in flags}
    return words | {name: number_reading(getattr(sales, name), sales) for name in amounts}


def unreadable(name: str) -> str:
    """Whether what was read of a column cannot be used: missing, another word, no number, or beyond all numbers."""
    if name in FLAGS:
        return f"{name} IS NULL"
    return f"(isfinite({name}) AND abs({name}) <= {LARGEST_READ}) IS NOT TRUE"


def columns_read(sales: SalesTable, labels: Mapping[str, str]) -> list[str]:
    """The columns of the export that the query reads."""
    read = [sales.shop, sales.date, sales.product, *(getattr(sales, name) for name in readings(sales))]
    return list(dict.fromkeys([*read, *labels.values()]))


def export_query(sales: SalesTable, labels: Mapping[str, str]) -> str | None:
    """SQL for these columns in a database file; None for other files."""
    if sales.table is None:
        return None
    return f"SELECT {', '.join(map(quoted_name, columns_read(sales, labels)))} FROM {quoted_name(sales.table)}"


def typed_rows(sales: SalesTable, texts: Mapping[str, str]) -> str:
    """Every row of the export, its fields read: NULL where one cannot be. `texts` are columns that stay text."""
    plain = {name: f"nullif(trim(CAST({quoted_name(column)} AS VARCHAR)), '')" for name, column in texts.items()}
    columns = [
        f"{ID_FUNCTION}({quoted_name(sales.shop)}) AS shop",
        f"trim(CAST({quoted_name(sales.product)} AS VARCHAR)) AS product",
        f"{date_reading(sales)} AS date",
        *(f"{read} AS {name}" for name, read in readings(sales).items()),
        *(f"{read} AS {quoted_name(name)}" for name, read in plain.items()),
    ]
    return "typed AS (\n  SELECT " + ",\n    ".join(columns) + "\n  FROM log\n)"


def field_counts(sales: SalesTable, products: Sequence[str]) -> dict[str, str]:
    """What `poolrl check` counts in `typed_rows`: all rows, and those of which a field cannot be read or used."""
    known, names = list(readings(sales)), ", ".join(map(quoted_text, products))
    counts = {
        "rows": "count(*)",
        "shop": "count(*) FILTER (shop IS NULL)",
        "date": "count(*) FILTER (date IS NULL)",
        "closed": f"count(*) FILTER (isodow(date) NOT IN ({', '.join(map(str, sales.open_days))}))",
        "product": f"count(*) FILTER (product IS NULL OR product NOT IN ({names}))",
        "shops": "count(DISTINCT shop)",
        "spelt": "count(DISTINCT spelt)",
        **{name: f"count(*) FILTER ({unreadable(name)})" for name in known},
        **{WEEKDAYS[day - 1]: f"count(*) FILTER (isodow(date) = {day})" for day in sales.open_days},
    }
    if "stock_out" in known:
        left = "opening + delivery - sales"
        ran_out = ("stock_out", f"stock_out AND {left} > 0", f"{left} <= 0", f"{left} <= 0 AND NOT stock_out")
        counts |= {name: f"count(*) FILTER ({rows})" for name, rows in zip(FLAG_COUNTS, ran_out, strict=True)}
    return counts
