"""The page of a release folder, drawn from its policy and its certificate."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from poolrl.certificate.files import CERTIFICATE, PAGE, POLICY
from poolrl.certificate.verify import VerifyCheck, verify_release
from poolrl.shop.config_file import terms_of
from poolrl.shop.fit import Released
from poolrl.shop.forecast import Forecast, make_forecast
from poolrl.shop.levels_csv import LEVELS_FILE, levels_csv
from poolrl.shop.page import can_be_drawn, release_page


def verify_folder(
    policy: Path,
    certificate: Path,
    config: Path | None = None,
    ledger: Path | None = None,
    key: Path | None = None,
) -> list[VerifyCheck]:
    """Every check of a release that the command line has made."""
    return verify_release(policy, certificate, read_terms=terms_of, config=config, ledger=ledger, key=key)


def load_verified(folder: Path) -> Released:
    """A release whose certificate holds."""
    release = Released.load(folder)
    broken = [check for check in verify_folder(folder / POLICY, folder / CERTIFICATE) if not check.good]
    if broken:
        raise ValueError(f"{folder / CERTIFICATE} does not hold ({broken[0].what}); see 'poolrl verify'")
    return release


def draw_page(release: Released, console: Console) -> Forecast:
    """Write the page and all levels as CSV beside the policy and the certificate; what the page forecasts."""
    page, levels = release.folder / PAGE, release.folder / LEVELS_FILE
    if not can_be_drawn(release):
        raise ValueError("the page draws order-up-to policies that 'poolrl fit' has made")
    for path in (page, levels):
        if path.is_symlink():
            raise ValueError(f"{path} is a link: it would be written elsewhere")
    with Progress(console=console, transient=True) as progress:
        forecast = make_forecast(release.policy, progress=progress)
    page.write_text(release_page(release, forecast), encoding="utf-8")
    levels.write_text(levels_csv(release.policy), encoding="utf-8", newline="")
    return forecast
