"""Forecast: what today's decisions and a policy cost or earn, by released numbers and public facts alone."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from poolrl.checks import FloatArray
from poolrl.learning.outcomes import OutcomeDistribution

SwitchVerdict = Literal["switch", "do not switch", "cannot tell"]
CANNOT_TELL: SwitchVerdict = "cannot tell"
# 90% of a normal law lie within this many standard deviations.
WITHIN_90 = 1.645
# Where noise takes more than this share of what data could bring, a budget should not be spent.
NOISE_DOMINATED = 0.25
# Decisions that differ by more than this factor should succeed unlike each other, by more than this share.
WIDE, HARDLY_CHANGES = 1.5, 0.08


@dataclass(frozen=True)
class CostEstimate:
    """What one trajectory costs or earns, averaged over label cells, with a 90% interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class ProductCosts:
    """One product: what it costs today and by the policy, and what empty shelves and λ hid of it."""

    product: str
    today: float | None
    policy: float | None
    binds: list[str]  # steps at which the level stands at λ
    untried: list[str]  # steps at which past orders seldom went as far as the level
    beyond: float  # estimated chance that demand exceeds the level of its step


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What released numbers say about today's decisions, about the policy and about knowing the outcomes."""

    today: CostEstimate | None = None
    policy: CostEstimate | None = None
    best: CostEstimate | None = None
    gain: CostEstimate | None = None  # of the policy over today's decisions; more is better
    unknown: str = ""
    verdict: SwitchVerdict = CANNOT_TELL
    because: str
    lost: float | None = None  # the share of what could be earned that noise and sampling take
    warning: str = ""  # that noise takes much of what the log could teach
    products: list[ProductCosts] = field(default_factory=list)


def cell_shares(outcomes: OutcomeDistribution) -> FloatArray:
    """How common each label cell is, (*labels), by the released trees."""
    *labels, _, _, _ = outcomes.weights.shape
    many = np.ones(labels) if outcomes.slots is None else np.maximum(outcomes.slots.sum(axis=(-2, -1)), 0.0) + 1e-9
    return np.asarray(many / many.sum())


def average_over_cells(outcomes: OutcomeDistribution, values: FloatArray) -> FloatArray:
    """Values (*labels, ...) averaged over label cells."""
    shares = cell_shares(outcomes)
    return np.tensordot(shares, values, axes=shares.ndim)


def estimate(mean: float, *errors: float) -> CostEstimate:
    """mean ± 1.645 √(Σ error²), for independent errors."""
    half = WITHIN_90 * math.hypot(*errors)
    return CostEstimate(float(mean), float(mean - half), float(mean + half))


def judged(gain: CostEstimate, today: float, *, decisions: str, earns: bool) -> tuple[SwitchVerdict, str]:
    """Whether to switch, and why: by the interval of what is gained, in shares of what today's decisions bring."""
    verb, better, worse = ("earn", "more", "less") if earns else ("cost", "less", "more")
    predicted, nine = f"are predicted to {verb}", "in nine cases out of ten"
    if today == 0:
        low, high = f"{abs(gain.low):.3g}", f"{abs(gain.high):.3g}"
    else:
        # No cost falls below nothing.
        most = min(gain.high / abs(today), math.inf if earns else 1.0)
        low, high = f"{abs(gain.low / today):.0%}", f"{abs(most):.0%}"
    if gain.low > 0:
        return "switch", f"These {decisions} {predicted} {low} to {high} {better} than today's, {nine}."
    if gain.high <= 0:
        return "do not switch", f"These {decisions} {predicted} {high} to {low} {worse} than today's, {nine}."
    may = f"These {decisions} may {verb} up to {high} {better} than today's, or up to {low} {worse}, {nine}."
    return CANNOT_TELL, may


def noise_share_of_gain(gap: float, free_gap: float) -> float:
    """How much of what data could bring is lost: 0 is nothing, 1 is as bad as no data."""
    return gap / free_gap if free_gap > 0 else 0.0


def signed_percent(gap: float) -> str:
    """A gap for people."""
    return f"{gap:+.1%}" if math.isfinite(gap) else "n/a"


def money(cost: float) -> str:
    """A cost for people."""
    return f"{cost:,.0f}" if abs(cost) >= 100 else f"{cost:,.1f}" if abs(cost) >= 10 else f"{cost:.2f}"
