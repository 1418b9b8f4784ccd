"""How large is the page of a release, how long does it take to draw, and when is its first view there?

    python -m benchmarks.pages

Levels are made up, with estimates of demand as fine as a fit's. The browser is Chromium, with a phone's width and a
processor slowed down six times; without Chromium that column stays empty.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from tests.helpers.releases import made_up_forecast, made_up_release

from benchmarks.fitting import best
from benchmarks.report import Report, run
from poolrl.geometry.resolution import PLANNING_BINS
from poolrl.workflow.decision_tables import levels_csv
from poolrl.workflow.page import release_page

REPEATS, SLOWER = 3, 6
SIZES: dict[str, tuple[int, dict[str, Any] | None]] = {
    "40 products": (40, None),
    "500 products": (500, None),
    "935 shops, promotion or not": (1, {"shop": range(935), "promotion": ["no", "yes"]}),
    "230 shops of 40 products": (40, {"shop": range(230)}),
}


def first_view(page: Path) -> str:
    """Milliseconds until the table can be used."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return ""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 360, "height": 740})
        tab.context.new_cdp_session(tab).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
        waited = []
        for _ in range(REPEATS):
            tab.goto(page.as_uri())
            waited.append(tab.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"))
        browser.close()
    return f"{min(waited):,.0f}"


def work(report: Report, _: argparse.Namespace) -> None:
    """Each size once."""
    rows = []
    for name, (products, labels) in SIZES.items():
        release = made_up_release([f"Product number {i}" for i in range(products)], labels=labels, bins=PLANNING_BINS)
        forecast, policy = made_up_forecast(release), release.policy
        text = release_page(release, forecast)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "report.html"
            file.write_text(text, encoding="utf-8")
            seen = first_view(file)
        drawn = best(partial(release_page, release, forecast), REPEATS)
        csv = best(partial(levels_csv, policy), REPEATS)
        weight = f"{len(text.encode()) / 1e6:.2f}"
        rows.append([name, f"{policy.levels.size:,}", weight, f"{drawn:.2f}", f"{csv:.2f}", seen])
    header = ("release", "levels", "page, MB", "drawn in, s", "levels.csv in, s", "first view, ms")
    report.table(header, rows)
    report.text(f"Best of {REPEATS}, without the forecast. The first view is on a processor {SLOWER} times as slow.")


if __name__ == "__main__":
    run(Report("pages", "The page of a release"), work)
