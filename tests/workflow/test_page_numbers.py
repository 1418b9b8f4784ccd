"""The numbers inside the page and in levels.csv are the policy's, they stay small, and names do no harm there."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl import Policy
from poolrl.learning.policy import Levels
from poolrl.workflow.decision_tables import levels_csv
from poolrl.workflow.page import page_numbers, release_page
from poolrl.workflow.release_folder import Released
from tests.helpers.releases import WEEK, made_up_forecast, made_up_release
from tests.helpers.shops import Run

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--<script>",
    "O'Neill & Söhne",
    "=HYPERLINK(1)",
    'a "quoted", name',
    "{{ 7 * 7 }}",
    "\u2028line",
]


def page_of(release: Released, **forecast: Any) -> str:
    """Its page, with a forecast that nobody made."""
    return release_page(release, replace(made_up_forecast(release), **forecast))


class Texts(HTMLParser):
    """What stands in each tag, and which scripts there are."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag in ("th", "td"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._inside in ("th", "td"):
            self.cells[-1] += data

    def json(self, name: str) -> Any:
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == name))


def decoded(numbers: dict[str, Any], name: str) -> np.ndarray:
    """What the page's script reads: little-endian pairs of bytes, in units of each product's last decimal."""
    whole = np.frombuffer(base64.b64decode(numbers[name]), dtype="<u2")
    sizes = [len(axis["values"]) for axis in numbers["axes"]]
    return whole.reshape(*sizes[:-1], len(numbers["steps"]), sizes[-1]) / 10.0 ** np.array(numbers["digits"])


@pytest.mark.parametrize("labels", [None, {"shop": [1, 2, 7], "promotion": ["no", "yes"]}], ids=["plain", "labels"])
@pytest.mark.parametrize("scaled", [False, True], ids=["amounts", "multiples"])
def test_the_page_holds_the_policy(labels: dict[str, list[Any]] | None, scaled: bool) -> None:
    release = made_up_release(["bread", "milk", "salad"], labels=labels, scaled=scaled)
    policy = release.policy
    embedded = Texts(page_of(release)).json("levels-data")
    half = 0.5 * 10.0 ** -np.array(embedded["digits"]) + 1e-9
    assert (np.abs(decoded(embedded, "levels") - policy.levels) <= half).all()
    assert [axis["name"] for axis in embedded["axes"]] == [*(labels or {}), "product"]
    assert embedded["axes"][-1]["values"] == ["bread", "milk", "salad"]
    # Whiskers: a tenth of the estimated demand lies below the lower end, and a tenth above the upper.
    outcomes = policy.outcomes
    width = np.diff(outcomes.points, axis=-1)[..., 0]
    for name, share in (("low", 0.1), ("high", 0.9)):
        end = decoded(embedded, name)[..., None]
        points, room = outcomes.points[..., None, :, :], (half + width)[..., None, :, None]
        assert (np.where(points <= end + room, outcomes.weights, 0).sum(axis=-1) >= share - 1e-9).all()
        assert (np.where(points <= end - room, outcomes.weights, 0).sum(axis=-1) <= share + 1e-9).all()


def test_levels_are_marked_where_nobody_tried_more() -> None:
    """By hand: λ = 0.9 of 10 is 9, and one past order in ten or more went up to 6."""
    release = made_up_release(["bread"], steps=["Mon", "Tue", "Wed"])
    bound, outcomes = float(release.policy.problem.demand_max[0]), release.policy.outcomes
    bins = outcomes.weights.shape[-1]
    cutoffs = np.zeros_like(outcomes.weights)
    cutoffs[..., 3], cutoffs[..., bins * 6 // 10], cutoffs[..., -1] = 0.8, 0.15, 0.05
    levels = Levels(np.array([[0.3], [0.8], [0.9]]) * bound)
    numbers = page_numbers(replace(release.policy, rule=levels, outcomes=replace(outcomes, cutoffs=cutoffs)))
    assert list(base64.b64decode(numbers["marks"])) == [0, 1, 2]
    end = (bins * 6 // 10 + 1) / bins * bound
    np.testing.assert_allclose(decoded(numbers, "tried").ravel(), end, atol=0.06)


def rows_of(text: str) -> list[list[str]]:
    assert text.startswith("\ufeff")  # a spreadsheet needs it
    return list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")))


@pytest.mark.parametrize("labels", [None, {"shop": [-1, 2, 7], "promotion": ["no", "yes"]}], ids=["plain", "labels"])
def test_the_csv_holds_the_policy(labels: dict[str, list[Any]] | None) -> None:
    policy = made_up_release(["bread", "milk"], labels=labels).policy
    header, *rows = rows_of(levels_csv(policy))
    assert header == [*(labels or {}), "product", "step", "level"]
    found = {tuple(row[:-1]): float(row[-1]) for row in rows}
    # The last axes are steps, then products.
    named = product(*((str(value) for value in values) for values in (labels or {}).values()), WEEK, ["bread", "milk"])
    expected = {
        (*cell, name, step): level for (*cell, step, name), level in zip(named, policy.levels.flat, strict=True)
    }
    assert len(rows) == len(expected)
    assert found == pytest.approx(expected, rel=5e-6)


def test_hostile_names_are_text_everywhere() -> None:
    """In the table, in the data of the script, in labels and in the CSV; no name becomes markup, script or formula."""
    release = made_up_release(HOSTILE, labels={"</script>shop": [*HOSTILE[:3], "x"]}, steps=['<b onload="x">', "b"])
    read, plain = Texts(page_of(release)), Texts(page_of(made_up_release(["a"], steps=["a", "b"])))
    assert {tag for tag, _ in read.tags} == {tag for tag, _ in plain.tags}  # no name opened a tag of its own
    assert len(read.scripts) == len(plain.scripts) == 2
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    embedded = read.json("levels-data")
    assert [axis["name"] for axis in embedded["axes"]] == ["</script>shop", "product"]
    assert [axis["values"] for axis in embedded["axes"]] == [[*HOSTILE[:3], "x"], HOSTILE]
    assert set(HOSTILE) <= set(read.cells)  # as they are, unescaped by the parser
    for attributes, text in read.scripts:
        assert attributes.get("type") != "application/json" or not re.search(r"[<>&]", text)
    names = {row[1] for row in rows_of(levels_csv(release.policy))[1:]}
    assert names == {*HOSTILE, "'=HYPERLINK(1)"} - {"=HYPERLINK(1)"}


def test_the_first_numbers_are_the_costs() -> None:
    """Before any level and before privacy; what is not known is said to be."""
    release, told = made_up_release(["bread"], scaled=True), {"verdict": "do not switch", "because": "A reason."}
    page = page_of(release, **told)
    body = page[page.index("<main") :]
    assert ">Do not switch</h2>" in body
    shown = re.findall(r'<dd class="mean">([^<]+)</dd><dd class="between">([^<]+)</dd>', body)
    assert shown == [("412", "390 to 440"), ("371", "352 to 395"), ("350", "340 to 361")]
    places = [body.index(each) for each in (">412<", 'id="levels"', "differential privacy", 'id="leaflet"')]
    assert places == sorted(places)
    assert "this many times the average of the last 4 same weekdays" in page
    some = page_of(release, **told | {"today": None, "unknown": "Orders of today are not known."})
    assert "Orders of today are not known." in some
    assert '<dd class="missing">not known</dd>' in some
    assert page_of(release, **told, warning="Much noise.").count("Much noise.") == 2  # also beside the budget


def test_report_draws_page_and_levels_again_to_the_byte(released: Path, run: Run) -> None:
    page, levels = (released / "release" / name for name in ("report.html", "levels.csv"))
    before = page.read_bytes(), levels.read_bytes()
    assert before[1] == levels_csv(Policy.load(released / "release" / "policy.npz")).encode()
    page.unlink()
    levels.unlink()
    said = run("report", released / "release")
    assert (page.read_bytes(), levels.read_bytes()) == before
    assert "levels.csv" in said.replace("\n", "")
    levels.unlink()
    levels.symlink_to(released / "elsewhere")
    with pytest.raises(ValueError, match=r"levels.csv is a link"):
        run("report", released / "release")
