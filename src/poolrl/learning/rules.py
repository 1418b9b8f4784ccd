"""Decision rules: how an action follows from a learned Q, and how a rule is stored in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from poolrl.checks import FloatArray, IntArray, as_floats, whole
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


def refuse_unstored(kind: str, declared: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> None:
    """Refuse a shop of a file whose horizon, products or labels are not those of the arrays that the file holds.

    Nothing is made from the declared numbers here. What is made later is as large as what is stored.
    """
    horizon, products = declared["horizon"], declared["products"]
    whole(horizon=horizon, products=products)
    steps, cells = (horizon, products), tuple(len(values) for _, values in declared.get("labels", []))
    nodes = "pairs.reach" if "pairs.reach" in arrays else "pairs.corners"
    tables = {"Levels": "levels", "SeparableQ": "q", "PartitionQ": nodes, "FittedU": "states"}
    if kind not in tables:
        raise _unknown_rule(kind)
    table = tables[kind]
    own_shapes_of = {"Levels": (*cells, *steps), "SeparableQ": steps, "PartitionQ": (horizon, 2 * products)}
    shape = own_shapes_of.get(kind, steps)
    if table not in arrays:
        raise ValueError(f"the file lacks an array that {kind} needs")
    stored = arrays[table].shape
    # Corners are (H, J, D, D), values of a separable problem (H, k, N), and fitted states (H, N, w).
    ends = stored[:1] + stored[-1:]
    own = {"pairs.corners": ends, "states": ends, "q": stored[:2]}.get(table, stored)
    if own != shape:
        raise ValueError(f"the file declares steps, products and labels {shape}, but its rule has {own}")
    # A file holds the cost of every step and product, and of label cells where they differ.
    own_shapes = dict.fromkeys(("holding", "shortage", "scale_profile"), steps) | {"demand_max": (products,)}
    for name, last in own_shapes.items():
        if name in declared and not _spreads_to(found := as_floats(name, declared[name]).shape, cells, last):
            raise ValueError(f"the file declares {name} for {(*cells, *last)}, but holds {found}")
    if "boundary" in declared and (found := as_floats("boundary", declared["boundary"]).shape) != steps:
        raise ValueError(f"the file declares boundary for {steps}, but holds {found}")


def refuse_other_steps(kind: str, declared: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> None:
    """Refuse rounds of a file whose steps or labels are not those of the table that the file holds."""
    # A table of actions is (*labels, H, N + 1, 1), and levels stand for laws (*labels, H, k).
    tables = {"CountTable": ("actions", 2), "Levels": ("levels", 1)}
    if kind not in tables:
        raise _unknown_rule(kind)
    name, behind = tables[kind]
    cells = tuple(len(values) for _, values in declared.get("labels", []))
    if name not in arrays or arrays[name].ndim < 1 + behind or not arrays[name].size:
        raise ValueError(f"the file lacks an array that {kind} needs")
    stored = arrays[name].shape[:-behind]
    if stored != (*cells, declared["horizon"]):
        raise ValueError(
            f"the file declares steps and labels {(*cells, declared['horizon'])}, but its rule has {stored}"
        )


def _spreads_to(found: tuple[int, ...], cells: tuple[int, ...], last: tuple[int, ...]) -> bool:
    """Whether an array has the shape (*cells, *last), but for labels that it leaves out or has one entry for."""
    labels = found[: -len(last)]
    fits = all(mine in (1, full) for mine, full in zip(labels[::-1], cells[::-1], strict=False))
    return found[len(labels) :] == last and len(labels) <= len(cells) and fits


def rule_from_arrays(kind: str, problem: Problem, arrays: Mapping[str, FloatArray]) -> Rule:
    """The inverse of a rule's `arrays`; refuses what does not fit the problem."""
    own = {name: array for name, array in arrays.items() if not name.startswith("outcomes.")}
    if not all(array.dtype == np.float64 and np.isfinite(array).all() for array in own.values()):
        raise ValueError("the arrays of a rule must hold finite numbers in double precision")
    try:
        match kind:
            case "Levels":
                return Levels(_shaped(own["levels"], (*problem.labels.shape, problem.horizon, problem.action_dim)))
            case "SeparableQ":
                axes = _axes(problem, own)
                return SeparableQ(axes, _shaped(own["q"], (problem.horizon, *axes.q_shape)))
            case "PartitionQ":
                pairs = _nodes(own, "pairs.", problem.horizon, problem.state_dim + problem.action_dim)
                partition = Partition(problem, pairs, _nodes(own, "states.", 1, problem.state_dim)[0])
                return PartitionQ(partition, _shaped(own["q"], (problem.horizon, *partition.q_shape)))
            case "FittedU":
                return _fitted(problem, own)
            case "CountTable":
                counts = round(float(problem.state_high[0] - problem.state_low[0])) + 1
                shape = (*problem.labels.shape, problem.horizon, counts, 1)
                return CountTable(_shaped(own["actions"], shape), _shaped(own["values"], shape))
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the file lacks an array that {kind} needs") from error
    raise _unknown_rule(kind)


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


def _unknown_rule(kind: str) -> ValueError:
    return ValueError(f"the file's rule {kind!r} is not known to this version")


def _axes(problem: Problem, arrays: Mapping[str, FloatArray]) -> Axes:
    points, beyond = _shaped(arrays["axes"], (2,))
    if not isinstance(problem, SeparableProblem) or points < 2:
        raise ValueError("values on axes need a separable problem and two points or more")
    return Axes(problem, int(points), bool(beyond))


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
