"""Levels of a shop as people look at them: what empty shelves and λ hid, the numbers of the page, and its words.

The page holds levels, expected demand and how far orders were tried as short base64 texts. A number is stored as a
whole multiple of its product's unit, a power of ten, in two bytes. With its mark a level takes 4 bytes of the page, and
with everything about it 12.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrl.certificate.leaflet import percent
from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.learning.levels import costs_of_levels, unsettled_levels
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.policy import Policy
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import ROUNDING
from poolrl.workflow.decision_tables import scale_in_words
from poolrl.workflow.forecast import Forecast, ProductCosts, average_over_cells
from poolrl.workflow.trades.trade import PageSection, PageTable, TradePage

# The part of a page of two megabytes for its numbers.
MOST_BYTES = 1_100_000
# Of one level in base64: two bytes and its mark; with demand (two numbers) and how far orders were tried.
BYTES_OF_LEVEL, BYTES_OF_EVERYTHING = 4.0, 12.0
LARGEST = 2**16 - 1
# Eight days out of ten lie between these percentiles.
DEMAND_SHARES = (0.1, 0.9)
# Marks of a level: past orders seldom went as far, and orders were never let go further.
SELDOM_TRIED, NEVER_TRIED_MORE = 1, 2
# Without a script, a table of this many numbers at most; and of the products whose demand was hidden, the first.
MOST_PLAIN_NUMBERS, MOST_HIDDEN = 12_000, 20


def shop_of(policy: Policy) -> tuple[Inventory, OutcomeDistribution]:
    """The shop of a policy, and its laws of demand."""
    problem, outcomes = policy.problem, policy.outcomes
    assert isinstance(problem, Inventory)
    assert outcomes is not None
    return problem, outcomes


def hidden_from(policy: Policy) -> list[ProductCosts]:
    """What was hidden, product by product, without costs.

    With labels a step is named if half of the cells say it, each of them counted as often as it occurs.
    """
    outcomes, names = shop_of(policy)[1], policy.names
    above = outcomes.points[..., None, :, :] > log_levels(policy)[..., None]
    beyond = (outcomes.weights * above).sum(axis=-1) / outcomes.weights.sum(axis=-1)
    binds, untried, often = (
        average_over_cells(outcomes, part.astype(np.float64))
        for part in (levels_at_limit(policy), levels_seldom_tried(policy), beyond)
    )

    def steps(shares: FloatArray) -> list[str]:
        return [name for name, share in zip(names.steps, shares, strict=True) if share >= 0.5]

    return [
        ProductCosts(product, None, None, steps(binds[:, i]), steps(untried[:, i]), float(often[:, i].mean()))
        for i, product in enumerate(names.products)
    ]


def levels_at_limit(policy: Policy) -> BoolArray:
    """Which levels (*labels, H, k) stand at λ: orders were never let go further."""
    problem, _ = shop_of(policy)
    limit = problem.share * problem.label_bounds[..., None, :]
    return np.asarray(log_levels(policy) >= limit * (1 - 1e3 * ROUNDING))


def levels_seldom_tried(policy: Policy) -> BoolArray:
    """Which levels (*labels, H, k) lie beyond the explored range: fewer than a tenth of past orders went as far."""
    return np.asarray(log_levels(policy) > shop_of(policy)[1].explored * (1 + ROUNDING))


def log_levels(policy: Policy) -> FloatArray:
    """The levels as multiples of the log's own scale, where the policy's orders will change that scale."""
    if policy.guarantee.scale_memory == 0:
        return policy.levels
    return unsettled_levels(*shop_of(policy), policy.levels)


def cost_by_model(policy: Policy, problem: Inventory) -> float:
    """Of one trajectory by the policy's model and the costs of a problem, as far as its bounds allow the levels.

    All products together, averaged over label cells.
    """
    _, outcomes = shop_of(policy)
    allowed = np.minimum(log_levels(policy), problem.share * problem.label_bounds[..., None, :])
    return float(average_over_cells(outcomes, costs_of_levels(problem, outcomes, allowed)).sum())


def shop_page(policy: Policy, forecast: Forecast) -> TradePage:
    """Levels that a script shows in many ways, and what empty shelves hid."""
    (problem, _), names, scale = shop_of(policy), policy.names, scale_in_words(policy)
    numbers = page_numbers(policy)
    table, left_out = _plain_table(policy, numbers)
    steps, labels = names.steps, " and ".join(problem.labels.names)
    many, example = "number", ""
    if scale:
        many, example = f"many times {scale}", " For example, 1.30 means: where that is 20, fill up to 26."
    average = f", averaged over every {labels}" if labels else ""
    when = f"from {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"of one {steps[0]}"
    return TradePage(
        name="levels",
        title="What to order",
        advice=f"Fill the shelf up to this {many}, whatever is still on it.{example} `poolrl decide` makes the orders "
        "of all shops from a table of what is on their shelves.",
        compared=("How you order today", "With these levels", "If demand were known"),
        amounts=f"These are costs {when} of all products together{average}, in the units of the declared costs."
        f"{f' Amounts are multiples of {scale}.' if scale else ''}",
        caution="Costs are predicted as if past orders did not follow demand. If managers ordered more when they "
        "expected more, these levels can cost more than predicted. Compare both on later weeks of the log before you "
        "switch: `poolrl backtest`."
        if forecast.policy
        else "The data holder can still compare both on later weeks of the log: `poolrl backtest`.",
        tables=[table],
        left_out=f"{left_out:,} more rows are left out here." if left_out else "",
        levels=numbers | {"scale": scale, "costs": _costs_of_products(forecast)},
        sections=[_hidden(policy, forecast)] if problem.censored or not problem.boundary.everywhere else [],
    )


def _costs_of_products(forecast: Forecast) -> list[list[float | None]]:
    """Cost today, with this policy, and how often demand exceeds the level, for the table's columns."""
    return [
        [None if cost is None else float(f"{cost:.4g}") for cost in (product.today, product.policy, product.beyond)]
        for product in forecast.products
    ]


def _hidden(policy: Policy, forecast: Forecast) -> PageSection:
    """What empty shelves hid: how many products, and those whose demand exceeds the level most often."""
    products, steps = forecast.products, len(policy.names.steps)
    marked = [product for product in products if product.binds or product.untried]
    text = "When a shelf runs empty, nobody sees what more would have sold: that demand was never seen. "
    if not marked:
        text += "Here past orders went as far as these levels often enough."
        return PageSection("hidden", "What empty shelves hid", text, link="Empty shelves")

    def some(names: list[str]) -> str:
        return "always" if len(names) == steps else ", ".join(names) or "no"

    never, seldom = (
        f": {sum(map(bool, named)):,} of {len(products):,} products, on some days. "
        for named in ([product.binds for product in products], [product.untried for product in products])
    )
    worst = sorted(marked, key=lambda product: -product.beyond)[:MOST_HIDDEN]
    return PageSection(
        "hidden",
        "What empty shelves hid",
        f"{text}Two kinds of levels deserve a second look:",
        points=[
            (
                "We never tried ordering more than this",
                f"{never}More might pay, but nothing is known beyond the declared limit of orders (λ).",
            ),
            (
                "We seldom tried ordering this much",
                f"{seldom}Fewer than one past order in ten went this far. Order this much for a while, and fit again.",
            ),
        ],
        table=PageTable(
            ("product", "never tried more", "seldom tried this much", "demand exceeds the level"),
            [[one.product, some(one.binds), some(one.untried), percent(one.beyond)] for one in worst],
            f"Products whose demand was hidden{' most' if len(marked) > MOST_HIDDEN else ''}",
        ),
        link="Empty shelves",
    )


def _plain_table(policy: Policy, numbers: dict[str, Any]) -> tuple[PageTable, int]:
    """The table for browsers without a script, at the first value of every other axis; how many rows it leaves out."""
    axes, rows, steps = numbers["axes"], numbers["rows"], numbers["steps"]
    levels = np.moveaxis(policy.levels, -2, -1)[tuple(slice(None) if i == rows else 0 for i in range(len(axes)))]
    names, digits = axes[rows]["values"], numbers["digits"]
    if rows < len(axes) - 1:
        digits = [digits[0]] * len(names)
    most = max(1, MOST_PLAIN_NUMBERS // len(steps))
    shown = [
        [name, *(f"{level:,.{max(places, 0)}f}" for level in np.round(row, places))]
        for name, row, places in zip(names[:most], levels[: len(names)][:most], digits[:most], strict=True)
    ]
    others = ", ".join(
        f"{axis['name']} {axis['values'][0]}" for i, axis in enumerate(axes) if i != rows and len(axis["values"]) > 1
    )
    caption = f"Order-up-to levels{f' for {others}' if others else ''}"
    return PageTable([axes[rows]["name"], *steps], shown, caption), len(names) - len(shown)


def page_numbers(policy: Policy, *, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """For the page's script, as JSON: levels (cells, H, k) in units of 10 to the minus `digits` (k,), and their marks.

    Everything about every level if it fits; else the levels alone; else those of the first values of one label.
    """
    (problem, outcomes), names = shop_of(policy), policy.names
    sizes = [*problem.labels.shape, problem.products]
    # All values of each axis, or fewer of the longest one.
    shown, longest, room = list(sizes), int(np.argmax(sizes)), int(most_bytes / BYTES_OF_LEVEL / problem.horizon)
    shown[longest] = max(1, min(sizes[longest], room // (math.prod(sizes) // sizes[longest])))
    kept = tuple(slice(size) for size in shown)
    digits = shown_digits(problem.demand_max, scaled=policy.guarantee.scaled)[kept[-1]]

    def flat(values: NDArray[Any]) -> NDArray[Any]:
        """The cells that are shown of (*labels, H, k), as (cells, H, k)."""
        part = values[(*kept[:-1], slice(None), kept[-1])]
        return part.reshape(-1, *part.shape[-2:])

    def stored(values: FloatArray) -> str:
        whole = np.clip(np.rint(flat(values) * 10.0**digits), 0, LARGEST)
        return base64.b64encode(whole.astype("<u2").tobytes()).decode()

    marks = np.where(flat(levels_seldom_tried(policy)), SELDOM_TRIED, 0)
    marks = np.where(flat(levels_at_limit(policy)), NEVER_TRIED_MORE, marks)
    values = [*([*map(str, each)] for each in problem.labels.values), names.products]
    named = zip((*problem.labels.names, "product"), values, shown, strict=True)
    numbers = {
        "axes": [{"name": name, "values": each[:size]} for name, each, size in named],  # labels, then products
        "steps": names.steps,
        "digits": digits.tolist(),
        # The table has a row for each value of the axis that has the most of them.
        "rows": len(shown) - 1 - int(np.argmax(shown[::-1])),
        "complete": shown == sizes,
        "levels": stored(policy.levels),
        "low": None,
        "high": None,
        "tried": None,
        "marks": base64.b64encode(marks.astype(np.uint8).tobytes()).decode(),
    }
    if math.prod(shown) * problem.horizon * BYTES_OF_EVERYTHING <= most_bytes:
        low, high = _percentiles(policy)
        tried = np.minimum(outcomes.explored, problem.share * problem.label_bounds[..., None, :])
        numbers |= {"low": stored(low), "high": stored(high), "tried": stored(tried)}
    return numbers


def shown_digits(tops: FloatArray, *, scaled: bool) -> IntArray:
    """Decimals of each product, from its public bound: three significant digits or more, as two bytes allow.

    >>> shown_digits(np.array([0.8, 60.0, 60_000.0, 2e6]), scaled=False).tolist()
    [3, 1, 0, -2]
    """
    wanted = np.maximum(2 if scaled else 1, 3 - np.ceil(np.log10(tops)))
    return np.minimum(np.floor(np.log10(LARGEST / tops)), wanted).astype(np.int64)


def _percentiles(policy: Policy) -> FloatArray:
    """Of the estimated demand, (2, *labels, H, k); cell by cell, because the estimate may fill the memory."""
    problem, outcomes = shop_of(policy)
    *shape, bins = outcomes.weights.shape
    found = np.empty((2, problem.labels.count, *shape[-2:]))
    for cell, (chance, place) in enumerate(zip(*outcomes.by_cell, strict=True)):
        below = np.cumsum(chance, axis=-1)
        for number, share in enumerate(DEMAND_SHARES):
            at = (below < share * below[..., -1:]).sum(axis=-1).clip(0, bins - 1)
            found[number, cell] = np.take_along_axis(place[None], at[..., None], axis=-1)[..., 0]
    return found.reshape(2, *shape)
