"""Column mappings of the two tables that shops have: a long one as it is, and a sales export by a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolrl.data.sources.engine import quoted_name, quoted_text

# One row per shop, date and product → one row per shop and day, a week being a trajectory. Order-up-to is opening +
# delivery, and what is left is what was not sold. On a day that ran out, only "at least the sales" is known: if less
# was sold than there should have been (spoilt, stolen, miscounted), the shelf held no more than the sales.
SALES_QUERY = """
WITH typed AS (
  SELECT shop, product, TRY_CAST(date AS DATE) AS date, TRY_CAST(opening AS DOUBLE) AS opening,
    TRY_CAST(delivery AS DOUBLE) AS delivery, TRY_CAST(sales AS DOUBLE) AS sales,
    TRY_CAST(stock_out AS BOOLEAN) AS stock_out
  FROM log
), days AS (
  SELECT concat('shop ', shop, ', week of ', date_trunc('week', date)::DATE) AS week, isodow(date) AS day, shop,
    product,
    CASE WHEN stock_out THEN least(opening, sales) ELSE opening END AS stock,
    CASE WHEN stock_out THEN sales ELSE opening + delivery END AS order_up_to,
    CASE WHEN stock_out THEN 0 ELSE opening + delivery - sales END AS remaining
  FROM typed
  WHERE product IN ({names}) AND isodow(date) <= {days}
  QUALIFY count(*) OVER (PARTITION BY week) = {rows}  -- whole weeks only: {days} days x {count} products
)
SELECT week, day, any_value(shop) AS shop,
{columns}
FROM days
GROUP BY week, day
"""
PRODUCT_COLUMNS = """  max(stock) FILTER (product = {text}) AS {opening},
  max(order_up_to) FILTER (product = {text}) AS {order},
  max(remaining) FILTER (product = {text}) AS {left}"""


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

    Weeks begin on Monday and have `days` days. Those in which a row is missing or stands twice are left out, by a rule
    that looks at one week alone.
    """
    if not 1 <= days <= 7:
        raise ValueError(f"horizon must lie in 1 .. 7 for a sales export, whose trajectories are weeks; got {days}")
    columns = long_columns(products)
    parts = [
        PRODUCT_COLUMNS.format(text=quoted_text(product), **dict(zip(("opening", "order", "left"), names, strict=True)))
        for product, *names in zip(
            products, *(map(quoted_name, columns[key]) for key in ("opening", "order_up_to", "left")), strict=True
        )
    ]
    query = SALES_QUERY.format(
        names=", ".join(quoted_text(product) for product in products),
        rows=days * len(products),
        days=days,
        count=len(products),
        columns=",\n".join(parts),
    )
    return columns | {"query": query.strip()}
