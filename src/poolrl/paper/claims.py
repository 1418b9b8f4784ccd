"""The paper's claims, each judged from the results by one rule. No verdict is typed.

A claim is a set of comparisons, each a number that the claim says is positive, with a bootstrap interval over seeds;
`statistics.judge` is the rule. A claim that holds for a policy that never changes is *vacuous*.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from poolrl.checks import FloatArray
from poolrl.paper import sweeps
from poolrl.paper.privacy_check import privacy_evidence
from poolrl.paper.runs import Runs
from poolrl.paper.statistics import EQUAL_WITHIN, Estimate, judge, mean_difference, mean_slope, slope_of_means
from poolrl.paper.sweeps import GRANULARITIES, GRID, INPUT, JUDGED, NAMES, OUTPUT, PLACES, RHOS, Place, Range, Setting

# "Closely approaches" in numbers: within one percentage point.
CLOSE = 0.01
NEIGHBOURS = "neighbouring logs"
NEVER_CHANGES = "the policy never changes"


@dataclass(frozen=True)
class Verdict:
    """One claim, for one learner, on one data set."""

    claim: str
    data: str
    learner: str
    verdict: str  # holds, does not hold, undecided, vacuous or not run
    statistic: str  # what is claimed to be positive
    worst: Estimate | None  # the comparison that decided
    unit: str
    comparisons: int = 1  # of which `worst` is one


Comparisons = Callable[[Runs, Setting], list[Estimate]]


@dataclass(frozen=True)
class Claim:
    """A claim in one line, where it is judged, and how a learner's comparisons are made."""

    text: str
    data: str
    statistic: str
    unit: str
    compare: Comparisons

    def verdict(self, runs: Runs, learner: Setting) -> Verdict:
        """Judge one learner."""
        name, comparisons = NAMES[learner], self.compare(runs, learner)
        if not comparisons:
            return Verdict(self.text, self.data, name, "not run", self.statistic, None, self.unit)
        found, worst = judge(comparisons)
        if found == "holds" and all(NEVER_CHANGES in estimate.about for estimate in comparisons):
            found = "vacuous"
        return Verdict(self.text, self.data, name, found, self.statistic, worst, self.unit, len(comparisons))


def beats(rival: Setting, place: Place, each: Range = RHOS) -> Comparisons:
    """At each value: the rival's gap minus the learner's."""

    def compare(runs: Runs, learner: Setting) -> list[Estimate]:
        found = []
        for ours in each.over(place(learner)):
            theirs = replace(ours, method=rival.method, scale=rival.scale)
            pairs = runs.paired([ours, theirs], "gap_common")
            if len(pairs):
                found.append(mean_difference(100 * pairs, f"{each.symbol} = {each.of(ours):g}"))
        return found

    return compare


def approaches(place: Place, rhos: Range, within: float) -> Comparisons:
    """At each ρ: how much room is left between the gap with and without privacy, on either side."""

    def compare(runs: Runs, learner: Setting) -> list[Estimate]:
        found = []
        for ours in rhos.over(place(learner)):
            pairs = runs.paired([ours, replace(ours, rho=math.inf)])
            if len(pairs):
                gaps = 100 * pairs.mean(axis=0)
                about = f"ρ = {ours.rho:g}: {gaps[0]:.2f} against {gaps[1]:.2f} percent"
                found.append(mean_difference(100 * pairs).within(100 * within, about))
        return found

    return compare


def _trend(each: Range, at: Callable[[FloatArray], FloatArray], sign: int) -> Comparisons:
    """The slope of the gap against at(value), with the sign that makes the claim positive."""

    def compare(runs: Runs, learner: Setting) -> list[Estimate]:
        there = runs.present(each.over(learner))
        gaps = runs.paired(there)
        if len(there) < 2 or not len(gaps):
            return []
        means = 100 * gaps.mean(axis=0)
        about = f"{means[0]:.3g} to {means[-1]:.3g} percent over {len(there)} values{_same(gaps)}"
        return [mean_slope(sign * 100 * gaps, at(np.array([each.of(setting) for setting in there])), about)]

    return compare


def _beats_grid(place: Place) -> Comparisons:
    def compare(runs: Runs, learner: Setting) -> list[Estimate]:
        # Like against like: the printed constants meet the printed grid, the others meet the better one.
        grid = GRID if learner == sweeps.PUBLISHED else sweeps.SOFT_GRID
        return beats(grid, place, GRANULARITIES)(runs, learner)

    return compare


def _scales_better(place: Place) -> Comparisons:
    """The exponent of the grid's time in M, minus the learner's."""

    def compare(runs: Runs, learner: Setting) -> list[Estimate]:
        ours = GRANULARITIES.over(place(learner))
        pairs = [(mine, replace(mine, method=GRID.method, scale=GRID.scale)) for mine in ours]
        there = [(mine, grid) for mine, grid in pairs if runs.of(mine) and runs.of(grid)]
        count = len(there)
        if count < 2:
            return []
        at = np.log([mine.granularity for mine, _ in there])
        measured = runs.paired([mine for mine, _ in there] + [grid for _, grid in there], "seconds")
        seconds = np.log(np.maximum(measured, 1e-6))
        exponent, grids = (mean_slope(part, at).value for part in (seconds[:, :count], seconds[:, count:]))
        last = np.exp(seconds[:, [count - 1, -1]]).mean(axis=0)
        about = (
            f"time ~ M^{exponent:.2f}, grid ~ M^{grids:.2f}; at M = {there[-1][0].granularity} "
            f"{last[0]:.2f} s, grid {last[1]:.2f} s"
        )
        return [mean_slope(seconds[:, count:] - seconds[:, :count], at, about)]

    return compare


def _grows_at_most(place: Place, each: Range, sign: int, power: float, symbol: str) -> Comparisons:
    """How far the slope of log gap on sign · log value stays below `power`, on the gap to the true optimum."""

    def compare(runs: Runs, learner: Setting) -> list[Estimate]:
        there = runs.present(each.over(place(learner)))
        gaps = runs.paired(there, "gap_optimum")
        if len(there) < 2 or not len(gaps):
            return []
        slope = slope_of_means(gaps, sign * np.log([each.of(setting) for setting in there]))
        return [slope.moved(-1, power, f"gap ~ {symbol}^{slope.value:.2f}{_same(gaps)}")]

    return compare


def _same(gaps: FloatArray) -> str:
    """A note for a learner that does the same at every value: its verdict then says nothing about the trend."""
    return f"; {NEVER_CHANGES}" if np.ptp(gaps, axis=1).max() < EQUAL_WITHIN else ""


def _claims() -> list[Claim]:
    found = []
    for data, place in PLACES.items():
        for rival in (INPUT, OUTPUT):
            text, statistic = f"POOL beats {NAMES[rival]} at every ρ", f"gap of {NAMES[rival]} − gap, least over ρ"
            found.append(Claim(text, data, statistic, "pp", beats(rival, place)))
    for data, place in PLACES.items():
        text = "POOL closely approaches NonPrivate (within 1 pp at the largest ρ)"
        compare = approaches(place, replace(RHOS, values=RHOS.values[-1:]), CLOSE)
        found.append(Claim(text, data, "1 pp − |gap − gap at ρ = ∞|", "pp", compare))
    for text, statistic, compare in (
        ("The gap grows with the horizon H", "slope per doubling of H", _trend(sweeps.HORIZONS, np.log2, 1)),
        ("The gap falls as |λ| grows", "−slope per 0.1 of λ", _trend(sweeps.BOUNDARIES, lambda value: 10 * value, -1)),
        ("The gap grows with w + d", "slope per doubling of w + d", _trend(sweeps.PRODUCT_COUNTS, np.log2, 1)),
        ("The gap falls as M grows", "−slope per doubling of M", _trend(GRANULARITIES, np.log2, -1)),
    ):
        found.append(Claim(text, sweeps.SYNTHETIC, statistic, "pp", compare))
    for data in sweeps.PAPERS:
        text = "POOL beats a grid on the gap at every M"
        found.append(Claim(text, data, "gap of the grid − gap, least over M", "pp", _beats_grid(PLACES[data])))
    for data in sweeps.PAPERS:
        text = "POOL's time grows more slowly with M than a grid's"
        found.append(Claim(text, data, "exponent of the grid − exponent", "", _scales_better(PLACES[data])))
    for data in sweeps.KNOWN_OPTIMUM:
        text = "Sample complexity: the gap falls at least as n^(−1/2)"
        compare = _grows_at_most(PLACES[data], sweeps.LOG_SIZES, 1, -0.5, "n")
        found.append(Claim(text, data, "−1/2 − slope of log gap on log n", "", compare))
    for data in sweeps.KNOWN_OPTIMUM:
        text = "Sample complexity: the gap grows at most as (1/ρ)^(1/4)"
        compare = _grows_at_most(PLACES[data], RHOS, -1, 0.25, "(1/ρ)")
        found.append(Claim(text, data, "1/4 − slope of log gap on log 1/ρ", "", compare))
    return found


CLAIMS = tuple(_claims())


def verdicts(runs: Runs) -> list[Verdict]:
    """Every claim of the paper for every learner."""
    return [claim.verdict(runs, learner) for claim in CLAIMS for learner in JUDGED]


def privacy_verdicts() -> list[Verdict]:
    """ρ-zCDP by measurement (`privacy_check`)."""
    text, statistic = "POOL satisfies ρ-zCDP", "1 − largest ‖Δ counts‖² / Δ₂², not below zero"
    found = []
    for evidence in privacy_evidence():
        room = 1 - evidence.largest_change
        about = (
            f"{evidence.pairs} pairs; variance of {evidence.draws:,} draws {evidence.noise_ratio[0]:.3f} to "
            f"{evidence.noise_ratio[1]:.3f} of the variance claimed; Σ Δ₂²/2σ² = {evidence.composed:g}"
        )
        verdict, exactly = "holds" if evidence.holds else "does not hold", Estimate(room, np.full(2, room), 0, about)
        # Both scales of Γ share one release: Γ is applied after it.
        for name in (NAMES[learner] for learner in JUDGED):
            if name.startswith(evidence.learner):
                found.append(Verdict(text, NEIGHBOURS, name, verdict, statistic, exactly, ""))
    return found
