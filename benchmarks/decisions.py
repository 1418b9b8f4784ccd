"""How many order-up-to decisions per second? In batches, one by one, and from a CSV file as on the command line.

    python -m benchmarks.decisions

A decision is one level: a shop with k products asks for k at once. Ratios are to NumPy's bare `maximum(stock, level)`,
which checks nothing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from poolrl import LostSales, Pool, SeededNoise
from poolrl.app.decide import decide_csv

SHOPS, LINES, SINGLE, REPEATS = 1_000_000, 50_000, 20_000, 5


def best_time(ask: Callable[[], object]) -> float:
    """Seconds of the fastest of some runs."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        ask()
        times.append(time.perf_counter() - began)
    return min(times)


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
        csv = best_time(lambda: decide_csv(file, table, Path(folder) / "orders.csv", whole=False))
    one_by_one = best_time(lambda: [policy.act(3, stocks[0]) for _ in range(SINGLE)])
    return {
        "NumPy, unchecked": stocks.size / best_time(lambda: np.maximum(stocks, policy.levels[3])),
        "Policy.act, batch": stocks.size / best_time(lambda: policy.act(3, stocks)),
        "Policy.act, one stock at a time": SINGLE * products / one_by_one,
        f"poolrl decide --csv, {LINES:,} lines": LINES * products / csv,
    }


def main() -> None:
    """Print a table."""
    table = Table(title=f"Decisions per second, {SHOPS:,} stocks a batch", title_justify="left", title_style="bold")
    for name in ("products", "how", "decisions / s", "of bare NumPy"):
        table.add_column(name, justify="left" if name == "how" else "right")
    for products in (1, 8):
        found = speeds(products)
        bare = next(iter(found.values()))
        for how, speed in found.items():
            table.add_row(str(products), how, f"{speed:,.0f}", f"{speed / bare:.4f}")
    Console().print(table)


if __name__ == "__main__":
    main()
