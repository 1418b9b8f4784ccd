"""Tables for an engine to count, and the counts that it must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from poolrl import Grid, LostSales, Table, Trajectories, Zones
from poolrl.data.cells import joint_cells, left_cells
from poolrl.data.counts import count_outcomes, count_visits, sum_together
from poolrl.data.log import Log
from poolrl.geometry.bins import bin_of
from poolrl.geometry.resolution import TOGETHER_BANDS
from poolrl.privacy.sensitivity import every_level
from poolrl.problems.inventory import Inventory

Make = Callable[[pa.Table], Any]  # hands an Arrow table to an engine


def columns(dimensions: int, **more: Any) -> dict[str, Any]:
    """The columns of `Trajectories.to_arrow`, as arguments of `Table`."""
    names = {f"{part}s": [f"{part}_{i}" for i in range(dimensions)] for part in ("state", "action", "next_state")}
    return {"trajectory": "trajectory", "step": "step"} | names | more


def a_shop(kind: type[Inventory], *, gridded: bool, trajectories: int = 500) -> tuple[Inventory, Trajectories]:
    """Two products with different bounds, a boundary that changes from step to step; numbers at random or on a grid."""
    rng = np.random.default_rng(11)
    boundary = [[1.0, 0.7], [0.5, 0.9], [0.6, 1.0]] if kind is LostSales else 1.0
    problem = kind(horizon=3, products=2, holding=0.2, shortage=0.4, demand_max=[10.0, 7.0], boundary=boundary)
    log = problem.simulate_log(rng.uniform(0, 1, (trajectories, 3, 2)) * problem.demand_max, rng=rng)
    if gridded:  # multiples of 0.05 lie on the edges of bins, rings and cells, where the last bit decides
        parts = {n: np.round(getattr(log, n) / 0.05) * 0.05 for n in ("states", "actions", "next_states")}
        log = Trajectories(**parts).clipped(problem)
    return problem, log


def assert_same_counts(make: Make, kind: type[Inventory], *, gridded: bool) -> None:
    """The table that `make` makes of an Arrow table is counted like the arrays: outcomes, rings and cells."""
    problem, log = a_shop(kind, gridded=gridded)
    table = Table(make(log.to_arrow()), **columns(2))
    assert table.units == log.units
    for expected, found in zip(
        count_outcomes(log, problem, level_sizes=every_level(64)).levels,
        count_outcomes(table, problem, level_sizes=every_level(64)).levels,
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)
    assert_same_leaves_on_top(table, log, problem)
    assert_same_crowds(table, log, problem)
    for values in (Zones(20), Grid(5)):
        partition = values.partition(problem)
        by_array, by_engine = count_visits(log, partition), count_visits(table, partition)
        np.testing.assert_array_equal(by_engine.pairs, by_array.pairs)
        for mine, theirs in zip(by_engine.moves, by_array.moves, strict=True):
            assert (mine != theirs).nnz == 0


def assert_same_leaves_on_top(one: Log, other: Log, problem: Inventory) -> None:
    """Of levels beside outcomes, and of what was left."""
    for bins, formula in ((8, joint_cells), (33, left_cells)):
        found, expected = (log.outcome_leaves(problem, bins=bins, formula=formula) for log in (one, other))
        np.testing.assert_array_equal(found, expected)


def assert_same_crowds(one: Log, other: Log, problem: Inventory) -> None:
    """Pairs of products are the same, whatever the edges are."""
    rng = np.random.default_rng(3)
    edges = rng.integers(1, TOGETHER_BANDS, (*problem.labels.shape, problem.horizon, problem.products))
    found, expected = (sum_together(log, problem, edges=edges) for log in (one, other))
    np.testing.assert_array_equal(found, expected)
    assert expected.sum() > 0


def a_labelled_shop(trajectories: int = 300) -> tuple[Inventory, Trajectories]:
    """Two products in three stores of different bounds; labels and scales of every kind, amounts in sevenths."""
    rng = np.random.default_rng(17)
    bounds = np.array([[4.0, 2.0], [2.0, 2.0], [0.7, 1.0]]).reshape(3, 1, 2)
    labels = {"store": [1, 2, 7], "promo": ["no", "it's on"]}
    problem = LostSales(horizon=2, products=2, holding=0.2, shortage=0.4, demand_max=bounds, labels=labels)
    shape = (trajectories, 2, 2)
    order = rng.integers(0, 60, shape) / 7
    left = np.maximum(order - rng.integers(-2, 40, shape) / 7, 0)
    log = Trajectories(
        states=np.floor(order * rng.random(shape)),
        actions=order,
        next_states=left,
        scale=rng.choice([1 / 3, 0.7, 1.0, 2.0, 5.0, 0.0, -1.0, np.nan, np.inf, 1e-60], shape),
        labels={
            "store": rng.choice([1.0, 2.0, 7.0, 3.0, np.nan], trajectories),
            "promo": rng.choice(np.array(["no", "it's on", "NO", "", None], dtype=object), shape[:2]),
        },
    )
    return problem, log


def assert_same_labelled_counts(make: Make) -> None:
    """The same for multiples of a scale in label cells."""
    problem, log = a_labelled_shop()
    names = columns(2, scale=["scale_0", "scale_1"], labels=["store", "promo"], labels_public=True)
    table = Table(make(log.to_arrow()), **names)
    table.check(problem)
    expected = log.outcome_leaves(problem, bins=16)
    assert expected.sum() > 100
    np.testing.assert_array_equal(table.outcome_leaves(problem, bins=16), expected)
    assert_same_leaves_on_top(table, log, problem)
    assert_same_crowds(table, log, problem)
    np.testing.assert_array_equal(table.label_totals(problem), log.label_totals(problem))


def a_mess(rng: np.random.Generator, rows: int = 1_500) -> pa.Table:
    """Ids and steps that are missing or repeated, numbers out of bounds: one product, H = 3, demand up to 10."""
    odd = np.array([np.nan, np.inf, -np.inf, -3.0, 11.0, 1e300, -1e300])

    def numbers(values: Any) -> Any:
        spoilt = rng.random(rows) < 0.05
        values = np.where(spoilt, rng.choice(odd, rows), np.round(values, 1))
        return pa.array([None if rng.random() < 0.03 else float(v) for v in values], pa.float64())

    order = rng.uniform(0, 10, rows)
    stock, left = order * rng.random(rows), order * np.maximum(rng.uniform(-0.5, 1, rows), 0)
    table = {
        "trajectory": pa.array([None if i == 0 else f"t{i:03}" for i in rng.integers(0, 300, rows)]),
        "unit": pa.array([" " if i == 0 else f"u{i}" for i in rng.integers(0, 60, rows)]),
        "step": pa.array([None if s == 5 else float(s) / 2 for s in rng.integers(-2, 9, rows)]),
    }
    names = ("state_0", "action_0", "next_state_0")
    return pa.table(table | {n: numbers(v) for n, v in zip(names, (stock, order, left), strict=True)})


def by_hand(table: pa.Table, *, bins: int, max_per_unit: int | None) -> tuple[int, Any]:
    """Units and leaves of such a table by the rules of `poolrl.data.table`, one row after the other."""
    rows = [r for r in table.to_pylist() if r["trajectory"] is not None and (max_per_unit is None or r["unit"].strip())]
    units = {r["unit" if max_per_unit else "trajectory"] for r in rows}
    rows = [r for r in rows if r["step"] in (0.0, 1.0, 2.0)]
    lives: dict[Any, list[Any]] = {}
    for row in rows:
        lives.setdefault((row["unit"] if max_per_unit else None, row["trajectory"]), []).append(row)
    if max_per_unit:
        for unit in units:
            for key in sorted(key for key in lives if key[0] == unit)[max_per_unit:]:
                del lives[key]
    leaves = np.zeros((3, 1, 2 * bins), dtype=np.int64)
    for life in lives.values():
        if len({row["step"] for row in life}) < len(life):
            continue
        for row in life:
            s, a, n = (row[name] for name in ("state_0", "action_0", "next_state_0"))
            if any(v is None or not 0 <= v <= 10 for v in (s, a, n)) or a < s or n > a:
                continue
            leaf = int(bin_of(np.array((a - n) / 10.0), bins))
            leaves[int(row["step"]), 0, leaf + (bins if n <= 1e-8 else 0)] += 1
    return len(units), leaves
