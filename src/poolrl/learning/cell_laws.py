"""The laws of every cell: what demand and past order levels are like there, by their shapes and by all other cells.

Outcome and cut-off level censor each other. So their laws are found in turn, each given the other (three times are
enough), and the weights of the dictionary's laws by all cells together (`hierarchy`). Slots on which nothing happened
are set apart (`idle_steps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poolrl.checks import FloatArray, IntArray
from poolrl.geometry.bins import bin_edges
from poolrl.geometry.resolution import SHAPE_BINS
from poolrl.learning.hierarchy import Posterior, posterior
from poolrl.learning.idle_steps import idle_shares, with_zeros, without_zeros, zeros_seen
from poolrl.learning.likelihood import Observed, expected_shares, log_likelihoods
from poolrl.learning.shapes import Laws, dictionary, fine_bins

TURNS = 3


@dataclass(frozen=True)
class CellLaws:
    """For every cell the law of outcomes and, where they can be cut off, of cut-off levels, (cells, fine bins).

    `learned` is the part of the outcomes' laws that rests on the trees; the rest is the public prior.
    """

    outcomes: FloatArray
    cutoffs: FloatArray | None
    learned: float

    def expected(self, bins: int) -> FloatArray:
        """The shares that each node of a tree is expected to have, (cells, kinds, bins)."""
        return expected_shares(
            coarser(self.outcomes, bins), None if self.cutoffs is None else coarser(self.cutoffs, bins)
        )


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
) -> CellLaws:
    """The laws that explain trees of levels (cells, kinds, size), for cells with `totals` (cells,) slots.

    `steps` (cells,) says which step a cell belongs to. `reach` holds λ of some steps and coordinates: before any data,
    cut-off levels are uniform up to one of them.
    """
    kinds, bins = levels[-1].shape[1:]
    resolved = min(bins, SHAPE_BINS)
    fine, laws = dictionary(resolved, fine_bins(bins)), dictionary(resolved, resolved)
    observed = Observed.of(list(levels), variance, resolved)
    prior = np.tile(laws.uniform, (len(totals), 1))
    limits = _uniform_up_to(reach, fine.table.shape[1])
    outcomes, cutoffs = prior, np.broadcast_to(coarser(limits, resolved), prior.shape) if kinds == 2 else None
    first_leaves, leaf_variance = coarser(levels[-1][:, 0], resolved)[:, 0], variance * bins / resolved
    idle = np.zeros(len(totals))

    def weigh(trees: Observed, law: FloatArray, other: FloatArray | None) -> Posterior:
        likelihoods = log_likelihoods(trees, laws, law=law, cutoffs=other, totals=totals * (1 - idle))
        return posterior(likelihoods, laws, factors)

    turn, turns = 0, TURNS if cutoffs is not None else 1
    settled = max(1, turns - 1)
    while turn < turns:
        turn += 1
        if cutoffs is not None:
            order_laws = weigh(observed.swapped(), cutoffs, outcomes)
            cutoffs = cautious(order_laws, laws, coarser(limits, resolved))
        found = weigh(observed, outcomes, cutoffs)
        outcomes = cautious(found, laws, prior[0])
        if turn < settled:
            continue
        shares = idle_shares(first_leaves, leaf_variance, outcomes, cutoffs, totals, steps)
        if turn == settled and shares.any():
            # Laws lean towards idle slots that they were to explain. Two more turns, and they no longer do.
            turns = settled + 2
        if turn < turns:
            idle = shares
            observed = Observed.of(without_zeros(levels, idle * totals * zeros_seen(cutoffs)), variance, resolved)
    return CellLaws(
        with_zeros(cautious(found, fine, fine.uniform), idle),
        None if cutoffs is None else cautious(order_laws, fine, limits),
        learned_part(found),
    )


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


def _uniform_up_to(reach: FloatArray, bins: int) -> FloatArray:
    """Cut-off levels before any data, (bins,): uniform up to one of the reaches."""
    edges = bin_edges(bins)
    return np.diff(np.minimum(edges / np.atleast_1d(reach).reshape(-1, 1), 1.0).mean(axis=0))
