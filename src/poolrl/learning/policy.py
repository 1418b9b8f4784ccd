"""Policy: what may be given to others. It holds public facts, results of post-processing, and its guarantee."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from poolrl.checks import FloatArray, IntArray, as_floats
from poolrl.geometry.axes import Axes
from poolrl.geometry.partition import Grid, Lattice, Partition, Rings
from poolrl.learning.by_count import CountTable
from poolrl.learning.fitted import Bent, FittedU
from poolrl.learning.outcomes import OutcomeDistribution, outcomes_from_arrays
from poolrl.learning.stored import NOTHING_SAID, Names, OwnProblemError, Report, complete, read_learned, write_learned
from poolrl.privacy.guarantee import Guarantee
from poolrl.problems.problem import OutcomeProblem, Problem, SeparableProblem
from poolrl.problems.registry import kind_of


@dataclass(frozen=True)
class Levels:
    """Order up to a level, (*labels, H, products): y = max(x, S_h)."""

    levels: FloatArray

    def act(self, problem: Problem, step: int, state: FloatArray, cell: IntArray | int = 0) -> FloatArray:
        """The level of each row's label cell, or the nearest allowed action, (m, d) for states (m, w)."""
        low, high = problem.allowed(step, state)
        return np.clip(self.levels.reshape(-1, *self.levels.shape[-2:])[cell, step], low, high)

    def arrays(self) -> dict[str, FloatArray]:
        """The table."""
        return {"levels": self.levels}


@dataclass(frozen=True)
class GreedyQ:
    """The best action under a learned Q: piecewise linear on axes, (H, k, N), or on zones or grid cells, (H, N)."""

    where: Axes | Partition
    q: FloatArray

    def act(self, problem: Problem, step: int, state: FloatArray, cell: IntArray | int = 0) -> FloatArray:
        """The best of the actions that are tried. Labels need `Levels`, so there is one cell."""
        # Many rows stand in one state, such as the first, and a search takes long.
        states, row = np.unique(state, axis=0, return_inverse=True)
        return self.where.greedy(step, self.q[step], states)[0][row]

    def arrays(self) -> dict[str, FloatArray]:
        """Q, and the resolution of the axes or the grid, or the points of all rings."""
        if isinstance(self.where, Axes):
            return {"q": self.q, "axes": np.array([self.where.points, self.where.beyond], dtype=np.float64)}
        if isinstance(states := self.where.states, Lattice):
            return {"q": self.q, "grid": np.array([states.bins, states.linear], dtype=np.float64)}
        pairs = [nodes.corners for nodes in self.where.pairs if isinstance(nodes, Rings)]
        return {"q": self.q, "pairs": np.stack(pairs), "states": states.corners}


Rule = Levels | GreedyQ | FittedU | CountTable


def _levels(problem: Problem, arrays: Mapping[str, FloatArray]) -> Levels:
    shape = (*problem.labels.shape, problem.horizon, problem.action_dim)
    return Levels(_shaped(arrays["levels"], shape))


def _greedy(problem: Problem, arrays: Mapping[str, FloatArray]) -> GreedyQ:
    where: Axes | Partition
    if "axes" in arrays:
        points, beyond = _shaped(arrays["axes"], (2,))
        if not isinstance(problem, SeparableProblem) or points < 2:
            raise ValueError("values on axes need a separable problem and two points or more")
        where = Axes(problem, int(points), bool(beyond))
    elif "grid" in arrays:
        bins, linear = _shaped(arrays["grid"], (2,))
        where = Grid(int(bins), bool(linear)).partition(problem)
    else:
        pairs = _rings(arrays["pairs"], problem.boundary.reach)
        where = Partition(problem, pairs, _rings(arrays["states"][None], np.ones((1, problem.state_dim)))[0])
    nodes = where.q_shape if isinstance(where, Axes) else (where.pair_count,)
    return GreedyQ(where, _shaped(arrays["q"], (problem.horizon, *nodes)))


def _counted(problem: Problem, arrays: Mapping[str, FloatArray]) -> CountTable:
    counts = round(float(problem.state_high[0] - problem.state_low[0])) + 1
    shape = (*problem.labels.shape, problem.horizon, counts, 1)
    return CountTable(_shaped(arrays["actions"], shape), _shaped(arrays["values"], shape))


def _fitted(problem: Problem, arrays: Mapping[str, FloatArray]) -> FittedU:
    if not isinstance(problem, OutcomeProblem):
        raise ValueError("fitted values need a problem that declares its outcomes")
    horizon, many = problem.horizon, arrays["states"].shape[1]
    states = _shaped(arrays["states"], (horizon, many, problem.state_dim))
    actions = _shaped(arrays["actions"], (horizon, many, problem.action_dim))
    outcomes = _shaped(arrays["outcomes"], (horizon, arrays["outcomes"].shape[1], problem.outcome_dim))
    after: list[Bent] = []
    if horizon > 1:
        points = problem.action_dim + (0 if problem.action_sets_state else problem.state_dim)
        hinges = arrays["offsets"].shape[-1]
        shapes = {"directions": (points, hinges), "offsets": (hinges,), "weights": (1 + points + hinges,), "least": ()}
        parts = [_shaped(arrays[name], (horizon - 1, *shape)) for name, shape in shapes.items()]
        after = [Bent(*(np.asarray(part[step]) for part in parts)) for step in range(horizon - 1)]
    return FittedU(tuple(after), outcomes, states, actions)


def _rings(corners: FloatArray, reaches: FloatArray) -> tuple[Rings, ...]:
    """Rings with these points (spaces, M, D, D), as far out as the spaces reach, (spaces, D)."""
    spaces, dimensions = reaches.shape
    _shaped(corners, (spaces, corners.shape[1], dimensions, dimensions))
    if (np.linalg.matrix_rank(corners) < dimensions).any():
        raise ValueError("rings need independent points")
    return tuple(Rings(each, float(np.linalg.norm(reach))) for each, reach in zip(corners, reaches, strict=True))


def _shaped(array: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    if array.shape != shape:
        raise ValueError(f"an array of the rule has shape {array.shape}, where the problem needs {shape}")
    return array


# Rules by their names in files: an array, its axes of labels and steps, and how the rule is read.
_READ: dict[str, tuple[str, slice, Callable[[Problem, Mapping[str, FloatArray]], Rule]]] = {
    "Levels": ("levels", slice(-1), _levels),
    "GreedyQ": ("q", slice(1), _greedy),
    "FittedU": ("states", slice(-2), _fitted),
    "CountTable": ("actions", slice(-2), _counted),
}


POLICY_FORMAT = "poolrl policy 1"


@dataclass(repr=False, eq=False)
class Policy:
    """A decision rule for every step and state, with the guarantee under which it was learned.

    `report` says how it was learned. `outcomes` is the estimated distribution that it was planned on, if there was one.
    Both come from released numbers only, so looking at them is free.
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

        `scale`, one number, one for each row or of stock's shape, is what was expected before the order; amounts are
        in the user's units. `labels` give a value, or one for each row, of every label that the problem declares.
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
        batch, cell = np.atleast_2d(state), self.problem.labels.cells(labels or {})
        if cell.ndim > 1 or cell.size not in (1, len(batch)):
            raise ValueError(f"labels must be single values or arrays of {len(batch)} values, one for each row")
        if (cell < 0).any():
            raise ValueError("labels must be among the values that the problem declares")
        cell = np.broadcast_to(cell, (len(batch),))
        if scale is None:
            if self.guarantee.scaled:
                raise ValueError("this policy was learned with a scale: say what is expected now, scale=...")
            action = self.rule.act(self.problem, int(step), batch, cell)
        else:
            unit = _scale_of(scale, batch.shape, batch=state.ndim == 2)
            here = batch / unit if self.problem.scales_state else batch
            action = self.rule.act(self.problem, int(step), here, cell) * unit
            if self.problem.scales_state:
                # Dividing and multiplying may lose a rounding error, and stock is never sent back.
                action = np.maximum(action, batch)
        return action if state.ndim == 2 else action[0]

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
        facts = {"format": POLICY_FORMAT, "rule": type(self.rule).__name__}
        write_learned(path, facts | facts_of(self.problem, self.guarantee, self.report), arrays)

    @classmethod
    def load(cls, path: str | PathLike[str], *, problem: Problem | None = None) -> Self:
        """Read what `save` wrote. Your own problem must be passed as `problem`, and must match the file's facts."""
        facts, arrays = read_learned(path, POLICY_FORMAT, "policy")
        with complete(path, "policy"):
            if facts["rule"] not in _READ:
                raise ValueError(f"the file's rule {facts['rule']!r} is not known to this version")
            name, leading, rule_of = _READ[facts["rule"]]
            problem = problem_of(facts["problem"], arrays[name].shape[leading], problem)
            rule, prefix = rule_of(problem, arrays), "outcomes."
            estimate = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            outcomes = None
            if estimate and isinstance(problem, OutcomeProblem):
                outcomes = outcomes_from_arrays(estimate, problem)
            guarantee, report = Guarantee.from_dict(facts["guarantee"]), Report.from_dict(facts["report"])
            return cls(problem, rule, guarantee, report, outcomes)


def facts_of(problem: Problem, guarantee: Guarantee, report: Report) -> dict[str, Any]:
    """What every file says of what was learned."""
    return {"problem": problem.facts(), "guarantee": guarantee.to_dict(), "report": report.to_dict()}


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
        raise OwnProblemError(f"learned for your own problem {name}: pass it as problem=...")
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
