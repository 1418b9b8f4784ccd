"""`poolrl reproduce`: progress on the screen, results on the disk, then tables, figures and the report."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from poolrl.arrays import whole
from poolrl.paper import rossmann
from poolrl.paper.reproduce import carry_out, plan
from poolrl.paper.results import Results
from poolrl.paper.sweeps import SWEEPS
from poolrl.paper.trials import Run

RESULTS = "results.duckdb"
# Without a terminal there is no bar to redraw: a line now and then instead.
LINE_EVERY = 30.0


def run_reproduction(
    what: str, out: Path, *, runs: int | None, quick: bool, workers: int | None, train_csv: Path | None
) -> None:
    """Run what is missing and write the report."""
    console = Console()
    count = workers if workers is not None else os.cpu_count() or 1
    whole(workers=count)
    names = tuple(SWEEPS) if what in ("all", "claims") else (what,)
    source = rossmann.find(train_csv)
    real = None if source is None else rossmann.read(source)
    _say_source(console, real)
    wanted = plan(names, runs=runs, quick=quick, real=real is not None)
    began = time.monotonic()
    with Results(out / RESULTS) as results, _Bars(console) as bars:
        try:
            carry_out(wanted, results, real=real, workers=count, started=bars.started, finished=bars.finished)
        except KeyboardInterrupt:
            raise ValueError(
                f"stopped; every finished run is kept in {out / RESULTS}, run the same again to go on"
            ) from None
        spent = float(results.fact("seconds") or 0) + time.monotonic() - began
        results.note("seconds", f"{spent:.1f}")


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
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
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
