"""What an update changed, and why: from released numbers alone, so saying it is free."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray
from poolrl.geometry.axes import Separable
from poolrl.geometry.bins import bin_edges
from poolrl.learning.estimation import estimate_outcomes
from poolrl.learning.faded_trees import FadedTrees
from poolrl.learning.outcomes import OutcomeDistribution, Outcomes
from poolrl.learning.planning import lay_out, plan_on_outcomes
from poolrl.learning.policy import Policy
from poolrl.learning.rules import Levels
from poolrl.learning.totals import observed_slots
from poolrl.privacy.released import PrivateOutcomes
from poolrl.problems.inventory import Inventory
from poolrl.workflow.earlier import Earlier

# A mean, or a spread, that changed by a smaller share is "as before".
AS_BEFORE = 0.02
# A level that moved by more than this share is worth a word.
MOVED = 0.05
# Standard deviations of noise and sampling within which a difference is no news.
SURE = 2.0
# Noise that weighs less than so many times as much as before is no reason to keep an earlier release.
NOISIER = 1.15


@dataclass(frozen=True)
class Moved:
    """One level: where it stands, what it was and is, the part of new costs, and mean demand before, now and alone."""

    where: str
    product: str
    before: float
    after: float
    by_costs: float
    demand: tuple[float, float, float]
    spread: tuple[float, float]
    deviation: float  # of the new period's own mean from the earlier one, by noise and sampling

    def __str__(self) -> str:
        rise = 100 * (self.after / self.before - 1) if self.before > 0 else math.inf
        share = f" ({rise:+.0f}%)" if math.isfinite(rise) else ""
        return f"{self.where}: {self.before:.4g} -> {self.after:.4g}{share}. {self._why()}"

    def _why(self) -> str:
        (before, after, alone), (narrow, wide) = self.demand, self.spread
        own = f"the new period alone says {alone:.3g}, give or take {_give_or_take(self.deviation)}"
        if abs(self.by_costs) > abs(self.after - self.before) / 2:
            return f"New costs explain {self.by_costs:+.3g} of it."
        if _differ(after, before):
            verb = "rose" if after > before else "fell"
            sure = "" if abs(alone - before) > SURE * self.deviation else ", which noise and chance can explain"
            return f"Mean demand {verb} from {before:.3g} to {after:.3g}: {own}{sure}."
        if _differ(wide, narrow):
            more = "more" if wide > narrow else "less"
            return f"Mean demand is as before ({after:.3g}), but varies {more}: by {wide:.3g}, not {narrow:.3g}."
        return f"Mean demand is as before ({after:.3g}); {own}. More weeks make its tail clearer."


def levels_that_moved(earlier: Earlier, policy: Policy, trees: FadedTrees, forgetting: float) -> list[Moved]:
    """Every order-up-to level of the new policy beside the old one, the one that moved most first."""
    problem = policy.problem
    old, new = earlier.policy.outcomes, policy.outcomes
    if not isinstance(problem, Inventory) or old is None or new is None:
        return []
    last = trees.alone(earlier.trees, forgetting)
    released = last.to_learn_from(_without_counts(policy))
    alone = estimate_outcomes(released, problem, Outcomes())
    # What was known before has its own noise and chance: as much smaller as it rests on more.
    known = max((earlier.trees.noise / last.noise) ** 2 if last.noise > 0 else 0.0, last.slots / earlier.trees.slots)
    deviation = _deviation(released, problem, alone) * math.sqrt(1 + known)
    by_costs = _planned_with(problem, earlier.policy) - earlier.policy.levels
    means = [_mean_demand(each) for each in (old, new, alone)]
    spreads = [_spread(each) for each in (old, new)]
    before, after = earlier.policy.levels, policy.levels
    usual = np.maximum(before.reshape(-1, before.shape[-1]).mean(axis=0), 1e-9)
    order = np.argsort(-(np.abs(after - before) / usual).ravel(), kind="stable")
    places = [np.unravel_index(number, after.shape) for number in order]
    return [
        Moved(
            _named_place(policy, tuple(map(int, place))),
            policy.names.products[int(place[-1])],
            float(before[place]),
            float(after[place]),
            float(by_costs[place]),
            (float(means[0][place]), float(means[1][place]), float(means[2][place])),
            (float(spreads[0][place]), float(spreads[1][place])),
            float(deviation[place]),
        )
        for place in places
    ]


@dataclass(frozen=True)
class ProductNews:
    """Mean demand of one product over all its cells, where noise is smaller than in one of them."""

    product: str
    before: float
    after: float
    alone: float
    deviation: float

    @property
    def sigmas(self) -> float:
        """How far the new period is from what was known, in standard deviations of noise and sampling."""
        return abs(self.alone - self.before) / max(self.deviation, 1e-12)

    def __str__(self) -> str:
        news = "more than noise and chance explain" if self.sigmas > SURE else "which noise and chance can explain"
        own = f"the new period alone says {self.alone:.3g}, give or take {_give_or_take(self.deviation)}, {news}"
        return f"{self.product}, all steps: mean demand {self.before:.3g} -> {self.after:.3g}; {own}."


def by_product(moved: list[Moved]) -> list[ProductNews]:
    """Product by product, in the order in which their levels moved."""
    found: dict[str, list[Moved]] = {}
    for each in moved:
        found.setdefault(each.product, []).append(each)
    news = []
    for product, cells in found.items():
        # Cells count by how surely each is known, because the noise of a rare label would drown the others.
        precision = np.array([1 / max(each.deviation, 1e-12) ** 2 for each in cells])
        before, after, alone = np.average([each.demand for each in cells], axis=0, weights=precision).tolist()
        news.append(ProductNews(product, before, after, alone, 1 / math.sqrt(precision.sum())))
    return news


def advice(news: list[ProductNews], noise: float) -> str:
    """Which release to order by, where noise weighs `noise` times as much in the new one as in the earlier one.

    If nothing has changed, the squares of k products' deviations add up to k, give or take √(2k).
    """
    weighs = f"Beside what was counted, noise weighs {noise:.1f} times as much as in the earlier release."
    if noise <= NOISIER:
        return weighs if noise < 1 / NOISIER else ""
    many = len(news)
    if not news:
        return weighs
    if sum(each.sigmas**2 for each in news) > many + SURE * math.sqrt(2 * many):
        return f"{weighs} But demand has changed by more than noise and chance explain: order by the new one."
    return (
        f"{weighs} And noise and chance can explain all that changed: order by the earlier one. The next update "
        "continues this one. Noise fades faster with longer periods, or with [period] forgetting nearer to 1."
    )


def in_one_sentence(before: FloatArray, after: FloatArray) -> str:
    """How much of a table of levels changed at all."""
    some = before > 0
    shares = np.abs(after[some] / before[some] - 1)
    typical = float(np.median(shares)) if some.any() else 0.0
    large = int((shares > MOVED).sum())
    return (
        f"Of {before.size:,} levels {large:,} moved by more than {MOVED:.0%}; the typical one moved by {typical:.1%}."
    )


def _give_or_take(number: float) -> str:
    return f"{number:.2g}" if number < 100 else f"{number:.0f}"


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > AS_BEFORE * max(abs(one), abs(other), 1e-9)


def _without_counts(policy: Policy) -> PrivateOutcomes:
    return PrivateOutcomes((), None, 1, 0.0, policy.guarantee)


def _planned_with(problem: Inventory, before: Policy) -> FloatArray:
    """The old estimate of demand with the costs of now; the old levels where costs are the same."""
    assert before.outcomes is not None
    if problem.facts() == before.problem.facts():
        return before.levels
    follows = before.guarantee.scale_memory > 0
    rule, _ = plan_on_outcomes(before.outcomes, lay_out(problem, Separable()), scale_follows_sales=follows)
    assert isinstance(rule, Levels)
    return rule.levels


def _mean_demand(outcomes: OutcomeDistribution) -> FloatArray:
    return np.asarray((outcomes.weights * outcomes.points[..., None, :, :]).sum(axis=-1))


def _spread(outcomes: OutcomeDistribution) -> FloatArray:
    squares = (outcomes.weights * outcomes.points[..., None, :, :] ** 2).sum(axis=-1)
    return np.asarray(np.sqrt(np.maximum(squares - _mean_demand(outcomes) ** 2, 0.0)))


def _deviation(released: PrivateOutcomes, problem: Inventory, alone: OutcomeDistribution) -> FloatArray:
    """How far noise and sampling move the mean of a cell: Σ (middle − mean) node / n, on the coarsest level."""
    nodes = released.levels[0].shape[-1]
    edges = problem.boundary.orient(bin_edges(nodes))
    width = (problem.outcome_high - problem.outcome_low)[:, None]
    middles = problem.outcome_low[:, None] + width * (edges[1:] + edges[:-1]) / 2
    mean = _mean_demand(alone)
    off = ((middles - mean[..., None]) ** 2).sum(axis=-1) * problem.kinds * released.variance
    slots = np.maximum(observed_slots(released), 1.0)
    return np.asarray(np.sqrt(off / slots**2 + _spread(alone) ** 2 / slots))


def _named_place(policy: Policy, place: tuple[int, ...]) -> str:
    *labels, step, product = place
    said = zip(policy.problem.labels.names, policy.problem.labels.values, labels, strict=True)
    cell = [f"{name} {values[number]}" for name, values, number in said]
    return ", ".join([*cell, policy.names.steps[step], policy.names.products[product]])
