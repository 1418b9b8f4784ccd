"""How many order-up-to decisions per second? In batches, one by one, and from a CSV file as on the command line.

    python -m benchmarks.decisions

A decision is one level: a shop with k products asks for k at once. Ratios are to NumPy's bare `maximum(stock, level)`,
which checks nothing.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.fitting import best
from benchmarks.report import Report, run
from poolrl import LostSales, Pool, SeededNoise
from poolrl.shop.decide import decide_csv

SHOPS, LINES, SINGLE, REPEATS = 1_000_000, 50_000, 20_000, 5


def speeds(products: int) -> dict[str, float]:
    """Decisions per second, the unchecked one first."""
    rng = np.random.default_rng(0)
    problem = LostSales(horizon=7, products=products, holding=0.1, shortage=0.4, demand_max=100.0)
    log = problem.simulate_log(rng.uniform(0, 100, (500, 7, products)), rng=rng)
    policy = Pool(1.0).fit(problem, log, noise=SeededNoise(0))
    stocks = rng.uniform(0, 100, (SHOPS, products))
    with tempfile.TemporaryDirectory() as folder:
        table, file = Path(folder) / "stocks.csv", Path(folder) / "policy.npz"
        names = ",".join(map(str, range(products)))
        np.savetxt(
            table,
            np.c_[np.full(LINES, 3), stocks[:LINES]],
            delimiter=",",
            fmt="%.4g",
            header=f"step,{names}",
            comments="",
        )
        policy.save(file)
        csv = best(lambda: decide_csv(file, table, Path(folder) / "orders.csv", whole=False), REPEATS)
    one_by_one = best(lambda: [policy.act(3, stocks[0]) for _ in range(SINGLE)], REPEATS)
    return {
        "NumPy, unchecked": stocks.size / best(lambda: np.maximum(stocks, policy.levels[3]), REPEATS),
        "Policy.act, batch": stocks.size / best(lambda: policy.act(3, stocks), REPEATS),
        "Policy.act, one stock at a time": SINGLE * products / one_by_one,
        f"poolrl decide --csv, {LINES:,} lines": LINES * products / csv,
    }


def work(report: Report, _: argparse.Namespace) -> None:
    """One product and eight."""
    rows = []
    for products in (1, 8):
        found = speeds(products)
        bare = next(iter(found.values()))
        for how, speed in found.items():
            rows.append([how, str(products), f"{speed:,.0f}", f"{speed / bare:.4f}"])
    report.table(("how", "products", "decisions / s", "of bare NumPy"), rows)
    report.text(f"A batch has {SHOPS:,} stocks; best of {REPEATS}.")


if __name__ == "__main__":
    run(Report("decisions", "Decisions per second"), work)
