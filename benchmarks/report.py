"""Tables of measurements: on the screen always, and into a page of docs with --write."""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


@dataclass
class Report:
    """One benchmark's section of the page, or one part of it.

    Its first line says how it is run again, which code made it, and what it measures, so that `benchmarks.stale` can
    tell whether that has changed since.
    """

    name: str  # of the module, which is how it is run again
    title: str
    measures: Sequence[str]  # rooms and files below src/poolrl
    page: Path = PAGE
    part: str = ""
    parts: list[str] = field(default_factory=list)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
        """Print a table, and keep it for the page."""
        shown = Table(title=title or None, title_justify="left")
        for number, name in enumerate(header):
            shown.add_column(name, justify="right" if number else "left")
        for row in rows:
            shown.add_row(*row)
        Console(width=150).print(shown)
        lines = [f"| {' | '.join(cells)} |" for cells in (header, ["---"] + ["---:"] * (len(header) - 1), *rows)]
        self.parts.append("\n".join(([f"**{title}**", ""] if title else []) + lines))

    def text(self, words: str) -> None:
        """Print a paragraph, and keep it."""
        Console(width=150).print(words + "\n", highlight=False, markup=False)
        self.parts.append(words)

    def write(self) -> None:
        """Put the section where it stood on the page, or at its end."""
        from poolrl.paper.write_up import made_by  # not above: its memory would be measured too

        page = self.page.read_text() if self.page.exists() else "# Benchmarks\n"
        marker = f"{self.name} {self.part}".strip()
        begin, end = f"<!-- {marker} -->", f"<!-- end of {marker} -->"
        machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.machine()}"
        # As it was called, but for paths of this machine.
        given = " ".join(each for each in sys.argv[1:] if each.startswith("--") or each.replace(".", "").isalnum())
        called = given if "--write" in given else "--write"
        measured = ", ".join(f"`{place}`" for place in self.measures)
        made = f"`python -m benchmarks.{self.name} {called}`, {made_by()}, of {measured}; {machine}."
        body = [f"## {self.title}", made, *self.parts]
        section = "\n\n".join([begin, *body, end])
        found = re.search(f"{re.escape(begin)}.*?{re.escape(end)}", page, re.DOTALL)
        page = page.replace(found.group(), section) if found else f"{page.rstrip()}\n\n{section}\n"
        self.page.write_text(page)


def run(report: Report, work: Callable[[Report, argparse.Namespace], None], **options: Any) -> None:
    """The command line of a benchmark: `--write`, and its own `options` as (default, help)."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{report.name}", description=report.title)
    parser.add_argument("--write", action="store_true", help=f"write the tables to docs/{report.page.name}")
    for name, (default, text) in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{text} (default: {default})")
    arguments = parser.parse_args()
    work(report, arguments)
    if arguments.write:
        report.write()


def apart(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Call a function in its own process; its result, and the peak memory of that process in MiB."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured, work, arguments).result()


def _measured(work: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, float]:
    found = work(*arguments)
    status = Path("/proc/self/status")
    # This is the peak of this program alone; `getrusage` would include the program that started it.
    if status.exists():
        return found, int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found, peak / (1024 if sys.platform != "darwin" else 1024**2)
