"""`poolrl check`."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from poolrl.cli.verbs import CONFIG_NAME, AsJson, ConfigPath, verb
from poolrl.workflow.check import NOTICE, habits_of, look_at
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.trades.trade import trade_of

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
        words = trade_of(file.config.problem.posed).words
        follows = any(each.what == habits_of(words) and each.stands == "note" for each in findings)
        console.print(
            f"\nThe table is as the file says, but [bold]its {words.past} follow {words.outcome}[/]. Mend that before "
            "you fit: otherwise no cost can be predicted, and the policy may cost more than what you do today."
            if good and follows
            else "\nThe table is as the file says. Next: [bold]poolrl plan[/], then [bold]poolrl fit[/]."
            if good
            else "\nCorrect the table or the file before 'poolrl fit', which would leave such rows unobserved. "
            "Nothing was spent."
        )
    if not good:
        raise SystemExit(1)
