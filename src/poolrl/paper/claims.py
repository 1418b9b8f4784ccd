"""The paper's claims and our own targets, each judged from the results by one rule. No verdict is typed.

A claim is a set of comparisons, each a number that the claim says is positive, paired over seeds, with a bootstrap
interval that assumes nothing about how gaps are distributed; `judge` is the rule. A claim that holds for a policy that
never changes is *vacuous*. The guarantee is not judged from rows: the room `audit` attacks the releases themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from poolrl.checks import FloatArray
from poolrl.paper import sweeps
from poolrl.paper.results import Runs
from poolrl.paper.sweeps import FEWEST_SEEDS, GRANULARITIES, GRID, INPUT, JUDGED, NAMES, OUTPUT, PLACES, RHOS, Setting

RESAMPLES = 10_000
EQUAL_WITHIN = 1e-9  # smaller differences are rounding
NEVER_CHANGES = "the policy never changes"


@dataclass(frozen=True)
class Estimate:
    """A value with its bootstrap distribution, and what it is about."""

    value: float
    plausible: FloatArray = field(repr=False, compare=False)  # sorted; its quantiles bound the truth
    seeds: int
    about: str = ""

    @property
    def low(self) -> float:
        """The lower end of the 95% interval."""
        return float(np.quantile(self.plausible, 0.025))

    @property
    def high(self) -> float:
        """Its upper end."""
        return self.upper(1)

    def upper(self, comparisons: int) -> float:
        """The upper end when this is one of several comparisons, any of which may fail by chance (Bonferroni)."""
        return float(np.quantile(self.plausible, 1 - 0.025 / comparisons))

    def through(self, function: Callable[[Any], Any], about: str) -> Estimate:
        """The estimate of function(x)."""
        return Estimate(function(self.value), np.sort(function(self.plausible)), self.seeds, about)


def of_mean(values: FloatArray, about: str = "") -> Estimate:
    """The mean over seeds, with a bootstrap-t interval. With few seeds a percentile interval would be too short.

    The truth is m − t* s, with t* = (m* − m) / s* over resamples of the seeds and s the standard error.
    """
    count, mean = len(values), float(values.mean())
    error = values.std(ddof=1) / np.sqrt(count) if count > 1 else 0.0
    if error <= EQUAL_WITHIN:
        return Estimate(mean, np.full(2, mean), count, about)
    sample = values[np.random.default_rng(0).integers(0, count, (RESAMPLES, count))]
    spread = np.maximum(sample.std(axis=1, ddof=1) / np.sqrt(count), 1e-3 * error)  # a resample may be all one seed
    return Estimate(mean, np.sort(mean - (sample.mean(axis=1) - mean) / spread * error), count, about)


def mean_difference(pairs: FloatArray, about: str = "") -> Estimate:
    """Mean over seeds of second minus first."""
    return of_mean(pairs[:, 1] - pairs[:, 0], about)


def mean_slope(values: FloatArray, at: FloatArray, about: str = "") -> Estimate:
    """Mean over seeds of the least-squares slope of `values` (seeds, points) against `at` (points,)."""
    centred = at - at.mean()
    return of_mean(values @ centred / (centred @ centred), about)


def slope_of_means(values: FloatArray, at: FloatArray) -> Estimate:
    """The slope of log mean gap against `at`: single gaps may be zero, their means are not.

    This slope is not a mean over seeds. The jackknife makes it one: n θ − (n − 1) θ₋ᵢ stands for seed i.
    """
    centred = at - at.mean()

    def slope(gaps: FloatArray) -> float:
        return float(np.log(np.maximum(gaps.mean(axis=0), 1e-9)) @ centred / (centred @ centred))

    count, every = len(values), slope(values)
    if count < 2:
        return Estimate(every, np.full(2, every), count)
    without = np.array([slope(np.delete(values, seed, axis=0)) for seed in range(count)])
    return replace(of_mean(count * every - (count - 1) * without), value=every)


def judge(comparisons: Sequence[Estimate]) -> tuple[str, Estimate]:
    """Whether every comparison is positive, and the one that decided.

    *holds*: every 95% interval lies above zero. *does not hold*: one lies at or below zero, at a level that allows for
    their number. Otherwise, or with fewer than FEWEST_SEEDS, the claim is *undecided*.
    """
    worst = min(comparisons, key=lambda estimate: estimate.low)
    if min(estimate.seeds for estimate in comparisons) < FEWEST_SEEDS:
        return "undecided", worst
    against = [estimate for estimate in comparisons if estimate.upper(len(comparisons)) <= EQUAL_WITHIN]
    if against:
        return "does not hold", min(against, key=lambda estimate: estimate.high)
    return ("holds" if worst.low > EQUAL_WITHIN else "undecided"), worst


@dataclass(frozen=True)
class Verdict:
    """One claim, for one learner, on one data set."""

    claim: str
    data: str
    statistic: str  # what is claimed to be positive
    unit: str
    learner: str
    verdict: str = "not run"  # or holds, does not hold, undecided, vacuous
    worst: Estimate | None = None  # the comparison that decided
    comparisons: int = 1  # of which `worst` is one


@dataclass(frozen=True)
class Claim:
    """A claim in one line, where it is judged, and how a learner's comparisons are made."""

    text: str
    data: str
    statistic: str
    unit: str
    compare: Callable[[Runs, Setting], Iterable[Estimate]]

    def verdict(self, runs: Runs, learner: Setting) -> Verdict:
        """Judge one learner."""
        not_run = Verdict(self.text, self.data, self.statistic, self.unit, NAMES[learner])
        comparisons = [*self.compare(runs, learner)]
        if not comparisons:
            return not_run
        verdict, worst = judge(comparisons)
        if verdict == "holds" and all(NEVER_CHANGES in estimate.about for estimate in comparisons):
            verdict = "vacuous"
        return replace(not_run, verdict=verdict, worst=worst, comparisons=len(comparisons))


def _beats(
    rival: Setting, place: sweeps.Place, each: sweeps.Range, runs: Runs, learner: Setting, *, times: float = 1.0
) -> Iterator[Estimate]:
    """At each value: the rival's gap minus a multiple of the learner's."""
    if rival == GRID and learner != sweeps.PUBLISHED:
        rival = sweeps.SOFT_GRID  # the printed constants meet the printed grid, the others meet the better one
    for ours in each.over(place(learner)):
        pairs = runs.paired([ours, replace(ours, method=rival.method, scale=rival.scale)], "gap_common")
        if len(pairs):
            yield mean_difference(100 * pairs * np.array([times, 1.0]), f"{each.symbol} = {each.of(ours):g}")


def _approaches(
    place: sweeps.Place, rhos: sweeps.Range, within: float, runs: Runs, learner: Setting
) -> Iterator[Estimate]:
    """At each ρ: how much room is left between the gap with and without privacy, on either side, in points."""
    for ours in rhos.over(place(learner)):
        pairs = 100 * runs.paired([ours, replace(ours, rho=math.inf)])
        if len(pairs):
            private, without = pairs.mean(axis=0)
            about = f"ρ = {ours.rho:g}: {private:.2f} against {without:.2f} percent"
            yield mean_difference(pairs).through(lambda apart: within - np.abs(apart), about)


def _trend(
    each: sweeps.Range, at: Callable[[FloatArray], FloatArray], sign: int, runs: Runs, learner: Setting
) -> Iterator[Estimate]:
    """The slope of the gap against at(value), with the sign that makes the claim positive."""
    there = runs.present(each.over(learner))
    gaps = runs.paired(there)
    if len(there) >= 2 and len(gaps):
        means = 100 * gaps.mean(axis=0)
        about = f"{means[0]:.3g} to {means[-1]:.3g} percent over {len(there)} values{_same(gaps)}"
        yield mean_slope(sign * 100 * gaps, at(np.array([each.of(setting) for setting in there])), about)


def _scales_better(place: sweeps.Place, runs: Runs, learner: Setting) -> Iterator[Estimate]:
    """The exponent of the grid's time in M, minus the learner's."""
    pairs = [(ours, replace(ours, method=GRID.method, scale=GRID.scale)) for ours in GRANULARITIES.over(place(learner))]
    there = [(ours, grid) for ours, grid in pairs if runs.of(ours) and runs.of(grid)]
    if len(there) >= 2:
        ours, grids = zip(*there, strict=True)
        at = np.log([setting.granularity for setting in ours])
        seconds = np.log(np.maximum(runs.paired([*ours, *grids], "seconds"), 1e-6))
        own, other = seconds[:, : len(ours)], seconds[:, len(ours) :]
        exponents = [mean_slope(part, at).value for part in (own, other)]
        last = [np.exp(part[:, -1]).mean() for part in (own, other)]
        about = (
            f"time ~ M^{exponents[0]:.2f}, grid ~ M^{exponents[1]:.2f}; at M = {ours[-1].granularity} "
            f"{last[0]:.2f} s, grid {last[1]:.2f} s"
        )
        yield mean_slope(other - own, at, about)


def _grows_at_most(
    place: sweeps.Place, each: sweeps.Range, sign: int, power: float, symbol: str, runs: Runs, learner: Setting
) -> Iterator[Estimate]:
    """How far the slope of log gap on sign · log value stays below `power`, on the gap to the true optimum."""
    there = runs.present(each.over(place(learner)))
    gaps = runs.paired(there, "gap_optimum")
    if len(there) >= 2 and len(gaps):
        slope = slope_of_means(gaps, sign * np.log([each.of(setting) for setting in there]))
        yield slope.through(lambda x: power - x, f"gap ~ {symbol}^{slope.value:.2f}{_same(gaps)}")


def _gap_below(limit: float, rho: float, runs: Runs, learner: Setting) -> Iterator[Estimate]:
    """How far the gap on Store 1 stays below a limit."""
    gaps = 100 * runs.paired([sweeps.real(replace(learner, rho=rho))])
    if len(gaps):
        yield of_mean(limit - gaps[:, 0], f"gap {gaps.mean():.2f} percent")


def _same(gaps: FloatArray) -> str:
    """A note for a learner that does the same at every value: its verdict then says nothing about the trend."""
    return f"; {NEVER_CHANGES}" if np.ptp(gaps, axis=1).max() < EQUAL_WITHIN else ""


def _rhos_from(least: float) -> sweeps.Range:
    return replace(RHOS, values=tuple(rho for rho in RHOS.values if rho >= least))


def _claims() -> Iterator[Claim]:
    for data, place in PLACES.items():
        for rival in (INPUT, OUTPUT):
            text, statistic = f"POOL beats {NAMES[rival]} at every ρ", f"gap of {NAMES[rival]} − gap, least over ρ"
            yield Claim(text, data, statistic, "pp", partial(_beats, rival, place, RHOS))
    for data, place in PLACES.items():
        text = "POOL closely approaches NonPrivate (within 1 pp at the largest ρ)"
        compare = partial(_approaches, place, _rhos_from(RHOS.values[-1]), 1.0)
        yield Claim(text, data, "1 pp − |gap − gap at ρ = ∞|", "pp", compare)
    for text, statistic, each, at, sign in (
        ("The gap grows with the horizon H", "slope per doubling of H", sweeps.HORIZONS, np.log2, 1),
        ("The gap falls as |λ| grows", "−slope per 0.1 of λ", sweeps.BOUNDARIES, partial(np.multiply, 10), -1),
        ("The gap grows with w + d", "slope per doubling of w + d", sweeps.PRODUCT_COUNTS, np.log2, 1),
        ("The gap falls as M grows", "−slope per doubling of M", GRANULARITIES, np.log2, -1),
    ):
        yield Claim(text, sweeps.SYNTHETIC, statistic, "pp", partial(_trend, each, at, sign))
    for data in sweeps.PAPERS:
        text, statistic = "POOL beats a grid on the gap at every M", "gap of the grid − gap, least over M"
        yield Claim(text, data, statistic, "pp", partial(_beats, GRID, PLACES[data], GRANULARITIES))
    for data in sweeps.PAPERS:
        text, statistic = "POOL's time grows more slowly with M than a grid's", "exponent of the grid − exponent"
        yield Claim(text, data, statistic, "", partial(_scales_better, PLACES[data]))
    for text, statistic, each, sign, power, symbol in (
        ("falls at least as n^(−1/2)", "−1/2 − slope of log gap on log n", sweeps.LOG_SIZES, 1, -0.5, "n"),
        ("grows at most as (1/ρ)^(1/4)", "1/4 − slope of log gap on log 1/ρ", RHOS, -1, 0.25, "(1/ρ)"),
    ):
        for data in sweeps.KNOWN_OPTIMUM:
            compare = partial(_grows_at_most, PLACES[data], each, sign, power, symbol)
            yield Claim(f"Sample complexity: the gap {text}", data, statistic, "", compare)


def _targets() -> Iterator[Claim]:
    """What we ask of the default ourselves."""
    rivals = ((INPUT, "IP"), (OUTPUT, "OP"))
    for data in sweeps.PAPERS:
        for rival, name in rivals:
            compare = partial(_beats, rival, PLACES[data], _rhos_from(0.03))
            yield Claim(f"beats {name} at every ρ ≥ 0.03", data, f"gap of {name} − gap", "pp", compare)
    for rival, name in rivals:
        text, statistic = f"gap at most 1/20 of {name}'s at ρ = 1", f"gap of {name} − 20 gap"
        compare = partial(_beats, rival, PLACES[sweeps.SYNTHETIC], replace(RHOS, values=(1.0,)), times=20)
        yield Claim(text, sweeps.SYNTHETIC, statistic, "pp", compare)
    for data in sweeps.KNOWN_OPTIMUM:
        text = "within 0.5 pp of NonPrivate at every ρ ≥ 1, n = 10,000"
        compare = partial(_approaches, PLACES[data], _rhos_from(1.0), 0.5)
        yield Claim(text, data, "0.5 pp − |gap − gap at ρ = ∞|", "pp", compare)
    for rho, limit in ((10.0, 2.0), (1.0, 8.0)):
        text = f"gap to SAA on the same 66 weeks at most {limit:g}% at ρ = {rho:g}"
        yield Claim(text, sweeps.STORE_1, f"{limit:g} − gap", "pp", partial(_gap_below, limit, rho))


CLAIMS, TARGETS = tuple(_claims()), tuple(_targets())


def verdicts(runs: Runs) -> list[Verdict]:
    """Every claim of the paper for every learner."""
    return [claim.verdict(runs, learner) for claim in CLAIMS for learner in JUDGED]


def target_verdicts(runs: Runs) -> list[Verdict]:
    """Every target, for the default."""
    return [claim.verdict(runs, sweeps.BASE) for claim in TARGETS]
