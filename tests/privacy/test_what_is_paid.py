"""No table of two neighbouring logs differs by more than its mechanism pays for: one property for all tables.

Then logs that use up all of it, counts row by row, the noise that is stated, and a planted bug for each.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrl import Backlog, LostSales, Pool, SeededNoise, Trajectories, Visits
from poolrl.audit.faults import Frozen
from poolrl.checks import IntArray
from poolrl.data import counts
from poolrl.data.cells import joint_cells, left_cells
from poolrl.data.counts import count_joint, sum_left, sum_together
from poolrl.geometry.bins import bin_edges, bin_of
from poolrl.geometry.resolution import JOINT_BANDS, LEFT_PARTS, TOGETHER_BANDS, TOGETHER_PARTS
from poolrl.pool import OnOutcomes
from poolrl.privacy import release, sensitivity
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.release import release_outcomes
from poolrl.problems.inventory import Inventory
from tests.helpers.neighbours import (
    Recorder,
    neighbours,
    plant_layout,
    scaled_neighbours,
    squared_change,
)
from tests.helpers.noisy import spoil_noise
from tests.helpers.own_problems import Wear
from tests.helpers.tables import a_labelled_shop, a_shop, every_level

Plant = pytest.MonkeyPatch
Pair = tuple[LostSales | Backlog, Trajectories, Trajectories]
COSTS = {"holding": 1.0, "shortage": 1.0}
NEIGHBOURS = {
    "units": neighbours(),
    "a scale with memory": scaled_neighbours(),
    "a scale by label": scaled_neighbours(labels_public=False),
    "a scale by public label": scaled_neighbours(labels_public=True),
    "labels": neighbours(labels_public=False),
    "public labels": neighbours(labels_public=True),
}
RHO = Fraction(7, 15)  # with which few variances are whole numbers
SIZES = [(2,), (2, 4), (1, 4, 16), every_level(2), every_level(64)]


def tables_of(problem: Any) -> list[str]:
    """The tables on top of the trees that such a problem has."""
    fits = {"dependence": problem.censored, "left_over": True, "together": problem.products > 1}
    return [name for name in sensitivity.ON_TOP if fits[name]]


def edges_of(problem: Any, seed: int | None) -> IntArray:
    """Any edges, or those in the middle."""
    shape = (*problem.labels.shape, problem.horizon, problem.products)
    if seed is None:
        return np.full(shape, TOGETHER_BANDS // 2)
    return np.random.default_rng(seed).integers(1, TOGETHER_BANDS, shape)


def paid_for(pair: Pair, sizes: tuple[int, ...] = (2, 4), seed: int | None = None) -> dict[str, Fraction]:
    """Release all tables of both logs: what each moves, of what is paid for. All that gets no noise is the same."""
    problem, first, second = pair
    names, recorders = tables_of(problem), (Recorder(), Recorder())
    one, two = (
        release_outcomes(
            log,
            problem,
            level_sizes=sizes,
            rho=RHO,
            noise=recorder,
            on_top=dict.fromkeys(names, RHO / 5),
            edges=lambda _: edges_of(problem, seed),
        )
        for log, recorder in zip((first, second), recorders, strict=True)
    )
    assert one.guarantee == two.guarantee
    assert len(one.guarantee.mechanisms) == 1 + len(names)
    trees, *tops = one.guarantee.mechanisms
    complete = one.unobserved is None
    levels = len(sizes) - (complete and not problem.censored and sizes[0] == 1)  # the root may be public
    moved = first.facts.max_per_unit if first.facts.has_units else 1 + first.facts.scale_memory
    assert trees.sensitivity_squared == 2 * problem.horizon * problem.products * levels * moved**2
    # The tables of each mechanism: all levels of the trees with the unobserved, and one each.
    of_trees = levels + (not complete)
    changes, shares = squared_change(*recorders), {}
    parts = [slice(0, of_trees), *(slice(at, at + 1) for at in range(of_trees, len(changes)))]
    for name, mechanism, part in zip(["trees", *names], (trees, *tops), parts, strict=True):
        assert mechanism.rho == (RHO if name == "trees" else RHO / 5)
        assert (one if name == "trees" else one.on_top[name]).variance == float(mechanism.variance)
        assert mechanism.cells == sum(table.size for table in recorders[0].tables[part])
        assert {*recorders[0].variances[part]} == {mechanism.sensitivity_squared / (2 * mechanism.rho)}
        shares[name] = Fraction(sum(changes[part])) / mechanism.sensitivity_squared
        assert shares[name] <= 1, name
    assert (first.slots, one.total) == (second.slots, two.total)
    if first.facts.labels_public:
        np.testing.assert_array_equal(one.totals, two.totals)
    else:
        assert one.totals is two.totals is None
    return shares


@pytest.mark.parametrize("kind", NEIGHBOURS)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), sizes=st.sampled_from(SIZES), seed=st.integers(0, 2**32))
def test_no_table_moves_by_more_than_was_paid_for(
    kind: str, data: st.DataObject, sizes: tuple[int, ...], seed: int
) -> None:
    """Units of different sizes, labels that change with the unit or stay, scales that have memory, any edges."""
    paid_for(data.draw(NEIGHBOURS[kind]), sizes, seed)


def ends(name: str, *, memory: int = 0, units: int = 0, labels: bool = False) -> Pair:
    """All that a unit and those that follow its scale can move in a table: from one end to the other."""
    many, more = 1 + memory + units, {"labels": {"store": ["a", "b"]}} if labels else {}
    problem = LostSales(horizon=2, products=2, demand_max=8.0, **COSTS, **more)
    shape = (many, 2, 2)
    zeros, full = np.zeros(shape), np.full(shape, 8.0)
    known: dict[str, Any] = {"scale": np.ones(shape), "scale_memory": memory} if memory else {}
    known |= {"unit": [0] * many, "max_per_unit": many} if units else {}
    levels, left = (full, full), (full, zeros)  # everything was left, and then nothing
    if name == "dependence":  # sold out at the lowest level, and at the highest
        levels, left = (zeros + 1.0, full), (zeros, zeros)
    elif labels and name == "left_over":
        left = (full, full)
    logs = []
    for level, rest, store in zip(levels, left, "ab", strict=True):
        named = {"labels": {"store": [store] * many}} if labels else {}
        logs.append(Trajectories(states=zeros, actions=level, next_states=rest, **known, **named))
    return problem, logs[0], logs[1]


@pytest.mark.parametrize("known", [{}, {"memory": 3}, {"units": 2}, {"labels": True}], ids=str)
@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("trees", 2 * 2 * 2 * 4),  # 2 H k L
        ("dependence", 2 * 2 * 2),  # 2 H k
        ("left_over", 2 * 2 * LEFT_PARTS**2),  # H k P², twice that with labels
        ("together", 2 * 2 * TOGETHER_PARTS**2),  # 2 H P²
    ],
)
def test_the_sensitivity_of_every_table_is_attained(name: str, moved: int, known: dict[str, Any]) -> None:
    """Not a loose bound: a unit that moves from one end to the other uses up all of it."""
    pair = ends(name, **known)
    assert paid_for(pair, (1, 2, 4, 8))[name] == 1
    per_unit = 1 + known.get("memory", 0) + known.get("units", 0)
    if name != "trees":
        layout = sensitivity.ON_TOP[name].layout(pair[0], per_unit=per_unit)
        sides = 2 if name == "left_over" and "labels" in known else 1
        assert layout.sensitivity_squared == sides * moved * per_unit**2


def test_the_sensitivity_of_a_memory_is_attained() -> None:
    """One week sells out; the three weeks that follow then sell ten multiples instead of two, all beyond the bound."""
    problem = LostSales(horizon=1, demand_max=8.0, **COSTS)

    def log(level: float, left: float, scale: float) -> Trajectories:
        rows = {"states": [0.0] * 4, "actions": [level, 4, 4, 4], "next_states": [left, 2, 2, 2]}
        arrays = {name: np.reshape(values, (4, 1, 1)) for name, values in rows.items()}
        return Trajectories(**arrays, scale=np.reshape([1.0, scale, scale, scale], (4, 1, 1)), scale_memory=3)

    assert paid_for((problem, log(4, 2, 1.0), log(8, 0, 0.2)), (1, 2, 8))["trees"] == 1  # 2 H k L (1 + m)²


@pytest.mark.parametrize("name", sensitivity.ON_TOP)
def test_a_table_that_is_paid_for_once_is_caught(name: str, monkeypatch: Plant) -> None:
    """A row leaves one cell or sum and arrives at another. In sums of what was left it does where labels change."""
    honest = sensitivity.ON_TOP[name].layout

    def one_side(problem: Any, *, per_unit: int) -> sensitivity.TableLayout:
        layout = honest(problem, per_unit=per_unit)
        return replace(layout, sensitivity_squared=layout.sensitivity_squared / 2)

    plant_layout(monkeypatch, name, one_side)
    with pytest.raises(AssertionError, match=name):
        paid_for(ends(name, labels=name == "left_over"))


@pytest.mark.parametrize("name", ["trees", *sensitivity.ON_TOP])
def test_a_memory_that_is_not_paid_for_is_caught(name: str, monkeypatch: Plant) -> None:
    monkeypatch.setattr(sensitivity, "moved_trajectories", lambda *, per_unit, **_: per_unit)
    with pytest.raises(AssertionError):
        paid_for(ends(name, memory=3))


def test_a_table_that_is_not_stated_is_caught(monkeypatch: Plant) -> None:
    """Released and not paid for: the guarantee names the trees alone."""
    honest = release._guarantee
    monkeypatch.setattr(release, "_guarantee", lambda *args: honest(*args[:4]))
    with pytest.raises(AssertionError):
        paid_for(ends("dependence"))


# What is counted.


@pytest.mark.parametrize(("kind", "gridded"), [(LostSales, True), (LostSales, False), (Backlog, False)])
def test_every_table_is_counted_row_by_row(kind: type[Inventory], gridded: bool) -> None:
    """Against plain loops: two products, a boundary beyond which rows show nothing, numbers on the edges of bands."""
    problem, log = a_shop(kind, gridded=gridded, trajectories=300)
    edges = 100 + edges_of(problem, 1) % 60
    joint = np.zeros((3, 2, JOINT_BANDS, 2, JOINT_BANDS), dtype=np.int64)
    left, pairs = np.zeros((3, 2), dtype=np.int64), np.zeros((3, 3), dtype=np.int64)
    for row, step in itertools.product(range(len(log)), range(3)):
        beyond = []
        for i in range(2):
            stock, level, rest = (float(part[row, step, i]) for part in (log.states, log.actions, log.next_states))
            bound = problem.demand_max[i]
            if max(level, stock) > problem.share[step, i] * bound * (1 + 1e-9):
                continue
            left[step, i] += math.floor(max(rest, 0.0) / bound * LEFT_PARTS + 0.5)
            cut = kind is LostSales and rest <= 1e-9 * bound
            bands = [int(bin_of(np.array(amount / bound), JOINT_BANDS)) for amount in (level, level - rest)]
            joint[step, i, bands[0], int(cut), bands[1]] += 1
            edge = bin_edges(TOGETHER_BANDS)[edges[step, i]] * bound
            if kind is Backlog or level >= edge:
                beyond.append(cut or level - rest >= edge)
        if len(beyond) == 2:
            pairs[step, 0 if all(beyond) else 1 if not any(beyond) else 2] += TOGETHER_PARTS
    np.testing.assert_array_equal(sum_left(log, problem), left)
    if kind is LostSales:
        np.testing.assert_array_equal(count_joint(log, problem, bands=JOINT_BANDS), joint)
    if not gridded:
        assert (pairs > 0).all()
        np.testing.assert_array_equal(sum_together(log, problem, edges=edges), pairs)


def test_every_row_of_the_trees_is_in_the_tables_on_top_too() -> None:
    """With a scale, labels and unusable rows: in each label cell, step and product as many as the trees have."""
    problem, log = a_labelled_shop()
    trees = log.outcome_leaves(problem, bins=16)
    trees = trees.reshape(*trees.shape[:-1], 2, 16).sum(axis=-1)
    joint = log.outcome_leaves(problem, bins=JOINT_BANDS, formula=joint_cells)
    kinds = joint.reshape(*joint.shape[:-1], JOINT_BANDS, 2, JOINT_BANDS).sum(axis=(-3, -1))
    np.testing.assert_array_equal(kinds, trees)
    parts = log.outcome_leaves(problem, bins=LEFT_PARTS + 1, formula=left_cells)
    np.testing.assert_array_equal(parts.sum(axis=-1), trees.sum(axis=-1))


def test_shares_of_pairs_are_rounded_down() -> None:
    """Five products, three beyond: 3 pairs beyond, 1 below, 6 mixed, of 10."""
    problem = LostSales(horizon=1, products=5, demand_max=16.0, **COSTS)
    full = np.full((1, 1, 5), 16.0)
    log = Trajectories(states=0 * full, actions=full, next_states=full - [[[9.0, 9.0, 9.0, 1.0, 1.0]]])
    edges = np.full((1, 5), TOGETHER_BANDS // 2)  # a quarter of the bound
    expected = [math.floor(n * TOGETHER_PARTS / 10) for n in (3, 1, 6)]
    assert sum_together(log, problem, edges=edges).tolist() == [expected]


def test_edges_are_chosen_from_released_trees() -> None:
    """Where what was released is the same, edges are, however different the logs are."""
    problem, first, second = ends("together")
    prepared = Pool(1.0, together=0.1).prepare(problem)
    chosen = [prepared.release(log, Frozen()).on_top["together"].edges for log in (first, second)]
    np.testing.assert_array_equal(*chosen)


def test_edges_that_are_chosen_from_the_log_are_caught(monkeypatch: Plant) -> None:
    honest = OnOutcomes.release

    def peeking(self: Any, log: Any, noise: Any) -> Any:
        middle = np.median(log.actions - log.next_states, axis=0) / self.problem.demand_max
        edges = np.clip((np.sqrt(middle) * TOGETHER_BANDS).astype(np.int64), 1, TOGETHER_BANDS - 1)
        object.__setattr__(self, "edges", lambda _: edges)
        return honest(self, log, noise)

    monkeypatch.setattr(OnOutcomes, "release", peeking)
    with pytest.raises(AssertionError):
        test_edges_are_chosen_from_released_trees()


# The noise.

# 130 steps and four products: 390 sums of pairs, 520 of what was left, and 66,560 cells of levels and outcomes.
WIDE = LostSales(horizon=130, products=4, demand_max=8.0, **COSTS)
SHAPES = {"dependence": (130, 4, JOINT_BANDS, 2, JOINT_BANDS), "left_over": (130, 4), "together": (130, 3)}


def test_tables_have_the_noise_that_is_stated() -> None:
    """The mean square of what was added to each table is what the guarantee states."""
    log = WIDE.simulate_log(np.full((3, 130, 4), 2.0), rng=np.random.default_rng(0))
    edges, shares = np.full((130, 4), 20), {}
    budgets: dict[str, Any] = {"level_sizes": (2,), "rho": 1.0, "on_top": dict.fromkeys(SHAPES, 0.05)}
    released = release_outcomes(log, WIDE, noise=SecureNoise(), edges=lambda _: edges, **budgets)
    for (name, table), mechanism in zip(released.on_top.items(), released.guarantee.mechanisms[1:], strict=True):
        exact = counts.ON_TOP[name](log, WIDE, edges)
        assert exact.shape == SHAPES[name]
        assert table.variance == float(mechanism.variance)
        shares[name] = float(np.square(table.counts - exact).mean()) / table.variance
    # The mean square of 390 normal numbers has a standard error of √(2/390) = 0.07, that of all cells one of 0.006.
    assert shares == {
        "dependence": pytest.approx(1.0, abs=0.03),
        "left_over": pytest.approx(1.0, abs=0.35),
        "together": pytest.approx(1.0, abs=0.35),
    }


@pytest.mark.parametrize("share", [0, Fraction(1, 2)], ids=["none", "half"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_table_with_too_little_noise_is_caught(name: str, share: Fraction, monkeypatch: Plant) -> None:
    spoil_noise(monkeypatch, lambda add, counts, v: add(counts, v * share if counts.shape == SHAPES[name] else v))
    with pytest.raises(AssertionError):
        test_tables_have_the_noise_that_is_stated()


# The budget.


def test_shares_add_up_to_rho() -> None:
    problem, log = a_shop(LostSales, gridded=True, trajectories=30)
    pool = Pool(0.3, dependence=0.25, left_over=0.1, together=0.1)
    paid = pool.fit(problem, log, noise=SeededNoise(0)).guarantee.mechanisms
    assert sum(each.rho for each in paid) == Fraction(3, 10)
    assert {each.name: each.rho / Fraction(3, 10) for each in paid[1:]} == {
        "levels and outcomes": Fraction(1, 4),
        "stock left over": Fraction(1, 10),
        "products that sell together": Fraction(1, 10),
    }


def test_what_cannot_be_asked_for() -> None:
    one, two = (LostSales(horizon=2, products=many, demand_max=8.0, **COSTS) for many in (1, 2))
    refused: list[tuple[dict[str, Any], Any, str]] = [
        ({"together": 0.1}, one, "together needs a problem with two coordinates or more"),
        ({"together": 0.1, "counts": Visits()}, two, "together needs outcome counts"),
        ({"left_over": 0.5, "together": 0.5}, two, "must leave a part of rho"),
    ]
    for asked, problem, words in refused:
        with pytest.raises(ValueError, match=words):
            Pool(1.0, **asked).prepare(problem)
    with pytest.raises(ValueError, match="left_over needs a problem of inventory, got Wear"):
        sensitivity.left_sums(Wear(2), per_unit=1)
    two.outcome_high = np.array([10.0, 0.0])  # a sum is counted in parts of the bound: parts of nothing
    with pytest.raises(ValueError, match="left_over needs positive bounds of outcomes"):
        sensitivity.left_sums(two, per_unit=1)


@pytest.mark.parametrize(
    ("on_top", "words"),
    [
        ({"left": 0.1}, r"^there is no table 'left'; known tables: dependence, left_over, together$"),
        ({"together": 0.1}, "together needs edges"),
    ],
)
def test_tables_that_cannot_be_counted_are_refused_before_anything_is_drawn(
    on_top: dict[str, float], words: str
) -> None:
    """A table that nobody knows would be neither paid for nor counted; trees alone would cost ρ for nothing."""
    problem, log, _ = ends("together")
    recorder = Recorder()
    with pytest.raises(ValueError, match=words):
        release_outcomes(log, problem, level_sizes=(2,), rho=1.0, noise=recorder, on_top=on_top)
    assert not recorder.tables


def test_what_was_left_is_estimated_without_bias() -> None:
    """Without noise it is the mean of the log, up to half a part of the bound."""
    problem, log = a_shop(LostSales, gridded=False)
    outcomes = Pool(math.inf, left_over=0.1).fit(problem.changed(boundary=1.0), log).outcomes
    assert outcomes is not None
    assert outcomes.left is not None
    half_a_part = problem.demand_max.max() / LEFT_PARTS / 4
    np.testing.assert_allclose(outcomes.left[0], log.next_states.mean(axis=0), atol=half_a_part)
    np.testing.assert_array_equal(outcomes.left[1], 0.0)
