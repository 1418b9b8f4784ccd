"""The policy of a release, replayed on weeks of a log beside what the shops did. For the data holder's eyes.

Where a shelf ran empty the log says "at least the sales". So costs are computed thrice: nothing more would have been
sold, as much more as the policy's own estimate expects, and everything up to the declared bound. Both sides meet the
same demand. On one day the difference between them falls or stays as that demand grows, so it lies between the ends.
Over days that is no theorem, because what is left over and scales carry demand to later days.

A policy that orders by the mean sales of the last weeks would have sold other amounts than the shops did, and so would
have made other scales. Where that rule is known, scales are made anew from what is sold in the replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.policy import Levels, Policy
from poolrl.problems.inventory import Inventory
from poolrl.workflow.replayed_weeks import LEFT_OUT, Weeks

EYES_ONLY = "For the data holder's eyes; not for release: the log was read exactly, and these costs protect nobody."
RECORDED, REMADE = "the one that the log recorded", "made anew from the policy's own sales, as estimated"
SCENARIOS = ("least", "estimated", "most")


# Order-up-to levels (m, k) for a step, the numbers of the weeks (m,), their stocks (m, k) and scales (m, k).
Ordering = Callable[[int, IntArray, FloatArray, FloatArray], FloatArray]


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
    reasons: dict[str, int]  # products of weeks that are not replayed
    ran_empty: float  # share of days and products
    scale: str  # which one the policy ordered by, in words
    products: list[Replayed]
    called: str = "trajectories"

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
            f"In these {self.weeks:,} {self.called} the policy would have been {verdict}: {changes[1]:+,.1f} a week "
            f"({share}) by the estimate, between {low:+,.1f} and {high:+,.1f}."
        )

    def facts(self) -> dict[str, Any]:
        """For programs."""
        rows = [asdict(part) | {"change": part.change} for part in (*self.products, self.in_all)]
        known = {name: fact for name, fact in vars(self).items() if name not in ("products", "called")}
        return {"notice": EYES_ONLY, **known, "scenarios": SCENARIOS, "costs": rows, "in_words": self.in_words}


def replay_policy(
    policy: Policy,
    weeks: Weeks,
    remade: SameWeekday | None = None,
    called: str = "trajectories",
    progress: Callable[[float], object] = lambda share: None,
) -> Backtest:
    """Let the policy order from the opening stock of every week on, and compare."""
    problem = cast(Inventory, policy.problem)
    if policy.guarantee.scaled != (weeks.scale is not None):
        had = "with" if policy.guarantee.scaled else "without"
        raise ValueError(f"the policy was learned {had} a scale, and the log is otherwise: use the file it came from")
    used = (weeks.why == 0) & weeks.chosen[:, None]
    if not isinstance(policy.rule, Levels):
        # Such a rule may look at all products at once.
        used &= used.all(axis=1, keepdims=True)
    counts = np.bincount(weeks.why[weeks.chosen].ravel(), minlength=len(LEFT_OUT) + 1)[1:].tolist()
    reasons = {reason: count for reason, count in zip(LEFT_OUT, counts, strict=True) if count}
    if not used.any():
        most = f": most often, {max(reasons, key=lambda reason: reasons[reason])}" if reasons else ""
        raise ValueError(f"no complete trajectory that [period] or --from chooses is left{most}; run poolrl check")
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
    return Backtest(
        len(kept),
        int(used.all(axis=1).sum()),
        int(weeks.chosen.sum()) - len(kept),
        reasons,
        float(empty.sum() / (used.sum() * problem.horizon)),
        scaled,
        products,
        called,
    )


def _demands(
    policy: Policy, sold: FloatArray, empty: BoolArray, scale: FloatArray, cells: IntArray
) -> list[FloatArray]:
    """Demand (n, H, k) in the three scenarios."""
    problem, outcomes = cast(Inventory, policy.problem), policy.outcomes
    products = np.arange(problem.products)
    top = np.maximum(problem.label_bounds.reshape(-1, problem.products)[cells, products] * scale, sold)
    middle = sold if outcomes is None else _drawn_beyond(outcomes, sold / scale, cells) * scale
    expected = np.where(empty, np.clip(middle, sold, top), sold)
    return [sold, expected, np.where(empty, top, sold)]


def _drawn_beyond(outcomes: OutcomeDistribution, sold: FloatArray, cells: IntArray) -> FloatArray:
    """Demand (n, H, k) drawn from the estimated laws beyond what was sold. A mean would hide how demand varies."""
    *_, horizon, products, bins = outcomes.weights.shape
    below = np.cumsum(outcomes.weights.reshape(-1, bins), axis=-1)
    below /= below[:, -1:]
    width = 2 * outcomes.points.reshape(-1, products, bins)[..., 0][cells, np.arange(products)]  # (n, H, k)
    law = (cells * horizon + np.arange(horizon)[:, None]) * products + np.arange(products)
    place = np.clip((sold / width).astype(np.int64), 0, bins - 1)
    reached = np.where(place > 0, below[law, np.maximum(place - 1, 0)], 0.0)
    chance = reached + (1 - reached) * np.random.default_rng(0).random(sold.shape)
    # Laws one after another make one rising list, so one search serves all rows.
    rising = (below + np.arange(len(below))[:, None]).ravel()
    bins_drawn = np.searchsorted(rising, law + chance) - law * bins
    return np.asarray((np.clip(bins_drawn, place, bins - 1) + 0.5) * width)


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
    earlier = _weeks_before(weeks, kept, rule.weeks)
    # The last row stands for a week that is not there. No sale is negative, but for a rounding error.
    with np.errstate(invalid="ignore"):
        sold = np.where(weeks.sold > -5e-4, weeks.sold, np.nan)
    sold = np.concatenate([sold, np.full((1, *sold.shape[1:]), np.nan)])
    scales = np.ones_like(demand)
    for date in np.unique(weeks.number[kept]):
        part = np.flatnonzero(weeks.number[kept] == date)
        rows, own = kept[part], used[kept[part], None]
        scales[part] = np.where(own, _mean_sales(sold[earlier[part]], rule), 1.0)
        stock = np.where(own[:, 0], weeks.opening[rows, 0], 0.0)
        levels = replayed_orders(problem, stock, demand[part], scales[part], ordering, part)
        sold[rows] = np.where(own, np.minimum(levels, demand[part]), sold[rows])
        progress(len(part) / len(kept))
    return scales


def _weeks_before(weeks: Weeks, kept: IntArray, memory: int) -> IntArray:
    """The m weeks before each, (len(kept), m), in the same shop; the number of all weeks where one is missing."""
    span = int(np.ptp(weeks.number)) + memory + 1
    key = weeks.shop * span + weeks.number - weeks.number.min()
    order = np.argsort(key)
    wanted = key[kept, None] - np.arange(1, memory + 1)
    # No week lies before the first one of all shops: its place in the key belongs to another shop.
    inside = weeks.number[kept, None] - np.arange(1, memory + 1) >= weeks.number.min()
    place = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
    return np.where(inside & (key[order][place] == wanted), order[place], len(key))


def _mean_sales(sold: FloatArray, rule: SameWeekday) -> FloatArray:
    """The scale (m, H, k) from sales (m, weeks, H, k), as the query of a sales export makes it; NaN if too few."""
    there = ~np.isnan(sold)
    number = there.sum(axis=1)
    thousandths = np.where(there, np.rint(1000 * sold), 0.0).sum(axis=1)
    mean = thousandths / (1000.0 * np.maximum(number, 1))
    return np.where(number >= (rule.weeks + 1) // 2, np.maximum(mean, rule.floor), np.nan)


def costs_of(
    problem: Inventory, levels: FloatArray, demand: FloatArray, cells: IntArray, used: BoolArray
) -> FloatArray:
    """Mean costs of a week, (k,), over the weeks of each product that are used (n, k)."""
    total = np.zeros((len(levels), problem.products))
    for step in range(problem.horizon):
        total += problem.coordinate_cost(step, levels[:, step], demand[:, step], cells[:, step])
    return np.asarray(np.where(used, total, 0.0).sum(axis=0) / np.maximum(used.sum(axis=0), 1))
