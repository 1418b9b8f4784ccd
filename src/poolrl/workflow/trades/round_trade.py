"""The trades of rounds in which one amount is named: reserves of auctions, posted prices, bids."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from poolrl.problems.problem import OutcomeProblem
from poolrl.problems.registry import KINDS
from poolrl.workflow.trades.declared_trade import DeclaredTrade

EXAMPLE_SALES, EXAMPLE_SEED = 800, 1


class RoundTrade(DeclaredTrade):
    """One of the package's own problems of rounds."""

    def example(self, folder: Path) -> dict[str, dict[str, Any]]:
        """A simulated table, and the facts of its configuration.

        Things of very different size: their scale is what an expert thought before. People decide by that, and a
        little by chance. Outcomes are about as large as the scale, more or less.
        """
        # Here, because `decide` must not wait for what simulates.
        from poolrl.simulation.logs import simulate_log

        words = self.words
        problem: Any = self.problem(**words.example)
        rng = np.random.default_rng(EXAMPLE_SEED)
        size = np.exp(rng.normal(4.0, 1.2, EXAMPLE_SALES))
        scale = np.broadcast_to(size[:, None, None], (EXAMPLE_SALES, problem.horizon, 1))
        value = rng.lognormal(-0.05, 0.35, (EXAMPLE_SALES, problem.horizon, problem.outcome_dim))
        outcomes = problem.arranged(np.minimum(value, problem.outcome_high)) * scale

        def behaviour(step: int, state: Any, rng: np.random.Generator) -> Any:
            return scale[:, step] * rng.uniform(0.4, 1.3, (len(state), 1))

        log = simulate_log(problem, outcomes, rng=rng, behaviour=behaviour, scale=scale)
        source = f"{words.trajectory}s.csv"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / source).open("w", newline="", encoding="utf-8") as file:
            names = [column.name for column in words.columns]
            writer = csv.DictWriter(file, [words.trajectory, words.step, "estimate", *names])
            writer.writeheader()
            for number, step in np.ndindex(EXAMPLE_SALES, problem.horizon):
                writer.writerow(
                    {words.trajectory: number + 1, words.step: step + 1, "estimate": f"{size[number]:.2f}"}
                    | _table_row(
                        names, problem, *(part[number, step] for part in (log.states, log.actions, log.next_states))
                    )
                )
        return {
            "problem": {"kind": self.kind, **dict(words.example)},
            "log": {
                "source": source,
                "trajectory": words.trajectory,
                "step": words.step,
                "first_step": 1,
                "scale": ["estimate"],
                "scale_memory": 0,
            },
            "privacy": {
                "protects": f"one {words.trajectory}",
                "rho": 1.0,
                "budget": 2.0,
                "data_set": f"example of {self.kind}",
                "ledger": "ledger.sqlite",
            },
            "plan": {"units": EXAMPLE_SALES},
        }


def _table_row(names: list[str], problem: OutcomeProblem, state: Any, action: Any, after: Any) -> dict[str, Any]:
    """A row of rounds as people have it: count, decision, flag, and what is shown, where it is."""
    count, decision, flag, *_ = names
    success = bool(after[0] <= state[0] - 0.5)
    shown = {
        name: f"{value:.4f}" if abs(value - action[0]) > 0 or success else ""
        for name, value in zip(problem.shows, after[problem.state_dim :], strict=True)
    }
    return {count: f"{state[0]:g}", decision: f"{action[0]:.4f}", flag: "yes" if success else "no"} | shown


RESERVES, PRICES, BIDS = (
    RoundTrade(kind, KINDS[kind]) for kind in ("reserve-auction", "dynamic-pricing", "first-price-bidding")
)
