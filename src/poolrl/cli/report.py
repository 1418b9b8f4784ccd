"""`poolrl report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from poolrl.certificate.files import PAGE
from poolrl.cli.verbs import verb
from poolrl.shop.levels_csv import LEVELS_FILE
from poolrl.shop.report import draw_page, load_verified

report_verb = verb(
    "report",
    examples="""\
  poolrl report
  poolrl report release-2026""",
)


@report_verb.default
def report(folder: Annotated[Path, Parameter(help="What fit has written.")] = Path("release")) -> None:
    """Refuse a release whose certificate does not hold; else draw."""
    console = Console()
    draw_page(load_verified(folder), console)
    console.print(f"Open {folder / PAGE}; all levels are in {folder / LEVELS_FILE}", highlight=False, markup=False)
