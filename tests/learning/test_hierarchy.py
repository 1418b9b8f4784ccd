"""Cells learn from each other: thin cells, cells without rows, new shops; and no tree is counted twice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import Backlog, LostSales, Pool, SeededNoise
from poolrl.checks import FloatArray, IntArray
from poolrl.geometry.bins import bin_edges
from poolrl.learning.cell_laws import CellLaws, _moments, explain
from poolrl.learning.estimation import cell_factors
from poolrl.learning.shapes import dictionary
from poolrl.learning.trees import Cells
from poolrl.privacy.sensitivity import every_level

BINS, FINE = 16, dictionary(16, 512)
MIDDLES = (bin_edges(512)[1:] + bin_edges(512)[:-1]) / 2
GAMMA_03 = 3  # the gamma law with coefficient of variation 0.3
# The day of every cell of `shops_and_days`, and λ.
PUBLIC: dict[str, Any] = {"steps": np.tile(np.arange(7), 30), "reach": np.ones(1)}
ONE_CELL: dict[str, Any] = {"steps": np.zeros(1, dtype=np.int64), "reach": np.ones(1)}


def thin_cells(
    log_means: FloatArray, slots: FloatArray, variance: float, rng: np.random.Generator
) -> tuple[list[FloatArray], FloatArray]:
    """Noisy trees of samples from one shape at the grid's nearest log-means, and the true laws, (cells, 512)."""
    places = np.rint((log_means - FINE.log_means[0]) / (FINE.log_means[1] - FINE.log_means[0])).astype(int)
    laws = FINE.located[places, GAMMA_03]
    coarse = laws.reshape(len(laws), BINS, -1).sum(axis=-1)
    leaves = np.stack(
        [rng.multinomial(int(n), p / p.sum()) for n, p in zip(slots, coarse.astype(np.float64), strict=True)]
    )[:, None]
    exact = [leaves.reshape(len(laws), 1, size, -1).sum(axis=-1) for size in every_level(BINS)[2:]]
    return [level + rng.normal(0, math.sqrt(variance), level.shape) for level in exact], laws


def distances(found: CellLaws, laws: FloatArray) -> FloatArray:
    """The largest difference of distribution functions, cell by cell."""
    return np.abs(np.cumsum(found.outcomes, axis=-1) - np.cumsum(laws, axis=-1)).max(axis=-1)


def shops_and_days(rng: np.random.Generator) -> tuple[FloatArray, list[IntArray]]:
    """Log-means of 30 shops on 7 days: additive effects and a little of every cell's own."""
    shops, days = rng.normal(0, 0.5, (30, 1)), rng.normal(0, 0.3, (1, 7))
    return (math.log(0.1) + shops + days + rng.normal(0, 0.03, (30, 7))).ravel(), cell_factors((30, 7))


def test_thin_cells_lean_on_each_other() -> None:
    """25 slots a cell under noise of deviation 8: together they say what none can say alone."""
    rng = np.random.default_rng(0)
    log_means, factors = shops_and_days(rng)
    slots = np.full(210, 25.0)
    levels, laws = thin_cells(log_means, slots, 64.0, rng)
    cells = Cells(levels, 64.0, slots, np.zeros(210, dtype=bool))
    together = distances(explain(cells, factors, **PUBLIC), laws)
    alone = [
        distances(explain(cells.some(np.arange(210) == i), [], **ONE_CELL), laws[[i]])[0] for i in range(0, 210, 7)
    ]
    assert together[::7].mean() < 0.6 * np.mean(alone)
    assert together.mean() < 0.2


def test_a_cell_without_rows_is_found_by_its_effects() -> None:
    """One day of one shop was never recorded: its law follows from the shop's other days and that day elsewhere."""
    rng = np.random.default_rng(1)
    log_means, factors = shops_and_days(rng)
    slots = np.full(210, 200.0)
    held_out = [8, 60, 111, 205]
    slots[held_out] = 0.0
    levels, laws = thin_cells(log_means, slots, 64.0, rng)
    cells = Cells(levels, 64.0, slots, np.zeros(210, dtype=bool))
    found = distances(explain(cells, factors, **PUBLIC), laws)[held_out]
    # The population's law is what is known of a cell without its effects.
    population = explain(cells, [], **PUBLIC)
    without = distances(population, laws)[held_out]
    assert found.max() < 0.2
    assert found.mean() < 0.6 * without.mean()


def test_the_prior_of_a_cell_does_not_count_its_own_trees() -> None:
    """A value's effect in a cell is that of a fit without the cell: moments of the product of all other curves."""
    rng = np.random.default_rng(2)
    places, owner = np.linspace(-2, 2, 41), np.array([0, 0, 1, 0])
    given = -((places - rng.normal(0, 1, (4, 1))) ** 2) * rng.uniform(0.5, 3, (4, 1))
    prior = -(places**2) / 2
    joint = np.stack([prior + given[owner == value].sum(axis=0) for value in (0, 1)])
    (mean, _), (without, doubt) = _moments(joint, places), _moments(joint[owner] - given, places)
    for cell in range(4):
        others = [c for c in range(4) if c != cell and owner[c] == owner[cell]]
        chance = np.exp(prior + given[others].sum(axis=0))
        chance /= chance.sum()
        assert without[cell] == pytest.approx(chance @ places)
        assert doubt[cell] == pytest.approx(chance @ places**2 - (chance @ places) ** 2)
    assert without[2] == pytest.approx(0, abs=1e-12)  # the only one of its value knows the prior
    assert abs(mean[1]) > 0.1


def test_factors_are_those_with_several_values() -> None:
    """Two shops, one label of one value, three steps, one product; a factor that names each cell is left out."""
    factors = cell_factors((2, 1, 3, 1))
    assert [factor.tolist() for factor in factors] == [[0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]]
    assert cell_factors((1, 5, 1)) == []


def test_a_new_shop_gets_the_law_of_the_others() -> None:
    """Shop 12 was declared, but has no rows yet. It is planned like an average shop and not like an empty one."""
    problem = LostSales(
        horizon=2, holding=1.0, shortage=3.0, demand_max=100.0, labels={"shop": range(1, 13), "promo": ["no", "yes"]}
    )
    rng = np.random.default_rng(3)
    shop, promo = rng.integers(1, 12, 3000), rng.choice(["no", "yes"], 3000)
    mean = 20 * np.where(promo == "yes", 1.8, 1.0)
    demand = np.clip(rng.gamma(8, mean[:, None, None] / 8, (3000, 2, 1)), 0, 100)
    log = problem.simulate_log(demand, rng=rng, labels={"shop": shop, "promo": promo})
    policy = Pool(1.0).fit(problem, log, noise=SeededNoise(0))
    known, new = policy.levels[:-1, :, :, 0].mean(axis=0), policy.levels[-1, :, :, 0]  # (promo, step)
    assert new == pytest.approx(known, rel=0.2)
    assert (new[1] > 1.4 * new[0]).all()
    outcomes = policy.outcomes
    assert outcomes is not None
    means = (outcomes.points[:, :, None] * outcomes.weights).sum(axis=-1)[..., 0]
    assert means[-1] == pytest.approx(means[:-1].mean(axis=0), rel=0.2)


@settings(max_examples=8, deadline=None)
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
