"""Joint decisions: products that share a reserve, planned without structure, and what it is worth to know the weather.

    python -m benchmarks.joint                 # about ten minutes on two cores
    python -m benchmarks.joint --write

Gamma demand of three to seven products, five days, with a common cause of a stated correlation. A reserve serves
whoever runs short (`Depot`), so states and actions have four to eight coordinates, and no product can be planned by
itself. "Fixed levels" are the best levels of each day for 20,000 draws of that day alone, whatever comes after it.
"No reserve" is the best plan of each product by itself, which is what a shop without this planner would do.

With privacy: logs of 1,000 weeks whose orders are independent of demand; a tenth of ρ buys the correlation. Every plan
is judged on the same paths of the true demand. Noise is seeded, so nothing here is private.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from benchmarks.planning import HORIZON, TOP, WEEKS, true_model
from benchmarks.report import Report, run
from poolrl import Depot, Fitted, Grid, LostSales, Policy, Pool, PrivateModel, SeededNoise, Zones, rollout_cost
from poolrl.checks import FloatArray
from poolrl.learning.planning import ValueSettings
from poolrl.learning.stored import Together

JUDGED = 1_000
SHARE = 0.1  # of ρ, for the correlation
QUICK = Fitted(states=256, hinges=96)


def a_world(products: int, correlation: float, seed: int) -> tuple[Depot, PrivateModel]:
    """A depot, and true demand as a model of its own."""
    rng = np.random.default_rng([seed, products])
    shop = LostSales(horizon=HORIZON, products=products, holding=0.3, shortage=3.0, demand_max=TOP)
    depot = Depot(shop=shop, express=0.6, reserve_holding=0.2, reserve_max=TOP * products / 2)
    model = true_model(shop, rng.uniform(8, 20, (HORIZON, products)), float(rng.uniform(2.5, 5.0)))
    model.report = replace(model.report, together=Together(correlation, correlation, 0.0))
    return depot, model


def fixed_levels(depot: Depot, demand: FloatArray) -> float:
    """What the best levels of each day by itself cost on paths (n, H, k), chosen on other draws of the same days."""
    chosen, judged = np.split(demand, [len(demand) - JUDGED])
    levels = []
    for step in range(HORIZON):

        def cost(level: FloatArray, step: int = step) -> float:
            return float(depot.cost(step, level, level, chosen[:, step]).mean())

        start = np.append(1.2 * chosen[:, step].mean(axis=0), chosen[:, step].mean())
        bounds = [(0.0, high) for high in depot.action_high]
        levels.append(minimize(cost, start, method="Powell", bounds=bounds).x)
    state, total = np.zeros((JUDGED, depot.state_dim)), 0.0
    for step in range(HORIZON):
        action = np.maximum(state, levels[step])
        total += float(depot.cost(step, state, action, judged[:, step]).mean())
        state = depot.next_state(step, state, action, judged[:, step])
    return total


def without_reserve(depot: Depot, model: PrivateModel, demand: FloatArray) -> float:
    """Each product by itself."""
    return rollout_cost(depot.shop, model.plan(depot.shop), demand)


def values_compared(report: Report, seed: int) -> None:
    """Fitted values beside zones and grids, with four to eight coordinates."""
    rows = []
    for products in (3, 5, 7):
        depot, model = a_world(products, 0.5, seed)
        demand = model.sample(20_000 + JUDGED, rng=np.random.default_rng(seed))
        judged = demand[-JUDGED:]
        least = fixed_levels(depot, demand)
        cells = [f"{products + 1}", f"{least:.1f}"]
        # Nodes of a grid grow with the power of all coordinates of states and actions.
        grid: dict[str, ValueSettings] = {} if products > 3 else {"grid": Grid(3)}
        tried: dict[str, ValueSettings] = {"fitted": Fitted(), "zones": Zones(20)}
        for values in (tried | grid).values():
            began = time.perf_counter()
            policy = model.plan(depot, values=values)
            took = time.perf_counter() - began
            cells.append(f"{rollout_cost(depot, policy, judged) / least - 1:+.1%} ({took:.0f} s)")
        cells += [] if grid else ["too many nodes"]
        rows.append([*cells, f"{without_reserve(depot, model, judged) / least - 1:+.1%}"])
    header = ["coordinates of the state", "fixed levels: cost", "fitted", "zones (20)", "grid (3)", "no reserve"]
    report.table(header, rows, title="Beside the best fixed levels, with the time to plan; correlation 0.5")


def weather(report: Report, seed: int) -> None:
    """What it costs not to know the correlation, and what a private one buys."""
    rows = []
    for products, correlation in ((3, 0.0), (3, 0.6), (6, 0.0), (6, 0.6)):
        depot, truth = a_world(products, correlation, seed)
        rng = np.random.default_rng([seed, 7])
        judged = truth.sample(JUDGED, rng=rng)
        log = depot.shop.simulate_log(truth.sample(WEEKS, rng=rng), rng=rng)

        def cost(model: PrivateModel, depot: Depot = depot, judged: FloatArray = judged) -> float:
            policy: Policy = model.plan(depot, values=QUICK)
            return rollout_cost(depot, policy, judged)

        best = cost(truth)
        unaware = PrivateModel(truth.problem, truth.outcomes, truth.guarantee)
        cells = [f"{products}", f"{correlation:g}", f"{cost(unaware) / best - 1:+.1%}"]
        for rho in (1.0, 0.1):
            bought, whole = (Pool(rho, together=share) for share in (SHARE, 0.0))
            with_it = bought.model(depot.shop, log, noise=SeededNoise(seed))
            said = with_it.report.together
            assert said is not None
            found = f"{said.measured:.2f} ± {said.error:.2f}"
            without = cost(whole.model(depot.shop, log, noise=SeededNoise(seed)))
            cells.append(f"{cost(with_it) / best - 1:+.1%} ({found}) / {without / best - 1:+.1%}")
        rows.append(cells)
    header = ["products", "correlation", "not knowing it", "bought / not bought, ρ = 1", "bought / not bought, ρ = 0.1"]
    report.table(header, rows, title=f"A shared reserve: above the plan on true demand; {WEEKS:,} weeks")


def measure(report: Report, asked: argparse.Namespace) -> None:
    """All tables."""
    values_compared(report, asked.seed)
    weather(report, asked.seed)


if __name__ == "__main__":
    run(
        Report("joint", "Joint decisions, and products that sell together", ("learning",)),
        measure,
        seed=(5, "of the world"),
    )
