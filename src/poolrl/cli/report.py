"""`poolrl report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from poolrl.certificate.release_files import PAGE
from poolrl.cli.verbs import OwnConfig, verb
from poolrl.workflow.decision_tables import DECISIONS_FILE, LEVELS_FILE
from poolrl.workflow.page import draw_page
from poolrl.workflow.verified import load_verified

report_verb = verb(
    "report",
    examples="""\
  poolrl report
  poolrl report release-2026""",
)


@report_verb.default
def report(
    folder: Annotated[Path, Parameter(help="What fit has written.")] = Path("release"),
    *,
    config: OwnConfig = None,
) -> None:
    """Refuse a release whose certificate does not hold; else draw."""
    console = Console()
    draw_page(load_verified(folder, config), console)
    table = next((folder / name for name in (LEVELS_FILE, DECISIONS_FILE) if (folder / name).exists()), folder)
    console.print(f"Open {folder / PAGE}; all decisions are in {table}", highlight=False, markup=False)
