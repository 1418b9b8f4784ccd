"""Other one-sided worlds: how good are reserves, prices and bids that are learned from what a log shows?

    python -m benchmarks.worlds                 # about eight minutes on two cores
    python -m benchmarks.worlds --write

Six rounds, three lots (units, wins); amounts are multiples of what is usual, public bounds four times that. Gaps are
shares of what the best policy earns, in percent: a dynamic programme on 40,000 draws of the true law. "Myopic" is the
best single decision for one round by itself, with the true law: who sells every lot as if it were the last. "Data-free"
knows the bounds alone. Logs come from people: in every second one amounts are spread over all that is allowed, in the
others they lie between 0.4 and 1.3 times what is usual. Noise is seeded, so nothing here is private.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from benchmarks.report import Report, run
from poolrl import (
    DynamicPricing,
    FirstPriceBidding,
    Policy,
    Pool,
    ReserveAuction,
    SeededNoise,
    data_free,
    relative_gap,
    saa,
    simulate_log,
)
from poolrl.checks import FloatArray
from poolrl.learning.by_count import CountTable
from poolrl.problems.problem import OutcomeProblem

ROUNDS, COUNT, MOST = 6, 3, 4.0
SIZES, BUDGETS = (300, 1_000, 10_000), (math.inf, 1.0, 0.1, 0.01)
SHOWN = ((300, 1.0), (300, 0.01), (10_000, math.inf), (10_000, 1.0))  # in the tables; all count for what is said below
TRUE_DRAWS, JUDGED = 40_000, 20_000
Draw = Callable[[np.random.Generator, tuple[int, ...]], FloatArray]


def _bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    return np.where(rng.random(shape) < 0.6, rng.normal(0.7, 0.1, shape), rng.normal(1.9, 0.15, shape))


def _rising(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    """Buyers are in a hurry at the end: 0.7 of the usual in the first round, 1.3 in the last."""
    return rng.lognormal(-0.1, 0.45, shape) * np.linspace(0.7, 1.3, ROUNDS)[:, None]


FAMILIES: dict[str, Draw] = {
    "lognormal": lambda rng, shape: rng.lognormal(-0.1, 0.45, shape),
    "exponential": lambda rng, shape: rng.exponential(0.9, shape),
    "two peaks": _bimodal,
    "uniform": lambda rng, shape: rng.uniform(0.3, 2.0, shape),
    "three in ten nobody": lambda rng, shape: rng.lognormal(0.0, 0.4, shape) * (rng.random(shape) < 0.7),
    "rising": _rising,
}


@dataclass(frozen=True)
class OneSided:
    """A problem, and how its outcomes come from values of a family."""

    name: str
    problem: OutcomeProblem
    bidders: float = 0.0  # how many come to an auction, on average

    def outcomes(self, draw: Draw, rng: np.random.Generator, paths: int) -> FloatArray:
        """Values, or the two highest of those that come."""
        if not self.bidders:
            return np.clip(draw(rng, (paths, ROUNDS, 1)), 0.0, MOST)
        come = rng.poisson(self.bidders, (paths, ROUNDS))
        values = np.clip(draw(rng, (paths, ROUNDS, int(come.max()))), 0.0, MOST)
        there = np.where(np.arange(values.shape[-1]) < come[..., None], values, 0.0)
        return -np.sort(-there, axis=-1)[..., :2]


_SOLD: dict[str, Any] = {"horizon": ROUNDS, "bid_max": MOST}
WORLDS = (
    OneSided("reserve auction", ReserveAuction(**_SOLD, lots=COUNT), bidders=3.0),
    OneSided("reserve auction, winner's bid unknown", ReserveAuction(**_SOLD, lots=COUNT, sees_highest=False), 3.0),
    OneSided("posted price", DynamicPricing(horizon=ROUNDS, stock=COUNT, price_max=MOST)),
    OneSided("first-price bids, seen when lost", FirstPriceBidding(**_SOLD, wins=COUNT, worth=2.0, feedback="lost")),
    OneSided("first-price bids, seen when won", FirstPriceBidding(**_SOLD, wins=COUNT, worth=2.0, feedback="won")),
    OneSided("first-price bids, never seen", FirstPriceBidding(**_SOLD, wins=COUNT, worth=2.0, feedback="never")),
)


def myopic(world: OneSided, draws: FloatArray) -> Policy:
    """The best decision of each round, as if it were the last."""
    problem = world.problem
    best = saa(problem, draws)
    assert isinstance(best.rule, CountTable)
    last = np.broadcast_to(best.rule.actions[-1:], best.rule.actions.shape).copy()
    return Policy(problem, CountTable(last, best.rule.values), best.guarantee)


def gaps(job: tuple[int, str, int]) -> list[float]:
    """Gaps in percent of every size and budget, then myopic and data-free, on one world, family and seed."""
    number, family, seed = job
    world, draw = WORLDS[number], FAMILIES[family]
    problem, rng = world.problem, np.random.default_rng([seed, number, list(FAMILIES).index(family)])
    truth, judged = world.outcomes(draw, rng, TRUE_DRAWS), world.outcomes(draw, rng, JUDGED)
    best = saa(problem, truth)

    def habit(step: int, state: FloatArray, rng: np.random.Generator) -> FloatArray:
        return rng.uniform(0.4, 1.3, (len(state), 1))

    policies = []
    for size in SIZES:
        outcomes = world.outcomes(draw, rng, size)
        log = simulate_log(problem, outcomes, rng=rng, behaviour=habit if seed % 2 else None)
        policies += [Pool(rho).fit(problem, log, noise=SeededNoise(1_000 * seed + number)) for rho in BUDGETS]
    policies += [myopic(world, truth), data_free(problem)]
    return [100 * relative_gap(problem, policy, judged, benchmark=best) for policy in policies]


def measure(report: Report, options: argparse.Namespace) -> None:
    """One row for each world, and what all of them say of the limits."""
    report.text(" ".join(__doc__.split("\n\n")[2].split()))
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    jobs = [(number, family, seed) for number in range(len(WORLDS)) for family in FAMILIES for seed in seeds]
    # New processes with one thread each: cores are shared between jobs, not inside linear algebra.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        results = track(pool.map(gaps, jobs), total=len(jobs), description="fitting", console=Console(stderr=True))
        found = dict(zip(jobs, results, strict=True))
    settings = [(size, rho) for size in SIZES for rho in BUDGETS]
    names = [*(_in_words(*setting) for setting in settings), "myopic, knows the law", "data-free"]
    shown = [*(settings.index(setting) for setting in SHOWN), -2, -1]
    rows, worse, beyond = [], [], []
    for number, world in enumerate(WORLDS):
        of = {f: np.array([found[number, f, seed] for seed in seeds]) for f in FAMILIES}  # (seeds, settings and two)
        means = np.stack([each.mean(axis=0) for each in of.values()])
        rows.append([world.name, *(f"{means[:, i].min():.2f} to {means[:, i].max():.2f}" for i in shown)])
        for family, each in of.items():
            difference = each[:, : len(settings)] - each[:, -1:]
            surely = difference.mean(axis=0) > 2 * difference.std(axis=0, ddof=1) / math.sqrt(len(seeds))
            worse += [f"{world.name}, {family}, {names[i]}" for i in np.flatnonzero(surely)]
            gap, free = (each[:, settings.index((10_000, rho))].mean() for rho in (1.0, math.inf))
            if gap > 2.0:
                beyond.append(f"{world.name}, {family} ({gap:.1f}%, without noise {free:.1f}%)")
    title = f"Gap in percent, mean over {len(seeds)} logs: the least and the largest of {len(FAMILIES)} families"
    report.table(["", *(names[i] for i in shown)], rows, title=title)
    said = "Worse than data-free by more than two standard errors: " + ("; ".join(worse) or "never") + "."
    report.text(f"{said} Beyond 2% at n = 10,000 and ρ = 1: {'; '.join(beyond) or 'none'}.")


def _in_words(size: int, rho: float) -> str:
    return f"n = {size:,}, ρ = {'∞' if math.isinf(rho) else f'{rho:g}'}"


def main() -> None:
    """Measure, print and, with --write, put the tables into docs/benchmarks.md."""
    report = Report("worlds", "Other one-sided worlds: reserves, prices and bids", ("geometry", "learning", "problems"))
    options = {"seeds": (6, "logs of every world and family"), "first_seed": (0, "for logs not used before")}
    run(report, measure, **options)


if __name__ == "__main__":
    main()
