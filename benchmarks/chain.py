"""A chain of shops as it is: daily demand of many stores, promotion weeks, and managers who order by what they expect.

Demand is Rossmann's daily sales (Kaggle's train.csv, the user's own copy). Where the file is missing it is made up:
stores that differ by a factor of ten, a closed Sunday, promotions every second week, slow drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from poolrl import Trajectories
from poolrl.checks import FloatArray, IntArray

DAYS = 7
# Weeks of history from which the first averages are made.
HISTORY = 4


@dataclass(frozen=True)
class Chain:
    """Demand (stores, weeks, 7), and whether each week is a promotion week."""

    demand: FloatArray
    promo: IntArray
    source: str

    @property
    def stores(self) -> int:
        """How many there are."""
        return len(self.demand)


def read_chain(path: Path | None) -> Chain:
    """Every store with complete weeks of Kaggle's train.csv, or a made-up chain."""
    if path is None:
        return made_up_chain(np.random.default_rng(0), stores=300, weeks=133)
    columns = {"Store": pa.int64(), "Date": pa.date32(), "Sales": pa.float64(), "Promo": pa.int64()}
    options = csv.ConvertOptions(include_columns=list(columns), column_types=columns)
    table = csv.read_csv(path, convert_options=options)
    store, sales, promo = (table[name].to_numpy() for name in ("Store", "Sales", "Promo"))
    day = table["Date"].cast(pa.int32()).to_numpy()
    first = date(1970, 1, 1) + timedelta(int(day.min()))
    monday = int(day.min()) + (-first.weekday()) % DAYS
    weeks = (int(day.max()) + 1 - monday) // DAYS
    inside = (day >= monday) & (day < monday + weeks * DAYS)
    daily = np.full((store.max() + 1, weeks * DAYS), np.nan)
    daily[store[inside], day[inside] - monday] = sales[inside]
    flags = np.zeros(weeks * DAYS, dtype=np.int64)
    flags[day[inside] - monday] = promo[inside]
    complete = daily[~np.isnan(daily).any(axis=1)]
    return Chain(
        complete.reshape(len(complete), weeks, DAYS), flags.reshape(weeks, DAYS).max(axis=1), "Rossmann (Kaggle)"
    )


def made_up_chain(rng: np.random.Generator, *, stores: int, weeks: int) -> Chain:
    """Sizes are lognormal, demand of a day is gamma around size × weekday × promotion × a slow random walk."""
    size = rng.lognormal(8.5, 0.5, (stores, 1, 1))
    weekday = np.array([1.25, 1.0, 0.95, 0.95, 1.05, 0.85, 0.0]) * rng.lognormal(0.0, 0.08, (stores, 1, DAYS))
    promo = (np.arange(weeks) % 2).astype(np.int64)
    lift = 1 + rng.uniform(0.2, 0.5, (stores, 1, 1)) * promo[:, None] * (np.arange(DAYS) < 5)
    drift = np.exp(np.cumsum(rng.normal(0.0, 0.03, (stores, weeks, 1)), axis=1))
    mean = size * weekday * lift * drift
    return Chain(mean * rng.gamma(25.0, 1 / 25.0, mean.shape), promo, "made up")


@dataclass(frozen=True)
class Weeks:
    """What a shop recorded, each (stores, weeks, 7): the average it went by, stock before and after ordering, left."""

    scale: FloatArray
    stock: FloatArray
    level: FloatArray
    left: FloatArray

    def log(self, weeks: slice, **known: object) -> Trajectories:
        """Store-weeks as trajectories, store by store."""
        parts = {"states": self.stock, "actions": self.level, "next_states": self.left}
        rows = {name: part[:, weeks].reshape(-1, DAYS, 1) for name, part in parts.items()}
        return Trajectories(**rows, **known)  # type: ignore[arg-type]

    def scales(self, weeks: slice) -> FloatArray:
        """The scale of the same trajectories."""
        return self.scale[:, weeks].reshape(-1, DAYS, 1)


def run_chain(chain: Chain, rule: object, *, weeks: slice, sold: FloatArray, stock: FloatArray) -> Weeks:
    """Let a rule order day by day. Stock carries over from day to day and from week to week.

    `rule(week, day, scale, stock)` returns order-up-to levels (stores,), where `scale` is the average *sales* of the
    last four same weekdays: under this very rule, once it has run for four weeks. `sold` (stores, 4, 7) are the sales
    of the four weeks before, `stock` (stores,) what is there at the beginning.
    """
    demand = chain.demand[:, weeks]
    scale, before, level, left = (np.empty_like(demand) for _ in range(4))
    history = np.concatenate([sold, np.zeros_like(demand)], axis=1)
    for week in range(demand.shape[1]):
        for day in range(DAYS):
            scale[:, week, day] = history[:, week : week + HISTORY, day].mean(axis=1)
            before[:, week, day] = stock
            wanted = rule(week, day, scale[:, week, day], stock)  # type: ignore[operator]
            level[:, week, day] = np.maximum(wanted, stock)
            stock = np.maximum(level[:, week, day] - demand[:, week, day], 0.0)
            left[:, week, day] = stock
            history[:, week + HISTORY, day] = level[:, week, day] - stock
    return Weeks(scale, before, level, left)


def sales(weeks: Weeks, last: int) -> FloatArray:
    """Sales of the last weeks, (stores, last, 7)."""
    return (weeks.level - weeks.left)[:, -last:]


def costs(chain: Chain, ran: Weeks, weeks: slice, holding: FloatArray, shortage: FloatArray) -> FloatArray:
    """The cost of each store (stores,) a week, with costs (..., 7)."""
    missing = np.maximum(chain.demand[:, weeks] - ran.level, 0.0)
    total = holding * ran.left + shortage * missing
    return np.asarray(total.sum(axis=-1).mean(axis=-1))
