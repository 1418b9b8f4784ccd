"""Plans on a model: how near each planner comes to the best, how long it takes, and what privacy adds.

    python -m benchmarks.planning              # about three minutes on two cores
    python -m benchmarks.planning --seeds 5 --write

Orders of one product are compared with another library's exact solution (quantecon) of the same small shop, and a
shared capacity with its own lower bound, which no plan can go below. "Scaled down" is what one would do without it: all
levels by the factor that makes them fit. Lead times: tests/plans/test_lead_time.py.

With privacy: logs of 1,000 weeks whose orders are independent of demand. The same planner plans on the private model
and on the true one; both are judged on the true one's paths. Noise is seeded, so nothing here is private.
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import numpy as np
from scipy import special

from benchmarks.report import Report, run
from poolrl import LostSales, Pool, PrivateModel, SeededNoise
from poolrl.checks import FloatArray
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.plans.capacity import (
    CapacityPlan,
    expected_levels,
    plan_capacity,
    scaled_down,
    simulated_costs,
    solve_capacity,
)
from poolrl.plans.lead_time import LeadTimePlan, plan_lead_time
from poolrl.plans.orders import OrderPlan, UnitLaws, plan_orders, solve_orders
from poolrl.privacy.guarantee import Guarantee
from poolrl.problems.operations import Operations

# Best average costs for demand of mean 5 and holding 1, at L = 1 .. 4 (Zipkin 2008, "Old and new methods for lost-sales
# inventory systems").
PUBLISHED = {
    ("Poisson", 4): (4.04, 4.40, 4.60, 4.73),
    ("Poisson", 9): (5.44, 6.09, 6.53, 6.84),
    ("Poisson", 19): (6.68, 7.66, 8.36, 8.89),
    ("geometric", 4): (9.82, 10.24, 10.47, 10.61),
    ("geometric", 9): (14.51, 15.50, 16.14, 16.58),
    ("geometric", 19): (19.22, 20.89, 22.06, 22.95),
}
# Best (s, S) and average cost (Zheng and Federgruen 1991, "Finding optimal (s, S) policies is about as simple as
# evaluating a single policy").
ZHENG_FEDERGRUEN = {10: (6, 40, 35.022), 15: (10, 49, 42.698), 20: (14, 62, 49.173), 25: (19, 56, 54.262)}
SHARES, PRODUCT_COUNTS = (0.5, 0.9), (2, 8, 50, 500)
WEEKS, RHOS = 1_000, (1.0, 0.1)
HORIZON, PRODUCTS, TOP, BINS = 5, 3, 60.0, 512
JUDGED, WARM_UP = 4_000, 20


def whole_laws(chance: FloatArray, operations: Operations, **costs: Any) -> UnitLaws:
    """Laws (k, H, N + 1) of whole units, as a planner takes them."""
    products, horizon, size = chance.shape
    problem = LostSales(horizon=horizon, products=products, demand_max=size - 1.0, **costs)
    terms = operations.of(problem)
    packs = np.maximum(terms.pack, 1).astype(np.int64)
    return UnitLaws(chance, np.ones(products), terms, np.floor(terms.cap).astype(np.int64), packs)


def poisson(means: FloatArray, size: int) -> FloatArray:
    """Probabilities of 0 .. size, with what lies beyond left out."""
    counts = np.arange(size + 1)
    law = np.exp(counts * np.log(means[..., None]) - means[..., None] - special.gammaln(counts + 1))
    return np.asarray(law / law.sum(axis=-1, keepdims=True))


def orders_against_quantecon(report: Report) -> None:
    """Shops of one product and one day that repeats, discounted: both libraries solve the same."""
    from quantecon.markov import DiscreteDP

    rows, beta, size = [], 0.99, 40
    for name, facts in {
        "no fixed cost": {},
        "fixed cost 8": {"fixed": 8.0, "purchase": 0.5},
        "packs of 6": {"pack": 6.0, "fixed": 1.0},
        "at least 10": {"minimum": 10.0, "fixed": 2.0},
    }.items():
        law = poisson(np.array([9.0]), size)[0]
        operations = Operations(cycle=True, discount=beta, **facts)
        began = time.perf_counter()
        plan = solve_orders(whole_laws(law[None, None], operations, holding=1.0, shortage=9.0))
        ours = time.perf_counter() - began
        terms = plan.laws.terms
        reward, moves = np.full((size + 1, size + 1), -np.inf), np.zeros((size + 1, size + 1, size + 1))
        demand = np.arange(size + 1)
        for stock, order in itertools.product(range(size + 1), repeat=2):
            level, pack = stock + order, int(plan.laws.packs[0])
            allowed = order == 0 or (order % pack == 0 and order >= terms.minimum[0, 0] and level <= size)
            if not allowed:
                moves[stock, order, 0] = 1.0
                continue
            cost = np.maximum(level - demand, 0) + 9.0 * np.maximum(demand - level, 0)
            reward[stock, order] = -(terms.fixed[0, 0] * (order > 0) + terms.purchase[0, 0] * order + law @ cost)
            np.add.at(moves[stock, order], np.maximum(level - demand, 0), law)
        began = time.perf_counter()
        exact = -DiscreteDP(reward, moves, beta).solve(method="policy_iteration").v[0]
        theirs = time.perf_counter() - began
        rows.append([name, f"{exact:.4f}", f"{plan.cost[0] / exact - 1:+.1e}", f"{theirs / ours:.2f}"])
    header = ["one product, 41 stocks, discount 0.99", "exact (quantecon)", "ours above it", "their time / ours"]
    report.table(header, rows, title="Fixed costs, packs and minimum orders")


def capacities(report: Report) -> None:
    """Certified gaps, beside scaling all levels down, and growth with the number of products."""
    rows = []
    for products, share in itertools.product(PRODUCT_COUNTS, SHARES):
        rng = np.random.default_rng(products)
        costs = {"holding": rng.uniform(0.1, 0.5, products), "shortage": rng.uniform(0.5, 2.0, products)}
        laws = whole_laws(poisson(rng.uniform(8, 25, (products, HORIZON)), 60), Operations(), **costs)
        volumes = rng.uniform(0.5, 2.0, products)
        free = solve_orders(laws)
        room = share * float((volumes @ expected_levels(free)).max())
        began = time.perf_counter()
        plan = solve_capacity(laws, volumes, room, rng=rng, paths=20_000 if products <= 8 else 4_000)
        took = time.perf_counter() - began
        levels = (free.orders[:, :, 0] * laws.width[:, None]).T
        rule = scaled_down(levels, volumes, np.full(HORIZON, room))
        scaled = float(simulated_costs(laws, rule, rng, 4_000).mean())
        rows.append(
            [f"{products}", f"{share:.0%}", f"{plan.gap:+.2%} ± {plan.error / plan.bound:.2%}",
             f"{scaled / plan.bound - 1:+.1%}", f"{took:.1f} s"]
        )  # fmt: skip
    header = ["products", "room, of what is used without limit", "certified gap", "scaled down", "time"]
    report.table(header, rows, title="Shared capacity, 5 days")


# What privacy adds.

PLANNERS: dict[str, Operations] = {
    "a week that repeats": Operations(cycle=True),
    "fixed cost 5 an order": Operations(cycle=True, fixed=5.0),
    "packs of 6, no delivery on day 3": Operations(cycle=True, pack=6.0, deliveries=[[1]] * 2 + [[0]] + [[1]] * 2),
    "bread: all spoils, price 2, purchase 0.8": Operations(spoilage=1.0, price=2.0, purchase=0.8),
}


def true_model(problem: LostSales, means: FloatArray, shape: float) -> PrivateModel:
    """Gamma demand as a model of its own."""
    edges = np.linspace(0.0, TOP, BINS + 1)
    below = special.gammainc(shape, shape * edges / means[..., None])
    weights = np.diff(below / below[..., -1:], axis=-1)
    points = np.tile((edges[:-1] + edges[1:]) / 2, (problem.products, 1))
    return PrivateModel(problem, OutcomeDistribution(points, weights), Guarantee.of_nothing(HORIZON))


def judged_orders(plan: OrderPlan, demand: FloatArray, terms_of: OrderPlan) -> float:
    """Mean cost of a week over many, on demand (weeks, H, k) of which the first few are not counted."""
    terms, stock, cost = terms_of.laws.terms, np.zeros(PRODUCTS), 0.0
    weeks = demand if terms.cycle else demand[: len(demand) // 4]
    for number, week in enumerate(weeks):
        if not terms.cycle:
            stock = np.zeros(PRODUCTS)
        for step in range(HORIZON):
            order = plan.order(step, stock)
            level = stock + order
            left, missing = np.maximum(level - week[step], 0.0), np.maximum(week[step] - level, 0.0)
            if number >= WARM_UP:
                now = terms.fixed[:, step] * (order > 0) + terms.purchase[:, step] * order
                cost += float((now + terms.holding[:, step] * left + terms.shortage[:, step] * missing).sum())
            stock = (1 - terms.spoilage[:, step]) * left
    return cost / (len(weeks) - WARM_UP)


def judged_lead_time(plans: list[LeadTimePlan], demand: FloatArray, holding: FloatArray, shortage: FloatArray) -> float:
    """The same for orders that arrive later."""
    cost = 0.0
    for product, plan in enumerate(plans):
        stock, coming = 0.0, [0.0] * (plan.lead_time - 1)
        for number, week in enumerate(demand):
            for step in range(HORIZON):
                order = plan.order(step, stock, coming)
                left, missing = max(stock - week[step, product], 0.0), max(week[step, product] - stock, 0.0)
                if number >= WARM_UP:
                    cost += holding[product] * left + shortage[product] * missing
                coming = [*coming, order]
                stock = left + coming.pop(0)
    return cost / (len(demand) - WARM_UP)


def with_privacy(report: Report, asked: argparse.Namespace) -> None:
    """The gap of each plan on the private model to the same planner on the true one, in percent."""
    gaps: dict[tuple[str, float], list[float]] = {}
    for seed in range(asked.first, asked.first + asked.seeds):
        rng = np.random.default_rng([seed, 19])
        holding, shortage = rng.uniform(0.2, 0.5, PRODUCTS), rng.uniform(1.0, 2.5, PRODUCTS)
        problem = LostSales(horizon=HORIZON, products=PRODUCTS, holding=holding, shortage=shortage, demand_max=TOP)
        means, shape = rng.uniform(8, 25, (HORIZON, PRODUCTS)), float(rng.uniform(3, 9))
        truth = true_model(problem, means, shape)
        demand = truth.sample(JUDGED, rng=rng)
        log = problem.simulate_log(truth.sample(WEEKS, rng=rng), rng=rng)
        models = {rho: Pool(rho).model(problem, log, noise=SeededNoise(seed)) for rho in RHOS}
        for name, operations in PLANNERS.items():
            best = plan_orders(truth, operations)
            least = judged_orders(best, demand, best)
            for rho, model in models.items():
                cost = judged_orders(plan_orders(model, operations), demand, best)
                gaps.setdefault((name, rho), []).append(cost / least - 1)
        ahead: dict[str, Any] = {"operations": Operations(cycle=True), "lead_time": 2, "rng": rng}
        least = judged_lead_time(plan_lead_time(truth, **ahead), demand[:400], holding, shortage)
        room = 0.7 * float(expected_levels(plan_orders(truth, Operations())).sum(axis=0).max())
        shared: dict[str, Any] = {"operations": Operations(), "volumes": 1.0, "capacity": room, "rng": rng}
        best_shared = plan_capacity(truth, **shared)
        laws = best_shared.plan.laws

        def judged(plan: CapacityPlan, laws: UnitLaws = laws) -> float:
            return float(simulated_costs(laws, plan.order_up_to, np.random.default_rng(7), 20_000).mean())

        for rho, model in models.items():
            cost = judged_lead_time(plan_lead_time(model, **ahead), demand[:400], holding, shortage)
            gaps.setdefault(("lead time of 2 days", rho), []).append(cost / least - 1)
            cost = judged(plan_capacity(model, **shared))
            gaps.setdefault(("70% of the room", rho), []).append(cost / judged(best_shared) - 1)
    names = list(dict.fromkeys(name for name, _ in gaps))
    rows = [
        [name, *(f"{np.mean(gaps[name, rho]):+.1%} ({max(gaps[name, rho]):+.1%})" for rho in RHOS)] for name in names
    ]
    header = ["above the plan on the true model: mean (worst)", *(f"ρ = {rho:g}" for rho in RHOS)]
    report.table(header, rows, title=f"With privacy: {WEEKS:,} weeks, {PRODUCTS} products, {HORIZON} days")


def measure(report: Report, asked: argparse.Namespace) -> None:
    """All tables."""
    orders_against_quantecon(report)
    capacities(report)
    with_privacy(report, asked)


if __name__ == "__main__":
    run(
        Report("planning", "Plans for shops as they are", ("learning", "plans")),
        measure,
        seeds=(3, "private logs"),
        first=(0, "the first of them"),
    )
