"""How well laws explain released trees: against dense Gaussian densities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from poolrl.checks import FloatArray
from poolrl.learning import priors, shapes
from poolrl.learning.cell_laws import CellLaws, explain
from poolrl.learning.outcomes import looked_at
from poolrl.learning.shapes import Observed, beyond, dictionary, expected_shares, log_likelihoods
from poolrl.learning.trees import Cells
from poolrl.privacy.sensitivity import every_level

BINS = 8
LAWS = dictionary(BINS, BINS)


def trees(leaves: FloatArray, variance: float, rng: np.random.Generator) -> list[FloatArray]:
    """Noisy levels from four nodes on of leaves (cells, kinds, B)."""
    sizes = every_level(leaves.shape[-1])[2:]
    exact = [leaves.reshape(*leaves.shape[:-1], size, -1).sum(axis=-1) for size in sizes]
    return [level + rng.normal(0, np.sqrt(variance), level.shape) for level in exact]


@pytest.mark.parametrize("kinds", [1, 2])
def test_differences_are_those_of_gaussian_densities(kinds: int) -> None:
    """Nodes ~ N(A leaves, v I), leaves ~ N(n p_j, diag(n p + least + (misfit n p)²)) with p the current estimate.

    So nodes ~ N(n A p_j, v I + A diag Aᵀ). Leaves beyond the explored range have such a variance that they count for
    nothing. Constants of a cell cancel in differences between laws.
    """
    rng = np.random.default_rng(0)
    law, cutoffs = rng.dirichlet(np.ones(BINS), size=(2, 3))
    cutoffs[:, -2:] = 0  # nobody looked into the last two bins
    cutoffs /= cutoffs.sum(axis=1, keepdims=True)
    other = cutoffs if kinds == 2 else None
    totals, variance = np.array([30.0, 80.0, 7.0]), 25.0
    leaves = rng.uniform(0, 20, (3, kinds, BINS))
    levels = trees(leaves, variance, rng)
    some = replace(LAWS, table=LAWS.table[::37])
    table = some.table.astype(np.float64)
    found = log_likelihoods(Observed.of(levels, variance, BINS), some, law=law, cutoffs=other, totals=totals).astype(
        np.float64
    )
    design = np.concatenate([np.kron(np.eye(size), np.ones(BINS // size)) for size in every_level(BINS)[2:]])
    for cell, n in enumerate(totals):
        expected = expected_shares(table, None if other is None else np.tile(other[cell], (len(table), 1)))
        current = n * expected_shares(law[cell], None if other is None else other[cell])
        blind = np.zeros(BINS, dtype=bool) if other is None else ~looked_at(other[cell])
        density = np.zeros(len(table))
        for kind in range(kinds):
            sampled = current[kind] + priors.LEAST_VARIANCE + (priors.MISFIT * current[kind]) ** 2
            sampled += np.where(blind, n**2, 0.0)
            covariance = variance * np.eye(len(design)) + design @ np.diag(sampled) @ design.T
            nodes = np.concatenate([level[cell, kind] for level in levels])
            density += [stats.multivariate_normal(n * design @ p[kind], covariance).logpdf(nodes) for p in expected]
        assert found[cell] - found[cell, 0] == pytest.approx(density - density[0], abs=2e-3)


def test_cells_in_groups_are_weighed_like_cells_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three kinds of cells, more of them than groups: grouping changes nothing where members are alike."""
    rng = np.random.default_rng(1)
    kinds_of_cells = rng.dirichlet(np.ones(BINS), size=(3, 2))
    which = rng.integers(0, 3, 60)
    law, cutoffs = kinds_of_cells[which, 0], kinds_of_cells[which, 1]
    observed = Observed.of(trees(rng.uniform(0, 20, (60, 2, BINS)), 9.0, rng), 9.0, BINS)
    facts = {"law": law, "cutoffs": cutoffs, "totals": np.full(60, 50.0)}
    alone = log_likelihoods(observed, LAWS, **facts)
    monkeypatch.setattr(shapes, "MOST_GROUPS", 3)
    assert np.allclose(log_likelihoods(observed, LAWS, **facts), alone, rtol=1e-4, atol=0.01)


def test_a_fine_tree_is_read_at_fewer_bins() -> None:
    """Levels finer than asked for are left out: the coarse ones were released by themselves."""
    rng = np.random.default_rng(2)
    levels = trees(rng.uniform(0, 20, (2, 2, 32)), 4.0, rng)
    coarse = Observed.of(levels, 4.0, 8)
    assert coarse.sums == pytest.approx(Observed.of(levels[:2], 4.0, 8).sums)
    assert coarse.precision == pytest.approx(Observed.of(levels[:2], 4.0, 8).precision)
    # Where no such level was released, four leaves are summed, and so is their noise.
    summed = Observed.of(levels[-1:], 4.0, 8)
    assert summed.sums == pytest.approx(levels[-1].reshape(2, 2, 8, 4).sum(axis=-1) / 4)
    assert summed.precision == pytest.approx(np.eye(8) / 4)


def distance(found: FloatArray, law: FloatArray) -> FloatArray:
    """The largest difference of two distribution functions."""
    return np.abs(np.cumsum(found, axis=-1) - np.cumsum(law, axis=-1)).max(axis=-1)


@pytest.mark.parametrize("censored", [True, False])
def test_a_law_of_the_dictionary_is_found_again(censored: bool) -> None:
    """Cells that are samples of one law each, of every kind: closer to it than the samples' own accidents."""
    rng = np.random.default_rng(3)
    fine, bins, n = dictionary(64, 512), 64, 2000
    means = len(fine.log_means)
    chosen = [(means - 18, 5), (means - 25, 3), (means - 22, 12), (means - 15, 20), (means - 14, 27), (means - 16, 60)]
    laws = np.stack([*(fine.located[m, s] for m, s in chosen), fine.uniform]).astype(np.float64)
    orders = np.tile(fine.located[means - 8, 4].astype(np.float64), (len(laws), 1)) if censored else None
    shares = CellLaws(laws, orders, 1.0, np.zeros(len(laws), dtype=bool)).expected(bins)
    leaves = np.stack([rng.multinomial(n, share.ravel() / share.sum()) for share in shares]).reshape(shares.shape)
    levels = trees(leaves.astype(float), 100.0, rng)
    steps = np.zeros(len(laws), dtype=np.int64)
    cells = Cells(levels, 100.0, np.full(len(laws), float(n)), np.zeros(len(laws), dtype=bool))
    found = explain(cells, [], steps=steps, reach=np.ones(1))
    assert found.learned > 0.999
    assert distance(found.outcomes, laws).max() < 0.05
    if censored:
        # Demand censors orders too: they are known as far as one outcome in ten looks.
        assert found.cutoffs is not None
        seen = looked_at(laws)
        assert distance(found.cutoffs * seen, orders * seen).max() < 0.05


def test_nothing_lies_beyond_the_last_bin_but_half_of_it() -> None:
    """S(i) by sums from the right; rounding never makes it negative, or a share of it would be arbitrary."""
    table = LAWS.table.astype(np.float64)
    found = beyond(table)
    expected = np.cumsum(table[:, ::-1], axis=1)[:, ::-1] - table / 2
    assert np.allclose(found, expected, rtol=0, atol=1e-6)  # laws sum to one in single precision
    assert (found >= 0).all()
