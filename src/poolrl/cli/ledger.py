"""`poolrl ledger`: show the accounts, check the chain of seals, change a budget in the open."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from poolrl.ledger.accounts import Entry
from poolrl.ledger.ledger import Ledger
from poolrl.privacy import zcdp
from poolrl.shop.config import load_config


def show_ledger(path: Path, *, as_json: bool) -> None:
    """Print accounts and entries; refuses a ledger that was tampered with."""
    with Ledger.existing(path) as ledger:
        accounts, entries = ledger.accounts(), ledger.entries()
    if as_json:
        facts = {
            "accounts": [
                {
                    "data_set": account.data_set,
                    "fingerprint": account.fingerprint,
                    "budget": str(account.budget),
                    "spent": str(account.spent),
                    "left": str(account.left),
                }
                for account in accounts.values()
            ],
            "entries": [_as_dict(entry) for entry in entries],
        }
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    console = Console()
    table = Table(title="Accounts", title_justify="left", title_style="bold")
    for name in ("data set", "budget", "spent", "left"):
        table.add_column(name, justify="left" if name == "data set" else "right")
    for account in accounts.values():
        amounts = (account.budget, account.spent, account.left)
        table.add_row(escape(account.data_set), *(f"{float(amount):g}" for amount in amounts))
    console.print(table)
    names = {account.fingerprint: account.data_set for account in accounts.values()}
    table = Table(title="Entries", title_justify="left", title_style="bold", caption_justify="left")
    table.caption = "Whatever is reserved and not void counts as spent. A seal is a keyed hash over all before it."
    for name in ("no.", "time (UTC)", "what", "rho", "seal"):
        table.add_column(name, justify="right" if name in ("no.", "rho") else "left", no_wrap=name != "what")
    for entry in entries:
        about = f" no. {entry.refers}" if entry.refers else f" {names[entry.account]}"
        table.add_row(
            str(entry.number),
            entry.time[:16].replace("T", " "),
            escape(entry.kind + about + (f": {entry.note['reason']}" if "reason" in entry.note else "")),
            "" if entry.rho is None else f"{float(entry.rho):g}",
            entry.seal[:8],
        )
    console.print(table)


def verify_ledger(path: Path, *, as_json: bool) -> bool:
    """Print what is wrong, if anything; whether nothing is."""
    with Ledger.existing(path) as ledger:
        faults = ledger.verify()
        count = 0 if faults else len(ledger.entries())
    if as_json:
        print(json.dumps({"good": not faults, "faults": faults}, indent=2))
    elif faults:
        Console().print(f"[red]tampered with or damaged[/]: {escape('; '.join(faults))}", highlight=False)
    else:
        print(f"{path}: {count} entries, every seal fits, every account adds up.")
    return not faults


def change_budget(config: Path, rho: float, reason: str) -> None:
    """Set what may be spent on the configuration's data set in all."""
    file = load_config(config)
    name = file.config.privacy.data_set
    with Ledger.existing(file.ledger) as ledger:
        account = ledger.change_budget(name, zcdp.budget(rho), reason=reason)
    print(
        f"{name}: budget {float(account.budget):g}, spent {float(account.spent):g}, left {float(account.left):g}. "
        f"Write budget = {rho:g} into {config} as well."
    )


def _as_dict(entry: Entry) -> dict[str, object]:
    return vars(entry) | {"rho": str(entry.rho) if isinstance(entry.rho, Fraction) else None}
