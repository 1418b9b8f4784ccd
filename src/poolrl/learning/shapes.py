"""A public dictionary of laws, the shapes that demand usually has at every size, and how well each explains the trees.

A law is a distribution in shares of the outcome's bound. A *located* one is a shape (family and relative spread) with
its mean on an even grid of log-means. Two have no size: uniform, which is the public prior, and always zero.

In a cell (label cell, step, coordinate) with n slots, outcomes of law D and cut-off levels of law G,

    expected seen leaves  n D(i) S_G(i),   expected cut leaves  n G(i) S_D(i),   S(i) = P(beyond bin i) + half of bin i

Where a row only shows on which side of a tried value the outcome lies (current status), both kinds stand at that value:
n G(i) (1 − S_D(i)) and n G(i) S_D(i). Nodes are sums of leaves (A) plus noise of variance v. So the best linear
estimate of the leaves has covariance v (AᵀA)⁻¹. Slots are a sample, which adds n p(i), and no law fits exactly, which
adds a share of (n p(i))²: a law must not fit accidents of the log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from poolrl.checks import BoolArray, FloatArray, IntArray
from poolrl.geometry.bins import bin_edges
from poolrl.geometry.resolution import LOG_MEAN_STEP
from poolrl.learning import priors
from poolrl.learning.outcomes import looked_at

# Laws without a size stand at the end of the table: the uniform one, then zero.
WITHOUT_SIZE, UNIFORM = 2, 0
# Single precision.
SingleArray = NDArray[np.float32]


@dataclass(frozen=True)
class Laws:
    """All laws as shares of B bins, (M · S + 2, B): M log-means times S shapes, then the two without a size."""

    log_means: FloatArray  # (M,)
    usual: FloatArray  # (S,) how common each shape is, before any data
    table: SingleArray
    classes: FloatArray  # (3,) cells seen before any data: located, uniform, zero

    @property
    def located(self) -> SingleArray:
        """The laws with a size, (M, S, B)."""
        return self.table[:-WITHOUT_SIZE].reshape(len(self.log_means), len(self.usual), -1)

    @property
    def uniform(self) -> FloatArray:
        """The public prior, (B,)."""
        return self.table[len(self.table) - WITHOUT_SIZE + UNIFORM].astype(np.float64)

    @cached_property
    def columns(self) -> SingleArray:
        """The table, bin by bin, (B, M · S + 2)."""
        return np.ascontiguousarray(self.table.T)

    def smoothed(self, spread: float) -> FloatArray:
        """Column η holds N(m; η, τ²) on the grid of log-means m, (M, M)."""
        kernel = np.exp(-((self.log_means[:, None] - self.log_means) ** 2) / (2 * spread**2))
        return np.asarray(kernel / kernel.sum(axis=0))

    @cached_property
    def smoothed_by_spreads(self) -> FloatArray:
        """The same for every spread τ that is looked at, (T, M, M)."""
        return np.stack([self.smoothed(spread) for spread in priors.CELL_SPREADS])


def beyond(law: FloatArray) -> FloatArray:
    """S(i) = P(X beyond bin i) + half of bin i."""
    # A cumulative sum may pass one by a rounding error, and shares are never negative.
    return np.maximum(1.0 - np.cumsum(law, axis=-1) + law / 2, 0.0)


@lru_cache(maxsize=16)
def dictionary(resolved: int, bins: int, *, higher: bool = False, closes: bool = True) -> Laws:
    """The laws on `bins` bins, with means down to what `resolved` bins can tell from zero.

    Bins are in the order in which outcomes are lost from sight: from the top on the `higher` side. Where nothing ever
    `closes`, no law is always zero. The part of a law beyond the public bound stands in the last bin.
    """
    low = math.log(max(priors.LOWEST_MEAN * bin_edges(resolved)[1], priors.LOWEST_SHARE))
    log_means = low + LOG_MEAN_STEP * np.arange(math.ceil((math.log(priors.HIGHEST_MEAN) - low) / LOG_MEAN_STEP) + 1)
    mean, edge = np.exp(log_means)[:, None], bin_edges(bins)
    single = [_gamma_below(edge, mean, cv) for cv in priors.SPREADS_OF_SHAPES]
    single += [_normal_below(edge, mean, cv * mean) for cv in priors.SPREADS_OF_SHAPES]
    single += [_lognormal_below(edge, mean, cv) for cv in priors.SPREADS_OF_SHAPES]
    # Mirrored at the mean: a long tail towards zero.
    single += [1 - _gamma_below(2 * mean - edge, mean, cv) for cv in priors.SPREADS_OF_SHAPES]
    peaks = []
    for ratio in priors.PEAK_RATIOS:
        for share in priors.PEAK_SHARES:
            lower = mean / (share + (1 - share) * ratio)
            for cv in priors.PEAK_SPREADS:
                low_peak, high_peak = (_normal_below(edge, place, cv * mean) for place in (lower, ratio * lower))
                peaks.append(share * low_peak + (1 - share) * high_peak)
    idle = [
        p + (1 - p) * _gamma_below(edge, mean / (1 - p), cv) for p in priors.IDLE_SHARES for cv in priors.IDLE_SPREADS
    ]
    even = [np.clip((edge / mean - 1 + width) / (2 * width), 0.0, 1.0) for width in priors.EVEN_WIDTHS]
    kinds = (single, peaks, idle, even)
    usual = [share / len(kind) for kind, share in zip(kinds, priors.USUAL, strict=True) for _ in kind]
    below = np.stack([law for kind in kinds for law in kind], axis=1)  # (M, S, B + 1)
    below[..., 0], below[..., -1] = 0.0, 1.0
    located = np.maximum(np.diff(below, axis=-1), 0.0).reshape(-1, bins)
    table = np.concatenate([located, np.diff(edge)[None], np.eye(1, bins)]).astype(np.float32)
    if higher:
        table = np.ascontiguousarray(table[:, ::-1])
    classes = np.array([*priors.LOCATED_AND_UNIFORM, priors.ALWAYS_ZERO * closes])
    return Laws(np.asarray(log_means, dtype=np.float64), np.array(usual), table, classes)


def _gamma_below(edge: FloatArray, mean: FloatArray, cv: float) -> FloatArray:
    return np.asarray(special.gammainc(cv**-2, np.maximum(edge, 0.0) / (mean * cv**2)))


def _normal_below(edge: FloatArray, mean: FloatArray, deviation: FloatArray) -> FloatArray:
    return np.asarray(special.ndtr((edge - mean) / deviation))


def _lognormal_below(edge: FloatArray, mean: FloatArray, cv: float) -> FloatArray:
    variance = math.log1p(cv**2)
    with np.errstate(divide="ignore"):
        return np.asarray(special.ndtr((np.log(edge) - np.log(mean) + variance / 2) / math.sqrt(variance)))


# Cells with almost the same law of the other kind share their matrices. Fewer cells than this have one matrix each.
MOST_GROUPS, REGROUPINGS = 96, 4


@dataclass(frozen=True)
class Observed:
    """The trees of all cells, reduced to what a likelihood needs: Aᵀ nodes (cells, kinds, B) and AᵀA (B, B)."""

    sums: FloatArray
    precision: FloatArray
    variance: float

    @cached_property
    def leaves(self) -> tuple[FloatArray, FloatArray]:
        """Their best linear estimate (cells, kinds, B), and its covariance (B, B)."""
        inverse = np.linalg.inv(self.precision)
        return np.asarray(self.sums @ inverse), np.asarray(self.variance * inverse)

    @classmethod
    def of(cls, levels: list[FloatArray], variance: float, bins: int) -> Observed:
        """From released levels (cells, kinds, size), those of at most `bins` nodes. One of them has as many."""
        sums, precision = np.zeros((*levels[-1].shape[:2], bins)), np.zeros((bins, bins))
        for level in levels:
            if (size := level.shape[-1]) <= bins:
                sums += np.repeat(level, bins // size, axis=-1)
                precision += np.kron(np.eye(size), np.ones((bins // size, bins // size)))
        return cls(sums, precision, variance)


def expected_shares(law: FloatArray, cutoffs: FloatArray | None, status: BoolArray | None = None) -> FloatArray:
    """Shares of (seen, cut off) × bins, (..., kinds, B). `status` (...,) says where only a side is seen."""
    if cutoffs is None:
        return law[..., None, :]
    beyond_law = beyond(law)
    seen = law * beyond(cutoffs)
    if status is not None and status.any():
        seen = np.where(status[..., None], cutoffs * (1 - beyond_law), seen)
    return np.stack([seen, cutoffs * beyond_law], axis=-2)


def log_likelihoods(
    observed: Observed,
    laws: Laws,
    *,
    law: FloatArray,
    cutoffs: FloatArray | None,
    totals: FloatArray,
    sides: BoolArray | None = None,
    of_cutoffs: bool = False,
) -> SingleArray:
    """log p(trees of cell c | law j) up to a constant of the cell, (cells, J), in single precision.

    `law` and `cutoffs` (cells, B) are the current estimates. `sides` (cells,) says where only a side is seen. With
    `of_cutoffs` the dictionary has laws of cut-off levels, and those of outcomes are given.

    Given the other law, the shares of both kinds of leaves are linear in the law F_j: n T_k F_j. With leaves x_k whose
    inverse covariance is W_k, it is a quadratic form in F_j, the same for all cells of a group but for n and x:

        n (Σ_k T_kᵀ W_k x_k) · F_j  −  n²/2 F_jᵀ Q F_j,    Q = Σ_k T_kᵀ W_k T_k
    """
    given = law if of_cutoffs else cutoffs
    sides = np.zeros(len(totals), dtype=bool) if sides is None else sides
    groups = _groups(law if given is None else given, sides)
    members = sums_by(groups) if len(groups) > MOST_GROUPS else None

    def mean_of(values: FloatArray) -> FloatArray:
        """Of every group, (groups, ...)."""
        if members is None:
            return values  # each cell is a group
        sums = members @ values.reshape(len(values), -1) / np.maximum(np.bincount(groups), 1)[:, None]
        return np.asarray(sums).reshape(-1, *values.shape[1:])

    (leaves, covariance), bins = observed.leaves, len(observed.precision)
    other, by_side = None if given is None else mean_of(given)[:, None], mean_of(sides.astype(np.float64)) > 0
    # Laws that have all in one bin, (1, B, B): their expected shares are Tᵀ.
    basis = np.eye(bins)[None]
    pair = (other, basis) if of_cutoffs and other is not None else (basis, other)
    maps = np.swapaxes(expected_shares(*pair, by_side[:, None]), 1, 2)
    # Of a level that nobody tried a row says nothing. Where only sides are seen, rows stand where they tried.
    unexplored = np.False_ if other is None else ~looked_at(other) & ~by_side[:, None, None]
    size = mean_of(totals)[:, None, None]
    mean = size * mean_of(expected_shares(law, cutoffs, sides))  # (groups, kinds, B)
    sampled = mean + priors.LEAST_VARIANCE + (priors.MISFIT * mean) ** 2 + np.where(unexplored, size**2, 0.0)
    weighted = maps @ np.linalg.inv(covariance + sampled[..., None] * np.eye(bins))
    forms = (weighted @ np.swapaxes(maps, -1, -2)).sum(axis=1)
    # Around the usual law c, where numbers are small, and so are rounding errors of single precision.
    usual = (cutoffs if of_cutoffs and cutoffs is not None else law).mean(axis=0).astype(np.float32)
    columns, slopes = laws.columns - usual[:, None], np.empty((len(totals), bins))
    for group, form in enumerate(forms):
        cells = np.flatnonzero(groups == group)
        slopes[cells] = np.einsum("ckb,klb->cl", leaves[cells], weighted[group]) - totals[cells, None] * (form @ usual)
    found = np.asarray((totals[:, None] * slopes).astype(np.float32) @ columns)
    squares, halves = _squares(forms, columns), (totals**2 / 2).astype(np.float32)
    for of_cell, half, group in zip(found, halves, groups, strict=True):
        of_cell -= half * squares[group]
        of_cell -= of_cell.max()
    return found


def sums_by(numbers: IntArray) -> sparse.csr_array:
    """The matrix (values, cells) that adds up what belongs to cells of the same number."""
    ends = np.append(0, np.cumsum(np.bincount(numbers)))
    return sparse.csr_array((np.ones(len(numbers)), np.argsort(numbers, kind="stable"), ends))


# Laws whose squares are computed at once: their products stay in the processor's cache. Fewer forms than these are
# quicker one by one than by the products of all pairs.
LAWS_AT_ONCE, FEW_FORMS = 512, 10


def _squares(forms: FloatArray, columns: SingleArray) -> SingleArray:
    """F_jᵀ Q F_j of symmetric forms Q (groups, B, B) and columns (B, J); many by one product, from F_j(a) F_j(b)."""
    a, b = np.triu_indices(len(columns))
    pairs = (forms[:, a, b] * np.where(a == b, 1.0, 2.0)).astype(np.float32)
    single, few = forms.astype(np.float32), len(forms) < FEW_FORMS
    found = np.empty((len(forms), columns.shape[1]), dtype=np.float32)
    for start in range(0, columns.shape[1], LAWS_AT_ONCE):
        some = columns[:, start : start + LAWS_AT_ONCE]
        squares = np.einsum("gbj,bj->gj", single @ some, some) if few else pairs @ (some[a] * some[b])
        found[:, start : start + LAWS_AT_ONCE] = squares
    return found


def _groups(laws: FloatArray, sides: BoolArray) -> IntArray:
    """Numbers of groups of cells with similar laws and the same feedback."""
    if len(laws) <= MOST_GROUPS:
        return np.arange(len(laws))
    groups = np.zeros(len(laws), dtype=np.int64)
    for by_side in (False, True):
        if (some := sides == by_side).any():
            groups[some] = by_side * MOST_GROUPS + _similar(laws[some])
    return groups


def _similar(laws: FloatArray) -> IntArray:
    """Numbers below `MOST_GROUPS` of groups of similar laws, by their distribution functions (Lloyd's algorithm)."""
    cumulative = np.cumsum(laws, axis=1).astype(np.float32)
    # The first centres are spread over the order of means, so nothing here is random.
    order = np.argsort(cumulative.sum(axis=1), kind="stable")
    centres = cumulative[order[np.linspace(0, len(laws) - 1, MOST_GROUPS).astype(np.int64)]]
    for _ in range(REGROUPINGS):
        nearest = np.argmin((centres**2).sum(axis=1) - 2 * cumulative @ centres.T, axis=1)
        members = sums_by(nearest).astype(np.float32)
        sizes = np.bincount(nearest, minlength=members.shape[0])
        centres = (members @ cumulative)[sizes > 0] / sizes[sizes > 0, None]
    return np.asarray(nearest, dtype=np.int64)
