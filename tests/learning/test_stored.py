"""Reports of what was learned: typed values that survive a file, and refuse what no release says."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from poolrl.learning.stored import Dependence, Names, PeriodRead, Planned, ReleasedTrees, Report, Together

FULL = Report(
    observed=0.9,
    trees=ReleasedTrees((2, 4, 8), 12.5),
    step_labels=("promo",),
    dependence=Dependence(0.2, 0.01, 20.0),
    together=Together(0.4, 0.5, 0.1),
    names=Names(["tea"], ["Mon", "Tue"], 1),
    units=120,
    scale_in_words="the average of four weeks",
    periods=(PeriodRead("week", 1, 9, ("mean",)), PeriodRead("day", "2025-01-06", "2025-02-03")),
    planned=Planned(64, 0.25, 0.0),
)


@pytest.mark.parametrize("report", [FULL, Report()])
def test_a_report_survives_a_file(report: Report) -> None:
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report


def test_what_is_not_known_is_left_out() -> None:
    assert Report().to_dict() == {}
    assert Report(units=0).to_dict() == {"units": 0}


@pytest.mark.parametrize(
    "lie",
    [
        [],
        3,
        {"note": "forged"},
        {"observed": 1.5},
        {"observed": math.nan},
        {"observed": "all"},
        {"units": 1.5},
        {"units": True},
        {"step_labels": 3},
        {"step_labels": [3]},
        {"scale_in_words": ["mean"]},
        {"trees": {"sizes": [2, 0], "variance": 1.0}},
        {"trees": {"sizes": 2, "variance": 1.0}},
        {"trees": {"sizes": [2]}},
        {"trees": {"sizes": [2], "variance": -1.0}},
        {"trees": []},
        {"dependence": {"effect": 2.0, "error": 0.1, "z": 1.0}},
        {"dependence": {"effect": 0.1, "error": 0.1, "z": 1.0, "advice": "none"}},
        {"together": {"correlation": 0.99, "measured": 0.5, "error": 0.1}},
        {"names": {"products": "tea", "steps": ["Mon"]}},
        {"names": {"products": [1], "steps": ["Mon"]}},
        {"names": {"steps": ["Mon"]}},
        {"names": {"products": ["tea"], "steps": ["Mon"], "first_step": 0.5}},
        {"periods": {"column": "week", "first": 1, "before": 9}},
        {"periods": [{"column": "week", "first": 1}]},
        {"periods": [{"column": "week", "first": 1, "before": []}]},
        {"planned": {"nodes": -1}},
        {"planned": {"nodes": 1, "clipped_to_zero": 2.0}},
    ],
)
def test_what_no_report_says_is_refused(lie: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Report.from_dict(lie)
