"""The laws of every cell: what demand and past order levels are like there, by their shapes and by all other cells.

Outcome and cut-off level censor each other. So their laws are found in turn, each given the other (three times are
enough), and the weights of the dictionary's laws by all cells together (`hierarchy`). Slots on which nothing happened
are set apart (`idle_steps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.geometry.bins import outward_edges
from poolrl.geometry.resolution import SHAPE_BINS
from poolrl.learning.hierarchy import Posterior, posterior
from poolrl.learning.idle_steps import idle_shares, with_zeros, without_zeros, zeros_seen
from poolrl.learning.kaplan_meier import refined
from poolrl.learning.likelihood import Observed, current_status, expected_shares, log_likelihoods
from poolrl.learning.shapes import Laws, dictionary, fine_bins
from poolrl.learning.trees import consistent_masses

TURNS = 3


@dataclass(frozen=True)
class CellLaws:
    """For every cell the law of outcomes and, where they can be cut off, of cut-off levels, (cells, fine bins).

    `learned` is the part of the outcomes' laws that rests on the trees; the rest is the public prior.
    """

    outcomes: FloatArray
    cutoffs: FloatArray | None
    learned: float
    status: BoolArray  # (cells,) where only the side of an outcome is seen

    def expected(self, bins: int) -> FloatArray:
        """The shares that each node of a tree is expected to have, (cells, kinds, bins)."""
        cutoffs = None if self.cutoffs is None else coarser(self.cutoffs, bins)
        return expected_shares(coarser(self.outcomes, bins), cutoffs, self.status)


def coarser(law: FloatArray, bins: int) -> FloatArray:
    """A law on fewer bins."""
    return law.reshape(*law.shape[:-1], bins, -1).sum(axis=-1)


def explain(
    levels: Sequence[FloatArray],
    variance: float,
    totals: FloatArray,
    factors: Sequence[IntArray],
    *,
    steps: IntArray,
    reach: FloatArray,
    status: BoolArray | None = None,
    higher: bool = False,
    closes: bool = True,
) -> CellLaws:
    """The laws that explain trees of levels (cells, kinds, size), for cells with `totals` (cells,) slots.

    `steps` (cells,) says which step a cell belongs to. `reach` holds λ of some steps and coordinates: before any data,
    cut-off levels are uniform up to one of them. `status` (cells,) says where only the side of an outcome is seen, and
    `higher` that bins count from the top. Where the world never `closes`, no step is idle.
    """
    sides = np.zeros(len(totals), dtype=bool) if status is None else status
    kinds, bins = levels[-1].shape[1:]
    resolved = min(bins, SHAPE_BINS)
    fine, laws = (dictionary(resolved, many, higher=higher, closes=closes) for many in (fine_bins(bins), resolved))
    observed = Observed.of(list(levels), variance, resolved)
    prior = np.tile(laws.uniform, (len(totals), 1))
    limits = _uniform_up_to(reach, fine.table.shape[1], higher=higher)
    outcomes, cutoffs = prior, np.broadcast_to(coarser(limits, resolved), prior.shape) if kinds == 2 else None
    first_leaves, leaf_variance = coarser(levels[-1][:, 0], resolved)[:, 0], variance * bins / resolved
    idle = np.zeros(len(totals))

    def weigh(*, of_cutoffs: bool) -> Posterior:
        found = np.empty((len(totals), len(laws.table)), dtype=np.float32)
        for by_side in (False, True):
            if not (mine := sides == by_side).any():
                continue
            trees, slots, law = observed.of_cells(mine), (totals * (1 - idle))[mine], outcomes[mine]
            other = None if cutoffs is None else cutoffs[mine]
            if by_side:
                said = {"law": law, "cutoffs": other, "feedback": current_status, "of_cutoffs": of_cutoffs}
                found[mine] = log_likelihoods(trees, laws, totals=slots, **said)
            elif of_cutoffs and other is not None:
                found[mine] = log_likelihoods(trees.swapped(), laws, law=other, cutoffs=law, totals=slots)
            else:
                found[mine] = log_likelihoods(trees, laws, law=law, cutoffs=other, totals=slots)
        return posterior(found, laws, factors)

    turn, turns = 0, TURNS if cutoffs is not None else 1
    settled = max(1, turns - 1)
    while turn < turns:
        turn += 1
        if cutoffs is not None:
            order_laws = weigh(of_cutoffs=True)
            cutoffs = cautious(order_laws, laws, coarser(limits, resolved))
            if sides.any():
                cutoffs[sides] = _levels_tried(levels, variance, totals, sides, cutoffs)
        found = weigh(of_cutoffs=False)
        outcomes = cautious(found, laws, prior[0])
        if turn < settled or not closes:
            continue
        shares = idle_shares(first_leaves, leaf_variance, outcomes, cutoffs, totals, steps)
        if turn == settled and shares.any():
            # Laws lean towards idle slots that they were to explain. Two more turns, and they no longer do.
            turns = settled + 2
        if turn < turns:
            idle = shares
            observed = Observed.of(without_zeros(levels, idle * totals * zeros_seen(cutoffs)), variance, resolved)
    tried = None
    if cutoffs is not None:
        tried = cautious(order_laws, fine, limits)
        if sides.any():
            tried[sides] = refined(cutoffs[sides], tried[sides])
    return CellLaws(with_zeros(cautious(found, fine, fine.uniform), idle), tried, learned_part(found), sides)


def _levels_tried(
    levels: Sequence[FloatArray], variance: float, totals: FloatArray, sides: BoolArray, laws: FloatArray
) -> FloatArray:
    """Which values were tried, for cells whose rows all show it: both kinds together, around their shape."""
    both = [level[sides].sum(axis=1, keepdims=True) for level in levels]
    bins = laws.shape[-1]
    masses = consistent_masses(both, 2 * variance, totals[sides], _spread_over(laws[sides], both[-1].shape[-1]), 0.5)
    found = coarser(masses[:, 0], bins)
    total = found.sum(axis=-1, keepdims=True)
    # A cell without a slot has tried nothing, and its shape remains.
    return np.where(total > 0, found / np.where(total > 0, total, 1.0), laws[sides])


def _spread_over(laws: FloatArray, bins: int) -> FloatArray:
    """Laws as expected shares of one kind on finer bins, even inside each."""
    return np.repeat(laws, bins // laws.shape[-1], axis=-1)[:, None] * laws.shape[-1] / bins


def cautious(found: Posterior, laws: Laws, prior: FloatArray) -> FloatArray:
    """The posterior mean law of every cell; the public prior (bins,) as far as the trees hardly contradict it."""
    weight = learned_part(found)
    learned = (found.weights @ laws.table).astype(np.float64)
    learned /= learned.sum(axis=1, keepdims=True)
    return weight * learned + (1 - weight) * prior


def learned_part(found: Posterior) -> float:
    """1 − 1/K for a Bayes factor K against "all uniform": zero without evidence.

    So the estimate ends at the public prior as ρ → 0.
    """
    return max(0.0, -float(np.expm1(-found.evidence)))


def _uniform_up_to(reach: FloatArray, bins: int, *, higher: bool) -> FloatArray:
    """Cut-off levels before any data, (bins,): uniform up to one of the reaches."""
    edges = np.abs(outward_edges(bins, higher=higher) - float(higher))
    return np.diff(np.minimum(edges / np.atleast_1d(reach).reshape(-1, 1), 1.0).mean(axis=0))
