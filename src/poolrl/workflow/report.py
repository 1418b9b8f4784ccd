"""The page of a release folder, drawn from its policy and its certificate."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.release_files import CERTIFICATE, PAGE, POLICY, TREES, sha256
from poolrl.certificate.verify import VerifyCheck, verify_release
from poolrl.learning.faded_trees import FadedTrees
from poolrl.workflow.config.configuration import load_config, terms_of
from poolrl.workflow.decision_table import DECISIONS_FILE, decisions_csv
from poolrl.workflow.forecast import Forecast
from poolrl.workflow.kind_page import kind_page
from poolrl.workflow.levels_csv import LEVELS_FILE, levels_csv
from poolrl.workflow.page import can_be_drawn, release_page
from poolrl.workflow.release_folder import Released
from poolrl.workflow.trades.trade import code_beside, own_problem, trade_of


def verify_folder(
    policy: Path,
    certificate: Path,
    config: Path | None = None,
    ledger: Path | None = None,
    key: Path | None = None,
) -> list[VerifyCheck]:
    """Every check of a release that the command line has made.

    A configuration that the user names may name a problem of their own. One that lies beside a certificate may not.
    """
    if config is None or not _speaks_of(certificate, config):
        return verify_release(policy, certificate, read_terms=terms_of, config=config, ledger=ledger, key=key)
    own, named = load_config(config).config.problem.posed, {"ledger": ledger, "key": key}
    with code_beside(config):
        return verify_release(
            policy, certificate, read_terms=terms_of, config=config, problem=own_problem(own), **named
        )


def _speaks_of(certificate: Path, config: Path) -> bool:
    """Whether a certificate was made with that configuration: only then there is a reason to run what it names."""
    try:
        return Certificate.read(certificate.read_bytes()).config_sha256 == sha256(config)
    except (ValueError, OSError):
        return False


def load_verified(folder: Path, config: Path | None = None) -> Released:
    """A release whose certificate holds. `config` names a problem of the user's own, where it is one."""
    release = Released.load(
        folder, problem=None if config is None else own_problem(load_config(config).config.problem.posed)
    )
    broken = [check for check in verify_folder(folder / POLICY, folder / CERTIFICATE, config) if not check.good]
    if broken:
        raise ValueError(f"{folder / CERTIFICATE} does not hold ({broken[0].what}); see 'poolrl verify'")
    return release


def draw_page(release: Released, console: Console) -> Forecast:
    """Write the page and all decisions as CSV beside the policy and the certificate; what the page forecasts."""
    shop = can_be_drawn(release)
    page, table = release.folder / PAGE, release.folder / (LEVELS_FILE if shop else DECISIONS_FILE)
    if release.policy.outcomes is None:
        raise ValueError("the page draws policies with a model of outcomes, as 'poolrl fit' makes them")
    for path in (page, table):
        if path.is_symlink():
            raise ValueError(f"{path} is a link: it would be written elsewhere")
    with Progress(console=console, transient=True) as progress:
        trees = release.folder / TREES
        counted = FadedTrees.load(trees) if trees.exists() else None
        forecast = trade_of(release.policy.problem).forecast(release.policy, counted, progress)
        if shop:
            text, rows = release_page(release, forecast), levels_csv(release.policy)
        else:
            text, rows = kind_page(release, forecast), decisions_csv(release.policy)
    page.write_text(text, encoding="utf-8")
    table.write_text(rows, encoding="utf-8", newline="")
    return forecast
