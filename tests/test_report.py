"""The report: nothing from outside, everything marked, tables that hold together, and the command around it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from poolrl.cli import reproduce as command
from poolrl.cli.main import app
from poolrl.paper import figures
from poolrl.paper.pages import _svg, markdown, page, save_figures
from poolrl.paper.report import NOT_PRIVATE, Origin, sections
from poolrl.paper.results import Results
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sections import Section, number
from tests.helpers.made_up_rows import as_the_paper_says, made_up, superlinear_grid
from tests.helpers.processes import program, wait_until
from tests.helpers.sweeps import SMALL, do, small_plan, stored
from tests.helpers.train_csv import write_train_csv


@pytest.fixture(scope="module")
def parts() -> list[Section]:
    weeks = np.random.default_rng(0).uniform(0, 9000, (40, 7, 8)) * (np.arange(7) < 6)[:, None]
    table = made_up(as_the_paper_says, seeds=5, seconds=superlinear_grid)
    found = sections(table, origin=Origin(100, 90.0, "2", "0" * 32), source=Rossmann(weeks, "0" * 32))
    assert set(found) == {"claims", "rq1", "rq2", "rq3", "sensitivity", "qlearning", "theory", "settings"}
    return [part for group in found.values() for part in group]


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.tags: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href") and not str(value).startswith(("data:", "#")):
                self.outside.append(str(value))
        if tag == "img":
            self.images.append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_asks_for_nothing_from_outside(parts: list[Section]) -> None:
    text = page(parts)
    reader = Page()
    reader.feed(text)
    assert reader.open == []
    assert reader.outside == []
    assert not {"script", "link", "iframe"} & set(reader.tags)
    assert "@import" not in text
    assert "url(" not in text
    assert len(reader.images) == 7
    assert all(image["alt"] for image in reader.images)
    assert NOT_PRIVATE in text
    assert 'class="holds"' in text


def test_what_the_rows_hold_cannot_become_markup() -> None:
    text = page([Section("<b>title</b>", ("<script>alert(1)</script>",), ("a",), (("<img src=x>",),))])
    assert "<script>" not in text
    assert "<img" not in text
    assert "&lt;b&gt;title" in text


def test_tables_hold_together(parts: list[Section]) -> None:
    text = markdown(parts)
    assert NOT_PRIVATE in text
    for part in parts:
        assert all(len(row) == len(part.header) for row in part.rows), part.title
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(re.match(r"^\| .* \|$", line) for line in tables)
    for claim in ("POOL beats input perturbation at every ρ", "The gap falls as M grows", "POOL satisfies ρ-zCDP"):
        (row,) = [line for line in tables if claim in line and ("synthetic" in line or "neighbouring" in line)]
        assert row.count("**holds**") == 3
    assert "ρ = 1 (ε = 7.77)" in text  # ε stands beside ρ


@pytest.mark.slow
def test_pictures(parts: list[Section], tmp_path: Path) -> None:
    save_figures(parts, tmp_path)
    names = {path.stem for path in tmp_path.glob("*.svg")}
    assert names == {"rq1", "rq1-more", "rq2", "rq3", "acf", "sample-size", "why"}
    for path in tmp_path.glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    figure = next(part.figure[2] for part in parts if part.figure and part.figure[0] == "rq1")
    for axes in figure.axes:
        assert axes.get_xscale() == "log"
        assert "ρ" in axes.get_xlabel()
        assert any("ε" in child.get_xlabel() for child in axes.child_axes)
    assert {axes.get_title(loc="left") for axes in figure.axes} == {"synthetic", "Rossmann, Store 1"}


def test_the_same_rows_give_the_same_picture() -> None:
    table = made_up(as_the_paper_says, seeds=2)
    first, again = (_svg(figures.fallbacks(table)) for _ in range(2))
    assert first == again


def test_numbers_are_short() -> None:
    assert [number(value) for value in (1234.5, 12.34, 1.234, 0.0123, -0.0004)] == [
        "1234",
        "12.3",
        "1.23",
        "0.012",
        "-0.000",
    ]


def test_the_command_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """One small sweep through the command: it runs, resumes, prints and writes."""
    monkeypatch.delenv("POOLRL_ROSSMANN", raising=False)
    wanted = replace(small_plan(), settings=(SMALL, replace(SMALL, method="input")))
    monkeypatch.setattr(command, "plan", lambda names, **_: wanted)
    arguments = {"runs": None, "quick": False, "workers": 1, "train_csv": None}
    command.run_reproduction("rq1", tmp_path, **arguments)
    said = capsys.readouterr().out
    assert "Rossmann: left out" in said
    assert "runs: 4 to do" in said
    assert "NOT PRIVATE" in said
    command.run_reproduction("claims", tmp_path, **arguments)
    said = capsys.readouterr().out
    assert "runs: 0 to do" in said
    assert "undecided" in said  # two seeds decide nothing
    text = (tmp_path / "results.md").read_text()
    assert "| Rossmann | not used" in text
    assert "1 at a time |" in text
    assert "A *quick* look" not in text
    assert {path.name for path in tmp_path.iterdir()} >= {"results.sqlite", "report.html", "results.md", "figures"}


def test_claims_are_printed_with_their_statistics(parts: list[Section], capsys) -> None:
    """Also those of a section without text, on a narrow terminal too."""
    console = Console(width=100)
    for part in parts:
        if part.header[:1] == ("claim",):
            command._print(console, part, brief=False)
            command._print(console, part, brief=True)
    said = " ".join(capsys.readouterr().out.split())
    assert "POOL beats input perturbation at every ρ (normal demand)" in said
    assert "5 seeds" in said


@pytest.mark.parametrize("moment", [pytest.param("at once", marks=pytest.mark.slow), "with rows"])
def test_ctrl_c_keeps_what_was_done(moment: str, tmp_path: Path) -> None:
    """A real interrupt to the whole group, as a terminal sends it: one line, no traceback, and the rows are there."""
    arguments = ["reproduce", "qlearning", "--runs", "50", "--workers", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(
        program("interruptible_poolrl", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: stored(tmp_path / "results.sqlite") >= (0 if moment == "at once" else 3))
    os.killpg(process.pid, signal.SIGINT)
    _, complaint = process.communicate(timeout=90)
    assert "Traceback" not in complaint
    assert process.returncode == 130
    if moment == "at once" and "poolrl: stopped\n" in complaint:  # before the first run there is nothing to say
        return
    assert "stopped; every finished run is kept" in complaint.replace("\n", " ")
    with Results(tmp_path / "results.sqlite", read_only=True) as results:
        assert len(results.runs()) >= (0 if moment == "at once" else 3)


def test_a_report_names_the_train_csv_of_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POOLRL_ROSSMANN", raising=False)
    do(replace(small_plan(), runs=1), tmp_path / "results.sqlite")
    with Results(tmp_path / "results.sqlite") as results:
        results.same_source("a" * 32)
    other = write_train_csv(tmp_path / "train.csv")
    with pytest.raises(ValueError, match="holds runs on another train"):
        command.run_reproduction("report", tmp_path, runs=None, quick=False, workers=1, train_csv=other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rq11"], "there is no sweep 'rq11'; did you mean rq1? choose from all, rq1, rq2, rq3"),
        (
            ["report", "--out", "nowhere"],
            "there are no results at nowhere/results.sqlite: run `poolrl reproduce` first",
        ),
        (["rq1", "--rossmann", "gone.csv"], "--rossmann names gone.csv, which is not a file"),
        (["rq1", "--backend", "dask"], "backend must be one of loky, ray, spark, got 'dask'"),
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


def test_a_refusal_is_one_line(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "poolrl.cli.main", "reproduce", "rq11"], capture_output=True, text=True, cwd=tmp_path
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("poolrl: there is no sweep 'rq11'; did you mean rq1? choose from")
    assert answer.stderr.count("\n") == 1
