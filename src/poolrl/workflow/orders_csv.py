"""What to order at each stock as a CSV file: one line for each range of stocks with the same answer."""

from __future__ import annotations

import csv
import io
from itertools import product

import numpy as np

from poolrl.learning.stored import Names
from poolrl.plans.orders import OrderPlan
from poolrl.problems.labels import Labels
from poolrl.workflow.levels_csv import BYTE_ORDER_MARK, spreadsheet_text

ORDERS_FILE = "orders.csv"


def orders_csv(plan: OrderPlan, names: Names, labels: Labels) -> str:
    """Label columns, `product`, `step`, stocks from and to, and the order: a level to order up to, or an amount.

    A range has one level where orders fill the shelf up to it, and one amount where orders are packs.
    """
    text = io.StringIO(newline="")
    text.write(BYTE_ORDER_MARK)
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(
        [*map(spreadsheet_text, labels.names), "product", "step", "stock_from", "stock_to", "up_to", "order"]
    )
    products = len(names.products)
    for cell, values in enumerate(product(*labels.values)):
        shown = [spreadsheet_text(value) if isinstance(value, str) else value for value in values]
        for i, name in enumerate(names.products):
            column = cell * products + i
            width, packs = float(plan.laws.width[column]), plan.laws.terms.pack[column] > 0
            last = int(plan.laws.caps[column].max())
            for step, called in enumerate(names.steps):
                orders = plan.orders[column, step, : last + 1]
                same = orders if packs else np.where(orders > 0, orders + np.arange(last + 1), -1)
                begins = np.flatnonzero(np.diff(same, prepend=same[0] - 1))
                for begin, end in zip(begins, [*begins[1:], last + 1], strict=True):
                    if orders[begin] == 0:
                        answer = ["", "0"]
                    else:
                        up_to = (orders[begin] + begin) * width
                        answer = ["", f"{orders[begin] * width:.6g}"] if packs else [f"{up_to:.6g}", ""]
                    stocks = [f"{begin * width:.6g}", f"{(end - 1) * width:.6g}"]
                    writer.writerow([*shown, spreadsheet_text(name), spreadsheet_text(called), *stocks, *answer])
    return text.getvalue()
