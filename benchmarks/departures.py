"""The measurements behind docs/departures.md.

    python -m benchmarks.departures            about two minutes
    python -m benchmarks.departures --seeds 1  a quicker look

Setting: lost sales, H = 5, D ~ U[0, 100], h, b ~ U[0, 0.5], n = 10,000 trajectories from a uniform behaviour policy,
lambda = 1, seeded noise. Gaps are to SAA on 10,000 paths, evaluated on 2,000 others; mean over seeds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
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
from poolrl.geometry.partition import Nodes, Partition, Rings
from poolrl.learning.backward_induction import Stage
from poolrl.learning.outcomes import uniform_outcomes
from poolrl.learning.planning import plan_on_outcomes, plan_on_visits
from poolrl.learning.policy import Levels
from poolrl.privacy import sensitivity
from poolrl.privacy.guarantee import Guarantee
from poolrl.privacy.release import release_visits
from poolrl.privacy.zcdp import budget, epsilon, noise_bound
from poolrl.simulation.evaluation import relative_gap

HORIZON, TRAJECTORIES, ZONES = 5, 10_000, 100
FAILURE = 0.05  # δ of E_ρ and ι


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


def plain(nodes: Nodes) -> Rings:
    """The same rings with the coefficients of the package."""
    assert isinstance(nodes, Rings)
    return Rings(nodes.corners, nodes.radius)


def on_visits(change: Callable[[Partition], Partition], rho: float) -> Learner:
    """Zones on visit counts without pessimism, on a changed partition."""

    def learn(problem: LostSales, log: Trajectories, seed: int) -> Policy:
        partition = change(Zones(ZONES).partition(problem))
        # Visits are counted on the package's own nodes alone. Only reading between nodes is changed in kind.
        pairs, states = tuple(map(plain, partition.pairs)), plain(partition.states)
        counted = replace(partition, pairs=pairs, states=states)
        released = release_visits(log, problem, counted, rho=budget(rho), noise=SeededNoise(seed))
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
        (
            "9. squared change of the counts in multiples of the printed 2H, if a trajectory is counted at every node "
            "that it informs (M = 20, w = d = 1, H = 5)",
            f"{change_by_replay():.1f}",
        ),
        (
            "20. epsilon at delta = 1e-6 for rho = 0.1, 1, 5, 10, 20, 40",
            ", ".join(f"{epsilon(r, 1e-6):.1f}" for r in (0.1, 1, 5, 10, 20, 40)),
        ),
    ]


def _visits_needed() -> int:
    """The least ñ with Γ ≤ H when the values have no variance at all, by bisection."""
    horizon = 10
    bound = Sizes(horizon, 1, ZONES, 1.0).noise_bound
    kernel = np.full((2 * ZONES, ZONES), 1 / ZONES)

    def vacuous(visits: int) -> bool:
        stage = Stage(np.zeros(2 * ZONES), kernel, np.full(2 * ZONES, float(visits)), bound)
        return bool(Bernstein(failure=FAILURE).penalty(stage, np.zeros(ZONES), horizon=horizon)[0] > horizon)

    low, high = 1, 10**9
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if vacuous(middle) else (low, middle)
    return high


@dataclass(frozen=True)
class Sizes:
    """What the paper's bounds depend on. Õ hides constants and logarithms: we take the hidden constant as one."""

    horizon: int  # H
    products: int  # w = d
    zones: int  # M
    rho: float

    @property
    def dimensions(self) -> int:
        """w + d."""
        return 2 * self.products

    @property
    def noise_bound(self) -> float:
        """E_ρ = 4 √(H log(4 H M² w (w + d) / δ) / ρ)."""
        cells = self.horizon * self.zones**2 * self.products * self.dimensions
        return noise_bound(variance=2 * self.horizon / self.rho, cells=cells, failure=FAILURE)


def approximation_bound(sizes: Sizes, *, lipschitz: float, boundary_norm: float) -> float:
    """Theorem 1 at the first step: L₁ √(w + d) / M + L₁ |w + d − ‖λ‖₂|, with L₁ = H L.

    Even where everything is observed the second term is not zero: ‖(1, …, 1)‖₂ = √(w + d) < w + d.
    """
    first = sizes.horizon * lipschitz
    return first * math.sqrt(sizes.dimensions) / sizes.zones + first * abs(sizes.dimensions - boundary_norm)


def optimality_bound(sizes: Sizes, *, trajectories: int, lipschitz: float, boundary_norm: float) -> float:
    """The appendix's bound on v* − v^π̃, at its most favourable.

    4√2 Σ_h √(Var ι / (n d̄)) + (H³ + M w H² E_ρ) / (n d̄) + Theorem 1's two terms, with ι = log(H M (w + d) / δ).
    d̄ has its best possible value: all M(w + d) nodes visited equally often. Var is taken as (H − h)² / 4, the most it
    can be.
    """
    nodes = sizes.zones * sizes.dimensions
    visits = trajectories / nodes
    iota = math.log(sizes.horizon * nodes / FAILURE)
    spread = sum(left / 2 for left in range(sizes.horizon)) * math.sqrt(iota / visits)
    rest = sizes.horizon**3 + sizes.zones * sizes.products * sizes.horizon**2 * sizes.noise_bound
    approximation = approximation_bound(sizes, lipschitz=lipschitz, boundary_norm=boundary_norm)
    return 4 * math.sqrt(2) * spread + rest / visits + approximation


def sample_size(sizes: Sizes, *, accuracy: float) -> float:
    """Theorem 2's n = (1 + E_ρ) H³ / α². (Its statement prints α⁻¹; the proof and the rest of the paper have α⁻².)"""
    return (1 + sizes.noise_bound) * sizes.horizon**3 / accuracy**2


def zone_count(sizes: Sizes, *, accuracy: float, lipschitz: float) -> float:
    """The M that Theorem 2 asks for: L₁ √(w + d) / α."""
    return sizes.horizon * lipschitz * math.sqrt(sizes.dimensions) / accuracy


def measured_approximation(products: int, zones: int, *, rng: np.random.Generator) -> tuple[float, float]:
    """The largest |Q̲ − Q̄| over random feasible pairs in one step of lost sales, and the reward's Lipschitz constant.

    h = b = 1 for every product, D ~ U[0, 1]: the expected virtual reward is known at every pair, so that the error
    comes from reading between the nodes alone. The constant is the usual one (norm of the difference).
    """
    problem = LostSales(horizon=1, products=products, holding=1.0, shortage=1.0, demand_max=1.0)
    partition = Zones(zones).partition(problem)
    low, high = problem.reward_range(0)

    def reward(action: FloatArray) -> FloatArray:
        """E[−(y − D)⁺ + min(y, D)] = Σ y − y², scaled to [0, 1]."""
        return ((action - action**2).sum(axis=-1) - low) / (high - low)

    at_nodes = reward(problem.natural_pair(partition.pairs[0].points)[1])
    state = rng.uniform(0, 1, (20_000, products))
    action = rng.uniform(state, 1.0)
    read = partition.read(0, at_nodes, state, action)
    # |∇ Σ y − y²| ≤ √k on the cube, divided by the range 2k.
    return float(np.abs(read - reward(action)).max()), math.sqrt(products) / (high - low)


def change_by_replay() -> float:
    """‖Δ counts‖² / Δ₂² if a trajectory were counted at every node that it informs, with Δ₂² as printed.

    One row below λ is an observation of every node below λ. The claimed sample complexity rests on that. Here two
    trajectories, one with the least demand and one with the most, are followed from every node.
    """
    problem = LostSales(horizon=5, holding=0.2, shortage=0.3, demand_max=100.0)
    partition = Zones(20).partition(problem)
    moved = 0
    for step in range(problem.horizon):
        state, action = problem.natural_pair(partition.pairs[step].points)
        arrived = (problem.next_state(step, state, action, np.full(1, demand)) for demand in (0.0, 100.0))
        least, most = map(partition.state_index, arrived)
        moved += 2 * int((least != most).sum())
    nodes = {"pairs": partition.pair_count, "states": partition.state_count}
    visits, _ = sensitivity.visit_tables(problem, **nodes, per_unit=1)
    return moved / float(visits.sensitivity_squared)


def first_theorem() -> Iterable[tuple[str, ...]]:
    """Theorem 1 beside the largest error over 20,000 pairs: one step, known transitions, λ = 1."""
    rng = np.random.default_rng(0)
    for products in (1, 2, 3, 4, 8):
        for zones in (50, 800):
            measured, lipschitz = measured_approximation(products, zones, rng=rng)
            sizes = Sizes(1, products, zones, 1.0)
            first, full = (
                approximation_bound(sizes, lipschitz=lipschitz, boundary_norm=norm)
                for norm in (sizes.dimensions, math.sqrt(sizes.dimensions))
            )
            yield str(sizes.dimensions), str(zones), f"{first:.4f}", f"{full:.3f}", f"{measured:.4f}"


def second_theorem() -> Iterable[tuple[str, ...]]:
    """Theorem 2 at L = 0.5 and w = d = 1. Values lie in [0, H], so a bound above 5 is vacuous."""
    for rho in (0.1, 1.0, 10.0):
        sizes = Sizes(HORIZON, 1, ZONES, rho)
        bound = optimality_bound(sizes, trajectories=TRAJECTORIES, lipschitz=0.5, boundary_norm=math.sqrt(2))
        needed = sample_size(sizes, accuracy=0.1 * HORIZON)
        zones = zone_count(sizes, accuracy=0.1 * HORIZON, lipschitz=0.5)
        yield f"{rho:g}", f"{sizes.noise_bound:.1f}", f"{needed:,.0f}", f"{zones:.0f}", f"{bound:,.0f}"


def shown(title: str, header: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    """A table whose first column is words, and whose others are numbers."""
    table = Table(title=title, title_justify="left")
    for column in header:
        table.add_column(column, justify="right" if table.columns else "left")
    for row in rows:
        table.add_row(*row)
    return table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    console = Console(width=120)
    jobs = [(products, seed) for products in (1, 2, 4) for seed in range(seeds)]
    found: dict[tuple[str, int], list[list[float]]] = {}
    for products, seed in track(jobs, description="fitting", console=Console(stderr=True)):
        for name, values in gaps(products, seed).items():
            found.setdefault((name, products), []).append(values)
    cells = {key: " / ".join(f"{gap:.1f}" for gap in np.mean(values, axis=0)) for key, values in found.items()}
    rows = [(row.name, *(cells.get((row.name, count), "") for count in (1, 2, 4))) for row in ROWS]
    console.print(
        shown(
            f"Gap to SAA in percent, mean over {seeds} seeds",
            ("construction", "1 product", "2 products", "4 products"),
            rows,
        )
    )
    console.print(shown("Single numbers", ("what", "found"), facts()))
    console.print(
        shown(
            "17. Theorem 1 and the error of reading Q between nodes",
            ("w + d", "M", "first term", "complete bound", "measured"),
            first_theorem(),
        )
    )
    console.print(
        shown(
            "Theorem 2, vacuous above H = 5",
            ("rho", "E_rho", "n for alpha = H/10", "its M", "bound on v* - v at n = 10,000"),
            second_theorem(),
        )
    )


if __name__ == "__main__":
    main()
