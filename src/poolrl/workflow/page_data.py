"""The numbers inside the page: levels, expected demand and how far orders were tried, as short base64 texts.

A number is stored as a whole multiple of its product's unit, a power of ten, in two bytes. With its mark a level
takes 4 bytes of the page, and with everything about it 12.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrl.checks import FloatArray, IntArray
from poolrl.learning.policy import Policy
from poolrl.problems.inventory import Inventory
from poolrl.workflow.trades.shop_levels import levels_at_limit, levels_seldom_tried

# What the numbers may take of a page of two megabytes.
MOST_BYTES = 1_100_000
# Of one level in base64: two bytes and its mark; with demand (two numbers) and how far orders were tried.
BYTES_OF_LEVEL, BYTES_OF_EVERYTHING = 4.0, 12.0
LARGEST = 2**16 - 1
# Eight days out of ten lie between these percentiles.
DEMAND_SHARES = (0.1, 0.9)
# Marks of a level: past orders seldom went as far, and orders were never let go further.
SELDOM_TRIED, NEVER_TRIED_MORE = 1, 2


@dataclass(frozen=True)
class Axis:
    """What a row of the table can stand for: the products, or the values of a label."""

    name: str
    values: list[str]


@dataclass(frozen=True)
class PageNumbers:
    """Levels (cells, H, k) in units of 10 to the minus `digits` (k,), and what is known about them, where it fits."""

    axes: list[Axis]  # labels, then products
    steps: list[str]
    digits: list[int]
    levels: IntArray
    demand: IntArray | None  # (2, cells, H, k)
    tried: IntArray | None  # (cells, H, k), up to where orders were tried
    marks: IntArray
    complete: bool = True  # whether every label cell is there

    @property
    def rows(self) -> int:
        """The axis with the most values; the table has a row for each of them."""
        sizes = [len(axis.values) for axis in self.axes]
        return len(sizes) - 1 - int(np.argmax(sizes[::-1]))

    def first_rows(self) -> FloatArray:
        """Levels (rows, H) in the user's units, at the first value of every other axis."""
        units = 10.0 ** -np.array(self.digits)
        sizes = [len(axis.values) for axis in self.axes]
        levels = np.moveaxis((self.levels * units).reshape(*sizes[:-1], len(self.steps), sizes[-1]), -2, -1)
        first = tuple(slice(None) if axis == self.rows else 0 for axis in range(len(sizes)))
        return np.asarray(levels[first])

    def embedded(self) -> dict[str, Any]:
        """For the page's script, as JSON."""
        return {
            "axes": [{"name": axis.name, "values": axis.values} for axis in self.axes],
            "steps": self.steps,
            "digits": self.digits,
            "rows": self.rows,
            "complete": self.complete,
            "levels": _two_bytes(self.levels),
            "low": None if self.demand is None else _two_bytes(self.demand[0]),
            "high": None if self.demand is None else _two_bytes(self.demand[1]),
            "tried": None if self.tried is None else _two_bytes(self.tried),
            "marks": base64.b64encode(self.marks.astype(np.uint8).tobytes()).decode(),
        }


def page_numbers(policy: Policy, *, most_bytes: int = MOST_BYTES) -> PageNumbers:
    """Everything about every level if it fits; else the levels alone; else those of the first values of one label."""
    problem, names, outcomes = policy.problem, policy.names, policy.outcomes
    assert isinstance(problem, Inventory)
    assert outcomes is not None
    sizes = [*problem.labels.shape, problem.products]
    shown = _values_that_fit(sizes, problem.horizon, most_bytes)
    kept = tuple(slice(size) for size in shown)

    def flat(values: NDArray[Any]) -> NDArray[Any]:
        """The cells that are shown of (*labels, H, k), as (cells, H, k)."""
        part = values[(*kept[:-1], slice(None), kept[-1])]
        return part.reshape(-1, *part.shape[-2:])

    limits = problem.share * problem.label_bounds[..., None, :]
    levels, limit = flat(policy.levels), flat(limits)
    tried = np.minimum(flat(outcomes.explored), limit)
    marks = np.where(flat(levels_seldom_tried(policy)), SELDOM_TRIED, 0)
    marks = np.where(flat(levels_at_limit(policy)), NEVER_TRIED_MORE, marks)
    digits = shown_digits(problem.demand_max, scaled=policy.guarantee.scaled)[kept[-1]]
    units = 10.0**digits

    def whole(values: FloatArray) -> IntArray:
        return np.clip(np.rint(values * units), 0, LARGEST).astype(np.int64)

    everything = math.prod(shown) * problem.horizon * BYTES_OF_EVERYTHING <= most_bytes
    demand = whole(np.stack([flat(each) for each in _percentiles(policy)])) if everything else None
    values = [*([*map(str, each)] for each in problem.labels.values), names.products]
    axes = [
        Axis(name, each[:size])
        for name, each, size in zip((*problem.labels.names, "product"), values, shown, strict=True)
    ]
    return PageNumbers(
        axes,
        names.steps,
        digits.tolist(),
        whole(levels),
        demand,
        whole(tried) if everything else None,
        marks.astype(np.int64),
        shown == sizes,
    )


def shown_digits(tops: FloatArray, *, scaled: bool) -> IntArray:
    """Decimals of each product, from its public bound: three significant digits or more, as two bytes allow.

    >>> shown_digits(np.array([0.8, 60.0, 60_000.0, 2e6]), scaled=False).tolist()
    [3, 1, 0, -2]
    """
    wanted = np.maximum(2 if scaled else 1, 3 - np.ceil(np.log10(tops)))
    return np.minimum(np.floor(np.log10(LARGEST / tops)), wanted).astype(np.int64)


def _values_that_fit(sizes: list[int], horizon: int, most_bytes: int) -> list[int]:
    """How many values of each axis the page has room for: all, or fewer of the longest axis."""
    room = int(most_bytes / BYTES_OF_LEVEL / horizon)
    longest = int(np.argmax(sizes))
    others = math.prod(sizes) // sizes[longest]
    shown = list(sizes)
    shown[longest] = max(1, min(sizes[longest], room // others))
    return shown


def _percentiles(policy: Policy) -> FloatArray:
    """Of the estimated demand, (2, *labels, H, k); cell by cell, because the estimate may fill the memory."""
    outcomes = policy.outcomes
    assert outcomes is not None
    *labels, steps, products, bins = outcomes.weights.shape
    weights = outcomes.weights.reshape(-1, steps, products, bins)
    points = outcomes.points.reshape(-1, products, bins)
    found = np.empty((2, len(weights), steps, products))
    for cell, (chance, place) in enumerate(zip(weights, points, strict=True)):
        below = np.cumsum(chance, axis=-1)
        for number, share in enumerate(DEMAND_SHARES):
            at = (below < share * below[..., -1:]).sum(axis=-1).clip(0, bins - 1)
            found[number, cell] = np.take_along_axis(place[None], at[..., None], axis=-1)[..., 0]
    return found.reshape(2, *labels, steps, products)


def _two_bytes(values: IntArray) -> str:
    return base64.b64encode(values.astype("<u2").tobytes()).decode()
