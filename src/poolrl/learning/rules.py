"""Decision rules: what a learned Q comes down to when somebody asks for an action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from poolrl.arrays import FloatArray
from poolrl.learning.grid import Lattice
from poolrl.learning.partition import Nodes, Partition
from poolrl.learning.separable import Axes
from poolrl.learning.zones import Rings
from poolrl.problems.problem import Problem, SeparableProblem


class Rule(Protocol):
    """Actions for states, and the arrays that rebuild the rule."""

    def act(self, problem: Problem, step: int, state: FloatArray) -> FloatArray:
        """Actions (m, d) for states (m, w), feasible and within λ wherever both are possible."""

    def arrays(self) -> dict[str, FloatArray]:
        """What goes into a file."""


@dataclass(frozen=True)
class Levels:
    """Order up to a level, (H, products): y = max(x, S_h)."""

    levels: FloatArray

    def __post_init__(self) -> None:
        self.levels.flags.writeable = False  # a level changed by hand would go out under the old guarantee

    def act(self, problem: Problem, step: int, state: FloatArray) -> FloatArray:
        """The level, as far as it is allowed."""
        low, high = problem.allowed(step, state)
        return np.clip(self.levels[step], low, high)

    def arrays(self) -> dict[str, FloatArray]:
        """The table."""
        return {"levels": self.levels}


@dataclass(frozen=True)
class SeparableQ:
    """Coordinate by coordinate the best action of a piecewise-linear Q, (H, k, N)."""

    axes: Axes
    q: FloatArray

    def act(self, problem: Problem, step: int, state: FloatArray) -> FloatArray:
        """Greedy on the axes."""
        return self.axes.greedy(step, self.q[step], state)[0]

    def arrays(self) -> dict[str, FloatArray]:
        """Q and its resolution."""
        shape = np.array([self.axes.points, self.axes.beyond], dtype=np.float64)
        return {"q": self.q, "axes": shape}


@dataclass(frozen=True)
class PartitionQ:
    """The best of the candidate actions under a Q on zones or grid cells, evaluated when asked, (H, N)."""

    partition: Partition
    q: FloatArray

    def act(self, problem: Problem, step: int, state: FloatArray) -> FloatArray:
        """Greedy over the partition's candidates."""
        return self.partition.greedy(step, self.q[step], state)[0]

    def arrays(self) -> dict[str, FloatArray]:
        """Q and the nodes of every step."""
        found = {"q": self.q}
        for space, nodes in (("pairs", self.partition.pairs), ("states", (self.partition.states,))):
            for name in nodes[0].arrays():
                found[f"{space}.{name}"] = np.stack([each.arrays()[name] for each in nodes])
        return found


def rule_from_arrays(kind: str, problem: Problem, arrays: Mapping[str, FloatArray]) -> Rule:
    """The inverse of a rule's `arrays`."""
    try:
        if kind == "Levels":
            return Levels(arrays["levels"])
        if kind == "SeparableQ" and isinstance(problem, SeparableProblem):
            points, beyond = arrays["axes"]
            return SeparableQ(Axes(problem, int(points), bool(beyond)), arrays["q"])
        if kind == "PartitionQ":
            return PartitionQ(Partition(problem, _nodes(arrays, "pairs."), _nodes(arrays, "states.")[0]), arrays["q"])
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the file lacks an array that {kind} needs") from error
    raise ValueError(f"the file's rule {kind!r} is not known to this version")


def _nodes(arrays: Mapping[str, FloatArray], prefix: str) -> tuple[Nodes, ...]:
    parts: dict[str, Any] = {
        name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)
    }
    if "corners" in parts:
        return tuple(
            Rings(corners, float(radius)) for corners, radius in zip(parts["corners"], parts["radius"], strict=True)
        )
    return tuple(
        Lattice(reach, int(bins), bool(linear))
        for reach, bins, linear in zip(parts["reach"], parts["bins"], parts["linear"], strict=True)
    )
