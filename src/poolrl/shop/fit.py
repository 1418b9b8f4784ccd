"""`poolrl fit`: reserve, read, release, write, commit; then draw the page."""

from __future__ import annotations

import json
import os
import platform
import threading
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from poolrl import __version__
from poolrl.certificate.certificate import Release, canonical, certificate, read_certificate
from poolrl.certificate.files import CERTIFICATE, CONFIG, LABEL, PAGE, POLICY, RECORD, sha256
from poolrl.certificate.label import label
from poolrl.certificate.registry import registry_record, registry_yaml
from poolrl.data.fingerprints import digests
from poolrl.data.sources.engine import NoRowsError, RowError
from poolrl.interrupts import undisturbed
from poolrl.learning.policy import Policy
from poolrl.ledger.accounts import Account, Entry, OverspendError
from poolrl.ledger.chain import onto_disk
from poolrl.ledger.ledger import Ledger
from poolrl.pool import Pool
from poolrl.privacy import zcdp
from poolrl.shop.config import ConfigFile, load_config
from poolrl.shop.log import open_log
from poolrl.shop.release_folder import Draft, draft_of, tidy
from poolrl.shop.report import draw_page

# A log that tells less is worth a second look at columns, steps and bounds.
MOSTLY_TOLD = 0.5
NOTHING_SPENT = "Nothing was spent"


def run_fit(path: Path, out: Path | None, *, as_json: bool) -> None:
    """Spend ρ once and leave a release: a folder with the policy, its certificate and the page."""
    file = load_config(path)
    folder = out or file.folder / "release"
    if folder.name in ("", ".."):
        raise ValueError(f"--out must name a new folder, got {folder}")
    if os.path.lexists(folder):
        page = "" if (folder / PAGE).exists() else f"; 'poolrl report {folder}' draws its page"
        raise ValueError(f"{folder} exists, and a release is never overwritten: name another with --out{page}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    console = Console(quiet=as_json)
    tidied = tidy(folder, file.ledger, file.sha256)
    if tidied.removed:
        console.print(
            f"Removed {tidied.removed} unfinished draft(s) of fits that were killed; what they cost stays spent."
        )
    if tidied.finished:
        console.print(
            "A fit that was killed had paid for this release and committed it: it is finished now, for nothing."
        )
        facts = read_certificate((folder / CERTIFICATE).read_bytes())
    else:
        # A folder that cannot be written to is found out before anything is spent.
        try:
            with (
                draft_of(folder) as draft,
                Ledger(file.ledger) as ledger,
                console.status("reading, releasing, learning"),
            ):
                facts = release(file, ledger, draft)
        except KeyboardInterrupt:
            if folder.exists():
                raise ValueError(f"stopped. {_whole(folder)}") from None
            raise
    try:
        forecast = draw_page(folder, console)
    except (Exception, KeyboardInterrupt) as error:  # a page shows what is released, so the message may be told
        why = "stopped" if isinstance(error, KeyboardInterrupt) else f"no page: {error}"
        raise ValueError(f"{why}. {_whole(folder)}") from None
    if as_json:
        finished = {"finished_earlier_fit": True} if tidied.finished else {}
        print(json.dumps({"folder": str(folder), "certificate": facts} | finished, indent=2))
        return
    names = ", ".join(sorted(path.name for path in folder.iterdir()))
    console.print(f"[bold]{escape(str(folder))}/[/] is the release: {names}\n", highlight=False)
    console.print(label(facts), highlight=False, markup=False)
    observed = Policy.load(folder / POLICY).report["observed"]
    if observed < MOSTLY_TOLD:
        console.print(
            f"[bold red]By the released counts only {observed:.0%} of the log told anything of demand.[/] Rows "
            "beyond lambda do not, nor those that 'poolrl check' finds fault with.\n",
            highlight=False,
        )
    if forecast.drowned:
        console.print(f"[bold red]{forecast.warning}[/]\n", highlight=False)
    console.print(f"Open {folder / PAGE}; ask with: poolrl decide {folder / POLICY} --step ...", markup=False)


def release(file: ConfigFile, ledger: Ledger, draft: Draft) -> dict[str, Any]:
    """The steps of a release, in the order in which a crash may cut them off; the certificate's facts.

    Until `ledger.read` nothing has left the log, and a failure gives the reservation back, unless a row may have
    decided it. From there on it is spent. What is written to the draft is committed before anybody gets to see it.
    """
    config, problem = file.config, file.config.problem.problem()
    pool = Pool(config.privacy.rho)
    ledger.open_account(config.privacy.data_set, zcdp.budget(config.privacy.budget))
    reservation = ledger.reserve(config.privacy.data_set, zcdp.budget(config.privacy.rho))
    with ExitStack() as opened:
        in_reach = threading.Event()  # the rows
        try:
            log = opened.enter_context(open_log(file, in_reach.set))
            log.check(problem)
            in_reach.set()
            units = log.units
            ledger.read(reservation, digests(log))
        except BaseException as error:
            known = isinstance(error, ValueError | OSError)
            why = str(error) if known else f"stopped by {type(error).__name__}"
            if in_reach.is_set() and _one_row_may_have_decided(error, queried=config.log.query is not None):
                paid = _stays_spent(reservation, ledger, "One row may have decided that")
                raise ValueError(f"{why}. {paid}; 'poolrl check' tries a log for nothing, for your eyes") from None
            end = _given_back(ledger, reservation)
            if known or end != NOTHING_SPENT:
                raise ValueError(f"{why}. {end}") from None
            raise
        learned = False
        try:
            policy = pool.fit(problem, log)
            learned = True
            opened.close()  # before anything is committed: what closing might say must not hide a release
            policy.report |= {"labels": config.labels(), "units": units}
            account = ledger.account(config.privacy.data_set)
            assert account is not None
            facts = _write(draft.path, policy, file, reservation, account, units=units)
            hashes = {name: sha256(draft.path / name) for name in (POLICY, CERTIFICATE)}
        except (Exception, KeyboardInterrupt) as error:
            # Of writing and paying the message may be told. What fails while the log is at hand might quote it.
            tellable = learned and isinstance(error, ValueError | OSError)
            why = str(error) if tellable else f"stopped by {type(error).__name__}"
            raise ValueError(f"{why}. {_stays_spent(reservation, ledger)}") from None
    with undisturbed():
        try:
            ledger.commit(reservation, hashes)
        except ValueError as error:
            raise ValueError(f"{error}. {_stays_spent(reservation, ledger)}") from None
        draft.move()
    return facts


def _write(
    folder: Path, policy: Policy, file: ConfigFile, reservation: Entry, account: Account, *, units: int
) -> dict[str, Any]:
    config = file.config
    folder.mkdir()
    policy.save(folder / POLICY)
    facts = certificate(
        policy.guarantee,
        Release(
            issued=reservation.time,
            policy_sha256=sha256(folder / POLICY),
            config_sha256=file.sha256,
            public=config.declared()
            | {"units": units, "what": "everything in the configuration, and the number of units of the log"},
            versions={
                "poolrl": __version__,
                "opendp": version("opendp"),
                "cryptography": version("cryptography"),
                "numpy": version("numpy"),
                "scipy": version("scipy"),
                "python": platform.python_version(),
            },
            ledger={
                "data_set": account.data_set,
                "account": account.fingerprint,
                "entry": reservation.number,
                "seal": reservation.seal,
                "budget": str(account.budget),
                "spent": str(account.spent),
                "left": str(account.left),
            },
        ),
    )
    (folder / CERTIFICATE).write_bytes(canonical(facts))
    (folder / LABEL).write_bytes(label(facts).encode())
    (folder / CONFIG).write_bytes(file.content)
    (folder / RECORD).write_bytes(registry_yaml(registry_record(facts)).encode())
    for path in (*folder.iterdir(), folder, folder.parent, folder.parent.parent):
        onto_disk(path)  # before the ledger says that it is there
    return facts


def _one_row_may_have_decided(error: BaseException, *, queried: bool) -> bool:
    """Whether it may be one row's doing that a log could not be read once its rows were in reach.

    An engine's failure at them may be, and that they are an account's already. Of a query also that it leaves none of
    them, and how long it takes, so that somebody stops it.
    """
    if isinstance(error, RowError | OverspendError):
        return True
    return queried and (isinstance(error, NoRowsError) or not isinstance(error, ValueError | OSError))


def _whole(folder: Path) -> str:
    return f"The release in {folder} is whole and paid for; 'poolrl report {folder}' draws its page"


def _stays_spent(reservation: Entry, ledger: Ledger, began: str = "The release had begun") -> str:
    assert reservation.rho is not None
    return f"{began}, so its rho = {float(reservation.rho):g} stays spent (entry {reservation.number} of {ledger.path})"


def _given_back(ledger: Ledger, reservation: Entry) -> str:
    try:
        ledger.void(reservation)
    except ValueError:
        return "Nothing was released, but the ledger could not be told: the reservation stays"
    return NOTHING_SPENT
