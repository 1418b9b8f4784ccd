"""A simulated grocer: its public facts, its demand that only nature knows, and the table it would have kept."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from poolrl.checks import FloatArray, IntArray
from poolrl.data.trajectories import Trajectories
from poolrl.problems.inventory import LostSales
from poolrl.shop.sales import from_sales, long_columns
from poolrl.simulation.logs import simulate_log

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
PRODUCTS = ("bread", "milk", "salad")
SHOP_COUNT, WEEK_COUNT = 40, 50
FIRST_MONDAY = datetime.date(2025, 1, 6)


def simulated_shop(seed: int) -> tuple[LostSales, FloatArray, FloatArray]:
    """A grocer's week: the problem (public) and the demand that only nature knows, as means and spreads (H, k)."""
    rng = np.random.default_rng(seed)
    weekly = np.array([0.8, 0.85, 0.9, 1.0, 1.3, 1.5, 0.6])  # Saturday is busy, Sunday is quiet
    means = weekly[:, None] * np.array([45.0, 60.0, 20.0]) * rng.uniform(0.9, 1.1, (len(DAYS), len(PRODUCTS)))
    problem = LostSales(
        horizon=len(DAYS),
        products=len(PRODUCTS),
        holding=np.array([0.30, 0.10, 0.50]),  # bread and salad spoil, milk keeps
        shortage=np.array([0.60, 0.40, 0.70]),
        demand_max=np.array([150.0, 200.0, 100.0]),  # round numbers from the size of the shelf, not from data
    )
    return problem, means, means * rng.uniform(0.2, 0.4, means.shape)


def draw_demand(means: FloatArray, spreads: FloatArray, weeks: int, top: FloatArray, *, seed: int) -> FloatArray:
    """Weekly demand (weeks, H, k), skewed to the right as demand is."""
    rng = np.random.default_rng(seed)
    shape = (means / spreads) ** 2
    return np.minimum(rng.gamma(shape, means / shape, (weeks, *means.shape)), top)


def simulated_log(problem: LostSales, means: FloatArray, demand: FloatArray, *, seed: int) -> Trajectories:
    """What the shop saw under last year's manager, who ordered by feel, the same on every day of the week."""
    usual = means.mean(axis=0)

    def habit(step: int, stock: FloatArray, rng: np.random.Generator) -> FloatArray:
        return np.maximum(stock, np.rint(usual * rng.uniform(0.4, 2.0, stock.shape)))

    return simulate_log(problem, demand, rng=np.random.default_rng(seed), behaviour=habit)


def write_example(folder: Path, *, sales: bool, seed: int) -> dict[str, dict[str, Any]]:
    """Write a chain's table under `folder` and return the facts of a configuration that fits it."""
    problem, means, spreads = simulated_shop(seed)
    demand = np.rint(draw_demand(means, spreads, SHOP_COUNT * WEEK_COUNT, problem.demand_max, seed=seed + 1))
    log = simulated_log(problem, means, demand, seed=seed + 2)
    where = Path("sensitive") / ("sales.csv" if sales else "log.parquet")
    if (folder / where).exists():
        raise ValueError(f"{folder / where} exists, and might be somebody's only log: move it, or init elsewhere")
    (folder / where.parent).mkdir(parents=True, exist_ok=True)
    if sales:
        pyarrow.csv.write_csv(_sales_export(log), folder / where)
    else:
        pq.write_table(_long_table(log), folder / where)
    return {
        "problem": {
            "kind": "lost sales",
            "products": list(PRODUCTS),
            "horizon": problem.horizon,
            "steps": list(DAYS),
            "holding": problem.holding[0].tolist(),
            "shortage": problem.shortage[0].tolist(),
            "demand_max": problem.demand_max.tolist(),
            "boundary": 1.0,
        },
        "log": {"source": where.as_posix(), "clip": False}
        | (from_sales(PRODUCTS) if sales else long_columns(PRODUCTS)),
        "privacy": {
            "rho": 0.1,
            "budget": 0.3,
            "data_set": "the example's shops",
            "protects": "one week of one shop",
            "ledger": "ledger.sqlite",
        },
        "plan": {"units": SHOP_COUNT * WEEK_COUNT, "demand": "any"},
        "publication": {
            "name": "Weekly ordering policy",
            "curator": "The example's grocer",
            "region": "Nowhere: simulated",
            "intended_use": "Order-up-to levels for the coming year.",
        },
    }


def _long_table(log: Trajectories) -> pa.Table:
    """One row per shop, week and day; a column per product for opening stock, order-up-to level and what was left."""
    shop, week, day = _index(len(log), log.horizon)
    columns: dict[str, Any] = {"week": _week_names(shop, week), "shop": shop, "day": day}
    for i, product in enumerate(PRODUCTS):
        columns[f"{product}_opening"] = log.states[:, :, i].ravel().astype(int)
        columns[f"{product}_order_up_to"] = log.actions[:, :, i].ravel().astype(int)
        columns[f"{product}_left"] = log.next_states[:, :, i].ravel().astype(int)
    return pa.table(columns)


def _sales_export(log: Trajectories) -> pa.Table:
    """What a till writes: a row per shop, date and product; opening stock, delivery, sales, and whether it ran out."""
    shop, week, day = (np.repeat(part, len(PRODUCTS)) for part in _index(len(log), log.horizon))
    opening, order, left = (part.ravel().astype(int) for part in (log.states, log.actions, log.next_states))
    dates = np.datetime64(FIRST_MONDAY) + (7 * week + day - 1).astype("timedelta64[D]")
    return pa.table(
        {
            "shop": shop,
            "date": dates,
            "product": list(PRODUCTS) * (len(log) * log.horizon),
            "opening": opening,
            "delivery": order - opening,
            "sales": order - left,
            "stock_out": left == 0,
        }
    )


def _index(trajectories: int, horizon: int) -> tuple[IntArray, IntArray, IntArray]:
    """Shop (1, 2, ...), week (0, 1, ...) and day (1 ... H) of every row."""
    number = np.repeat(np.arange(trajectories), horizon)
    return number // WEEK_COUNT + 1, number % WEEK_COUNT, np.tile(np.arange(1, horizon + 1), trajectories)


def _week_names(shop: IntArray, week: IntArray) -> list[str]:
    return [f"shop {s}, week {w + 1}" for s, w in zip(shop, week, strict=True)]
