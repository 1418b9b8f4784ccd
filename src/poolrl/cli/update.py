"""`poolrl update`."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from poolrl.certificate.certificate import read_audit
from poolrl.cli.fit import made_release, page_of, print_release
from poolrl.cli.verbs import CONFIG_NAME, AsJson, AuditFile, ConfigPath, verb
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.decision_tables import decisions_of, in_one_sentence
from poolrl.workflow.release_folder import fit_release
from poolrl.workflow.trades.trade import trade_of
from poolrl.workflow.update import advice, by_product, cost_in_words, decisions_that_moved, load_earlier, noise_in_words

update_verb = verb(
    "update",
    examples="""\
  poolrl update --release release --out release-2025-02
  poolrl update --release release-2025-02 --out release-2025-03
  poolrl update --release release --dry-run      only say what it would cost""",
    more="""\
Before it, write the new period into poolrl.toml, and leave the rest as it is. For example:

  [period]
  column = "monday"          the date on which a week begins
  first = "2025-02-03"       where the last period ended
  before = "2025-03-03"

Weeks of this period alone are read and pay rho. With a unit in [privacy] all periods add up, and the command says how
many more the budget allows. Periods that overlap are refused. So are rows that were released under another date.""",
)
# How many of the decisions that moved are explained.
MOST_CHANGES = 5


@update_verb.default
def update(
    *,
    release: Annotated[Path, Parameter(help="The release of the period before, which is continued.")],
    out: Annotated[Path | None, Parameter(help="Folder to make; 'release-FIRST' beside the file if left out.")] = None,
    config: ConfigPath = CONFIG_NAME,
    dry_run: Annotated[bool, Parameter(help="Say what it would cost; read and spend nothing.", negative="")] = False,
    audit: AuditFile = None,
    json: AsJson = False,
) -> None:
    """Say what the update costs, make it, draw its page, and print what changed and the leaflet."""
    file = load_config(config)
    folder = out or file.folder / f"release-{file.config.period.first}"
    console = Console(quiet=json)
    earlier = load_earlier(file, release)
    cost = [*cost_in_words(file), noise_in_words(file, earlier)]
    console.print("\n".join(cost), highlight=False, markup=False)
    if dry_run:
        if json:
            print(dumps({"cost": cost}, indent=2))
        return
    found = None if audit is None else read_audit(audit, file.sha256)
    made = made_release(lambda: fit_release(file, folder, audit=found, earlier=earlier), folder, console)
    moved = decisions_that_moved(earlier, made, file.config.forgetting)
    news = by_product(moved)
    advised = advice(news, made.trees.noise / earlier.trees.noise)
    changes = [str(each) for each in (*news[:MOST_CHANGES], *moved[:MOST_CHANGES])]
    called = trade_of(made.policy.problem).words.decisions
    sentence = in_one_sentence(decisions_of(earlier.policy), decisions_of(made.policy), called)
    console.print("\n  ".join([f"What changed: {sentence}", *changes]), highlight=False, markup=False)
    console.print(f"\n[bold]{advised}[/]\n" if advised else "", highlight=False)
    forecast = page_of(made, console)
    if json:
        said = {"cost": cost, "changes": changes, "advice": advised}
        print(dumps({"folder": str(folder), **said, "certificate": made.certificate.model_dump()}, indent=2))
    else:
        print_release(console, made, forecast)
