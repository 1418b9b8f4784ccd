"""How many coordinates of a trajectory show their side of an edge, and how many lie beyond, counted by an engine."""

from __future__ import annotations

from collections.abc import Sequence

import ibis
import ibis.expr.types as ir

from poolrl.checks import IntArray
from poolrl.data.label_cells import small_table
from poolrl.data.together import sides
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
