"""The demo: a simulated shop from its log to a policy, with the price of privacy in a table and a picture."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from poolrl.checks import whole
from poolrl.data.trajectories import Trajectories
from poolrl.learning.policy import Policy
from poolrl.pool import Pool
from poolrl.privacy.zcdp import epsilon
from poolrl.shop.example import DAYS, PRODUCTS, draw_demand, simulated_log, simulated_shop
from poolrl.shop.privacy_curve import privacy_curve
from poolrl.simulation.evaluation import data_free, rollout_cost, saa

BUDGETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
CHOSEN = 0.1  # the budget whose policy is saved
RUNS = 3  # secure fits per budget, because their noise is not repeatable
TEST_WEEKS = 20_000


@dataclass(frozen=True)
class Point:
    """One budget: mean cost over its runs, and the relative gaps to the benchmark."""

    rho: float
    cost: float
    gaps: tuple[float, ...]


def run_demo(out: Path, *, trajectories: int, seed: int) -> None:
    """Write a log, fit at several budgets with secure noise, print a table, draw the curve, save the policy."""
    whole(at_least=0, seed=seed)
    whole(trajectories=trajectories, at_least=10)
    console = Console(width=100)
    table = out / "sensitive" / "log.parquet"  # apart from what may be handed out
    table.parent.mkdir(parents=True, exist_ok=True)
    problem, means, spreads = simulated_shop(seed)

    # 1. What the shop has: a table of stocks, order-up-to levels and what was left, sales cut off by empty shelves.
    demand = draw_demand(means, spreads, trajectories, problem.demand_max, seed=seed + 1)
    simulated = simulated_log(problem, means, demand, seed=seed + 2)
    pq.write_table(simulated.to_arrow(), table)
    empty = (simulated.next_states == 0).mean()
    console.print(
        f"[bold]A simulated shop[/]: {', '.join(PRODUCTS)}; {trajectories:,} weeks in {table}; the shelf "
        f"was empty on {empty:.0%} of product-days, and demand beyond it was never seen.\n"
    )

    # 2. What a data scientist does: read the table, name its columns, fit.
    numbers = range(len(PRODUCTS))
    log = Trajectories.from_parquet(
        table,
        trajectory="trajectory",
        step="step",
        states=[f"state_{i}" for i in numbers],
        actions=[f"action_{i}" for i in numbers],
        next_states=[f"next_state_{i}" for i in numbers],
    )
    test = draw_demand(means, spreads, TEST_WEEKS, problem.demand_max, seed=seed + 3)  # simulated, so free to look at
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("learning", total=len(BUDGETS) * RUNS + 4)
        benchmark = rollout_cost(
            problem, saa(problem, draw_demand(means, spreads, 10_000, problem.demand_max, seed=seed + 4)), test
        )
        progress.advance(task)

        def gap(policy: Policy) -> float:
            progress.advance(task)
            return rollout_cost(problem, policy, test) / benchmark - 1

        chosen: Policy | None = None
        points = []
        for rho in BUDGETS:
            fits = [Pool(rho).fit(problem, log) for _ in range(RUNS)]
            gaps = tuple(gap(fit) for fit in fits)
            points.append(Point(rho, benchmark * (1 + float(np.mean(gaps))), gaps))
            if rho == CHOSEN:
                chosen = fits[0]
        without = gap(Pool(math.inf).fit(problem, log))
        published = gap(Pool.published(1.0, zones=20).fit(problem, log))
        free = gap(data_free(problem))

    # 3. What the privacy officer and the shop get.
    console.print(
        _table(
            points,
            benchmark,
            {
                "NonPrivate: Pool(rho=inf)": without,
                "Pool.published(rho=1), the paper's Algorithm 1": published,
                "data-free: costs and bounds alone": free,
            },
        )
    )
    assert chosen is not None
    chosen.save(out / "policy.npz")
    (out / "guarantee.json").write_text(json.dumps(chosen.guarantee.to_dict(), indent=1) + "\n")
    for kind in ("svg", "png"):
        privacy_curve(out / f"privacy-utility.{kind}", points, non_private=without, data_free=free)
    console.print(_levels(chosen))
    console.print(f"[bold]The guarantee of this policy[/]\n{chosen.guarantee}\n")
    console.print(
        f"Spent on the simulated log: {len(BUDGETS) * RUNS + 1} private fits of rho each. On a real log you fit once.\n"
    )
    console.print(
        f"[bold]Written to {out}/[/]: sensitive/log.parquet, policy.npz, guarantee.json, privacy-utility.svg and .png\n"
        "[bold]Next[/]: open the picture; then in Python\n"
        f"    from poolrl import Policy\n"
        f"    Policy.load('{out / 'policy.npz'}').act(5, [10, 20, 5])   # Saturday's order-up-to levels\n"
        "and README.md shows the same for a log of your own."
    )


def _table(points: list[Point], benchmark: float, others: dict[str, float]) -> Table:
    table = Table(
        title="What privacy costs",
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption=(
            f"Cost per week on {TEST_WEEKS:,} simulated weeks; gap to SAA, which saw 10,000 uncensored weeks.\n"
            f"Mean ± standard deviation over {RUNS} fits with secure noise. Epsilon at delta = 1e-6."
        ),
    )
    for column in ("policy", "rho", "epsilon", "cost", "gap to SAA"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for point in points:
        spread = f"{np.mean(point.gaps):+.1%} ± {np.std(point.gaps, ddof=1):.1%}"
        table.add_row("Pool", f"{point.rho:g}", f"{epsilon(point.rho, 1e-6):.2f}", f"{point.cost:.1f}", spread)
    table.add_section()
    for name, gap in others.items():
        rho, eps = ("1", f"{epsilon(1.0, 1e-6):.2f}") if "published" in name else ("inf", "inf")
        rho, eps = ("0", "0") if "data-free" in name else (rho, eps)
        table.add_row(name, rho, eps, f"{benchmark * (1 + gap):.1f}", f"{gap:+.1%}")
    table.add_row("SAA on uncensored demand (no privacy)", "inf", "inf", f"{benchmark:.1f}", "0")
    return table


def _levels(policy: Policy) -> Table:
    table = Table(title=f"Next year's order-up-to levels (rho = {CHOSEN:g})", title_justify="left", title_style="bold")
    table.add_column("")
    for day in DAYS:
        table.add_column(day, justify="right")
    for product, levels in zip(PRODUCTS, policy.levels.T, strict=True):
        table.add_row(product, *(f"{level:.0f}" for level in levels))
    return table
