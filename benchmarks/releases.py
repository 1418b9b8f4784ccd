"""Are the releases of two versions equal? Fifty of each trade on simulated logs with seeded noise, bit for bit.

    PYTHONPATH=old/src python -m benchmarks.releases --write old.npz
    python -m benchmarks.releases --write new.npz
    python -m benchmarks.releases --compare old.npz new.npz

A release is what `Pool.model` learned (points, weights, slots, cut-off shares, what was left) and what the policy of
`Pool.fit` decides at every step. This file uses public names only, so it runs unchanged on either version. `--compare`
exits with 1 if a release is missing or differs. Noise is seeded, so nothing here is private.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from poolrl import (
    Backlog,
    DynamicPricing,
    FirstPriceBidding,
    LostSales,
    Outcomes,
    Policy,
    Pool,
    PrivateModel,
    ReserveAuction,
    SeededNoise,
    Trajectories,
    Zones,
    simulate_log,
)

RELEASES, EPISODES = 50, 400
RHOS = (1.0, 0.1, 0.01, math.inf)  # in turn
LABELS: dict[str, list[Any]] = {"item": ["watch", "game", "lamp"], "house": [1, 2]}
SHOP: dict[str, Any] = {"horizon": 3, "products": 2, "holding": 0.2, "shortage": 0.5, "demand_max": 9.0}
STATES = 7  # states in each direction that a policy is asked about


@dataclass(frozen=True)
class Trade:
    """A problem, whether its log has a scale, and the learner of a budget. `modelled`: it learns a model."""

    problem: Any
    scaled: bool = False
    pool: Callable[[float], Pool] = Pool
    modelled: bool = True

    def log(self, rng: np.random.Generator) -> Trajectories:
        """Outcomes of two sizes and decisions that are spread over all that is allowed."""
        problem, shape = self.problem, (EPISODES, self.problem.horizon, self.problem.outcome_dim)
        known: dict[str, Any] = {}
        if problem.labels:
            known["labels"] = {
                "item": rng.choice(LABELS["item"], EPISODES),
                "house": rng.choice(LABELS["house"], shape[:2]),
            }
        share = np.clip(rng.lognormal(-1.2, 0.5, shape), 0.0, 1.0)
        outcomes = problem.arranged(share * problem.outcome_high)
        if self.scaled:
            known["scale"] = rng.choice([0.5, 1.0, 7.0], (*shape[:2], problem.scale_dim))
            outcomes = outcomes * known["scale"]
        return simulate_log(problem, outcomes, rng=rng, **known)

    def release(self, seed: int) -> np.ndarray:
        """Everything that one release gave, as one row of numbers."""
        log, pool = self.log(np.random.default_rng([seed, 0])), self.pool(RHOS[seed % len(RHOS)])
        parts = [*self._decisions(pool.fit(self.problem, log, noise=SeededNoise(seed)))]
        if self.modelled:
            parts += _learned(pool.model(self.problem, log, noise=SeededNoise(seed)))
        return np.concatenate([np.ravel(part) for part in parts])

    def _decisions(self, policy: Policy) -> Iterator[np.ndarray]:
        """What the policy does at each step in a grid of states, under every label and two scales."""
        problem = self.problem
        axes = [np.linspace(*ends, STATES) for ends in zip(problem.state_low, problem.state_high, strict=True)]
        if isinstance(problem, ReserveAuction | DynamicPricing | FirstPriceBidding):  # their states are counts
            axes = [np.arange(high + 1.0) for high in problem.state_high]
        states = np.array([*product(*axes)])
        for step, cell in product(range(problem.horizon), product(*LABELS.values()) if problem.labels else [()]):
            labels = dict(zip(LABELS, cell, strict=False))
            for scale in ({"scale": 1.0}, {"scale": 3.0}) if self.scaled else ({},):
                yield policy.act(step, states, labels=labels, **scale)


def _learned(model: PrivateModel) -> Iterator[Any]:
    outcomes = model.outcomes
    for name in ("points", "weights", "slots", "cutoffs", "left"):
        if (table := getattr(outcomes, name)) is not None:
            yield table
    yield [model.together, model.guarantee.rho]


TRADES = {
    "lost sales": Trade(LostSales(**SHOP)),
    "lost sales, boundary": Trade(LostSales(**SHOP, boundary=0.7)),
    "lost sales, tables on top": Trade(
        LostSales(**SHOP), pool=lambda rho: Pool(rho, dependence=0.1, left_over=0.1, together=0.1)
    ),
    "lost sales, labels": Trade(LostSales(**SHOP, labels=LABELS)),
    "lost sales, scale": Trade(LostSales(**SHOP), scaled=True),
    "lost sales, labels and scale": Trade(LostSales(**SHOP, labels=LABELS), scaled=True),
    "lost sales, as published": Trade(
        LostSales(**SHOP | {"products": 1}), pool=lambda rho: Pool.published(rho, 20, scale=1e-4), modelled=False
    ),
    "lost sales, zones on outcomes": Trade(
        LostSales(**SHOP | {"products": 1}), pool=lambda rho: Pool(rho, Outcomes(), Zones(20))
    ),
    "backlog": Trade(Backlog(**SHOP)),
    "backlog, labels and scale": Trade(Backlog(**SHOP, labels=LABELS), scaled=True),
    "reserve auction": Trade(ReserveAuction(horizon=3, lots=2, bid_max=4.0, keep=0.2)),
    "reserve auction, price only": Trade(ReserveAuction(horizon=3, lots=2, bid_max=4.0, keep=0.2, sees_highest=False)),
    "reserve auction, labels and scale": Trade(ReserveAuction(lots=1, bid_max=4.0, labels=LABELS), scaled=True),
    "dynamic pricing": Trade(DynamicPricing(horizon=4, stock=2, price_max=4.0, keep=0.1)),
    "dynamic pricing, labels and scale": Trade(
        DynamicPricing(horizon=2, stock=2, price_max=4.0, labels=LABELS), scaled=True
    ),
    **{
        f"first-price bidding, feedback {feedback}": Trade(
            FirstPriceBidding(horizon=4, wins=2, worth=1.5, bid_max=4.0, feedback=feedback)
        )
        for feedback in ("lost", "won", "never")
    },
    "first-price bidding, labels and scale": Trade(
        FirstPriceBidding(horizon=2, wins=1, worth=1.5, bid_max=4.0, labels=LABELS), scaled=True
    ),
}


def compare(old: Path, new: Path) -> int:
    """Print how many releases of each trade are equal in every bit; how many are not."""
    unequal = 0
    with np.load(old) as before, np.load(new) as after:
        for name in TRADES:
            keys = [f"{name}/{seed}" for seed in range(RELEASES)]
            equal = sum(k in before and k in after and before[k].tobytes() == after[k].tobytes() for k in keys)
            numbers = sum(before[key].size for key in keys if key in before)
            print(f"{name}: {equal} of {RELEASES} releases equal ({numbers:,} numbers)")
            unequal += RELEASES - equal
    return unequal


def main() -> None:
    """Write the releases of this version, or compare two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", type=Path, metavar="FILE")
    choice.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"))
    options = parser.parse_args()
    if options.compare:
        raise SystemExit(compare(*options.compare) > 0)
    rows: dict[str, Any] = {}
    for name, trade in TRADES.items():
        print(name, flush=True)
        rows |= {f"{name}/{seed}": trade.release(seed) for seed in range(RELEASES)}
    np.savez_compressed(options.write, **rows)


if __name__ == "__main__":
    main()
