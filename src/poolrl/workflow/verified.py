"""Releases whose certificate holds, with the problem that a configuration of the user's names."""

from __future__ import annotations

from pathlib import Path

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.release_files import CERTIFICATE, POLICY, sha256
from poolrl.certificate.verify import VerifyCheck, verify_release
from poolrl.workflow.config.configuration import load_config, terms_of
from poolrl.workflow.release_folder import Released
from poolrl.workflow.trades.trade import code_beside, own_problem


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
