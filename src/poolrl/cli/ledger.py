"""`poolrl ledger`: show the accounts, check the chain of seals, change a budget in the open."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from poolrl.cli.verbs import CONFIG_NAME, AsJson, ConfigPath, LedgerPath, verb
from poolrl.ledger.accounts import Account, Entry
from poolrl.ledger.ledger import Ledger
from poolrl.privacy import zcdp
from poolrl.shop.config_file import load_config

ledger_verb = verb(
    "ledger",
    examples="""\
  poolrl ledger show
  poolrl ledger verify --ledger ledger.sqlite
  poolrl ledger budget 0.5 --reason 'one more season'""",
)
LEDGER_NAME = Path("ledger.sqlite")


@ledger_verb.command(name="show")
def show_ledger(*, ledger: LedgerPath = LEDGER_NAME, json: AsJson = False) -> None:
    """Print every account and every entry."""
    with Ledger.existing(ledger) as books:
        entries, accounts = books.state()
    if json:
        facts = {"accounts": [_account_facts(each) for each in accounts.values()]}
        print(dumps(facts | {"entries": [_entry_facts(entry) for entry in entries]}, indent=2, ensure_ascii=False))
        return
    console = Console()
    table = RichTable(title="Accounts", title_justify="left", title_style="bold")
    for name in ("data set", "budget", "spent", "left"):
        table.add_column(name, justify="left" if name == "data set" else "right")
    for account in accounts.values():
        amounts = (account.budget, account.spent, account.left)
        table.add_row(escape(account.data_set), *(f"{float(amount):g}" for amount in amounts))
    console.print(table)
    console.print(_entry_table(entries, {each.fingerprint: each.data_set for each in accounts.values()}))


@ledger_verb.command(name="verify")
def verify_ledger(*, ledger: LedgerPath = LEDGER_NAME, json: AsJson = False) -> None:
    """Check the chain of seals and the accounts."""
    with Ledger.existing(ledger) as books:
        faults = books.verify()
        count = 0 if faults else len(books.entries())
    if json:
        print(dumps({"good": not faults, "faults": faults}, indent=2))
    elif faults:
        Console().print(f"[red]tampered with or damaged[/]: {escape('; '.join(faults))}", highlight=False)
    else:
        print(f"{ledger}: {count} entries, every seal fits, every account adds up.")
    if faults:
        raise SystemExit(1)


@ledger_verb.command(name="budget")
def change_budget(
    total: Annotated[float, Parameter(help="What may be spent in all.")],
    *,
    reason: Annotated[str, Parameter(help="Why; it stands in the ledger.")],
    config: ConfigPath = CONFIG_NAME,
) -> None:
    """Change what may be spent on the configuration's data set: an entry that everybody can see."""
    file = load_config(config)
    name = file.config.privacy.data_set
    with Ledger.existing(file.ledger) as books:
        account = books.change_budget(name, zcdp.budget(total), reason=reason)
    print(
        f"{name}: budget {float(account.budget):g}, spent {float(account.spent):g}, left {float(account.left):g}. "
        f"Write budget = {total:g} into {config} as well."
    )


def _entry_table(entries: list[Entry], data_sets: dict[str, str]) -> RichTable:
    table = RichTable(title="Entries", title_justify="left", title_style="bold", caption_justify="left")
    table.caption = "Whatever is reserved and not void counts as spent. A seal is a keyed hash over all before it."
    for name in ("no.", "time (UTC)", "what", "rho", "seal"):
        table.add_column(name, justify="right" if name in ("no.", "rho") else "left", no_wrap=name != "what")
    for entry in entries:
        about = f" no. {entry.refers}" if entry.refers else f" {data_sets[entry.account]}"
        table.add_row(
            str(entry.number),
            entry.time[:16].replace("T", " "),
            escape(entry.kind + about + (f": {entry.note['reason']}" if "reason" in entry.note else "")),
            "" if entry.rho is None else f"{float(entry.rho):g}",
            entry.seal[:8],
        )
    return table


def _account_facts(account: Account) -> dict[str, str]:
    amounts = {name: str(getattr(account, name)) for name in ("budget", "spent", "left")}
    return {"data_set": account.data_set, "fingerprint": account.fingerprint} | amounts


def _entry_facts(entry: Entry) -> dict[str, Any]:
    return vars(entry) | {"rho": None if entry.rho is None else str(entry.rho)}
