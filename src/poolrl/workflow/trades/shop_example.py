"""A simulated grocer: the public facts of its chain, its demand that only nature knows, and its sales export."""

import datetime
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from poolrl.checks import FloatArray
from poolrl.data.trajectories import Trajectories
from poolrl.problems.inventory import LostSales
from poolrl.simulation.logs import simulate_log
from poolrl.workflow.config.sales import WEEKDAYS

PRODUCTS = ("bread", "milk", "salad")
SHOP_COUNT, WEEK_COUNT = 40, 50
FIRST_MONDAY = datetime.date(2025, 1, 6)
PROMOTED = 1.5  # demand with a promotion, as a multiple


def usual_demand(seed: int) -> FloatArray:
    """The mean demand of a grocer's week (H, k), which only nature knows."""
    weekly = np.array([0.8, 0.85, 0.9, 1.0, 1.3, 1.5, 0.6])  # Saturday is busy, Sunday is quiet
    varied = np.random.default_rng(seed).uniform(0.9, 1.1, (len(WEEKDAYS), len(PRODUCTS)))
    return weekly[:, None] * np.array([45.0, 60.0, 20.0]) * varied


def write_example(folder: Path, *, seed: int = 1) -> dict[str, dict[str, Any]]:
    """Write a chain's sales export under `folder` and return the facts of a configuration that fits it."""
    facts = tomllib.loads((Path(__file__).parents[1] / "assets" / "example.toml").read_text("utf-8"))
    table = folder / facts["log"]["source"]
    if table.exists():
        raise ValueError(f"{table} exists, and might be somebody's only log: move it, or init elsewhere")
    table.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.csv.write_csv(simulated_chain(seed)[0], table)
    return facts


def simulated_chain(seed: int) -> tuple[pa.Table, FloatArray]:
    """What a till writes (a row per shop, date and product), and the demand (weeks, shops, H, k) that nature knows.

    Shops differ in size, and a promotion sells half as much again. Managers order by the sales of the last weeks, and
    more for a promotion. So orders follow demand, until amounts are compared with what was usual.
    """
    means, rng = usual_demand(seed), np.random.default_rng(seed + 1)
    size, promotion = rng.uniform(0.3, 2.5, SHOP_COUNT), rng.random((WEEK_COUNT, SHOP_COUNT)) < 0.25
    usual = means * size[:, None, None]
    more = np.where(promotion, PROMOTED, 1.0)[:, :, None, None]
    demand = np.rint(rng.gamma(9.0, usual * more / 9.0))
    # Costs and bounds play no part in what a log records.
    chain = LostSales(horizon=len(WEEKDAYS), products=len(PRODUCTS), holding=1.0, shortage=1.0, demand_max=1e4)
    logs: list[Trajectories] = []
    sold = [usual]
    for week in range(WEEK_COUNT):
        expected = np.mean(sold[-4:], axis=0) * more[week]

        def habit(step: int, stock: FloatArray, rng: np.random.Generator, usual: FloatArray = expected) -> FloatArray:
            return np.maximum(stock, np.rint(usual[:, step] * rng.uniform(0.8, 2.2, stock.shape)))

        logs.append(simulate_log(chain, demand[week], rng=rng, behaviour=habit))
        sold.append(logs[-1].actions - logs[-1].next_states)
    # Shops one after the other, each with all its weeks.
    opening, order, left = (
        np.stack([getattr(log, part) for log in logs], axis=1).ravel().astype(int)
        for part in ("states", "actions", "next_states")
    )
    weeks = SHOP_COUNT * WEEK_COUNT
    number = np.repeat(np.arange(weeks), len(WEEKDAYS) * len(PRODUCTS))
    day = np.tile(np.repeat(np.arange(len(WEEKDAYS)), len(PRODUCTS)), weeks)
    table = pa.table(
        {
            "shop": number // WEEK_COUNT + 1,
            "date": np.datetime64(FIRST_MONDAY) + (7 * (number % WEEK_COUNT) + day).astype("timedelta64[D]"),
            "product": list(PRODUCTS) * (weeks * len(WEEKDAYS)),
            "opening": opening,
            "delivery": order - opening,
            "sales": order - left,
            "stock_out": left == 0,
            "promotion": np.where(promotion.T.ravel()[number], "yes", "no"),
        }
    )
    return table, demand
