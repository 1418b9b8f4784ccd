"""Digests of each product's rows, computed where the log is. A ledger recognises the same rows by them.

A digest is as sensitive as the log: a person who guesses a product's log can confirm the guess. So the ledger stores
keyed hashes of digests only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import reduce
from operator import add

import ibis
import ibis.expr.types as ir

from poolrl.data.expressions import finite
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table

# Factors of a row's four numbers; only the fraction of the sum is kept. Any factors but simple fractions would do.
_MULTIPLES = (
    (1.6180339887498949, 1.4142135623730951, 1.7320508075688772, 1.2599210498948732),
    (2.6457513110645907, 1.8392867552141612, 1.3247179572447460, 1.4655712318767680),
)
_PLACES = 2.0**31
_LARGEST = 2.0**50


def digests(log: Table) -> list[bytes]:
    """SHA-256 of all rows of each product. The order of rows and products and the kind of file do not matter.

    Each row becomes two scattered whole numbers, and these are added up. So an engine needs one pass and no sorting.
    """
    columns, rows, sums = log.columns, log.rows, {}
    step = _number(rows[columns.step]) - log.first_step
    products = list(zip(columns.states, columns.actions, columns.next_states, strict=True))
    for i, names in enumerate(products):
        numbers = [step, *(_number(rows[name]) for name in names)]
        for j, multiples in enumerate(_MULTIPLES):
            sums[f"sum_{i}_{j}"] = _scattered(numbers, multiples).sum().cast("int64")
    found = answer(rows.aggregate(rows=rows.count(), **sums))
    counted = {name: found[name][0].as_py() or 0 for name in found.column_names}
    texts = [
        f"poolrl log 2: {counted['rows']} {[counted[f'sum_{i}_{j}'] for j in range(len(_MULTIPLES))]}"
        for i in range(len(products))
    ]
    return [hashlib.sha256(text.encode()).digest() for text in texts]


def _number(column: ir.Column) -> ir.FloatingColumn:
    number = column.cast("float64")
    return ibis.ifelse(finite(number) & number.between(-_LARGEST, _LARGEST), number, _LARGEST)


def _scattered(numbers: Sequence[ir.FloatingColumn], multiples: Sequence[float]) -> ir.IntegerColumn:
    """⌊2³¹ frac(2³¹ frac(Σ c x)²)⌋, added from left to right, so that every engine finds the same bits."""
    total = reduce(add, [number * multiple for number, multiple in zip(numbers, multiples, strict=True)])
    part = total - total.floor().cast("float64")
    # Squared, because a sum of plain fractions hardly depends on how numbers are spread over rows.
    mixed = part * part * _PLACES
    return ((mixed - mixed.floor().cast("float64")) * _PLACES).floor()
