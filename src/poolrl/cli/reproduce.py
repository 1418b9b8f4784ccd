"""`poolrl reproduce`: runs with their progress, then tables, figures and the report."""

import time
from pathlib import Path
from typing import Annotated

import joblib
from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress
from rich.table import Column, Table

from poolrl.checks import one_of, whole
from poolrl.cli.verbs import verb
from poolrl.paper import rossmann
from poolrl.paper.figures import Section
from poolrl.paper.results import Results, Runs
from poolrl.paper.sweeps import SWEEPS
from poolrl.paper.trials import Run
from poolrl.paper.workers import Plan, carry_out, plan_for
from poolrl.paper.write_up import Origin, page, report_sections, save_figures

RESULTS = "results.jsonl"
CHOICES = ("all", *SWEEPS, "claims", "report")
ROSSMANN_HELP = "Your copy of Kaggle's Rossmann train.csv, plain or .gz; or set POOLRL_ROSSMANN."

reproduce_verb = verb("""\
  poolrl reproduce --quick                                  a first look, in one minute
  poolrl reproduce --rossmann ~/Downloads/train.csv         everything: about five minutes on 2 cores
  poolrl reproduce rq1 --runs 20
  poolrl reproduce claims                                   the verdicts; runs what is missing
  poolrl reproduce report                                   draw again from the results, run nothing

Stopped by Ctrl-C, kill or power cut: the same command goes on where it was.""")


@reproduce_verb.default
def reproduce(
    what: Annotated[str, Parameter(help=f"{', '.join(CHOICES)}: claims runs all sweeps, report runs nothing.")] = "all",
    *,
    out: Annotated[Path, Parameter(help="Folder for results, report and figures.")] = Path("reproduction"),
    runs: Annotated[int | None, Parameter(help="Seeds per setting: 10, as in the paper, or 5 with --quick.")] = None,
    quick: Annotated[bool, Parameter(help="Fewer values, fewer seeds.")] = False,
    workers: Annotated[int | None, Parameter(help="Processes; all cores by default. Rows do not depend on it.")] = None,
    train_csv: Annotated[Path | None, Parameter(name="--rossmann", help=ROSSMANN_HELP)] = None,
) -> None:
    """Run what is missing, print what was asked for, and write the report."""
    one_of(CHOICES, sweep=what)
    console = Console()
    source = rossmann.find(train_csv)
    real = None if source is None else rossmann.read(source)
    if what != "report":
        if real is None:
            bring = f"Name your copy of Kaggle's train.csv with --rossmann PATH or {rossmann.PATH_VARIABLE}"
            console.print(f"Rossmann: left out. {bring} to add the runs on real data.")
        elif not real.is_kaggles:
            found = f"(MD5 {real.md5}, expected {rossmann.MD5}). Going on; figures on real data may differ."
            console.print(f"[yellow]Rossmann: this train.csv is not the one behind docs/results.md[/] {found}")
        names = tuple(SWEEPS) if what in ("all", "claims") else (what,)
        wanted = plan_for(names, runs=runs, quick=quick, real=real is not None)
        processes = joblib.cpu_count() if workers is None else workers
        whole(workers=processes)
        _run_missing(console, wanted, out, real, processes, "quick" if quick else "full")
    with Results(out / RESULTS, read_only=True) as results:
        rows, md5 = results.runs(), results.fact("rossmann md5")
        quickly = results.fact("extent") == "quick"
        origin = Origin(len(rows), float(results.fact("seconds") or 0), results.fact("workers") or "?", md5, quickly)
    if real is not None and md5 not in (None, real.md5):
        raise ValueError(f"{out / RESULTS} holds runs on another train.csv (MD5 {md5}); name that one")
    with console.status("writing the report"):
        sections = report_sections(Runs(rows), origin=origin, source=real)
        parts = [part for group in sections.values() for part in group]
        save_figures(parts, out / "figures")
        (out / "results.md").write_text(page(parts, "md"))
        (out / "report.html").write_text(page(parts, "html"))
    for part in sections["summary" if what in ("all", "report") else what]:
        _print_section(console, part)
    console.print(f"[red]NOT PRIVATE[/]: seeded noise throughout. {origin.seconds / 60:.1f} minutes of running in all.")
    console.print(f"Open [bold]{out / 'report.html'}[/]; pictures are in {out / 'figures'}, rows in {out / RESULTS}.")


def _run_missing(
    console: Console, wanted: Plan, out: Path, real: rossmann.Rossmann | None, workers: int, extent: str
) -> None:
    """With a bar and the time left on a terminal, with a line for each stage elsewhere."""
    bars = Progress(console=console, disable=not console.is_terminal)
    with Results(out / RESULTS) as results, bars:
        results.note("workers", str(workers))
        if results.fact("extent") != "full":
            results.note("extent", extent)
        before, began = float(results.fact("seconds") or 0), time.monotonic()

        def begun(stage: str, total: int) -> None:
            bars.add_task(stage, total=total)
            if bars.disable:
                console.print(f"{stage}: {total:,} to do")

        def finished(_: Run) -> None:
            bars.advance(bars.tasks[-1].id)

        try:
            carry_out(wanted, results, real=real, workers=workers, started=begun, finished=finished)
        except KeyboardInterrupt:
            kept = f"every finished run is kept in {out / RESULTS}"
            raise ValueError(f"stopped; {kept}: run the same command again to go on") from None
        finally:
            results.note("seconds", f"{before + time.monotonic() - began:.1f}")


def _print_section(console: Console, part: Section) -> None:
    """Verdicts are a list, each learner on a line: a terminal is too narrow for a table of them."""
    verdicts = part.header[1:2] == ("data",)
    lines = [f"## {part.title}", *part.text]
    for claim, data, statistic, *cells in part.rows if verdicts else ():
        lines.append(f"- **{claim}** ({data}): {statistic}")
        lines += [f"  - {learner}: {cell}" for learner, cell in zip(part.header[3:], cells, strict=True) if cell]
    console.print(Markdown("\n\n".join(lines)))
    if part.header and not verdicts:
        table = Table(*(Column(name, overflow="fold") for name in part.header), box=SIMPLE_HEAD)
        for row in part.rows:
            table.add_row(*row)
        console.print(table)
