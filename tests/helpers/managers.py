"""A chain whose managers order by what they expect to sell, and the shop that its log is counted for."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from benchmarks.chain import DAYS, Weeks, made_up_chain, run_chain

from poolrl import LostSales, Trajectories
from poolrl.data.counts import count_joint
from poolrl.geometry.resolution import JOINT_BANDS
from poolrl.learning.dependence import compare_levels
from poolrl.learning.stored import Dependence

STORES, WEEKS = 60, slice(0, 60)
COSTS: dict[str, Any] = {"horizon": DAYS, "holding": 1.0, "shortage": 3.0}
SHOP = LostSales(**COSTS, demand_max=30_000.0)
IN_MULTIPLES = LostSales(**COSTS, demand_max=4.0)


@cache
def managers() -> Weeks:
    """Every store orders 1.15 times the mean sales of its last four same weekdays."""
    chain = made_up_chain(np.random.default_rng(1), stores=STORES, weeks=64)
    known = {"sold": chain.demand[:, :4], "stock": np.zeros(STORES)}
    return run_chain(chain, lambda week, day, scale, stock: 1.15 * scale, weeks=slice(4, 64), **known)


def exactly(log: Trajectories, problem: LostSales) -> Dependence:
    return compare_levels(count_joint(log, problem, bands=JOINT_BANDS), 0.0)
