"""What does a shop pay that was never declared? The population's levels on stores that no log has seen.

    python -m benchmarks.new_shops --rossmann train.csv.gz     # Kaggle's file, or POOLRL_ROSSMANN; else made-up data

One store in ten of bench g (`benchmarks.real`) is not declared at all. Its weeks are judged by the cost above SAA on
its own demand. Beside the plan on the population's demand stands the mean of the declared stores' levels.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.chain import DAYS, Chain, read_chain
from benchmarks.real_benches import (
    LEARNED,
    NEW_SHOPS_AMONG,
    RHOS,
    drawn_costs,
    independent_orders,
    saa_levels,
    weekly_cost,
)
from benchmarks.report import Report, run
from poolrl import LostSales, Pool, SeededNoise
from poolrl.checks import FloatArray
from poolrl.learning.model import population_policy
from poolrl.paper import rossmann

BOUND, FIRST_SEED = 25_000.0, 2000


def gaps(chain: Chain, seed: int, rho: float) -> tuple[float, float]:
    """Cost above their own SAA of stores that were not declared: the population's plan, and the mean of levels."""
    demand = np.minimum(chain.demand[:NEW_SHOPS_AMONG], BOUND)
    new = np.arange(len(demand)) % 10 == 0
    train, test = demand[:, :LEARNED], demand[:, LEARNED:]
    holding, shortage = drawn_costs(seed, DAYS)
    costs = {"holding": holding[:, None], "shortage": shortage[:, None]}
    stores = int((~new).sum())
    problem = LostSales(horizon=DAYS, demand_max=BOUND, labels={"store": range(stores)}, **costs)
    known = np.repeat(np.arange(stores), LEARNED)
    log = independent_orders(problem, train[~new].reshape(-1, DAYS, 1), seed, labels={"store": known})
    policy = Pool(rho).fit(problem, log, noise=SeededNoise(seed))

    def cost(levels: FloatArray) -> float:
        every = np.broadcast_to(levels, (int(new.sum()), 1, DAYS))
        return float(weekly_cost(every, test[new], holding, shortage).sum())

    own = saa_levels(train[new], *(np.tile(part, (int(new.sum()), 1)) for part in (holding, shortage)))
    best = cost(own[:, None])
    population = population_policy(policy, ["store"]).levels[:, 0]
    return cost(population) / best - 1, cost(policy.levels[..., 0].mean(axis=0)) / best - 1


def work(report: Report, options: argparse.Namespace) -> None:
    """Both, at each budget."""
    chain = read_chain(rossmann.find(Path(options.rossmann) if options.rossmann else None))
    rows = []
    for rho in RHOS:
        found = np.array([gaps(chain, FIRST_SEED + run, rho) for run in range(options.seeds)])
        rows.append([f"{rho:g}", *(f"{100 * gap:.0f}%" for gap in found.mean(axis=0))])
    report.table(("rho", "plan on the population's demand", "mean of the declared stores' levels"), rows)
    report.text(f"{chain.source}: cost above their own SAA of stores not declared; mean over {options.seeds} seeds.")


if __name__ == "__main__":
    found = Report("new_shops", "Shops that were not declared")
    run(found, work, rossmann=("", "Kaggle's train.csv or train.csv.gz"), seeds=(5, "draws of costs, orders and noise"))
