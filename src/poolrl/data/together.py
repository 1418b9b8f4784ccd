"""Do products sell much or little together? Pairs of products on one side of their edges, or on two.

At every label cell, step and product there is a public edge. A row whose level reaches it shows on which side of it the
outcome lies, whether or not the outcome was cut off: two products of a trajectory that both show it are a pair. Rows
whose level is lower would show low outcomes only, so they are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poolrl.checks import IntArray
from poolrl.data.counts import CellFormula, joint_cells, outcome_cells
from poolrl.data.log import Log
from poolrl.geometry.resolution import TOGETHER_BANDS, TOGETHER_PARTS
from poolrl.problems.problem import OutcomeProblem


def side_formula(problem: OutcomeProblem) -> CellFormula:
    """The cells that `sides` reads. Where nothing is ever cut off, an outcome shows itself."""
    return joint_cells if problem.censored else outcome_cells


def sides(problem: OutcomeProblem, cell: Any, edge: Any) -> tuple[Any, Any]:
    """Whether a row shows its side of the edge, and whether that is beyond it; for arrays or a table's columns.

    A cell of `joint_cells` is 2B · level + outcome, where outcomes that were cut off come after those that were seen.
    """
    if not problem.censored:
        return edge >= 0, cell >= edge
    return cell // (2 * TOGETHER_BANDS) >= edge, cell % (2 * TOGETHER_BANDS) >= edge


def sum_together(log: Log, problem: OutcomeProblem, *, edges: IntArray) -> IntArray:
    """Of all rows of a step, (H, 3): pairs beyond their edges, pairs below, and pairs on two sides.

    A row adds its share of all k (k − 1) / 2 pairs, in whole parts, rounded down: at most `TOGETHER_PARTS` in all.
    """
    products = problem.outcome_dim
    most = products * (products - 1) // 2
    sums = np.zeros((problem.horizon, 3), dtype=np.int64)
    for step, (crowd, rows) in enumerate(log.crowd_tallies(problem, edges=edges)):
        known, beyond = np.divmod(crowd, products + 1)
        below = known - beyond
        pairs = np.stack([beyond * (beyond - 1) // 2, below * (below - 1) // 2, beyond * below])
        sums[step] = (pairs * TOGETHER_PARTS // most) @ rows
    return sums
