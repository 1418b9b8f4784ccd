"""`poolrl demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from poolrl.certificate.release_files import PAGE, POLICY
from poolrl.cli.check import check
from poolrl.cli.fit import fit
from poolrl.cli.init import init
from poolrl.cli.plan import plan
from poolrl.cli.verbs import CONFIG_NAME, verb

demo_verb = verb(
    "demo",
    examples="""\
  poolrl demo
  poolrl demo /tmp/shop""",
    more="Takes a minute or two. Each heading is the command that you would type for the part below it.",
)
# A Saturday of the example's shops.
QUESTION = "--step Sat --stock bread=10,milk=20,salad=5 --labels promotion=no --scale bread=70,milk=90,salad=30"


@demo_verb.default
def demo(out: Annotated[Path, Parameter(help="Folder to make for all of it.")] = Path("demo")) -> None:
    """Call the other verbs, one after the other, on the example that `poolrl init` writes."""
    if out.exists():
        raise ValueError(f"{out} exists: name another folder, or remove it")
    console, config, release = Console(highlight=False), out / CONFIG_NAME, out / "release"

    def heading(command: str) -> None:
        console.print(f"\n$ poolrl {command}", style="bold", markup=False, soft_wrap=True)

    heading(f"init --example --out {config}")
    init(out=config, example=True)
    heading(f"check --config {config}")
    check(config=config)
    heading(f"plan --config {config}")
    plan(config=config)
    heading(f"fit --config {config} --new-account")
    fit(config=config, new_account=True)
    console.print(f"\nNow open {release / PAGE}, and ask for a day's orders:", markup=False, soft_wrap=True)
    heading(f"decide {release / POLICY} {QUESTION}")
