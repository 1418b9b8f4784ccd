"""Column mappings of the two tables that shops have: a long one as it is, and a sales export by a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolrl.data.sources.engine import quoted_name, quoted_text

# One row per shop, date and product → one row per shop and day, a week being a trajectory. Order-up-to is opening +
# delivery, and what is left is what was not sold. On a day that ran out, only "at least the sales" is known: if less
# was sold than there should have been (spoilt, stolen, miscounted), the shelf held no more than the sales.
#
# A week of a shop is there if a row names the shop and one of the days that count, whatever else its rows say. So shop
# and date are read in a way that cannot fail: a date outside four centuries is none; Monday is found by subtraction.
# A row that names no shop or no such day belongs to no week. What a week lacks, has twice or has in words is unobserved
# (NULL). So no row decides whether a week counts, or what is read of another week.
SALES_QUERY = """
WITH typed AS (
  SELECT poolrl_id(shop) AS shop, product,
    CASE WHEN TRY_CAST(date AS DATE) BETWEEN DATE '1800-01-01' AND DATE '2199-12-31'
      THEN TRY_CAST(date AS DATE) END AS date,
    TRY_CAST(opening AS DOUBLE) AS opening, TRY_CAST(delivery AS DOUBLE) AS delivery,
    TRY_CAST(sales AS DOUBLE) AS sales, TRY_CAST(stock_out AS BOOLEAN) AS stock_out
  FROM log
), days AS (
  SELECT shop, date - CAST(isodow(date) - 1 AS INTEGER) AS monday, isodow(date) AS day, product,
    CASE WHEN stock_out THEN least(opening, sales) WHEN NOT stock_out THEN opening END AS stock,
    CASE WHEN stock_out THEN sales WHEN NOT stock_out THEN opening + delivery END AS order_up_to,
    CASE WHEN stock_out THEN 0 WHEN NOT stock_out THEN opening + delivery - sales END AS remaining,
    opening IS NOT NULL AND delivery IS NOT NULL AND sales IS NOT NULL AS complete
  FROM typed
  WHERE shop IS NOT NULL AND isodow(date) <= {days}
)
SELECT 'shop ' || shop || ', week of ' || monday AS week, day, shop,
{columns}
FROM days
GROUP BY shop, monday, day
"""
# A product that a day lacks or has twice is unobserved.
PRODUCT_COLUMNS = """  CASE WHEN {once} THEN max(stock) FILTER ({mine}) END AS {opening},
  CASE WHEN {once} THEN max(order_up_to) FILTER ({mine}) END AS {order},
  CASE WHEN {once} THEN max(remaining) FILTER ({mine}) END AS {left}"""
ONE_ROW = "count(*) FILTER (product = {text}) = 1"
COMPLETE_ROW = "product = {text} AND complete"


def long_columns(products: Sequence[str]) -> dict[str, Any]:
    """The keys of [log] for a table with columns <product>_opening, <product>_order_up_to and <product>_left."""
    return {
        "trajectory": "week",
        "step": "day",
        "first_step": 1,
        "opening": [f"{product}_opening" for product in products],
        "order_up_to": [f"{product}_order_up_to" for product in products],
        "left": [f"{product}_left" for product in products],
    }


def from_sales(products: Sequence[str], *, days: int = 7) -> dict[str, Any]:
    """The same for a sales export (shop, date, product, opening, delivery, sales, stock_out), with its query.

    Weeks begin on Monday, and their first `days` days count. A day's product that is missing, stands twice or cannot be
    read is unobserved. A week is there if one row names its shop and one of these days.
    """
    if not 1 <= days <= 7:
        raise ValueError(f"horizon must lie in 1 .. 7 for a sales export, whose trajectories are weeks; got {days}")
    columns = long_columns(products)
    parts = []
    for product, *names in zip(products, *(columns[key] for key in ("opening", "order_up_to", "left")), strict=True):
        text = quoted_text(product)
        named = dict(zip(("opening", "order", "left"), map(quoted_name, names), strict=True))
        once, mine = ONE_ROW.format(text=text), COMPLETE_ROW.format(text=text)
        parts.append(PRODUCT_COLUMNS.format(once=once, mine=mine, **named))
    return columns | {"query": SALES_QUERY.format(columns=",\n".join(parts), days=days).strip()}
