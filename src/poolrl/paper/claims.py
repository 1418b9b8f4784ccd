"""The paper's claims, each judged from the results by one rule. Nobody types a verdict.

A claim is a set of comparisons, each a number that the claim says is positive, with a bootstrap interval over seeds;
`statistics.judge` is the rule. A claim that holds of a policy that never changes is *vacuous*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from poolrl.checks import FloatArray
from poolrl.paper import sweeps
from poolrl.paper.privacy_check import privacy_evidence
from poolrl.paper.statistics import ROUNDING, Interval, Table, judge, mean_difference, mean_slope, slope_of_means
from poolrl.paper.sweeps import BASE, GRID, PUBLISHED, SOFT_GRID, SOFTENED, Setting, real

LEARNERS = {
    "Pool.published, printed constants": PUBLISHED,
    "Pool.published, tuned scale of Γ": SOFTENED,
    "Pool (default)": BASE,
}
# "Closely approaches" in numbers: within one percentage point.
CLOSE = 0.01


@dataclass(frozen=True)
class Verdict:
    """One claim, for one learner, on one data set."""

    claim: str
    data: str
    learner: str
    verdict: str  # holds, does not hold, undecided, not run; vacuous: holds of a policy that never changes
    statistic: str  # what is claimed to be positive
    worst: Interval | None  # the comparison that decided
    unit: str
    comparisons: int = 1  # of which `worst` is one


Comparisons = Callable[[Table, Setting], list[Interval]]
# A place is where a learner's setting is moved to: the paper's synthetic data, Store 1, or one of ours.
Place = Callable[[Setting], Setting]


def _in_family(family: str) -> Place:
    return lambda setting: replace(setting, data=family)


def _stores(stores: int) -> Place:
    return lambda setting: real(setting, stores)


PLACES: dict[str, Place] = {
    "synthetic": lambda setting: setting,
    "Rossmann, Store 1": real,
    "normal demand": _in_family("normal"),
    "exponential demand": _in_family("exponential"),
    "Rossmann, 2 stores": _stores(2),
    "Rossmann, 4 stores": _stores(4),
    "Rossmann, 8 stores": _stores(8),
}
PAPERS = ("synthetic", "Rossmann, Store 1")
NEIGHBOURS = "neighbouring logs"
NEVER_CHANGES = "the policy never changes"
KNOWN_OPTIMUM = ("synthetic", "normal demand", "exponential demand")


@dataclass(frozen=True)
class Claim:
    """A claim in one line, where it is judged, and how a learner's comparisons are made."""

    text: str
    data: str
    statistic: str
    unit: str
    compare: Comparisons

    def verdict(self, table: Table, name: str, learner: Setting) -> Verdict:
        """Judge one learner."""
        comparisons = self.compare(table, learner)
        if not comparisons:
            return Verdict(self.text, self.data, name, "not run", self.statistic, None, self.unit)
        found, worst = judge(comparisons)
        if found == "holds" and all(NEVER_CHANGES in interval.about for interval in comparisons):
            found = "vacuous"
        return Verdict(self.text, self.data, name, found, self.statistic, worst, self.unit, len(comparisons))


def beats(method: str, place: Place, rhos: Sequence[float] = sweeps.RHOS) -> Comparisons:
    """At each ρ: the other method's gap minus the learner's."""

    def compare(table: Table, learner: Setting) -> list[Interval]:
        found = []
        for rho in rhos:
            ours = place(replace(learner, rho=rho))
            theirs = replace(ours, method=method, scale=1.0)
            pairs = table.paired([ours, theirs], "gap_common")
            if len(pairs):
                found.append(mean_difference(100 * pairs, f"ρ = {rho:g}"))
        return found

    return compare


def approaches(place: Place, rhos: Sequence[float], within: float) -> Comparisons:
    """At each ρ: how much room is left between the gap with and without privacy, on either side."""

    def compare(table: Table, learner: Setting) -> list[Interval]:
        found = []
        for rho in rhos:
            pairs = table.paired([place(replace(learner, rho=rho)), place(replace(learner, rho=math.inf))])
            if len(pairs):
                about = f"ρ = {rho:g}: {100 * pairs[:, 0].mean():.2f} against {100 * pairs[:, 1].mean():.2f} percent"
                found.append(mean_difference(100 * pairs).within(100 * within, about))
        return found

    return compare


def _trend(
    field: str, values: Sequence[float], at: Callable[[FloatArray], FloatArray], sign: int, place: Place = lambda s: s
) -> Comparisons:
    def compare(table: Table, learner: Setting) -> list[Interval]:
        moved = [replace(place(learner), **{field: value}) for value in values]  # type: ignore[arg-type]
        there = table.present(moved)
        gaps = table.paired(there)
        if len(there) < 2 or not len(gaps):
            return []
        where = at(np.array([float(getattr(setting, field)) for setting in there]))
        means = 100 * gaps.mean(axis=0)
        about = f"{means[0]:.3g} to {means[-1]:.3g} percent over {len(there)} values{_same(gaps)}"
        return [mean_slope(sign * 100 * gaps, where, about)]

    return compare


def _beats_grid(place: Place) -> Comparisons:
    def compare(table: Table, learner: Setting) -> list[Interval]:
        grid = GRID if learner == PUBLISHED else SOFT_GRID  # like against like; the default meets the better grid
        found = []
        for granularity in sweeps.GRANULARITIES:
            pair = [place(replace(setting, granularity=granularity)) for setting in (learner, grid)]
            pairs = table.paired(pair, "gap_common")
            if len(pairs):
                found.append(mean_difference(100 * pairs, f"M = {granularity}"))
        return found

    return compare


def _scales_better(place: Place) -> Comparisons:
    def compare(table: Table, learner: Setting) -> list[Interval]:
        ours = [place(replace(learner, granularity=m)) for m in sweeps.GRANULARITIES]
        there = [s for s in ours if table.runs(s) and table.runs(replace(s, method="grid", scale=1.0))]
        if len(there) < 2:
            return []
        at = np.log([setting.granularity for setting in there])
        theirs = [replace(setting, method="grid", scale=1.0) for setting in there]
        seconds = np.log(np.maximum(table.paired([*there, *theirs], "seconds"), 1e-6))
        count = len(there)
        mine, grids = mean_slope(seconds[:, :count], at), mean_slope(seconds[:, count:], at)
        last = np.exp(seconds[:, [count - 1, -1]]).mean(axis=0)
        about = (
            f"time ~ M^{mine.estimate:.2f}, grid ~ M^{grids.estimate:.2f}; at M = {there[-1].granularity} "
            f"{last[0]:.2f} s, grid {last[1]:.2f} s"
        )
        return [mean_slope(seconds[:, count:] - seconds[:, :count], at, about)]

    return compare


def _grows_at_most(
    place: Place, field: str, values: Sequence[float], sign: int, power: float, symbol: str
) -> Comparisons:
    """How far the slope of log gap on sign · log value stays below `power`, on the gap to the true optimum."""

    def compare(table: Table, learner: Setting) -> list[Interval]:
        there = table.present([replace(place(learner), **{field: value}) for value in values])  # type: ignore[arg-type]
        gaps = table.paired(there, "gap_optimum")
        if len(there) < 2 or not len(gaps):
            return []
        slope = slope_of_means(gaps, sign * np.log([getattr(setting, field) for setting in there]))
        about = f"gap ~ {symbol}^{slope.estimate:.2f}{_same(gaps)}"
        return [slope.moved(-1, power, about)]

    return compare


def _same(gaps: FloatArray) -> str:
    """Say so when a learner does the same whatever varies: its claim is then decided, but about nothing."""
    return f"; {NEVER_CHANGES}" if np.ptp(gaps, axis=1).max() < ROUNDING else ""


def _claims() -> list[Claim]:
    found = []
    for data in PLACES:
        for method, name in (("input", "input perturbation"), ("output", "output perturbation")):
            text = f"POOL beats {name} at every ρ"
            found.append(Claim(text, data, f"gap of {name} − gap, least over ρ", "pp", beats(method, PLACES[data])))
    for data in PLACES:
        text = "POOL closely approaches NonPrivate (within 1 pp at the largest ρ)"
        found.append(Claim(text, data, "1 pp − |gap − gap at ρ = ∞|", "pp", approaches(PLACES[data], (40.0,), CLOSE)))
    trends: list[tuple[str, str, Sequence[float], Callable[[FloatArray], FloatArray], int, str]] = [
        ("The gap grows with the horizon H", "horizon", sweeps.HORIZONS, np.log2, 1, "slope per doubling of H"),
        ("The gap falls as |λ| grows", "boundary", sweeps.BOUNDARIES, lambda x: 10 * x, -1, "−slope per 0.1 of λ"),
        ("The gap grows with w + d", "products", sweeps.PRODUCTS, np.log2, 1, "slope per doubling of w + d"),
        ("The gap falls as M grows", "granularity", sweeps.GRANULARITIES, np.log2, -1, "−slope per doubling of M"),
    ]
    for text, field, values, at, sign, statistic in trends:
        found.append(Claim(text, "synthetic", statistic, "pp", _trend(field, values, at, sign)))
    for data in PAPERS:
        text = "POOL beats a grid on the gap at every M"
        found.append(Claim(text, data, "gap of the grid − gap, least over M", "pp", _beats_grid(PLACES[data])))
    for data in PAPERS:
        text = "POOL's time grows more slowly with M than a grid's"
        found.append(Claim(text, data, "exponent of the grid − exponent", "", _scales_better(PLACES[data])))
    for data in KNOWN_OPTIMUM:
        compare = _grows_at_most(PLACES[data], "trajectories", sweeps.TRAJECTORIES, 1, -0.5, "n")
        text = "Sample complexity: the gap falls at least as n^(−1/2)"
        found.append(Claim(text, data, "−1/2 − slope of log gap on log n", "", compare))
    for data in KNOWN_OPTIMUM:
        compare = _grows_at_most(PLACES[data], "rho", sweeps.RHOS, -1, 0.25, "(1/ρ)")
        text = "Sample complexity: the gap grows at most as (1/ρ)^(1/4)"
        found.append(Claim(text, data, "1/4 − slope of log gap on log 1/ρ", "", compare))
    return found


CLAIMS = tuple(_claims())


def verdicts(table: Table) -> list[Verdict]:
    """Every claim of the paper for every learner."""
    return [claim.verdict(table, name, learner) for claim in CLAIMS for name, learner in LEARNERS.items()]


def privacy_verdicts() -> list[Verdict]:
    """ρ-zCDP by measurement (`privacy_check`)."""
    text, data, statistic = "POOL satisfies ρ-zCDP", NEIGHBOURS, "1 − largest ‖Δ counts‖² / Δ₂², not below zero"
    found = []
    for evidence in privacy_evidence():
        room = 1 - evidence.largest_change
        about = (
            f"{evidence.pairs} pairs; variance of {evidence.draws:,} draws {evidence.noise_ratio[0]:.3f} to "
            f"{evidence.noise_ratio[1]:.3f} of what was paid for; Σ Δ₂²/2σ² = {evidence.composed:g}"
        )
        verdict = "holds" if evidence.holds else "does not hold"
        # Both scales of Γ have the same release, which comes before it.
        for learner in LEARNERS:
            if learner.startswith(evidence.learner):
                found.append(Verdict(text, data, learner, verdict, statistic, _exactly(room, about), ""))
    return found


def _exactly(value: float, about: str) -> Interval:
    return Interval(value, np.full(2, value), 0, about)
