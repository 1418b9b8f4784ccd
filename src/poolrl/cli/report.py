"""`poolrl report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from poolrl.certificate.release_files import PAGE
from poolrl.cli.verbs import OwnConfig, verb
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.page import draw_page
from poolrl.workflow.trades.trade import trade_of
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
    release = load_verified(folder, None if config is None else load_config(config))
    draw_page(release, console)
    table = folder / trade_of(release.policy.problem).decisions_file
    console.print(f"Open {folder / PAGE}; all decisions are in {table}", highlight=False, markup=False)
