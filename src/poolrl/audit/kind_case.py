"""The worst case of any problem that declares its outcomes: found by trying, and not by knowing what it is about.

A unit's trajectories hold one share of the allowed actions and one share of the possible outcomes at all steps. Of all
such trajectories, the two are taken that differ in most nodes: at every step and coordinate at which both are observed
in other nodes of the coarsest level, they differ on all levels. Where a problem allows it they move all that is paid
for, and the audit says how much it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from poolrl.audit.worst_case import SAME_SCALE, Configured
from poolrl.checks import FloatArray, IntArray
from poolrl.data.cells import outcome_cells
from poolrl.data.log import Columns
from poolrl.data.row_by_row import row_by_row
from poolrl.data.row_rules import PARTS
from poolrl.learning.outcomes import COARSEST_LEVEL
from poolrl.problems.problem import OutcomeProblem

# Shares of what is allowed that are tried, none of them on the edge of a bin.
TRIED_SHARES = np.array([0.0, 0.03, 0.12, 0.33, 0.45, 0.65, 0.8, 0.97, 1.0])


@dataclass(frozen=True)
class KindCase(Configured):
    """A fit of any such problem."""

    problem: OutcomeProblem  # type: ignore[assignment]

    def check_kind(self) -> None:
        """Refuse a problem without outcomes, and what is not attacked here."""
        if not isinstance(self.problem, OutcomeProblem):
            raise ValueError(f"an audit needs a problem that declares its outcomes, got {type(self.problem).__name__}")
        if self.scale_memory or self.left_over or self.together:
            raise ValueError("a scale with memory, sums of stock and sums of pairs are attacked for shops only")

    @property
    def columns(self) -> Columns:
        """The columns of `rows`."""
        sizes = {"states": self.problem.state_dim, "actions": self.problem.action_dim}
        sizes |= {"next_states": len(self.problem.arrival_low), **({"scale": 1} if self.scaled else {})}
        names: dict[str, Any] = {part: [f"{part}_{i}" for i in range(size)] for part, size in sizes.items()}
        names |= {} if self.per_unit is None else {"unit": "unit"}
        return Columns(trajectory="trajectory", step="step", **names, labels={n: n for n in self.problem.labels.names})

    def _arrays(self, changed: int, owns: int | None) -> dict[str, Any]:
        """The log as arrays: the unit itself, and others."""
        c = self.per_unit or 1
        mine = owns or (1 if self.per_unit is None else 2 * c)
        unit = np.repeat(np.arange(self.units), [mine] + [c] * (self.units - 1))
        rows, pair = worst_pair(self.problem)
        # Others do what the first one does: what they are cannot matter.
        chosen = np.where(unit == 0, pair[changed], pair[0])
        arrays: dict[str, Any] = {name: part[chosen] for name, part in rows.items()}
        if self.scaled:
            arrays["scale"] = np.full((*arrays["states"].shape[:2], 1), SAME_SCALE)
            arrays["actions"] = arrays["actions"] * SAME_SCALE
            after = arrays["next_states"].copy()
            after[:, :, self.problem.state_dim :] *= SAME_SCALE
            arrays["next_states"] = after
        arrays |= {} if self.per_unit is None else {"unit": unit}
        cell = self._label_cells(unit, changed)
        return arrays | ({"labels": self._label_values(cell)} if self.problem.labels else {})


def worst_pair(problem: OutcomeProblem) -> tuple[dict[str, FloatArray], tuple[int, int]]:
    """Trajectories of all tried shares, and the numbers of the two that differ in most nodes."""
    shares = np.array(np.meshgrid(TRIED_SHARES, TRIED_SHARES)).reshape(2, -1)
    span = problem.outcome_high - problem.outcome_low
    outcomes = problem.outcome_low + shares[1][:, None, None] * span
    outcomes = problem.arranged(np.broadcast_to(outcomes, (shares.shape[1], problem.horizon, problem.outcome_dim)))

    recorded, nodes, rows = row_by_row(problem), [], []
    state = np.tile(problem.initial_state, (shares.shape[1], 1))
    for step in range(problem.horizon):
        low, high = problem.allowed(step, state)
        action = np.asarray(low + shares[0][:, None] * (high - low))
        arrived = problem.next_state(step, state, action, outcomes[:, step])
        cell, seen = outcome_cells(recorded, step, state, action, arrived, bins=COARSEST_LEVEL, relative=False)
        nodes.append(np.where(seen, cell, -1))
        rows.append((state, action, arrived))
        state = arrived[..., : problem.state_dim]
    at: IntArray = np.stack(nodes, axis=1).reshape(shares.shape[1], -1)
    # Both observed counts twice: a node is left, and another one reached.
    moved = ((at[:, None] != at[None]) * ((at[:, None] >= 0).astype(int) + (at[None] >= 0))).sum(axis=-1)
    first, second = np.unravel_index(int(moved.argmax()), moved.shape)
    parts = dict(zip(PARTS, (np.stack(part, axis=1) for part in zip(*rows, strict=True)), strict=True))
    return parts, (int(first), int(second))
