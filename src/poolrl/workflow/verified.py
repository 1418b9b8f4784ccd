"""Releases whose certificate holds, with the problem that a configuration of the user's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.release_files import CERTIFICATE, POLICY, sha256
from poolrl.certificate.verify import VerifyCheck, verify_release
from poolrl.learning.policy import Policy
from poolrl.problems.problem import Problem
from poolrl.workflow.config.configuration import load_config, terms_of
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
    files: dict[str, Any] = {"config": config, "ledger": ledger, "key": key}
    if config is None or not _speaks_of(certificate, config):
        checks = verify_release(policy, certificate, read_terms=terms_of, **files)
        return [*checks, *_words(policy, certificate, None)]
    problem = own_problem(load_config(config).config.problem.posed)
    with code_beside(config):
        checks = verify_release(policy, certificate, read_terms=terms_of, problem=problem, **files)
    return [*checks, *_words(policy, certificate, problem)]


def _words(policy: Path, certificate: Path, problem: Problem | None) -> list[VerifyCheck]:
    """Whether papers speak of the problem as its trade does; nothing where a file is refused anyway."""
    try:
        posed = Policy.load(policy, problem=problem).problem
        public = Certificate.read(certificate.read_bytes()).assumed_public
    except (ValueError, OSError):
        return []
    words = trade_of(posed).words.certified(public.products, censored=getattr(posed, "censored", True))
    return [VerifyCheck("the certificate speaks in the words of its trade", public.words == words)]


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
