"""Policy: what may be given to others. It holds public facts, results of post-processing, and its guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, IntArray, as_floats
from poolrl.learning.outcomes import OutcomeDistribution, outcomes_from_arrays
from poolrl.learning.rules import Levels, Rule, rule_from_arrays, stored_shape
from poolrl.learning.stored import NOTHING_SAID, Names, Report, read_learned, write_learned
from poolrl.npz import Arrays
from poolrl.privacy.guarantee import Guarantee
from poolrl.problems.problem import OutcomeProblem, Problem
from poolrl.problems.registry import kind_of

POLICY_FORMAT = "poolrl policy 1"


@dataclass(repr=False, eq=False)
class Policy:
    """A decision rule for every step and state, with the guarantee under which it was learned.

    `report` says how it was learned, in released numbers only. `outcomes` is the estimated demand distribution that it
    was planned on, if there was one. It comes from released numbers too, so looking at it is free.
    """

    problem: Problem
    rule: Rule
    guarantee: Guarantee
    report: Report = NOTHING_SAID
    outcomes: OutcomeDistribution | None = None

    def __repr__(self) -> str:
        return f"Policy({type(self.rule).__name__}, horizon={self.problem.horizon})\n{self.guarantee}"

    def act(
        self,
        step: int,
        stock: ArrayLike,
        *,
        scale: ArrayLike | None = None,
        labels: Mapping[str, ArrayLike] | None = None,
    ) -> FloatArray:
        """The action at `step` (0 is the first) in one state (w,) or in each of a batch (m, w).

        `scale`, one number, one for each row or of the stock's shape, is what was expected before the order: amounts
        come in and go out in the user's units. `labels` give a value, or one for each row, of every label that the
        problem declares.
        """
        if isinstance(step, bool) or not isinstance(step, int | np.integer):
            raise ValueError(f"step must be a whole number, got {type(step).__name__}")
        if not 0 <= step < self.problem.horizon:
            raise ValueError(f"step must lie in 0 .. {self.problem.horizon - 1}, got {step}")
        state = as_floats("stock", stock)
        if state.ndim not in (1, 2) or state.shape[-1] != self.problem.state_dim:
            wanted = self.problem.state_dim
            raise ValueError(f"stock must have shape ({wanted},) or (m, {wanted}), got {state.shape}")
        if not np.isfinite(state).all():
            raise ValueError("stock must be finite")
        batch = np.atleast_2d(state)
        cell = self._cells(labels or {}, len(batch))
        if scale is None:
            if self.guarantee.scaled:
                raise ValueError("this policy was learned with a scale: say what is expected now, scale=...")
            action = self.rule.act(self.problem, int(step), batch, cell)
        else:
            unit = _scale_of(scale, batch.shape, batch=state.ndim == 2)
            if self.problem.counts_down:  # a count is the same in every unit
                action = self.rule.act(self.problem, int(step), batch, cell) * unit
            else:
                # Dividing and multiplying may lose a rounding error, and stock is never sent back.
                action = np.maximum(self.rule.act(self.problem, int(step), batch / unit, cell) * unit, batch)
        return action if state.ndim == 2 else action[0]

    def _cells(self, labels: Mapping[str, ArrayLike], rows: int) -> IntArray:
        cell = self.problem.labels.cells(labels)
        if cell.ndim > 1 or cell.size not in (1, rows):
            raise ValueError(f"labels must be single values or arrays of {rows} values, one for each row of stock")
        if (cell < 0).any():
            raise ValueError("labels must be among the values that the problem declares")
        return np.broadcast_to(cell, (rows,))

    @property
    def levels(self) -> FloatArray:
        """Order-up-to levels (*labels, H, products), if the policy has such a table; with a scale, multiples of it."""
        if not isinstance(self.rule, Levels):
            raise AttributeError(
                f"a policy with {type(self.rule).__name__} has no order-up-to table; ask act(step, stock)"
            )
        return self.rule.levels

    @property
    def names(self) -> Names:
        """The names that were saved with the policy; without them, products and steps are numbered."""
        width, horizon = self.problem.state_dim, self.problem.horizon
        names = self.report.names or Names([*map(str, range(width))], [*map(str, range(horizon))])
        if (len(names.products), len(names.steps)) != (width, horizon):
            raise ValueError("the policy names other products or steps than it decides on")
        return names

    def save(self, path: str | PathLike[str]) -> None:
        """Write one npz file: arrays, and a JSON text with facts, guarantee and a checksum."""
        arrays = self.rule.arrays()
        if self.outcomes is not None:
            arrays = arrays | {f"outcomes.{name}": array for name, array in self.outcomes.arrays().items()}
        facts = {
            "format": POLICY_FORMAT,
            "rule": type(self.rule).__name__,
            "problem": self.problem.facts(),
            "guarantee": self.guarantee.to_dict(),
            "report": self.report.to_dict(),
        }
        write_learned(path, facts, arrays)

    @classmethod
    def load(cls, path: str | PathLike[str], *, problem: Problem | None = None) -> Self:
        """Read what `save` wrote. Your own problem must be passed as `problem`, and must match the file's facts."""
        facts, arrays = read_learned(path, POLICY_FORMAT, "policy")
        try:
            return cls._from_facts(facts, arrays, problem)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        except (LookupError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"{path} is not a complete policy: an entry is missing or of another kind") from error

    @classmethod
    def _from_facts(cls, facts: dict[str, Any], arrays: Arrays, problem: Problem | None) -> Self:
        problem = problem_of(facts["problem"], stored_shape(facts["rule"], arrays), problem)
        rule = rule_from_arrays(facts["rule"], problem, arrays)
        prefix = "outcomes."
        estimate = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        outcomes = None
        if estimate and isinstance(problem, OutcomeProblem):
            outcomes = outcomes_from_arrays(estimate, problem)
        return cls(problem, rule, Guarantee.from_dict(facts["guarantee"]), Report.from_dict(facts["report"]), outcomes)


def problem_of(facts: Mapping[str, Any], stored: tuple[int, ...], given: Problem | None) -> Problem:
    """The problem that a file declares, or the given one if it has the same public facts.

    `stored` are the label values and steps (*labels, H) for which the file holds a table.
    """
    if given is not None:
        if given.facts() != facts:
            raise ValueError("learned for other public facts than those of the problem given")
        return given
    declared = dict(facts)
    kind = kind_of(name := declared.pop("kind"))
    if kind is None:
        raise ValueError(f"learned for your own problem {name}: pass it as problem=...")
    return kind.from_facts(declared, stored)


def _scale_of(scale: ArrayLike, shape: tuple[int, ...], *, batch: bool) -> FloatArray:
    given = as_floats("scale", scale)
    if not (np.isfinite(given) & (given > 0)).all():
        raise ValueError("scale must be positive and finite")
    # In a batch one number for each row serves all its products, as a label does.
    per_row = batch and given.shape == shape[:1]
    if per_row and shape[0] == shape[1] > 1:
        raise ValueError(f"scale must have shape {shape}: {given.shape} could be one for each row or each product")
    try:
        return np.broadcast_to(given[:, None] if per_row else given, shape)
    except ValueError:
        raise ValueError(f"scale must be one number, or have shape {shape}, got {given.shape}") from None
