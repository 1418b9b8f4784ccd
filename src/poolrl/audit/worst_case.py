"""The worst case of a fit: for its problem and for what is declared of its log, two neighbours as far apart as allowed.

`sensitivity.outcome_trees` says how far one unit can move the counts: at every step, coordinate and level its c
trajectories leave one node for another. `sensitivity.left_sums` says how far it can move the sums of what was left:
from nothing to the bound. Here they do so:

    lost sales   nothing is sold of a full shelf      →  a small shelf is sold out
    backlog      nobody asks for anything             →  demand is at its bound
    a scale      a small shelf is sold out            →  the same amounts, but the scale of m others has shrunk
    labels       the first label cell                 →  the last one, unless labels are public

Where sums are released too, both move at once:

    lost sales   all is left of a full shelf          →  nothing is left
    a scale      almost nothing is sold or left       →  the same amounts, which are now the bound or more
    labels       all is left in the first label cell  →  all is left in the last one

No row of anybody's log is read. What the two logs move is counted exactly, and compared with what is paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from poolrl.checks import FloatArray, IntArray, one_of, whole
from poolrl.data.log import Columns, Log
from poolrl.data.table import Table
from poolrl.data.trajectories import Trajectories
from poolrl.learning.outcomes import COARSEST_LEVEL
from poolrl.pool import ON_TOP, OnOutcomes, Pool, Prepared
from poolrl.privacy.sensitivity import moved_trajectories
from poolrl.problems.inventory import Inventory

if TYPE_CHECKING:
    import pyarrow as pa

FEW_ZONES = 3
AUDITED: dict[str, Callable[..., Pool]] = {
    "default": lambda rho, **on_top: Pool(rho, **on_top),
    "published": lambda rho, **_: Pool.published(rho, zones=FEW_ZONES),
}
# Shares of the demand bound: a small shelf, what others keep and leave, and how far a scale shrinks. None lies on the
# edge of a bin. The last is a power of two, so that to divide by it is exact.
SMALL_SHELF, THEIR_SHELF, SHRUNK = 0.3, (0.6, 0.35), 1 / 128
# An edge of pairs, at (28/256)² of the bound. It lies below the small shelf: who sells nothing is below, who sells out
# beyond. And it lies between what is there and what is sold when a scale of a full shelf has not shrunk yet.
LOW_EDGE = 28
# A scale that changes nothing but the units of the amounts.
SAME_SCALE = 2.0
# Multiples of a scale may exceed the bound: of a shelf of two bounds one can be sold, and one is left.
FULL_OF_BOTH = np.array([2.0, 1.0])
# Behind a boundary they may not: of what is ordered so much is sold that demand leaves the first node of every level.
LEAST_SOLD = 1.04 / COARSEST_LEVEL


@dataclass(frozen=True)
class Configured:
    """A fit to audit: its problem, its learner, and what is declared of its log.

    `per_unit` is c, or None where each trajectory is its own unit. With `scaled`, amounts are multiples of a scale,
    and `scale_memory` is m. `units` is how many units the simulated log has: bins follow from it. With the engine
    "table" the log is counted in DuckDB, as by `poolrl fit`; with "arrays" in memory. `left_over` is the share of ρ for
    sums of what was left, `together` that for sums of pairs, and `dependence` that for the joint table of levels and
    outcomes, as in `Pool`. Edges of pairs are held fixed, where the two logs move most: that noisy trees choose them is
    covered by composition.

        attack_case(Configured(problem, per_unit=3), rho=0.1)
    """

    problem: Inventory
    learner: str = "default"  # a key of AUDITED
    per_unit: int | None = None
    scaled: bool = False
    scale_memory: int = 0
    labels_public: bool = False
    left_over: float = 0.0
    together: float = 0.0
    dependence: float = 0.0
    units: int = 3
    engine: Literal["table", "arrays"] = "table"
    title: str = ""
    opened_by: Callable[[Configured, pa.Table], AbstractContextManager[Log]] | None = None

    def __post_init__(self) -> None:
        one_of([*AUDITED], learner=self.learner)
        one_of(["table", "arrays"], engine=self.engine)
        self.check_kind()
        whole(units=self.units, at_least=2 + self._followers)

    def check_kind(self) -> None:
        """Refuse a problem whose worst case is not known here."""
        if not isinstance(self.problem, Inventory):
            raise ValueError(f"an audit needs an inventory problem (LostSales, Backlog), got {type(self.problem)}")

    @property
    def name(self) -> str:
        """The name in reports."""
        what = f"m = {self.scale_memory}" if self.scale_memory else f"c = {self.per_unit or 1}"
        labels = f", {'public ' * self.labels_public}labels" if self.problem.labels else ""
        return self.title or f"{self.learner}, {what}{labels}"

    @property
    def moved(self) -> int:
        """c: how many trajectories change with the unit."""
        return moved_trajectories(
            per_unit=self.per_unit or 1, scale_memory=self.scale_memory, has_units=self.per_unit is not None
        )

    def prepared(self, rho: float) -> Prepared:
        """The learner, ready to release."""
        on_top = {name: getattr(self, name) for name in ON_TOP}
        prepared = AUDITED[self.learner](rho, **on_top).prepare(self.problem)
        if not isinstance(prepared, OnOutcomes) or not self.together:
            return prepared
        shape = (*self.problem.labels.shape, self.problem.horizon, self.problem.products)
        return replace(prepared, fixed_edges=np.full(shape, LOW_EDGE))

    @contextmanager
    def logs(self, engine: str | None = None) -> Iterator[tuple[Log, Log]]:
        """The two neighbours. The unit in which they differ owns twice as many trajectories as are kept."""
        with ExitStack() as opened:
            first, second = (opened.enter_context(self._log(changed, engine or self.engine)) for changed in (0, 1))
            yield first, second

    @contextmanager
    def poorer(self, engine: str) -> Iterator[Log | None]:
        """A third neighbour, with the same public facts: its unit owns one trajectory, in a table a part of it.

        There is none where labels are public, because its trajectories then are as well.
        """
        if self.labels_public:
            yield None
            return
        with self._log(1, engine, owns=1) as log:
            yield log

    @property
    def columns(self) -> Columns:
        """The columns of `rows`."""
        names: dict[str, Any] = {p: [f"{p}_{i}" for i in range(self.problem.products)] for p in self._parts}
        names |= {} if self.per_unit is None else {"unit": "unit"}
        return Columns(trajectory="trajectory", step="step", **names, labels={n: n for n in self.problem.labels.names})

    def rows(self, changed: int, *, owns: int | None = None) -> pa.Table:
        """The log as a long table. A unit that owns one trajectory lacks the first step of it."""
        import pyarrow as pa

        arrays = self._arrays(changed, owns)
        trajectories, steps, _ = arrays["states"].shape
        columns = {
            "trajectory": np.repeat(np.arange(trajectories), steps),
            "step": np.tile(np.arange(steps), trajectories),
        }
        for part in self._parts:
            columns |= {f"{part}_{i}": arrays[part][:, :, i].ravel() for i in range(arrays[part].shape[2])}
        whole_life = {"unit": arrays["unit"]} if "unit" in arrays else {}
        whole_life |= arrays.get("labels", {})
        columns |= {name: np.repeat(each, steps) for name, each in whole_life.items()}
        # Of a trajectory with one step nothing would be left.
        return pa.table(columns).slice(0 if owns is None or steps == 1 else 1)

    @property
    def _parts(self) -> list[str]:
        return ["states", "actions", "next_states", *(["scale"] if self.scaled else [])]

    @property
    def _followers(self) -> int:
        """Units whose scales follow the unit: none where each scale comes from rows of its own unit."""
        return self.scale_memory if self.per_unit is None else 0

    def _log(self, changed: int, engine: str, *, owns: int | None = None) -> AbstractContextManager[Log]:
        if engine == "table":
            return (self.opened_by or in_memory_table)(self, self.rows(changed, owns=owns))
        return _already_open(Trajectories(**self._arrays(changed, owns), **self.declared))

    @property
    def declared(self) -> dict[str, Any]:
        """What is said of a log beside its columns."""
        memory = {"scale_memory": self.scale_memory, "labels_public": self.labels_public}
        return {"max_per_unit": self.per_unit or 1} | memory

    def _arrays(self, changed: int, owns: int | None) -> dict[str, Any]:
        """The log as arrays: the unit itself, those that follow it, and others."""
        problem, c, following = self.problem, self.per_unit or 1, self._followers
        mine = owns or (1 if self.per_unit is None else 2 * c)
        unit = np.repeat(np.arange(self.units), [mine] + [1] * following + [c] * (self.units - 1 - following))
        before, after = self._shelves()
        others = np.broadcast_to(np.array(THEIR_SHELF)[:, None, None], before.shape) * problem.share
        is_mine, follows = unit == 0, (unit > 0) & (unit <= following)
        cell = self._label_cells(unit, changed)
        # (2, n, H, k): order-up-to levels and what is left, as shares of the bound of the row's label cell.
        does = np.where(is_mine[:, None, None], (after if changed else before)[:, None], others[:, None])
        does = np.where(follows[:, None, None], before[:, None], does)
        bounds = problem.label_bounds.reshape(-1, problem.products)[cell][:, None, :]
        scale = np.full(does.shape[1:], SAME_SCALE if self.scaled and not following else 1.0)
        actions, left = does * bounds * scale
        if changed:
            scale[follows] = SHRUNK
        arrays: dict[str, Any] = {"states": np.zeros_like(actions), "actions": actions, "next_states": left}
        arrays |= {"scale": scale} if self.scaled else {}
        arrays |= {} if self.per_unit is None else {"unit": unit}
        return arrays | ({"labels": self._label_values(cell)} if problem.labels else {})

    def _shelves(self) -> tuple[FloatArray, FloatArray]:
        """What the unit does before and after, (2, H, k): its levels and what is left, as shares of the bound."""
        most, none = self.problem.share, np.zeros_like(self.problem.share)
        censored = self.problem.censored
        if self._followers and (self.left_over or self.together):
            # Almost nothing in one unit, and in the other the most that can be both sold and left.
            behind = np.stack([most, np.maximum(most - LEAST_SOLD, 0.0)])
            both = FULL_OF_BOTH[:, None, None] * most if self.problem.boundary.everywhere else behind
            return both * SHRUNK, both
        if self._followers:
            # The same amounts in two units: others move by their scale alone.
            end = (most, none) if censored else (none, none - 1.0)
            return np.stack(end) * SHRUNK, np.stack(end)
        if self.left_over and self._changes_cell:
            return np.stack([most, most]), np.stack([most, most])
        small = SMALL_SHELF * most
        return np.stack([most, most]), np.stack([small, none if censored else small - 1.0])

    def _label_cells(self, unit: IntArray, changed: int) -> IntArray:
        """The label cell of each trajectory. Who must stay beside its followers, or is public, keeps its cell."""
        count = self.problem.labels.count
        mine = count - 1 if changed and self._changes_cell else 0
        return np.where(unit <= self._followers, mine, unit % count if self.labels_public else 0)

    @property
    def _changes_cell(self) -> bool:
        return self.problem.labels.count > 1 and not self._followers and not self.labels_public

    def _label_values(self, cell: IntArray) -> dict[str, Any]:
        labels = self.problem.labels
        places = np.unravel_index(cell, labels.shape)
        return {n: np.array(v)[at] for n, v, at in zip(labels.names, labels.values, places, strict=True)}


@contextmanager
def in_memory_table(case: Configured, rows: pa.Table) -> Iterator[Log]:
    """The rows as a table that DuckDB counts."""
    yield Table(rows, **asdict(case.columns), **case.declared)


@contextmanager
def _already_open(log: Log) -> Iterator[Log]:
    yield log
