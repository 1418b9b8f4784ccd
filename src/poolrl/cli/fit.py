"""`poolrl fit`."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from poolrl.certificate.files import PAGE, POLICY
from poolrl.certificate.label import MEANINGLESS_EPSILON, label, meaningless
from poolrl.cli.verbs import CONFIG_NAME, AsJson, ConfigPath, verb
from poolrl.shop.config_file import load_config
from poolrl.shop.fit import Released, fit_release
from poolrl.shop.forecast import Forecast
from poolrl.shop.report import draw_page

fit_verb = verb(
    "fit",
    examples="""\
  poolrl fit
  poolrl fit --out release-2026""",
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
    json: AsJson = False,
) -> None:
    """Make the release, draw its page, print its label."""
    file = load_config(config)
    folder = out or file.folder / "release"
    console = Console(quiet=json)
    try:
        with console.status("reading, releasing, learning"):
            release = fit_release(file, folder)
    except KeyboardInterrupt:
        if folder.exists():
            raise ValueError(f"stopped. {_complete(folder)}") from None
        raise
    if release.earlier_fit is not None:
        console.print(EARLIER_FIT[release.earlier_fit])
    try:
        forecast = draw_page(release, console)
    except (Exception, KeyboardInterrupt) as error:  # a page shows what is released, so the message may be shown
        why = "stopped" if isinstance(error, KeyboardInterrupt) else f"no page: {error}"
        raise ValueError(f"{why}. {_complete(folder)}") from None
    if json:
        finished = {"finished_earlier_fit": True} if release.earlier_fit == "finished" else {}
        print(dumps({"folder": str(folder), "certificate": release.certificate.model_dump()} | finished, indent=2))
    else:
        _print_release(console, release, forecast)


def _print_release(console: Console, release: Released, forecast: Forecast) -> None:
    folder, observed = release.folder, release.policy.report["observed"]
    names = ", ".join(sorted(path.name for path in folder.iterdir()))
    console.print(f"[bold]{escape(str(folder))}/[/] is the release: {names}\n", highlight=False)
    console.print(label(release.certificate), highlight=False, markup=False)
    warnings = []
    if (epsilon := release.certificate.in_all.epsilon["1e-06"]) > MEANINGLESS_EPSILON:
        warnings.append(f"There is no meaningful protection. {meaningless(epsilon)}")
    if observed < MOSTLY_OBSERVED:
        warnings.append(
            f"By the released counts only {observed:.0%} of the log was observed. Rows beyond lambda are unobserved, "
            "and so are those in which 'poolrl check' finds a fault."
        )
    if forecast.noise_dominated:
        warnings.append(forecast.warning)
    for warning in warnings:
        console.print(f"[bold red]{warning}[/]\n", highlight=False)
    console.print(f"Open {folder / PAGE}; ask with: poolrl decide {folder / POLICY} --step ...", markup=False)


def _complete(folder: Path) -> str:
    return f"The release in {folder} is complete and paid for; 'poolrl report {folder}' draws its page"
