"""What has passed the door: noisy tables. Learning sees nothing else of a log."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.privacy.guarantee import Guarantee
from poolrl.problems.problem import OutcomeProblem


@dataclass(frozen=True)
class PrivateTable:
    """A noisy table that is released on top of the trees."""

    counts: IntArray | FloatArray
    variance: float  # of every noisy count
    edges: IntArray | None = None  # (*labels, H, k) where pairs are compared, chosen from released numbers


@dataclass(frozen=True)
class PrivateOutcomes:
    """Noisy trees of censored outcomes.

    Each of the `levels` has shape (*labels, H, k, kinds, size), kinds = (seen, cut off) or (seen,) where nothing is
    ever cut off. Sizes are powers of two, from 1 to the number of bins; some powers may be left out.

    `unobserved` (H, k) is None where public facts rule it out. Each (step, coordinate) has `total` slots. Where labels
    are public, `totals` (*labels, H) says how many of these slots each label cell has, and `unobserved` is
    (*labels, H, k). Otherwise `totals` is None: the noise hides how many there are.

    Tables `on_top` are there if they were asked and paid for, by the names of their budgets: joint counts of
    "dependence", (*labels, H, k, bands, 2, bands) for level, seen or cut off, outcome; sums of what was "left_over",
    (*labels, H, k), to which a row adds 0 .. `LEFT_PARTS` parts of the bound; and sums of pairs that sell "together",
    (H, 3): both beyond their edges, both below, mixed.

    Counts are whole numbers, unless they are sums of faded periods (`learning/faded_trees.py`).
    """

    levels: tuple[IntArray | FloatArray, ...]
    unobserved: IntArray | FloatArray | None
    total: float
    variance: float  # of every noisy count
    guarantee: Guarantee
    totals: IntArray | FloatArray | None = None
    step_labels: tuple[str, ...] = ()  # which labels may change from step to step, by declaration
    on_top: Mapping[str, PrivateTable] = field(default_factory=dict)

    @classmethod
    def of_nothing(cls, problem: OutcomeProblem) -> Self:
        """Trees of two leaves without a count."""
        trees = (problem.horizon, problem.outcome_dim)
        leaves = np.zeros((*problem.labels.shape, *trees, problem.kinds, 2), dtype=np.int64)
        unobserved = np.zeros(trees, dtype=np.int64)
        return cls((leaves,), unobserved, 1, 1.0, Guarantee.of_nothing(problem.horizon))


@dataclass(frozen=True)
class PrivateVisits:
    """The paper's noisy counts: n′(b) as `pairs` (H, N), and n′(b, s′) by `transitions(step, rows)`, (rows, S).

    The second table has H·N·S cells, and most are never needed. So the noise of a row is drawn when the row is asked
    for, and each row is given once. To ask for some rows only is post-processing of the table.
    """

    pairs: IntArray
    transitions: Callable[[int, IntArray], IntArray]
    cells: int  # H·N·S
    variance: float
    guarantee: Guarantee

    @classmethod
    def of_nothing(cls, horizon: int, pairs: int, states: int) -> Self:
        """Tables without a visit, of N pair nodes and S state nodes."""

        def transitions(step: int, rows: IntArray) -> IntArray:
            return np.zeros((len(rows), states), dtype=np.int64)

        visits = np.zeros((horizon, pairs), dtype=np.int64)
        return cls(visits, transitions, visits.size * states, 1.0, Guarantee.of_nothing(horizon))


@dataclass(frozen=True)
class PrivateRows:
    """A log of noisy numbers: actions (n, H, d) and next states (n, H, w), not yet moved back into their bounds."""

    actions: FloatArray
    next_states: FloatArray
    guarantee: Guarantee


@dataclass(frozen=True)
class PrivateLevels:
    """A noisy decision table (H, k), not yet moved back into its bounds."""

    levels: FloatArray
    guarantee: Guarantee
