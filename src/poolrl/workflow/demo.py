"""A simulated shop from its log to a policy, and what privacy costs it at several budgets."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from rich.progress import Progress

from poolrl.data.trajectories import Trajectories
from poolrl.learning.policy import Policy
from poolrl.pool import Pool
from poolrl.simulation.evaluation import data_free, rollout_cost, saa
from poolrl.workflow.privacy_curve import BudgetRuns, privacy_curve
from poolrl.workflow.trades.shop_example import PRODUCTS, draw_demand, simulated_log, simulated_shop

DEMO_BUDGETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SAVED_BUDGET = 0.1  # whose policy is saved
FITS_PER_BUDGET = 3  # with secure noise, which cannot be repeated
TEST_WEEKS, SAA_WEEKS = 20_000, 10_000


@dataclass(frozen=True)
class DemoLog:
    """What the shop has: a table, in which sales are cut off by empty shelves."""

    table: Path
    empty: float  # share of product-days on which the shelf was empty


@dataclass(frozen=True)
class DemoResult:
    """What was learned, beside policies that know more and policies that know less."""

    points: list[BudgetRuns]
    benchmark: float  # the cost of SAA on uncensored demand
    non_private: float  # the gap of Pool(rho=inf)
    published: float  # the gap of the paper's Algorithm 1
    free: float  # the gap without data
    policy: Policy  # learned at SAVED_BUDGET


def write_demo_log(out: Path, *, trajectories: int, seed: int) -> DemoLog:
    """Simulate the shop and write its log, apart from what may be handed out."""
    problem, means, spreads = simulated_shop(seed)
    demand = draw_demand(means, spreads, trajectories, problem.demand_max, seed=seed + 1)
    simulated = simulated_log(problem, means, demand, seed=seed + 2)
    table = out / "sensitive" / "log.parquet"
    table.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(simulated.to_arrow(), table)
    return DemoLog(table, float((simulated.next_states == 0).mean()))


def learn_from(log: DemoLog, *, seed: int, progress: Progress) -> DemoResult:
    """What a data scientist does: read the table, name its columns, fit."""
    problem, means, spreads = simulated_shop(seed)
    numbers = range(len(PRODUCTS))
    rows = Trajectories.from_parquet(
        log.table,
        trajectory="trajectory",
        step="step",
        states=[f"state_{i}" for i in numbers],
        actions=[f"action_{i}" for i in numbers],
        next_states=[f"next_state_{i}" for i in numbers],
    )
    # Simulated, so free to look at.
    test = draw_demand(means, spreads, TEST_WEEKS, problem.demand_max, seed=seed + 3)
    known = draw_demand(means, spreads, SAA_WEEKS, problem.demand_max, seed=seed + 4)
    task = progress.add_task("learning", total=len(DEMO_BUDGETS) * FITS_PER_BUDGET + 4)
    benchmark = rollout_cost(problem, saa(problem, known), test)
    progress.advance(task)

    def gap(policy: Policy) -> float:
        progress.advance(task)
        return rollout_cost(problem, policy, test) / benchmark - 1

    points, saved = [], None
    for rho in DEMO_BUDGETS:
        fits = [Pool(rho).fit(problem, rows) for _ in range(FITS_PER_BUDGET)]
        gaps = tuple(gap(fit) for fit in fits)
        points.append(BudgetRuns(rho, benchmark * (1 + float(np.mean(gaps))), gaps))
        saved = fits[0] if rho == SAVED_BUDGET else saved
    assert saved is not None
    return DemoResult(
        points,
        benchmark,
        non_private=gap(Pool(math.inf).fit(problem, rows)),
        published=gap(Pool.published(1.0, zones=20).fit(problem, rows)),
        free=gap(data_free(problem)),
        policy=saved,
    )


def write_demo(out: Path, found: DemoResult) -> None:
    """The policy, its guarantee, and the picture."""
    found.policy.save(out / "policy.npz")
    (out / "guarantee.json").write_text(json.dumps(found.policy.guarantee.to_dict(), indent=1) + "\n")
    for kind in ("svg", "png"):
        path = out / f"privacy-utility.{kind}"
        privacy_curve(path, found.points, non_private=found.non_private, data_free=found.free)
