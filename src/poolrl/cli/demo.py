"""`poolrl demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from poolrl.checks import whole
from poolrl.cli.verbs import verb
from poolrl.privacy.zcdp import epsilon_shown
from poolrl.workflow import demo as shop
from poolrl.workflow.trades.shop_example import DAYS, PRODUCTS

demo_verb = verb(
    "demo",
    examples="""\
  poolrl demo
  poolrl demo /tmp/shop --trajectories 500""",
    more="Takes less than a minute. Everything is written to a folder that you can look through.",
)
OutFolder = Annotated[Path, Parameter(help="Folder for the log, the policy, the guarantee and the picture.")]


@demo_verb.default
def demo(
    out: OutFolder = Path("demo"),
    *,
    trajectories: Annotated[int, Parameter(help="Weeks in the simulated log.")] = 2000,
    seed: Annotated[int, Parameter(help="Of the simulated shop; the privacy noise is never seeded.")] = 1,
) -> None:
    """Simulate, learn, print a table, write the rest to the folder."""
    whole(at_least=0, seed=seed)
    whole(trajectories=trajectories, at_least=10)
    console, table = Console(width=100), out / "sensitive" / "log.parquet"
    empty = shop.write_demo_log(table, trajectories=trajectories, seed=seed)
    console.print(
        f"[bold]A simulated shop[/]: {', '.join(PRODUCTS)}; {trajectories:,} weeks in {table}; the shelf "
        f"was empty on {empty:.0%} of product-days, and demand beyond it was never seen.\n"
    )
    with Progress(console=console, transient=True) as progress:
        result = shop.learn_from(table, seed=seed, progress=progress)
    shop.write_demo(out, result)
    title = f"Next year's order-up-to levels (rho = {shop.SAVED_BUDGET:g})"
    levels = Table("", *DAYS, title=title, title_justify="left", title_style="bold")
    for product, level in zip(PRODUCTS, result.policy.levels.T, strict=True):
        levels.add_row(product, *(f"{units:.0f}" for units in level))
    console.print(_cost_table(result), levels)
    console.print(f"[bold]The guarantee of this policy[/]\n{result.policy.guarantee}\n")
    fits = len(shop.DEMO_BUDGETS) * shop.FITS_PER_BUDGET + 1
    console.print(
        f"Spent on the simulated log: {fits} private fits of rho each. On a real log you fit once.\n\n"
        f"[bold]Written to {out}/[/]: sensitive/log.parquet, policy.npz, guarantee.json, privacy-utility.svg and .png\n"
        "[bold]Next[/]: open the picture; then in Python\n"
        f"    from poolrl import Policy\n"
        f"    Policy.load('{out / 'policy.npz'}').act(5, [10, 20, 5])   # Saturday's order-up-to levels\n"
        "and README.md shows the same for your own log."
    )


def _cost_table(result: shop.DemoResult) -> Table:
    weeks = f"{shop.TEST_WEEKS:,} simulated weeks; gap to SAA, which saw {shop.SAA_WEEKS:,} uncensored weeks"
    fits = f"Mean ± standard deviation over {shop.FITS_PER_BUDGET} fits with secure noise. Epsilon at delta = 1e-6."
    table = Table("policy", title="What privacy costs", title_justify="left", title_style="bold")
    table.caption, table.caption_justify = f"Cost per week on {weeks}.\n{fits}", "left"
    for column in ("rho", "epsilon", "cost", "gap to SAA"):
        table.add_column(column, justify="right")
    for rho, gaps in result.gaps.items():
        cost = f"{result.benchmark * (1 + gaps.mean()):.1f}"
        table.add_row("Pool", f"{rho:g}", epsilon_shown(rho), cost, f"{gaps.mean():+.1%} ± {gaps.std(ddof=1):.1%}")
    table.add_section()
    for name, budget, epsilon, gap in (
        ("NonPrivate: Pool(rho=inf)", "inf", "inf", result.non_private),
        ("Pool.published(rho=1), the paper's Algorithm 1", "1", epsilon_shown(1.0), result.published),
        ("data-free: costs and bounds alone", "0", "0", result.free),
        ("SAA on uncensored demand (no privacy)", "inf", "inf", 0.0),
    ):
        table.add_row(name, budget, epsilon, f"{result.benchmark * (1 + gap):.1f}", f"{gap:+.1%}" if gap else "0")
    return table
