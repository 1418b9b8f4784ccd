"""The report: nothing from outside, everything marked, tables that hold together, and the command around it."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from poolrl.cli import reproduce as command
from poolrl.cli.main import app
from poolrl.paper import figures
from poolrl.paper.figures import Section
from poolrl.paper.results import Results, Runs
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import NAMES, Setting
from poolrl.paper.write_up import (
    HEADLINE_METHODS,
    SEEDED_NOTICE,
    Origin,
    page,
    report_sections,
    save_figures,
    summary_section,
    svg,
)
from tests.helpers.made_up_rows import as_the_paper_says, made_up, superlinear_grid
from tests.helpers.processes import environment, program, wait_until
from tests.helpers.sweeps import SMALL, small_plan, stored

# One worker makes the sections.
pytestmark = pytest.mark.xdist_group("report")


@pytest.fixture(scope="module")
def parts() -> list[Section]:
    weeks = np.random.default_rng(0).uniform(0, 9000, (40, 7, 8)) * (np.arange(7) < 6)[:, None]
    table = made_up(as_the_paper_says, seeds=5, seconds=superlinear_grid)
    found = report_sections(table, origin=Origin(100, 90.0, "2", "0" * 32), source=Rossmann(weeks, "0" * 32))
    assert set(found) == {"summary", "claims", "rq1", "rq2", "rq3", "sensitivity", "settings"}
    return [part for group in found.values() for part in group]


class Page(HTMLParser):
    """The tags of a page, each closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.slow
def test_the_page_asks_for_nothing_from_outside(parts: list[Section]) -> None:
    """And what rows hold cannot become markup."""
    left_out = [part for part in parts if part.picture][1:]
    planted = Section("<b>title</b>", ("<script>alert(1)</script>",), ("a",), (("<img src=x>",),))
    text = page([planted, *(part for part in parts if part not in left_out)], "html")
    tags = Page(text).tags
    places = [known[name] for _, known in tags for name in ("src", "href") if name in known]
    assert all(str(place).startswith(("data:", "#")) for place in places)
    assert not {"script", "link", "iframe", "b"} & {tag for tag, _ in tags}
    assert not re.search(r"@import|url\(", text)
    (image,) = (known for tag, known in tags if tag == "img")
    assert image["alt"]
    assert SEEDED_NOTICE in text
    assert 'class="holds"' in text
    assert "&lt;b&gt;title" in text


@pytest.mark.slow
def test_tables_hold_together(parts: list[Section]) -> None:
    text = page(parts, "md")
    assert SEEDED_NOTICE in text
    for part in parts:
        assert all(len(row) == len(part.header) for row in part.rows), part.title
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(re.match(r"^\| .* \|$", line) for line in tables)
    for claim in ("POOL beats input perturbation at every ρ", "The gap falls as M grows", "POOL satisfies ρ-zCDP"):
        (row,) = [line for line in tables if claim in line and ("synthetic" in line or "neighbouring" in line)]
        assert row.count("**holds**") == 3
    headers = {cell for part in parts for cell in part.header}
    assert headers >= {"ρ = 1 (ε = 7.77)", "ρ = 0.1 (ε = 2.15)"}  # ε stands beside ρ, rounded up
    summary = parts[0]
    assert summary.text[1].startswith("17 of the paper's 17 claims hold for the default Pool")
    assert [row[0] for row in summary.rows] == [NAMES[method] for method in HEADLINE_METHODS]
    assert (summary.rows[0][1:4], summary.rows[-1][1:4]) == (("17", "0", "0"), ("", "", ""))
    assert text.index(SEEDED_NOTICE) < text.index("figures/rq1.svg") < text.index(summary.text[0])


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


@pytest.mark.slow
def test_pictures(parts: list[Section], tmp_path: Path) -> None:
    save_figures(parts, tmp_path)
    names = {path.stem for path in tmp_path.glob("*.svg")}
    assert names == {"rq1", "rq1-more", "rq2", "rq3", "acf", "sample-size", "why"}
    for path in tmp_path.glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    figure = parts[0].picture.figure
    assert all(axes.get_xscale() == "log" and "ρ" in axes.get_xlabel() for axes in figure.axes)
    upper = [child for axes in figure.axes for child in axes.child_axes]
    assert any("ε" in child.get_xlabel() for child in upper)
    assert {"2.15"} == {"2.15", "2.1"} & {label.get_text() for child in upper for label in child.get_xticklabels()}
    assert {axes.get_title(loc="left") for axes in figure.axes} == {"synthetic", "Rossmann, Store 1"}


def test_the_same_rows_give_the_same_picture() -> None:
    table = made_up(as_the_paper_says, seeds=2)
    first, again = (svg(figures.fallbacks(table)) for _ in range(2))
    assert first == again


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


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_done(tmp_path: Path) -> None:
    """A real interrupt to the whole group, as a terminal sends it: one line, no traceback, and the rows are there."""
    arguments = ["reproduce", "sensitivity", "--runs", "50", "--workers", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(
        program("quick_poolrl", *arguments),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: stored(tmp_path / "results.jsonl") >= 3)
    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate(timeout=90)
    assert "Traceback" not in complaint
    assert process.returncode == 130
    assert "stopped; every finished run is kept" in complaint.replace("\n", " ")
    with Results(tmp_path / "results.jsonl", read_only=True) as results:
        assert len(results.runs()) >= 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rq11"], "there is no sweep 'rq11'; did you mean rq1?"),
        (["report", "--out", "nowhere"], "no results at nowhere/results.jsonl: run `poolrl reproduce` first"),
        (["rq1", "--rossmann", "gone.csv"], "--rossmann names gone.csv, which is not a file"),
        (["rq1", "--workers", "0"], "workers must be a whole number of at least 1, got 0"),
        (["rq1", "--runs", "-1"], "runs must be a whole number of at least 1, got -1"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
        app(["reproduce", *arguments], result_action="return_value")
    assert not list(tmp_path.iterdir())
