"""`poolrl verify`."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from poolrl.certificate.files import CONFIG, LABEL, PAGE, RECORD
from poolrl.cli.verbs import AsJson, verb
from poolrl.shop.report import verify_folder

verify_verb = verb(
    "verify",
    examples="""\
  poolrl verify release/policy.npz release/certificate.json
  poolrl verify release/policy.npz release/certificate.json \\
      --ledger ledger.sqlite""",
)


@verify_verb.default
def verify(
    policy: Annotated[Path, Parameter(help="The policy.")],
    certificate: Annotated[Path, Parameter(help="Its certificate.")],
    *,
    config: Annotated[Path | None, Parameter(help="The configuration it was made with.")] = None,
    ledger: Annotated[Path | None, Parameter(help="The ledger that paid for it (its key must lie beside it).")] = None,
    json: AsJson = False,
) -> None:
    """Print every check; exits with 1 unless all of them hold."""
    checks = verify_folder(policy, certificate, config, ledger)
    good = all(check.good for check in checks)
    if json:
        print(dumps({"good": good, "checks": list(map(asdict, checks))}, indent=2))
    else:
        console = Console()
        for check in checks:
            mark = "[green]holds[/]" if check.good else "[red]FAILS[/]"
            why = f": {check.why}" if check.why else ""
            console.print(f"{mark}  {escape(check.what + why)}", highlight=False)
        _print_unchecked(console, certificate.parent)
        if good and ledger is None:
            console.print("Policy and certificate agree. Only the ledger shows whether it was paid for: --ledger FILE")
        else:
            console.print("Everything holds." if good else "[red]Do not rely on this certificate.[/]")
    if not good:
        raise SystemExit(1)


def _print_unchecked(console: Console, folder: Path) -> None:
    absent = [name for name in (CONFIG, LABEL, RECORD) if not (folder / name).exists()]
    if absent:
        console.print(f"Not checked, because not there: {', '.join(absent)}", highlight=False)
    if (folder / PAGE).exists():
        again = f"Not checked: {folder / PAGE}; 'poolrl report {folder}' draws it again from the policy."
        console.print(escape(again), highlight=False)
