"""The page of a release as one HTML file: no request leaves it, it opens from the file system, it prints.

A trade fills its tables (`TradePage`), and the template has the words around them. Of shops the page holds levels,
expected demand and how far orders were tried as short base64 texts: a number is a whole multiple of its product's unit,
a power of ten, in two bytes.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from poolrl.certificate.certificate import seen_in
from poolrl.certificate.leaflet import leaflet_sections, neighbours, percent, whose
from poolrl.certificate.release_files import CERTIFIED, PAGE, TREES
from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.learning.faded_trees import FadedTrees
from poolrl.learning.levels import costs_of_levels, unsettled_levels
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.policy import Policy
from poolrl.privacy.zcdp import rounded_up
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import ROUNDING
from poolrl.workflow.decision_tables import decisions_of, scale_in_words, shown_states
from poolrl.workflow.forecast import Forecast, ProductCosts, average_over_cells, money
from poolrl.workflow.trades.trade import PageTable, TradePage, trade_of

if TYPE_CHECKING:
    from poolrl.workflow.release_folder import Released

# A page of more label cells would be no page any more.
SHOWN_CELLS = 60
# The part of a page of two megabytes for its numbers.
MOST_BYTES = 1_100_000
# Of one level in base64: two bytes and its mark, its demand (two numbers), and how far orders were tried.
BYTES_OF_LEVEL = 12.0
LARGEST = 2**16 - 1
# Eight days out of ten lie between these percentiles.
DEMAND_SHARES = (0.1, 0.9)
# Marks of a level: past orders seldom went as far, and orders were never let go further.
SELDOM_TRIED, NEVER_TRIED_MORE = 1, 2
# Of the products whose demand was hidden, the first.
MOST_HIDDEN = 20


def draw_page(release: Released, console: Console) -> Forecast:
    """Write the page and all decisions as CSV beside the policy and the certificate; what the page forecasts."""
    policy, trade = release.policy, trade_of(release.policy.problem)
    if policy.outcomes is None:
        raise ValueError("the page draws policies with a model of outcomes, as 'poolrl fit' makes them")
    page, table = release.folder / PAGE, release.folder / trade.decisions_file
    for path in (page, table):
        if path.is_symlink():
            raise ValueError(f"{path} is a link: it would be written elsewhere")
    trees = release.folder / TREES
    with Progress(console=console, transient=True) as progress:
        forecast = trade.forecast(policy, FadedTrees.load(trees) if trees.exists() else None, progress)
        text = release_page(release, forecast)
    page.write_text(text, encoding="utf-8")
    table.write_text(trade.decisions_csv(policy), encoding="utf-8", newline="")
    return forecast


def release_page(release: Released, forecast: Forecast) -> str:
    """The page. Its policy lets only its own style and scripts run, and nothing be fetched."""
    certificate, policy = release.certificate, release.policy
    trade, seen = trade_of(policy.problem), seen_in(certificate)
    page = trade.page(policy, forecast)
    loader = PackageLoader("poolrl.workflow", "assets")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    # Texts are escaped, and `code` in them is set as such.
    code = partial(re.sub, r"`([^`]+)`", r"<code>\1</code>")
    environment.filters |= {"words": lambda text: Markup(code(str(escape(text)))), "money": money, "percent": percent}
    environment.filters |= {"neighbours": neighbours, "rounded_up": rounded_up}
    files = ["page.css", *(["levels.js"] if page.levels else [])]
    # Each with the hash by which the page's policy lets it pass.
    style, *scripts = (
        (text, "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
        for text in (loader.get_source(environment, name)[0] for name in files)
    )
    return environment.get_template("page.html").render(
        certificate=certificate,
        page=page,
        trade=trade,
        words=trade.words,
        names=policy.names,
        labels=policy.problem.labels.names,
        scale=scale_in_words(policy),
        forecast=forecast,
        whose=whose(certificate),
        rho=f"{float(Fraction(seen.rho)):g}",
        epsilon=rounded_up(seen.epsilon["1e-06"]),
        attack=percent(seen.attack.true_positives_at_most),
        replanned=(release.folder / CERTIFIED).exists(),
        leaflet=leaflet_sections(certificate),
        style=style,
        scripts=scripts,
    )


def declared_page(policy: Policy, forecast: Forecast) -> TradePage:
    """A page that follows from a problem's declarations: a table of decisions for each label cell."""
    more = policy.problem.labels.count - SHOWN_CELLS
    return TradePage(list(_cell_tables(policy)), max(more, 0))


def _cell_tables(policy: Policy) -> Iterator[PageTable]:
    """For each label cell its decisions by state and step."""
    words, names, labels = trade_of(policy.problem).words, policy.names, policy.problem.labels
    states, decisions = shown_states(policy), decisions_of(policy)
    for cell, values in enumerate(islice(product(*labels.values), SHOWN_CELLS)):
        table = decisions[cell]
        shown = [[" / ".join(f"{part:,.4g}" for part in each) for each in by_step] for by_step in table]
        rows = [[" / ".join(f"{part:g}" for part in state), *row] for state, row in zip(states, shown, strict=True)]
        yield PageTable(
            [" / ".join(names.products), *names.steps],
            rows,
            f"{words.decisions.capitalize()} by {' and '.join(names.products)} and {words.step}",
            ", ".join(f"{name} {value}" for name, value in zip(labels.names, values, strict=True)),
        )


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
    """Of one trajectory, all products and an average label cell, by the policy's model and the costs of a problem."""
    _, outcomes = shop_of(policy)
    allowed = np.minimum(log_levels(policy), problem.share * problem.label_bounds[..., None, :])
    return float(average_over_cells(outcomes, costs_of_levels(problem, outcomes, allowed)).sum())


def shop_page(policy: Policy, forecast: Forecast) -> TradePage:
    """Levels that a script shows in many ways, and what empty shelves hid."""
    (problem, _), numbers = shop_of(policy), page_numbers(policy)
    costs = [
        [None if cost is None else float(f"{cost:.4g}") for cost in (product.today, product.policy, product.beyond)]
        for product in forecast.products
    ]
    hides = problem.censored or not problem.boundary.everywhere
    hidden = _hidden(forecast.products, len(policy.names.steps)) if hides else None
    return TradePage([], 0, numbers | {"scale": scale_in_words(policy), "costs": costs}, hidden)


def _hidden(products: list[ProductCosts], steps: int) -> PageTable:
    """The products of which something was hidden: those whose demand exceeds the level most often."""
    marked = [product for product in products if product.binds or product.untried]

    def some(names: list[str]) -> str:
        return "always" if len(names) == steps else ", ".join(names) or "no"

    return PageTable(
        ("product", "never tried more", "seldom tried this much", "demand exceeds the level"),
        [
            [one.product, some(one.binds), some(one.untried), percent(one.beyond)]
            for one in sorted(marked, key=lambda product: -product.beyond)[:MOST_HIDDEN]
        ],
        f"Products whose demand was hidden{' most' if len(marked) > MOST_HIDDEN else ''}",
    )


def page_numbers(policy: Policy, *, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """For the page's script, as JSON: levels (cells, H, k) in units of 10 to the minus `digits` (k,), and their marks.

    Those of all label values if they fit; else of the first values of one label.
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
    low, high = _percentiles(policy)
    tried = np.minimum(outcomes.explored, problem.share * problem.label_bounds[..., None, :])
    values = [*([*map(str, each)] for each in problem.labels.values), names.products]
    named = zip((*problem.labels.names, "product"), values, shown, strict=True)
    return {
        "axes": [{"name": name, "values": each[:size]} for name, each, size in named],  # labels, then products
        "steps": names.steps,
        "digits": digits.tolist(),
        # The table has a row for each value of the axis that has the most of them.
        "rows": len(shown) - 1 - int(np.argmax(shown[::-1])),
        "complete": shown == sizes,
        "levels": stored(policy.levels),
        "low": stored(low),
        "high": stored(high),
        "tried": stored(tried),
        "marks": base64.b64encode(marks.astype(np.uint8).tobytes()).decode(),
    }


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
