"""The fits that are audited, and for each the worst case: two neighbouring logs as far apart as its problem allows.

How far one unit can move the tables is said in `privacy/sensitivity.py`. Where an action sets the next state, these
lives move the trees as far:

    lost sales   nothing is sold of a full shelf      →  a small shelf is sold out
    backlog      nobody asks for anything             →  demand is at its bound
    a scale      a small shelf is sold out            →  the same amounts, but the scale of m others has shrunk
    labels       the first label cell                 →  the last one, unless labels are public

Where sums are released too, both move at once:

    lost sales   all is left of a full shelf          →  nothing is left
    a scale      almost nothing is sold or left       →  the same amounts, which are now the bound or more
    labels       all is left in the first label cell  →  all is left in the last one

For any other problem two lives are found by trying. What the two logs move is counted exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from poolrl.checks import FloatArray, IntArray, one_of, whole
from poolrl.data.cells import outcome_cells
from poolrl.data.log import NUMBERS, Columns, Log
from poolrl.data.table import Table
from poolrl.data.trajectories import Trajectories
from poolrl.learning.outcomes import COARSEST_LEVEL
from poolrl.pool import OnOutcomes, Pool, Prepared
from poolrl.problems.inventory import Backlog, LostSales
from poolrl.problems.problem import OutcomeProblem
from poolrl.problems.registry import KINDS

if TYPE_CHECKING:
    import pyarrow as pa

FEW_ZONES = 3
AUDITED: dict[str, Callable[..., Pool]] = {
    "default": lambda rho, **on_top: Pool(rho, **on_top),
    "published": lambda rho, **_: Pool.published(rho, zones=FEW_ZONES),
}
# A life: its share of the allowed actions, and of the possible outcomes, the same at every step. No share lies on the
# edge of a bin. How far a scale shrinks is a power of two, so that to divide by it is exact.
Life = tuple[float, float]
UNSOLD, SOLD_OUT, OF_OTHERS, SHRUNK = (1.0, 0.0), (0.3, 1.0), (0.6, 0.25), 1 / 128
# Multiples of a scale may exceed the bound: of a shelf of two bounds one can be sold, and one is left. Behind a
# boundary they may not: just enough of what is ordered is sold that demand leaves the first node of every level.
MUCH_OF_BOTH, MUCH_LEFT = (2.0, 1.0), (1.0, 1.04 / COARSEST_LEVEL)
# Shares that are tried where the worst case is not known.
TRIED_SHARES = np.array([0.0, 0.03, 0.12, 0.33, 0.45, 0.65, 0.8, 0.97, 1.0])
# An edge of pairs, at (28/256)² of the bound. It lies below the small shelf: a unit that sells nothing is below it, and
# one that sells out is beyond. It also lies between what is there and what is sold before a full shelf's scale shrinks.
LOW_EDGE = 28
# A scale that changes nothing but the units of the amounts.
SAME_SCALE = 2.0


@dataclass(frozen=True)
class AuditCase:
    """A fit to audit: its problem, its learner, and what is declared of its log.

    `per_unit` is c, or None where each trajectory is its own unit. With `scaled`, amounts are multiples of a scale,
    and `scale_memory` is m. `units` is how many units the simulated log has: bins follow from it. With the engine
    "table" the log is counted in DuckDB, as by `poolrl fit`; with "arrays" in memory. `on_top` has the share of ρ for
    each table on top of the trees, by its name in `Pool`. Edges of pairs are held fixed, where the two logs move most:
    that noisy trees choose them is covered by composition.

        attack_case(AuditCase(problem, per_unit=3), rho=0.1)
    """

    problem: OutcomeProblem
    learner: str = "default"  # a key of AUDITED
    per_unit: int | None = None
    scaled: bool = False
    scale_memory: int = 0
    labels_public: bool = False
    on_top: Mapping[str, float] = field(default_factory=dict)
    units: int = 3
    engine: Literal["table", "arrays"] = "table"
    title: str = ""
    opened_by: Callable[[Callable[..., pa.Table]], AbstractContextManager[Log]] | None = None

    def __post_init__(self) -> None:
        one_of([*AUDITED], learner=self.learner)
        one_of(self.engines, engine=self.engine)
        if not isinstance(self.problem, OutcomeProblem):
            raise ValueError(f"an audit needs a problem that declares its outcomes, got {type(self.problem).__name__}")
        if not self.problem.action_sets_state and (self.scale_memory or self._moves_amounts):
            raise ValueError("a scale with memory, sums of stock and sums of pairs are attacked for shops only")
        whole(units=self.units, at_least=2 + self._followers)

    @property
    def name(self) -> str:
        """The name in reports."""
        what = f"m = {self.scale_memory}" if self.scale_memory else f"c = {self.per_unit or 1}"
        labels = f", {'public ' * self.labels_public}labels" if self.problem.labels else ""
        return self.title or f"{self.learner}, {what}{labels}"

    def prepared(self, rho: float) -> Prepared:
        """The learner, ready to release."""
        prepared = AUDITED[self.learner](rho, **self.on_top).prepare(self.problem)
        if not isinstance(prepared, OnOutcomes):
            return prepared
        shape = (*self.problem.labels.shape, self.problem.horizon, self.problem.outcome_dim)
        return replace(prepared, edges=lambda _: np.full(shape, LOW_EDGE))

    @property
    def engines(self) -> list[str]:
        """Where its log can be counted: visits in memory alone."""
        return ["arrays"] if self.learner == "published" else ["arrays", "table"]

    @contextmanager
    def logs(self, engine: str | None = None) -> Iterator[tuple[Log, Log]]:
        """The two neighbours. The unit in which they differ owns twice as many trajectories as are kept."""
        with self._log(0, engine or self.engine) as first, self._log(1, engine or self.engine) as second:
            yield first, second

    def poorer(self, engine: str) -> AbstractContextManager[Log | None]:
        """A third neighbour, with the same public facts: its unit owns one trajectory, in a table a part of it.

        Where labels are public its trajectories are public as well, so there is no such neighbour.
        """
        return nullcontext() if self.labels_public else self._log(1, engine, owns=1)

    def rows(
        self, changed: int, owns: int | None, columns: Columns, first_step: int = 0, coordinates: Sequence[str] = ()
    ) -> pa.Table:
        """The log under these columns. If they have one for the coordinate, each row shows one of the `coordinates`.

        A unit that owns one trajectory lacks the first step of it.
        """
        import pyarrow as pa

        arrays = self._arrays(changed, owns)
        trajectories, steps, _ = arrays["states"].shape
        every_row = {columns.step: np.tile(np.arange(first_step, first_step + steps), trajectories)}
        lives = {columns.trajectory: np.arange(trajectories)}
        lives |= {} if columns.unit is None else {columns.unit: arrays["unit"]}
        lives |= {columns.labels[name]: values for name, values in arrays.get("labels", {}).items()}
        every_row |= {name: np.repeat(values, steps) for name, values in lives.items()}
        shown = [(slice(place, place + 1), {columns.coordinate: name}) for place, name in enumerate(coordinates)]
        tables = []
        for places, named in shown if columns.coordinate else [(slice(None), {})]:
            rows = every_row | {column: np.full(trajectories * steps, name) for column, name in named.items()}
            for part in (part for part in NUMBERS if part in arrays):
                numbers = arrays[part][:, :, places].reshape(trajectories * steps, -1).T
                rows |= dict(zip(getattr(columns, part), numbers, strict=False))
            # Of a trajectory with one step nothing would be left.
            tables.append(pa.table(rows).slice(0 if owns is None or steps == 1 else 1))
        return pa.concat_tables(tables)

    @property
    def _moves_amounts(self) -> bool:
        """Whether it moves sums of what is left, or of products that sell on both sides of an edge."""
        return any(self.on_top.get(name) for name in ("left_over", "together"))

    @property
    def _followers(self) -> int:
        """Units whose scales follow the unit: 0 where each scale comes from rows of its own unit."""
        return self.scale_memory if self.per_unit is None else 0

    def _log(self, changed: int, engine: str, *, owns: int | None = None) -> AbstractContextManager[Log]:
        declared: dict[str, Any] = {"max_per_unit": self.per_unit or 1, "scale_memory": self.scale_memory}
        declared["labels_public"] = self.labels_public
        if engine == "arrays":
            return nullcontext(Trajectories(**self._arrays(changed, owns), **declared))
        if self.opened_by is not None:
            return self.opened_by(partial(self.rows, changed, owns))
        problem = self.problem
        sizes = {"states": problem.state_dim, "actions": problem.action_dim, "next_states": len(problem.arrival_low)}
        sizes |= {"scale": problem.scale_dim} if self.scaled else {}
        names: dict[str, Any] = {part: [f"{part}_{i}" for i in range(size)] for part, size in sizes.items()}
        names |= {"unit": None if self.per_unit is None else "unit", "labels": {n: n for n in problem.labels.names}}
        columns = Columns(trajectory="trajectory", step="step", **names)
        return nullcontext(Table(self.rows(changed, owns, columns), **asdict(columns), **declared))

    def _arrays(self, changed: int, owns: int | None) -> dict[str, Any]:
        """The unit itself, those that follow it, and others. All steps begin in the first state."""
        problem, c, following = self.problem, self.per_unit or 1, self._followers
        owned = owns or (1 if self.per_unit is None else 2 * c)
        unit = np.repeat(np.arange(self.units), [owned] + [1] * following + [c] * (self.units - 1 - following))
        follows = (unit > 0) & (unit <= following)
        # A unit with followers, or with public labels, keeps its label cell.
        count = problem.labels.count
        own = count - 1 if changed and self._changes_cell else 0
        cell = np.where(unit <= following, own, unit % count if self.labels_public else 0)
        lives = np.array([*self.lives, OF_OTHERS])
        acted, happened = lives[np.where(unit == 0, changed, np.where(follows, 0, 2))].T[..., None]
        # A label cell may have a bound of its own.
        bound = problem.bound_share.reshape(-1, problem.outcome_dim)[cell] if problem.action_sets_state else 1.0
        steps = [lived_step(problem, step, acted * bound, happened * bound) for step in range(problem.horizon)]
        states, actions, next_states = (np.stack(part, axis=1) for part in zip(*steps, strict=True))
        arrays: dict[str, Any] = {"states": states, "actions": actions, "next_states": next_states}
        if self.scaled:
            scale = np.full((*states.shape[:2], max(1, problem.scale_dim)), 1.0 if following else SAME_SCALE)
            arrays["actions"] = actions * scale
            next_states[..., 0 if problem.scales_state else problem.state_dim :] *= scale
            scale[follows] = SHRUNK if changed else 1.0
            arrays["scale"] = scale
        arrays |= {} if self.per_unit is None else {"unit": unit}
        if labels := problem.labels:
            parts = zip(labels.names, labels.values, np.unravel_index(cell, labels.shape), strict=True)
            arrays["labels"] = {name: np.array(values)[places] for name, values, places in parts}
        return arrays

    @cached_property
    def lives(self) -> tuple[Life, Life]:
        """What the unit does before and after."""
        if not self.problem.action_sets_state:
            return found_lives(self.problem)
        if self._followers:
            # Others move by their scale alone, so they have the same amounts in two units.
            end = (1.0, 1.0) if self.problem.censored else (0.0, 1.0)
            if self._moves_amounts:
                end = MUCH_OF_BOTH if self.problem.boundary.everywhere else MUCH_LEFT
            return (end[0] * SHRUNK, end[1] * SHRUNK), end
        return UNSOLD, UNSOLD if self.on_top.get("left_over") and self._changes_cell else SOLD_OUT

    @property
    def _changes_cell(self) -> bool:
        return self.problem.labels.count > 1 and not self._followers and not self.labels_public


def lived_step(problem: OutcomeProblem, step: int, acted: FloatArray, happened: FloatArray) -> tuple[FloatArray, ...]:
    """State, action and next state of rows that take these shares of what is allowed, and of what can happen."""
    state = np.tile(problem.initial_state, (len(acted), 1))
    low, high = problem.allowed(step, state)
    action = low + acted * (high - low)
    outcome = problem.arranged(problem.outcome_low + happened * (problem.outcome_high - problem.outcome_low))
    return state, action, problem.next_state(step, state, action, outcome)


def found_lives(problem: OutcomeProblem) -> tuple[Life, Life]:
    """Of all tried lives, the two that differ in most nodes.

    At every step and coordinate at which both are observed in other nodes of the coarsest level, they differ on all
    levels. Where a problem allows it they move all that is paid for, and the audit says how much it was.
    """
    tried = np.stack(np.meshgrid(TRIED_SHARES, TRIED_SHARES), axis=-1).reshape(-1, 2)
    nodes = []
    for step in range(problem.horizon):
        row = lived_step(problem, step, tried[:, :1], tried[:, 1:])
        cell, seen = outcome_cells(problem, step, *row, bins=COARSEST_LEVEL, relative=False)
        nodes.append(np.where(seen, cell, -1))
    at: IntArray = np.concatenate(nodes, axis=1)
    # Both observed counts twice: a node is left, and another one reached.
    moved = ((at[:, None] != at[None]) * ((at[:, None] >= 0).astype(int) + (at[None] >= 0))).sum(axis=-1)
    first, second = tried[[*np.unravel_index(int(moved.argmax()), moved.shape)]].tolist()
    return tuple(first), tuple(second)


# Two products and three steps, because noise could be shared between products, or between a step and the next but one.
_FACTS: dict[str, Any] = {"horizon": 3, "products": 2, "holding": 1.0, "shortage": 1.0, "demand_max": 8.0}
# The published learner has a table of all transitions between nodes, which grows fast.
_FEW: dict[str, Any] = _FACTS | {"horizon": 2, "products": 1}
_LABELS = {"shop": [1, 2, 3]}
CASES = (
    AuditCase(LostSales(**_FACTS), engine="arrays"),
    AuditCase(LostSales(**_FACTS, boundary=0.75), per_unit=3),
    AuditCase(LostSales(**_FEW), "published", engine="arrays"),
    AuditCase(LostSales(**_FEW), "published", per_unit=3, engine="arrays"),
    AuditCase(LostSales(**_FACTS), scaled=True, scale_memory=2, units=5, engine="arrays"),
    AuditCase(LostSales(**_FACTS, labels=_LABELS), engine="arrays"),
    AuditCase(LostSales(**_FACTS, labels=_LABELS), labels_public=True, engine="arrays"),
    AuditCase(Backlog(**_FACTS), title="default, c = 1, backlog"),
    AuditCase(
        LostSales(**_FACTS, labels=_LABELS), on_top={"left_over": 0.1}, title="default, c = 1, labels, stock left over"
    ),
    AuditCase(LostSales(**_FACTS), on_top={"together": 0.1}, title="default, c = 1, products that sell together"),
    # Every kind of the registry but shops, by its own example.
    *(
        AuditCase(one, engine="arrays", on_top={"dependence": 0.1 * one.shows_levels}, title=f"default, c = 1, {name}")
        for name, one in ((name, kind(**kind.example)) for name, kind in KINDS.items() if kind.example)
    ),
)
