"""All order-up-to levels as a CSV file, for a spreadsheet: one line for each label cell, product and step."""

from __future__ import annotations

import csv
import io
from itertools import product

from poolrl.learning.policy import Policy

LEVELS_FILE = "levels.csv"
# Spreadsheets read UTF-8 only with this mark, and take text that begins with one of these signs for a formula.
BYTE_ORDER_MARK = "\ufeff"
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


def levels_csv(policy: Policy) -> str:
    """Label columns, `product`, `step` and `level`; with a scale a level is a multiple of it.

    Levels have six significant digits, far more than noise leaves.
    """
    names, labels = policy.names, policy.problem.labels
    text = io.StringIO(newline="")
    text.write(BYTE_ORDER_MARK)
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([*map(spreadsheet_text, labels.names), "product", "step", "level"])
    products, steps = (list(map(spreadsheet_text, each)) for each in (names.products, names.steps))
    cells = policy.levels.reshape(-1, *policy.levels.shape[-2:])
    for values, levels in zip(product(*labels.values), cells, strict=True):
        # A label's numbers stay numbers, also negative ones.
        shown = [spreadsheet_text(value) if isinstance(value, str) else value for value in values]
        for i, name in enumerate(products):
            writer.writerows(
                [*shown, name, step, f"{level:.6g}"] for step, level in zip(steps, levels[:, i], strict=True)
            )
    return text.getvalue()


def spreadsheet_text(name: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{name}" if name.startswith(FORMULA_SIGNS) else name
