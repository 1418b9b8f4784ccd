"""A simulated shop from its log to a policy, and what privacy costs it at several budgets."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from rich.progress import Progress

from poolrl.checks import FloatArray
from poolrl.colours import ACCENT, INK, QUIET
from poolrl.data.trajectories import Trajectories
from poolrl.learning.policy import Policy
from poolrl.pool import Pool
from poolrl.privacy.zcdp import epsilon_shown
from poolrl.simulation.evaluation import data_free, rollout_cost, saa
from poolrl.workflow.trades.shop_example import PRODUCTS, draw_demand, simulated_log, simulated_shop

DEMO_BUDGETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SAVED_BUDGET = 0.1  # whose policy is saved
FITS_PER_BUDGET = 3  # with secure noise, which cannot be repeated
TEST_WEEKS, SAA_WEEKS = 20_000, 10_000


@dataclass(frozen=True)
class DemoResult:
    """Learned policies, beside those that know more and those that know less. A gap is (c − c*) / c*."""

    gaps: dict[float, FloatArray]  # of every fit, by budget
    benchmark: float  # c*, the cost of SAA on uncensored demand
    non_private: float  # the gap of Pool(rho=inf)
    published: float  # the gap of the paper's Algorithm 1
    free: float  # the gap without data
    policy: Policy  # learned at SAVED_BUDGET


def write_demo_log(table: Path, *, trajectories: int, seed: int) -> float:
    """Simulate the shop, write its log, and return the share of product-days on which the shelf was empty."""
    problem, means, spreads = simulated_shop(seed)
    demand = draw_demand(means, spreads, trajectories, problem.demand_max, seed=seed + 1)
    simulated = simulated_log(problem, means, demand, seed=seed + 2)
    table.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(simulated.to_arrow(), table)
    return float((simulated.next_states == 0).mean())


def learn_from(table: Path, *, seed: int, progress: Progress) -> DemoResult:
    """What a data scientist does: read the table, name its columns, fit."""
    problem, means, spreads = simulated_shop(seed)
    parts = {"states": "state", "actions": "action", "next_states": "next_state"}
    columns = {part: [f"{name}_{i}" for i in range(len(PRODUCTS))] for part, name in parts.items()}
    rows = Trajectories.from_parquet(table, trajectory="trajectory", step="step", **columns)
    # Simulated, so free to look at.
    test = draw_demand(means, spreads, TEST_WEEKS, problem.demand_max, seed=seed + 3)
    known = draw_demand(means, spreads, SAA_WEEKS, problem.demand_max, seed=seed + 4)
    task = progress.add_task("learning", total=len(DEMO_BUDGETS) * FITS_PER_BUDGET + 2)
    benchmark = rollout_cost(problem, saa(problem, known), test)

    def fit(pool: Pool) -> Policy:
        progress.advance(task)
        return pool.fit(problem, rows)

    def gap(policy: Policy) -> float:
        return rollout_cost(problem, policy, test) / benchmark - 1

    fits = {rho: [fit(Pool(rho)) for _ in range(FITS_PER_BUDGET)] for rho in DEMO_BUDGETS}
    return DemoResult(
        {rho: np.array([*map(gap, policies)]) for rho, policies in fits.items()},
        benchmark,
        non_private=gap(fit(Pool(math.inf))),
        published=gap(fit(Pool.published(1.0, zones=20))),
        free=gap(data_free(problem)),
        policy=fits[SAVED_BUDGET][0],
    )


def write_demo(out: Path, result: DemoResult) -> None:
    """The policy, its guarantee, and the picture."""
    result.policy.save(out / "policy.npz")
    (out / "guarantee.json").write_text(json.dumps(result.policy.guarantee.to_dict(), indent=1) + "\n")
    picture = privacy_curve(result)
    for kind in ("svg", "png"):
        picture.savefig(out / f"privacy-utility.{kind}", dpi=150)


def privacy_curve(result: DemoResult) -> Figure:
    """The gap against ρ, with ε on the upper axis and the two ends of the scale as lines."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    rhos = [*result.gaps]
    # A fit may beat the benchmark by luck, which a logarithmic axis cannot show: such points lie on its floor.
    floor = 0.01
    means = np.maximum([100 * gaps.mean() for gaps in result.gaps.values()], floor)
    nothing, everything = (max(100 * gap, floor) for gap in (result.free, result.non_private))
    axes.axhline(nothing, color=QUIET, linestyle="--", linewidth=1, label="no data at all")
    axes.axhline(everything, color=INK, linestyle=":", linewidth=1, label="no privacy")
    for rho, gaps in result.gaps.items():
        axes.plot([rho] * len(gaps), np.maximum(100 * gaps, floor), "o", color=ACCENT, alpha=0.35, markersize=4)
    axes.plot(rhos, means, "-o", color=ACCENT, linewidth=2, markersize=6, label="POOL")
    axes.set(xscale="log", yscale="log", ylabel="cost above SAA on uncensored demand")
    axes.set_xlabel("privacy budget ρ (zCDP): stronger privacy to the left")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
    upper = axes.secondary_xaxis("top")
    upper.set_xlabel("ε at δ = 10⁻⁶", color=QUIET)
    for axis, shown in ((axes, [f"{rho:g}" for rho in rhos]), (upper, [*map(epsilon_shown, rhos)])):
        axis.set_xticks(rhos, shown)
        axis.xaxis.set_minor_locator(NullLocator())
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("What privacy costs", loc="left", weight="bold", color=INK)
    return figure
