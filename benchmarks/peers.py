"""Planning with other packages: quantecon on the same grid, stockpyl for normal demand.

    pip install 'poolrl[benchmarks]'
    python -m benchmarks.peers

One product, ten steps, known demand. The answers are compared, then the times.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import numpy as np
from scipy import sparse, stats

from benchmarks.fitting import best
from benchmarks.report import Report, run
from poolrl import Backlog, LostSales
from poolrl.checks import FloatArray
from poolrl.geometry.axes import Axes
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.planning import plan_on_outcomes
from poolrl.learning.policy import Levels

STEPS, HOLDING, SHORTAGE = 10, 0.2, 0.8


def levels_of(problem: LostSales | Backlog, demand: FloatArray, weights: FloatArray, points: int) -> FloatArray:
    """poolrl's order-up-to levels against a known distribution, (H, 1)."""
    known = OutcomeDistribution(demand[None], np.broadcast_to(weights, (STEPS, 1, len(weights))))
    rule, _ = plan_on_outcomes(known, Axes(problem, points))
    assert isinstance(rule, Levels)
    return rule.levels


def quantecon_job(top: int) -> tuple[Callable[[], FloatArray], Callable[[], FloatArray]]:
    """Lost sales in whole units up to `top`: their backward induction on (stock, level) pairs, and ours."""
    from quantecon.markov import DiscreteDP
    from quantecon.markov.ddp import backward_induction

    units = np.arange(top + 1)
    weights = stats.binom.pmf(units, top, 0.4)
    problem = LostSales(horizon=STEPS, holding=HOLDING, shortage=SHORTAGE, demand_max=float(top))

    def theirs() -> FloatArray:
        stock, level = (side.ravel() for side in np.meshgrid(units, units, indexing="ij"))
        allowed = level >= stock
        stock, level = stock[allowed], level[allowed]
        left = np.maximum(level[:, None] - units, 0)
        pair = np.repeat(np.arange(len(level)), top + 1)
        kernel = sparse.csr_matrix((np.tile(weights, len(level)), (pair, left.ravel())), shape=(len(level), top + 1))
        reward = (SHORTAGE * (level[:, None] - left) - HOLDING * left) @ weights
        with warnings.catch_warnings():
            # It warns that a discount factor of 1 has no infinite horizon.
            warnings.simplefilter("ignore")
            model = DiscreteDP(reward, kernel, 1.0, stock, level)
        return np.asarray(backward_induction(model, STEPS)[1][:, 0], dtype=float)

    return theirs, lambda: levels_of(problem, units.astype(float), weights, top + 1)[:, 0]


def stockpyl_job(mean: float) -> tuple[Callable[[], FloatArray], Callable[[], FloatArray]]:
    """Backlog, normal demand in whole units: their finite-horizon programme, and ours."""
    from stockpyl.finite_horizon import finite_horizon_dp

    top = int(2 * mean)
    units = np.arange(top + 1.0)
    weights = np.diff(stats.norm.cdf(np.arange(-0.5, top + 1), mean, mean / 4))
    problem = Backlog(horizon=STEPS, holding=HOLDING, shortage=SHORTAGE, demand_max=float(top))

    def theirs() -> FloatArray:
        costs = {"holding_cost": HOLDING, "stockout_cost": SHORTAGE, "purchase_cost": 0, "fixed_cost": 0}
        end = {"terminal_holding_cost": 0, "terminal_stockout_cost": 0}
        demand = {"demand_mean": mean, "demand_sd": mean / 4}
        return np.asarray(finite_horizon_dp(num_periods=STEPS, **costs, **end, **demand)[1][1:], dtype=float)

    return theirs, lambda: levels_of(problem, units, weights / weights.sum(), 2 * top + 1)[:, 0]


def work(report: Report, _: argparse.Namespace) -> None:
    """Both peers at growing sizes."""
    rows = []
    jobs = [("quantecon backward_induction", "levels", size, quantecon_job(size)) for size in (50, 100, 200, 400)]
    jobs += [("stockpyl finite_horizon_dp", "mean demand", size, stockpyl_job(size)) for size in (20, 40, 80)]
    for name, what, size, (theirs, ours) in jobs:
        difference = np.abs(theirs() - ours()).max()
        peer, mine = best(theirs, 3), best(ours, 3)
        rows.append([name, f"{size} {what}", f"{peer:.3f}", f"{mine:.3f}", f"{peer / mine:.1f}", f"{difference:.2f}"])
    header = ("peer", "size", "peer s", "poolrl s", "peer / poolrl", "levels differ by")
    report.table(header, rows)
    report.text(
        "One product, ten steps, known demand. quantecon's time includes building its transition matrix, as ours "
        "includes evaluating the problem. Peers choose whole units. poolrl also chooses between them, so levels may "
        "differ by less than one. No peer learns from a censored log or with privacy."
    )


if __name__ == "__main__":
    run(Report("peers", "Planning, against other packages", ("learning",)), work)
