"""Next month: a period that no release has read is added to an earlier release. What it costs and changes."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from poolrl.certificate.certificate import Terms
from poolrl.certificate.release_files import TREES
from poolrl.checks import FloatArray
from poolrl.geometry.bins import bin_edges
from poolrl.learning.estimation import estimate_outcomes
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.trees import observed_slots
from poolrl.ledger.accounts import normal_name
from poolrl.ledger.ledger import Ledger
from poolrl.privacy.released import PrivateOutcomes
from poolrl.problems.problem import OutcomeProblem
from poolrl.workflow.config.configuration import ConfigFile
from poolrl.workflow.decision_tables import decisions_of, in_one_sentence, shown_states
from poolrl.workflow.release_folder import Released
from poolrl.workflow.trades.trade import trade_of
from poolrl.workflow.verified import load_verified

# How many outcomes are named.
MOST_CHANGES = 5
# Standard deviations of noise and sampling within which a difference is no news.
SURE = 2.0
# Noise that weighs less than this many times as much as before is no reason to keep an earlier release.
NOISIER = 1.15


def cost_in_words(file: ConfigFile) -> list[str]:
    """What the update of a configuration will cost whom, and how many more the budget allows. Spends nothing."""
    period = file.config.declared_period()
    if period is None:
        raise ValueError(f"{file.path} has no [period]: say which period the update reads")
    with Ledger.existing(file.ledger) as ledger:
        account = ledger.account(file.config.privacy.data_set)
    if account is None:
        raise ValueError(f"{file.ledger} has no account {file.config.privacy.data_set!r}: the first fit opens it")
    terms = file.config.terms(units=0)
    unit, rho, budget = terms.unit, terms.rho, account.budget
    before, after = account.spent_by(unit), account.with_spend(rho, unit, period)
    said = [f"This update reads {period}, and takes rho = {float(rho):g}."]
    if unit.column is None:
        losers = "Only trajectories of this period lose it."
        if unit.scale_memory:
            losers = "Trajectories of this period lose it, and less of it those before that its scales come from."
        most = f"{float(after):g} at most, of a budget of {float(budget):g}"
        said.append(f"{losers} One {unit.name} will then have lost {most}.")
        if any(found is None for found in account.released_in(period)):
            said.append("An earlier release read everything, without a period. So it counts for this period too.")
    else:
        more = max(Fraction(0), budget - after) // rho
        many = f"{more} more update{'s' * (more != 1)}" if more else "no further update"
        said.append(
            f"One {unit.name} may be in all periods, so they add up: from {float(before):g} to {float(after):g}, of a "
            f"budget of {float(budget):g}. After it the budget lasts for {many} of this size."
        )
    return [*said, "That is more than the budget allows."] if after > budget else said


def noise_in_words(file: ConfigFile, earlier: Released) -> str:
    """How long the new period must be, so that the update is no noisier than the release before it. Spends nothing."""
    claim, trees, keep = earlier.certificate, earlier.trees, file.config.forgetting
    # The same counts with another budget: variances are as 1/ρ.
    variance = Fraction(claim.mechanisms[0].variance) * Fraction(claim.rho) / file.config.terms(units=0).rho
    many, enough = round(trees.slots), round(trees.slots_to_match(float(variance), keep))
    words = trade_of(file.config.problem.posed).words
    called = f"{words.trajectory}s" if file.config.sales is None else "weeks of shops"
    return (
        f"Earlier releases count as {many:,} {called}, and {keep:g} times as much after this one. Noise will weigh no "
        f"more than before if this period has {enough:,} {called} or more. With fewer it still pays where "
        f"{words.outcome} changed; the update will say so."
    )


def load_earlier(file: ConfigFile, folder: Path) -> Released:
    """A release of the same account whose certificate holds, and whose trees mean the same. Costs may differ."""
    if not (folder / TREES).is_file():
        raise ValueError(f"{folder} cannot be continued: it has no {TREES}. 'poolrl fit' makes a release")
    earlier = load_verified(folder, file, ledger=file.ledger)
    before = Terms.certified(earlier.certificate)
    now, costs = file.config.terms(units=before.public.units), file.config.problem.posed.costs
    if before.period is None or now.period is None:
        which = f"{folder} read everything" if before.period is None else "the configuration has no [period]"
        declare = "declare [period] before the first fit, and a later one for each update"
        raise ValueError(f"an update adds one period to another, but {which}: {declare}")

    def meaning(terms: Terms) -> dict[str, object]:
        public, period = terms.public, terms.period
        return {
            "the data set's name": normal_name(terms.data_set),
            "the problem (costs may change)": {name: public.problem[name] for name in public.problem.keys() - {*costs}},
            "products or steps": (public.products, public.steps),
            "who is protected": replace(terms.unit, owns_at_most=None),
            "the column of [period], or the scale": period and (period.axis, period.scale),
        }

    if changed := [what for what, means in meaning(before).items() if means != meaning(now)[what]]:
        raise ValueError(f"{folder} was made with another configuration: {changed[0]} differs. Fit anew instead")
    for period in [*(known.period for known in earlier.certificate.earlier), before.period]:
        if period.overlaps(now.period):
            overlap = f"{folder} has read {period} already, which overlaps with [period] of the configuration"
            raise ValueError(f"{overlap}: name a period that no release has read")
    return earlier


@dataclass(frozen=True)
class OutcomeNews:
    """The mean of an outcome: before, now and by the new period alone."""

    product: str  # what the outcome belongs to, or is called
    outcome: str
    before: float
    after: float
    alone: float
    deviation: float  # of the new period's own mean from the earlier one, by noise and sampling

    @property
    def sigmas(self) -> float:
        """How far the new period is from what was known, in standard deviations of noise and sampling."""
        return abs(self.alone - self.before) / max(self.deviation, 1e-12)

    def __str__(self) -> str:
        mean = "mean" if self.outcome == self.product else f"mean {self.outcome}"
        doubt = f"{self.deviation:.2g}" if self.deviation < 100 else f"{self.deviation:.0f}"
        explained = "more than noise and chance explain" if self.sigmas > SURE else "which noise and chance can explain"
        return (
            f"{self.product}, all steps: {mean} {self.before:.3g} -> {self.after:.3g}; the new period alone says "
            f"{self.alone:.3g}, give or take {doubt}, {explained}."
        )


def outcomes_that_changed(earlier: Released, made: Released, forgetting: float) -> list[OutcomeNews]:
    """Every outcome over all steps and label cells, where noise is smaller than in one; the surest change first."""
    policy, problem, old, new = made.policy, made.policy.problem, earlier.policy.outcomes, made.policy.outcomes
    assert isinstance(problem, OutcomeProblem)
    assert old is not None
    assert new is not None
    last = made.trees.alone(earlier.trees, forgetting)
    released = last.to_learn_from(PrivateOutcomes((), None, 1, 0.0, policy.guarantee))
    alone = estimate_outcomes(released, problem)
    # The earlier estimate has its own noise and chance: as much smaller as it rests on more.
    known = max((earlier.trees.noise / last.noise) ** 2 if last.noise > 0 else 0.0, last.slots / earlier.trees.slots)
    deviation = _deviation(released, problem, alone) * math.sqrt(1 + known)
    # Laws count by how surely each is known, because the noise of a rare label would drown the others.
    precision = 1 / np.maximum(deviation, 1e-12) ** 2
    laws = tuple(range(precision.ndim - 1))
    means = [np.average(_mean(each), axis=laws, weights=precision).tolist() for each in (old, new, alone)]
    doubts = (1 / np.sqrt(precision.sum(axis=laws))).tolist()
    # What each outcome belongs to, and is called: a product and its demand, or the highest bids.
    words, many = trade_of(problem).words, problem.outcome_dim
    numbered = [words.outcome] if many == 1 else [f"{words.outcome} ({number})" for number in range(1, many + 1)]
    called = [(name, name) for name in (words.outcomes if len(words.outcomes) == many else numbered)]
    if problem.action_dim == many == len(policy.names.products) and len(shown_states(policy)) == 1:
        called = [(name, words.outcome) for name in policy.names.products]
    news = [OutcomeNews(*name, *facts) for name, *facts in zip(called, *means, doubts, strict=True)]
    return sorted(news, key=lambda each: -each.sigmas)


def what_changed(earlier: Released, made: Released, forgetting: float) -> tuple[str, list[str], str]:
    """How much decisions moved, the surest changes of outcomes, and which release to decide by, in words."""
    news = outcomes_that_changed(earlier, made, forgetting)
    called = trade_of(made.policy.problem).words.decisions
    sentence = in_one_sentence(decisions_of(earlier.policy), decisions_of(made.policy), called)
    return sentence, [*map(str, news[:MOST_CHANGES])], advice(news, made.trees.noise / earlier.trees.noise)


def advice(news: list[OutcomeNews], noise: float) -> str:
    """Which release to decide by, where noise weighs `noise` times as much in the new one as in the earlier one.

    If nothing has changed, the squares of k products' deviations add up to k, give or take √(2k).
    """
    weighs = f"Beside what was counted, noise weighs {noise:.1f} times as much as in the earlier release."
    if noise <= NOISIER:
        return weighs if noise < 1 / NOISIER else ""
    many = len(news)
    if sum(each.sigmas**2 for each in news) > many + SURE * math.sqrt(2 * many):
        outcomes = " and ".join(dict.fromkeys(each.outcome for each in news))
        return f"{weighs} But {outcomes} changed by more than noise and chance explain: decide by the new one."
    return (
        f"{weighs} And noise and chance can explain all that changed: decide by the earlier one. The next update "
        "continues this one. Noise fades faster with longer periods, or with [period] forgetting nearer to 1."
    )


def _mean(outcomes: OutcomeDistribution) -> FloatArray:
    return np.asarray((outcomes.weights * outcomes.points[..., None, :, :]).sum(axis=-1))


def _spread(outcomes: OutcomeDistribution) -> FloatArray:
    squares = (outcomes.weights * outcomes.points[..., None, :, :] ** 2).sum(axis=-1)
    return np.asarray(np.sqrt(np.maximum(squares - _mean(outcomes) ** 2, 0.0)))


def _deviation(released: PrivateOutcomes, problem: OutcomeProblem, alone: OutcomeDistribution) -> FloatArray:
    """How far noise and sampling move the mean of a cell, (*labels, H, k): on the coarsest level of the trees.

    Σ (middle − mean) node / n             where outcomes are seen
    Σ width √(p (1 − p) / n_b + σ² / n_b²)  where only their side is, p of the n_b rows of node b on one of them
    """
    coarse = released.levels[0]
    edges = problem.boundary.orient(bin_edges(coarse.shape[-1]))
    width = (problem.outcome_high - problem.outcome_low)[:, None]
    middles = problem.outcome_low[:, None] + width * (edges[1:] + edges[:-1]) / 2
    off = ((middles - _mean(alone)[..., None]) ** 2).sum(axis=-1) * problem.kinds * released.variance
    slots = np.maximum(observed_slots(released), 1.0)
    deviation = np.asarray(np.sqrt(off / slots**2 + _spread(alone) ** 2 / slots))
    for coordinate in problem.current_status:
        counted, noise = coarse[..., coordinate, :, :].sum(axis=-2), problem.kinds * released.variance
        rows = np.maximum(counted, 1.0)
        share = np.clip(coarse[..., coordinate, 0, :] / rows, 0.0, 1.0)
        # Where hardly anything was tried, both periods are guessed alike, by the shape of the law.
        tried = counted > SURE * math.sqrt(noise)
        doubt = np.where(tried, share * (1 - share) / rows + noise / rows**2, 0.0)
        deviation[..., coordinate] = width[coordinate] / coarse.shape[-1] * np.sqrt(doubt.sum(axis=-1))
    return deviation
