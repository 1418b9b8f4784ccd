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
from poolrl.privacy.sensitivity import TableLayout, outcome_trees, visit_tables
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
# Here what a unit moves is compared with what is paid for, in whole numbers. In a backlog it sold nothing, or all.
COUNTED = {
    "two products, a boundary of 0.75": Shop(LostSales(**FACTS, products=2, boundary=0.75), (6.0, 6.0), (2.0, 0.0)),
    "backlog": Shop(Backlog(**FACTS), (8.0, 8.0), (5.0, -3.0)),
    "backlog of two products": Shop(Backlog(**FACTS, products=2), (8.0, 8.0), (5.0, -3.0)),
}


@dataclass(frozen=True)
class Case:
    """Which learner is attacked, and how many trajectories one unit may own."""

    learner: str  # a key of AUDITED
    per_unit: int

    @property
    def name(self) -> str:
        """The name in reports."""
        return f"{self.learner}, c = {self.per_unit}"

    def prepared(self, rho: float, shop: Shop = ATTACKED) -> Prepared:
        """The learner, ready to release."""
        return AUDITED[self.learner](rho).prepare(shop.problem)

    def logs(self, shop: Shop = ATTACKED) -> tuple[Trajectories, Trajectories]:
        """Two neighbours. The unit in which they differ owns twice as many trajectories as are kept."""
        products = shop.problem.products
        return self._log(*shop.before, products=products), self._log(*shop.after, products=products)

    def tables(self) -> tuple[Table, Table]:
        """The same logs as tables, to be counted by an engine."""
        return self._table(*ATTACKED.before), self._table(*ATTACKED.after)

    def poorer(self) -> tuple[Trajectories, Table]:
        """A third neighbour, with the same public facts: its unit owns one trajectory, in the table a part of it."""
        return self._log(*ATTACKED.after, owns=1), self._table(*ATTACKED.after, owns=1, lacks=1)

    def _arrays(self, level: float, left: float, owns: int | None = None, products: int = 1) -> dict[str, FloatArray]:
        owned = np.array([owns or 2 * self.per_unit] + [self.per_unit] * OTHERS)
        unit = np.repeat(np.arange(1 + OTHERS), owned)
        mine = (unit == 0)[:, None, None]
        shape = (len(unit), FACTS["horizon"], products)
        return {
            "unit": unit,
            "states": np.zeros(shape),
            "actions": np.where(mine, level, np.full(shape, THEIRS[0])),
            "next_states": np.where(mine, left, np.full(shape, THEIRS[1])),
        }

    def _log(self, level: float, left: float, *, owns: int | None = None, products: int = 1) -> Trajectories:
        return Trajectories(**self._arrays(level, left, owns, products), max_per_unit=self.per_unit)

    def _table(self, level: float, left: float, *, owns: int | None = None, lacks: int = 0) -> Table:
        import pyarrow as pa

        arrays = self._arrays(level, left, owns)
        rows, steps = arrays["states"].shape[:2]
        columns = {name: arrays[name].ravel() for name in ("states", "actions", "next_states")}
        columns["unit"] = np.repeat(arrays["unit"], steps)
        columns["id"], columns["step"] = np.repeat(np.arange(rows), steps), np.tile(np.arange(steps), rows)
        names: dict[str, Any] = {"trajectory": "id", "step": "step", "unit": "unit"}
        names |= {part: [part] for part in ("states", "actions", "next_states")}
        return Table(pa.table(columns).slice(lacks), **names, max_per_unit=self.per_unit)


AUDITED = {"default": Pool, "published": lambda rho: Pool.published(rho, zones=FEW_ZONES)}
CASES = tuple(Case(learner, per_unit) for learner in AUDITED for per_unit in (1, 3))


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
    return Revealed(numbers, released.variance, public)


def layouts(prepared: Prepared, found: Revealed, *, per_unit: int) -> tuple[TableLayout, ...]:
    """What the formulas of `privacy.sensitivity` say of these tables."""
    if isinstance(prepared, OnVisits):
        nodes = {"pairs": prepared.where.pair_count, "states": prepared.where.state_count}
        return visit_tables(prepared.problem, **nodes, per_unit=per_unit)
    assert isinstance(prepared, OnOutcomes)
    *trees, last = found.public["shapes"]
    complete = len(last) == 4  # otherwise the last table counts what is unobserved, (H, k)
    bins = (last if complete else trees[-1])[-1]
    return (outcome_trees(prepared.problem, bins=bins, per_unit=per_unit, complete=complete),)


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
