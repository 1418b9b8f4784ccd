"""Releases whose certificate holds, with the problem that a configuration of the user's names."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.release_files import CERTIFICATE, POLICY, sha256
from poolrl.certificate.verify import VerifyCheck, verify_release
from poolrl.learning.policy import Policy
from poolrl.problems.problem import Problem
from poolrl.workflow.config.configuration import ConfigFile, load_config, terms_of
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
    trusted = load_config(config) if config is not None and _speaks_of(certificate, config) else None
    return _checked(policy, certificate, trusted, config=config, ledger=ledger, key=key)


def load_verified(folder: Path, trusted: ConfigFile | None = None, *, ledger: Path | None = None) -> Released:
    """A release whose certificate holds. A configuration of the user's names the problem, where it is their own."""
    problem = None if trusted is None else own_problem(trusted.config.problem.posed)
    release = Released.load(folder, problem=problem)
    checks = _checked(folder / POLICY, folder / CERTIFICATE, trusted, ledger=ledger)
    if broken := [check for check in checks if not check.good]:
        raise ValueError(f"{folder / CERTIFICATE} does not hold ({broken[0].what}); see 'poolrl verify'")
    return release


def _checked(policy: Path, certificate: Path, trusted: ConfigFile | None, **files: Path | None) -> list[VerifyCheck]:
    problem = None if trusted is None else own_problem(trusted.config.problem.posed)
    # Other configurations of the release may then name the same code.
    with nullcontext() if trusted is None or problem is None else code_beside(trusted.path):
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
