"""`poolrl fit`, and the verbs that make more of a release. These import their own work."""

from __future__ import annotations

from collections.abc import Callable
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from poolrl.certificate.certificate import read_audit
from poolrl.certificate.leaflet import MEANINGLESS_EPSILON, leaflet, meaningless
from poolrl.certificate.release_files import PAGE, POLICY
from poolrl.cli.verbs import CONFIG_NAME, AsJson, AuditFile, ConfigPath, OwnConfig, verb
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.paying import why_not_together
from poolrl.workflow.release_folder import Released, fit_release
from poolrl.workflow.trades.trade import trade_of

if TYPE_CHECKING:
    from poolrl.workflow.forecast import Forecast

# A log of which less was observed is worth a second look at columns, steps and bounds.
MOSTLY_OBSERVED = 0.5
EARLIER_FIT = {
    "finished": "A fit that was killed had paid for this release: it is finished now, at no further cost.",
    "removed": "Removed the unfinished draft of a fit that was killed; what that fit cost stays spent.",
}

fit_verb = verb("""\
  poolrl fit --new-account         the first release of a data set
  poolrl fit --out release-2026    a later one, from the same account
  poolrl fit --audit audit/2026-11-16-120000/audit.json

A data set has one account, and the ledger lies at one place for all of a user's data sets. A fit that would open a new
account is refused until --new-account confirms that nothing was ever released of these rows.""")


@fit_verb.default
def fit(
    *,
    config: ConfigPath = CONFIG_NAME,
    out: Annotated[Path | None, Parameter(help="Folder to make; 'release' beside the file if left out.")] = None,
    new_account: Annotated[bool, Parameter(help="Open an account: nothing was ever released of the data.")] = False,
    audit: AuditFile = None,
    json: AsJson = False,
) -> None:
    """Make the release, draw its page, print its leaflet."""
    file = load_config(config)
    folder = out or file.folder / "release"
    console = Console(quiet=json, highlight=False)
    if file.config.privacy.together and (why := why_not_together(file.config)):
        console.print(f"[privacy] together buys nothing: {why}.", markup=False)
    found = None if audit is None else read_audit(audit, file.sha256)
    release = made_release(lambda: fit_release(file, folder, new_account=new_account, audit=found), folder, console)
    forecast = page_of(release, console)
    finished, privacy = release.earlier_fit == "finished", file.config.privacy
    if json:
        facts: dict[str, object] = {"folder": str(folder), "finished_earlier_fit": finished}
        facts["certificate"] = release.certificate.model_dump()
        print(dumps(facts, indent=2))
        return
    if new_account and not finished:
        account = f"New account {privacy.data_set!r} with a budget of {privacy.budget:g}, in {file.ledger}."
        console.print(account, markup=False)
    print_release(console, release, forecast)
    if file.config.operations.declared:
        console.print(f"These levels do not know [operations]: poolrl replan {folder} plans for them.", markup=False)


def made_release(make: Callable[[], Released], folder: Path, console: Console) -> Released:
    """Make a release. A person who stops it is told what is complete and paid for."""
    try:
        with console.status("reading, releasing, learning"):
            release = make()
    except KeyboardInterrupt:
        if folder.exists():
            raise ValueError(f"stopped. {_complete(folder)}") from None
        raise
    if release.earlier_fit is not None:
        console.print(EARLIER_FIT[release.earlier_fit])
    return release


def page_of(release: Released, console: Console) -> Forecast:
    """Draw the page of a release, which is complete without it."""
    # Here, because a release must not wait for what draws pages.
    from poolrl.workflow.page import draw_page

    try:
        return draw_page(release, console)
    except (Exception, KeyboardInterrupt) as error:  # a page shows what is released, so the message may be shown
        why = "stopped" if isinstance(error, KeyboardInterrupt) else f"no page: {error}"
        raise ValueError(f"{why}. {_complete(release.folder)}") from None


def print_release(console: Console, release: Released, forecast: Forecast) -> None:
    """The leaflet, and warnings where there is something to warn of."""
    folder, observed = release.folder, release.policy.report.observed
    names = ", ".join(sorted(path.name for path in folder.iterdir()))
    console.print(f"[bold]{escape(str(folder))}/[/] is the release: {names}\n")
    console.print(leaflet(release.certificate), markup=False)
    warnings = []
    if (epsilon := release.certificate.in_all.epsilon["1e-06"]) > MEANINGLESS_EPSILON:
        warnings.append(f"There is no meaningful protection. {meaningless(epsilon)}")
    if observed is not None and observed < MOSTLY_OBSERVED:
        noise = "Noise may have hidden the rest. " if forecast.warning else ""
        warnings.append(
            f"By the released counts only {observed:.0%} of the log was observed. {noise}Rows beyond lambda are "
            "unobserved, and so are those in which 'poolrl check' finds a fault."
        )
    if forecast.warning:
        warnings.append(forecast.warning)
    for warning in warnings:
        console.print(f"[bold red]{warning}[/]\n")
    if (together := release.policy.report.together) is not None:
        measured = f"Products sell together with a correlation of {together.measured:.2f} ± {together.error:.2f}"
        console.print(f"{measured}; plans use {together.correlation:.2f}.\n")
    console.print(f"[bold]{forecast.verdict.capitalize()}.[/] {forecast.because}\n")
    console.print(f"Open {folder / PAGE}; ask with: poolrl decide {folder / POLICY} --step ...", markup=False)
    compare = trade_of(release.policy.problem).before_switch.format(folder=folder)
    console.print(f"Before you switch, {compare}.", markup=False)


def _complete(folder: Path) -> str:
    return f"The release in {folder} is complete and paid for; 'poolrl report {folder}' draws its page"


update_verb = verb("""\
  poolrl update --release release --out release-2025-02
  poolrl update --release release-2025-02 --out release-2025-03
  poolrl update --release release --dry-run      only say what it would cost

Before it, write the new period into poolrl.toml, and leave the rest as it is. For example:

  [period]
  column = "monday"          the date on which a week begins
  first = "2025-02-03"       where the last period ended
  before = "2025-03-03"

Weeks of this period alone are read and pay rho. With a unit in [privacy] all periods add up, and the command says how
many more the budget allows. Periods that overlap are refused. So are rows that were released under another date.""")


@update_verb.default
def update(
    *,
    release: Annotated[Path, Parameter(help="The release of the period before, which is continued.")],
    out: Annotated[Path | None, Parameter(help="Folder to make; 'release-FIRST' beside the file if left out.")] = None,
    config: ConfigPath = CONFIG_NAME,
    dry_run: Annotated[bool, Parameter(help="Say what it would cost; read and spend nothing.")] = False,
    audit: AuditFile = None,
) -> None:
    """Say what the update costs, make it, draw its page, and print what changed and the leaflet."""
    from poolrl.workflow.update import cost_in_words, load_earlier, noise_in_words, what_changed

    file = load_config(config)
    folder = out or file.folder / f"release-{file.config.period.first}"
    console, earlier = Console(highlight=False), load_earlier(file, release)
    console.print("\n".join([*cost_in_words(file), noise_in_words(file, earlier)]), markup=False)
    if dry_run:
        return
    found = None if audit is None else read_audit(audit, file.sha256)
    made = made_release(lambda: fit_release(file, folder, audit=found, earlier=earlier), folder, console)
    sentence, changes, advised = what_changed(earlier, made, file.config.forgetting)
    console.print("\n  ".join([f"What changed: {sentence}", *changes]), markup=False)
    console.print(f"\n[bold]{advised}[/]\n" if advised else "")
    print_release(console, made, page_of(made, console))


replan_verb = verb("""\
  poolrl replan --out release-new-costs
  poolrl replan release-2026 --config new-costs.toml --out release-new-costs
  poolrl verify release-new-costs/policy.npz release-new-costs/certificate.json

Before it, change costs in poolrl.toml: holding or shortage of a shop, what an unsold lot or unit is worth (keep), or
what a win is worth. Bounds of a shop may be lowered too: demand_max or boundary. Products, steps and labels stay as
they are. Neither the log nor the ledger is opened, and nothing is spent: the plan uses numbers that the release
has paid for. 'poolrl verify' makes the same plan again from the certified policy beside it.

With a section [operations] (purchase, price, fixed, spoilage, salvage, pack, minimum, deliveries, cycle) the plan is
for a shop with these, and orders.csv says what to order at each stock. With capacity (and volume) all products share a
shelf, a room or cash; with lead_time an order arrives later. Ask any of these plans:
  poolrl decide orders/plan.npz --step Sat --stock bread=10,milk=20,salad=5""")


@replan_verb.default
def replan(
    release: Annotated[Path, Parameter(help="The release to plan again.")] = Path("release"),
    *,
    config: ConfigPath = CONFIG_NAME,
    out: Annotated[Path, Parameter(help="Folder to make.")] = Path("replanned"),
    json: AsJson = False,
) -> None:
    """Verify the release, plan it again, draw its page, and say what changed."""
    from poolrl.workflow.decision_tables import ORDERS_FILE, decisions_of
    from poolrl.workflow.replan import PLAN_FILE, replan_orders, replan_release
    from poolrl.workflow.verified import load_verified

    console = Console(quiet=json, highlight=False)
    file, source = load_config(config), load_verified(release)
    if file.config.operations.declared:
        with Progress(console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("planning", total=None)
            orders = replan_orders(source, file, out, lambda done, all_: bar.update(task, completed=done, total=all_))
        facts: dict[str, object] = {"folder": str(out), "kept": orders.kept, "planned": orders.planned}
        facts |= {} if orders.bound is None else {"bound": orders.bound}
        what = "at each stock" if orders.file == ORDERS_FILE else "from empty shelves"
        lines = [
            f"Planned for [operations] at no cost in privacy, in {out}.",
            *orders.in_words,
            f"What to order {what}: {out / orders.file}",
            f"Ask the plan: poolrl decide {out / PLAN_FILE} --step ... --stock ...",
        ]
    else:
        made, kept, planned, said = replan_release(source, file, out)
        forecast = page_of(made, console)
        facts = {"folder": str(out), "kept": kept, "planned": planned, "verdict": forecast.verdict}
        facts["decisions"] = decisions_of(made.policy).tolist()
        lines = [
            f"Planned again at no cost in privacy, in {out}.",
            *said,
            f"\n{forecast.verdict.capitalize()}. {forecast.because}\n",
            f"Open {out / PAGE}; ask with: poolrl decide {out / POLICY} --step ...",
        ]
    if json:
        print(dumps(facts, indent=2))
    console.print("\n".join(lines), markup=False)


report_verb = verb("""\
  poolrl report
  poolrl report release-2026""")


@report_verb.default
def report(
    folder: Annotated[Path, Parameter(help="What fit has written.")] = Path("release"), *, config: OwnConfig = None
) -> None:
    """Refuse a release whose certificate does not hold; else draw."""
    from poolrl.workflow.page import draw_page
    from poolrl.workflow.verified import load_verified

    release, console = load_verified(folder, None if config is None else load_config(config)), Console()
    draw_page(release, console)
    table = folder / trade_of(release.policy.problem).decisions_file
    console.print(f"Open {folder / PAGE}; all decisions are in {table}", highlight=False, markup=False)
