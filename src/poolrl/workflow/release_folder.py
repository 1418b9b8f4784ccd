"""A release, from a configuration to a folder: reserve, read, release, write, commit, publish.

The folder is written as a hidden draft, committed in the ledger, then renamed. It is complete or not there.

    .release.lock     held by the fit that writes to `release` (the system frees it when a process is killed)
    .release.draft    what is being written
    release           complete and paid for

A killed fit leaves its draft. The next fit to the same place settles it by the ledger: a draft that was committed is
paid for and becomes the release; any other is removed, and its cost stays spent.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from poolrl import __version__
from poolrl.certificate import release_files as files
from poolrl.certificate.certificate import AuditSummary, Certificate, EarlierRelease, LedgerEntry, Terms, certify
from poolrl.certificate.leaflet import leaflet, neighbours_keep, registry_record
from poolrl.data.periods import sketch_of
from poolrl.data.sources.engine import NoRowsError, RowError
from poolrl.interrupts import deferred
from poolrl.learning.faded_trees import FadedTrees
from poolrl.learning.outcomes import Outcomes
from poolrl.learning.policy import Policy
from poolrl.learning.stored import PeriodRead
from poolrl.ledger.accounts import Entry, OverspendError
from poolrl.ledger.chain import onto_disk, was_made
from poolrl.ledger.ledger import Ledger, Sketch
from poolrl.ledger.signing import SigningKey
from poolrl.pool import Pool
from poolrl.privacy.noise.secure import SecureNoise, opendp_version, require_sound_sampler
from poolrl.privacy.released import PrivateOutcomes
from poolrl.problems.problem import Problem
from poolrl.workflow.config.configuration import ConfigFile
from poolrl.workflow.open_log import open_log
from poolrl.workflow.paying import require_payable, shares_on_top
from poolrl.workflow.trades.trade import own_problem

WRITTEN = {files.POLICY, files.TREES, files.CERTIFICATE, files.SIGNATURE, files.LEAFLET, files.CONFIG, files.RECORD}
# A draft is for its owner's eyes until it is paid for.
DRAFT_MODE, PUBLISHED_MODE = 0o700, 0o755
Settled = Literal["finished", "removed"]
NOTHING_SPENT = "Nothing was spent"


@dataclass(frozen=True)
class Released:
    """A release in memory: what the folder holds, to be drawn and printed."""

    folder: Path
    policy: Policy
    certificate: Certificate
    earlier_fit: Settled | None = None  # what became of the draft of a fit that was killed

    @classmethod
    def load(cls, folder: Path, *, problem: Problem | None = None) -> Released:
        """From a folder that holds a release; with its `problem`, where that is one of the user's own."""
        if not (folder / files.CERTIFICATE).exists():
            raise ValueError(f"{folder} is not a release: it has no {files.CERTIFICATE}. 'poolrl fit' makes one")
        certificate = Certificate.read((folder / files.CERTIFICATE).read_bytes())
        return cls(folder, Policy.load(folder / files.POLICY, problem=problem), certificate)

    @cached_property
    def trees(self) -> FadedTrees:
        """The sums that an update adds to."""
        return FadedTrees.load(self.folder / files.TREES)

    def releases(self) -> list[EarlierRelease]:
        """It, and all those before it that it rests on."""
        claim = self.certificate
        assert claim.period is not None
        last = EarlierRelease(
            period=claim.period,
            rho=claim.rho,
            scale_memory=claim.scale_memory,
            entry=claim.ledger.entry,
            certificate_sha256=hashlib.sha256(claim.canonical()).hexdigest(),
        )
        return [*claim.earlier, last]


def fit_release(
    file: ConfigFile,
    folder: Path,
    *,
    new_account: bool = False,
    audit: AuditSummary | None = None,
    earlier: Released | None = None,
) -> Released:
    """Spend ρ once and leave a release in a new folder. A folder that cannot be written to is found out first.

    A data set without an account is refused, unless `new_account` confirms that nothing was ever spent on it. `audit`
    is repeated by the certificate. The trees of an `earlier` release are added to this one's.
    """
    refuse_existing(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder) as draft:
        refuse_existing(folder)  # another fit may have made it meanwhile
        earlier_fit = settle(draft, folder, file.ledger, file.sha256)
        if earlier_fit == "finished":
            finished = Released.load(folder, problem=own_problem(file.config.problem.posed))
            return replace(finished, earlier_fit=earlier_fit)
        require_account(file, new_account=new_account)
        draft.mkdir(mode=DRAFT_MODE)
        try:
            with Ledger(file.ledger) as ledger:
                return replace(_release(file, ledger, draft, folder, audit, earlier), earlier_fit=earlier_fit)
        except BaseException:
            with suppress(ValueError, OSError):  # the first error is the one to report; the next fit settles the draft
                settle(draft, folder, file.ledger, file.sha256)
            raise


def refuse_existing(folder: Path) -> None:
    """Refuse a place that is not free for a new release, or for a plan of one."""
    if folder.name in ("", ".."):
        raise ValueError(f"--out must name a new folder, got {folder}")
    if os.path.lexists(folder):
        page = "" if (folder / files.PAGE).exists() else f"; 'poolrl report {folder}' draws its page"
        raise ValueError(f"{folder} exists, and a release is never overwritten: name another with --out{page}")


def require_account(file: ConfigFile, *, new_account: bool) -> None:
    """Refuse a fit that would open an account and was not asked to, or the reverse: a slip must not make a budget."""
    name = file.config.privacy.data_set
    confirm = f"If nothing was ever released of {name!r}, say so with --new-account"
    if not was_made(file.ledger):
        if not new_account:
            unknown = f"there is no ledger {file.ledger}, so nobody knows what was spent on {name!r}"
            raise ValueError(f"{unknown}. {confirm}; otherwise name its ledger in [privacy] ledger")
        file.ledger.parent.mkdir(mode=DRAFT_MODE, parents=True, exist_ok=True)
        return
    # A ledger whose making was interrupted has no tables yet, and is finished by the fit that may make one.
    with Ledger(file.ledger, create=new_account) as ledger:
        known = [account.data_set for account in ledger.accounts().values()]
        is_known = ledger.account(name) is not None
    if is_known and new_account:
        raise ValueError(f"{file.ledger} has an account {name!r} already: leave out --new-account")
    if not is_known and not new_account:
        near = get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{file.ledger} has no account {name!r}{hint}. {confirm}")


def _release(
    file: ConfigFile, ledger: Ledger, draft: Path, folder: Path, audit: AuditSummary | None, earlier: Released | None
) -> Released:
    """The steps of a release, in the order in which a crash may cut them off.

    Until `ledger.read` nothing has left the log, and a failure gives the reservation back, unless a row may have
    caused it. From there on ρ is spent. The draft is committed before anybody gets to see it.
    """
    config, problem = file.config, file.config.problem.posed
    shares = shares_on_top(config)
    # Trees can be added if they have the same bins.
    settings = None if earlier is None else Outcomes(bins=earlier.trees.bins)
    prepared = Pool(config.privacy.rho, settings, **shares).prepare(problem)
    prepared.learn_from_nothing()  # what would fail after the release fails now
    terms = config.terms(units=0)
    require_payable(config, sum(shares.values()))
    require_sound_sampler()
    signing = ledger.signing_key()
    account = ledger.open_account(terms.data_set, terms.budget)
    released_before = account.released_in(terms.period) if earlier and terms.period else []
    # Releases that read everything are added up instead.
    if overlapping := [period for period in released_before if period is not None]:
        overlap = f"a release has read {overlapping[0]} already, which overlaps with [period] of the configuration"
        raise ValueError(f"{overlap}: name a period that no release has read. {NOTHING_SPENT}")
    reservation = ledger.reserve(terms.data_set, terms.rho, terms.unit, terms.period)
    with ExitStack() as opened:
        rows_in_reach = threading.Event()
        try:
            log = opened.enter_context(open_log(file, rows_in_reach.set))
            log.check(problem)
            rows_in_reach.set()
            units = log.units
            account = ledger.read(reservation, Sketch(*sketch_of(log)))
        except BaseException as error:
            paid = rows_in_reach.is_set() and _one_row_may_have_caused(error, queried=config.query() is not None)
            if isinstance(error, NoRowsError) and terms.period is not None:
                error = NoRowsError(f"no trajectory begins in {terms.period}: are dates written like 2025-01-31?")
            raise _ended_before_release(ledger, reservation, error, paid=paid) from None
        learned = False
        try:
            released, sums, facts = _with_earlier(prepared.release(log, SecureNoise()), terms, earlier)
            policy = prepared.learn(released)
            learned = True
            opened.close()  # before anything is committed: an error while closing must not hide a release
            read = [*(each.period for each in facts.get("earlier", [])), terms.period]
            periods = tuple(PeriodRead(*astuple(period)) for period in read if period is not None)
            names, words = config.names(), config.scale_in_words
            policy.report = replace(policy.report, names=names, units=units, scale_in_words=words, periods=periods)
            facts |= {"definitions": list(log.definitions), "audit": audit, "issued": reservation.time}
            facts |= {"ledger": LedgerEntry.of(reservation, account, terms.unit)}
            facts |= {"other_units": account.other_units(terms.unit)}
            sums.save(draft / files.TREES)
            certificate = _write_draft(draft, policy, file, signing, **facts)
        except (Exception, KeyboardInterrupt) as error:
            # Errors of writing may be shown. An error while the log is open might quote it.
            shown = learned and isinstance(error, ValueError | OSError)
            why = str(error) if shown else f"stopped by {type(error).__name__}"
            raise ValueError(f"{why}. {_stays_spent(reservation, ledger)}") from None
    with deferred():
        try:
            if len(hashes := hashes_of(draft)) < 2:
                raise ValueError(f"{draft} was changed while it was written")
            ledger.commit(reservation, hashes)
        except (ValueError, OSError) as error:
            raise ValueError(f"{error}. {_stays_spent(reservation, ledger)}") from None
        publish(draft, folder)
    return Released(folder, policy, certificate)


def _write_draft(draft: Path, policy: Policy, file: ConfigFile, signing: SigningKey, **facts: Any) -> Certificate:
    """Every file of the release, on the disk before the ledger says that it is there."""
    policy.save(draft / files.POLICY)
    terms = file.config.terms(units=policy.report.units or 0)
    versions: dict[Any, str] = {name: version(name) for name in ("cryptography", "numpy", "scipy")}
    versions |= {"poolrl": __version__, "python": platform.python_version()}
    versions["opendp"] = opendp_version() or "not installed"
    certificate = certify(
        policy.guarantee,
        policy_sha256=files.sha256(draft / files.POLICY),
        trees_sha256=files.sha256(draft / files.TREES),
        config_sha256=file.sha256,
        public=terms.public,
        versions=versions,
        owns_at_most=terms.unit.owns_at_most,
        signed_by=signing.public.fingerprint,
        **facts,
    )
    (draft / files.CERTIFICATE).write_bytes(certificate.canonical())
    (draft / files.SIGNATURE).write_bytes(signing.sign(certificate.canonical()).file())
    (draft / files.LEAFLET).write_bytes(leaflet(certificate).encode())
    (draft / files.CONFIG).write_bytes(file.content)
    (draft / files.RECORD).write_bytes(registry_record(certificate).encode())
    for path in (*draft.iterdir(), draft, draft.parent):
        onto_disk(path)
    return certificate


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


def _with_earlier(
    released: PrivateOutcomes, terms: Terms, earlier: Released | None
) -> tuple[PrivateOutcomes, FadedTrees, dict[str, Any]]:
    """What to learn from, the sums that a later update adds to, and the certificate's facts of periods."""
    trees = FadedTrees.of(released)
    if terms.period is None or terms.forgetting is None:
        return released, trees, {}
    facts: dict[str, Any] = {"period": terms.period, "forgetting": terms.forgetting, "bins": None, "earlier": []}
    words = f"Of the log only this period was read: {terms.period}. {neighbours_keep(released.guarantee.unit)}"
    if earlier is not None:
        facts |= {"bins": earlier.trees.bins, "earlier": earlier.releases()}
        trees = trees.after(earlier.trees, terms.forgetting)
        released = trees.to_learn_from(released)
        words += f" The policy also rests on {len(facts['earlier'])} earlier periods, each with its own certificate."
        if released.guarantee.unit != "trajectory":
            words += f" One {released.guarantee.unit} may be in all of them, and loses the sum of their rho."
    return replace(released, guarantee=replace(released.guarantee, periods=words)), trees, facts


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """The draft's place, for one fit at a time."""
    try:
        with FileLock(folder.with_name(f".{folder.name}.lock"), blocking=False):
            yield folder.with_name(f".{folder.name}.draft")
    except Timeout:
        raise ValueError(f"another fit is writing to {folder}: wait for it, or name another place with --out") from None


def hashes_of(draft: Path) -> dict[str, str]:
    """The hashes of a release for the ledger, as far as its files are there."""
    return {name: files.sha256(draft / name) for name in (files.POLICY, files.CERTIFICATE) if (draft / name).exists()}


def publish(draft: Path, folder: Path) -> None:
    """Give a committed draft its name. A draft that cannot be renamed is paid for, and stays where it is."""
    try:
        draft.chmod(PUBLISHED_MODE)
        os.rename(draft, folder)
        onto_disk(folder.parent)
    except OSError as error:
        where = draft if draft.exists() else folder
        raise ValueError(
            f"the release is complete and paid for, and lies in {where}, but could not be moved safely to {folder} "
            f"({error.strerror}): copy it"
        ) from None


def settle(draft: Path, folder: Path, ledger: Path, config_sha256: str) -> Settled | None:
    """Deal with what a killed fit has left: "finished" if it became the release, "removed" if it was not paid for.

    A fit commits when all files are complete, and not before. A draft that may be paid for is only touched if it holds
    the very files that were committed.
    """
    if not os.path.lexists(draft):
        return None
    if not _is_ours(draft):
        raise _in_the_way(draft, "holds things that poolrl has not put there")
    hashes, entries, claim = hashes_of(draft), list[Entry](), _certificate(draft / files.CERTIFICATE)
    if hashes and not ledger.exists():
        raise _in_the_way(draft, f"may be a release that was paid for, but its ledger {ledger} is not there")
    if hashes:
        with Ledger.existing(ledger) as books:
            entries, _ = books.state()
    commits = [entry for entry in entries if entry.kind == "commit"]
    if claim is not None and claim.config_sha256 == config_sha256 and any(entry.note == hashes for entry in commits):
        publish(draft, folder)
        return "finished"
    paid = any(digest in entry.note.values() for digest in hashes.values() for entry in commits)
    if claim is not None:
        # Of another ledger, or of one that an older copy has replaced, nobody knows what it has paid for.
        named = claim.ledger
        known = any((entry.number, entry.seal) == (named.entry, named.seal) for entry in entries)
        paid = paid or not known or any(entry.refers == named.entry for entry in commits)
    if paid:
        raise _in_the_way(
            draft, f"may be a release that was paid for, but {ledger} knows no such release of this configuration"
        )
    shutil.rmtree(draft)
    return "removed"


def _certificate(path: Path) -> Certificate | None:
    """The certificate of a draft; None if it is not there, or cut off."""
    try:
        content = path.read_bytes()
        json.loads(content)
    except (OSError, ValueError, RecursionError):
        return None
    try:
        return Certificate.read(content)
    except ValueError as error:
        raise _in_the_way(path.parent, f"may be a release that was paid for, of another version ({error})") from None


def _in_the_way(draft: Path, why: str) -> ValueError:
    return ValueError(
        f"{draft} {why}: move it to where it belongs, remove it if you do not want it, or name another place with --out"
    )


def _is_ours(draft: Path) -> bool:
    """Whether it is this user's folder of plain files that a fit writes."""
    if draft.is_symlink() or not draft.is_dir():
        return False
    files, me = list(draft.iterdir()), os.geteuid()
    plain = all(path.is_file() and not path.is_symlink() and path.name in WRITTEN for path in files)
    return plain and all(path.lstat().st_uid == me for path in (draft, *files))
