"""Decision rules: how an action follows from a learned Q, and how a rule is stored in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.geometry.axes import Axes
from poolrl.geometry.grid import Lattice
from poolrl.geometry.partition import LARGEST_TABLE, Nodes, Partition
from poolrl.geometry.zones import Rings
from poolrl.learning.by_count import CountTable
from poolrl.learning.fitted import Bent, FittedU
from poolrl.problems.problem import OutcomeProblem, Problem, SeparableProblem


@dataclass(frozen=True)
class Levels:
    """Order up to a level, (*labels, H, products): y = max(x, S_h)."""

    levels: FloatArray

    def __post_init__(self) -> None:
        # A level changed by hand would keep the old guarantee.
        self.levels.flags.writeable = False

    def act(self, problem: Problem, step: int, state: FloatArray, cell: IntArray | int = 0) -> FloatArray:
        """The level of each row's label cell, or the nearest allowed action, (m, d) for states (m, w)."""
        low, high = problem.allowed(step, state)
        return np.clip(self.levels.reshape(-1, *self.levels.shape[-2:])[cell, step], low, high)

    def arrays(self) -> dict[str, FloatArray]:
        """The table."""
        return {"levels": self.levels}


@dataclass(frozen=True)
class SeparableQ:
    """The best action of each coordinate under a piecewise-linear Q, (H, k, N)."""

    axes: Axes
    q: FloatArray

    def act(self, problem: Problem, step: int, state: FloatArray, cell: IntArray | int = 0) -> FloatArray:
        """Greedy on the axes. Labels need `Levels`, so there is one cell."""
        return self.axes.greedy(step, self.q[step], state)[0]

    def arrays(self) -> dict[str, FloatArray]:
        """Q and its resolution."""
        return {"q": self.q, "axes": np.array([self.axes.points, self.axes.beyond], dtype=np.float64)}


@dataclass(frozen=True)
class PartitionQ:
    """The best of the candidate actions under a Q on zones or grid cells, (H, N)."""

    partition: Partition
    q: FloatArray

    def act(self, problem: Problem, step: int, state: FloatArray, cell: IntArray | int = 0) -> FloatArray:
        """Greedy over the partition's candidates. Labels need `Levels`, so there is one cell."""
        return self.partition.greedy(step, self.q[step], state)[0]

    def arrays(self) -> dict[str, FloatArray]:
        """Q and the nodes of every step."""
        found = {"q": self.q}
        for space, nodes in (("pairs", self.partition.pairs), ("states", (self.partition.states,))):
            for name in nodes[0].arrays():
                found[f"{space}.{name}"] = np.stack([each.arrays()[name] for each in nodes])
        return found


Rule = Levels | SeparableQ | PartitionQ | FittedU | CountTable


def stored_shape(rule: str, arrays: Mapping[str, FloatArray]) -> tuple[int, ...]:
    """Label values and steps (*labels, H) for which a file holds a rule; nothing is made from them."""
    one_of_them = _READ.get(rule)
    if one_of_them is None:
        raise ValueError(f"the file's rule {rule!r} is not known to this version")
    name, behind, _ = one_of_them
    if name not in arrays or arrays[name].ndim < 1 + behind or not arrays[name].size:
        raise ValueError(f"the file lacks an array that {rule} needs")
    return arrays[name].shape[:-behind]


def rule_from_arrays(rule: str, problem: Problem, arrays: Mapping[str, FloatArray]) -> Rule:
    """The inverse of a rule's `arrays`; refuses what does not fit the problem."""
    stored_shape(rule, arrays)
    own = {name: array for name, array in arrays.items() if not name.startswith("outcomes.")}
    if not all(array.dtype == np.float64 and np.isfinite(array).all() for array in own.values()):
        raise ValueError("the arrays of a rule must hold finite numbers in double precision")
    try:
        return _READ[rule][2](problem, own)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the file lacks an array that {rule} needs") from error


def _levels(problem: Problem, arrays: Mapping[str, FloatArray]) -> Levels:
    shape = (*problem.labels.shape, problem.horizon, problem.action_dim)
    return Levels(_shaped(arrays["levels"], shape))


def _separable(problem: Problem, arrays: Mapping[str, FloatArray]) -> SeparableQ:
    points, beyond = _shaped(arrays["axes"], (2,))
    if not isinstance(problem, SeparableProblem) or points < 2:
        raise ValueError("values on axes need a separable problem and two points or more")
    axes = Axes(problem, int(points), bool(beyond))
    return SeparableQ(axes, _shaped(arrays["q"], (problem.horizon, *axes.q_shape)))


def _on_nodes(problem: Problem, arrays: Mapping[str, FloatArray]) -> PartitionQ:
    pairs = _nodes(arrays, "pairs.", problem.horizon, problem.state_dim + problem.action_dim)
    partition = Partition(problem, pairs, _nodes(arrays, "states.", 1, problem.state_dim)[0])
    return PartitionQ(partition, _shaped(arrays["q"], (problem.horizon, *partition.q_shape)))


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
    if not many or not outcomes.size:
        raise ValueError("fitted values need states and outcomes")
    after: list[Bent] = []
    if horizon > 1:
        points = problem.action_dim + (0 if problem.action_sets_state else problem.state_dim)
        hinges = arrays["offsets"].shape[-1]
        shapes = {"directions": (points, hinges), "offsets": (hinges,), "weights": (1 + points + hinges,), "least": ()}
        parts = [_shaped(arrays[name], (horizon - 1, *shape)) for name, shape in shapes.items()]
        after = [Bent(*(np.asarray(part[step]) for part in parts)) for step in range(horizon - 1)]
    return FittedU(tuple(after), outcomes, states, actions)


def _nodes(arrays: Mapping[str, FloatArray], prefix: str, spaces: int, dimensions: int) -> tuple[Nodes, ...]:
    parts: dict[str, Any] = {
        name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)
    }
    if "corners" in parts:
        corners = parts["corners"]
        _shaped(corners, (spaces, corners.shape[1], dimensions, dimensions))
        radii = _shaped(parts["radius"], (spaces,))
        if corners.shape[1] < 1 or (radii <= 0).any() or (np.linalg.matrix_rank(corners) < dimensions).any():
            raise ValueError("rings need a radius and independent points")
        return tuple(Rings(each, float(radius)) for each, radius in zip(corners, radii, strict=True))
    reaches = _shaped(parts["reach"], (spaces, dimensions))
    bins, linear = (_shaped(parts[name], (spaces,)) for name in ("bins", "linear"))
    if (reaches <= 0).any() or (bins < 1).any() or (bins > LARGEST_TABLE).any():
        raise ValueError("a lattice needs a reach and bins")
    return tuple(
        Lattice(reach, int(count), bool(smooth)) for reach, count, smooth in zip(reaches, bins, linear, strict=True)
    )


def _shaped(array: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    if array.shape != shape:
        raise ValueError(f"an array of the rule has shape {array.shape}, where the problem needs {shape}")
    return array


# Rules by their names in files: an array that begins with labels and steps, how many axes follow, and how it is read.
_READ: dict[str, tuple[str, int, Callable[[Problem, Mapping[str, FloatArray]], Rule]]] = {
    "Levels": ("levels", 1, _levels),
    "SeparableQ": ("q", 2, _separable),
    "PartitionQ": ("q", 1, _on_nodes),
    "FittedU": ("states", 2, _fitted),
    "CountTable": ("actions", 2, _counted),
}
