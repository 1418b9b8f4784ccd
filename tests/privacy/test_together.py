"""Products that sell much or little together: which rows make pairs, how far one unit moves them, what is learned."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import ibis
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import gamma, multivariate_normal

from poolrl import Backlog, LostSales, Outcomes, Pool, PrivateModel, SeededNoise, Table, Trajectories, Visits
from poolrl.audit.faults import Frozen
from poolrl.checks import FloatArray, IntArray
from poolrl.data.counts import sum_together
from poolrl.geometry.bins import bin_edges
from poolrl.geometry.resolution import TOGETHER_BANDS, TOGETHER_PARTS
from poolrl.learning import together
from poolrl.learning.together import both_beyond, drawn_together, expected_error, quasi_together
from poolrl.pool import OnOutcomes
from poolrl.privacy import sensitivity
from poolrl.privacy.noise import secure
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.release import release_outcomes
from poolrl.problems.inventory import Inventory
from tests.helpers.neighbours import (
    Pair,
    Recorder,
    labelled_neighbours,
    neighbours,
    plant_layout,
    scaled_neighbours,
    squared_change,
)
from tests.helpers.tables import a_labelled_shop, a_shop, assert_same_crowds, columns

Plant = pytest.MonkeyPatch


def drawn_edges(problem: Inventory, seed: int) -> IntArray:
    """Any edges."""
    shape = (*problem.labels.shape, problem.horizon, problem.products)
    return np.random.default_rng(seed).integers(1, TOGETHER_BANDS, shape)


@pytest.mark.parametrize("kind", [LostSales, Backlog])
def test_pairs_row_by_row(kind: type[Inventory]) -> None:
    """Against a count by hand: who shows a side of the edge, and which pairs that makes."""
    problem, log = a_shop(kind, gridded=False, trajectories=300)
    edges = 100 + drawn_edges(problem, 1) % 60
    expected = np.zeros((3, 3), dtype=np.int64)
    for row, step in itertools.product(range(len(log)), range(3)):
        found = []
        for i in range(2):
            level, left = log.actions[row, step, i], log.next_states[row, step, i]
            limit = problem.share[step, i] * problem.demand_max[i] * (1 + 1e-9)
            edge = bin_edges(TOGETHER_BANDS)[edges[step, i]] * problem.demand_max[i]
            cut = kind is LostSales and left == 0
            if max(level, log.states[row, step, i]) <= limit and (kind is Backlog or level >= edge):
                found.append(cut or level - left >= edge)
        if len(found) == 2:
            expected[step, 0 if all(found) else 1 if not any(found) else 2] += TOGETHER_PARTS
    assert (expected > 0).all()
    np.testing.assert_array_equal(sum_together(log, problem, edges=edges), expected)


def test_an_engine_counts_pairs_like_arrays() -> None:
    """Also where labels, scales and boundaries make rows unusable."""
    problem, log = a_shop(LostSales, gridded=True)
    assert_same_crowds(Table(ibis.memtable(log.to_arrow()), **columns(2)), log, problem)
    labelled, many = a_labelled_shop()
    names = columns(2, scale=["scale_0", "scale_1"], labels=["store", "promo"])
    assert_same_crowds(Table(ibis.memtable(many.to_arrow()), **names), many, labelled)
    # Where nothing is cut off, a row shows its side by itself, unless its scale cannot be used.
    waits = Backlog(horizon=2, products=2, holding=1.0, shortage=1.0, demand_max=4.0)
    parts = {name: getattr(many, name) for name in ("states", "actions", "next_states", "scale")}
    scaled = Trajectories(**parts)
    table = Table(ibis.memtable(scaled.to_arrow()), **columns(2, scale=["scale_0", "scale_1"]))
    assert_same_crowds(table, scaled, waits)


def test_shares_of_pairs_are_rounded_down() -> None:
    """Five products, three beyond: 3 pairs beyond, 1 below, 6 mixed, of 10."""
    problem = LostSales(horizon=1, products=5, holding=1.0, shortage=1.0, demand_max=16.0)
    full = np.full((1, 1, 5), 16.0)
    sold = np.array([[[9.0, 9.0, 9.0, 1.0, 1.0]]])
    log = Trajectories(states=np.zeros((1, 1, 5)), actions=full, next_states=full - sold)
    edges = np.full((1, 5), TOGETHER_BANDS // 2)  # a quarter of the bound
    expected = [math.floor(n * TOGETHER_PARTS / 10) for n in (3, 1, 6)]
    assert sum_together(log, problem, edges=edges).tolist() == [expected]


def paid_for(problem: Any, first: Trajectories, second: Trajectories, seed: int = 0) -> None:
    """The sums of two neighbours differ by no more than their mechanism pays for, at any edges."""
    recorders, edges = (Recorder(), Recorder()), drawn_edges(problem, seed)
    budgets: Any = {"rho": Fraction(1, 2), "on_top": {"together": Fraction(1, 10)}}
    for log, recorder in zip((first, second), recorders, strict=True):
        released = release_outcomes(log, problem, level_sizes=(2, 4), noise=recorder, edges=lambda _: edges, **budgets)
    trees, pairs = released.guarantee.mechanisms
    assert (trees.rho, pairs.rho) == (Fraction(1, 2), Fraction(1, 10))
    assert pairs.cells == recorders[0].tables[-1].size == 3 * problem.horizon
    assert recorders[0].variances[-1] == pairs.variance == pairs.sensitivity_squared / (2 * pairs.rho)
    assert squared_change(*recorders)[-1] <= pairs.sensitivity_squared


def paid_at_some_edges(problem: Any, first: Trajectories, second: Trajectories) -> None:
    for seed in range(20):
        paid_for(problem, first, second, seed)


KINDS = [neighbours(), scaled_neighbours(), scaled_neighbours(labels_public=False)]
KINDS += [labelled_neighbours(labels_public=public) for public in (False, True)]


@settings(max_examples=150, deadline=None)
@given(st.one_of(KINDS), st.integers(0, 2**32))
def test_sums_of_pairs_never_change_by_more_than_was_paid_for(pair: Pair, seed: int) -> None:
    assume(pair[0].products > 1)
    paid_for(*pair, seed=seed)


def moves(memory: int = 0) -> tuple[LostSales, Trajectories, Trajectories]:
    """All that a trajectory can move: two products sell everything, and then nothing."""
    problem = LostSales(horizon=2, products=2, holding=1.0, shortage=1.0, demand_max=8.0)
    shape = (1 + memory, 2, 2)
    zeros, full = np.zeros(shape), np.full(shape, 8.0)
    more: dict[str, Any] = {"scale": np.ones(shape), "scale_memory": memory} if memory else {}
    logs = [Trajectories(states=zeros, actions=full, next_states=left, **more) for left in (zeros, full)]
    return problem, logs[0], logs[1]


@pytest.mark.parametrize("memory", [0, 3])
def test_the_sensitivity_is_attained(memory: int) -> None:
    problem, first, second = moves(memory)
    edges = np.full((2, 2), TOGETHER_BANDS // 2)
    change = sum_together(second, problem, edges=edges) - sum_together(first, problem, edges=edges)
    layout = sensitivity.pair_sums(problem, per_unit=1 + memory)
    assert np.square(change).sum() == layout.sensitivity_squared == 2 * 2 * ((1 + memory) * TOGETHER_PARTS) ** 2


def test_pairs_that_are_paid_for_once_are_caught(monkeypatch: Plant) -> None:
    """A row leaves one sum and arrives at another."""
    honest = sensitivity.pair_sums

    def one_side(problem: Any, *, per_unit: int) -> sensitivity.TableLayout:
        layout = honest(problem, per_unit=per_unit)
        return sensitivity.TableLayout(layout.name, layout.cells, layout.sensitivity_squared / 2)

    plant_layout(monkeypatch, "together", one_side)
    with pytest.raises(AssertionError):
        paid_at_some_edges(*moves())


def test_a_memory_that_is_not_paid_for_is_caught(monkeypatch: Plant) -> None:
    monkeypatch.setattr(sensitivity, "moved_trajectories", lambda *, per_unit, **_: per_unit)
    with pytest.raises(AssertionError):
        paid_at_some_edges(*moves(memory=3))


def chosen_from_released_trees() -> None:
    """Where what was released is the same, edges are, however different the logs are."""
    problem, first, second = moves()
    prepared = Pool(1.0, together=0.1).prepare(problem)
    chosen = [prepared.release(log, Frozen()).on_top["together"].edges for log in (first, second)]
    np.testing.assert_array_equal(*chosen)


def test_edges_are_chosen_from_released_trees() -> None:
    chosen_from_released_trees()


def test_edges_that_are_chosen_from_the_log_are_caught(monkeypatch: Plant) -> None:
    honest = OnOutcomes.release

    def peeking(self: Any, log: Any, noise: Any) -> Any:
        middle = np.median(log.actions - log.next_states, axis=0) / self.problem.demand_max
        edges = np.clip((np.sqrt(middle) * TOGETHER_BANDS).astype(np.int64), 1, TOGETHER_BANDS - 1)
        object.__setattr__(self, "edges", lambda _: edges)
        return honest(self, log, noise)

    monkeypatch.setattr(OnOutcomes, "release", peeking)
    with pytest.raises(AssertionError):
        chosen_from_released_trees()


def noise_of_pairs() -> float:
    """The mean square of what was added, divided by what the guarantee states."""
    problem = LostSales(horizon=130, products=2, holding=1.0, shortage=1.0, demand_max=8.0)
    log = problem.simulate_log(np.full((3, 130, 2), 2.0), rng=np.random.default_rng(0))
    edges = np.full((130, 2), 20)
    released = release_outcomes(
        log, problem, level_sizes=(2,), rho=1.0, noise=SecureNoise(), on_top={"together": 1.0}, edges=lambda _: edges
    )
    pairs = released.on_top["together"]
    assert pairs.variance == float(released.guarantee.mechanisms[1].variance)
    return float(np.square(pairs.counts - sum_together(log, problem, edges=edges)).mean()) / pairs.variance


def test_pairs_have_the_noise_that_is_stated() -> None:
    # 390 sums: the mean square of as many normal numbers has a standard error of √(2/390) = 0.07.
    assert noise_of_pairs() == pytest.approx(1.0, abs=0.35)


def test_pairs_with_too_little_noise_are_caught(monkeypatch: Plant) -> None:
    honest = secure._SecureSampler.add

    def add(self: Any, counts: IntArray, variance: Fraction) -> IntArray:
        return honest(self, counts, variance / 2 if counts.shape == (130, 3) else variance)

    monkeypatch.setattr(secure._SecureSampler, "add", add)
    with pytest.raises(AssertionError):
        test_pairs_have_the_noise_that_is_stated()


def test_noise_of_all_tables_comes_from_one_stream() -> None:
    """A stream that began anew would give pairs the noise of the trees, where there is a seed."""

    class Once(SeededNoise):
        begun = 0

        def begin(self) -> Any:
            self.begun += 1
            return super().begin()

    problem, log = a_shop(LostSales, gridded=True, trajectories=30)
    noise = Once(3)
    Pool(1.0, together=0.1).fit(problem, log, noise=noise)
    assert noise.begun == 1


def test_shares_add_up_to_rho() -> None:
    problem, log = a_shop(LostSales, gridded=True, trajectories=30)
    policy = Pool(0.3, dependence=0.25, left_over=0.1, together=0.1).fit(problem, log, noise=SeededNoise(0))
    paid = [each.rho for each in policy.guarantee.mechanisms]
    assert sum(paid) == Fraction(3, 10)
    assert paid[1:] == [Fraction(3, 40), Fraction(3, 100), Fraction(3, 100)]
    assert policy.guarantee.mechanisms[-1].name == "products that sell together"


def test_what_cannot_be_asked_for() -> None:
    one = LostSales(horizon=2, holding=1.0, shortage=1.0, demand_max=8.0)
    two = LostSales(horizon=2, products=2, holding=1.0, shortage=1.0, demand_max=8.0)
    with pytest.raises(ValueError, match="together needs a problem with two coordinates or more"):
        Pool(1.0, together=0.1).prepare(one)
    with pytest.raises(ValueError, match="together needs outcome counts"):
        Pool(1.0, Visits(), together=0.1).prepare(two)
    with pytest.raises(ValueError, match="must leave a part of rho"):
        Pool(1.0, left_over=0.5, together=0.5)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_pairs_beyond_agree_with_the_normal_law_of_two(share: float) -> None:
    tried, edge = np.array([0.0, 0.3, 0.6, 0.9]), ndtri(share)
    oracle = [multivariate_normal(cov=[[1, r], [r, 1]]).cdf([edge, edge]) for r in tried]
    np.testing.assert_allclose(both_beyond(share, tried), oracle, atol=2e-3)


def moving_together(
    correlation: float, *, weeks: int = 1500, products: int = 4, seed: int = 0, follow: float = 0.0
) -> tuple[LostSales, Trajectories]:
    """Gamma demand with a common factor, and levels that rise and fall together, `follow` from week to week."""
    rng = np.random.default_rng(seed)
    shape = (weeks, 4, products)
    sizes = np.geomspace(4.0, 40.0, products)
    demand = gamma(3.0, scale=sizes / 3).ppf(drawn_together(rng, shape, correlation))
    bound = 6 * sizes
    level = np.minimum(
        sizes * rng.uniform(0.5, 2.0, shape) * np.exp(follow * rng.standard_normal((weeks, 1, 1))), bound
    )
    problem = LostSales(horizon=4, products=products, holding=0.2, shortage=1.0, demand_max=bound)
    left = np.maximum(level - demand, 0.0)
    return problem, Trajectories(states=np.zeros(shape), actions=level, next_states=left)


def learned(problem: LostSales, log: Trajectories, rho: float = 1.0, seed: int = 5) -> PrivateModel:
    return Pool(rho, Outcomes(), together=0.1).model(problem, log, noise=SeededNoise(seed))


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.8])
def test_the_correlation_is_found_under_censoring_and_noise(correlation: float) -> None:
    model = learned(*moving_together(correlation))
    said = model.report.together
    assert abs(said.measured - correlation) <= 4 * said.error + 0.01
    assert model.together < said.measured or said.measured == 0  # drawn to zero by its error
    assert said.error < 0.05


def test_levels_that_rise_together_are_not_taken_for_demand_that_does() -> None:
    said = learned(*moving_together(0.0, follow=0.6)).report.together
    assert said.measured <= 3 * said.error


def test_under_much_noise_nothing_is_said_to_move_together() -> None:
    model = learned(*moving_together(0.5, weeks=12), rho=0.01)
    assert (model.together, model.report.together.error) == (0.0, 1.0)


def test_the_error_is_what_seeds_show_and_what_public_facts_foretell() -> None:
    problem, log = moving_together(0.3, weeks=400)
    found = [learned(problem, log, rho=0.3, seed=seed).report.together for seed in range(16)]
    spread = float(np.std([each.measured for each in found]))
    noise_alone = math.sqrt(found[0].error ** 2 - learned(problem, log, math.inf).report.together.error ** 2)
    assert 0.6 * noise_alone < spread < 1.5 * noise_alone
    foretold = expected_error(steps=4, products=4, slots=400, moved=1, rho=0.03)
    assert 0.5 < found[0].error / foretold < 2.0


def test_drawn_demand_moves_together_and_keeps_its_laws() -> None:
    model = learned(*moving_together(0.6))
    assert 0.5 < model.together < 0.7
    paths = model.sample(20_000, rng=np.random.default_rng(1))
    ranks = ndtri((paths[:, 0].argsort(axis=0).argsort(axis=0) + 0.5) / len(paths))
    assert np.corrcoef(ranks.T)[0, 1] == pytest.approx(model.together, abs=0.03)
    means = (model.outcomes.weights * model.outcomes.points[None]).sum(axis=-1)
    np.testing.assert_allclose(paths.mean(axis=0), means, rtol=0.03)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_even_draws_have_the_same_law(correlation: float) -> None:
    even: FloatArray = quasi_together(3, 4096, correlation)
    np.testing.assert_allclose(np.quantile(even, [0.1, 0.5, 0.9], axis=0).T, [[0.1, 0.5, 0.9]] * 3, atol=0.01)
    assert np.corrcoef(ndtri(np.clip(even, 1e-9, 1 - 1e-9)).T)[0, 1] == pytest.approx(correlation, abs=0.02)
    both = float((ndtr(ndtri(even)) > 0.5).all(axis=1).mean())
    assert both == pytest.approx(0.125 if correlation == 0 else 0.25, abs=0.01)  # Sheppard: 1/8 + 3 asin(r) / 4π


def test_the_least_side_is_public() -> None:
    """Edges lie inside the law, where both sides are seen."""
    problem, log = moving_together(0.2, weeks=300)
    model = learned(problem, log, math.inf)
    edges = together.choose_edges(problem, model.outcomes)
    below = bin_edges(TOGETHER_BANDS)[edges] * problem.demand_max
    demand = gamma(3.0, scale=np.geomspace(4.0, 40.0, 4) / 3).cdf(below)
    assert ((demand > 0.1) & (demand < 0.9)).all()


def test_pairs_without_edges_are_refused_before_anything_is_drawn() -> None:
    """A release of trees alone would cost ρ for a table that nobody gets."""
    problem = LostSales(horizon=2, products=2, holding=1.0, shortage=4.0, demand_max=9.0)
    log = problem.simulate_log(np.full((5, 2, 2), 3.0), rng=np.random.default_rng(0))
    recorder = Recorder()
    budgets: Any = {"rho": Fraction(9, 10), "on_top": {"together": Fraction(1, 10)}}
    with pytest.raises(ValueError, match="together needs edges"):
        release_outcomes(log, problem, level_sizes=(2, 4), noise=recorder, **budgets)
    assert not recorder.tables
