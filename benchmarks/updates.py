"""Next month: is it worth it to update every month, and how fast should earlier months fade?

    python -m benchmarks.updates              the whole table (about four minutes on two free cores)
    python -m benchmarks.updates --seeds 4    with smaller errors

A year of twelve months, with as many weeks of shops in each, or months after a first fit on a whole year. Demand of a
family is scaled by a factor that drifts from month to month: not at all, slowly upwards, by the season, by a sudden
step, or differently for each product and day.
After each month a policy is made, and judged in the next one: the gap is (c - c*) / c* in percent, where c* is the cost
of SAA on 20,000 weeks of next month's demand, without censoring or noise. Every release has rho = 0.1.

    month one     a single fit on the first month; or on the year before, where there was one
    updates, g    an update each month: the trees of earlier months count g times as much with every month
    year          one fit at the end of the year on all twelve months, judged like the last update

The noise is seeded and has the true distribution, so nothing here is private. One week loses what the ledger adds up.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks.report import Report, run
from poolrl import LostSales, Outcomes, Policy, Pool, SeededNoise, Trajectories
from poolrl.checks import FloatArray
from poolrl.learning.faded_trees import FadedTrees
from poolrl.ledger.accounts import Period, ProtectedUnit
from poolrl.ledger.ledger import Ledger, Sketch
from poolrl.simulation.evaluation import rollout_cost, saa
from poolrl.simulation.families import FAMILIES, TOP

RHO = 0.1
MONTHS, HORIZON, PRODUCTS = 12, 7, 3
FACTORS = (1.0, 0.9, 0.8, 0.6, 0.5)
# Weeks of shops in a month: 40 shops, and 250.
SIZES = (160, 1000)
# After a year of months with this number of weeks, one month is often small beside what is known.
YEAR_BEFORE, SIZES_AFTER, DRIFTS_AFTER = 160, (40, 160), ("none", "slow rise", "each its own")
PATHS, TRAINING_PATHS = 4_000, 20_000
DEMANDS = ("normal", "exponential", "bimodal")

# (month, a number in [-1, 1] for each step and product) → factor of demand.
Drift = Callable[[int, FloatArray], FloatArray]
DRIFTS: dict[str, Drift] = {
    "none": lambda month, own: np.ones_like(own),
    "slow rise": lambda month, own: np.full_like(own, 0.75 * 1.04**month),
    "season": lambda month, own: np.full_like(own, 0.8 + 0.25 * np.sin(2 * np.pi * month / 12)),
    "step in July": lambda month, own: np.full_like(own, 0.65 if month < 6 else 0.95),
    "each its own": lambda month, own: 0.8 * np.exp(own * 0.5 * (month / 12 - 0.5)),
}


# Family, drift, weeks a month, seed, and whether the first release read a year.
Case = tuple[str, str, int, int, bool]


def one_year(case: Case) -> dict[str, list[float]]:
    """The gap of each learner, in percent, month by month. The first month may be a whole year."""
    family, drift, size, seed, year_before = case
    rng = np.random.default_rng([seed, size, *map(ord, family + drift)])
    shape = (HORIZON, PRODUCTS)
    law, own = FAMILIES[family](rng, shape), rng.uniform(-1, 1, shape)
    problem = LostSales(
        horizon=HORIZON, products=PRODUCTS, holding=rng.uniform(0.1, 0.5, PRODUCTS), shortage=0.5, demand_max=TOP
    )

    def demand(month: int, weeks: int) -> FloatArray:
        return np.minimum(law.sample(rng, weeks) * DRIFTS[drift](month, own), TOP)

    first_weeks = [demand(0, size)]
    if year_before:
        first_weeks = [demand(month, YEAR_BEFORE) for month in range(1 - MONTHS, 1)]
    logs = [problem.simulate_log(np.concatenate(first_weeks), rng=rng)]
    logs += [problem.simulate_log(demand(month, size), rng=rng) for month in range(1, MONTHS)]
    first = Pool(RHO).prepare(problem)
    released = [first.release(logs[0], SeededNoise(seed))]
    settings = Outcomes(bins=released[0].levels[-1].shape[-1])
    prepared = Pool(RHO, settings).prepare(problem)
    released += [prepared.release(log, SeededNoise(seed + 1000 * month)) for month, log in enumerate(logs[1:], 1)]
    policies: dict[str, list[Policy]] = {"month one": [prepared.learn(released[0])] * MONTHS}
    for factor in FACTORS:
        trees, made = FadedTrees.of(released[0]), [policies["month one"][0]]
        for each in released[1:]:
            trees = FadedTrees.of(each).after(trees, factor)
            made.append(prepared.learn(trees.to_learn_from(each)))
        policies[f"updates, {factor:g}"] = made
    parts: dict[str, Any] = {
        name: np.concatenate([getattr(log, name) for log in logs]) for name in ("states", "actions", "next_states")
    }
    policies["year"] = [Pool(RHO).fit(problem, Trajectories(**parts), noise=SeededNoise(seed + 10**6))]
    gaps: dict[str, list[float]] = {name: [] for name in policies}
    for month in range(1, MONTHS + 1):
        # The season of the year after is that of the first month.
        paths, best = demand(month, PATHS), saa(problem, demand(month, TRAINING_PATHS))
        least = rollout_cost(problem, best, paths)
        for name, made in policies.items():
            if name != "year" or month == MONTHS:
                policy = made[0] if name == "year" else made[month - 1]
                gaps[name].append(100 * (rollout_cost(problem, policy, paths) / least - 1))
    return gaps


def spent_by_one_week() -> Fraction:
    """What twelve monthly releases cost one week, by a ledger."""
    week = ProtectedUnit("week")
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.sqlite") as ledger:
        ledger.open_account("shops", RHO)
        for month in range(MONTHS):
            entry = ledger.reserve("shops", RHO, week, Period("week", 4 * month, 4 * month + 4))
            mark = month.to_bytes(16, "big")
            ledger.read(entry, Sketch(mark, (mark,)))
            ledger.commit(entry, {"policy.npz": str(month)})
        account = ledger.account("shops")
        assert account is not None
        return account.spent


def mean_gaps(found: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Over several years, month by month."""
    return {name: [fmean(each) for each in zip(*(one[name] for one in found), strict=True)] for name in found[0]}


def _mean(gaps: list[float]) -> str:
    return f"{gaps[-1] if len(gaps) == 1 else fmean(gaps[1:]):.1f}"


def compare(report: Report, asked: argparse.Namespace) -> None:
    """Each drift by itself: from the first month on, and after a first fit on a year."""
    seeds = range(asked.first, asked.first + asked.seeds)
    cases: list[Case] = list(product(DEMANDS, DRIFTS, SIZES, seeds, [False]))
    cases += product(DEMANDS, DRIFTS_AFTER, SIZES_AFTER, seeds, [True])
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as pool:
        done = track(pool.map(one_year, cases), description="years", total=len(cases))
        years = dict(zip(cases, done, strict=True))
    report.text(
        f"Twelve months, judged in the next one. Three families of demand, five drifts, {SIZES[0]} and {SIZES[1]:,} "
        f"weeks a month, ρ = {RHO:g} for every release. The gap is to SAA on next month's demand, in percent."
    )
    title = "By drift and weeks a month: mean over months 2 to 12"
    report.table(*_by_drift(years, list(product(DRIFTS, SIZES)), year_before=False), title=title)
    title = f"After a first fit on a year of {YEAR_BEFORE} weeks a month: the same"
    report.table(*_by_drift(years, list(product(DRIFTS_AFTER, SIZES_AFTER)), year_before=True), title=title)
    report.text(f"What one week loses to all twelve releases, by the ledger: ρ = {float(spent_by_one_week()):g}.")


def _by_drift(
    years: dict[Case, dict[str, list[float]]], groups: list[tuple[str, int]], *, year_before: bool
) -> tuple[list[str], list[list[str]]]:
    """Header and rows: a column for each drift and size."""
    tables = [
        mean_gaps([year for case, year in years.items() if (*case[1:3], case[-1]) == (*group, year_before)])
        for group in groups
    ]
    rows = [[name, *(_mean(gaps[name]) for gaps in tables)] for name in tables[0]]
    return ["", *(f"{drift}, {size:,}" for drift, size in groups)], rows


if __name__ == "__main__":
    run(
        Report("updates", "Next month: updates against one fit", ("geometry", "learning")),
        compare,
        seeds=(1, "seeds of each case"),
        first=(0, "the first of them"),
        workers=(2, "years at a time"),
    )
