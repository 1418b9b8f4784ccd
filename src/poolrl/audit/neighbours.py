"""Two neighbouring logs in the worst case, and everything that a release reveals of one of them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.data.table import Table
from poolrl.data.trajectories import Trajectories
from poolrl.pool import OnOutcomes, OnVisits, Pool, Prepared
from poolrl.privacy.noise.source import NoiseSource
from poolrl.privacy.sensitivity import TableLayout, moved_trajectories, outcome_trees, visit_tables
from poolrl.problems.inventory import Backlog, Inventory, LostSales

FEW_ZONES = 3
# Two other units that do not change. The third unit never does what they did, so the cells that it leaves are empty.
OTHERS, THEIRS = 2, (5.0, 3.0)
FACTS: dict[str, Any] = {"horizon": 2, "holding": 1.0, "shortage": 1.0, "demand_max": 8.0}


@dataclass(frozen=True)
class Shop:
    """What one unit does before and after, for every product and step: (order-up-to level, stock left).

    It leaves one node for another at every step, coordinate and level of a tree, and in both tables of visits. So it
    moves exactly as much as was paid for.
    """

    problem: Inventory
    before: tuple[float, float]
    after: tuple[float, float]


# The unit sold nothing of a full shelf, or sold out a small one.
ATTACKED = Shop(LostSales(**FACTS), before=(8.0, 8.0), after=(2.0, 0.0))
# Two are sold of four, or all of a full shelf. Those that follow always sell two of four. But if the unit sold out,
# their scale is a fifth. Ten of twenty are then more than the bound, and all that shows is "at least eight".
FOLLOWED, FOLLOWING_SCALE = Shop(LostSales(**FACTS), before=(4.0, 2.0), after=(8.0, 0.0)), 0.2
# The unit is in the first shop, or in the second.
LABELLED = Shop(LostSales(**FACTS, labels={"shop": [1, 2]}), before=(8.0, 8.0), after=(2.0, 0.0))
# Here what a unit moves is compared with what is paid for, in whole numbers. In a backlog it sold nothing, or all.
COUNTED = {
    "two products, a boundary of 0.75": Shop(LostSales(**FACTS, products=2, boundary=0.75), (6.0, 6.0), (2.0, 0.0)),
    "backlog": Shop(Backlog(**FACTS), (8.0, 8.0), (5.0, -3.0)),
    "backlog of two products": Shop(Backlog(**FACTS, products=2), (8.0, 8.0), (5.0, -3.0)),
}


@dataclass(frozen=True)
class Case:
    """Which learner is attacked, and what one unit may move.

    That is `per_unit` trajectories of its own. With a `scale_memory` each trajectory is a unit, and those that follow
    it have scales that depend on it. If the log is `labelled`, the unit changes its label.
    """

    learner: str  # a key of AUDITED
    per_unit: int = 1
    scale_memory: int = 0
    labelled: bool = False

    @property
    def name(self) -> str:
        """The name in reports."""
        what = f"m = {self.scale_memory}" if self.scale_memory else f"c = {self.per_unit}"
        return f"{self.learner}, {what}{', labels' if self.labelled else ''}"

    @property
    def moved(self) -> int:
        """How many trajectories change with the unit."""
        has_units = not self.scale_memory
        return moved_trajectories(per_unit=self.per_unit, scale_memory=self.scale_memory, has_units=has_units)

    @property
    def shop(self) -> Shop:
        """The shop whose releases are attacked."""
        return LABELLED if self.labelled else FOLLOWED if self.scale_memory else ATTACKED

    @property
    def others_are_counted(self) -> bool:
        """Whether the shops in COUNTED can be this case's too: they have no labels, and their rows no scale."""
        return not self.labelled and not self.scale_memory

    def prepared(self, rho: float, shop: Shop | None = None) -> Prepared:
        """The learner, ready to release."""
        return AUDITED[self.learner](rho).prepare((shop or self.shop).problem)

    def logs(self, shop: Shop | None = None) -> tuple[Trajectories, Trajectories]:
        """Two neighbours. The unit in which they differ owns twice as many trajectories as are kept."""
        shop = shop or self.shop
        return self._log(shop, shop.before), self._log(shop, shop.after)

    def tables(self) -> tuple[Table, Table]:
        """The same logs as tables, to be counted by an engine."""
        return self._table(self.shop.before), self._table(self.shop.after)

    def poorer(self) -> tuple[Trajectories, Table]:
        """A third neighbour, with the same public facts: its unit owns one trajectory, in the table a part of it."""
        return self._log(self.shop, self.shop.after, owns=1), self._table(self.shop.after, owns=1, lacks=1)

    def _arrays(self, shop: Shop, does: tuple[float, float], owns: int | None = None) -> dict[str, Any]:
        following = self.scale_memory
        owned = [1] * following + [self.per_unit] * OTHERS
        unit = np.repeat(np.arange(1 + len(owned)), [owns or (1 if following else 2 * self.per_unit), *owned])
        mine, follows, changed = unit == 0, (unit > 0) & (unit <= following), does == shop.after
        shape = (len(unit), shop.problem.horizon, shop.problem.products)

        def amounts(my: float, following: float, others: float) -> FloatArray:
            each = np.where(mine, my, np.where(follows, following, others))
            return np.broadcast_to(each[:, None, None], shape).copy()

        arrays: dict[str, Any] = {
            "states": np.zeros(shape),
            "actions": amounts(does[0], shop.before[0], THEIRS[0]),
            "next_states": amounts(does[1], shop.before[1], THEIRS[1]),
        }
        if self.scale_memory:
            arrays["scale"] = amounts(1.0, FOLLOWING_SCALE if changed else 1.0, 1.0)
        else:
            arrays["unit"] = unit
        if self.labelled:
            arrays["labels"] = {"shop": np.where(mine & changed, 2, 1)}
        return arrays

    def _log(self, shop: Shop, does: tuple[float, float], *, owns: int | None = None) -> Trajectories:
        arrays = self._arrays(shop, does, owns)
        return Trajectories(**arrays, max_per_unit=self.per_unit, scale_memory=self.scale_memory)

    def _table(self, does: tuple[float, float], *, owns: int | None = None, lacks: int = 0) -> Table:
        """The same rows with all that a unit owns, without the first of them or more."""
        import pyarrow as pa

        arrays = self._arrays(self.shop, does, owns)
        rows, steps = arrays["states"].shape[:2]
        columns = {"id": np.repeat(np.arange(rows), steps), "step": np.tile(np.arange(steps), rows)}
        columns |= {name: array.ravel() for name, array in arrays.items() if name not in ("unit", "labels")}
        whole_life = {"unit": arrays["unit"]} if "unit" in arrays else {}
        whole_life |= arrays.get("labels", {})
        columns |= {name: np.repeat(each, steps) for name, each in whole_life.items()}
        names: dict[str, Any] = {"trajectory": "id", "step": "step"}
        names |= {part: [part] for part in ("states", "actions", "next_states", "scale") if part in arrays}
        names |= {"unit": "unit"} if "unit" in arrays else {}
        names |= {"labels": ["shop"]} if self.labelled else {}
        table = pa.table(columns).slice(lacks)
        return Table(table, **names, max_per_unit=self.per_unit, scale_memory=self.scale_memory)


AUDITED = {"default": Pool, "published": lambda rho: Pool.published(rho, zones=FEW_ZONES)}
# Visits have neither a scale nor labels.
CASES = (
    *(Case(learner, per_unit) for learner in AUDITED for per_unit in (1, 3)),
    Case("default", scale_memory=2),
    Case("default", labelled=True),
)


@dataclass(frozen=True)
class Revealed:
    """Everything that a release reveals: noisy numbers in one row, and public facts, equal for all neighbours."""

    numbers: IntArray
    variance: float
    public: dict[str, Any]


def revealed(prepared: Prepared, released: Any) -> Revealed:
    """Everything at once, because a row of transitions is released once."""
    if isinstance(prepared, OnVisits):
        nodes = np.arange(prepared.where.pair_count)
        tables = [released.pairs, *(released.transitions(step, nodes) for step in range(prepared.problem.horizon))]
    else:
        tables = [*released.levels, *([] if released.unobserved is None else [released.unobserved])]
    numbers = np.concatenate([table.ravel() for table in tables])
    shapes = [table.shape for table in tables]
    public = {"guarantee": released.guarantee, "total": getattr(released, "total", None), "shapes": shapes}
    totals = getattr(released, "totals", None)
    public["totals"] = None if totals is None else totals.tolist()
    return Revealed(numbers, released.variance, public)


def layouts(prepared: Prepared, found: Revealed, *, per_unit: int) -> tuple[TableLayout, ...]:
    """What the formulas of `privacy.sensitivity` say of these tables."""
    if isinstance(prepared, OnVisits):
        nodes = {"pairs": prepared.where.pair_count, "states": prepared.where.state_count}
        return visit_tables(prepared.problem, **nodes, per_unit=per_unit)
    assert isinstance(prepared, OnOutcomes)
    # Levels are (*labels, H, k, kinds, size). Unless the log is complete, the last table counts what is unobserved.
    shapes, problem = found.public["shapes"], prepared.problem
    trees = [shape for shape in shapes if len(shape) == len(problem.labels.shape) + 4]
    return (
        outcome_trees(
            problem,
            level_sizes=tuple(shape[-1] for shape in trees),
            per_unit=per_unit,
            complete=len(trees) == len(shapes),
            labels_public=found.public["guarantee"].labels == "public",
        ),
    )


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


def policy_file(prepared: Prepared, log: Trajectories, noise: NoiseSource) -> bytes:
    """The policy file that a fit writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.npz"
        prepared.learn(prepared.release(log, noise)).save(path)
        return path.read_bytes()
