"""A simulated grocer: its public facts, its demand that only nature knows, and the sales export of its chain."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from poolrl.checks import FloatArray
from poolrl.data.trajectories import Trajectories
from poolrl.problems.inventory import LostSales
from poolrl.simulation.logs import simulate_log

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
PRODUCTS = ("bread", "milk", "salad")
SHOP_COUNT, WEEK_COUNT = 40, 50
FIRST_MONDAY = datetime.date(2025, 1, 6)
PROMOTED = 1.5  # demand with a promotion, as a multiple


def simulated_shop(seed: int) -> tuple[LostSales, FloatArray]:
    """A grocer's week: the problem (public) and the mean demand (H, k), which only nature knows."""
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
    return problem, means


def write_example(folder: Path, *, seed: int = 1) -> dict[str, dict[str, Any]]:
    """Write a chain's sales export under `folder` and return the facts of a configuration that fits it."""
    where = Path("sensitive") / "sales.csv"
    if (folder / where).exists():
        raise ValueError(f"{folder / where} exists, and might be somebody's only log: move it, or init elsewhere")
    (folder / where.parent).mkdir(parents=True, exist_ok=True)
    pyarrow.csv.write_csv(simulated_chain(seed)[0], folder / where)
    problem, _ = simulated_shop(seed)
    return {
        "problem": {
            "kind": "lost sales",
            "products": list(PRODUCTS),
            "horizon": problem.horizon,
            "steps": list(DAYS),
            "holding": problem.holding[0].tolist(),
            "shortage": problem.shortage[0].tolist(),
            "demand_max": 4.0,  # in multiples of the scale: nobody expects four times the usual
            "labels": {"promotion": ["no", "yes"]},
        },
        "log": {"source": where.as_posix()},
        "sales": {name: name for name in ("shop", "date", "product", "opening", "delivery", "sales", "stock_out")}
        | {
            "date_format": "%Y-%m-%d",
            "yes": ["true"],
            "no": ["false"],
            "scale": "same weekday, last 4 weeks",
        },
        "privacy": {
            "rho": 0.3,
            "budget": 0.9,
            "data_set": "the example's shops",
            "protects": "one week of one shop",
            "weeks_public": True,
            "ledger": "ledger.sqlite",
        },
        "plan": {"units": SHOP_COUNT * WEEK_COUNT},
        "publication": {
            "name": "Weekly ordering policy",
            "curator": "The example's grocer",
            "region": "Nowhere: simulated",
            "intended_use": "Order-up-to levels for the coming year.",
        },
    }


def simulated_chain(seed: int) -> tuple[pa.Table, FloatArray]:
    """What a till writes (a row per shop, date and product), and the demand (weeks, shops, H, k) that nature knows.

    Shops differ in size, and a promotion sells half as much again. Managers order by the sales of the last weeks, and
    more for a promotion. So orders follow demand, until amounts are compared with what was usual.
    """
    problem, means = simulated_shop(seed)
    rng = np.random.default_rng(seed + 1)
    size, promotion = rng.uniform(0.3, 2.5, SHOP_COUNT), rng.random((WEEK_COUNT, SHOP_COUNT)) < 0.25
    usual = means * size[:, None, None]
    more = np.where(promotion, PROMOTED, 1.0)[:, :, None, None]
    demand = np.rint(rng.gamma(9.0, usual * more / 9.0))
    chain = problem.changed(demand_max=1e4)
    logs: list[Trajectories] = []
    sold = [usual]
    for week in range(WEEK_COUNT):
        expected = np.mean(sold[-4:], axis=0) * more[week]

        def habit(
            step: int, stock: FloatArray, rng: np.random.Generator, expected: FloatArray = expected
        ) -> FloatArray:
            return np.maximum(stock, np.rint(expected[:, step] * rng.uniform(0.8, 2.2, stock.shape)))

        logs.append(simulate_log(chain, demand[week], rng=rng, behaviour=habit))
        sold.append(logs[-1].actions - logs[-1].next_states)
    # Shops one after the other, each with all its weeks.
    opening, order, left = (
        np.stack([getattr(log, part) for log in logs], axis=1).ravel().astype(int)
        for part in ("states", "actions", "next_states")
    )
    weeks = SHOP_COUNT * WEEK_COUNT
    number = np.repeat(np.arange(weeks), problem.horizon * problem.products)
    day = np.tile(np.repeat(np.arange(problem.horizon), problem.products), weeks)
    table = pa.table(
        {
            "shop": number // WEEK_COUNT + 1,
            "date": np.datetime64(FIRST_MONDAY) + (7 * (number % WEEK_COUNT) + day).astype("timedelta64[D]"),
            "product": list(PRODUCTS) * (weeks * problem.horizon),
            "opening": opening,
            "delivery": order - opening,
            "sales": order - left,
            "stock_out": left == 0,
            "promotion": np.where(promotion.T.ravel()[number], "yes", "no"),
        }
    )
    return table, demand
