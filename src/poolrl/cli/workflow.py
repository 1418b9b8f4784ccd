"""The commands of the workflow, from a table to a signed policy; each imports what it needs when it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

CONFIG = Path("poolrl.toml")
Config = Annotated[Path, Parameter(help="The configuration.")]
Json = Annotated[bool, Parameter(name="--json", help="For programs: JSON on standard output.", negative="")]

INIT = """Examples:
  poolrl init                      asks, one key after the other
  poolrl init --example            a simulated chain of shops to try things on
  poolrl init --example --sales    the same as a till exports it
  poolrl init --products bread,milk --horizon 7 --holding 0.3,0.1 \\
      --shortage 0.6,0.4 --demand-max 150,200 --source log.parquet \\
      --units 2000 --data-set "shops 2025" --rho 0.1"""
CHECK = """Examples:
  poolrl check
  poolrl check --config shops/poolrl.toml --json"""
PLAN = """Examples:
  poolrl plan                      all five families of demand
  poolrl plan --demand exponential --rho 0.3
  poolrl plan --units 500 --within 0.05"""
FIT = """Examples:
  poolrl fit
  poolrl fit --out release-2026"""
DECIDE = """Examples:
  poolrl decide release/policy.npz --step Sat --stock bread=10,milk=20,salad=5
  poolrl decide release/policy.npz --step 6 --stock 10,20,5 --whole --json
  poolrl decide release/policy.npz --csv stocks.csv --out orders.csv
  echo '{"step": "Sat", "stock": [10, 20, 5]}' \\
      | poolrl decide release/policy.npz --lines -"""
REPORT = """Examples:
  poolrl report
  poolrl report release-2026"""
VERIFY = """Examples:
  poolrl verify release/policy.npz release/certificate.json
  poolrl verify release/policy.npz release/certificate.json \\
      --ledger ledger.sqlite"""
LEDGER = """Examples:
  poolrl ledger show
  poolrl ledger verify --ledger ledger.sqlite
  poolrl ledger budget 0.5 --reason 'one more season'"""


@Parameter(name="*")
@dataclass(kw_only=True)
class Answers:
    """What `init` would ask for."""

    kind: Annotated[str | None, Parameter(help='"lost sales" (if left out) or "backlog".')] = None
    products: Annotated[str | None, Parameter(help="Names, with commas between.")] = None
    horizon: Annotated[str | None, Parameter(help="Steps of a trajectory.")] = None
    steps: Annotated[str | None, Parameter(help="Names of the steps.")] = None
    holding: Annotated[str | None, Parameter(help="Cost of a unit left: a number, or one per product.")] = None
    shortage: Annotated[str | None, Parameter(help="Cost of a unit missing.")] = None
    demand_max: Annotated[str | None, Parameter(help="Public bound on demand.")] = None
    boundary: Annotated[str | None, Parameter(help="Lambda, as a share of it (1 if left out).")] = None
    source: Annotated[str | None, Parameter(help="The log: file, folder, glob, .duckdb or postgresql://...")] = None
    query: Annotated[str | None, Parameter(help="SQL that gives its rows.")] = None
    trajectory: Annotated[str | None, Parameter(help="Column (week if left out).")] = None
    step: Annotated[str | None, Parameter(help="Column (day if left out).")] = None
    first_step: Annotated[str | None, Parameter(help="Number of the first step (1 if left out).")] = None
    opening: Annotated[str | None, Parameter(help="Columns; {product} stands for each name.")] = None
    order_up_to: Annotated[str | None, Parameter(help="Columns, likewise.")] = None
    left: Annotated[str | None, Parameter(help="Columns, likewise.")] = None
    unit: Annotated[str | None, Parameter(help="Column of who is protected, if not each trajectory.")] = None
    max_per_unit: Annotated[str | None, Parameter(help="Trajectories used of one unit.")] = None
    protects: Annotated[str | None, Parameter(help="What a protected unit is, in words, for the label.")] = None
    rho: Annotated[str | None, Parameter(help="Privacy budget of one fit.")] = None
    budget: Annotated[str | None, Parameter(help="Of all fits together (rho if left out).")] = None
    data_set: Annotated[str | None, Parameter(help="Name of the account in the ledger.")] = None
    units: Annotated[str | None, Parameter(help="About how many units the log holds.")] = None


def init(
    answers: Answers | None = None,
    *,
    out: Annotated[Path, Parameter(help="The file to write.")] = CONFIG,
    example: Annotated[bool, Parameter(help="Write a simulated table as well.", negative="")] = False,
    sales: Annotated[
        bool, Parameter(help="The table is a sales export: shop, date, product, opening, ...", negative="")
    ] = False,
    force: Annotated[bool, Parameter(help="Replace an existing file.", negative="")] = False,
) -> None:
    """Write poolrl.toml: everything that must be public, declared by you and never read off the log."""
    from poolrl.shop.init import run_init

    run_init(out, vars(answers or Answers()), example=example, sales=sales, force=force)


def check(*, config: Config = CONFIG, json: Json = False) -> None:
    """Look whether the table is as the configuration says. For the data holder's eyes; not for release."""
    from poolrl.shop.check import run_check

    if not run_check(config, as_json=json):
        raise SystemExit(1)


def plan(
    *,
    config: Config = CONFIG,
    rho: Annotated[float | None, Parameter(help="The budget to ask about; the file's if left out.")] = None,
    units: Annotated[int | None, Parameter(help="Units of the log; the file's if left out.")] = None,
    demand: Annotated[
        str | None, Parameter(help="any, prior, uniform, normal, beta, exponential or bimodal; the file's if left out.")
    ] = None,
    within: Annotated[float, Parameter(help="Cost above the optimum that is good enough.")] = 0.02,
    json: Json = False,
) -> None:
    """Predict what each budget buys, before any data is touched: by simulation, reading no row of the log."""
    from poolrl.shop.plan import run_plan

    run_plan(config, rho=rho, units=units, demand=demand, within=within, as_json=json)


def fit(
    *,
    config: Config = CONFIG,
    out: Annotated[Path | None, Parameter(help="Folder to make; 'release' beside the file if left out.")] = None,
    json: Json = False,
) -> None:
    """Spend rho, once: write the policy, its certificate, the label, the registry's record and the page."""
    from poolrl.shop.fit import run_fit

    run_fit(config, out, as_json=json)


def decide(
    policy: Annotated[Path, Parameter(help="A policy that fit has written.")],
    *,
    step: Annotated[str | None, Parameter(help="Name or number of the step.")] = None,
    stock: Annotated[
        str | None, Parameter(help="Stock of each product; an empty shelf if left out.", allow_leading_hyphen=True)
    ] = None,
    csv: Annotated[
        Path | None, Parameter(help="CSV with columns step and products; - is a pipe.", allow_leading_hyphen=True)
    ] = None,
    lines: Annotated[
        Path | None, Parameter(help="JSON lines with step and stock; - is a pipe.", allow_leading_hyphen=True)
    ] = None,
    out: Annotated[Path | None, Parameter(help="Where answers to a file go; standard output if left out.")] = None,
    whole: Annotated[bool, Parameter(help="Round levels to whole units.", negative="")] = False,
    json: Json = False,
) -> None:
    """Answer order-up-to levels for stocks: one on the command line, or many from a file."""
    from poolrl.shop import decide as desk

    if sum(question is not None for question in (step, csv, lines)) != 1:
        raise ValueError("decide answers one of --step NAME, --csv FILE or --lines FILE")
    if step is None and (stock is not None or json):
        raise ValueError("--stock and --json go with --step; --lines answers in JSON anyway")
    if step is not None and out is not None:
        raise ValueError("--out goes with --csv and --lines")
    if csv is not None:
        desk.decide_csv(policy, csv, out, whole=whole)
    elif lines is not None:
        desk.decide_lines(policy, lines, out, whole=whole)
    elif step is not None:
        desk.decide_one(policy, step, stock, whole=whole, as_json=json)


def report(
    folder: Annotated[Path, Parameter(help="What fit has written.")] = Path("release"),
) -> None:
    """Draw the page of a release again, from its policy and its certificate alone."""
    from rich.console import Console

    from poolrl.shop.report import draw_page

    console = Console()
    draw_page(folder, console)
    console.print(f"Open {folder / 'report.html'}", highlight=False, markup=False)


def verify(
    policy: Annotated[Path, Parameter(help="The policy.")],
    certificate: Annotated[Path, Parameter(help="Its certificate.")],
    *,
    config: Annotated[Path | None, Parameter(help="The configuration it was made with.")] = None,
    ledger: Annotated[Path | None, Parameter(help="The ledger that paid for it (its key must lie beside it).")] = None,
    json: Json = False,
) -> None:
    """Check hashes and arithmetic of a certificate again: whatever can be computed anew is."""
    from poolrl.certificate.verify import run_verify

    if not run_verify(policy, certificate, config, ledger, as_json=json):
        raise SystemExit(1)


Ledger = Annotated[Path, Parameter(help="The ledger's file.")]


def ledger_show(*, ledger: Ledger = Path("ledger.sqlite"), json: Json = False) -> None:
    """Print every account and every entry."""
    from poolrl.cli.ledger import show_ledger

    show_ledger(ledger, as_json=json)


def ledger_verify(*, ledger: Ledger = Path("ledger.sqlite"), json: Json = False) -> None:
    """Check the chain of seals and the accounts."""
    from poolrl.cli.ledger import verify_ledger

    if not verify_ledger(ledger, as_json=json):
        raise SystemExit(1)


def ledger_budget(
    rho: Annotated[float, Parameter(help="What may be spent in all.")],
    *,
    reason: Annotated[str, Parameter(help="Why; it stands in the ledger.")],
    config: Config = CONFIG,
) -> None:
    """Change what may be spent on the configuration's data set: an entry that everybody can see."""
    from poolrl.cli.ledger import change_budget

    change_budget(config, rho, reason)


def add_workflow(app: App) -> None:
    """Add the commands, in the order in which they are used."""
    verbs: tuple[tuple[Callable[..., None], str], ...] = (
        (init, INIT),
        (check, CHECK),
        (plan, PLAN),
        (fit, FIT),
        (decide, DECIDE),
        (report, REPORT),
        (verify, VERIFY),
    )
    for number, (command, examples) in enumerate(verbs):
        app.command(command, help_epilogue=examples, sort_key=number)
    books = App(
        name="ledger",
        help="What was ever spent on a data set: show, verify, budget.",
        help_epilogue=LEDGER,
        sort_key=len(verbs),
    )
    books.command(ledger_show, name="show")
    books.command(ledger_verify, name="verify")
    books.command(ledger_budget, name="budget")
    app.command(books)
