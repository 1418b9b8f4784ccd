"""The page, in a real browser: it shows the policy, nothing leaves it, everybody can use it."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolrl.workflow.decision_tables import levels_csv
from poolrl.workflow.page import release_page
from poolrl.workflow.release_folder import Released
from tests.helpers.releases import made_up_forecast, made_up_release
from tests.helpers.shops import Run

OFF = ("gpu", "quic", "background-networking", "component-update", "sync")
QUIET = ["--no-sandbox", "--no-first-run", *(f"--disable-{each}" for each in OFF)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        if os.environ.get("POOLRL_TEST_EVERYTHING"):
            pytest.fail("Chromium is not installed")
        pytest.skip("needs Chromium (Debian: chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page of a release from the file system; fails if it complained or asked for anything but itself."""
    complaints, requests, contexts = [], [], []

    def open_page(release: Released, **more: Any) -> Any:
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(release_page(release, made_up_forecast(release)), encoding="utf-8")
        contexts.append(browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | more))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_page
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file://", "blob:"))] == []
    assert sum(url.startswith("file://") for url in requests) == len(contexts)
    for context in contexts:
        context.close()


def names_shown(page: Any) -> list[str]:
    return page.locator("button.name").all_inner_texts()


def levels_shown(page: Any, steps: int = 7) -> list[list[float]]:
    rows = page.locator("table.levels > tbody > tr")
    return [[float(cell) for cell in row.locator("td.wide").all_inner_texts()[:steps]] for row in rows.all()]


@pytest.fixture
def small() -> Released:
    """Two products on three days."""
    return made_up_release(["bread", "milk"], steps=["Fri", "Sat", "Sun"])


def test_the_page_shows_the_policy(opened: Callable[..., Any], small: Released) -> None:
    page, levels = opened(small), small.policy.levels.T
    np.testing.assert_allclose(levels_shown(page, 3), levels, rtol=0.005)
    page.get_by_role("button", name="bread").click()
    bars = page.locator("figure svg rect.bar")
    height = np.array([float(bar.get_attribute("height")) for bar in bars.all()])
    np.testing.assert_allclose(height, levels[0] / levels[0, 0] * height[0], atol=0.2)
    page.emulate_media(media="print")
    assert 1 < len(re.findall(rb"/Type /Page\b", page.pdf(format="A4"))) < 9


def test_everybody_can_use_it(opened: Callable[..., Any], small: Released) -> None:
    """Everything can be reached from the keyboard, and pictures have alternatives."""
    page = opened(small)
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.slice(0, 30)"))
    assert reached[0] == "Skip to the content"
    assert {"search", "sort", "download", "milk"} <= set(reached)
    page.get_by_role("button", name="milk").focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("button", name="milk").get_attribute("aria-expanded") == "true"
    assert page.get_by_role("table", name="Levels of milk").is_visible()
    page.get_by_role("button", name="bread").click()
    assert page.locator("svg[role=img]").count() == 2 + 2  # rows, and what was opened
    for picture in page.locator("svg:not([aria-hidden=true])").all():
        assert picture.get_attribute("role") == "img"
        if not picture.get_attribute("aria-label"):
            described = [picture.get_attribute(f"aria-{how}") for how in ("labelledby", "describedby")]
            assert all(page.locator(f"#{name}").text_content().strip() for name in described)


def test_levels_of_every_shop_can_be_picked(opened: Callable[..., Any]) -> None:
    """Rows are shops, products or promotions; every view shows the policy's own number."""
    shops, products = [f"shop {i}" for i in range(12)], ["bread", "milk", "salad"]
    release = made_up_release(products, labels={"shop": shops, "promotion": ["no", "yes"]}, scaled=True)
    levels, page = release.policy.levels, opened(release)
    assert names_shown(page) == shops
    page.locator("#pick-1").select_option(label="yes")
    page.locator("#pick-2").select_option(label="salad")
    np.testing.assert_allclose(levels_shown(page), levels[:, 1, :, 2], atol=0.0051)
    page.locator("#rows").select_option(label="product")
    page.locator("#pick-0").select_option(label="shop 7")
    assert names_shown(page) == products
    np.testing.assert_allclose(levels_shown(page), levels[7, 1].T, atol=0.0051)
    page.get_by_role("button", name="milk").click()
    detail = page.get_by_role("table", name="Levels of shop shop 7, promotion yes, milk")
    cells = [row.locator("td").first.inner_text() for row in detail.locator("tbody tr").all()]
    np.testing.assert_allclose([float(cell) for cell in cells], levels[7, 1, :, 1], atol=0.0051)
    page.locator("#pick-0").select_option(label="shop 3")  # what is open stays open, with the new numbers
    detail = page.get_by_role("table", name="Levels of shop shop 3, promotion yes, milk")
    assert float(detail.locator("tbody td").first.inner_text()) == pytest.approx(levels[3, 1, 0, 1], abs=0.0051)


def test_the_download_is_made_in_the_page(opened: Callable[..., Any]) -> None:
    """The same lines as levels.csv, to the precision that the page shows; and formulas are text."""
    products = ["bread", '=cmd|"x"', "a, b"]
    release = made_up_release(products, labels={"shop": [-1, 2]})
    page = opened(release)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download all levels (CSV)").click()
    assert download.value.suggested_filename == "levels.csv"
    texts = Path(download.value.path()).read_text(encoding="utf-8"), levels_csv(release.policy)
    ours, file = (list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))) for text in texts)
    assert [row[:-1] for row in ours] == [row[:-1] for row in file]
    np.testing.assert_allclose([float(row[-1]) for row in ours[1:]], [float(row[-1]) for row in file[1:]], atol=0.051)
    assert ours[8][1] == '\'=cmd|"x"'
    assert all(text.startswith("\ufeff") for text in texts)


def test_hostile_names_stay_text_in_the_browser(opened: Callable[..., Any]) -> None:
    """The fixture fails if one of them runs, writes to the console or asks for anything."""
    products = ["<img src=x onerror=console.log(1)>", "</script><script>console.log(1)</script>", "a'b\"c&amp;"]
    page = opened(made_up_release(products, labels={"<b>shop": ["<i>1", "2"]}))
    assert names_shown(page) == products
    for name in products:
        page.get_by_role("button", name=name).click()
    assert page.locator("main img, main b, main i").count() == 0
    assert page.locator(".unfolded caption").all_inner_texts() == [
        f"Levels of <b>shop <i>1, {name}" for name in products
    ]


def test_nothing_can_leave_the_page(one_release: Path) -> None:
    """Its own policy forbids every fetch, and no address of another place stands in it."""
    text = (one_release / "release" / "report.html").read_text()
    assert "default-src 'none'" in text
    text = text.replace('"http://www.w3.org/2000/svg"', "")  # the name of a kind of element, which no browser fetches
    assert not re.findall(r"(?:https?:)?//[a-z]", text)
    assert not re.findall(r"<(?:img|link|iframe|object|embed)\b|url\(|@import", text)


def test_no_page_for_a_broken_pair(released: Path, run: Run) -> None:
    path = released / "release" / "certificate.json"
    path.write_text(path.read_text().replace('"rho": "1/2"', '"rho": "1/4"'))
    with pytest.raises(ValueError, match="does not hold"):
        run("report", released / "release")
