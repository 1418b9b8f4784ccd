"""`poolrl check` and `poolrl backtest`, which read the log exactly: for the data holder's eyes."""

from collections.abc import Iterator
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated, cast

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table as RichTable

from poolrl.certificate.release_files import POLICY
from poolrl.cli.verbs import CONFIG_NAME, AsJson, ConfigPath, verb
from poolrl.learning.policy import Policy
from poolrl.problems.inventory import Inventory
from poolrl.workflow.backtest import EYES_ONLY, SCENARIOS, Backtest, SameWeekday, read_weeks, replay_policy
from poolrl.workflow.check import NOTICE, habits_of, look_at
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.forecast import money
from poolrl.workflow.open_log import open_log
from poolrl.workflow.trades.trade import trade_of

# The most products that are shown.
MOST_SHOWN = 24
STANDING_COLOURS = {"good": "green", "note": "yellow", "bad": "red"}

check_verb = verb("""\
  poolrl check
  poolrl check --config shops/poolrl.toml --json""")


@check_verb.default
def check(*, config: ConfigPath = CONFIG_NAME, json: AsJson = False) -> None:
    """Print the findings; exits with 1 if `fit` would not accept the log as it is."""
    file = load_config(config)
    findings, console = look_at(file), Console(quiet=json, highlight=False)
    good = all(finding.stands != "bad" for finding in findings)
    if json:
        print(dumps({"notice": NOTICE, "good": good, "findings": list(map(asdict, findings))}, indent=2))
    table = RichTable(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        mark = f"[{STANDING_COLOURS[finding.stands]}]{finding.stands}[/]"
        table.add_row(mark, escape(finding.what), escape(finding.seen))
    console.print(f"[bold red]{NOTICE}[/]\n", table, sep="\n")
    words = trade_of(file.config.problem.posed).words
    if not good:
        next_step = "Correct the table or the file before 'poolrl fit', which would leave such rows unobserved. "
        next_step += "Nothing was spent."
    elif any(each.what == habits_of(words) and each.stands == "note" for each in findings):
        next_step = f"The table is as the file says, but [bold]its {words.past} follow {words.outcome}[/]. Mend that "
        next_step += "before you fit: otherwise no cost can be predicted, and the policy may cost more than what you "
        next_step += "do today."
    else:
        next_step = "The table is as the file says. Next: [bold]poolrl plan[/], then [bold]poolrl fit[/]."
    console.print(f"\n{next_step}")
    if not good:
        raise SystemExit(1)


backtest_verb = verb("""\
  poolrl backtest --from 2025-10-06
  poolrl backtest release-2025 --config later/poolrl.toml --json

Nothing is spent: the log is read exactly, for the data holder's eyes. Weeks that the policy has learned from flatter it
a little, so name later ones with --from, or a configuration of a later log with --config.""")


@backtest_verb.default
def backtest(
    folder: Annotated[Path, Parameter(help="The release: a folder that fit has written.")] = Path("release"),
    *,
    config: ConfigPath = CONFIG_NAME,
    since: Annotated[str | None, Parameter(name="--from", help="First id to replay, or the first date in one.")] = None,
    json: AsJson = False,
) -> None:
    """Replay the policy on weeks of the log, beside what the shops did."""
    file = load_config(config)
    trade = trade_of(file.config.problem.posed)
    if trade.why_no_backtest:
        raise ValueError(trade.why_no_backtest)
    policy = Policy.load(folder / POLICY)
    if policy.names.products != file.config.problem.products or policy.problem.horizon != file.config.problem.horizon:
        raise ValueError(f"{folder / POLICY} decides other products or steps than {file.path} declares")
    period, sales = file.config.declared_period(), file.config.sales
    console, export = Console(stderr=True, quiet=json), sales is not None
    # Scales are made from sales of weeks before the period too.
    opened = open_log(file, explained=export, every_period=export)
    with console.status("reading the log"), opened as log:
        weeks = read_weeks(log, cast(Inventory, policy.problem), since, period if export else None)
    remade = None if sales is None or sales.weeks is None else SameWeekday(sales.weeks, sales.scale_floor)
    with Progress(console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task("replaying", total=100)
        replayed = replay_policy(policy, weeks, remade, lambda share: bars.advance(task, 100 * share))
        warning = trade.forecast(policy, None, bars).warning
    if json:
        print(dumps(replayed.facts() | {"warning": warning}, indent=2))
        return
    console = Console(highlight=False)
    console.print(f"[bold red]{EYES_ONLY}[/]\n")
    console.print("\n\n".join(_what_was_replayed(replayed)) + "\n")
    console.print(_costs_by_product(replayed))
    console.print(f"\n{replayed.in_words}")
    if warning:
        console.print(f"\n[bold red]{warning} So 'estimated' says little here.[/]")
    if since is None:
        console.print("These may be the weeks that the policy has learned from: --from names later ones.")


def _costs_by_product(replayed: Backtest) -> RichTable:
    """Costs by product, those that change most first."""
    table = RichTable(box=None, padding=(0, 2, 0, 0))
    table.add_column("mean cost\nof a week", overflow="fold")
    changes = [f"{'change' * (place == 0)}\n{each}" for place, each in enumerate(SCENARIOS)]
    for name in ("\nweeks", "estimated\nthen", "\npolicy", *changes):
        table.add_column(name, justify="right", no_wrap=True)
    shown = sorted(replayed.products, key=lambda each: -abs(each.change[1]))[:MOST_SHOWN]
    if len(shown) < len(replayed.products):
        table.caption = f"The {MOST_SHOWN} products that change most; --json has all {len(replayed.products):,}."
        table.caption_justify = "left"
    for each in (*shown, replayed.in_all):
        costs = [each.shops[1], each.policy[1]]
        cells = [*map(money, costs), *(f"{'+' * (by > 0)}{money(by)}" for by in each.change)]
        table.add_row(each.product, f"{each.weeks:,}", *(cells if each.weeks else ["n/a"] * len(cells)))
    return table


def _what_was_replayed(replayed: Backtest) -> Iterator[str]:
    part = replayed.weeks - replayed.complete
    yield f"{replayed.weeks:,} weeks are replayed, {part:,} of them without some products."
    if replayed.left_out:
        yield f"{replayed.left_out:,} are not. 'poolrl check' says what they lack."
    if replayed.scale != "none":
        yield f"The scale that the policy orders by is {replayed.scale}."
    yield (
        f"Shelves ran empty on {replayed.ran_empty:.0%} of days. Nobody knows what more would have been sold then, so "
        "there are three answers: least (nothing more), estimated (by the policy's estimate of demand), most (up to "
        "the declared bound)."
    )
