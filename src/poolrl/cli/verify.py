"""`poolrl verify`."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from poolrl.certificate.release_files import PAGE
from poolrl.cli.verbs import AsJson, verb
from poolrl.workflow.trades.trade import DECISIONS_FILE, LEVELS_FILE
from poolrl.workflow.verified import unchecked_files, verify_folder

verify_verb = verb(
    "verify",
    examples="""\
  poolrl verify release/policy.npz release/certificate.json
  poolrl verify release/policy.npz release/certificate.json --ledger ledger.sqlite
  poolrl verify release/policy.npz release/certificate.json --key owner.pem""",
    more="""\
Exits with 0 if everything holds and the ledger shows the payment, with 3 if everything holds but no ledger was given,
and with 1 if a check fails. --key takes the public key that 'poolrl ledger key' prints, and shows who made it.""",
)
UNPAID = 3  # exit code: nothing fails, but nobody has seen the payment


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
    checks = verify_folder(policy, certificate, config, ledger, key)
    good = all(check.good for check in checks)
    if json:
        facts = {"good": good, "payment_shown": good and ledger is not None}
        print(dumps(facts | {"checks": list(map(asdict, checks))}, indent=2))
    else:
        console = Console()
        if ledger is None:
            console.print("[bold]Payment was not shown[/]: only the ledger shows it (--ledger FILE).", highlight=False)
        for check in checks:
            mark = "[green]holds[/]" if check.good else "[red]FAILS[/]"
            why = f": {check.why}" if check.why else ""
            console.print(f"{mark}  {escape(check.what + why)}", highlight=False)
        notes = unchecked_files(certificate) if good else []
        drawn = [name for name in (PAGE, LEVELS_FILE, DECISIONS_FILE) if (certificate.parent / name).exists()]
        notes += [f"{name} ('poolrl report {certificate.parent}' draws it again from the policy)" for name in drawn]
        for note in notes:
            console.print(escape(f"Not checked: {note}"), highlight=False)
        foreign = any("written by" in note for note in notes)
        if good and (ledger is None or foreign):
            console.print("Policy and certificate agree.")
        else:
            console.print("Everything holds." if good else "[red]Do not rely on this certificate.[/]")
        if good and key is None:
            console.print("It was not checked who made it: give --key FILE, with the owner's public key.")
    if not good or ledger is None:
        raise SystemExit(1 if not good else UNPAID)
