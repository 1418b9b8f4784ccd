"""How well each law of the dictionary explains the released trees of each cell.

A cell is one (label cell, step, coordinate). With n slots, outcomes of law D and cut-off levels of law G,

    expected seen leaves  n D(i) S_G(i),   expected cut leaves  n G(i) S_D(i),   S(i) = P(beyond bin i) + half of bin i

Where a row only shows on which side of a tried value the outcome lies (current status), both kinds of leaves stand at
that value: n G(i) (1 − S_D(i)) and n G(i) S_D(i).

Nodes are sums of leaves plus noise of variance v, so the best linear estimate of the leaves is Gaussian with covariance
v (AᵀA)⁻¹, where A sums leaves to nodes. The slots themselves are a sample, which adds about n p(i) to leaf i, and no
law fits exactly, which adds some share of (n p(i))². Without these parts a law would have to fit accidents of the log.
Leaves beyond the explored range (`exploration`) say nothing: those who looked there did so for a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.learning.exploration import looked_at
from poolrl.learning.shapes import Laws, SingleArray, beyond

# Cells with almost the same law of the other kind share their matrices. Below so many cells each has its own.
MOST_GROUPS, REGROUPINGS = 96, 4
# Counts have at least this variance, so that an empty leaf is not taken for an impossible one.
LEAST_LEAF_VARIANCE = 0.25
# No law of the dictionary is exactly true: a bin's share may be off by this part of itself.
MISFIT = 0.2


@dataclass(frozen=True)
class Observed:
    """The trees of all cells, reduced to what a likelihood needs: Aᵀ nodes (cells, kinds, B) and AᵀA (B, B)."""

    sums: FloatArray
    precision: FloatArray
    variance: float

    @classmethod
    def of(cls, levels: list[FloatArray], variance: float, bins: int) -> Observed:
        """From released levels (cells, kinds, size), those of at most `bins` nodes; the leaves count as `bins`."""
        finest = levels[-1]
        coarse = [(level, 1.0) for level in levels if level.shape[-1] <= bins]
        if not coarse or coarse[-1][0].shape[-1] < bins:
            # A sum of leaves has the noise of all of them. It is needed only where that level was not released.
            merged = finest.reshape(*finest.shape[:-1], bins, -1).sum(axis=-1)
            coarse.append((merged, bins / finest.shape[-1]))
        sums = np.zeros((*finest.shape[:2], bins))
        precision = np.zeros((bins, bins))
        for level, weight in coarse:
            size = level.shape[-1]
            sums += weight * np.repeat(level, bins // size, axis=-1)
            precision += weight * np.kron(np.eye(size), np.ones((bins // size, bins // size)))
        return cls(sums, precision, variance)

    def swapped(self) -> Observed:
        """Outcome and cut-off level censor each other, so both are estimated alike, with their roles exchanged."""
        return Observed(self.sums[:, ::-1], self.precision, self.variance)

    def of_cells(self, chosen: BoolArray) -> Observed:
        """Some cells of it."""
        return Observed(self.sums[chosen], self.precision, self.variance)


# From the laws of outcomes and of cut-off levels, in any shapes that broadcast, to the shares of both kinds of leaves.
Feedback = Callable[[Any, Any, Any, Any], tuple[Any, Any]]


def censored(law: Any, beyond_law: Any, cutoffs: Any, beyond_cutoffs: Any) -> tuple[Any, Any]:
    """An outcome is seen if it lies before its cut-off level; otherwise the level is."""
    return law * beyond_cutoffs, cutoffs * beyond_law


def current_status(law: Any, beyond_law: Any, cutoffs: Any, beyond_cutoffs: Any) -> tuple[Any, Any]:
    """The level is always seen, and on which side of it the outcome lies."""
    return cutoffs * (1 - beyond_law), cutoffs * beyond_law


def expected_shares(law: FloatArray, cutoffs: FloatArray | None, status: BoolArray | None = None) -> FloatArray:
    """Shares of (seen, cut off) × bins, (..., kinds, B). `status` (...,) says where only a side is seen."""
    if cutoffs is None:
        return law[..., None, :]
    laws = law, beyond(law), cutoffs, beyond(cutoffs)
    usual = np.stack(censored(*laws), axis=-2)
    if status is None or not status.any():
        return usual
    return np.where(status[..., None, None], np.stack(current_status(*laws), axis=-2), usual)


def log_likelihoods(
    observed: Observed,
    laws: Laws,
    *,
    law: FloatArray,
    cutoffs: FloatArray | None,
    totals: FloatArray,
    feedback: Feedback = censored,
    of_cutoffs: bool = False,
) -> SingleArray:
    """log p(trees of cell c | law j) up to a constant of the cell, (cells, J), in single precision.

    `law` and `cutoffs` (cells, B) are the current estimates; `totals` (cells,) are slots. With `of_cutoffs` the
    dictionary's laws are those of cut-off levels, and the outcomes' are given.
    """
    found = np.empty((len(totals), len(laws.table)), dtype=np.float32)
    inverse = np.linalg.inv(observed.precision)
    leaves = (observed.sums @ inverse).astype(np.float32)
    # Laws as columns (B, J): what is the same for all of them is then one long row.
    table, further = np.ascontiguousarray(laws.table.T), np.ascontiguousarray(laws.beyond.T)
    given = law if of_cutoffs else cutoffs
    shares = law[..., None, :] if cutoffs is None else np.stack(_shares(feedback, law, cutoffs), axis=-2)
    groups = _groups(law if given is None else given)
    for group in range(int(groups.max()) + 1):
        cells = np.flatnonzero(groups == group)
        if not len(cells):
            continue
        size, unexplored = totals[cells].mean(), np.zeros(len(table), dtype=bool)
        expected = [table]
        if given is not None:
            other = given[cells].mean(axis=0)
            known = other.astype(np.float32)[:, None], beyond(other).astype(np.float32)[:, None]
            every = (*known, table, further) if of_cutoffs else (table, further, *known)
            expected = list(feedback(*every))
            # Of a level that nobody tried a row says nothing. Where only sides are seen, rows stand where they tried.
            if feedback is censored:
                unexplored = ~looked_at(other)
        linear, square = 0.0, 0.0
        for kind, of_laws in enumerate(expected):
            mean = size * shares[cells, kind].mean(axis=0)
            sampled = np.diag(mean + LEAST_LEAF_VARIANCE + (MISFIT * mean) ** 2 + np.where(unexplored, size**2, 0.0))
            weighted = np.linalg.inv(observed.variance * inverse + sampled).astype(np.float32) @ of_laws
            linear = linear + leaves[cells, kind] @ weighted
            square = square + np.einsum("bj,bj->j", weighted, of_laws)
        n = totals[cells, None].astype(np.float32)
        found[cells] = n * linear - n**2 / 2 * square
    return found


def _shares(feedback: Feedback, law: FloatArray, cutoffs: FloatArray) -> tuple[FloatArray, FloatArray]:
    seen, cut = feedback(law, beyond(law), cutoffs, beyond(cutoffs))
    return seen, cut


def _groups(laws: FloatArray) -> IntArray:
    """Numbers of groups of cells with similar laws, by their distribution functions (Lloyd's algorithm)."""
    if len(laws) <= MOST_GROUPS:
        return np.arange(len(laws))
    cumulative = np.cumsum(laws, axis=1).astype(np.float32)
    # The first centres are spread over the order of means, so nothing here is random.
    order = np.argsort(cumulative.sum(axis=1), kind="stable")
    centres = cumulative[order[np.linspace(0, len(laws) - 1, MOST_GROUPS).astype(np.int64)]]
    for _ in range(REGROUPINGS):
        nearest = np.argmin((centres**2).sum(axis=1) - 2 * cumulative @ centres.T, axis=1)
        members = sparse.csr_array((np.ones(len(laws), np.float32), (nearest, np.arange(len(laws)))))
        sizes = np.bincount(nearest, minlength=members.shape[0])
        centres = (members @ cumulative)[sizes > 0] / sizes[sizes > 0, None]
    return np.asarray(nearest, dtype=np.int64)
