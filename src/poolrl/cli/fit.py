"""`poolrl fit`."""

from __future__ import annotations

from collections.abc import Callable
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from poolrl.certificate.certificate import read_audit
from poolrl.certificate.leaflet import MEANINGLESS_EPSILON, leaflet, meaningless
from poolrl.certificate.release_files import PAGE, POLICY
from poolrl.cli.verbs import CONFIG_NAME, AsJson, AuditFile, ConfigPath, verb
from poolrl.workflow.config.configuration import load_config
from poolrl.workflow.paying import why_not_together
from poolrl.workflow.release_folder import Released, fit_release
from poolrl.workflow.trades.trade import trade_of

if TYPE_CHECKING:
    from poolrl.workflow.forecast import Forecast

fit_verb = verb(
    "fit",
    examples="""\
  poolrl fit --new-account         the first release of a data set
  poolrl fit --out release-2026    a later one, from the same account
  poolrl fit --audit audit/2026-11-16-120000/audit.json""",
    more="""\
A data set has one account, and the ledger lies at one place for all of a user's data sets. A fit that would open a new
account is refused until --new-account confirms that nothing was ever released of these rows.""",
)
# A log of which less was observed is worth a second look at columns, steps and bounds.
MOSTLY_OBSERVED = 0.5
EARLIER_FIT = {
    "finished": "A fit that was killed had paid for this release: it is finished now, at no further cost.",
    "removed": "Removed the unfinished draft of a fit that was killed; what that fit cost stays spent.",
}


@fit_verb.default
def fit(
    *,
    config: ConfigPath = CONFIG_NAME,
    out: Annotated[Path | None, Parameter(help="Folder to make; 'release' beside the file if left out.")] = None,
    new_account: Annotated[
        bool, Parameter(help="Nothing was ever released of this data set: open its account.", negative="")
    ] = False,
    audit: AuditFile = None,
    json: AsJson = False,
) -> None:
    """Make the release, draw its page, print its leaflet."""
    file = load_config(config)
    folder = out or file.folder / "release"
    console = Console(quiet=json)

    if file.config.privacy.together and (why := why_not_together(file.config)):
        console.print(f"[privacy] together buys nothing: {why}.", highlight=False, markup=False)
    found = None if audit is None else read_audit(audit, file.sha256)
    release = made_release(lambda: fit_release(file, folder, new_account=new_account, audit=found), folder, console)
    forecast = page_of(release, console)
    if json:
        finished = {"finished_earlier_fit": True} if release.earlier_fit == "finished" else {}
        opened = {"new_account_in": str(file.ledger)} if new_account and not finished else {}
        facts = {"folder": str(folder), "certificate": release.certificate.model_dump()}
        together = release.policy.report.to_dict().get("together")
        said = {"together": together} if file.config.privacy.together else {}
        print(dumps(facts | finished | opened | said, indent=2))
    else:
        if new_account and release.earlier_fit != "finished":
            account = f"New account {file.config.privacy.data_set!r} with a budget of {file.config.privacy.budget:g}"
            console.print(f"{account}, in {file.ledger}.", highlight=False, markup=False)
        print_release(console, release, forecast)
        if file.config.operations.declared:
            plan = f"poolrl replan {folder}"
            console.print(f"These levels do not know [operations]: {plan} plans for them.", markup=False)


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
    console.print(f"[bold]{escape(str(folder))}/[/] is the release: {names}\n", highlight=False)
    console.print(leaflet(release.certificate), highlight=False, markup=False)
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
        console.print(f"[bold red]{warning}[/]\n", highlight=False)
    if (together := release.policy.report.together) is not None:
        measured = f"Products sell together with a correlation of {together.measured:.2f} ± {together.error:.2f}"
        console.print(f"{measured}; plans use {together.correlation:.2f}.\n", highlight=False)
    console.print(f"[bold]{forecast.verdict.capitalize()}.[/] {forecast.because}\n", highlight=False)
    console.print(f"Open {folder / PAGE}; ask with: poolrl decide {folder / POLICY} --step ...", markup=False)
    compare = trade_of(release.policy.problem).before_switch.format(folder=folder)
    console.print(f"Before you switch, {compare}.", markup=False)


def _complete(folder: Path) -> str:
    return f"The release in {folder} is complete and paid for; 'poolrl report {folder}' draws its page"
