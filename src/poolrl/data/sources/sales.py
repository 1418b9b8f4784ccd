"""The query that [sales] stands for: from a sales export to one row per week of a shop, day and product.

Order-up-to is opening + delivery, and the rest of it was not sold. On a day that ran out, only "at least the
sales" is known: if less was sold than there should have been (spoilt, stolen, miscounted), the shelf held no more than
the sales.

A week of a shop is there if a row names the shop and one of the days that count, whatever else its rows say. So shop
and date are read in a way that cannot fail. A field that a week lacks, has twice or has in words is unobserved (NULL).
So no row decides whether a week counts, or what is read of another week, but for the scale "same weekday, last m
weeks": that is a mean over the m calendar weeks before, which `SalesTable.memory` counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

from poolrl.data.sources.log_files import ID_FUNCTION, quoted_name, quoted_text

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
LABEL_COLUMN = "label_{}"  # the column of each label in the query
LARGEST_READ = 10**12  # the largest number that is read. Sums of thousandths of such numbers are exact
# Columns that are read as yes and no; others are numbers. A row is unobserved if one of them cannot be read.
FLAGS = ("open", "stock_out")
TWICE, SHUT = "double rows", "closed"  # other reasons why a row is unobserved
# Counts of rows on which the shelf ran out, of these with stock left, of rows that sold all, of these without a flag.
FLAG_COUNTS = ("flag_out", "flag_out_left", "flag_sold", "flag_sold_not_out")


class SalesExport(Protocol):
    """The declarations of an export. [sales] of a configuration has the same keys, and says what they mean."""

    shop: str
    date: str
    product: str
    opening: str
    delivery: str
    sales: str
    stock_out: str | None
    open: str | None
    table: str | None
    decimal: Literal[".", ","]
    thousands: Literal["", ".", ",", "'", " "]
    date_format: str | None
    yes: list[str]
    no: list[str]
    missing_days: Literal["unobserved", "nothing happened"]
    scale: str | None
    scale_floor: float

    @property
    def weeks(self) -> int | None:
        """m of "same weekday, last m weeks"."""

    @property
    def open_days(self) -> list[int]:
        """The days of a week that are steps, Monday being 1."""


def plain_word(word: str) -> str:
    """A word of a flag, as it is compared."""
    return word.strip().lower()


def flag_sql(column: str, yes: list[str], no: list[str]) -> str:
    """SQL that reads a field as 1 or 0, and as NULL where it holds neither a word for yes nor one for no."""
    word = f"coalesce(lower(trim(CAST({column} AS VARCHAR))), '')"
    true, false = (", ".join(quoted_text(plain_word(word)) for word in words) for words in (yes, no))
    return f"(CASE WHEN {word} IN ({true}) THEN 1.0 WHEN {word} IN ({false}) THEN 0.0 END)"


def sales_query(
    sales: SalesExport, *, labels: Mapping[str, str], step_labels: Collection[str] = (), explained: bool = False
) -> str:
    """SQL of DuckDB on the table `log`: a row per week, day and product, with shop, monday, amounts, scale and labels.

    `labels` says which column holds which label. With `explained` a column `why` says what was wrong with a row.
    """
    named = {LABEL_COLUMN.format(name): column for name, column in labels.items()}
    carried = list(named)
    steps = [typed_rows(sales, named), _days(sales, carried), _cells(sales, carried)]
    rows = "cells"
    if sales.missing_days == "nothing happened":
        fixed = [LABEL_COLUMN.format(name) for name in labels if name not in step_labels]
        steps.append(_nothing_happened(sales, fixed, [name for name in carried if name not in fixed]))
        rows = "filled"
    if sales.weeks is not None:
        steps.append(_scaled(sales, rows))
        rows = "scaled"
    also = [*(["scale"] if sales.scale else []), *map(quoted_name, carried), *(["why"] if explained else [])]
    columns = ", ".join(["monday", "day", "shop", "product", "opening", "order_up_to", 'remaining AS "left"', *also])
    return f"WITH {', '.join(steps)}\nSELECT 'shop ' || shop || ', week of ' || monday AS week, {columns}\nFROM {rows}"


def number_reading(column: str, sales: SalesExport) -> str:
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


def date_reading(sales: SalesExport) -> str:
    """A field as a date; NULL where it is spelt otherwise than declared, or lies outside four centuries."""
    column = quoted_name(sales.date)
    read = f"TRY_CAST({column} AS DATE)"
    if sales.date_format is not None:
        text = f"trim(CAST({column} AS VARCHAR))"
        read = f"CAST(try_strptime({text}, {quoted_text(sales.date_format)}) AS DATE)"
    return f"CASE WHEN {read} BETWEEN DATE '1800-01-01' AND DATE '2199-12-31' THEN {read} END"


def readings(sales: SalesExport) -> dict[str, str]:
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


def columns_read(sales: SalesExport, labels: Mapping[str, str]) -> list[str]:
    """The columns of the export that the query reads."""
    read = [sales.shop, sales.date, sales.product, *(getattr(sales, name) for name in readings(sales))]
    return list(dict.fromkeys([*read, *labels.values()]))


def export_query(sales: SalesExport, labels: Mapping[str, str]) -> str | None:
    """SQL for these columns in a database file; None for other files."""
    if sales.table is None:
        return None
    return f"SELECT {', '.join(map(quoted_name, columns_read(sales, labels)))} FROM {quoted_name(sales.table)}"


def typed_rows(sales: SalesExport, texts: Mapping[str, str]) -> str:
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


def field_counts(sales: SalesExport, products: Sequence[str]) -> dict[str, str]:
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


def _days(sales: SalesExport, labels: list[str]) -> str:
    """Rows of the weeks. `why` says what cannot be read of one."""
    known = readings(sales)
    reasons = [f"WHEN {unreadable(name)} THEN '{name}'" for name in known]
    if "open" in known:
        reasons.append(f"WHEN NOT open THEN '{SHUT}'")
    ran_out = "stock_out" if "stock_out" in known else "sales >= opening + delivery"
    day = " ".join(f"WHEN {number} THEN {step}" for step, number in enumerate(sales.open_days, 1))
    others = [*(["scale"] if "scale" in known else []), *map(quoted_name, labels)]
    return f"""days AS (
  SELECT {", ".join(["shop", "product", "sales", *others])},
    date - CAST(isodow(date) - 1 AS INTEGER) AS monday,
    CASE isodow(date) {day} END AS day,
    CASE {" ".join(reasons)} END AS why,
    CASE WHEN {ran_out} THEN least(opening, sales) ELSE opening END AS opening,
    CASE WHEN {ran_out} THEN sales ELSE opening + delivery END AS order_up_to,
    CASE WHEN {ran_out} THEN 0 ELSE opening + delivery - sales END AS remaining
  FROM typed
  WHERE shop IS NOT NULL AND isodow(date) IN ({", ".join(map(str, sales.open_days))})
)"""


def _cells(sales: SalesExport, labels: list[str]) -> str:
    """One row per day and product. A value that stands twice, or cannot be read, is unobserved."""
    numbers = ["opening", "order_up_to", "remaining", "sales", *(["scale"] if "scale" in readings(sales) else [])]
    once = [f"CASE WHEN count(*) = 1 AND max(why) IS NULL THEN max({name}) END AS {name}" for name in numbers]
    # Rows that stand twice have their label all the same, if both say so.
    once += [f"CASE WHEN min({name}) = max({name}) THEN max({name}) END AS {name}" for name in map(quoted_name, labels)]
    return f"""cells AS (
  SELECT shop, monday, day, product,
    CASE WHEN count(*) > 1 THEN '{TWICE}' ELSE max(why) END AS why,
    {("," + chr(10) + "    ").join(once)}
  FROM days
  GROUP BY shop, monday, day, product
)"""


def _nothing_happened(sales: SalesExport, labels: list[str], step_labels: list[str]) -> str:
    """A row stands for itself and for the days after it in its week that have none: no delivery, no sale.

    Days before the first row of a week stay unobserved. So do days whose label or scale only a row could tell.
    """
    changed = {"opening": "remaining", "order_up_to": "remaining", "sales": "0 * sales"}
    unknown = ["scale"] if "scale" in readings(sales) else []
    changed |= dict.fromkeys([*unknown, *map(quoted_name, step_labels)], "NULL")
    columns = [f"CASE WHEN day = of_day THEN {name} ELSE {other} END AS {name}" for name, other in changed.items()]
    after = f"lead(day, 1, {len(sales.open_days) + 1}) OVER (PARTITION BY shop, monday, product ORDER BY day)"
    return f"""rows AS (
  SELECT * EXCLUDE (day), day AS of_day, unnest(range(day, {after})) AS day
  FROM cells
), filled AS (
  SELECT {", ".join(["shop", "monday", "day", "product", "why", "remaining", *map(quoted_name, labels), *columns])}
  FROM rows
)"""


def _scaled(sales: SalesExport, rows: str) -> str:
    """The scale of shop, product and weekday: mean sales of the m weeks before, if at least half of them are there.

    Sums are of whole thousandths. So they are exact, and no other week decides how one is rounded.
    """
    weeks = sales.weeks or 0
    return f"""weeks AS (
  SELECT *, datediff('day', DATE '1800-01-06', monday) // 7 AS week_number,
    CASE WHEN sales BETWEEN 0 AND {LARGEST_READ} THEN TRY_CAST(round(1000 * sales) AS BIGINT) END AS sold
  FROM {rows}
), scaled AS (
  SELECT *, CASE WHEN count(sold) OVER earlier >= {(weeks + 1) // 2}
    THEN greatest(sum(sold) OVER earlier / (1000.0 * count(sold) OVER earlier), {sales.scale_floor!r}) END AS scale
  FROM weeks
  WINDOW earlier AS (
    PARTITION BY shop, product, day ORDER BY week_number RANGE BETWEEN {weeks} PRECEDING AND 1 PRECEDING
  )
)"""
