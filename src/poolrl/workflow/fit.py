"""A release, from a configuration to a folder: reserve, read, release, write, commit, publish."""

from __future__ import annotations

import json
import os
import platform
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any

from poolrl import __version__
from poolrl.certificate.certificate import WORDS_OF_SHOPS, Certificate, certify
from poolrl.certificate.files import CERTIFICATE, CONFIG, LABEL, PAGE, POLICY, RECORD, SIGNATURE, TREES, sha256
from poolrl.certificate.label import label
from poolrl.certificate.parts import AuditSummary, CertifiedPeriod, CertifiedWords, LedgerEntry, Software
from poolrl.certificate.registry import registry_record
from poolrl.data.kept_rows import sketch_of
from poolrl.data.sources.engine import NoRowsError, RowError
from poolrl.interrupts import deferred
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.policy import Policy
from poolrl.ledger.accounts import Account, Entry, OverspendError
from poolrl.ledger.chain import onto_disk, was_made
from poolrl.ledger.ledger import Ledger
from poolrl.ledger.overlap import Sketch
from poolrl.ledger.signing import SigningKey
from poolrl.pool import Pool
from poolrl.privacy.noise.secure import SecureNoise, opendp_version
from poolrl.privacy.noise.self_test import require_sound_sampler
from poolrl.problems.problem import Problem
from poolrl.workflow.config_file import ConfigFile
from poolrl.workflow.earlier import NOTHING_SPENT, Earlier, refuse_read_periods, said_of_periods, units_in, with_earlier
from poolrl.workflow.open_log import open_log
from poolrl.workflow.payable import dependence_share, left_over_share, require_payable, together_share
from poolrl.workflow.release_folder import DRAFT_MODE, Settled, hashes_of, locked, publish, settle
from poolrl.workflow.trades.trade import own_problem


@dataclass(frozen=True)
class Released:
    """A release in memory: what the folder holds, to be drawn and printed."""

    folder: Path
    policy: Policy
    certificate: Certificate
    earlier_fit: Settled | None = None  # what became of the draft of a fit that was killed
    new_account: Path | None = None  # the ledger in which this fit has opened an account

    @classmethod
    def load(cls, folder: Path, *, earlier_fit: Settled | None = None, problem: Problem | None = None) -> Released:
        """From a folder that holds a release; with its `problem`, where that is one of the user's own."""
        if not (folder / CERTIFICATE).exists():
            raise ValueError(f"{folder} is not a release: it has no {CERTIFICATE}. 'poolrl fit' makes one")
        certificate = Certificate.read((folder / CERTIFICATE).read_bytes())
        return cls(folder, Policy.load(folder / POLICY, problem=problem), certificate, earlier_fit)


def fit_release(
    file: ConfigFile,
    folder: Path,
    *,
    new_account: bool = False,
    audit: AuditSummary | None = None,
    earlier: Earlier | None = None,
) -> Released:
    """Spend ρ once and leave a release in a new folder. A folder that cannot be written to is found out first.

    A data set without an account is refused, unless `new_account` confirms that nothing was ever spent on it. `audit`
    is repeated by the certificate. The trees of an `earlier` release are added to this one's.
    """
    if folder.name in ("", ".."):
        raise ValueError(f"--out must name a new folder, got {folder}")
    _refuse_existing(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder) as draft:
        _refuse_existing(folder)  # another fit may have made it meanwhile
        earlier_fit = settle(draft, folder, file.ledger, file.sha256)
        if earlier_fit == "finished":
            own = own_problem(file.config.problem.posed)
            return Released.load(folder, earlier_fit=earlier_fit, problem=own)
        opened = require_account(file, new_account=new_account)
        draft.mkdir(mode=DRAFT_MODE)
        try:
            with Ledger(file.ledger) as ledger:
                released = _release(file, ledger, draft, folder, audit, earlier)
                return replace(released, earlier_fit=earlier_fit, new_account=ledger.path if opened else None)
        except BaseException:
            with suppress(ValueError, OSError):  # the first error is the one to report; the next fit settles the draft
                settle(draft, folder, file.ledger, file.sha256)
            raise


def read_audit(path: Path, config_sha256: str) -> AuditSummary:
    """The summary of an audit of this very configuration, for the certificate."""
    try:
        facts = json.loads(path.read_bytes())["summary"]
        flagged = facts["verdict"] == "FLAGGED"
        summary = None if flagged else AuditSummary.model_validate(facts)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path} is not audit.json of 'poolrl audit --config'") from None
    if summary is None:
        raise ValueError(f"{path} says that releases of this configuration exceed their claim: do not fit")
    if (summary.config_sha256, summary.poolrl) != (config_sha256, __version__):
        raise ValueError(f"{path} audits another configuration or version: run 'poolrl audit --config' again")
    return summary


def _refuse_existing(folder: Path) -> None:
    if os.path.lexists(folder):
        page = "" if (folder / PAGE).exists() else f"; 'poolrl report {folder}' draws its page"
        raise ValueError(f"{folder} exists, and a release is never overwritten: name another with --out{page}")


def require_account(file: ConfigFile, *, new_account: bool) -> bool:
    """Whether the fit will open an account; refused, if that was not asked for. A slip must not make a new budget."""
    name = file.config.privacy.data_set
    confirm = f"If nothing was ever released of {name!r}, say so with --new-account"
    if not was_made(file.ledger):
        if not new_account:
            raise ValueError(
                f"there is no ledger {file.ledger}, so what was spent on {name!r} is not known. {confirm}; "
                "otherwise name its ledger in [privacy] ledger"
            )
        file.ledger.parent.mkdir(mode=DRAFT_MODE, parents=True, exist_ok=True)
        return True
    # A ledger whose making was interrupted has no tables yet, and is finished by the fit that may make one.
    with Ledger(file.ledger, create=new_account) as ledger:
        known = [account.data_set for account in ledger.accounts().values()]
        if ledger.account(name) is not None:
            if new_account:
                raise ValueError(f"{file.ledger} has an account {name!r} already: leave out --new-account")
            return False
    if not new_account:
        near = get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{file.ledger} has no account {name!r}{hint}. {confirm}")
    return True


def _release(
    file: ConfigFile,
    ledger: Ledger,
    draft: Path,
    folder: Path,
    audit: AuditSummary | None = None,
    earlier: Earlier | None = None,
) -> Released:
    """The steps of a release, in the order in which a crash may cut them off.

    Until `ledger.read` nothing has left the log, and a failure gives the reservation back, unless a row may have
    caused it. From there on ρ is spent. What is written to the draft is committed before anybody gets to see it.
    """
    config, problem = file.config, file.config.problem.posed
    dependence, together = dependence_share(config), together_share(config)
    left_over = left_over_share(problem, moved=config.moved, rho=config.privacy.rho)
    # Trees can be added if they have the same bins.
    settings = None if earlier is None else Outcomes(bins=earlier.trees.bins)
    prepared = Pool(
        config.privacy.rho, settings, dependence=dependence, left_over=left_over, together=together
    ).prepare(problem)
    prepared.rehearse()  # what would fail after the release fails now
    terms = config.terms(units=0)
    require_payable(config, dependence + left_over + together)
    require_sound_sampler()
    signing = ledger.signing_key()
    account = ledger.open_account(terms.data_set, terms.budget)
    if earlier is not None and terms.period is not None:
        refuse_read_periods(account, terms.period)
    reservation = ledger.reserve(terms.data_set, terms.rho, terms.unit, terms.period)
    with ExitStack() as opened:
        rows_in_reach = threading.Event()
        try:
            log = opened.enter_context(open_log(file, rows_in_reach.set))
            log.check(problem)
            rows_in_reach.set()
            units = units_in(log, terms.period)
            account = ledger.read(reservation, Sketch(*sketch_of(log)))
        except BaseException as error:
            paid = rows_in_reach.is_set() and _one_row_may_have_caused(error, queried=config.query() is not None)
            raise _ended_before_release(ledger, reservation, error, paid=paid) from None
        learned = False
        try:
            released, sums = with_earlier(prepared.release(log, SecureNoise()), terms, earlier)
            policy = prepared.learn(released)
            learned = True
            opened.close()  # before anything is committed: an error while closing must not hide a release
            said = said_of_periods(terms, earlier)
            policy.report = replace(
                policy.report,
                names=config.names(),
                units=units,
                scale_in_words=config.scale_in_words,
                periods=tuple(CertifiedPeriod(**each["period"]).read() for each in [*said["earlier"], said])
                if said
                else (),
            )
            words = CertifiedWords.of(problem.words)
            declared = {"definitions": list(log.definitions), "audit": audit} | said
            declared |= {} if words == WORDS_OF_SHOPS else {"words": words}
            sums.save(draft / TREES)
            certificate = _write_draft(draft, policy, file, reservation, account, signing, declared)
        except (Exception, KeyboardInterrupt) as error:
            # Errors of writing may be shown. What fails while the log is open might quote it.
            shown = learned and isinstance(error, ValueError | OSError)
            why = str(error) if shown else f"stopped by {type(error).__name__}"
            raise ValueError(f"{why}. {_stays_spent(reservation, ledger)}") from None
    with deferred():
        try:
            hashes = hashes_of(draft)
            if len(hashes) < 2:
                raise ValueError(f"{draft} was changed while it was written")
            ledger.commit(reservation, hashes)
        except (ValueError, OSError) as error:
            raise ValueError(f"{error}. {_stays_spent(reservation, ledger)}") from None
        publish(draft, folder)
    return Released(folder, policy, certificate)


def _write_draft(
    draft: Path,
    policy: Policy,
    file: ConfigFile,
    reservation: Entry,
    account: Account,
    signing: SigningKey,
    declared: dict[str, Any],
) -> Certificate:
    """Every file of the release, on the disk before the ledger says that it is there."""
    policy.save(draft / POLICY)
    terms = file.config.terms(units=policy.report.units or 0)
    certificate = certify(
        policy.guarantee,
        issued=reservation.time,
        policy_sha256=sha256(draft / POLICY),
        trees_sha256=sha256(draft / TREES),
        config_sha256=file.sha256,
        public=terms.public,
        versions=_versions(),
        ledger=LedgerEntry.of(reservation, account, terms.unit),
        owns_at_most=terms.unit.owns_at_most,
        other_units=account.other_units(terms.unit),
        signed_by=signing.public.fingerprint,
        **declared,
    )
    (draft / CERTIFICATE).write_bytes(certificate.canonical())
    (draft / SIGNATURE).write_bytes(signing.sign(certificate.canonical()).file())
    (draft / LABEL).write_bytes(label(certificate).encode())
    (draft / CONFIG).write_bytes(file.content)
    (draft / RECORD).write_bytes(registry_record(certificate).yaml().encode())
    for path in (*draft.iterdir(), draft, draft.parent):
        onto_disk(path)
    return certificate


def _versions() -> dict[Software, str]:
    return {
        "cryptography": version("cryptography"),
        "numpy": version("numpy"),
        "opendp": opendp_version() or "not installed",
        "poolrl": __version__,
        "python": platform.python_version(),
        "scipy": version("scipy"),
    }


def _one_row_may_have_caused(error: BaseException, *, queried: bool) -> bool:
    """Whether one row may be the reason why a log could not be read, once its rows were in reach.

    An engine may fail at a row, and one row decides whether the rows belong to another account. With a query, one row
    also decides whether any row is left, and how long the query takes, so that a person interrupts it.
    """
    if isinstance(error, RowError | OverspendError):
        return True
    return queried and (isinstance(error, NoRowsError) or not isinstance(error, ValueError | OSError))


def _ended_before_release(ledger: Ledger, reservation: Entry, error: BaseException, *, paid: bool) -> BaseException:
    """What to raise when the log could not be read: it says whether ρ stays spent."""
    known = isinstance(error, ValueError | OSError)
    why = str(error) if known else f"stopped by {type(error).__name__}"
    if paid:
        stays = _stays_spent(reservation, ledger, "One row may have caused that")
        return ValueError(f"{why}. {stays}; 'poolrl check' tries a log at no cost, for your eyes")
    try:
        ledger.void(reservation)
    except ValueError:
        return ValueError(f"{why}. Nothing was released, but the ledger could not be changed: the reservation stays")
    return ValueError(f"{why}. {NOTHING_SPENT}") if known else error


def _stays_spent(reservation: Entry, ledger: Ledger, began: str = "The release had begun") -> str:
    assert reservation.rho is not None
    return f"{began}, so its rho = {float(reservation.rho):g} stays spent (entry {reservation.number} of {ledger.path})"
