"""The pictures of docs/auctions.md, docs/prices.md and docs/bids.md.

    python -m benchmarks.pictures        # some seconds; writes docs/figures/world-*.svg

Left: what the log shows, and the laws that are learned from it without noise and at ρ = 0.1, beside the truth. Right:
decisions by what is left, at ρ = 1. Noise is seeded, so nothing here is private.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

from poolrl.workflow.trades.trade import trade_of

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.worlds import FAMILIES, WORLDS, OneSided
from poolrl import Pool, SeededNoise, simulate_log
from poolrl.checks import FloatArray
from poolrl.learning.by_count import CountTable

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
CHOSEN = {"auctions": 1, "prices": 2, "bids": 3}
TRAJECTORIES = 1_000


def draw(name: str, world: OneSided) -> None:
    """One figure of a world."""
    rng, problem = np.random.default_rng(7), world.problem
    family = FAMILIES["lognormal"]
    truth = world.outcomes(family, rng, 40_000)[:, 0, 0]

    def habit(step: int, state: FloatArray, rng: np.random.Generator) -> FloatArray:
        return rng.uniform(0.4, 1.3, (len(state), 1))

    log = simulate_log(problem, world.outcomes(family, rng, TRAJECTORIES), rng=rng, behaviour=habit)
    plt.rcParams["svg.hashsalt"] = name
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    words = trade_of(problem).words
    at = np.linspace(0, 3, 200)
    left.axvspan(0.4, 1.3, color="0.92", label=f"{words.past} that were tried")
    left.plot(at, [(truth >= each).mean() for each in at], color="black", lw=2, label="truth")
    for rho, style in ((np.inf, "-"), (0.1, "--")):
        model = Pool(rho).model(problem, log, noise=SeededNoise(1))
        points, law = model.outcomes.points[0], model.outcomes.weights[0, 0]
        below = np.interp(at, points, np.cumsum(law))
        left.plot(at, 1 - below, style, color="tab:blue", label=f"learned, ρ = {'∞' if np.isinf(rho) else rho}")
    what = {"auctions": "highest bid", "prices": "buyer's value", "bids": "competing bid"}[name]
    left.set(xlabel=f"{what}, in multiples of what is usual", ylabel="share at or above", xlim=(0, 3), ylim=(0, 1.02))
    left.legend(frameon=False, fontsize=8)
    rule = Pool(1.0).fit(problem, log, noise=SeededNoise(1)).rule
    assert isinstance(rule, CountTable)
    steps = np.arange(1, problem.horizon + 1)
    for count in range(1, rule.actions.shape[-2]):
        right.step(steps, rule.actions[:, count, 0], where="mid", label=f"{count} {words.states[0]}")
    right.set(xlabel=words.step, ylabel=words.decision, xticks=steps)
    right.legend(frameon=False, fontsize=8)
    for side in (left, right):
        side.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(FIGURES / f"world-{name}.svg", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """All of them."""
    for name, number in CHOSEN.items():
        draw(name, WORLDS[number])


if __name__ == "__main__":
    main()
