"""`poolrl reproduce`: progress on the screen, results on the disk, then tables, figures and the report."""

from __future__ import annotations

import time
from difflib import get_close_matches
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import TaskID
from rich.table import Table as RichTable

from poolrl.cli.progress import progress_bar
from poolrl.paper import rossmann
from poolrl.paper.backends import Backend, started
from poolrl.paper.pages import markdown, page, save_figures
from poolrl.paper.report import Origin, sections
from poolrl.paper.reproduce import Plan, carry_out, plan
from poolrl.paper.results import Results
from poolrl.paper.sections import Section
from poolrl.paper.statistics import Table
from poolrl.paper.sweeps import SWEEPS
from poolrl.paper.trials import Run

RESULTS = "results.sqlite"
CHOICES = ("all", *SWEEPS, "claims", "report")
COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow", "vacuous": "yellow"}
STATISTIC = 2  # the column of the claims' table that says what is claimed to be positive
# Without a terminal there is no bar to redraw: a line now and then instead.
LINE_EVERY = 30.0


def run_reproduction(
    what: str,
    out: Path,
    *,
    runs: int | None,
    quick: bool,
    workers: int | None,
    train_csv: Path | None,
    backend: str = "loky",
) -> None:
    """Run what is missing, print what was asked for, and write the report."""
    if what not in CHOICES:
        near = get_close_matches(what, CHOICES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"there is no sweep {what!r}; {hint}choose from {', '.join(CHOICES)}")
    console = Console()
    source = rossmann.find(train_csv)
    real = None if source is None else rossmann.read(source)
    if what != "report":
        _say_source(console, real)
        names = tuple(SWEEPS) if what in ("all", "claims") else (what,)
        wanted = plan(names, runs=runs, quick=quick, real=real is not None)
        with started(backend, workers) as running:
            _run_missing(console, wanted, out, real, running, "quick" if quick else "full")
    with Results(out / RESULTS, read_only=True) as results:
        rows, md5 = results.runs(), results.fact("rossmann md5")
        quickly = results.fact("extent") == "quick"
        origin = Origin(len(rows), float(results.fact("seconds") or 0), results.fact("workers") or "?", md5, quickly)
    if real is not None and md5 not in (None, real.md5):
        raise ValueError(f"{out / RESULTS} holds runs on another train.csv (MD5 {md5}); name that one")
    with console.status("writing the report"):
        found = sections(Table(rows), origin=origin, source=real)
        parts = [part for group in found.values() for part in group]
        save_figures(parts, out / "figures")
        (out / "results.md").write_text(markdown(parts))
        (out / "report.html").write_text(page(parts))
    brief = what in ("all", "report")
    for part in found["claims"] if brief else found[what]:
        _print(console, part, brief=brief)
    console.print(f"[red]NOT PRIVATE[/]: seeded noise throughout. {origin.seconds / 60:.1f} minutes of running in all.")
    console.print(f"Open [bold]{out / 'report.html'}[/]; pictures are in {out / 'figures'}, rows in {out / RESULTS}.")


def _run_missing(
    console: Console, wanted: Plan, out: Path, real: rossmann.Rossmann | None, backend: Backend, extent: str
) -> None:
    with Results(out / RESULTS) as results, results.alone(), _Bars(console) as bars:
        results.note("workers", str(backend.workers))
        if results.fact("extent") != "full":
            results.note("extent", extent)
        before, began = float(results.fact("seconds") or 0), time.monotonic()

        def finished(run: Run) -> None:
            results.note("seconds", f"{before + time.monotonic() - began:.1f}")  # now, for there may be no later
            bars.finished(run)

        try:
            carry_out(wanted, results, real=real, backend=backend, started=bars.started, finished=finished)
        except KeyboardInterrupt:
            raise ValueError(
                f"stopped; every finished run is kept in {out / RESULTS}: run the same command again to go on"
            ) from None


def _print(console: Console, part: Section, *, brief: bool) -> None:
    claims = part.header[:1] == ("claim",)
    if claims and not brief:
        _print_claims(console, part)
        return
    if not part.header:
        return
    shown = [number for number in range(len(part.header)) if not (claims and number == STATISTIC)]
    table = RichTable(title=part.title, title_justify="left", title_style="bold")
    for number in shown:
        table.add_column(part.header[number])
    for row in part.rows:
        table.add_row(*(_coloured(row[number], verdict_only=claims) for number in shown))
    console.print(table)


def _print_claims(console: Console, part: Section) -> None:
    """Claim by claim, each learner on a line: the verdict and what decided it."""
    console.print("\n".join([f"[bold]{part.title}[/]", *map(escape, part.text)]) + "\n", highlight=False)
    for claim, data, statistic, *cells in part.rows:
        console.print(f"[bold]{escape(claim)}[/] ({escape(data)}): {escape(statistic)}", highlight=False)
        lines = RichTable(box=None, show_header=False, padding=(0, 1))
        for learner, cell in zip(part.header[STATISTIC + 1 :], cells, strict=True):
            if cell:
                lines.add_row("", escape(learner), _coloured(cell))
        console.print(lines, highlight=False)


def _coloured(cell: str, *, verdict_only: bool = False) -> str:
    verdict, colon, measured = escape(cell).partition("**: ")
    if not colon:
        return verdict
    name = verdict.removeprefix("**")
    return f"[{COLOURS[name]}]{name}[/]" + ("" if verdict_only else f": {measured}")


def _say_source(console: Console, real: rossmann.Rossmann | None) -> None:
    if real is None:
        console.print(
            "Rossmann: left out. Name your copy of Kaggle's train.csv with --rossmann PATH or "
            f"{rossmann.PATH_VARIABLE} to add the runs on real data."
        )
    elif not real.is_kaggles:
        console.print(
            f"[yellow]Rossmann: this train.csv is not the one behind docs/results.md[/] (MD5 {real.md5}, "
            f"expected {rossmann.MD5}). Going on; figures on real data may differ."
        )


class _Bars:
    """A bar with the time left on a terminal, a line every half minute elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = progress_bar(console)
        self._task: TaskID | None = None
        self._stage, self._total, self._done, self._began, self._said = "", 0, 0, 0.0, 0.0

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, stage: str, total: int) -> None:
        """A stage with so many runs begins."""
        self._stage, self._total, self._done = stage, total, 0
        self._began = self._said = time.monotonic()
        self._task = self._progress.add_task(stage, total=total)
        if not self._console.is_terminal:
            self._console.print(f"{stage}: {total:,} to do")

    def finished(self, run: Run) -> None:
        """A run is done and stored."""
        self._done += 1
        if self._task is not None:
            self._progress.advance(self._task)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._said >= LINE_EVERY:
            self._said = now
            left = (now - self._began) / self._done * (self._total - self._done)
            self._console.print(f"{self._stage}: {self._done:,} of {self._total:,}, about {left / 60:.0f} min left")
