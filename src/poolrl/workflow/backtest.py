"""The policy of a release, replayed on weeks of a log beside what the shops did. For the data holder's eyes.

Where a shelf ran empty the log says "at least the sales", so costs are computed thrice. On one day the difference
between both sides falls or stays as demand grows, so it lies between the ends. Over days that is no theorem, because
what is left over and scales carry demand to later days.

Weeks are arrays (weeks, steps, products). A week lacks a product whose days are not all there, and keeps the others.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, cast

import ibis.expr.types as ir
import numpy as np
import pyarrow as pa

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.data.expressions import comparable
from poolrl.data.row_rules import LARGEST_SCALE, SMALLEST_SCALE
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table
from poolrl.learning.law import Law
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.policy import Levels, Policy
from poolrl.ledger.accounts import Period
from poolrl.problems.inventory import Inventory
from poolrl.problems.problem import ROUNDING
from poolrl.workflow.open_log import EXPLAINED

EYES_ONLY = "For the data holder's eyes; not for release: the log was read exactly, and these costs protect nobody."
RECORDED, REMADE = "the one that the log recorded", "made anew from the policy's own sales, as estimated"
SCENARIOS = ("least", "estimated", "most")
# Of a row, as `Columns` calls them; a log may have no scale.
PARTS = ("states", "actions", "next_states", "scale")
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
# Order-up-to levels (m, k) for a step, the numbers of the weeks (m,), their stocks (m, k) and scales (m, k).
Ordering = Callable[[int, IntArray, FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class Weeks:
    """Amounts (n, H, k), NaN where one is missing."""

    opening: FloatArray
    level: FloatArray
    left: FloatArray
    sold: FloatArray
    scale: FloatArray | None
    cells: IntArray  # (n, H, k), the label cell of each row
    usable: BoolArray  # (n, k), where all days of a product can be replayed
    chosen: BoolArray  # (n,), the weeks that were asked for
    shop: IntArray  # (n,), of a sales export
    number: IntArray  # (n,), which calendar week


def _read(column: pa.ChunkedArray, reading: Callable[[list[Any]], Any], missing: Any) -> Any:
    """What each row's value is read as. Every value is read once, because there are millions of rows."""
    coded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    values = coded.dictionary.to_pylist()
    # The last one stands for NULL.
    return np.array([*(reading(values) if values else []), missing])[np.asarray(coded.indices.fill_null(-1))]


def _asked(log: Table, problem: Inventory) -> pa.Table:
    """Ask the engine for the columns of rows, under names of our own."""
    columns, rows = log.columns, log.rows
    asked: dict[str, ir.Value] = {"week": rows[columns.trajectory], "step": rows[columns.step].cast("float64")}
    for part in PARTS:
        asked |= {f"{part} {i}": rows[name].cast("float64") for i, name in enumerate(getattr(columns, part))}
    if columns.coordinate is not None:
        asked["coordinate"] = rows[columns.coordinate].cast("string")
    for i, name in enumerate(problem.labels.names):
        asked[f"label {i}"] = comparable(rows[columns.labels[name]], problem.labels, name)
    if log.facts.has_coordinates and set(EXPLAINED) <= set(rows.columns):
        asked |= {name: rows[name] for name in ("shop", "monday")}
    return answer(rows.select(**asked))


def read_weeks(log: Table, problem: Inventory, since: str | None = None, period: Period | None = None) -> Weeks:
    """All weeks of a log. Chosen are those of the period, and those whose id is `since` or later."""
    for name in problem.labels.names:
        if name not in log.facts.label_names:
            raise ValueError(f"the policy knows the label {name!r}, but the log has none of that name")
    table = _asked(log, problem)
    horizon, products = problem.horizon, problem.products
    # A row of a wide table shows all products, and becomes as many.
    shown = 1 if log.facts.has_coordinates else products

    def read(name: str, reading: Callable[[list[Any]], Any], missing: Any) -> Any:
        return np.repeat(_read(table[name], reading, missing), shown)

    # Engines give rows in any order. In the order of ids, the same weeks always get the same draws.
    week = read("week", lambda ids: np.argsort(np.argsort(np.array(ids, dtype=str), kind="stable")), -1)
    shape, product = (int(week.max(initial=-1)) + 1, horizon, products), np.tile(np.arange(products), len(table))
    if log.facts.has_coordinates:
        numbers = {str(name): number for number, name in enumerate(log.coordinates)}
        product = read("coordinate", lambda names: [numbers.get(name, -1) for name in names], -1)
    step = np.repeat(table["step"].to_numpy() - log.first_step, shown)
    known = (week >= 0) & (product >= 0) & np.isin(step, np.arange(horizon))
    of_week = week[known]
    place = (of_week * horizon + step[known].astype(np.int64)) * products + product[known]

    def laid_out(values: Any, missing: Any) -> Any:
        """Values of rows as (n, H, k)."""
        array = np.full(shape, missing)
        array.reshape(-1)[place] = values[known]
        return array

    def of_weeks(values: Any, missing: Any) -> Any:
        """Values that all rows of a week share, as (n,)."""
        array = np.full(shape[0], missing)
        array[of_week] = values[known]
        return array

    amounts = {}
    for part in PARTS:
        if names := getattr(log.columns, part):
            values = np.stack([table[f"{part} {i}"].to_numpy() for i in range(len(names))], axis=1)
            amounts[part] = laid_out(values.ravel(), np.nan)
    opening, level, left = (amounts[part] for part in PARTS[:3])
    scale = amounts.get("scale")
    cell = np.zeros(len(week), dtype=np.int64)
    for i, (name, size) in enumerate(zip(problem.labels.names, problem.labels.shape, strict=True)):
        value = read(f"label {i}", partial(problem.labels.places, name), -1)
        cell = np.where((cell < 0) | (value < 0), -1, cell * size + value)
    cells, sold = laid_out(cell, -1), level - left
    seen = np.bincount(place, minlength=cells.size).reshape(shape)
    if log.clip:
        opening = np.maximum(opening, problem.state_low.min() if not problem.censored else 0.0)
        level = np.maximum(level, opening)
        left = np.clip(left, 0.0, level) if problem.censored else np.minimum(left, level)
    number = np.isfinite(opening) & np.isfinite(level) & np.isfinite(left)
    slack = ROUNDING * (1.0 + np.abs(level))
    with np.errstate(invalid="ignore"):
        fits = (level >= opening - slack) & (level >= left - slack)
        if problem.censored:
            fits &= (opening >= -slack) & (left >= -slack)
        scaled = np.ones_like(fits) if scale is None else (scale >= SMALLEST_SCALE) & (scale <= LARGEST_SCALE)
    chosen = np.ones(shape[0], dtype=bool)
    shop = number_of_week = np.zeros(shape[0], dtype=np.int64)
    if since is not None:
        chosen &= of_weeks(read("week", lambda values: _not_before(values, since), False), False)
    if "monday" in table.column_names:  # of a sales export
        shop = of_weeks(read("shop", lambda shops: range(len(shops)), 0), 0)
        number_of_week = of_weeks(read("monday", lambda days: [day.toordinal() // 7 for day in days], 0), 0)
        if period is not None:
            chosen &= of_weeks(read("monday", lambda days: [period.holds(str(day)) for day in days], False), False)
    usable = ((seen == 1) & number & fits & (cells >= 0) & scaled).all(axis=1)
    return Weeks(opening, level, left, sold, scale, cells, usable, chosen, shop, number_of_week)


def _not_before(ids: list[Any], since: str) -> list[bool]:
    """Which ids are at least `since`: by the date in them (shop 7, week of 2025-03-03), as numbers, or as text."""
    if ISO_DATE.fullmatch(since):
        dates = [ISO_DATE.search(str(name)) for name in ids]
        return [match is not None and match.group() >= since for match in dates]
    try:
        # Every column of a CSV file is text, and "9" is no later than "40".
        return list(np.array(ids, dtype=np.float64) >= float(since))
    except (TypeError, ValueError):
        return [str(name) >= since for name in ids]


@dataclass(frozen=True)
class SameWeekday:
    """The scale of a sales export: mean sales of the weeks before, made anew from what the policy would have sold."""

    weeks: int
    floor: float


@dataclass(frozen=True)
class Replayed:
    """Mean costs of a week of one product, in the three scenarios, and how many weeks were replayed."""

    product: str
    weeks: int
    shops: list[float]
    policy: list[float]

    @property
    def change(self) -> list[float]:
        """Policy minus shops."""
        return [ours - theirs for ours, theirs in zip(self.policy, self.shops, strict=True)]


@dataclass(frozen=True)
class Backtest:
    """What was replayed: how much of the log, how often shelves ran empty, and the costs."""

    weeks: int  # those of which at least one product is replayed
    complete: int  # those of which every product is
    left_out: int  # the others that were asked for
    ran_empty: float  # share of days and products
    scale: str  # which one the policy ordered by, in words
    products: list[Replayed]

    @property
    def in_all(self) -> Replayed:
        """All products together: what a week with all of them costs in the mean."""
        shops, policy = np.sum([(product.shops, product.policy) for product in self.products], axis=0).tolist()
        return Replayed("in all", self.weeks, shops, policy)

    @property
    def in_words(self) -> str:
        """Whether the policy would have been cheaper, for every demand that the log allows."""
        changes, shops = self.in_all.change, self.in_all.shops
        low, high = min(changes), max(changes)
        if high < 0 or low > 0:
            verdict = f"{'cheaper' if high < 0 else 'dearer'}, whatever was missed on empty shelves"
        elif changes[1] < 0:
            verdict = "cheaper by the estimate, but that rests on what was missed on empty shelves"
        else:
            verdict = "not cheaper by the estimate"
        share = f"{changes[1] / shops[1]:+.1%}" if shops[1] > 0 else "n/a"
        return (
            f"In these {self.weeks:,} weeks the policy would have been {verdict}: {changes[1]:+,.1f} a week "
            f"({share}) by the estimate, between {low:+,.1f} and {high:+,.1f}."
        )

    def facts(self) -> dict[str, Any]:
        """For programs."""
        rows = [asdict(part) | {"change": part.change} for part in (*self.products, self.in_all)]
        known = {name: fact for name, fact in vars(self).items() if name != "products"}
        return {"notice": EYES_ONLY, **known, "scenarios": SCENARIOS, "costs": rows, "in_words": self.in_words}


def replay_policy(
    policy: Policy,
    weeks: Weeks,
    remade: SameWeekday | None = None,
    progress: Callable[[float], object] = lambda share: None,
) -> Backtest:
    """Let the policy order from the opening stock of every week on, and compare."""
    problem = cast(Inventory, policy.problem)
    if policy.guarantee.scaled != (weeks.scale is not None):
        had = "with" if policy.guarantee.scaled else "without"
        raise ValueError(f"the policy was learned {had} a scale, and the log is otherwise: use the file it came from")
    used = weeks.usable & weeks.chosen[:, None]
    if not isinstance(policy.rule, Levels):
        # Such a rule may look at all products at once.
        used &= used.all(axis=1, keepdims=True)
    if not used.any():
        raise ValueError("no complete trajectory that [period] or --from chooses is left; run poolrl check")
    kept = np.flatnonzero(used.any(axis=1))
    own = used[kept, None]
    cells = np.where(own, weeks.cells[kept], 0)
    opening, level, left = (np.where(own, part[kept], 0.0) for part in (weeks.opening, weeks.level, weeks.left))
    unit = np.ones_like(level) if weeks.scale is None else np.where(own, weeks.scale[kept], 1.0)
    empty = own & problem.observe(0, opening / unit, level / unit, left / unit)[1]
    ordering, every = policy_orders(policy, cells), np.arange(len(kept))
    demands = _demands(policy, level - left, empty, unit, cells)
    if weeks.scale is not None and remade is not None:
        # One scale for the three of them, of the likeliest sales: shelves that always sell all they could would make
        # scales that no shop has ever seen.
        unit = remade_scales(problem, weeks, used, demands[1], ordering, remade, progress)
    costs = np.empty((2, len(SCENARIOS), problem.products))  # of the shops and of the policy
    for scenario, demand in enumerate(demands):
        orders = replayed_orders(problem, opening[:, 0], demand, unit, ordering, every)
        costs[:, scenario] = [costs_of(problem, levels, demand, cells, used[kept]) for levels in (level, orders)]
    facts = zip(policy.names.products, used.sum(axis=0).tolist(), *costs.swapaxes(1, 2).tolist(), strict=True)
    products = [Replayed(*fact) for fact in facts]
    scaled = "none" if weeks.scale is None else RECORDED if remade is None else REMADE
    complete, left_out = int(used.all(axis=1).sum()), int(weeks.chosen.sum()) - len(kept)
    ran_empty = float(empty.sum() / (used.sum() * problem.horizon))
    return Backtest(len(kept), complete, left_out, ran_empty, scaled, products)


def _demands(policy: Policy, sold: FloatArray, empty: BoolArray, unit: FloatArray, cells: IntArray) -> list[FloatArray]:
    """Demand (n, H, k) in the three scenarios."""
    problem, outcomes = cast(Inventory, policy.problem), policy.outcomes
    products = np.arange(problem.products)
    top = np.maximum(problem.label_bounds.reshape(-1, problem.products)[cells, products] * unit, sold)
    middle = sold if outcomes is None else _drawn_beyond(outcomes, sold / unit, cells) * unit
    expected = np.where(empty, np.clip(middle, sold, top), sold)
    return [sold, expected, np.where(empty, top, sold)]


def _drawn_beyond(outcomes: OutcomeDistribution, sold: FloatArray, cells: IntArray) -> FloatArray:
    """Demand (n, H, k) drawn from the estimated laws beyond what was sold. A mean would hide how demand varies."""
    *_, horizon, products, bins = outcomes.weights.shape
    width = 2 * outcomes.by_cell[1][cells, np.arange(products), 0]  # (n, H, k)
    laws = (cells * horizon + np.arange(horizon)[:, None]) * products + np.arange(products)
    place, drawn = np.clip((sold / width).astype(np.int64), 0, bins - 1), np.random.default_rng(0).random(sold.shape)
    return np.asarray((Law(outcomes.weights.reshape(-1, bins)).bins_beyond(laws, place, drawn) + 0.5) * width)


def policy_orders(policy: Policy, cells: IntArray) -> Ordering:
    """How the policy orders. Of a long table each product may have a label of its own, so each has its own level."""
    problem, rule = policy.problem, policy.rule
    products = np.arange(problem.state_dim)

    def orders(step: int, weeks: IntArray, stock: FloatArray, scale: FloatArray) -> FloatArray:
        state = stock / scale
        if isinstance(rule, Levels):
            table = rule.levels.reshape(-1, *rule.levels.shape[-2:])
            asked = np.clip(table[cells[weeks, step], step, products], *problem.allowed(step, state))
        else:
            asked = rule.act(problem, step, state)
        # Dividing and multiplying may lose a rounding error, and stock is never sent back.
        return np.maximum(asked * scale, stock)

    return orders


def replayed_orders(
    problem: Inventory, stock: FloatArray, demand: FloatArray, scale: FloatArray, ordering: Ordering, weeks: IntArray
) -> FloatArray:
    """Levels (m, H, k) by a way to order, from the weeks' opening stocks (m, k) on; demand and scale are (m, H, k)."""
    levels = np.empty_like(demand)
    for step in range(problem.horizon):
        levels[:, step] = ordering(step, weeks, stock, scale[:, step])
        stock = problem.next_state(step, stock, levels[:, step], demand[:, step])
    return levels


def remade_scales(
    problem: Inventory,
    weeks: Weeks,
    used: BoolArray,
    demand: FloatArray,
    ordering: Ordering,
    rule: SameWeekday,
    progress: Callable[[float], object] = lambda share: None,
) -> FloatArray:
    """Scales (n, H, k) of the weeks that have a product in `used`, replayed in the order of the calendar.

    Their sales make the scales of later weeks. Where a product of a week is not replayed, the sales of the log do.
    """
    kept = np.flatnonzero(used.any(axis=1))
    # The m weeks before each in the same shop; the number of all weeks where one is missing.
    shops, numbers = weeks.shop.tolist(), weeks.number.tolist()
    place = {week: i for i, week in enumerate(zip(shops, numbers, strict=True))}
    before = range(1, rule.weeks + 1)
    earlier = np.array([[place.get((shops[i], numbers[i] - ago), len(shops)) for ago in before] for i in kept.tolist()])
    # The last row stands for a week that is not there. No sale is negative, but for a rounding error.
    with np.errstate(invalid="ignore"):
        sold = np.where(weeks.sold > -5e-4, weeks.sold, np.nan)
    sold = np.concatenate([sold, np.full((1, *sold.shape[1:]), np.nan)])
    scales = np.ones_like(demand)
    for number in np.unique(weeks.number[kept]):
        part = np.flatnonzero(weeks.number[kept] == number)
        rows, own = kept[part], used[kept[part], None]
        scales[part] = np.where(own, _mean_sales(sold[earlier[part]], rule), 1.0)
        stock = np.where(own[:, 0], weeks.opening[rows, 0], 0.0)
        levels = replayed_orders(problem, stock, demand[part], scales[part], ordering, part)
        sold[rows] = np.where(own, np.minimum(levels, demand[part]), sold[rows])
        progress(len(part) / len(kept))
    return scales


def _mean_sales(sold: FloatArray, rule: SameWeekday) -> FloatArray:
    """The scale (m, H, k) from sales (m, weeks, H, k), as the query of a sales export makes it; NaN if too few."""
    there = ~np.isnan(sold)
    number = there.sum(axis=1)
    thousandths = np.where(there, np.rint(1000 * sold), 0.0).sum(axis=1)
    mean = thousandths / (1000.0 * np.maximum(number, 1))
    return np.where(number >= (rule.weeks + 1) // 2, np.maximum(mean, rule.floor), np.nan)


def costs_of(problem: Inventory, level: FloatArray, demand: FloatArray, cells: IntArray, used: BoolArray) -> FloatArray:
    """Mean costs of a week, (k,), over the weeks of each product that are used (n, k)."""
    total = np.zeros((len(level), problem.products))
    for step in range(problem.horizon):
        total += problem.coordinate_cost(step, level[:, step], demand[:, step], cells[:, step])
    return np.asarray(np.where(used, total, 0.0).sum(axis=0) / np.maximum(used.sum(axis=0), 1))
