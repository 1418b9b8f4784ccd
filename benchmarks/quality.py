"""How good are the learned policies? One table: gap to the exact optimum over demand families and budgets.

    python -m benchmarks.quality              the whole table, 10 seeds (about a quarter of an hour on 2 cores)
    python -m benchmarks.quality --seeds 3 --defaults-only    a quicker look

Setting: lost sales, H = 10, D-bar = 100, h, b ~ U[0, 0.5] per step and product, uniform behaviour policy, lambda = 1,
seeded noise of the true distribution (so nothing here is private). The gap is (c - c*) / c* in percent on common
demand paths, where c* is the cost of the dynamic programme on the true distribution. Mean and standard deviation
over seeds. "worse than free" is the largest t value of (gap - gap of the data-free policy), paired by seed, over
all families but the uniform one, where the data-free policy is exact: its prior is the truth.
"""

from __future__ import annotations

import argparse
import math
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from poolrl import Bernstein, Grid, LostSales, Outcomes, Policy, Pool, SeededNoise, Visits, Zones
from poolrl.checks import FloatArray
from poolrl.simulation.evaluation import data_free, optimum, rollout_cost
from poolrl.simulation.families import FAMILIES, TOP, Family

HORIZON = 10


@dataclass(frozen=True)
class Setting:
    """A shop and a log; `loose` is how many times too large the public bound is."""

    products: int
    trajectories: int
    loose: float = 1.0
    paths: int = 10_000  # of the evaluation


@dataclass(frozen=True)
class Row:
    """One learner in one setting; `limit` is the largest allowed mean gap in percent, if there is one."""

    name: str
    pool: Pool | None  # None is the data-free policy
    limit: float | None = None
    against_free: bool = False


def _defaults(limits: dict[float, float | None]) -> list[Row]:
    rows = [Row(f"Pool(rho={rho:g})", Pool(rho), limit, against_free=True) for rho, limit in limits.items()]
    return [*rows, Row("data-free", None)]


def _contenders(rho: float, bins: int) -> list[Row]:
    say = f"rho={rho:g}"
    return [
        Row(f"Pool.published({say}, zones=100)", Pool.published(rho, 100)),
        Row(f"  the same with scale=0 (only unvisited nodes), {say}", Pool.published(rho, 100, scale=0.0)),
        Row(f"Visits + Zones(100), no pessimism, {say}", Pool(rho, Visits(), Zones(100))),
        Row(f"Visits + Grid({bins}), {say}", Pool(rho, Visits(), Grid(bins))),
        Row(f"Visits + Grid({bins}) + Bernstein (DP-APVI), {say}", Pool(rho, Visits(), Grid(bins), Bernstein())),
        Row(f"Outcomes + Zones(100), {say}", Pool(rho, Outcomes(), Zones(100))),
        Row(f"Outcomes + Grid({bins}), {say}", Pool(rho, Outcomes(), Grid(bins))),
        Row(f"Outcomes + Grid({bins}, linear), {say}", Pool(rho, Outcomes(), Grid(bins, linear=True))),
    ]


TABLE: list[tuple[Setting, list[Row]]] = [
    (Setting(1, 1000), _defaults({math.inf: 0.5, 1: 0.8, 0.1: 1.5, 0.01: 8})),
    (Setting(8, 1000), _defaults({math.inf: 0.5, 1: 1.5, 0.1: 6, 0.01: 30})),
    (Setting(1, 1000, loose=10), _defaults({1: 2.5, 0.1: None})),
    (Setting(8, 1000, loose=10), _defaults({1: 4, 0.1: None})),
    (Setting(1, 66), _defaults({math.inf: None, 1: 10})),
    (Setting(1, 60), _defaults({1: None, 0.1: None, 0.01: None})),
    (Setting(8, 60), _defaults({1: None, 0.1: None, 0.01: None})),
    (Setting(1, 10_000), _defaults({1: 0.5})),
    (Setting(8, 10_000), _defaults({1: 0.5})),
    (Setting(1, 1000, paths=1000), [*_contenders(math.inf, 20), *_contenders(1, 20)]),
    (Setting(1, 10_000, paths=1000), _contenders(1, 20)),
    (Setting(2, 1000, paths=500), _contenders(1, 8)),
]


@cache
def shop(products: int, family: str, seed: int) -> tuple[dict[str, Any], Family, Policy]:
    """Costs, demand and the best policy, the same for every block of the table."""
    rng, shape = np.random.default_rng([seed, 0]), (HORIZON, products)
    costs: dict[str, Any] = {"holding": rng.uniform(0, 0.5, shape), "shortage": rng.uniform(0, 0.5, shape)}
    demand = FAMILIES[family](rng, shape)
    problem = LostSales(horizon=HORIZON, products=products, demand_max=TOP, **costs)
    return costs, demand, optimum(problem, demand.probabilities(TOP, 1024))


@cache
def test_paths(products: int, family: str, seed: int, paths: int) -> FloatArray:
    """Demand on which policies are evaluated."""
    return shop(products, family, seed)[1].sample(np.random.default_rng([seed, 2]), paths)


@cache
def free_policy(products: int, family: str, seed: int, loose: float) -> Policy:
    """The data-free policy under the public bound."""
    costs = shop(products, family, seed)[0]
    return data_free(LostSales(horizon=HORIZON, products=products, demand_max=TOP * loose, **costs))


def gaps(setting: Setting, rows: list[Row], family: str, seed: int) -> list[float]:
    """The gap of every row in percent, all on the same shop, log and demand paths."""
    costs, demand, best = shop(setting.products, family, seed)
    problem = LostSales(horizon=HORIZON, products=setting.products, demand_max=TOP * setting.loose, **costs)
    rng = np.random.default_rng([seed, 1])
    log = problem.simulate_log(demand.sample(rng, setting.trajectories), rng=rng)
    paths = test_paths(setting.products, family, seed, setting.paths)
    # Demand never exceeds TOP, so the best policy under the tight bound is the best under a loose one.
    optimal = rollout_cost(best.problem, best, paths)  # type: ignore[arg-type]
    # Every family gets its own noise.
    noise_seed = seed * len(FAMILIES) + list(FAMILIES).index(family)

    def cost(row: Row) -> float:
        if row.pool is None:
            return rollout_cost(problem, free_policy(setting.products, family, seed, setting.loose), paths)
        return rollout_cost(problem, row.pool.fit(problem, log, noise=SeededNoise(noise_seed)), paths)

    return [100 * (cost(row) / optimal - 1) for row in rows]


def _job(job: tuple[list[int], str, int]) -> list[list[float]]:
    blocks, family, seed = job
    return [gaps(*TABLE[block], family, seed) for block in blocks]


def measure(seeds: range, blocks: list[int]) -> dict[tuple[int, str], np.ndarray[Any, Any]]:
    """(block, family) → gaps (seeds, rows), over all cores; blocks that share a shop go together."""
    together: dict[int, list[int]] = {}
    for block in blocks:
        together.setdefault(TABLE[block][0].products, []).append(block)
    jobs = [(same, family, seed) for same in together.values() for family in FAMILIES for seed in seeds]
    # New processes with one thread each: cores are shared between jobs, not inside linear algebra.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    found: dict[tuple[int, str], list[list[float]]] = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        results = track(pool.map(_job, jobs), total=len(jobs), description="fitting", console=Console(stderr=True))
        for (same, family, _), result in zip(jobs, results, strict=True):
            for block, row_gaps in zip(same, result, strict=True):
                found.setdefault((block, family), []).append(row_gaps)
    return {key: np.array(rows) for key, rows in found.items()}


def show(found: dict[tuple[int, str], np.ndarray[Any, Any]], seeds: int, blocks: list[int]) -> int:
    """Print the table; the number of limits that were missed."""
    table = Table(title=f"Gap to the exact optimum in percent, mean ± sd over {seeds} seeds", title_justify="left")
    table.add_column("learner")
    for family in FAMILIES:
        table.add_column(family, justify="right")
    for column in ("limit", "verdict", "worse than free: t"):
        table.add_column(column, justify="right")
    missed = 0
    for block in blocks:
        setting, rows = TABLE[block]
        bound = "" if setting.loose == 1 else f", public bound {setting.loose:g} times too large"
        table.add_section()
        table.add_row(f"[bold]{setting.products} product(s), n = {setting.trajectories:,}{bound}")
        for i, row in enumerate(rows):
            columns = {family: found[block, family][:, i] for family in FAMILIES}
            cells = [f"{gap.mean():.2f} ± {gap.std(ddof=1):.2f}" for gap in columns.values()]
            verdict, worse = "", ""
            if row.limit is not None:
                holds = all(gap.mean() <= row.limit for gap in columns.values())
                verdict, missed = ("holds" if holds else "MISSED"), missed + (not holds)
            if row.against_free:
                free = {family: found[block, family][:, -1] for family in FAMILIES}
                t = max(_t_value(gap - free[f]) for f, gap in columns.items() if f != "uniform")
                worse, missed = f"{t:.1f}{' WORSE' if t > 2 else ''}", missed + (t > 2)
            table.add_row(row.name, *cells, "" if row.limit is None else f"{row.limit:g}", verdict, worse)
    Console(width=200).print(table)
    return missed


def _t_value(differences: np.ndarray[Any, Any]) -> float:
    return float(differences.mean() / (differences.std(ddof=1) / math.sqrt(len(differences))))


def main() -> None:
    """Measure, print, and exit with 1 if a limit was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0, help="for shops, logs and noise not used before")
    parser.add_argument("--defaults-only", action="store_true", help="leave out the other learners")
    parser.add_argument("--blocks", help="numbers of some blocks of the table, from 0, for example 1,3")
    options = parser.parse_args()
    blocks = [i for i, (_, rows) in enumerate(TABLE) if rows[-1].pool is None or not options.defaults_only]
    if options.blocks:
        blocks = [int(block) for block in options.blocks.split(",")]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    missed = show(measure(seeds, blocks), options.seeds, blocks)
    print(f"limits missed: {missed}")
    raise SystemExit(missed > 0)


if __name__ == "__main__":
    main()
