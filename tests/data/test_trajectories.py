"""Logs as arrays: bad input has its error, none tells a value of the log, and counts are those of one row at a time."""

from __future__ import annotations

import pickle
import traceback
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from poolrl import Backlog, LostSales, Pool, Trajectories
from poolrl.data import trajectories
from poolrl.data.cells import outcome_cells, sees_everything
from poolrl.data.row_rules import PARTS
from poolrl.data.trace import Recording
from poolrl.geometry.bins import bin_of
from tests.helpers.own_problems import OrderQuantity, PostedPrice
from tests.helpers.tables import a_labelled_shop, a_shop

SECRET = 77.7077  # planted into logs; no message may contain it
COLUMNS: dict[str, Any] = {
    "trajectory": "week",
    "step": "day",
    "states": ["stock"],
    "actions": ["target"],
    "next_states": ["left"],
}


@pytest.fixture
def problem() -> LostSales:
    return LostSales(horizon=2, holding=1, shortage=1, demand_max=100.0)


def whole_story(caught: pytest.ExceptionInfo[ValueError]) -> str:
    """All that a user would see: the traceback with its causes, without the source lines of the test."""
    shown = traceback.TracebackException.from_exception(caught.value)
    story = [str(caught.value)]
    while shown := shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__):
        story.append("".join(shown.format_exception_only()))
    return "\n".join(story)


def arrays(**changes: Any) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "states": np.zeros((3, 2, 1)),
        "actions": np.full((3, 2, 1), SECRET),
        "next_states": np.full((3, 2, 1), 10.0),
    }
    return parts | changes


def frame(**changes: Any) -> pd.DataFrame:
    columns: dict[str, Any] = {
        "week": ["a", "a", "b", "b"],
        "day": [0, 1, 1, 0],
        "stock": [0.0, 10.0, 20.0, 0.0],
        "target": [SECRET, 80.0, 90.0, 60.0],
        "left": [10.0, 0.0, 30.0, 20.0],
        "shop": ["x", "x", "y", "y"],
    }
    return pd.DataFrame(columns | changes)


def at(row: tuple[int, ...], value: float, base: float) -> np.ndarray:
    array = np.full((3, 2, 1), float(base))
    array[row] = value
    return array


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": np.zeros((3, 2))}, "states must have 3 dimensions, got 2"),
        ({"actions": np.zeros((2, 2, 1))}, "actions must have the trajectories and steps of states"),
        ({"next_states": np.zeros((3, 1, 1))}, "next_states must have the shape of states"),
        ({"next_states": np.zeros((2, 2, 1))}, "next_states must have the shape of states"),
        ({"states": np.zeros((3, 2, 2))}, "next_states must have the shape of states, and may show more behind them"),
        ({"next_states": at((1, 1, 0), np.nan, 0)}, "next_states must hold finite numbers"),
        ({"states": at((1, 1, 0), np.nan, 0)}, "states must hold finite numbers"),
        ({"actions": at((1, 1, 0), np.inf, SECRET)}, "actions must hold finite numbers"),
        ({"states": [[["x" + str(SECRET)]]]}, "states must hold numbers"),
        ({"states": np.zeros((0, 2, 1)), "actions": np.zeros((0, 2, 1)), "next_states": np.zeros((0, 2, 1))}, "empty"),
        ({"max_per_unit": 2}, "max_per_unit needs unit"),
        ({"unit": [1, 2]}, "unit must hold one id per trajectory"),
        ({"unit": np.array(["a", None, "b"], dtype=object)}, "unit has missing ids"),
        ({"scale": np.ones((3, 2, 1)), "scale_memory": -1}, "scale_memory must be a whole number of at least 0"),
        *(
            ({"scale": np.ones(shape)}, "scale must have the shape of states")
            for shape in ((1, 1), (3, 1, 1), (3, 2, 2))
        ),
    ],
)
def test_bad_arrays(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Trajectories(**arrays(**changes))
    assert str(SECRET) not in whole_story(caught)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": at((2, 1, 0), 100.5077, SECRET)}, "actions must lie within the public bounds"),
        ({"states": at((2, 1, 0), 88.8077, 0)}, "below the least allowed"),
        ({"next_states": at((2, 1, 0), 99.9077, 1)}, "imply an outcome"),
    ],
)
def test_a_log_that_does_not_fit_the_problem(problem: LostSales, changes: dict[str, Any], message: str) -> None:
    log = Trajectories(**arrays(**changes))
    with pytest.raises(ValueError, match=message) as caught:
        log.check(problem)
    assert "077" not in whole_story(caught)
    clipped = log.clipped(problem)  # the explicit choice
    clipped.check(problem)
    assert len(clipped) == len(log)


def test_the_first_broken_rule_is_named() -> None:
    """Bounds before all other rules, whatever the step; then the earliest step's, of any trajectory."""
    problem = LostSales(horizon=3, holding=1, shortage=1, demand_max=100)
    stock, order, left = (np.zeros((2, 3, 1)) for _ in range(3))
    left[0, 0], order[1, 1] = 50.0, -1e-3  # sales below zero at the first step, an order below zero at the second
    with pytest.raises(ValueError, match="actions must lie within the public bounds"):
        Trajectories(states=stock, actions=order, next_states=left).check(problem)
    stock, order, left = np.zeros((2, 3, 1)), np.full((2, 3, 1), 9.0), np.zeros((2, 3, 1))
    stock[0, 2], left[1, 1] = 20.0, 50.0  # an order below the stock at the third step, sales below zero at the second
    for turned in (1, -1):
        log = Trajectories(states=stock[::turned], actions=order[::turned], next_states=left[::turned])
        with pytest.raises(ValueError, match="imply an outcome"):
            log.check(problem)


def test_the_wrong_shape_for_the_problem() -> None:
    log = Trajectories(**arrays())
    two = LostSales(horizon=1, products=2, holding=1, shortage=1, demand_max=100)
    rows = np.ones((3, 1, 2))
    with pytest.raises(ValueError, match="the log has scale = 1, but the problem has 2"):
        Trajectories(states=rows, actions=rows, next_states=rows, scale=rows[:, :, :1]).check(two)
    with pytest.raises(ValueError, match="the log has horizon = 2, but the problem has 3"):
        Pool(1.0).fit(LostSales(horizon=3, holding=1, shortage=1, demand_max=100), log)
    with pytest.raises(ValueError, match="the log has states = 1, but the problem has 2"):
        log.clipped(LostSales(horizon=2, products=2, holding=1, shortage=1, demand_max=100))


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        (frame(day=[0, 1, 1, 1]), {}, "each .'week', 'day'. must stand in one row"),
        (frame().iloc[:3], {}, "every trajectory must have every step"),
        (frame(day=[0, 1, 1, 0]), {"first_step": 1}, "'day' must not lie below first_step = 1"),
        (frame(day=[0, 0.5, 1, 0]), {}, "'day' must hold whole numbers"),
        (frame(target=[SECRET, None, 1, 2]), {}, "'target' must not have missing values"),
        (frame(left=["a", "b", "c", str(SECRET)]), {}, "'left' must hold numbers, but has type"),
        (frame(shop=["x", "y", "y", "y"]), {"unit": "shop"}, "each trajectory must belong to one 'shop'"),
        (frame(), {"states": ["nothing"]}, "must have one column 'nothing' .is there a header line"),
        (frame(target=[SECRET, f"Alice {SECRET}", 1.0, 2.0]), {}, "a column of mixed types"),
        (frame(target=[10**20, 1, 1, 2]), {}, "a column of mixed types"),  # beyond every type of Arrow
        # Half of a character.
        (frame(left=np.array([f"{SECRET}\ud800", 1, 2, 3], dtype=object)), {}, "a column of mixed types"),
        (frame(day=np.array([2**63 - 1, 1, 2, 3])), {}, "'day' must hold whole numbers"),
        (frame().iloc[:0], {}, "must not be empty"),
        ([1, 2, 3], {}, "table must be an Arrow, pandas or polars table, got list"),
    ],
)
def test_bad_tables(table: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Trajectories.from_table(table, **(COLUMNS | changes))
    assert str(SECRET) not in whole_story(caught)


def test_rows_of_a_table_stand_in_their_places() -> None:
    """In the order of trajectories and steps, which may start at one, whatever the order of rows is."""
    for days, first in (([0, 1, 1, 0], 0), ([1, 2, 2, 1], 1)):
        log = Trajectories.from_table(frame(day=days), **COLUMNS, first_step=first, unit="shop", max_per_unit=1)
        assert log.states[:, :, 0].tolist() == [[0, 10], [0, 20]]
        assert log.actions[:, :, 0].tolist() == [[SECRET, 80], [60, 90]]
        assert log.next_states[:, :, 0].tolist() == [[10, 0], [20, 30]]
        assert log.units == 2


def test_damaged_files(tmp_path: Path) -> None:
    frame().to_parquet(tmp_path / "log.parquet")
    (tmp_path / "log.parquet").write_bytes((tmp_path / "log.parquet").read_bytes()[:500])
    with pytest.raises(ValueError, match=r"log\.parquet is not a readable Parquet or CSV file"):
        Trajectories.from_parquet(tmp_path / "log.parquet", **COLUMNS)
    for lines, message in (
        (f"week,day,stock,target,left\n1,{SECRET},3\n", "the table must not be empty"),  # other fields: left out
        (f"Alice,{SECRET}\nBob,1\n", "is there a header line"),
    ):
        (tmp_path / "log.csv").write_text(lines)
        with pytest.raises(ValueError, match=message) as caught:
            Trajectories.from_csv(tmp_path / "log.csv", **COLUMNS)
        assert str(SECRET) not in whole_story(caught)
        assert "Alice" not in whole_story(caught)


def test_errors_do_not_tell_how_many_trajectories_there_are() -> None:
    for changes in ({"actions": np.zeros((17, 2, 1))}, {"unit": range(17)}, {"unit": [[1], [2, 3], [4]]}):
        with pytest.raises(ValueError, match="must") as caught:
            Trajectories(**arrays(states=np.zeros((13, 2, 1)), next_states=np.zeros((13, 2, 1)), **changes))
        assert "13" not in whole_story(caught)
        assert "17" not in whole_story(caught)


def test_a_log_does_not_print_itself() -> None:
    assert str(SECRET) not in repr(Trajectories(**arrays()))
    assert "sensitive" in repr(Trajectories(**arrays()))


def test_what_a_log_is_cannot_be_changed_and_copies_are_equal() -> None:
    log = Trajectories(**arrays(), unit=["a", "b", "a"], max_per_unit=2)
    for name in ("states", "actions", "next_states"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(log, name)[...] = 0.0
    # Nor what the noise is scaled by.
    for held, name in ((log, "facts"), (log, "slots"), (log.facts, "scale_memory"), (log.facts, "max_per_unit")):
        with pytest.raises(AttributeError):
            setattr(held, name, 1)
    for again in (copy(log), pickle.loads(pickle.dumps(log))):
        assert np.array_equal(again.states, log.states)
        assert again.slots == log.slots == 4


# What is counted.


@pytest.mark.parametrize(("numbers", "fewest"), [(1, 10**9), (7, 1), (64, 1)])
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


def test_steps_that_follow_each_other_and_share_a_recording_are_one_run() -> None:
    one, two = (Recording(lambda row, by=by: row * by, [(1,)]) for by in (1.0, 2.0))
    found = trajectories._runs([one, one, two, one, one, one], most=2)
    assert [(steps.start, steps.stop, each) for steps, each in found] == [
        *((0, 2, one), (2, 3, two)),
        *((3, 5, one), (5, 6, one)),
    ]


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


class Sees(Backlog):
    """A rule of its own."""

    def seen_coordinates(self, step: int, state: Any, action: Any) -> Any:
        return action > 1


def test_who_sees_everything() -> None:
    facts: dict[str, Any] = {"horizon": 1, "holding": 1, "shortage": 1, "demand_max": 8.0}
    assert sees_everything(Backlog(**facts))
    assert not sees_everything(LostSales(**facts, boundary=0.5))
    assert not sees_everything(Sees(**facts))
    assert sees_everything(OrderQuantity(1, 1, 0.1, 0.1, 8.0))
    x = np.zeros((4, 1, 1))
    log = Trajectories(states=x, actions=x + np.array([0, 1, 2, 3]).reshape(4, 1, 1), next_states=x)
    assert log.outcome_leaves(Sees(**facts), bins=2).sum() == 2


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
    full = [Trajectories(**parts, **more).is_full for more in ({"scale": scale}, {"labels": labels}, {"unit": owner})]
    assert full == [False, False, True]


def test_labels_that_no_column_can_hold_are_refused_without_a_word_of_them() -> None:
    zeros = np.zeros((3, 1, 1))
    log = Trajectories(states=zeros, actions=zeros, next_states=zeros, labels={"who": [7.125, f"Alice {SECRET}", None]})
    with pytest.raises(ValueError, match="labels must hold numbers, or text, to become columns") as caught:
        log.to_arrow()
    assert str(SECRET) not in whole_story(caught)
