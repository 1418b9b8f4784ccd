"""The page, in a real browser: the slider moves the numbers, nothing leaves it, everybody can use it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from poolrl import Policy
from poolrl.cli.main import app
from poolrl.privacy.zcdp import epsilon
from tests.helpers.shops import Run, small_shop, write_config

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


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


@pytest.fixture(scope="module")
def full_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release whose page has the complete forecast."""
    folder = tmp_path_factory.mktemp("page")
    config = write_config(folder, small_shop(folder))
    app(["fit", "--new-account", "--config", str(config), "--json"], result_action="return_value")
    return folder / "release"


@pytest.fixture
def report(full_release: Path) -> Path:
    return full_release / "report.html"


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The page from the file system; fails afterwards if it complained or asked for anything but itself."""
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    complaints, requests = [], []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(report.as_uri())
    yield opened
    assert complaints == []
    assert requests == [report.as_uri()]
    opened.close()


def numbers(page: Any) -> dict[str, str]:
    return {key: page.locator(f"#{key}").inner_text() for key in ("rho", "epsilon", "attack", "cost", "gap")}


def test_the_slider_moves_the_numbers(page: Any) -> None:
    grid = json.loads(page.locator("#grid").text_content())
    slider = page.get_by_role("slider", name="Privacy budget")
    assert numbers(page)["rho"] == "0.5"  # begins where the budget was spent
    assert page.locator("#spent").inner_text() == "This is the budget that was spent."
    seen = []
    slider.focus()
    page.keyboard.press("Home")
    for number, point in enumerate(grid):
        shown = numbers(page)
        assert shown == {key: point[key] for key in shown}
        assert float(shown["epsilon"]) == pytest.approx(epsilon(float(shown["rho"]), 1e-6) + 0.005, abs=0.0051)
        marker = page.locator("#marker")
        assert (float(marker.get_attribute("cx")), float(marker.get_attribute("cy"))) == (point["x"], point["y"])
        assert slider.get_attribute("aria-valuetext") == f"rho {shown['rho']}, predicted cost {shown['cost']}"
        seen.append(float(shown["rho"]))
        assert slider.input_value() == str(number)
        page.keyboard.press("ArrowRight")
    assert seen == sorted(seen)
    assert "The budget that was spent is 0.5." in page.locator("#spent").inner_text()
    assert float(grid[0]["cost"]) > float(grid[-1]["cost"])  # privacy costs something


def test_the_page_shows_the_policy(page: Any, full_release: Path) -> None:
    levels = Policy.load(full_release / "policy.npz").levels
    page.locator("summary", has_text="All levels").click()
    table = page.get_by_role("region", name="Order-up-to levels").locator("tbody tr")
    shown = [[float(cell) for cell in row.locator("td").all_inner_texts()] for row in table.all()]
    assert shown == pytest.approx([pytest.approx(row, abs=0.051) for row in levels.tolist()])
    bars = page.locator("svg .bar")
    assert bars.count() == levels.size
    height = [float(bar.get_attribute("height")) for bar in bars.all()[:3]]  # bread
    assert height == pytest.approx(levels[:, 0] / levels[0, 0] * height[0], abs=0.4)
    assert page.locator("h1").inner_text() == "Weekend orders"
    assert "Ann & <Bob>" in page.locator("pre").text_content()  # escaped, not run


def test_everybody_can_use_it(page: Any) -> None:
    """Landmarks, one h1, headings in order, names for everything that can be reached, alternatives for pictures."""
    assert page.locator("h1").count() == 1
    order = [int(tag[1]) for tag in page.eval_on_selector_all("h1, h2, h3", "all => all.map(e => e.tagName)")]
    assert all(after - before <= 1 for before, after in pairwise(order))
    assert page.locator("html").get_attribute("lang") == "en"
    for picture in page.locator("svg").all():
        described = [picture.get_attribute(f"aria-{how}") for how in ("labelledby", "describedby")]
        assert picture.get_attribute("role") == "img"
        assert all(page.locator(f"#{name}").text_content().strip() for name in described)
    for table in page.locator("table").all():
        assert table.locator("caption").inner_text() or not table.is_visible()
        assert table.locator("thead th:not([scope=col])").count() == 0
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.slice(0, 30)"))
    assert reached[0] == "Skip to the content"
    assert "rho-slider" in reached
    assert "All levels as a table" in reached


def contrast(page: Any, text: str, ground: str) -> float:
    """WCAG's ratio between two custom properties of the style sheet."""

    def luminance(name: str) -> float:
        colour = page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('{name}')").strip()
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    one, other = sorted([luminance(text), luminance(ground)])
    return (other + 0.05) / (one + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_in_the_light_and_in_the_dark(browser: Any, report: Path, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(report.as_uri())
    for text in ("--ink", "--quiet", "--accent", "--whisker", "--limit"):
        for ground in ("--paper", "--card"):
            assert contrast(page, text, ground) >= 4.5, (text, ground)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 28)")
    page.close()


def test_it_fits_a_phone(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 360  # nothing to scroll sideways
    assert page.locator("#rho-slider").bounding_box()["width"] > 120
    size = page.evaluate(
        "(() => { const t = document.querySelector('svg text'); "
        "return parseFloat(getComputedStyle(t).fontSize) * t.ownerSVGElement.getBoundingClientRect().width / 480 })()"
    )
    assert size > 10  # pixels of a label in a picture
    page.close()


def test_it_prints(browser: Any, report: Path) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    page.emulate_media(media="print")
    assert not page.locator("#rho-slider").is_visible()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.get_by_role("region", name="Predicted cost by budget").is_visible()
    printed = page.pdf(format="A4")
    assert 1 < len(re.findall(rb"/Type /Page\b", printed)) < 9
    page.close()


def test_without_a_script_the_numbers_are_there(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert numbers(page)["rho"] == "0.5"
    context.close()


def test_nothing_can_leave_the_page(one_release: Path) -> None:
    """Its own policy forbids every fetch, and no address of another place stands in it."""
    text = (one_release / "release" / "report.html").read_text()
    assert "default-src 'none'" in text
    assert not re.findall(r"(?:https?:)?//[a-z]", text)
    assert not re.findall(r"<(?:img|link|iframe|object|embed)\b|url\(|@import", text)


def test_the_page_is_drawn_again_to_the_byte(released: Path, run: Run) -> None:
    before = (released / "release" / "report.html").read_bytes()
    (released / "release" / "report.html").unlink()
    run("report", released / "release")
    assert (released / "release" / "report.html").read_bytes() == before


def test_no_page_for_a_broken_pair(released: Path, run: Run) -> None:
    path = released / "release" / "certificate.json"
    path.write_text(path.read_text().replace('"rho": "1/2"', '"rho": "1/4"'))
    with pytest.raises(ValueError, match="does not hold"):
        run("report", released / "release")
