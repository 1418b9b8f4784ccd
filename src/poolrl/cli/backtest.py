"""`poolrl backtest`."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table as RichTable

from poolrl.certificate.files import POLICY
from poolrl.cli.verbs import CONFIG_NAME, AsJson, ConfigPath, verb
from poolrl.learning.policy import Policy
from poolrl.problems.inventory import Inventory
from poolrl.shop.backtest import EYES_ONLY, SCENARIOS, Backtest, read_trajectories, replay_policy
from poolrl.shop.config_file import load_config
from poolrl.shop.open_log import open_log

backtest_verb = verb(
    "backtest",
    examples="""\
  poolrl backtest --from 2025-10-06
  poolrl backtest --from 40 --by week_number
  poolrl backtest release-2025 --config later/poolrl.toml --json""",
    more="""\
Nothing is spent: the log is read exactly, for the data holder's eyes. Weeks that the policy has learned from flatter it
a little, so name later ones with --from, or a configuration of a later log with --config.""",
)


@backtest_verb.default
def backtest(
    folder: Annotated[Path, Parameter(help="The release: a folder that fit has written.")] = Path("release"),
    *,
    config: ConfigPath = CONFIG_NAME,
    since: Annotated[
        str | None, Parameter(name="--from", help="First date, number or id of the weeks to replay.")
    ] = None,
    by: Annotated[
        str | None, Parameter(help="The column that --from speaks of; the trajectory's id if left out.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Replay the policy on weeks of the log, beside what the shops did."""
    if by is not None and since is None:
        raise ValueError("--by goes with --from")
    file, policy = load_config(config), Policy.load(folder / POLICY)
    if not isinstance(policy.problem, Inventory):
        raise ValueError("backtest replays policies of inventory")
    if policy.names.products != file.config.problem.products or policy.problem.horizon != file.config.problem.horizon:
        raise ValueError(f"{folder / POLICY} decides other products or steps than {file.path} declares")
    with Console(stderr=True, quiet=json).status("reading, replaying"), open_log(file) as log:
        weeks, left_out = read_trajectories(log, policy.problem.horizon, since, by)
        found = replay_policy(policy, weeks, left_out=left_out)
    if json:
        print(dumps(found.facts(), indent=2))
    else:
        _print(Console(), found, learned_from=since is None)


def _print(console: Console, found: Backtest, *, learned_from: bool) -> None:
    console.print(f"[bold red]{EYES_ONLY}[/]\n", highlight=False)
    console.print(
        f"{found.trajectories:,} trajectories, {found.left_out:,} left out as incomplete. Shelves ran empty on "
        f"{found.ran_empty:.0%} of days. What more would have been sold then is not known, so there are three answers: "
        "least (nothing more), estimated (by the policy's estimate of demand), most (up to the declared bound).\n",
        highlight=False,
    )
    table = RichTable(box=None, padding=(0, 2, 0, 0))
    table.add_column("mean cost")
    for scenario in SCENARIOS:
        for side in ("shops", "policy", "change"):
            table.add_column(f"{scenario}\n{side}", justify="right", no_wrap=True)
    for each in (*found.products, found.in_all):
        cells = []
        for theirs, ours, change in zip(each.shops, each.policy, each.change, strict=True):
            cells += [f"{theirs:,.1f}", f"{ours:,.1f}", f"{change / theirs:+.0%}" if theirs > 0 else "n/a"]
        table.add_row(each.product, *cells)
    console.print(table, highlight=False)
    console.print(f"\n{found.in_words}", highlight=False)
    if learned_from:
        console.print("These may be the weeks that the policy has learned from: --from names later ones.")
