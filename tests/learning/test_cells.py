"""Laws of cells: the dictionary, how well laws explain trees, what cells learn from each other, and idle days."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from poolrl import Backlog, LostSales, Pool, SeededNoise
from poolrl.checks import FloatArray
from poolrl.geometry.bins import bin_edges, bin_of
from poolrl.learning import cell_laws, priors, shapes
from poolrl.learning.cell_laws import CellLaws, explain
from poolrl.learning.outcomes import looked_at
from poolrl.learning.priors import EVEN_WIDTHS, IDLE_SHARES, IDLE_SPREADS, SPREADS_OF_SHAPES
from poolrl.learning.shapes import Observed, dictionary, expected_shares, log_likelihoods
from poolrl.learning.trees import Cells
from tests.helpers.tables import every_level

# Made when a test asks for them, because that takes a moment.
usual_laws = functools.partial(dictionary, 64, 512)
EDGES = bin_edges(512)
GAMMA, NORMAL, LOGNORMAL, MIRRORED = (slice(i * 8, i * 8 + 8) for i in range(4))
OTHERS = len(IDLE_SHARES) * len(IDLE_SPREADS) + len(EVEN_WIDTHS)


def law_near(mean: float, family: slice, cv: float) -> tuple[float, FloatArray]:
    """A law of the dictionary with its exact mean, which is on the grid."""
    laws = usual_laws()
    place = int(np.abs(laws.log_means - np.log(mean)).argmin())
    return float(np.exp(laws.log_means[place])), laws.located[place, family][SPREADS_OF_SHAPES.index(cv)]


def test_laws_have_the_mean_that_they_claim() -> None:
    """Where next to nothing lies beyond the bound. The part of a normal law below zero adds to zero."""
    middles = (EDGES[1:] + EDGES[:-1]) / 2
    ratio = usual_laws().located @ middles / np.exp(usual_laws().log_means)[:, None]
    inside = (usual_laws().located[..., -1] < 1e-7) & (usual_laws().log_means > np.log(0.01))[:, None]
    assert inside.sum() > 2000
    assert (ratio[inside] > 0.999).all()
    positive = np.zeros(usual_laws().located.shape[1], dtype=bool)
    for never_below_zero in (GAMMA, LOGNORMAL, slice(-OTHERS, None)):
        positive[never_below_zero] = True
    positive[NORMAL][:4] = positive[MIRRORED][:4] = True  # up to three deviations below the mean
    assert ratio[inside & positive] == pytest.approx(np.ones(int((inside & positive).sum())), abs=2e-3)


@pytest.mark.parametrize("cv", [0.13, 0.6])
def test_laws_agree_with_scipy(cv: float) -> None:
    mean, gamma = law_near(0.2, GAMMA, cv)
    deviation = np.sqrt(np.log1p(cv**2))
    oracles = [
        (gamma, stats.gamma(cv**-2, scale=mean * cv**2)),
        (law_near(0.2, NORMAL, cv)[1], stats.norm(mean, cv * mean)),
        (law_near(0.2, LOGNORMAL, cv)[1], stats.lognorm(deviation, scale=mean * np.exp(-(deviation**2) / 2))),
    ]
    for law, oracle in oracles:
        # Outcomes outside the bounds stand in the outer bins.
        assert np.cumsum(law)[:-1] == pytest.approx(oracle.cdf(EDGES[1:-1]), abs=1e-5)


def test_bins_are_narrow_near_zero() -> None:
    """An outcome u lies in bin i iff (i/B)² ≤ u < ((i+1)/B)²; what is outside the bounds in the outer ones."""
    u = np.random.default_rng(0).uniform(0, 1, 2000) ** 3
    place = bin_of(u, 64)
    assert (bin_edges(64)[place] <= u).all()
    assert (u < bin_edges(64)[place + 1]).all()
    assert bin_of(np.array([-0.1, 0.0, 1.0, 1.7]), 64).tolist() == [0, 0, 63, 63]


FEW = 8
few_laws = functools.partial(dictionary, FEW, FEW)


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
    law, cutoffs = rng.dirichlet(np.ones(FEW), size=(2, 3))
    cutoffs[:, -2:] = 0  # nobody looked into the last two bins
    cutoffs /= cutoffs.sum(axis=1, keepdims=True)
    other = cutoffs if kinds == 2 else None
    totals, variance = np.array([30.0, 80.0, 7.0]), 25.0
    leaves = rng.uniform(0, 20, (3, kinds, FEW))
    levels = trees(leaves, variance, rng)
    some = replace(few_laws(), table=few_laws().table[::37])
    table = some.table.astype(np.float64)
    found = log_likelihoods(Observed.of(levels, variance, FEW), some, law=law, cutoffs=other, totals=totals).astype(
        np.float64
    )
    design = np.concatenate([np.kron(np.eye(size), np.ones(FEW // size)) for size in every_level(FEW)[2:]])
    for cell, n in enumerate(totals):
        expected = expected_shares(table, None if other is None else np.tile(other[cell], (len(table), 1)))
        current = n * expected_shares(law[cell], None if other is None else other[cell])
        blind = np.zeros(FEW, dtype=bool) if other is None else ~looked_at(other[cell])
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
    kinds_of_cells = rng.dirichlet(np.ones(FEW), size=(3, 2))
    which = rng.integers(0, 3, 60)
    law, cutoffs = kinds_of_cells[which, 0], kinds_of_cells[which, 1]
    observed = Observed.of(trees(rng.uniform(0, 20, (60, 2, FEW)), 9.0, rng), 9.0, FEW)
    facts = {"law": law, "cutoffs": cutoffs, "totals": np.full(60, 50.0)}
    alone = log_likelihoods(observed, few_laws(), **facts)
    monkeypatch.setattr(shapes, "MOST_GROUPS", 3)
    assert np.allclose(log_likelihoods(observed, few_laws(), **facts), alone, rtol=1e-4, atol=0.01)


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
    cells = Cells(levels, 100.0, np.full(len(laws), float(n)), np.zeros(len(laws), dtype=bool), (len(laws), 1, 1))
    found = explain(cells, reach=np.ones(1))
    assert found.learned > 0.999
    assert distance(found.outcomes, laws).max() < 0.05
    if censored:
        # Demand censors orders too: they are known as far as one outcome in ten looks.
        assert found.cutoffs is not None
        seen = looked_at(laws)
        assert distance(found.cutoffs * seen, orders * seen).max() < 0.05


BINS = 16
fine_laws = functools.partial(dictionary, BINS, 512)
GAMMA_03 = 3  # the gamma law with coefficient of variation 0.3


def thin_cells(
    log_means: FloatArray, slots: FloatArray, variance: float, rng: np.random.Generator
) -> tuple[list[FloatArray], FloatArray]:
    """Noisy trees of samples from one shape at the grid's nearest log-means, and the true laws, (cells, 512)."""
    grid = fine_laws().log_means
    places = np.rint((log_means - grid[0]) / (grid[1] - grid[0])).astype(int)
    laws = fine_laws().located[places, GAMMA_03]
    coarse = laws.reshape(len(laws), BINS, -1).sum(axis=-1)
    leaves = np.stack(
        [rng.multinomial(int(n), p / p.sum()) for n, p in zip(slots, coarse.astype(np.float64), strict=True)]
    )[:, None]
    return trees(leaves, variance, rng), laws


def shops_and_days(rng: np.random.Generator) -> FloatArray:
    """Log-means of 30 shops on 7 days: additive effects and a little of every cell's own."""
    shops, days = rng.normal(0, 0.5, (30, 1)), rng.normal(0, 0.3, (1, 7))
    return (math.log(0.1) + shops + days + rng.normal(0, 0.03, (30, 7))).ravel()


def test_thin_cells_lean_on_each_other() -> None:
    """25 slots a cell under noise of deviation 8: together they say what none can say alone."""
    rng = np.random.default_rng(0)
    log_means = shops_and_days(rng)
    slots = np.full(210, 25.0)
    levels, laws = thin_cells(log_means, slots, 64.0, rng)
    cells = Cells(levels, 64.0, slots, np.zeros(210, dtype=bool), (30, 7, 1))
    together = distance(explain(cells, reach=np.ones(1)).outcomes, laws)
    by_itself = (replace(cells.some(np.arange(210) == i), shape=(1, 1, 1)) for i in range(0, 210, 21))
    one = (explain(cell, reach=np.ones(1)).outcomes[0] for cell in by_itself)
    alone = [distance(found, laws[21 * i]) for i, found in enumerate(one)]
    assert together[::21].mean() < 0.6 * np.mean(alone)
    assert together.mean() < 0.2


def test_a_cell_without_rows_is_found_by_its_effects() -> None:
    """One day of one shop was never recorded: its law follows from the shop's other days and that day elsewhere."""
    rng = np.random.default_rng(1)
    log_means = shops_and_days(rng)
    slots = np.full(210, 200.0)
    held_out = [8, 60, 111, 205]
    slots[held_out] = 0.0
    levels, laws = thin_cells(log_means, slots, 64.0, rng)
    cells = Cells(levels, 64.0, slots, np.zeros(210, dtype=bool), (30, 7, 1))
    found = distance(explain(cells, reach=np.ones(1)).outcomes, laws)[held_out]
    # The population's law is what is known of a cell without its effects.
    population = explain(replace(cells, shape=(210, 1, 1)), reach=np.ones(1))
    without = distance(population.outcomes, laws)[held_out]
    assert found.max() < 0.2
    assert found.mean() < 0.6 * without.mean()


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rho=st.sampled_from([1e-6, 0.1, 10.0, math.inf]),
    rows=st.integers(1, 60),
    kind=st.sampled_from([LostSales, Backlog]),
    public=st.booleans(),
    by_step=st.booleans(),
    memory=st.sampled_from([0, 3]),
)
def test_every_fit_is_a_law_and_a_possible_plan(
    seed: int, rho: float, rows: int, kind: type[LostSales], public: bool, by_step: bool, memory: int
) -> None:
    """Thin and empty cells, any noise, any scale: no negative mass, none lost, and levels between 0 and λ."""
    rng = np.random.default_rng(seed)
    problem = kind(
        horizon=2,
        products=2,
        holding=rng.uniform(0, 1, (3, 1, 2, 2)),
        shortage=rng.uniform(0, 1, (3, 2, 2, 2)),
        demand_max=rng.uniform(1, 9, (3, 1, 2)),
        boundary=0.6,
        labels={"shop": [1, 2, 3], "promo": ["no", "yes"]},
        scale_profile=rng.uniform(0.5, 2, (2, 1)),
    )
    labels = {"shop": rng.integers(1, 5, rows), "promo": rng.choice(["no", "yes"], (rows, 2) if by_step else rows)}
    scale = np.exp(rng.normal(0, 2, (rows, 2, 2)))
    log = problem.simulate_log(
        rng.gamma(1, 1, (rows, 2, 2)) * scale,
        rng=rng,
        scale=scale,
        scale_memory=memory,
        labels=labels,
        labels_public=public,
    )
    policy = Pool(rho).fit(problem, log, noise=SeededNoise(seed % 1000))
    outcomes = policy.outcomes
    assert outcomes is not None
    for law in (outcomes.weights, outcomes.cutoffs if outcomes.cutoffs is not None else outcomes.weights):
        assert (law >= 0).all()
        assert law.sum(axis=-1) == pytest.approx(1)
    assert (policy.levels >= 0).all()
    if memory == 0:  # else a level may be a larger multiple of a scale that becomes smaller
        assert (policy.levels <= 0.6 * problem.label_bounds[:, :, None] * (1 + 1e-9)).all()
    assert np.isfinite(policy.levels).all()


SHOPS, STEPS, WEEKS, VARIANCE = 150, 3, 60, 100.0


def noisy_trees(idle: FloatArray, *, cut: bool, seed: int) -> list[FloatArray]:
    """Trees of many shops with demand of one shape, idle with the given chance at each step."""
    rng = np.random.default_rng(seed)
    mean = rng.lognormal(math.log(0.25), 0.3, (SHOPS, 1, 1))
    demand = np.minimum(mean * rng.gamma(9.0, 1 / 9, (SHOPS, STEPS, WEEKS)), 1.0)
    demand *= rng.random(demand.shape) >= idle[:, None]
    orders = rng.random(demand.shape) if cut else np.full(demand.shape, np.inf)
    place = np.searchsorted(bin_edges(BINS), np.minimum(demand, orders), side="right").clip(1, BINS) - 1
    shop, step, _ = np.indices(demand.shape)
    leaves = np.zeros((SHOPS, STEPS, 1 + cut, BINS))
    np.add.at(leaves, (shop, step, (demand > orders).astype(int), place), 1.0)
    return trees(leaves.reshape(-1, 1 + cut, BINS), VARIANCE, rng)


ALWAYS = np.full(SHOPS * STEPS, float(WEEKS))


@pytest.mark.parametrize("cut", [False, True])
def test_idle_days_are_found_at_their_own_step(cut: bool) -> None:
    """A shop's own first leaf has 3 zeros under noise of deviation 10. All shops together have 450 under 122."""
    levels = noisy_trees(np.array([0.0, 0.05, 0.15]), cut=cut, seed=0)
    cells = Cells(levels, VARIANCE, ALWAYS, np.zeros(len(ALWAYS), dtype=bool), (SHOPS, STEPS, 1))
    laws = explain(cells, reach=np.ones(1))
    zero = laws.outcomes.reshape(SHOPS, STEPS, -1)[:, :, 0].mean(axis=0)
    error = math.sqrt(VARIANCE * SHOPS) / (SHOPS * WEEKS)
    assert zero == pytest.approx([0.0, 0.05, 0.15], abs=4 * error)
    assert laws.outcomes.sum(axis=-1) == pytest.approx(1.0)


def test_shares_by_hand() -> None:
    """Two cells of step 0 and one of step 1. A tenth of all other days ends in the first leaf, of orders a fifth.

    Step 0: 300 slots show 300 (0.1 × 0.9) = 27 without idle ones, and have room for 300 × 0.9 − 27 = 243. With 75.6
    seen, z = 48.6 / 243 = 0.2. Step 1 shows what it should.
    """
    law, cutoffs = np.tile([0.1, 0.9], (3, 1)), np.tile([0.2, 0.8], (3, 1))
    seen, totals, steps = np.array([25.2, 50.4, 9.0]), np.array([100.0, 200.0, 100.0]), np.array([0, 0, 1])
    found = cell_laws.idle_shares(seen, 1.0, law, cutoffs, totals, steps)
    assert found == pytest.approx([0.2, 0.2, 0.0])
    noisy = cell_laws.idle_shares(seen, 1000.0, law, cutoffs, totals, steps)  # 48.6 is then an accident
    assert noisy.tolist() == [0.0, 0.0, 0.0]
