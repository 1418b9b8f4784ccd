"""The report: its conclusions follow the rows, and the command around it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from poolrl.cli import reproduce as command
from poolrl.cli.main import app
from poolrl.paper.results import Runs
from poolrl.paper.sweeps import Setting
from poolrl.paper.write_up import (
    Origin,
    summary_section,
)
from tests.helpers.made_up_rows import made_up
from tests.helpers.sweeps import SMALL, small_plan


def test_conclusions_follow_the_rows() -> None:
    """Planted rows turn each sentence: what data give, what privacy costs, how many claims hold."""
    gaps = {"data-free": 0.30, "input": 0.50, "output": 0.60}

    def planted(setting: Setting, rng: np.random.Generator) -> float:
        if setting.method == "data-free":
            return {"uniform": 0.01, "normal": 0.3}.get(setting.data, 0.1 + 0.2 * rng.normal())
        return gaps.get(setting.method, 0.1 if math.isinf(setting.rho) else 0.12)

    said = " ".join(summary_section(made_up(planted, seeds=6), [], Origin(1, 60.0, "1", None)).text)
    assert "claims hold" not in said  # no verdicts, no sentence about them
    for words in (
        "for the default Pool it is 12.0 percent",
        "for input and output perturbation it is 50.0 to 60.0 percent",
        "Privacy at ρ = 1 costs the default Pool 2.00 percentage points",
        "The default Pool beats a plan without data on normal demand.",
        "A plan without data is at least as good on synthetic.",
        "It is undecided whether the log helps on Rossmann, Store 1.",
    ):
        assert words in said
    nothing = summary_section(Runs([]), [], Origin(0, 0.0, "1", None, quick=True))
    assert (nothing.rows, nothing.picture) == ((), None)
    assert "*quick* look" in "".join(nothing.text)


def test_the_command_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """One small sweep through the command: it runs, resumes, prints and writes."""
    monkeypatch.delenv("POOLRL_ROSSMANN", raising=False)
    wanted = replace(small_plan(), settings=(SMALL, replace(SMALL, method="input")))
    monkeypatch.setattr(command, "plan_for", lambda names, **_: wanted)
    monkeypatch.setattr("poolrl.paper.write_up.privacy_verdicts", list)  # tests/paper/test_claims.py attacks releases
    arguments = {"runs": None, "quick": False, "workers": 1, "train_csv": None}
    with monkeypatch.context() as without_pictures:
        without_pictures.setattr(command, "report_sections", lambda *_, **known: {"rq1": []})
        command.reproduce("rq1", out=tmp_path, **arguments)
    said = capsys.readouterr().out
    assert all(words in said for words in ("Rossmann: left out", "runs: 4 to do", "NOT PRIVATE"))
    command.reproduce("claims", out=tmp_path, **arguments)
    said = capsys.readouterr().out
    assert all(words in said for words in ("runs: 0 to do", "undecided"))  # two seeds decide nothing
    settings = (tmp_path / "report.html").read_text().partition(">Settings</h2>")[2]
    assert all(words in settings for words in ("not used", "1 at a time"))
    assert "*quick* look" not in (tmp_path / "results.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} >= {"results.jsonl", "report.html", "results.md", "figures"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rq11"], "there is no sweep 'rq11'; did you mean rq1?"),
        (["report", "--out", "nowhere"], "no results at nowhere/results.jsonl: run `poolrl reproduce` first"),
        (["rq1", "--rossmann", "gone.csv"], "--rossmann names gone.csv, which is not a file"),
        (["rq1", "--workers", "0"], "workers must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
        app(["reproduce", *arguments], result_action="return_value")
    assert not list(tmp_path.iterdir())
