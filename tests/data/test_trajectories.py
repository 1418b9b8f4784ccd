"""The door of the sensitive room: every kind of bad input has its error, and no error tells a value of the log."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poolrl import LostSales, Pool, Trajectories

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
        ({"states": at((1, 1, 0), np.nan, 0)}, "states must hold finite numbers"),
        ({"actions": at((1, 1, 0), np.inf, SECRET)}, "actions must hold finite numbers"),
        ({"states": [[["x" + str(SECRET)]]]}, "states must hold numbers"),
        ({"states": np.zeros((0, 2, 1)), "actions": np.zeros((0, 2, 1)), "next_states": np.zeros((0, 2, 1))}, "empty"),
        ({"max_per_unit": 0}, "max_per_unit must be a whole number of at least 1, got 0"),
        ({"max_per_unit": 2}, "max_per_unit needs unit"),
        ({"unit": [1, 2]}, "unit must hold one id per trajectory"),
        ({"unit": [1.0, np.nan, 2.0]}, "unit has missing ids"),
        ({"unit": np.array(["a", None, "b"], dtype=object)}, "unit has missing ids"),
    ],
)
def test_bad_arrays(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Trajectories(**arrays(**changes))
    assert str(SECRET) not in whole_story(caught)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": at((0, 1, 0), -5.5077, 0)}, "states must lie within the public bounds"),
        ({"actions": at((2, 1, 0), 100.5077, SECRET)}, "actions must lie within the public bounds"),
        ({"next_states": at((2, 1, 0), 100.5077, 1)}, "next_states must lie within the public bounds"),
        ({"states": at((2, 1, 0), 88.8077, 0)}, "below the least allowed"),
        ({"next_states": at((2, 1, 0), 99.9077, 1)}, "imply an outcome"),
    ],
)
def test_a_log_that_does_not_fit_the_problem(problem: LostSales, changes: dict[str, Any], message: str) -> None:
    log = Trajectories(**arrays(**changes))
    for pool in (Pool(1.0), Pool.published(1.0, zones=3)):
        with pytest.raises(ValueError, match=message) as caught:
            pool.fit(problem, log)
        assert "077" not in whole_story(caught)
    clipped = log.clipped(problem)  # the explicit choice
    clipped.check(problem)
    assert len(clipped) == len(log)


def test_the_wrong_shape_for_the_problem() -> None:
    log = Trajectories(**arrays())
    with pytest.raises(ValueError, match="the log has horizon = 2, but the problem has 3"):
        Pool(1.0).fit(LostSales(horizon=3, holding=1, shortage=1, demand_max=100), log)
    with pytest.raises(ValueError, match="the log has states = 1, but the problem has 2"):
        Pool(1.0).fit(LostSales(horizon=2, products=2, holding=1, shortage=1, demand_max=100), log)


@pytest.mark.parametrize(
    "convert", [lambda f: f, pl.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "arrow"]
)
def test_tables_of_every_make_give_the_same_log(convert: Callable[[pd.DataFrame], Any]) -> None:
    log = Trajectories.from_table(convert(frame()), **COLUMNS, unit="shop", max_per_unit=1)
    assert log.states[:, :, 0].tolist() == [[0, 10], [0, 20]]
    assert log.actions[:, :, 0].tolist() == [[SECRET, 80], [60, 90]]
    assert log.next_states[:, :, 0].tolist() == [[10, 0], [20, 30]]
    assert log.units == 2


def test_files_and_round_trips(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "log.csv", index=False)
    pq.write_table(pa.Table.from_pandas(frame()), tmp_path / "log.parquet")
    logs = [
        Trajectories.from_csv(tmp_path / "log.csv", **COLUMNS),
        Trajectories.from_parquet(tmp_path / "log.parquet", **COLUMNS),
    ]
    names = {"trajectory": "trajectory", "step": "step"} | {
        f"{part}s": [f"{part}_0"] for part in ("state", "action", "next_state")
    }
    logs.append(Trajectories.from_table(logs[0].to_arrow(), **names))
    for log in logs:
        assert np.array_equal(log.actions, logs[0].actions)
        assert np.array_equal(log.next_states, logs[0].next_states)


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        (frame(day=[0, 1, 1, 1]), {}, "each .'week', 'day'. must stand in one row"),
        (frame(day=[0, 1, 1, 2]), {}, "every trajectory must have every step"),
        (frame().iloc[:3], {}, "every trajectory must have every step"),
        (frame(day=[0, 1, 1, 10**9]), {}, "every trajectory must have every step"),
        (frame(day=[1, 2, 2, 1]), {}, "every trajectory must have every step"),
        (frame(day=[0, 1, 1, 0]), {"first_step": 1}, "'day' must not lie below first_step = 1"),
        (frame(day=[0, 0.5, 1, 0]), {}, "'day' must hold whole numbers"),
        (frame(target=[SECRET, None, 1, 2]), {}, "'target' must not have missing values"),
        (frame(left=["a", "b", "c", str(SECRET)]), {}, "'left' must hold numbers, but has type"),
        (frame(left=[np.inf, 0, 0, SECRET]), {}, "next_states must hold finite numbers"),
        (frame(shop=["x", "y", "y", "y"]), {"unit": "shop"}, "each trajectory must belong to one 'shop'"),
        (frame(), {"states": ["nothing"]}, "must have one column 'nothing' .is there a header line"),
        (frame(target=[SECRET, f"Alice {SECRET}", 1.0, 2.0]), {}, "a column of mixed types"),
        (frame(left=np.array([2**63 - 1, 1, 2, 3])), {"first_step": 1}, "'day' must not lie below"),
        (frame(day=np.array([2**63 - 1, 1, 2, 3])), {}, "'day' must hold whole numbers"),
        (frame().iloc[:0], {}, "must not be empty"),
        ([1, 2, 3], {}, "table must be an Arrow, pandas or polars table, got list"),
    ],
)
def test_bad_tables(table: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Trajectories.from_table(table, **(COLUMNS | changes))
    assert str(SECRET) not in whole_story(caught)


def test_steps_may_start_at_one() -> None:
    log = Trajectories.from_table(frame(day=[1, 2, 2, 1]), **COLUMNS, first_step=1)
    assert log.actions[:, :, 0].tolist() == [[SECRET, 80], [60, 90]]


def test_damaged_files(tmp_path: Path) -> None:
    frame().to_parquet(tmp_path / "log.parquet")
    (tmp_path / "log.csv").write_text(f"week,day,stock,target,left\n1,{SECRET},3\n")
    (tmp_path / "byte.csv").write_bytes(b"week,\xff\n1,2\n")
    (tmp_path / "headless.csv").write_text(f"Alice,{SECRET}\nBob,1\n")
    data = (tmp_path / "log.parquet").read_bytes()
    (tmp_path / "log.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"log\.parquet is not a readable Parquet or CSV file"):
        Trajectories.from_parquet(tmp_path / "log.parquet", **COLUMNS)
    for name, message in (
        ("log", "the table must not be empty"),  # a line with other fields than the header is left out
        ("byte", r"byte\.csv is not a readable CSV file"),
        ("headless", "is there a header line"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            Trajectories.from_csv(tmp_path / f"{name}.csv", **COLUMNS)
        assert str(SECRET) not in whole_story(caught)
        assert "Alice" not in whole_story(caught)


def test_errors_do_not_tell_how_many_trajectories_there_are() -> None:
    for changes in ({"actions": np.zeros((17, 2, 1))}, {"unit": range(17)}, {"unit": [[1], [2, 3], [4]]}):
        with pytest.raises(ValueError, match="must") as caught:
            Trajectories(**arrays(states=np.zeros((13, 2, 1)), next_states=np.zeros((13, 2, 1)), **changes))
        assert "13" not in whole_story(caught)
        assert "17" not in whole_story(caught)
    wide = LostSales(horizon=2, products=3, holding=1, shortage=1, demand_max=100.0)
    with pytest.raises(ValueError, match="the log has states = 1, but the problem has 3"):
        Trajectories(**arrays()).clipped(wide)


def test_a_log_does_not_print_itself() -> None:
    assert str(SECRET) not in repr(Trajectories(**arrays()))
    assert "sensitive" in repr(Trajectories(**arrays()))


def test_what_a_log_is_cannot_be_changed_and_copies_are_equal() -> None:
    log = Trajectories(**arrays(), unit=["a", "b", "a"], max_per_unit=2)
    for name in ("states", "actions", "next_states"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(log, name)[...] = 0.0
    # Nor what the noise is scaled by.
    for held, name in (
        *((log, name) for name in ("facts", "units", "slots")),
        *((log.facts, name) for name in ("has_units", "has_scale", "scale_memory", "max_per_unit", "labels_public")),
    ):
        with pytest.raises(AttributeError):
            setattr(held, name, 1)
    for again in (copy(log), pickle.loads(pickle.dumps(log))):
        assert np.array_equal(again.states, log.states)
        assert again.slots == log.slots == 4


class Printing(LostSales):
    """A problem may quote what it is given: a symbol without numbers."""

    heard: ClassVar[list[str]] = []

    def feasible(self, step: int, state: Any) -> Any:
        self.heard.append(f"{state} {state.__dict__}")
        return super().feasible(step, state)


def test_formulas_of_your_own_see_no_row() -> None:
    states = np.array([[[0.0], [4.2425]]])
    log = Trajectories(states=states, actions=np.full((1, 2, 1), 5.0), next_states=np.zeros((1, 2, 1)))
    log.check(Printing(horizon=2, holding=0.1, shortage=0.4, demand_max=10.0))
    assert len(Printing.heard) == 2  # once for each step, however many rows there are
    assert "4.24" not in str(Printing.heard)


def test_the_first_broken_rule_is_named_wherever_it_is_broken(
    problem: LostSales, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An impossible row in the first block, a number out of bounds in the last: bounds come first, as in one piece."""
    monkeypatch.setattr("poolrl.data.trajectories.BLOCK_NUMBERS", 1)
    impossible, outside = at((0, 0, 0), 99.9077, 1), at((2, 1, 0), 100.5077, SECRET)
    for states, message in ((np.zeros((3, 2, 1)), "actions must lie"), (at((1, 1, 0), -1.0, 0), "states must lie")):
        log = Trajectories(**arrays(next_states=impossible, actions=outside, states=states))
        with pytest.raises(ValueError, match=message):
            log.check(problem)
    with pytest.raises(ValueError, match="next_states must follow from the actions"):
        Trajectories(**arrays(next_states=impossible)).check(problem)
