"""The policy of a release, replayed on weeks of a log beside what the shops did. For the data holder's eyes.

Where a shelf ran empty the log says "at least the sales". So costs are computed thrice: nothing more would have been
sold, as much more as the policy's own estimate expects, and everything up to the declared bound. Both sides meet the
same demand. On a day the difference between them falls or stays as that demand grows, so it lies between the ends.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.data.sources.engine import answer
from poolrl.data.table import Table
from poolrl.data.trajectories import Trajectories
from poolrl.learning.outcomes import OutcomeDistribution
from poolrl.learning.policy import Policy
from poolrl.problems.inventory import Inventory

EYES_ONLY = "For the data holder's eyes; not for release: the log was read exactly, and these costs protect nobody."
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
SCENARIOS = ("least", "estimated", "most")


@dataclass(frozen=True)
class Replayed:
    """Mean costs per trajectory of one product, in the three scenarios."""

    product: str
    shops: list[float]
    policy: list[float]

    @property
    def change(self) -> list[float]:
        """Policy minus shops."""
        return [ours - theirs for ours, theirs in zip(self.policy, self.shops, strict=True)]


@dataclass(frozen=True)
class Backtest:
    """What was replayed: how much of the log, how often shelves ran empty, and the costs."""

    trajectories: int
    left_out: int  # incomplete ones, and those whose labels or scale the policy does not know
    ran_empty: float  # share of days and products
    products: list[Replayed]

    @property
    def in_all(self) -> Replayed:
        """All products together."""
        both = ([each.shops for each in self.products], [each.policy for each in self.products])
        return Replayed("in all", *(np.sum(part, axis=0).tolist() for part in both))

    @property
    def in_words(self) -> str:
        """Whether the policy would have been cheaper, for every demand that the log allows."""
        changes, shops = self.in_all.change, self.in_all.shops
        low, high = min(changes), max(changes)
        if high < 0:
            verdict = "cheaper, whatever was missed on empty shelves"
        elif low > 0:
            verdict = "dearer, whatever was missed on empty shelves"
        elif changes[1] < 0:
            verdict = "cheaper by the estimate, but that rests on what was missed on empty shelves"
        else:
            verdict = "not cheaper by the estimate"
        share = f"{changes[1] / shops[1]:+.1%}" if shops[1] > 0 else "n/a"
        return f"In these {self.trajectories:,} trajectories the policy would have been {verdict} ({share})."

    def facts(self) -> dict[str, Any]:
        """For programs."""
        rows = [asdict(each) | {"change": each.change} for each in (*self.products, self.in_all)]
        counts = {"trajectories": self.trajectories, "left_out": self.left_out, "ran_empty": self.ran_empty}
        return {"notice": EYES_ONLY, **counts, "scenarios": list(SCENARIOS), "costs": rows, "in_words": self.in_words}


def replay_policy(policy: Policy, log: Trajectories, *, left_out: int = 0) -> Backtest:
    """Let the policy order from the opening stock of every trajectory on, and compare."""
    problem = policy.problem
    assert isinstance(problem, Inventory)
    every_scale = np.ones_like(log.actions) if log.scale is None else log.scale
    every_cell = _cells_by_step(problem, log)
    known = (np.isfinite(every_scale) & (every_scale > 0)).all(axis=(1, 2)) & (every_cell >= 0).all(axis=1)
    if not known.any():
        raise ValueError("no complete trajectory is left to replay the policy on")
    states, actions, left, scale = (part[known] for part in (log.states, log.actions, log.next_states, every_scale))
    cells = every_cell[known]
    labels = {name: np.asarray(values)[known] for name, values in log.labels.items() if name in problem.labels.names}
    sold = actions - left
    empty = problem.observe(0, states / scale, actions / scale, left / scale)[1]
    shops, ours = [], []
    for demand in _demands(policy, sold, empty, scale, cells):
        shops.append(_costs(problem, actions, demand, cells))
        ours.append(_replayed_costs(policy, states[:, 0], demand, None if log.scale is None else scale, labels, cells))
    names = policy.names.products
    products = [
        Replayed(name, *([float(costs[i]) for costs in side] for side in (shops, ours))) for i, name in enumerate(names)
    ]
    return Backtest(int(known.sum()), left_out + int((~known).sum()), float(empty.mean()), products)


def _cells_by_step(problem: Inventory, log: Trajectories) -> IntArray:
    """The label cell of every row, (n, H); −1 where a label is not among the declared ones."""
    shape = log.states.shape[:2]
    given = {}
    for name in problem.labels.names:
        if name not in log.label_names:
            raise ValueError(f"the policy knows the label {name!r}, but the log has none of that name")
        values = np.asarray(log.labels[name])
        given[name] = np.broadcast_to(values[:, None] if values.ndim == 1 else values, shape)
    return np.broadcast_to(problem.labels.cells(given), shape)


def _demands(
    policy: Policy, sold: FloatArray, empty: BoolArray, scale: FloatArray, cells: IntArray
) -> list[FloatArray]:
    """Demand (n, H, k) in the three scenarios."""
    problem, outcomes = policy.problem, policy.outcomes
    assert isinstance(problem, Inventory)
    top = problem.label_bounds.reshape(-1, problem.products)[cells] * scale
    middle = sold if outcomes is None else _drawn_beyond(outcomes, sold / scale, cells) * scale
    top = np.maximum(top, sold)
    expected = np.where(empty, np.clip(middle, sold, top), sold)
    return [sold, expected, np.where(empty, top, sold)]


def _drawn_beyond(outcomes: OutcomeDistribution, sold: FloatArray, cells: IntArray) -> FloatArray:
    """Demand (n, H, k) drawn from the estimated laws beyond what was sold. A mean would hide how demand varies."""
    *_, horizon, products, bins = outcomes.weights.shape
    below = np.cumsum(outcomes.weights.reshape(-1, bins), axis=-1)
    below /= below[:, -1:]
    width = 2 * outcomes.points.reshape(-1, products, bins)[..., 0][cells]  # (n, H, k)
    law = (cells[..., None] * horizon + np.arange(horizon)[:, None]) * products + np.arange(products)
    place = np.clip((sold / width).astype(np.int64), 0, bins - 1)
    reached = np.where(place > 0, below[law, np.maximum(place - 1, 0)], 0.0)
    chance = reached + (1 - reached) * np.random.default_rng(0).random(sold.shape)
    # Laws one after another make one rising list, so one search serves all rows.
    rising = (below + np.arange(len(below))[:, None]).ravel()
    found = np.searchsorted(rising, law + chance) - law * bins
    return np.asarray((np.clip(found, place, bins - 1) + 0.5) * width)


def _costs(problem: Inventory, levels: FloatArray, demand: FloatArray, cells: IntArray) -> FloatArray:
    """Mean costs per trajectory, (k,)."""
    steps = np.arange(problem.horizon)
    holding, shortage = (
        costs.reshape(-1, problem.horizon, problem.products)[cells, steps]
        for costs in (problem.holding, problem.shortage)
    )
    total = holding * np.maximum(levels - demand, 0.0) + shortage * np.maximum(demand - levels, 0.0)
    return np.asarray(total.sum(axis=1).mean(axis=0))


def _replayed_costs(
    policy: Policy,
    stock: FloatArray,
    demand: FloatArray,
    scale: FloatArray | None,
    labels: dict[str, NDArray[Any]],
    cells: IntArray,
) -> FloatArray:
    assert isinstance(policy.problem, Inventory)
    levels = np.empty_like(demand)
    for step in range(policy.problem.horizon):
        today = {name: values if values.ndim == 1 else values[:, step] for name, values in labels.items()}
        levels[:, step] = policy.act(step, stock, scale=None if scale is None else scale[:, step], labels=today)
        stock = policy.problem.next_state(step, stock, levels[:, step], demand[:, step])
    return _costs(policy.problem, levels, demand, cells)


def read_trajectories(
    log: Table, horizon: int, since: str | None = None, by: str | None = None
) -> tuple[Trajectories, int]:
    """The complete trajectories of a table in memory, and how many were left out.

    `since` keeps those whose column `by` (the id, if it is left out) is at least that: a date, a number or a text. Of
    an id that holds a date, as 'shop 7, week of 2025-03-03', the date counts.
    """
    columns = log.columns
    parts = {"states": columns.states, "actions": columns.actions, "next_states": columns.next_states}
    parts |= {"scale": columns.scale} if columns.scale else {}
    names = dict.fromkeys([columns.trajectory, *columns.labels.values(), *([] if by is None else [by])])
    numbers = dict.fromkeys([columns.step, *(name for part in parts.values() for name in part)])
    if by is not None and by not in log.rows.columns:
        raise ValueError(f"--by names a column that the log does not have: {by!r}")
    asked = {f"t{i}": log.rows[name] for i, name in enumerate(names)}
    asked |= {f"n{i}": log.rows[name].cast("float64") for i, name in enumerate(numbers)}
    found = answer(log.rows.select(**asked))
    text = {name: found[f"t{i}"] for i, name in enumerate(names)}
    number = {name: _floats(found[f"n{i}"]) for i, name in enumerate(numbers)}
    ids = np.asarray(text[columns.trajectory].cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False), dtype=str)
    every = ids != ""
    if since is not None:
        every &= _not_before(text[by or columns.trajectory], since)
    step = number[columns.step] - log.first_step
    inside = every & np.isin(step, np.arange(horizon))
    unique, owner = np.unique(ids[every], return_inverse=True)
    place = np.full(len(ids), -1)
    place[every] = owner
    count = np.zeros((len(unique), horizon), dtype=np.int64)
    np.add.at(count, (place[inside], step[inside].astype(np.int64)), 1)
    where = place[inside], step[inside].astype(np.int64)
    arrays = {}
    for part, named in parts.items():
        arrays[part] = np.full((len(unique), horizon, len(named)), np.nan)
        for i, name in enumerate(named):
            arrays[part][(*where, i)] = number[name][inside]
    whole = (count == 1).all(axis=1) & np.all([np.isfinite(each).all(axis=(1, 2)) for each in arrays.values()], axis=0)
    labels = {}
    for label, name in columns.labels.items():
        values = np.full((len(unique), horizon), None, dtype=object)
        values[where] = text[name].to_numpy(zero_copy_only=False)[inside]
        labels[label] = values[whole]
    if not whole.any():
        raise ValueError("no complete trajectory is left to replay the policy on")
    kept = {part: values[whole] for part, values in arrays.items()}
    return Trajectories(**kept, labels=labels or None), int((~whole).sum())


def _floats(column: pa.ChunkedArray) -> FloatArray:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _not_before(column: pa.ChunkedArray, since: str) -> BoolArray:
    """Which values are at least `since`."""
    if ISO_DATE.fullmatch(since):
        date.fromisoformat(since)
        words = column.cast(pa.string()).fill_null("").to_pylist()
        dates = [ISO_DATE.search(word) for word in words]
        if not any(dates):
            raise ValueError("--from is a date, but no value of its column holds one: name a column of dates with --by")
        return np.array([found is not None and found.group() >= since for found in dates])
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        try:
            return np.asarray(np.nan_to_num(_floats(column), nan=-np.inf) >= float(since))
        except ValueError:
            raise ValueError(f"--from must be a number, as its column is, got {since!r}") from None
    return np.asarray([word is not None and word >= since for word in column.cast(pa.string()).to_pylist()])
