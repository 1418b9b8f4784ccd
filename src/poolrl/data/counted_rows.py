"""Counts of an engine that need more than one number of a row: nodes that were visited, and sides of edges."""

from __future__ import annotations

from collections.abc import Sequence

import ibis
import ibis.expr.types as ir
import numpy as np

from poolrl.checks import IntArray
from poolrl.data.expressions import at_nearest, cells_by_step
from poolrl.data.label_cells import small_table
from poolrl.data.row_rules import Numbers, Row
from poolrl.data.together import sides
from poolrl.geometry.partition import Partition
from poolrl.problems.problem import OutcomeProblem

# The cell of an unobserved row. To filter such rows out first would make engines compute every cell twice.
NOWHERE = -1
# The column that is added to rows.
EDGE = "poolrl_edge"


def crowd_counts(
    cells: Sequence[ir.Table], problem: OutcomeProblem, *, keys: Sequence[str], edges: IntArray
) -> ir.Table:
    """Columns step, crowd, rows: how many trajectories show j sides, i of them beyond, crowd j (k + 1) + i.

    `cells` are rows of keys, label, step, coordinate and cell, of all coordinates; `edges` are (label cells, H, k).
    """
    shown = []
    for rows in cells:
        found = _with_edges(rows, edges)
        known, beyond = sides(problem, found.cell, found[EDGE])
        known = known & (found.cell != NOWHERE)
        numbers = {"known": known.cast("int64"), "beyond": (known & beyond).cast("int64")}
        shown.append(found.select(*keys, "step", **numbers))
    every = ibis.union(*shown) if len(shown) > 1 else shown[0]
    crowds = every.group_by([*keys, "step"]).aggregate(shown=every.known.sum(), far=every.beyond.sum())
    crowd = crowds.shown.cast("int64") * (problem.outcome_dim + 1) + crowds.far.cast("int64")
    return crowds.select("step", crowd=crowd).group_by(["step", "crowd"]).aggregate(rows=ibis._.count())


def _with_edges(rows: ir.Table, edges: IntArray) -> ir.Table:
    """Each row with the edge of its label cell, step and coordinate."""
    _, steps, coordinates = edges.shape
    every = small_table(rows, {"poolrl_edge_place": list(range(edges.size)), "poolrl_edge_at": edges.ravel().tolist()})
    place = (rows.label.cast("int64") * steps + rows.step) * coordinates + rows.coordinate
    found = rows.inner_join(every, place == every["poolrl_edge_place"].cast("int64"))
    return found.mutate(**{EDGE: found["poolrl_edge_at"].cast("int64")})


def visit_counts(rows: ir.Table, partition: Partition, *, clip: bool) -> ir.Table:
    """Columns step, node, target, rows: how many rows led from a node to a state's node."""
    problem = partition.problem

    def formulas(step: int, row: Row, usable: Numbers) -> list[ir.Value]:
        state, action, next_state = row
        unit: Numbers = problem.unit_pair(state, action)
        arrived: Numbers = problem.unit_state(next_state)
        inside = problem.within(step, unit).all(axis=-1) & usable.all(axis=-1)
        node: Numbers = np.where(inside, partition.pairs[step].cell(unit), NOWHERE)
        target: Numbers = partition.states.cell(arrived)
        return [part for v in (node, target, unit, arrived) for part in v.columns()]

    node, target, *numbers = cells_by_step(problem, rows, formulas, clip=clip, relative=False)
    points = {f"unit_{i}": number for i, number in enumerate(numbers)}
    found = rows.select(rows.step, node=node, target=target, **points).filter(ibis._.node != NOWHERE)
    names, dimensions = list(points), problem.state_dim + problem.action_dim
    pairs = [nodes.directions for nodes in partition.pairs]
    found = at_nearest(found, "node", pairs, names[:dimensions])
    found = at_nearest(found, "target", [partition.states.directions], names[dimensions:])
    return found.group_by(["step", "node", "target"]).aggregate(rows=ibis._.count())
