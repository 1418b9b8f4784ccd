"""What today's ordering, the policy, and knowing the demand cost in a shop, and how wrong these numbers may be.

Costs are those of the estimated laws of demand and of past orders. A rehearsal finds how wrong they may be: the same
fit again, on trees that are drawn from laws which are then known. A few columns (label cells times products) are
enough, because each of them errs on its own. Nothing is read but the policy, and nothing is spent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from rich.progress import Progress

from poolrl.checks import FloatArray
from poolrl.learning.levels import best_costs, costs_of_levels, left_and_missing, plan_shops, step_costs, unseen_demand
from poolrl.learning.outcomes import OutcomeDistribution, uniform_outcomes
from poolrl.learning.policy import Policy
from poolrl.pool import Pool
from poolrl.simulation.families import FAMILIES, TOP, TreeLaws, draw_trees
from poolrl.workflow import forecast as forecasts
from poolrl.workflow.forecast import CostEstimate, Forecast, average_over_cells, cell_shares, estimate, judged
from poolrl.workflow.page import hidden_from, log_levels, shop_of

TOO_NOISY = "The noise of this budget makes predicted costs too uncertain to show."
NOISE_HIDES = "Noise hides what the log could teach, so no cost can be predicted."
UNSEEN = "Shelves ran empty so often that much of the shortage lies beyond anything ever ordered, which no log tells."
# The error that no rehearsal finds: demand is never quite as its law, and steps are never quite independent.
MODEL_ERROR = 0.05
# A cost that is shown should be as near to the truth as this.
PROMISED = 0.1
# A cost that noise would move further than that in one case of ten is not shown.
MOST_NOISE_ERROR = PROMISED / forecasts.WITHIN_90
# Noise makes laws wider, so that costs are overestimated. At most this share of a cost is taken off.
MOST_TAKEN_OFF = 0.03
# Demand beyond what was ever ordered is extrapolated by its shape, and may be half or one and a half times that.
TAIL_DOUBT = 0.5
# Where that demand makes up more of the policy's cost, its doubt breaks the promise too.
MOST_UNSEEN = PROMISED / TAIL_DOUBT
# By an estimate itself, in shares of the best cost: data are worth little, or much; and little of that is lost.
WORTHLESS, WORTH_MUCH, LITTLE_LOST = 0.1, 0.5, 0.1
# A plan takes demand beyond the explored range for lognormal. That is cautious: other usual laws have less of it there.
USUAL_TAIL = 0.75
# Past orders follow demand if at least this share of what they cost is shortage that they foresaw.
FORESEEN = 0.3
CLEARLY = 2.0  # standard errors
# Columns times steps of one rehearsed fit, which then takes a fraction of a second; more where the trees are coarse.
MOST_TREES, COARSE_LEVEL, MOST_COARSE_TREES = 24, 8, 420
# Finer levels of the trees hardly change how far a fit errs, and take most of its time.
FINEST_LEVEL = 16
# Fits on trees of the estimate itself.
REPETITIONS = 2
# Two shifts of each family, so that no member of it decides.
FAMILY_SEED = 18


def make_forecast(policy: Policy, trees: object, progress: Progress) -> Forecast:
    """The forecast of a policy that was learned from outcome trees, which say no more than the policy itself."""
    if policy.report.trees is None or policy.outcomes is None or policy.outcomes.slots is None:
        return _without_numbers(policy, "The policy was saved by an earlier version, which kept no facts of its noise.")
    progress.add_task("predicting", total=None)
    # Fits on demand that nobody estimated, and on that of the estimate.
    rehearsal = Rehearsal(policy)
    families, trials = rehearsal.on_families(), [rehearsal.on_estimate(seed) for seed in range(REPETITIONS)]
    if warning := _noise_warning(families, trials):
        return replace(_without_numbers(policy, NOISE_HIDES), warning=warning)
    costs = EstimatedCosts.of(policy)
    if follows := orders_follow_demand(policy, costs):
        return _without_numbers(policy, follows)
    policy_error = relative_error([(trial.policy, trial.true_policy) for trial in trials], costs.columns)
    best_error = relative_error([(trial.best, trial.true_best) for trial in trials], costs.columns)
    ours = float(costs.policy.sum())
    unseen = costs.unseen > MOST_UNSEEN * ours
    # A plan is always best by its own estimate. Its loss to noise shows where the laws are known.
    gap = max(0.0, float(np.mean([trial.gap for trial in trials])))
    of_knowing = np.minimum(costs.best, costs.policy / (1 + gap))
    tail = TAIL_DOUBT * costs.unseen
    # The overestimate of a fit shows where the laws are known, and are not those of an estimate.
    wide = 1 + min(max(families.overestimate, 0.0), MOST_TAKEN_OFF)
    shown_policy, best = costs.policy / wide, float(of_knowing.sum())
    why = f"The cost of past orders is not known: {costs.why_not}"
    forecast = Forecast(
        policy=estimate(float(shown_policy.sum()), ours * policy_error, ours * MODEL_ERROR, tail),
        best=estimate(float((of_knowing / wide).sum()), best * best_error, best * MODEL_ERROR, tail),
        unknown=why,
        because=why,
    )
    if costs.today is not None:
        forecast = _beside_today(forecast, costs, float(costs.today.sum()), policy_error)
    if unseen or max(policy_error, best_error) > MOST_NOISE_ERROR:
        # The verdict has all of this doubt in its interval, so it may still be clear.
        nothing = _without_numbers(policy, UNSEEN if unseen else TOO_NOISY)
        return replace(nothing, gain=forecast.gain, verdict=forecast.verdict, because=forecast.because)
    hidden = hidden_from(policy)
    today = [None] * len(hidden) if costs.today is None or forecast.today is None else costs.today.tolist()
    rows = zip(hidden, today, shown_policy.tolist(), strict=True)
    return replace(forecast, products=[replace(row, today=now, policy=ours) for row, now, ours in rows])


def _beside_today(forecast: Forecast, costs: EstimatedCosts, now: float, policy_error: float) -> Forecast:
    """The same forecast with today's cost, unless it is too uncertain, and with the verdict."""
    ours = float(costs.policy.sum())
    # The shortage rests on the same estimate of demand as the policy's cost does.
    noise = (costs.missing * policy_error, costs.left_error)
    today: CostEstimate | None = estimate(now, *noise, now * MODEL_ERROR, TAIL_DOUBT * costs.unseen)
    unknown = ""
    if math.hypot(*noise) > MOST_NOISE_ERROR * now:
        today, unknown = None, "The noise of this budget makes the cost of past orders too uncertain to show."
    if now <= 0:
        nothing = "Today's ordering is predicted to cost nothing, so there is nothing to compare with."
        return replace(forecast, today=today, unknown=unknown, because=nothing)
    # Demand beyond what was ever ordered costs both the same, but for what the policy orders of it.
    both = (ours * policy_error, *noise, max(now, ours) * MODEL_ERROR, costs.reached)
    gain = estimate(now - ours, *both)
    # If past orders followed demand, they cost less than estimated, and never more.
    gain = replace(gain, low=gain.low - costs.foreseen)
    verdict, because = judged(gain, now, decisions="levels", earns=False)
    return replace(forecast, today=today, gain=gain, unknown=unknown, verdict=verdict, because=because)


def _noise_warning(families: Trial, trials: list[Trial]) -> str:
    """That noise took a good part of what the log could teach; empty if it did not.

    On demand that nobody estimated, more than a quarter is lost. Or some is lost, and the estimate says that data are
    worth little: an estimate that noise has pushed back to the bounds says that.
    """
    lost = forecasts.noise_share_of_gain(families.gap, families.free_gap)
    gap, free_gap = (float(np.mean([getattr(trial, name) for trial in trials])) for name in ("gap", "free_gap"))
    # Noise pushes an estimate back to the bounds. One that is far from them, and loses little there, is no such one.
    taught = free_gap > WORTH_MUCH and forecasts.noise_share_of_gain(gap, free_gap) < LITTLE_LOST
    if taught or not lost > (LITTLE_LOST if free_gap < WORTHLESS else forecasts.NOISE_DOMINATED):
        return ""
    above, without = forecasts.signed_percent(families.gap), forecasts.signed_percent(families.free_gap)
    return (
        f"This log is noise-dominated. With this few units at this rho, about {min(1.0, lost):.0%} of what data could "
        f"save is lost ({above} above the optimum on demand that nobody estimated, {without} without data). The policy "
        "leans on the declared bounds, and no cost can be predicted."
    )


def _without_numbers(policy: Policy, why: str) -> Forecast:
    return Forecast(unknown=why, because=why, products=hidden_from(policy))


@dataclass(frozen=True)
class EstimatedCosts:
    """Costs of one trajectory by estimated laws: of each product, (k,), averaged over label cells."""

    policy: FloatArray
    best: FloatArray
    today: FloatArray | None
    why_not: str  # why today's cost is not known
    columns: int  # label cells times products
    # Over all products:
    missing: float  # what past orders cost by what was missing
    unseen: float  # what demand beyond anything that was ordered costs
    reached: float  # how much of that the policy would save, by ordering more than was ever tried
    left_error: float = 0.0  # of what past orders cost to hold
    foreseen: float = 0.0  # what past orders cost less than estimated, if they follow demand
    clearly_foreseen: float = 0.0  # of that, what noise does not explain

    @classmethod
    def of(cls, policy: Policy) -> EstimatedCosts:
        """From the laws and sums in the policy."""
        problem, outcomes = shop_of(policy)

        def average(left: FloatArray | float, missing: FloatArray | float) -> FloatArray:
            return average_over_cells(outcomes, step_costs(problem, left, missing))

        levels, unseen = log_levels(policy), unseen_demand(outcomes)
        beyond = average(0.0, unseen)
        # All three meet the same demand beyond what was ever ordered.
        cautious = (1 - USUAL_TAIL) * beyond
        points = outcomes.points[..., None, :, :]
        over = (outcomes.weights * np.maximum(points - levels[..., None], 0.0)).sum(axis=-1)
        reached = average(0.0, np.where(levels > outcomes.explored, unseen - over, 0.0))
        cut = None if outcomes.cutoffs is None else left_and_missing(outcomes)
        missing = 0.0 if cut is None else float(average(0.0, cut[1]).sum())
        today, why_not, of_past = None, "", {}
        if not problem.censored:
            why_not = "unmet demand waits, and the release does not say how much of it there was."
        elif outcomes.left is None:
            why_not = "the release has no sums of what was left on the shelves."
        else:
            today = np.maximum(average(outcomes.left[0], 0.0 if cut is None else cut[1]) - cautious, 0.0)
            shares = cell_shares(outcomes)[..., None, None] * problem.scale_profile
            of_holding = shares * problem.of_leftovers(..., outcomes.left[1], 0.0)
            of_past["left_error"] = float(np.sqrt((of_holding**2).sum()))
            if cut is not None:
                of_left = float(np.sqrt(((shares * outcomes.left[1]) ** 2).sum()))
                left, independent = (float((shares * amount).sum()) for amount in (outcomes.left[0], cut[0]))
                of_past["foreseen"] = missing * foreseen_share(left, independent)
                of_past["clearly_foreseen"] = missing * foreseen_share(left + CLEARLY * of_left, independent)
        return cls(
            policy=average_over_cells(outcomes, costs_of_levels(problem, outcomes, levels)) - cautious,
            best=average_over_cells(outcomes, best_costs(problem, outcomes)) - cautious,
            today=today,
            why_not=why_not,
            columns=problem.labels.count * problem.products,
            missing=missing,
            unseen=USUAL_TAIL * float(beyond.sum()),
            reached=float(np.maximum(reached, 0.0).sum()),
            **of_past,
        )


def foreseen_share(left: float, independent: float) -> float:
    """The share of an estimated shortage that never was, because orders followed demand.

    If levels Y are independent of demand D, E(Y − D)⁺ follows from their laws. Managers who order what they expect have
    less left than that, and as much less missing: a share of 1 − left / independent.
    """
    return min(1.0, max(0.0, 1 - left / independent)) if independent > 0 else 0.0


def orders_follow_demand(policy: Policy, costs: EstimatedCosts) -> str:
    """Why orders seem to follow demand, by what was released; empty if they do not."""
    tested = policy.report.dependence
    flagged = tested is not None and tested.flagged
    if flagged or (costs.today is not None and costs.clearly_foreseen > FORESEEN * float(costs.today.sum())):
        return (
            "Past orders follow demand, so demand is overestimated and no cost can be predicted: give a scale, or "
            "labels for what managers know."
        )
    return ""


@dataclass(frozen=True)
class Trial:
    """One fit on drawn trees: costs of each column (m,) by its own estimate, and by the laws that were drawn from."""

    policy: FloatArray
    true_policy: FloatArray
    best: FloatArray
    true_best: FloatArray
    free: FloatArray  # without any data

    @property
    def gap(self) -> float:
        """How much more the policy costs than knowing the laws."""
        return _excess(self.true_policy, self.true_best)

    @property
    def overestimate(self) -> float:
        """How much more the policy costs by its own estimate than by the laws."""
        return _excess(self.policy, self.true_policy)

    @property
    def free_gap(self) -> float:
        """How much more it costs to know no data than to know the laws."""
        return _excess(self.free, self.true_best)


def _excess(costs: FloatArray, others: FloatArray) -> float:
    return float(costs.sum() / others.sum() - 1) if others.sum() > 0 else 0.0


class Rehearsal:
    """Some columns of a policy as a shop of their own, without labels."""

    def __init__(self, policy: Policy) -> None:
        (problem, outcomes), trees = shop_of(policy), policy.report.trees
        assert trees is not None
        assert outcomes.slots is not None
        self.sizes = tuple(size for size in trees.sizes if size <= FINEST_LEVEL) or trees.sizes[:1]
        self.variance = float(trees.variance)
        cells, horizon, products = problem.labels.count, problem.horizon, problem.products
        most = MOST_COARSE_TREES if self.sizes[-1] <= COARSE_LEVEL else MOST_TREES
        count = min(max(1, most // horizon), cells * products)
        columns = np.random.default_rng(0).choice(cells * products, count, replace=False)
        cell, product = np.divmod(np.sort(columns), products)

        def taken(values: FloatArray) -> FloatArray:
            """The chosen columns of (*labels, H, k, ...), as (H, columns, ...)."""
            flat = values.reshape(cells, horizon, products, *values.shape[len(problem.labels.shape) + 2 :])
            return np.ascontiguousarray(flat[cell, :, product].swapaxes(0, 1))

        tables: dict[str, Any] = {name: taken(getattr(problem, name)) for name in (*problem.costs, "scale_profile")}
        self.shop = type(problem)(
            horizon=horizon,
            products=count,
            **tables,
            demand_max=problem.label_bounds.reshape(cells, products)[cell, product],
            boundary=problem.share[:, product],
        )
        self.points = outcomes.points.reshape(cells, products, -1)[cell, product]
        self.weights = taken(outcomes.weights)
        self.cutoffs = None if outcomes.cutoffs is None else taken(outcomes.cutoffs)
        self.slots = np.maximum(taken(outcomes.slots), 1.0)
        self._free = plan_shops(self.shop, uniform_outcomes(self.shop, self.weights.shape[-1]))

    def on_estimate(self, seed: int) -> Trial:
        """A fit on trees of the policy's own estimate."""
        truth = OutcomeDistribution(self.points, self.weights, slots=self.slots)
        tops = (self.points[:, -1] + self.points[:, 0]) / self.shop.demand_max
        return self._trial(truth, TreeLaws(self.weights, self.cutoffs, tops), seed)

    def on_families(self) -> Trial:
        """Fits where every column's demand is of another public family, and past orders are even up to λ.

        Where there are fewer columns than families, there are more fits. Data are worth nothing for some families.
        """
        fits = [self._on_families(first) for first in range(0, len(FAMILIES), self.shop.products)]
        return Trial(*(np.concatenate([getattr(fit, part.name) for fit in fits]) for part in fields(Trial)))

    def _on_families(self, first: int) -> Trial:
        shape = (self.shop.horizon, self.shop.products)
        bins = self.weights.shape[-1]
        of_families = [
            FAMILIES[name](np.random.default_rng([FAMILY_SEED, first]), shape).probabilities(TOP, bins)
            for name in FAMILIES
        ]
        which = (first + np.arange(shape[1])) % len(of_families)
        weights = np.stack(of_families)[which, :, np.arange(shape[1])].swapaxes(0, 1)
        weights = weights / weights.sum(axis=-1, keepdims=True)
        points = (np.arange(bins) + 0.5) / bins * self.shop.demand_max[:, None]
        even = np.diff(np.minimum(np.arange(bins + 1) / bins / self.shop.share[..., None], 1.0), axis=-1)
        laws = TreeLaws(weights, even if self.shop.censored else None, np.ones(shape[1]))
        return self._trial(OutcomeDistribution(points, weights, slots=self.slots), laws, first)

    def _trial(self, truth: OutcomeDistribution, laws: TreeLaws, seed: int) -> Trial:
        rng = np.random.default_rng([seed, len(self.points)])
        drawn = draw_trees(laws, self.slots, level_sizes=self.sizes, variance=self.variance, rng=rng)
        policy = Pool(1.0).prepare(self.shop).learn(drawn)
        assert policy.outcomes is not None
        return Trial(
            costs_of_levels(self.shop, policy.outcomes, policy.levels),
            costs_of_levels(self.shop, truth, policy.levels),
            best_costs(self.shop, policy.outcomes),
            best_costs(self.shop, truth),
            costs_of_levels(self.shop, truth, self._free),
        )


def relative_error(pairs: list[tuple[FloatArray, FloatArray]], columns: int) -> float:
    """The root mean square of (estimated − true) / true, for a sum over this many columns. Pairs are of one trial.

    A part of the error is common to all columns, and the rest averages out.
    """
    ratios = np.concatenate([np.log(np.maximum(a, 1e-12) / np.maximum(b, 1e-12)) for a, b in pairs])
    shares = np.concatenate([b for _, b in pairs])
    if shares.sum() <= 0:
        return 0.0
    common = float(np.average(ratios, weights=shares))
    spread = float(np.average((ratios - common) ** 2, weights=shares))
    return float(np.sqrt(common**2 + spread / columns))
