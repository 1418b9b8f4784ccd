"""The measurements behind docs/departures.md.

    python -m benchmarks.departures            about two minutes
    python -m benchmarks.departures --seeds 1  a quicker look

Setting: lost sales, H = 5, D ~ U[0, 100], h, b ~ U[0, 0.5], n = 10,000 trajectories from a uniform behaviour policy,
lambda = 1, seeded noise. Gaps are to SAA on 10,000 paths, evaluated on 2,000 others; mean over seeds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from poolrl import (
    Bernstein,
    LostSales,
    Outcomes,
    Policy,
    Pool,
    SeededNoise,
    Trajectories,
    Visits,
    Zones,
    data_free,
    saa,
)
from poolrl.checks import FloatArray, IntArray
from poolrl.geometry.partition import Partition, Rings
from poolrl.learning.backward_induction import Stage
from poolrl.learning.outcomes import uniform_outcomes
from poolrl.learning.planning import plan_on_outcomes, plan_on_visits
from poolrl.learning.policy import Levels
from poolrl.privacy.guarantee import Guarantee
from poolrl.privacy.release import release_visits
from poolrl.privacy.zcdp import budget, epsilon, noise_bound
from poolrl.simulation.evaluation import relative_gap

HORIZON, TRAJECTORIES, ZONES = 5, 10_000, 100


class PrintedCoefficients(Rings):
    """Departure 1 undone: the coefficients of a point on its ring's vectors, whatever they sum to."""

    def weights(self, unit: FloatArray) -> tuple[IntArray, FloatArray]:  # noqa: D102
        zone, size = self.cell(unit), self.corners.shape[1]
        return zone[:, None] * size + np.arange(size), np.einsum("md,mdj->mj", unit, self.inverse[zone])


def printed(partition: Partition, *, wide: bool) -> Partition:
    """The partition with printed coefficients and, if `wide`, with rings that end at w + d (departure 2 undone)."""

    def undo(rings: Rings) -> Rings:
        if not wide:
            return PrintedCoefficients(rings.corners, rings.radius)
        zones, dimensions = len(rings.corners), rings.corners.shape[1]
        # Ring m of the printed scale is filled from the ring of ours with the same norm; the rest stay empty.
        middle = (np.arange(zones) + 0.5) / zones * dimensions / rings.radius * zones
        return PrintedCoefficients(rings.corners[np.minimum(middle.astype(int), zones - 1)], float(dimensions))

    pairs = tuple(undo(rings) for rings in partition.pairs if isinstance(rings, Rings))
    assert isinstance(partition.states, Rings)
    return replace(partition, pairs=pairs, states=undo(partition.states))


def on_visits(change: Callable[[Partition], Partition], rho: float) -> Learner:
    """Zones on visit counts without pessimism, on a changed partition."""

    def learn(problem: LostSales, log: Trajectories, seed: int) -> Policy:
        partition = change(Zones(ZONES).partition(problem))
        released = release_visits(log, problem, partition, rho=budget(rho), noise=SeededNoise(seed))
        rule, report = plan_on_visits(partition, released, Visits(), None)
        return Policy(problem, rule, released.guarantee, report)

    return learn


Learner = Callable[[LostSales, Trajectories, int], Policy]
NOBODY = Guarantee(mechanisms=(), secure=False, steps=HORIZON)


def _pool(pool: Pool) -> Learner:
    return lambda problem, log, seed: pool.fit(problem, log, noise=SeededNoise(seed))


def _middle(problem: LostSales, log: Trajectories, seed: int) -> Policy:
    return Policy(problem, Levels(np.full((HORIZON, problem.products), 50.0)), NOBODY)


def _exact(problem: LostSales, log: Trajectories, seed: int) -> Policy:
    rule, report = plan_on_outcomes(uniform_outcomes(problem, 512), problem, Zones(ZONES).partition(problem))
    return Policy(problem, rule, NOBODY, report)


@dataclass(frozen=True)
class Row:
    """A line of the table. Slow learners run for few products only."""

    name: str
    learners: tuple[Learner, ...]
    products: tuple[int, ...] = (1, 2)


ROWS = [
    Row("order up to the middle, no data at all", (_middle,), (1, 2, 4)),
    Row("data-free policy (exact here: demand is uniform)", (lambda p, log, s: data_free(p),), (1, 2, 4)),
    Row(
        "literal: printed coefficients, rings to w + d; rho = inf / 1",
        tuple(on_visits(lambda p: printed(p, wide=True), rho) for rho in (math.inf, 1.0)),
    ),
    Row(
        "printed coefficients, rings to the largest norm; rho = inf / 1",
        tuple(on_visits(lambda p: printed(p, wide=False), rho) for rho in (math.inf, 1.0)),
    ),
    Row("convex weights, visit counts; rho = inf / 1", tuple(on_visits(lambda p: p, rho) for rho in (math.inf, 1.0))),
    Row(
        "Pool.published with the printed constants; rho = inf / 1",
        tuple(_pool(Pool.published(rho, ZONES)) for rho in (math.inf, 1.0)),
    ),
    Row(
        "the same with scale = 1e-6; rho = 1",
        (_pool(Pool.published(1.0, ZONES, scale=1e-6)),),
    ),
    Row("zones with exact transitions (no noise, no sampling)", (_exact,), (1, 2, 4)),
    Row(
        "zones on outcome counts; rho = inf / 1",
        tuple(_pool(Pool(rho, Outcomes(), Zones(ZONES))) for rho in (math.inf, 1.0)),
    ),
    Row(
        "Pool: outcome counts + separable values; rho = inf / 1 / 0.1",
        tuple(_pool(Pool(r)) for r in (math.inf, 1.0, 0.1)),
        (1, 2, 4),
    ),
]


def gaps(products: int, seed: int) -> dict[str, list[float]]:
    """Every row's gaps in percent for one shop."""
    rng = np.random.default_rng([seed, products])
    shape = (HORIZON, products)
    problem = LostSales(
        horizon=HORIZON,
        products=products,
        holding=rng.uniform(0, 0.5, shape),
        shortage=rng.uniform(0, 0.5, shape),
        demand_max=100.0,
    )
    log = problem.simulate_log(rng.uniform(0, 100, (TRAJECTORIES, *shape)), rng=rng)
    best = saa(problem, rng.uniform(0, 100, (10_000, *shape)))
    paths = rng.uniform(0, 100, (2000, *shape))
    return {
        row.name: [
            100 * relative_gap(problem, learn(problem, log, seed), paths, benchmark=best) for learn in row.learners
        ]
        for row in ROWS
        if products in row.products
    }


def facts() -> list[tuple[str, str]]:
    """Single numbers: geometry, counts, pessimism, replay, budgets."""
    problem = LostSales(horizon=HORIZON, products=2, holding=1, shortage=1, demand_max=100.0)
    rng = np.random.default_rng(0)
    log = problem.simulate_log(rng.uniform(0, 100, (TRAJECTORIES, HORIZON, 2)), rng=rng)
    unit = problem.unit_pair(log.states[:, 0], log.actions[:, 0])
    partition = Zones(ZONES).partition(problem)
    rings = partition.pairs[0]
    assert isinstance(rings, Rings)
    wide = np.unique(np.floor(np.linalg.norm(problem.unit_pair(log.states, log.actions), axis=-1) * ZONES / 4))
    orthogonal = np.linalg.qr(np.swapaxes(rings.corners, 1, 2))[0]
    norms = np.linalg.norm(rings.corners, axis=-1)[:, None, :]
    turned = np.where(orthogonal.sum(axis=1, keepdims=True) < 0, -orthogonal, orthogonal) * norms
    leaves = ((turned < -1e-9) | (turned > 1 + 1e-9)).any(axis=1)
    exact = (unit[:, None] == rings.points[None]).all(axis=-1).any(axis=1)
    return [
        ("2. rings of the printed scale that hold any of 50,000 pairs, w + d = 4", f"{len(wide)} of {ZONES}"),
        ("3. orthogonalised basis vectors that leave the cube, w + d = 4", f"{leaves.mean():.0%}"),
        ("4. pairs that equal a node exactly", f"{exact.mean():.0%}"),
        ("5. visits of one node before Gamma <= H (H = 10, M = 100, w = d = 1, rho = 1)", f"{_visits_needed():,}"),
        ("9. cells that one trajectory moves if counted at every node, w = d = 1, M = 100, H = 5", f"{2 * 5 * 200:,}"),
        ("   the printed sensitivity allows", f"{2 * 5}"),
        (
            "20. epsilon at delta = 1e-6 for rho = 0.1, 1, 5, 10, 20, 40",
            ", ".join(f"{epsilon(r, 1e-6):.1f}" for r in (0.1, 1, 5, 10, 20, 40)),
        ),
    ]


def _visits_needed() -> int:
    """The least ñ with Γ ≤ H when the values have no variance at all, by bisection."""
    horizon, failure = 10, 0.05
    bound = noise_bound(variance=2 * horizon / 1.0, cells=horizon * 2 * ZONES * ZONES, failure=failure)
    kernel = np.full((2 * ZONES, ZONES), 1 / ZONES)

    def vacuous(visits: int) -> bool:
        stage = Stage(np.zeros(2 * ZONES), kernel, np.full(2 * ZONES, float(visits)), bound)
        return bool(Bernstein(failure=failure).penalty(stage, np.zeros(ZONES), horizon=horizon)[0] > horizon)

    low, high = 1, 10**9
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if vacuous(middle) else (low, middle)
    return high


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    console = Console(width=120)
    jobs = [(products, seed) for products in (1, 2, 4) for seed in range(seeds)]
    found: dict[tuple[str, int], list[list[float]]] = {}
    for products, seed in track(jobs, description="fitting", console=Console(stderr=True)):
        for name, values in gaps(products, seed).items():
            found.setdefault((name, products), []).append(values)
    table = Table(title=f"Gap to SAA in percent, mean over {seeds} seeds", title_justify="left")
    for column in ("construction", "1 product", "2 products", "4 products"):
        table.add_column(column, justify="left" if column == "construction" else "right")
    for row in ROWS:
        cells = [
            " / ".join(f"{gap:.1f}" for gap in np.mean(found[row.name, k], axis=0)) if k in row.products else ""
            for k in (1, 2, 4)
        ]
        table.add_row(row.name, *cells)
    console.print(table)
    numbers = Table(title="Single numbers", title_justify="left", show_header=False)
    for name, value in facts():
        numbers.add_row(name, value)
    console.print(numbers)


if __name__ == "__main__":
    main()
