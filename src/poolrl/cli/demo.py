"""`poolrl demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress
from rich.table import Table as RichTable

from poolrl.checks import whole
from poolrl.cli.verbs import verb
from poolrl.learning.policy import Policy
from poolrl.privacy.zcdp import epsilon_shown
from poolrl.workflow.demo import (
    DEMO_BUDGETS,
    FITS_PER_BUDGET,
    SAA_WEEKS,
    SAVED_BUDGET,
    TEST_WEEKS,
    DemoResult,
    learn_from,
    write_demo,
    write_demo_log,
)
from poolrl.workflow.trades.shop_example import DAYS, PRODUCTS

demo_verb = verb(
    "demo",
    examples="""\
  poolrl demo
  poolrl demo /tmp/shop --trajectories 500""",
    more="Takes less than a minute. Everything is written to a folder that you can look through.",
)


@demo_verb.default
def demo(
    out: Annotated[Path, Parameter(help="Folder for the log, the policy, the guarantee and the picture.")] = Path(
        "demo"
    ),
    *,
    trajectories: Annotated[int, Parameter(help="Weeks in the simulated log.")] = 2000,
    seed: Annotated[int, Parameter(help="Of the simulated shop; the privacy noise is never seeded.")] = 1,
) -> None:
    """Simulate, learn, print a table, write the rest to the folder."""
    whole(at_least=0, seed=seed)
    whole(trajectories=trajectories, at_least=10)
    console = Console(width=100)
    log = write_demo_log(out, trajectories=trajectories, seed=seed)
    console.print(
        f"[bold]A simulated shop[/]: {', '.join(PRODUCTS)}; {trajectories:,} weeks in {log.table}; the shelf "
        f"was empty on {log.empty:.0%} of product-days, and demand beyond it was never seen.\n"
    )
    with Progress(console=console, transient=True) as progress:
        found = learn_from(log, seed=seed, progress=progress)
    console.print(_cost_table(found))
    write_demo(out, found)
    console.print(_level_table(found.policy))
    console.print(f"[bold]The guarantee of this policy[/]\n{found.policy.guarantee}\n")
    fits = len(DEMO_BUDGETS) * FITS_PER_BUDGET + 1
    console.print(f"Spent on the simulated log: {fits} private fits of rho each. On a real log you fit once.\n")
    console.print(
        f"[bold]Written to {out}/[/]: sensitive/log.parquet, policy.npz, guarantee.json, privacy-utility.svg and .png\n"
        "[bold]Next[/]: open the picture; then in Python\n"
        f"    from poolrl import Policy\n"
        f"    Policy.load('{out / 'policy.npz'}').act(5, [10, 20, 5])   # Saturday's order-up-to levels\n"
        "and README.md shows the same for your own log."
    )


def _cost_table(found: DemoResult) -> RichTable:
    table = RichTable(
        title="What privacy costs",
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption=(
            f"Cost per week on {TEST_WEEKS:,} simulated weeks; gap to SAA, which saw {SAA_WEEKS:,} uncensored weeks.\n"
            f"Mean ± standard deviation over {FITS_PER_BUDGET} fits with secure noise. Epsilon at delta = 1e-6."
        ),
    )
    for column in ("policy", "rho", "epsilon", "cost", "gap to SAA"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for point in found.points:
        spread = f"{np.mean(point.gaps):+.1%} ± {np.std(point.gaps, ddof=1):.1%}"
        table.add_row("Pool", f"{point.rho:g}", epsilon_shown(point.rho), f"{point.cost:.1f}", spread)
    table.add_section()
    for name, rho, epsilon, gap in (
        ("NonPrivate: Pool(rho=inf)", "inf", "inf", found.non_private),
        ("Pool.published(rho=1), the paper's Algorithm 1", "1", epsilon_shown(1.0), found.published),
        ("data-free: costs and bounds alone", "0", "0", found.free),
    ):
        table.add_row(name, rho, epsilon, f"{found.benchmark * (1 + gap):.1f}", f"{gap:+.1%}")
    table.add_row("SAA on uncensored demand (no privacy)", "inf", "inf", f"{found.benchmark:.1f}", "0")
    return table


def _level_table(policy: Policy) -> RichTable:
    title = f"Next year's order-up-to levels (rho = {SAVED_BUDGET:g})"
    table = RichTable(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    for day in DAYS:
        table.add_column(day, justify="right")
    for product, levels in zip(PRODUCTS, policy.levels.T, strict=True):
        table.add_row(product, *(f"{level:.0f}" for level in levels))
    return table
