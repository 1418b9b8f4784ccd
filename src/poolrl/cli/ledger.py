"""`poolrl verify` and `poolrl ledger`: what a certificate claims, and what was paid."""

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from poolrl.certificate.release_files import PAGE
from poolrl.cli.verbs import CONFIG_NAME, AsJson, ConfigPath, verb
from poolrl.ledger.accounts import Account, Period
from poolrl.ledger.ledger import Ledger
from poolrl.privacy import zcdp
from poolrl.workflow.config.configuration import ledger_named_in, load_config, user_ledger
from poolrl.workflow.trades.trade import DECISIONS_FILE, LEVELS_FILE

UNPAID = 3  # exit code: nothing fails, but nobody has seen the payment
PERIODS_IN_WORDS = (
    "With periods, the loss of a trajectory that is in most of them counts as spent. A unit that owns several "
    "trajectories may be in all of them, and loses their sum."
)
Reason = Annotated[str, Parameter(help="Why; it stands in the ledger.")]
WhichLedger = Annotated[Path | None, Parameter(help="The ledger's file.")]

verify_verb = verb("""\
  poolrl verify release/policy.npz release/certificate.json
  poolrl verify release/policy.npz release/certificate.json --ledger ledger.sqlite
  poolrl verify release/policy.npz release/certificate.json --key owner.pem

Exits with 0 if everything holds and the ledger shows the payment, with 3 if everything holds but no ledger was given,
and with 1 if a check fails. --key takes the public key that 'poolrl ledger key' prints, and shows who made it.""")


@verify_verb.default
def verify(
    policy: Annotated[Path, Parameter(help="The policy, or a file of its model.")],
    certificate: Annotated[Path, Parameter(help="Its certificate.")],
    *,
    config: Annotated[Path | None, Parameter(help="The configuration it was made with.")] = None,
    ledger: Annotated[Path | None, Parameter(help="The ledger that paid for it (its key must lie beside it).")] = None,
    key: Annotated[Path | None, Parameter(help="The owner's public key, to check the signature.")] = None,
    json: AsJson = False,
) -> None:
    """Print every check; exits with 1 if one fails, with 3 if no ledger shows the payment."""
    # Here, because the ledger's own commands must not wait for what reads policies.
    from poolrl.workflow.verified import unchecked_files, verify_folder

    checks = verify_folder(policy, certificate, config, ledger, key)
    good = all(check.good for check in checks)
    if json:
        facts = {"good": good, "payment_shown": good and ledger is not None}
        print(dumps(facts | {"checks": list(map(asdict, checks))}, indent=2))
    console = Console(quiet=json, highlight=False)
    if ledger is None:
        console.print("[bold]Payment was not shown[/]: only the ledger shows it (--ledger FILE).")
    for check in checks:
        why = f": {check.why}" if check.why else ""
        console.print(f"{'[green]holds[/]' if check.good else '[red]FAILS[/]'}  {escape(check.what + why)}")
    notes = unchecked_files(certificate) if good else []
    drawn = [name for name in (PAGE, LEVELS_FILE, DECISIONS_FILE) if (certificate.parent / name).exists()]
    notes += [f"{name} ('poolrl report {certificate.parent}' draws it again from the policy)" for name in drawn]
    for note in notes:
        console.print(f"Not checked: {note}", markup=False)
    if good and (ledger is None or any("written by" in note for note in notes)):
        console.print("Policy and certificate agree.")
    else:
        console.print("Everything holds." if good else "[red]Do not rely on this certificate.[/]")
    if good and key is None:
        console.print("It was not checked who made it: give --key FILE, with the owner's public key.")
    if not good or ledger is None:
        raise SystemExit(1 if not good else UNPAID)


ledger_verb = verb(
    """\
  poolrl ledger show
  poolrl ledger verify --ledger ledger.sqlite
  poolrl ledger budget 0.5 --reason 'one more season'
  poolrl ledger key > owner.pem
  poolrl ledger rotate-key --reason 'the laptop was stolen'

The ledger is the one given, or that of the configuration in this folder, or the user's own.""",
    name="ledger",
)


@ledger_verb.command(name="show")
def show_ledger(*, ledger: WhichLedger = None, json: AsJson = False) -> None:
    """Print every account and every entry."""
    with _opened(ledger) as books:
        entries, accounts = books.state()
    if json:
        facts = {"accounts": [_account_facts(each) for each in accounts.values()]}
        listed = [vars(entry) | {"rho": None if entry.rho is None else str(entry.rho)} for entry in entries]
        print(dumps(facts | {"entries": listed}, indent=2, ensure_ascii=False))
        return
    console = Console()
    table = RichTable(title="Accounts", title_justify="left", title_style="bold")
    for name in ("data set", "protects one", "budget", "spent", "left"):
        table.add_column(name, justify="left" if name in ("data set", "protects one") else "right")
    for account in accounts.values():
        amounts = (f"{float(amount):g}" for amount in (account.budget, account.spent, account.left))
        table.add_row(escape(account.data_set), escape(", ".join(_account_facts(account)["units"])), *amounts)
    if any(spend.period for account in accounts.values() for spend in account.spends.values()):
        table.caption_justify, table.caption = "left", PERIODS_IN_WORDS
    console.print(table)
    table = RichTable(title="Entries", title_justify="left", title_style="bold", caption_justify="left")
    table.caption = "A reservation that is not void counts as spent. A seal is a keyed hash over all before it."
    for name in ("no.", "time (UTC)", "what", "rho", "seal"):
        table.add_column(name, justify="right" if name in ("no.", "rho") else "left", no_wrap=name != "what")
    data_sets = {account.fingerprint: account.data_set for account in accounts.values()}
    for entry in entries:
        about = f" no. {entry.refers}" if entry.refers else f" {data_sets.get(entry.account, '')}".rstrip()
        about += f", {Period.from_note(entry.note['period'])}" if "period" in entry.note else ""
        what = entry.kind + about + (f": {entry.note['reason']}" if "reason" in entry.note else "")
        rho = "" if entry.rho is None else f"{float(entry.rho):g}"
        table.add_row(str(entry.number), entry.time[:16].replace("T", " "), escape(what), rho, entry.seal[:8])
    console.print(table)


@ledger_verb.command(name="verify")
def verify_ledger(*, ledger: WhichLedger = None) -> None:
    """Check the chain of seals and the accounts."""
    with _opened(ledger) as books:
        faults = books.verify()
        count = 0 if faults else len(books.entries())
    if faults:
        Console().print(f"[red]tampered with or damaged[/]: {escape('; '.join(faults))}", highlight=False)
        raise SystemExit(1)
    print(f"{books.path}: {count} entries, every seal fits, every account adds up.")


@ledger_verb.command(name="budget")
def change_budget(
    total: Annotated[float, Parameter(help="What may be spent in all.")],
    *,
    reason: Reason,
    config: ConfigPath = CONFIG_NAME,
) -> None:
    """Change what may be spent on the configuration's data set: an entry that everybody can see."""
    file = load_config(config)
    name = file.config.privacy.data_set
    with Ledger.existing(file.ledger) as books:
        account = books.change_budget(name, zcdp.budget(total), reason=reason)
    left = f"{name}: budget {float(account.budget):g}, left {float(account.left):g}."
    print(f"{left} Write budget = {total:g} into {config} as well.")


@ledger_verb.command(name="key")
def show_key(*, ledger: WhichLedger = None) -> None:
    """Print the public key that releases are signed with; give it to everyone who gets a release."""
    with _opened(ledger) as books:
        keys = books.public_keys()
    if not keys:
        raise ValueError("the ledger has no signing key yet: the next fit makes one")
    print(keys[-1].pem(), end="")


@ledger_verb.command(name="rotate-key")
def rotate_key(*, reason: Reason, ledger: WhichLedger = None) -> None:
    """Replace the signing key, because it is lost or others have seen it."""
    with _opened(ledger) as books:
        key = books.rotate_key(reason)
    print(f"Releases are signed with the key of SHA-256 {key.fingerprint} from now on. Its public half:\n{key.pem()}")
    print("Tell everyone who has the old key, and from when on it must not be trusted.")


def _opened(ledger: Path | None) -> Ledger:
    """The ledger that was given, that of the configuration here, or the user's own."""
    if ledger is None:
        ledger = ledger_named_in(CONFIG_NAME) if CONFIG_NAME.is_file() else user_ledger()
    return Ledger.existing(ledger)


def _account_facts(account: Account) -> dict[str, Any]:
    units = sorted({spend.unit.name for spend in account.spends.values()})
    facts = {"data_set": account.data_set, "fingerprint": account.fingerprint, "units": units}
    return facts | {name: str(getattr(account, name)) for name in ("budget", "spent", "left")}
