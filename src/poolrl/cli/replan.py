"""`poolrl replan`."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress

from poolrl.certificate.release_files import PAGE, POLICY
from poolrl.cli.fit import page_of
from poolrl.cli.verbs import CONFIG_NAME, AsJson, ConfigPath, verb
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.decision_tables import ORDERS_FILE, decisions_of
from poolrl.workflow.replan import PLAN_FILE, replan_orders, replan_release
from poolrl.workflow.verified import load_verified

replan_verb = verb(
    "replan",
    examples="""\
  poolrl replan --out release-new-costs
  poolrl replan release-2026 --config new-costs.toml --out release-new-costs
  poolrl verify release-new-costs/policy.npz release-new-costs/certificate.json""",
    more="""\
Before it, change costs in poolrl.toml: holding or shortage of a shop, what an unsold lot or unit is worth (keep), or
what a win is worth. Bounds of a shop may be lowered too: demand_max or boundary. Products, steps and labels stay as
they are. Neither the log nor the ledger is opened, and nothing is spent: the plan uses numbers that the release
has paid for. 'poolrl verify' makes the same plan again from the certified policy beside it.

With a section [operations] (purchase, price, fixed, spoilage, salvage, pack, minimum, deliveries, cycle) the plan is
for a shop with these, and orders.csv says what to order at each stock. With capacity (and volume) all products share a
shelf, a room or cash; with lead_time an order arrives later. Ask any of these plans:
  poolrl decide orders/plan.npz --step Sat --stock bread=10,milk=20,salad=5""",
)


@replan_verb.default
def replan(
    release: Annotated[Path, Parameter(help="The release to plan again.")] = Path("release"),
    *,
    config: ConfigPath = CONFIG_NAME,
    out: Annotated[Path, Parameter(help="Folder to make.")] = Path("replanned"),
    json: AsJson = False,
) -> None:
    """Verify the release, plan it again, draw its page, and say what changed."""
    console = Console(quiet=json)
    file = load_config(config)
    source = load_verified(release)
    if file.config.operations.declared:
        with Progress(console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("planning", total=None)
            orders = replan_orders(source, file, out, lambda done, all_: bar.update(task, completed=done, total=all_))
        if json:
            facts = {"folder": str(out), "kept": orders.kept, "planned": orders.planned}
            print(dumps(facts | ({} if orders.bound is None else {"bound": orders.bound}), indent=2))
            return
        console.print(f"Planned for [operations] at no cost in privacy, in {out}.", highlight=False, markup=False)
        for line in orders.in_words:
            console.print(line, highlight=False, markup=False)
        what = "at each stock" if orders.file == ORDERS_FILE else "from empty shelves"
        console.print(f"What to order {what}: {out / orders.file}", highlight=False, markup=False)
        ask = f"poolrl decide {out / PLAN_FILE} --step ... --stock ..."
        console.print(f"Ask the plan: {ask}", highlight=False, markup=False)
        return
    made = replan_release(source, file, out)
    forecast = page_of(made.release, console)
    if json:
        said = {"folder": str(out), "kept": made.kept, "planned": made.planned, "verdict": forecast.verdict}
        print(dumps(said | {"decisions": decisions_of(made.release.policy).tolist()}, indent=2))
        return
    console.print(f"Planned again at no cost in privacy, in {out}.", highlight=False, markup=False)
    for line in made.in_words:
        console.print(line, highlight=False, markup=False)
    console.print(f"\n[bold]{forecast.verdict.capitalize()}.[/] {forecast.because}\n", highlight=False)
    console.print(f"Open {out / PAGE}; ask with: poolrl decide {out / POLICY} --step ...", markup=False)
