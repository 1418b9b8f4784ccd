"""Which declared facts go together: a column is named once, rows are relative or not, logs and problems fit."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import combinations, product
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pytest

from poolrl import LostSales, Table, Trajectories
from poolrl.data.log import Columns, LogFacts, check_relative, is_relative, refuse_visits
from poolrl.data.row_rules import has_own_bounds
from poolrl.workflow.config.configuration import load_config
from tests.helpers.own_problems import PostedPrice, Wear
from tests.helpers.shops import Facts, write_config

COSTS = {"horizon": 1, "holding": 1.0, "shortage": 1.0}
PLAIN = LostSales(**COSTS, demand_max=10.0)
LABELLED = LostSales(**COSTS, demand_max=10.0, labels={"shop": ["a", "b"]})
# Only one of two shops has a bound of its own.
UNEVEN = LostSales(**COSTS, demand_max=[[10.0], [5.0]], labels={"shop": ["a", "b"]})
# Both have the same bound.
EVEN = LostSales(**COSTS, demand_max=[[10.0], [10.0]], labels={"shop": ["a", "b"]})


def a_log(*, scaled: bool = False, labelled: bool = False) -> Trajectories:
    more: dict[str, Any] = {"scale": np.ones((1, 1, 1))} if scaled else {}
    if labelled:
        more["labels"] = {"shop": ["a"]}
    rows = np.full((1, 1, 1), 2.0)
    return Trajectories(states=rows, actions=rows, next_states=rows, **more)


def test_rows_are_relative_with_a_scale_or_a_bound_of_their_own() -> None:
    assert [has_own_bounds(problem) for problem in (PLAIN, LABELLED, EVEN, Wear(1))] == [False] * 4
    assert has_own_bounds(UNEVEN) is True
    for problem, scaled in product((PLAIN, UNEVEN), (False, True)):
        assert is_relative(a_log(scaled=scaled), problem) is (scaled or problem is UNEVEN)


UNIT_EACH = "a scale needs a problem whose coordinates have a unit each"
NO_PLACE = "labels and a scale need outcome counts"


@pytest.mark.parametrize(
    ("known", "problem", "relative", "visits"),
    [
        ({}, PLAIN, None, None),
        ({"labelled": True}, LABELLED, None, NO_PLACE),
        ({}, LABELLED, "label", NO_PLACE),
        ({"labelled": True}, PLAIN, "label", NO_PLACE),
        ({"scaled": True}, PLAIN, None, NO_PLACE),  # only goods with a unit each can be divided
        ({}, PostedPrice(1), None, None),
        ({"scaled": True}, PostedPrice(1), UNIT_EACH, NO_PLACE),
        ({"scaled": True}, Wear(1), UNIT_EACH, NO_PLACE),
    ],
)
def test_which_logs_fit_which_problems(known: Any, problem: Any, relative: str | None, visits: str | None) -> None:
    """A log has the labels of its problem, and nodes have no place for labels and scales."""
    for check, words in ((check_relative, relative), (refuse_visits, visits)):
        with nullcontext() if words is None else pytest.raises(ValueError, match=words):
            check(a_log(**known), problem)


UNDECLARED: dict[str, Any] = {"has_units": False, "max_per_unit": 1, "has_scale": False, "scale_memory": 0}
UNDECLARED |= {"label_names": ("shop",), "step_labels": ("shop",), "labels_public": True}


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"scale_memory": 2}, "scale_memory needs scale: say what amounts are measured in"),
        ({"scale_memory": -1}, "scale_memory must be a whole number of at least 0"),
        ({"max_per_unit": 2}, "max_per_unit needs unit"),
        ({"max_per_unit": 0}, "max_per_unit must be a whole number of at least 1"),
        ({"label_names": (), "step_labels": ()}, "labels_public needs labels"),
        ({"step_labels": ("promo",)}, r"step_labels must be among the labels \(shop\)"),
    ],
)
def test_declarations_about_what_is_not_there_are_refused(declared: Any, words: str) -> None:
    assert type(LogFacts(**UNDECLARED | {"max_per_unit": np.int8(1)}).max_per_unit) is int
    with pytest.raises(ValueError, match=words):
        LogFacts(**UNDECLARED | declared)


def test_a_row_of_one_coordinate_needs_coordinates_that_are_counted_one_by_one() -> None:
    columns = {name: [name] for name in ("states", "actions", "next_states")}
    rows = ibis.table({"trajectory": "int64", "step": "int64", "product": "string"} | dict.fromkeys(columns, "float64"))
    long = Table(rows, trajectory="trajectory", step="step", coordinate="product", coordinates=["bread"], **columns)
    check_relative(long, PLAIN)
    with pytest.raises(ValueError, match="with coordinate, scale must name one column"):
        Columns("trajectory", "step", **columns, scale=["a", "b"], coordinate="product")
    with pytest.raises(ValueError, match="one row per coordinate needs a problem whose coordinates are counted one by"):
        check_relative(long, PostedPrice(1))


AMOUNTS = ("states", "actions", "next_states", "scale")
MAY_SHARE = [{"scale"}, {"trajectory", "unit"}, *({"labels", part} for part in ("trajectory", "step", "unit", "scale"))]
PLACES = [*((part, i) for part in AMOUNTS for i in (0, 1)), *(("labels", name) for name in ("store", "weekday"))]
PAIRS = [*combinations([("trajectory",), ("step",), ("unit",), *PLACES], 2)]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
def test_what_may_share_a_column(one: Any, other: Any) -> None:
    """A label may be who, when or how large; products share a scale; a trajectory is its own unit. Else a slip."""
    given: dict[str, Any] = {part: [f"{part} 0", f"{part} 1"] for part in AMOUNTS}
    given |= {"trajectory": "week", "step": "day", "unit": "shop", "labels": {"store": "a", "weekday": "b"}}
    for place in (one, other):
        if len(place) == 1:
            given[place[0]] = "shared"
        else:
            given[place[0]][place[1]] = "shared"
    if {one[0], other[0]} in MAY_SHARE:
        assert Columns(**given).names().count("shared") == 2
    else:
        with pytest.raises(ValueError, match=r"column 'shared' cannot be both .* and "):
            Columns(**given)


def test_a_configuration_names_columns_once(tmp_path: Path, facts: Facts) -> None:
    """Before anything is opened: the log is not there."""
    facts["log"] |= {"source": "nowhere.parquet", "left": ["state_0", "next_state_1"]}
    with pytest.raises(ValueError, match="'state_0' cannot be both"):
        load_config(write_config(tmp_path, facts)).config.columns()
