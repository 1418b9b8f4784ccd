"""Labels that an independent reviewer turned against the sensitivity: each moved more than was paid for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poolrl import LostSales, Table, Trajectories
from poolrl.data.ids import owners
from poolrl.problems.labels import Labels
from tests.helpers.tables import columns


@pytest.mark.parametrize(
    "values",
    [[2**60, 2**60 + 1], [1, 1.0], ["a", "A"], ["a", " a"], ["e", "\u00e9"], ["ss", "\u00df"], ["1", "\uff11"]],
    ids=["equal doubles", "equal numbers", "case", "blanks", "accents", "sharp s", "full width"],
)
def test_values_that_an_engine_may_take_for_equal_are_refused(values: list[Any]) -> None:
    """A join would put one row into the cells of both."""
    with pytest.raises(ValueError, match="nor values that an engine may take for equal"):
        Labels({"store": values})


def test_one_trajectorys_label_does_not_decide_how_others_are_read() -> None:
    """NumPy makes text of a list of numbers and text, and objects of it if a None is in it."""
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=10.0, labels={"store": ["1", "2"]})
    zero = np.zeros((30, 1, 1))

    def leaves(last: Any) -> Any:
        log = Trajectories(
            states=zero, actions=zero + 10, next_states=zero + 5, labels={"store": [1] * 28 + ["1", last]}
        )
        return log.outcome_leaves(problem, bins=4)

    assert leaves("2").sum() == 2  # 1 is not "1"
    for other in (None, 7, 10**400, b"2", object()):
        assert np.abs(leaves("2") - leaves(other)).sum() == 1


def test_one_units_name_does_not_regroup_others() -> None:
    for name in (1, 5.0, "x"):
        assert len(set(owners([7, 7.0, 2**53, 2**53 + 1, name], 5))) == 4


@pytest.mark.parametrize("values", [["a", "b"], [3, 9], [1, 2]], ids=["text", "numbers", "consecutive"])
def test_no_step_makes_a_labelled_count_fail(values: list[Any]) -> None:
    """With a join, engines compute the floor of a step before they have found out that it is finite."""
    problem = LostSales(horizon=2, products=2, holding=1, shortage=1, demand_max=10.0, labels={"label": values})
    steps = [0.0, 1.0, 1e300, np.nan, np.inf, -np.inf, 0.5]
    parts = {f"{part}_{i}": [0.0] * 7 for part in ("state", "next_state") for i in range(2)}
    parts |= {f"action_{i}": [5.0] * 7 for i in range(2)}
    table = pa.table({"trajectory": [0, 0, 1, 2, 3, 4, 5], "step": steps, "label": [values[0]] * 7, **parts})
    log = Table(table, **columns(2, labels=["label"]))
    assert log.outcome_leaves(problem, bins=4).sum() == 4


def test_a_column_of_missing_labels_is_a_column_of_labels() -> None:
    problem = LostSales(horizon=1, holding=1, shortage=1, demand_max=10.0, labels={"label": ["a"]})
    row = {"trajectory": [0], "step": [0], "state_0": [0.0], "action_0": [5.0], "next_state_0": [1.0]}
    log = Table(pa.table(row | {"label": pa.nulls(1)}), **columns(1, labels=["label"]))
    log.check(problem)
    assert log.outcome_leaves(problem, bins=4).sum() == 0


def test_what_decides_the_noise_is_read_only() -> None:
    zero = np.zeros((2, 1, 1))
    log = Trajectories(states=zero, actions=zero + 4, next_states=zero, scale=zero + 1, scale_memory=1)
    for name in ("has_units", "has_scale", "scale_memory", "max_per_unit", "labels_public"):
        with pytest.raises(AttributeError):
            setattr(log.facts, name, None)
    with pytest.raises(AttributeError):
        log.facts = None  # type: ignore[misc, assignment]
