"""Column mappings of the two tables that shops have: a long one as it is, and a sales export by a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# One row per shop, date and product → one row per shop and day, a week being a trajectory. Order-up-to is opening +
# delivery, and what is left is what was not sold. On a day that ran out, only "at least the sales" is known: if less
# was sold than there should have been (spoilt, stolen, miscounted), the shelf held no more than the sales.
QUERY = """
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
COLUMNS = """  max(stock) FILTER (product = {text}) AS {opening},
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
        COLUMNS.format(text=_text(product), opening=_name(opening), order=_name(order), left=_name(left))
        for product, opening, order, left in zip(
            products, columns["opening"], columns["order_up_to"], columns["left"], strict=True
        )
    ]
    query = QUERY.format(
        names=", ".join(_text(product) for product in products),
        rows=days * len(products),
        days=days,
        count=len(products),
        columns=",\n".join(parts),
    )
    return columns | {"query": query.strip()}


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
