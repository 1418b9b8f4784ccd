"""Posted prices on a grocer's scanner data: who bought crackers at which price, and what a private price would earn.

    POOLRL_SCANNER=Cracker.csv python -m benchmarks.prices            # about a minute
    POOLRL_SCANNER=Cracker.csv python -m benchmarks.prices --write

3,292 purchases of crackers by 136 households (Jain, Vilcassim and Chintagunta 1994), each with the prices of four
brands on that day and the brand that was bought. The file is `Cracker.csv` of the R package Ecdat (GPL 2 or later;
also in the Python package pydataset, MIT). Bring a copy. Columns: id, price.BRAND in cents, choice.

For each brand: the price on the shelf was asked, and the brand was bought or not. That is all a log of posted prices
shows. Nobody knows what another price would have sold. So half of the households (by lot, ten times) are the log, and
the demand curve of the other half, by isotonic regression without privacy, is the judge; it is known between the
prices that were asked. A unit is a household with 30 purchases at most. The margin counts above a cost of 60% of the
median price, which is assumed. Noise is seeded, so nothing here is private.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks.report import Report, run
from poolrl import DynamicPricing, Pool, SeededNoise, Trajectories
from poolrl.checks import BoolArray, FloatArray, IntArray

BRANDS, PER_HOUSEHOLD, SPLITS = ("nabisco", "private", "sunshine", "kleebler"), 30, 10
MOST, COST = 200.0, 0.6
BUDGETS = (math.inf, 10.0, 1.0, 0.1)


@dataclass(frozen=True)
class Purchases:
    """Prices and whether the brand was bought, by household."""

    household: IntArray
    price: FloatArray
    bought: BoolArray

    def of(self, households: IntArray) -> Purchases:
        """Those of some households."""
        mine = np.isin(self.household, households)
        return Purchases(self.household[mine], self.price[mine], self.bought[mine])


class DemandCurve:
    """How many buy at a price: isotonic, and known between the lowest and the highest price that were asked."""

    def __init__(self, seen: Purchases) -> None:
        self.prices, place, many = np.unique(seen.price, return_inverse=True, return_counts=True)
        shares = np.bincount(place, seen.bought) / many
        self.shares = isotonic_regression(shares, weights=many.astype(np.float64), increasing=False).x
        self.low, self.high = np.quantile(seen.price, [0.02, 0.98])

    def margin(self, price: float, cost: float) -> float:
        """The mean margin of a purchase at a price, or at the nearest one that is known."""
        at = float(np.clip(price, self.low, self.high))
        return float(np.interp(at, self.prices, self.shares)) * (at - cost)

    def best(self, cost: float) -> float:
        """The best price of the curve."""
        tried = np.linspace(self.low, self.high, 400)
        return float(tried[np.argmax([self.margin(price, cost) for price in tried])])


def read_purchases(path: Path, brand: str) -> Purchases:
    """One brand's rows of the panel."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    price = np.array([float(row[f"price.{brand}"]) for row in rows])
    bought = np.array([row["choice"] == brand for row in rows])
    return Purchases(np.array([int(row["id"]) for row in rows]), price, bought)


def _split(every: Purchases, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    households = rng.permutation(np.unique(every.household))
    log, judge = (every.of(part) for part in np.array_split(households, 2))
    cost = COST * float(np.round(np.median(every.price), -1))
    problem = DynamicPricing(price_max=MOST, keep=cost)
    state, price = np.ones((len(log.price), 1, 1)), log.price[:, None, None]
    after = 1.0 - log.bought[:, None, None].astype(np.float64)
    rows = Trajectories(states=state, actions=price, next_states=after, unit=log.household, max_per_unit=PER_HOUSEHOLD)
    curve = DemandCurve(judge)
    learned = [float(Pool(rho).fit(problem, rows, noise=SeededNoise(seed)).act(0, [1.0])[0]) for rho in BUDGETS]
    today = float(np.mean([curve.margin(each, cost) for each in judge.price]))
    margins = [today, *(curve.margin(each, cost) for each in learned), curve.margin(curve.best(cost), cost)]
    return [100 * each / today for each in margins]


def measure(report: Report, options: argparse.Namespace) -> None:
    """A table of margins over splits, today's being 100."""
    path = Path(os.environ.get("POOLRL_SCANNER", ""))
    if not path.is_file():
        raise SystemExit("set POOLRL_SCANNER to Cracker.csv of Ecdat; see --help")
    rows = []
    for brand in BRANDS:
        every = read_purchases(path, brand)
        found = np.array([_split(every, seed) for seed in range(SPLITS)])
        error = found.std(axis=0, ddof=1) / math.sqrt(SPLITS)
        rows.append([brand, *(f"{m:.0f} ± {e:.0f}" for m, e in zip(found.mean(axis=0), error, strict=True))])
    report.text(
        f"Margin of one purchase, today's prices being 100: mean ± standard error over {SPLITS} splits of the "
        "households. Prices were learned from one half, and judged on the demand curve of the other."
    )
    names = [
        "today",
        *(f"ρ = {'∞' if math.isinf(rho) else f'{rho:g}'}" for rho in BUDGETS),
        "best of the judge's curve",
    ]
    report.table(["brand", *names], rows)


if __name__ == "__main__":
    run(Report("prices", "A grocer's scanner data: posted prices", ("learning", "problems")), measure)
