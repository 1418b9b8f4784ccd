"""The fits that are audited if none is configured, and everything that a release reveals of a log."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from poolrl.audit.kind_case import KindCase
from poolrl.audit.worst_case import Configured
from poolrl.checks import FloatArray, IntArray
from poolrl.data.log import Log
from poolrl.pool import OnOutcomes, OnVisits, Prepared
from poolrl.privacy.noise.source import NoiseSource
from poolrl.privacy.sensitivity import (
    TableLayout,
    joint_table,
    left_sums,
    outcome_trees,
    pair_sums,
    shows_levels,
    visit_tables,
)
from poolrl.problems.inventory import Backlog, LostSales
from poolrl.problems.registry import KINDS

# Two products and three steps, because noise could be shared between products, or between a step and the next but one.
_FACTS: dict[str, Any] = {"horizon": 3, "products": 2, "holding": 1.0, "shortage": 1.0, "demand_max": 8.0}
# The published learner has a table of all transitions between nodes, which grows fast.
_FEW: dict[str, Any] = _FACTS | {"horizon": 2, "products": 1}
_LABELS = {"shop": [1, 2, 3]}
CASES = (
    Configured(LostSales(**_FACTS), engine="arrays"),
    Configured(LostSales(**_FACTS, boundary=0.75), per_unit=3),
    Configured(LostSales(**_FEW), "published", engine="arrays"),
    Configured(LostSales(**_FEW), "published", per_unit=3, engine="arrays"),
    Configured(LostSales(**_FACTS), scaled=True, scale_memory=2, units=5, engine="arrays"),
    Configured(LostSales(**_FACTS, labels=_LABELS), engine="arrays"),
    Configured(LostSales(**_FACTS, labels=_LABELS), labels_public=True, engine="arrays"),
    Configured(Backlog(**_FACTS), title="default, c = 1, backlog"),
    Configured(LostSales(**_FACTS, labels=_LABELS), left_over=0.1, title="default, c = 1, labels, stock left over"),
    Configured(LostSales(**_FACTS), together=0.1, title="default, c = 1, products that sell together"),
    # Every kind of the registry but shops, by its own example.
    *(
        KindCase(one, engine="arrays", dependence=0.1 * shows_levels(one), title=f"default, c = 1, {name}")
        for name, one in ((name, kind(**kind.words.example)) for name, kind in KINDS.items() if kind.words.example)
    ),
)


@dataclass(frozen=True)
class Revealed:
    """Everything that a release reveals: noisy numbers in one row, and public facts, equal for all neighbours.

    Among these are the `shapes` of its tables, and the number of the mechanism to which each `belongs`.
    """

    numbers: IntArray
    public: dict[str, Any]

    @property
    def mechanism_of(self) -> IntArray:
        """The number of each number's mechanism."""
        return np.repeat(self.public["belongs"], [math.prod(shape) for shape in self.public["shapes"]])

    @property
    def table_variances(self) -> list[float]:
        """The stated variance of each table."""
        mechanisms = self.public["guarantee"].mechanisms
        return [float(mechanisms[number].variance) for number in self.public["belongs"]]

    @property
    def variances(self) -> FloatArray:
        """That of each number."""
        return np.array([float(each.variance) for each in self.public["guarantee"].mechanisms])[self.mechanism_of]

    def of_mechanism(self, number: int) -> IntArray:
        """The numbers of one mechanism."""
        return self.numbers[self.mechanism_of == number]


def revealed(prepared: Prepared, released: Any) -> Revealed:
    """Everything at once, because a row of transitions is released once."""
    if isinstance(prepared, OnVisits):
        nodes = np.arange(prepared.where.pair_count)
        tables = [released.pairs, *(released.transitions(step, nodes) for step in range(prepared.problem.horizon))]
        belongs = [0] + [1] * prepared.problem.horizon
    else:
        trees = [*released.levels, *([] if released.unobserved is None else [released.unobserved])]
        sums = [] if released.dependence is None else [released.dependence.counts]
        sums += [each.sums for each in (released.left, released.together) if each is not None]
        # In the guarantee's order; a table that it leaves out is compared with its last one.
        last = len(released.guarantee.mechanisms) - 1
        tables, belongs = [*trees, *sums], [0] * len(trees) + [min(1 + i, last) for i in range(len(sums))]
    numbers = np.concatenate([table.ravel() for table in tables])
    shapes = [table.shape for table in tables]
    public = {"guarantee": released.guarantee, "total": getattr(released, "total", None), "shapes": shapes}
    public["belongs"] = belongs
    totals = getattr(released, "totals", None)
    public["totals"] = None if totals is None else totals.tolist()
    return Revealed(numbers, public)


def layouts(prepared: Prepared, found: Revealed, *, per_unit: int) -> tuple[TableLayout, ...]:
    """What the formulas of `privacy.sensitivity` say of these tables."""
    if isinstance(prepared, OnVisits):
        nodes = {"pairs": prepared.where.pair_count, "states": prepared.where.state_count}
        return visit_tables(prepared.problem, **nodes, per_unit=per_unit)
    assert isinstance(prepared, OnOutcomes)
    # Levels are (*labels, H, k, kinds, size). Unless the log is complete, one table counts what is unobserved.
    problem, belongs = prepared.problem, found.public["belongs"]
    trees = [shape for shape in found.public["shapes"] if len(shape) == len(problem.labels.shape) + 4]
    layout = outcome_trees(
        problem,
        level_sizes=tuple(shape[-1] for shape in trees),
        per_unit=per_unit,
        complete=len(trees) == belongs.count(0),
        labels_public=found.public["guarantee"].labels == "public",
    )
    joint = [joint_table(problem, per_unit=per_unit)] if prepared.dependence else []
    on_top = [(prepared.left_over, left_sums), (prepared.together, pair_sums)]
    return (layout, *joint, *(formula(problem, per_unit=per_unit) for budget, formula in on_top if budget))


class Exact:
    """No noise: the exact counts, for an attacker who knows everything but the noise."""

    def begin(self) -> Exact:
        """Itself."""
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """The counts."""
        return counts.copy()


@dataclass
class Frozen:
    """Tables that do not depend on the counts. What is learned from them must not depend on the log either."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def begin(self) -> Frozen:
        """From the beginning."""
        return Frozen()

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        """Numbers that do not depend on the counts."""
        return self.rng.integers(0, 40, counts.shape)


def policy_file(prepared: Prepared, log: Log, noise: NoiseSource) -> bytes:
    """The policy file that a fit writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.npz"
        prepared.learn(prepared.release(log, noise)).save(path)
        return path.read_bytes()
