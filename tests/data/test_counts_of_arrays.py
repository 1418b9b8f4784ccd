"""Counts of arrays against counts of one row at a time: labels, scales, bounds of their own, blocks and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrl import Backlog, Grid, LostSales, Trajectories, Zones
from poolrl.data import trajectories
from poolrl.data.cells import joint_cells, outcome_cells, sees_everything
from poolrl.data.counts import count_outcomes, count_visits
from poolrl.data.row_rules import PARTS
from poolrl.geometry.bins import bin_of
from poolrl.privacy.sensitivity import every_level
from tests.helpers.own_problems import OrderQuantity, PostedPrice, Wear, wear_log
from tests.helpers.tables import a_labelled_shop, a_shop

BINS = 8


def by_rows(problem: LostSales, log: Trajectories, *, joint: bool) -> Any:
    """Leaves of lost sales in multiples of a scale and of a label cell's bound, by the documented rules."""
    size = BINS * 2 * BINS if joint else 2 * BINS
    found = np.zeros((*problem.labels.shape, 2, 2, size), dtype=np.int64)
    shares = problem.bound_share.reshape(*problem.labels.shape, 2)
    stores, promos = log.labels["store"], log.labels["promo"]
    for n in range(len(log)):
        for h in range(2):
            if stores[n] not in (1.0, 2.0, 7.0) or promos[n, h] not in ("no", "it's on"):
                continue
            cell = (1.0, 2.0, 7.0).index(stores[n]), ("no", "it's on").index(promos[n, h])
            for i in range(2):
                scale = log.scale[n, h, i]  # type: ignore[index]
                if not 1e-50 <= scale * shares[cell][i] <= 1e50:
                    continue
                stock, order, left = (float(getattr(log, part)[n, h, i] / (scale * shares[cell][i])) for part in PARTS)
                # More than can be left, less than nothing sold, or an order below the stock.
                slack = 1e-9 * problem.outcome_high[i]
                if order < stock - slack or left > order + slack or min(stock, order, left) < -slack:
                    continue
                top = float(problem.outcome_high[i])
                sold = order - left
                cut = left <= 1e-9 * top or sold >= top
                leaf = int(bin_of(np.array(sold / top), BINS)) + BINS * 0
                if joint:
                    level = int(bin_of(np.array(order / top), BINS))
                    place = level * 2 * BINS + BINS * cut + min(leaf, level)
                else:
                    place = leaf + BINS * cut
                found[(*cell, h, i, place)] += 1
    return found


@pytest.mark.parametrize("joint", [False, True])
def test_multiples_in_label_cells_row_by_row(joint: bool) -> None:
    problem, log = a_labelled_shop(trajectories=250)
    expected = by_rows(problem, log, joint=joint)
    assert expected.sum() > 100
    found = (
        log.outcome_leaves(problem, bins=BINS, formula=joint_cells) if joint else log.outcome_leaves(problem, bins=BINS)
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("fewest", [1, 10**9])
@pytest.mark.parametrize("numbers", [1, 2, 7, 64])
def test_blocks_change_nothing(numbers: int, fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of two products, in blocks of one row, of three, and of all; by one thread and by several."""
    problem, log = a_labelled_shop(trajectories=41)
    plain, other = a_shop(LostSales, gridded=True, trajectories=41)
    expected = log.outcome_leaves(problem, bins=2), other.outcome_leaves(plain, bins=2)
    monkeypatch.setattr(trajectories, "BLOCK_NUMBERS", numbers)
    monkeypatch.setattr(trajectories, "FEWEST_BLOCKS", fewest)
    for mine, theirs in zip(
        (log.outcome_leaves(problem, bins=2), other.outcome_leaves(plain, bins=2)), expected, strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
    assert expected[1].sum() > 100
    other.check(plain)
    bad = {name: getattr(other, name).copy() for name in PARTS}
    bad["next_states"][40, 2, 1] = 99.0
    with pytest.raises(ValueError, match="next_states must lie within the public bounds"):
        Trajectories(**bad).check(plain)


def test_threads_add_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that add to the same counts at once would lose rows, now and then."""
    held: list[bool] = []

    class Watched:
        """A lock that tells when it is held."""

        def __enter__(self) -> None:
            held.append(True)

        def __exit__(self, *error: object) -> None:
            held.append(False)

    problem, log = a_shop(LostSales, gridded=False, trajectories=40)
    expected = log.outcome_leaves(problem, bins=4)
    monkeypatch.setattr(trajectories, "BLOCK_NUMBERS", 1)
    monkeypatch.setattr(trajectories, "Lock", Watched)
    np.testing.assert_array_equal(log.outcome_leaves(problem, bins=4), expected)
    blocks = -(-40 // max(1, 2 * 2 * 4 // 2))  # as many numbers at once as there are counts of a step
    assert held == [True, False] * (blocks * problem.horizon)


def test_clipping_keeps_the_bits_of_what_fits() -> None:
    """A third of an amount, times three, may be another number, and fall into the next bin."""
    problem = LostSales(horizon=1, holding=1.0, shortage=1.0, demand_max=4.0)
    rng = np.random.default_rng(0)
    order = rng.uniform(0.0, 10.0, (400, 1, 1))
    log = Trajectories(states=0 * order, actions=order, next_states=order / 2, scale=np.full_like(order, 3.0))
    assert (order / 3.0 * 3.0 != order).any()
    np.testing.assert_array_equal(log.clipped(problem).actions, order)


def test_where_prices_are_counted() -> None:
    """Feedback on the higher side: bins count from the top, and a value below the price is cut off at the price."""
    problem = PostedPrice(2, lowest_price=10.0)
    state = np.zeros((5, 1))
    price = np.array([[20.0], [20.0], [0.0], [50.0], [5.0]])
    after = np.array([[30.0], [0.0], [0.0], [50.0], [7.0]])
    cell, observed = outcome_cells(problem, 0, state, price, after, bins=4, relative=False)
    seen = np.array([30.0, 20.0, 0.0, 50.0, 7.0])
    expected = 3 - bin_of(seen / 50, 4) + 4 * np.array([0, 1, 1, 0, 0])
    assert cell.ravel().tolist() == expected.tolist()
    assert observed.ravel().tolist() == [True, True, False, True, False]
    # In multiples, what reaches the far end is cut off there: here the lower one.
    cell, _ = outcome_cells(problem, 0, state, price, after, bins=4, relative=True)
    assert cell.ravel().tolist() == expected.tolist()
    far = outcome_cells(problem, 0, state[:1], price[:1], -after[:1] * 0 + 1e-300, bins=4, relative=True)[0]
    assert far.item() == 3


def test_bins_lie_between_the_bounds_of_the_outcome() -> None:
    """Values from 10 to 50: 30 is in the middle, whatever the bounds of prices are."""
    problem = PostedPrice(1)
    vars(problem)["outcome_low"] = np.full(1, 10.0)
    value = np.array([[10.0], [20.0], [30.0], [49.0]])
    for relative in (False, True):
        cell, _ = outcome_cells(problem, 0, 0 * value, 0 * value + 5, value, bins=4, relative=relative)
        expected = 3 - bin_of((value.ravel() - 10) / 40, 4)
        # In multiples the least value is where it is cut off.
        assert cell.ravel().tolist() == (expected + [4 * relative, 0, 0, 0]).tolist()


def test_where_levels_and_sales_are_counted() -> None:
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=16.0)
    state = np.zeros((6, 1))
    order = np.array([[16.0], [9.0], [9.0], [4.0], [4.0], [20.0]])
    left = np.array([[16.0], [0.0], [5.0], [0.0], [3.0], [0.0]])
    leaf = bin_of((order - left) / 16, 4).ravel()
    level = bin_of(order / 16, 4).ravel()
    cut = (left == 0).ravel()
    joint, observed = joint_cells(problem, 0, state, order, left, bins=4, relative=False)
    assert joint.ravel().tolist() == (level * 8 + 4 * cut + np.minimum(leaf, level)).tolist()
    assert observed.all()
    cell, _ = outcome_cells(problem, 0, state, order, left, bins=4, relative=False)
    assert cell.ravel().tolist() == (leaf + 4 * cut).tolist()
    # 20 − 3 = 17 sold of at most 16: in multiples that is cut off at 16.
    for relative in (False, True):
        cell, _ = outcome_cells(problem, 0, state[5:], order[5:], left[5:] + 3, bins=4, relative=relative)
        assert cell.item() == 3 + 4 * relative


class Sees(Backlog):
    """A rule of its own."""

    def seen_coordinates(self, step: int, state: Any, action: Any) -> Any:
        return action > 1


def test_who_sees_everything() -> None:
    facts: dict[str, Any] = {"horizon": 1, "holding": 1, "shortage": 1, "demand_max": 8.0}
    assert sees_everything(Backlog(**facts))
    assert sees_everything(LostSales(**facts))
    assert not sees_everything(LostSales(**facts, boundary=0.5))
    assert not sees_everything(Sees(**facts))
    assert sees_everything(OrderQuantity(1, 1, 0.1, 0.1, 8.0))
    x = np.zeros((4, 1, 1))
    log = Trajectories(states=x, actions=x + np.array([0, 1, 2, 3]).reshape(4, 1, 1), next_states=x)
    assert log.outcome_leaves(Sees(**facts), bins=2).sum() == 2
    counts = count_outcomes(log, Sees(**facts), level_sizes=every_level(2))
    assert counts.unobserved.tolist() == [[2]]
    assert [level.sum() for level in counts.levels] == [2, 2]


@pytest.mark.parametrize("values", [Zones(5), Grid(4)])
def test_visits_one_row_at_a_time(values: Any) -> None:
    problem = Wear(2)
    log, partition = wear_log(problem, 60), values.partition(problem)
    counts = count_visits(log, partition)
    expected = np.zeros((2, partition.pair_count, partition.state_count), dtype=np.int64)
    for step in range(2):
        for n in range(60):
            one = (getattr(log, name)[n : n + 1, step] for name in PARTS)
            state, action, after = one
            node = int(partition.pair_index(step, state, action)[0])
            if node >= 0:
                expected[step, node, int(partition.state_index(after)[0])] += 1
    np.testing.assert_array_equal(counts.pairs, expected.sum(axis=-1))
    for step in range(2):
        np.testing.assert_array_equal(counts.moves[step].toarray(), expected[step])
        np.testing.assert_array_equal(counts.transitions(step, np.array([0, 1])), expected[step][:2])


def test_what_a_log_keeps() -> None:
    """Of the first two trajectories of each unit everything, in memory and as a table."""
    rng = np.random.default_rng(0)
    owner = np.array([5, 3, 5, 5, 3, 9])
    parts = {name: rng.uniform(1, 2, (6, 2, 1)) for name in PARTS}
    scale, labels = rng.uniform(1, 2, (6, 2, 1)), {"a": np.arange(6.0), "b": np.arange(12.0).reshape(6, 2)}
    log = Trajectories(**parts, unit=owner, max_per_unit=2, scale=scale, labels=labels, labels_public=True)
    kept = [0, 1, 2, 4, 5]
    for name in PARTS:
        np.testing.assert_array_equal(getattr(log, name), parts[name][kept])
        assert not getattr(log, name).flags.writeable
    np.testing.assert_array_equal(log.scale, scale[kept])
    assert log.labels["a"].tolist() == [0, 1, 2, 4, 5]
    assert log.labels["b"].tolist() == labels["b"][kept].tolist()
    assert log.owner.tolist() == [1, 0, 1, 0, 2]
    assert (len(log), log.units, log.slots, log.facts.max_per_unit, log.facts.has_units) == (5, 3, 6, 2, True)
    assert (log.horizon, log.facts.scale_memory, log.facts.has_scale, log.facts.labels_public) == (2, 0, True, True)
    assert (log.facts.label_names, log.facts.step_labels, log.is_full) == (("a", "b"), ("b",), False)
    table = log.to_arrow().to_pydict()
    assert table["unit"] == [1, 1, 0, 0, 1, 1, 0, 0, 2, 2]
    assert table["scale_0"] == scale[kept].ravel().tolist()
    assert table["b"] == labels["b"][kept].ravel().tolist()
    alone = Trajectories(**parts)
    assert (len(alone), alone.units, alone.slots, alone.facts.has_units, alone.is_full) == (6, 6, 6, False, True)
    assert alone.owner.tolist() == list(range(6))
    assert "unit" not in alone.to_arrow().column_names
    assert not Trajectories(**parts, scale=scale).is_full
    assert not Trajectories(**parts, labels=labels).is_full
    assert not Trajectories(**parts, unit=owner, max_per_unit=2).is_full
    assert Trajectories(**parts, unit=owner).is_full
    assert Trajectories(**parts, scale=scale, scale_memory=3).facts.scale_memory == 3


def test_totals_of_labels_by_hand() -> None:
    problem = LostSales(horizon=2, holding=1, shortage=1, demand_max=8.0, labels={"a": [1, 2], "b": ["x", "y", "z"]})
    x = np.zeros((4, 2, 1))
    a, b = [1, 2, 2, 3], [["x", "y"], ["z", "z"], ["z", "?"], ["x", "x"]]
    log = Trajectories(states=x, actions=x, next_states=x, labels={"a": a, "b": b}, labels_public=True)
    expected = np.zeros((2, 3, 2), dtype=int)
    expected[0, 0, 0] = expected[0, 1, 1] = expected[1, 2, 1] = 1
    expected[1, 2, 0] = 2
    assert log.label_totals(problem).tolist() == expected.tolist()


@pytest.mark.parametrize("public", [False, True])
def test_every_slot_is_somewhere(public: bool) -> None:
    """Seen, cut off or unobserved: together the slots of each label cell, or of all where labels are protected."""
    problem, log = a_labelled_shop(trajectories=90)
    log = Trajectories(**log._arguments() | {"labels_public": public})
    counts = count_outcomes(log, problem, level_sizes=(1, 2, 8))
    for level, size in zip(counts.levels, (1, 2, 8), strict=True):
        assert level.shape == (3, 2, 2, 2, 2, size)
        there = level.sum(axis=(-1, -2))
        if public:
            totals = log.label_totals(problem)
            np.testing.assert_array_equal(counts.totals, totals)
            np.testing.assert_array_equal(there + counts.unobserved, np.stack([totals, totals], axis=-1))
        else:
            assert counts.totals is None
            np.testing.assert_array_equal(there.sum(axis=(0, 1)) + counts.unobserved, np.full((2, 2), 90))
        # Each range is the sum of its halves, which lie side by side.
        np.testing.assert_array_equal(level, counts.levels[-1].reshape(*level.shape, -1).sum(axis=-1))
    assert there.sum() > 20


def test_multiples_may_exceed_the_bounds() -> None:
    """40 of at most 8 is impossible, and 40 with 10 expected is 4 times as much."""
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0)
    x = np.zeros((3, 1, 1))
    parts = {"states": x, "actions": x + 40, "next_states": x + 5}
    Trajectories(**parts, scale=x + 10).check(problem)
    with pytest.raises(ValueError, match="actions must lie within the public bounds"):
        Trajectories(**parts).check(problem)
