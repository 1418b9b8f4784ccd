"""Days on which nothing is sold: too few to be seen in one shop, plain in all of them together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poolrl import LostSales, Pool, SeededNoise, rollout_cost
from poolrl.checks import FloatArray
from poolrl.geometry.bins import bin_edges
from poolrl.learning import cell_laws, priors
from poolrl.learning.cell_laws import explain
from poolrl.learning.estimation import cell_factors
from poolrl.learning.levels import costs_of_levels
from poolrl.learning.trees import Cells
from poolrl.privacy.sensitivity import every_level

SHOPS, STEPS, BINS, WEEKS, VARIANCE = 150, 3, 16, 60, 100.0


def noisy_trees(idle: FloatArray, *, cut: bool, seed: int) -> list[FloatArray]:
    """Trees of many shops with demand of one shape, idle with the given chance at each step."""
    rng = np.random.default_rng(seed)
    mean = rng.lognormal(math.log(0.25), 0.3, (SHOPS, 1, 1))
    demand = np.minimum(mean * rng.gamma(9.0, 1 / 9, (SHOPS, STEPS, WEEKS)), 1.0)
    demand *= rng.random(demand.shape) >= idle[:, None]
    orders = rng.random(demand.shape) if cut else np.full(demand.shape, np.inf)
    place = np.searchsorted(bin_edges(BINS), np.minimum(demand, orders), side="right").clip(1, BINS) - 1
    leaves = np.stack(
        [[np.bincount(place[s, h][seen], minlength=BINS) for seen in _kinds(demand, orders, s, h, cut)]
         for s in range(SHOPS) for h in range(STEPS)]
    ).astype(np.float64)  # fmt: skip
    exact = [leaves.reshape(*leaves.shape[:2], size, -1).sum(axis=-1) for size in every_level(BINS)[2:]]
    return [level + rng.normal(0.0, math.sqrt(VARIANCE), level.shape) for level in exact]


def _kinds(demand: FloatArray, orders: FloatArray, shop: int, step: int, cut: bool) -> list[FloatArray]:
    seen = demand[shop, step] <= orders[shop, step]
    return [seen, ~seen] if cut else [seen]


STEP_OF = np.tile(np.arange(STEPS), SHOPS)
ALWAYS = np.full(SHOPS * STEPS, float(WEEKS))


@pytest.mark.parametrize("cut", [False, True])
def test_idle_days_are_found_at_their_own_step(cut: bool) -> None:
    """A shop's own first leaf has 3 zeros under noise of deviation 10. All shops together have 450 under 122."""
    levels = noisy_trees(np.array([0.0, 0.05, 0.15]), cut=cut, seed=0)
    kwargs = {"steps": STEP_OF, "reach": np.ones(1)}
    cells = Cells(levels, VARIANCE, ALWAYS, np.zeros(len(ALWAYS), dtype=bool))
    laws = explain(cells, cell_factors((SHOPS, STEPS, 1)), **kwargs)
    zero = laws.outcomes.reshape(SHOPS, STEPS, -1)[:, :, 0].mean(axis=0)
    error = math.sqrt(VARIANCE * SHOPS) / (SHOPS * WEEKS)
    assert zero == pytest.approx([0.0, 0.05, 0.15], abs=4 * error)
    assert laws.outcomes.sum(axis=-1) == pytest.approx(1.0)


@pytest.mark.parametrize("cut", [False, True])
def test_without_idle_days_nothing_changes(cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws are those of cells that are never asked for idle days, in every bit."""
    levels = noisy_trees(np.zeros(STEPS), cut=cut, seed=1)
    given = Cells(levels, VARIANCE, ALWAYS, np.zeros(len(ALWAYS), dtype=bool)), cell_factors((SHOPS, STEPS, 1))
    found = explain(*given, steps=STEP_OF, reach=np.ones(1))
    monkeypatch.setattr(priors, "NO_ACCIDENT", math.inf)
    plain = explain(*given, steps=STEP_OF, reach=np.ones(1))
    assert np.array_equal(found.outcomes, plain.outcomes)


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


def test_holidays_are_part_of_the_predicted_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy per shop on 66 weeks. Bread that nobody can buy on a holiday is left over, and that costs."""
    shops, weeks = 120, 66
    rng = np.random.default_rng(3)
    holding, shortage = np.array([[0.4]] * 3), np.array([[0.4]] * 3)
    problem = LostSales(horizon=3, holding=holding, shortage=shortage, demand_max=100.0, labels={"shop": range(shops)})
    usual = np.tile(rng.uniform(25.0, 50.0, shops), weeks)

    def drawn(size: FloatArray) -> FloatArray:
        demand = np.minimum(size[:, None, None] * rng.gamma(25.0, 1 / 25, (len(size), 3, 1)), 100.0)
        return demand * (rng.random(demand.shape) >= 0.06)

    given = {"shop": np.tile(np.arange(shops), weeks)}
    log = problem.simulate_log(drawn(usual), rng=rng, labels=given)
    many = np.tile(usual[:shops], 400)
    later, labels = drawn(many), {"shop": np.tile(np.arange(shops), 400)}

    def off() -> float:
        policy = Pool(rho=1.0).fit(problem, log, noise=SeededNoise(3))
        assert policy.outcomes is not None
        predicted = float(costs_of_levels(problem, policy.outcomes, policy.levels).mean())
        return predicted / rollout_cost(problem, policy, later, labels=labels) - 1

    assert abs(off()) < 0.08
    monkeypatch.setattr(priors, "NO_ACCIDENT", math.inf)  # planted: no step is ever idle
    assert off() < -0.12
