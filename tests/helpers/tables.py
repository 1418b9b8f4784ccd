"""Tables for an engine to count, and the counts that it must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from poolrl import Backlog, LostSales, Table, Trajectories, simulate_log
from poolrl.data.cells import joint_cells, left_cells
from poolrl.data.counts import sum_together
from poolrl.geometry.resolution import TOGETHER_BANDS
from poolrl.problems.inventory import Inventory
from tests.helpers.own_problems import OrderQuantity, PostedPrice

UNUSABLE = [np.nan, np.inf, -np.inf, 0.0, -2.0, 1e-60, 1e60]  # no scales
Make = Callable[[pa.Table], Any]  # hands an Arrow table to an engine


def every_level(leaves: int) -> tuple[int, ...]:
    """The sizes of all levels of a dyadic tree."""
    return tuple(2**level for level in range(leaves.bit_length()))


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


def a_scaled_log(problem: Any, trajectories: int = 600) -> Trajectories:
    """Rows of every kind, most of them possible: sevenths, so that the last bit decides on many edges."""
    rng = np.random.default_rng(3)
    shape = (trajectories, problem.horizon, problem.state_dim)
    order = rng.integers(0, 60, shape) / 7
    stock, left = np.floor(order * rng.random(shape)), order - rng.integers(-3, 40, shape) / 7
    if problem.censored:
        left = np.where(rng.random(shape) < 0.95, np.maximum(left, 0), left)
    scale = np.where(rng.random(shape) < 0.1, rng.choice(UNUSABLE, shape), rng.integers(1, 30, shape) / 7)
    stock = np.where(rng.random(shape) < 0.05, order + 1, stock)
    return Trajectories(states=stock, actions=order, next_states=left, scale=scale)


def simulated(problem: Any, trajectories: int = 300) -> Trajectories:
    rng = np.random.default_rng(0)
    shape = (trajectories, problem.horizon, problem.outcome_dim)
    return simulate_log(problem, rng.uniform(problem.outcome_low, problem.outcome_high, shape), rng=rng)


def uneven() -> OrderQuantity:
    """Bounds that differ for two of three products become a column of a long table; all else stays a constant."""
    problem = OrderQuantity(2, 3, 0.2, 0.4, cap=60.0)
    problem.action_high = np.array([60.0, 60.0, 30.0])
    return problem


def larger(problem: Inventory, log: Trajectories) -> tuple[Inventory, Trajectories]:
    """Amounts half again as large, so that clipping matters."""
    return problem, Trajectories(**{n: getattr(log, n) * 1.5 for n in ("states", "actions", "next_states")})


def owned(problem: Inventory, log: Trajectories) -> tuple[Inventory, Trajectories]:
    """Three trajectories belong to a unit, of which two count; labels are public."""
    unit = {"unit": np.arange(len(log)) // 3, "max_per_unit": 2, "labels_public": True}
    return problem, Trajectories(**log._arguments() | unit)


TWO: dict[str, Any] = {"horizon": 2, "products": 2, "holding": 1, "shortage": 1, "demand_max": [4.0, 2.0]}
BEHIND = LostSales(**TWO, boundary=[[1.0, 0.7], [0.5, 1]])
OWN, LARGE = OrderQuantity(2, 2, 0.2, 0.4, cap=3.0), OrderQuantity(3, 2, 0.2, 0.4, cap=60.0)
PRICES = PostedPrice(3, lowest_price=10.0)
# Logs that every engine must count like arrays.
LOGS: dict[str, Callable[[], tuple[Any, Trajectories]]] = {
    "lost sales": lambda: a_shop(LostSales, gridded=False),
    "lost sales on a grid": lambda: a_shop(LostSales, gridded=True),
    "backlog": lambda: a_shop(Backlog, gridded=False),
    "backlog on a grid": lambda: a_shop(Backlog, gridded=True),
    "clipped": lambda: larger(*a_shop(LostSales, gridded=False)),
    "clipped backlog on a grid": lambda: larger(*a_shop(Backlog, gridded=True)),
    "labels and units": lambda: owned(*a_labelled_shop()),
    "labels and units, clipped": lambda: owned(*a_labelled_shop()),
    "a scale behind a boundary": lambda: (BEHIND, a_scaled_log(BEHIND)),
    "a scale and a backlog": lambda: (Backlog(**TWO), a_scaled_log(Backlog(**TWO))),
    "a scale, own problem": lambda: (OWN, a_scaled_log(OWN)),
    "own problem": lambda: (LARGE, simulated(LARGE)),
    "own bounds": lambda: (uneven(), simulated(uneven())),
    "prices": lambda: (PRICES, simulated(PRICES)),
}
# Those whose tables on top of the trees are compared too.
WITH_ALL = ("lost sales on a grid", "clipped", "labels and units", "a scale and a backlog")


def assert_counted_like_arrays(name: str, make: Callable[[Trajectories, bool], Table], *, everything: bool) -> None:
    """The table that `make` makes of a log, clipped or not, has the counts of the arrays, bit for bit."""
    problem, log = LOGS[name]()
    table = make(log, "clipped" in name)
    table.check(problem)
    log = log.clipped(problem) if "clipped" in name else log
    assert (table.slots, table.units) == (log.slots, log.units)
    expected = log.outcome_leaves(problem, bins=64)
    assert expected.sum() > 60
    np.testing.assert_array_equal(table.outcome_leaves(problem, bins=64), expected)
    if log.facts.labels_public:
        np.testing.assert_array_equal(table.label_totals(problem), log.label_totals(problem))
    if everything:
        for bins, formula in ((8, joint_cells), (33, left_cells)):
            found, expected = (each.outcome_leaves(problem, bins=bins, formula=formula) for each in (table, log))
            np.testing.assert_array_equal(found, expected)
        shape = (*problem.labels.shape, problem.horizon, problem.products)
        edges = np.random.default_rng(3).integers(1, TOGETHER_BANDS, shape)
        found, expected = (sum_together(each, problem, edges=edges) for each in (table, log))
        np.testing.assert_array_equal(found, expected)
        assert expected.sum() > 0


def wide(log: Trajectories, clip: bool, put: Make = lambda table: table) -> Table:
    """A table of the log with a column for each coordinate, which `put` hands to an engine."""
    facts, many = log.facts, log.states.shape[2]
    more: dict[str, Any] = {"scale": [f"scale_{i}" for i in range(many)]} if facts.has_scale else {}
    more |= {"labels": facts.label_names, "labels_public": facts.labels_public, "scale_memory": facts.scale_memory}
    more |= {"unit": "unit", "max_per_unit": facts.max_per_unit} if facts.has_units else {}
    return Table(put(log.to_arrow()), **columns(many, **more), clip=clip)
