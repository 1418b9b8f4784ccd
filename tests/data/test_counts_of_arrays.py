"""Counts of arrays against counts of one row at a time: labels, scales, bounds of their own, blocks and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrl import Backlog, LostSales, Trajectories
from poolrl.data import trajectories
from poolrl.data.cells import joint_cells, left_cells, outcome_cells, sees_everything
from poolrl.data.counts import count_outcomes
from poolrl.data.row_rules import PARTS
from poolrl.geometry.bins import bin_of
from poolrl.privacy.sensitivity import every_level
from tests.helpers.own_problems import OrderQuantity, PostedPrice
from tests.helpers.tables import a_labelled_shop, a_shop

BINS = 8


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
    transposed = Trajectories(**{name: np.array(getattr(other, name), order="F") for name in PARTS})
    np.testing.assert_array_equal(transposed.outcome_leaves(plain, bins=2), expected[1])
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


@pytest.mark.parametrize("kind", [LostSales, Backlog])
def test_a_multiple_at_its_bound_is_counted_like_one_beyond(kind: type[LostSales] | type[Backlog]) -> None:
    """Of 8 nobody knows whether it would have been more: with a scale, "at least the bound" begins at the bound."""
    problem = kind(horizon=1, holding=1, shortage=1, demand_max=8.0)

    def cell(sold: float, *, relative: bool) -> int:
        row = (np.array([[0.0]]), np.array([[20.0]]), np.array([[20.0 - sold]]))
        found, observed = outcome_cells(problem, 0, *row, bins=BINS, relative=relative)
        assert observed is True or np.all(observed)
        return int(found[0, 0])

    assert cell(8.0, relative=True) == cell(12.0, relative=True)
    if problem.censored:
        # Just below it is seen, in the last bin; without a scale so is the bound itself.
        assert cell(7.999, relative=True) == cell(8.0, relative=False) == BINS - 1 != cell(8.0, relative=True)


def test_what_is_left_is_rounded_to_the_nearest_part() -> None:
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=8.0)
    left = np.array([[0.0], [0.12], [0.13], [4.0], [7.87], [7.88], [8.0], [9.0]])
    found, _ = left_cells(problem, 0, np.zeros_like(left), np.full_like(left, 8.0), left, bins=33, relative=False)
    assert found[:, 0].tolist() == [0, 0, 1, 16, 31, 32, 32, 32]
