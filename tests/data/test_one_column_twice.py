"""A column that is named for two things is refused by the names alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from poolrl.data.log import Columns
from poolrl.workflow.config.configuration import load_config
from tests.helpers.shops import Facts, write_config

GIVEN: dict[str, Any] = {
    "trajectory": "week",
    "step": "day",
    "states": ["s0", "s1"],
    "actions": ["a0", "a1"],
    "next_states": ["n0", "n1"],
    "unit": "shop",
    "scale": ["size", "size"],
    "labels": {"store": "shop", "weekday": "day", "large": "size"},
}


def test_what_may_share_a_column() -> None:
    """A label may be who, when or how large; products share a scale; a trajectory is its own unit."""
    assert Columns(**GIVEN).names().count("shop") == 2
    assert Columns(**GIVEN | {"unit": "week", "labels": {"which": "week"}}).unit == "week"


@pytest.mark.parametrize(
    "slip",
    [
        {"next_states": ["s0", "n1"]},
        {"states": ["a0", "s1"]},
        {"actions": ["n0", "a1"]},
        {"states": ["s0", "s0"]},
        {"actions": ["a0", "s1"]},
        {"next_states": ["n0", "n0"]},
        {"trajectory": "day"},
        {"trajectory": "s0"},
        {"step": "s0"},
        {"step": "shop"},
        {"unit": "day"},
        {"unit": "s1"},
        {"scale": ["a0", "size"]},
        {"scale": ["size", "week"]},
        {"scale": ["day", "size"]},
        {"labels": {"one": "n0"}},
        {"labels": {"one": "x", "other": "x"}},
    ],
    ids=str,
)
def test_a_slip_is_refused(slip: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"column '\w+' cannot be both .* and "):
        Columns(**GIVEN | slip)


def test_a_configuration_names_columns_once(tmp_path: Path, facts: Facts) -> None:
    """Before anything is opened: the log is not there."""
    facts["log"] |= {"source": "nowhere.parquet", "left": ["state_0", "next_state_1"]}
    with pytest.raises(ValueError, match="'state_0' cannot be both"):
        load_config(write_config(tmp_path, facts)).config.columns()
