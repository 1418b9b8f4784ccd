"""`poolrl check`."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from poolrl.cli.verbs import CONFIG_NAME, AsJson, ConfigPath, verb
from poolrl.problems.inventory import Inventory
from poolrl.workflow.check import NOTICE, ORDER_HABITS, look_at
from poolrl.workflow.config.configuration import ConfigFile, load_config
from poolrl.workflow.trades.declared_findings import HABITS

check_verb = verb(
    "check",
    examples="""\
  poolrl check
  poolrl check --config shops/poolrl.toml --json""",
)
STANDING_COLOURS = {"good": "green", "note": "yellow", "bad": "red"}


@check_verb.default
def check(*, config: ConfigPath = CONFIG_NAME, json: AsJson = False) -> None:
    """Print the findings; exits with 1 if `fit` would not accept the log as it is."""
    file = load_config(config)
    findings = look_at(file)
    good = all(finding.stands != "bad" for finding in findings)
    if json:
        print(dumps({"notice": NOTICE, "good": good, "findings": list(map(asdict, findings))}, indent=2))
    else:
        console = Console()
        console.print(f"[bold red]{NOTICE}[/]\n", highlight=False)
        table = RichTable(box=None, show_header=False, padding=(0, 2, 0, 0))
        for finding in findings:
            mark = f"[{STANDING_COLOURS[finding.stands]}]{finding.stands}[/]"
            table.add_row(mark, escape(finding.what), escape(finding.seen))
        console.print(table, highlight=False)
        follows = any(each.what in (ORDER_HABITS, HABITS) and each.stands == "note" for each in findings)
        console.print(
            f"\nThe table is as the file says, but [bold]{_follow(file)}[/]. Mend that before you fit: "
            "otherwise no cost can be predicted, and the policy may cost more than what you do today."
            if good and follows
            else "\nThe table is as the file says. Next: [bold]poolrl plan[/], then [bold]poolrl fit[/]."
            if good
            else "\nCorrect the table or the file before 'poolrl fit', which would leave such rows unobserved. "
            "Nothing was spent."
        )
    if not good:
        raise SystemExit(1)


def _follow(file: ConfigFile) -> str:
    words = file.config.problem.posed.words
    return f"its {words.past} follow {'demand' if words == Inventory.words else 'what was expected'}"
