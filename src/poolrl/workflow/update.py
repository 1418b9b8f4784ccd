"""Next month: a period that no release has read is added to an earlier release. What it will cost, and what it changed.

Costs come from public facts, changes from released numbers alone. So saying them is free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from poolrl.certificate.certificate import Certificate, certified_unit
from poolrl.certificate.release_files import CERTIFICATE, POLICY, TREES, sha256
from poolrl.certificate.terms import Terms
from poolrl.certificate.verify import verify_release
from poolrl.checks import FloatArray
from poolrl.geometry.axes import Separable
from poolrl.geometry.bins import bin_edges
from poolrl.learning.estimation import estimate_outcomes
from poolrl.learning.faded_trees import FadedTrees
from poolrl.learning.outcomes import OutcomeDistribution, Outcomes
from poolrl.learning.planning import lay_out, plan_on_outcomes
from poolrl.learning.policy import Levels, Policy
from poolrl.learning.trees import observed_slots
from poolrl.ledger.accounts import Account
from poolrl.ledger.ledger import Ledger, normal_name
from poolrl.ledger.units import Period, ProtectedUnit
from poolrl.privacy.released import PrivateOutcomes
from poolrl.problems.inventory import Inventory
from poolrl.workflow.config.configuration import ConfigFile, terms_of
from poolrl.workflow.release_folder import Earlier

# Public facts that may change from one period to the next: trees do not depend on costs.
COSTS = ("holding", "shortage")
# A mean, or a spread, that changed by a smaller share is "as before".
AS_BEFORE = 0.02
# A level that moved by more than this share is worth a word.
MOVED = 0.05
# Standard deviations of noise and sampling within which a difference is no news.
SURE = 2.0
# Noise that weighs less than this many times as much as before is no reason to keep an earlier release.
NOISIER = 1.15


def cost_in_words(file: ConfigFile) -> list[str]:
    """What the update of a configuration will cost whom, and how many more of them the budget allows. Spends nothing.

    The numbers come from the ledger, the configuration and nothing else.
    """
    account, period = _account(file)
    terms = file.config.terms(units=0)
    unit, rho = terms.unit, terms.rho
    before, after = account.spent_by(unit), account.with_spend(rho, unit, period)
    budget = account.budget
    said = [f"This update reads {period}, and takes rho = {float(rho):g}."]
    if unit.column is None:
        said.append(
            f"{_losers(unit)} One {unit.name} will then have lost {float(after):g} at most, "
            f"of a budget of {float(budget):g}."
        )
        if any(found is None for found in account.released_in(period)):
            said.append("An earlier release read everything, without a period. So it counts for this period too.")
    else:
        more = max(Fraction(0), budget - after) // rho
        many = f"{more} more update{'s' * (more != 1)}" if more else "no further update"
        said.append(
            f"One {unit.name} may be in all periods, so they add up: from {float(before):g} to {float(after):g}, of a "
            f"budget of {float(budget):g}. After it the budget lasts for {many} of this size."
        )
    if after > budget:
        said.append("That is more than the budget allows.")
    return said


def noise_in_words(file: ConfigFile, earlier: Earlier) -> str:
    """How long the new period must be, so that the update is no noisier than the release before it. Spends nothing."""
    claim, trees, keep = earlier.certificate, earlier.trees, file.config.forgetting
    # The same counts with another budget: variances are as 1/ρ.
    variance = Fraction(claim.mechanisms[0].variance) * Fraction(claim.rho) / file.config.terms(units=0).rho
    many, enough = (round(each) for each in (trees.slots, trees.slots_to_match(float(variance), keep)))
    called = "trajectories" if file.config.sales is None else "weeks of shops"
    return (
        f"Earlier releases count as {many:,} {called}, and {keep:g} times as much after this one. Noise will weigh no "
        f"more than before if this period has {enough:,} {called} or more. With fewer it still pays where demand has "
        "changed; the update will say so."
    )


def _account(file: ConfigFile) -> tuple[Account, Period]:
    period = file.config.declared_period()
    if period is None:
        raise ValueError(f"{file.path} has no [period]: say which weeks the update reads")
    with Ledger.existing(file.ledger) as ledger:
        account = ledger.account(file.config.privacy.data_set)
    if account is None:
        raise ValueError(f"{file.ledger} has no account {file.config.privacy.data_set!r}: the first fit opens it")
    return account, period


def _losers(unit: ProtectedUnit) -> str:
    if unit.scale_memory:
        return "Trajectories of this period lose it, and less of it those before that its scales come from."
    return "Only trajectories of this period lose it."


def load_earlier(file: ConfigFile, folder: Path) -> Earlier:
    """A release of the same account that can be continued. Its certificate must hold, and the ledger must know it."""
    paths = [folder / name for name in (POLICY, CERTIFICATE, TREES)]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{folder} cannot be continued: it has no {path.name}. 'poolrl fit' makes a release")
    checks = verify_release(*paths[:2], read_terms=terms_of, ledger=file.ledger)
    broken = [check for check in checks if not check.good]
    if broken:
        raise ValueError(f"{paths[1]} does not hold ({broken[0].what}); see 'poolrl verify'")
    claim = Certificate.read(paths[1].read_bytes())
    _require_alike(claim, file.config.terms(units=claim.assumed_public.units), folder)
    return Earlier(Policy.load(paths[0]), claim, sha256(paths[1]), FadedTrees.load(paths[2]))


def _require_alike(claim: Certificate, terms: Terms, folder: Path) -> None:
    """Refuse a release whose trees mean something else, by public facts alone."""
    if claim.period is None or terms.period is None:
        which = f"{folder} read everything" if claim.period is None else "the configuration has no [period]"
        raise ValueError(
            f"an update adds one period to another, but {which}: declare [period] before the first fit, and a later "
            "one for each update"
        )
    facts = [
        {name: fact for name, fact in public.problem.items() if name not in COSTS}
        for public in (claim.assumed_public, terms.public)
    ]
    differences = {
        "the data set's name": normal_name(claim.ledger.data_set) != normal_name(terms.data_set),
        "the problem (costs may change)": facts[0] != facts[1],
        "products or steps": (claim.assumed_public.products, claim.assumed_public.steps)
        != (terms.public.products, terms.public.steps),
        "who is protected": replace(certified_unit(claim), owns_at_most=None) != replace(terms.unit, owns_at_most=None),
        "the column of [period], or the scale": (claim.period.period().axis, claim.period.period().scale)
        != (terms.period.axis, terms.period.scale),
    }
    if changed := [what for what, differs in differences.items() if differs]:
        raise ValueError(f"{folder} was made with another configuration: {changed[0]} differs. Fit anew instead")
    for each in [*(known.period for known in claim.earlier), claim.period]:
        if each.period().overlaps(terms.period):
            raise ValueError(
                f"{folder} has read {each.period()} already, which overlaps with [period] of the configuration: say "
                "which weeks no release has read"
            )


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
    # The earlier estimate has its own noise and chance: as much smaller as it rests on more.
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
