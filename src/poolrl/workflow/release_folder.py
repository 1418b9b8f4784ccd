"""The folder of a release: written as a hidden draft, committed in the ledger, then renamed. Complete or not there.

    .release.lock     held by the fit that writes to `release` (the system frees it when a process is killed)
    .release.draft    what is being written
    release           complete and paid for

A killed fit leaves its draft. The next fit to the same place settles it by the ledger: a draft that was committed is
paid for and becomes the release; any other is removed, and what it cost stays spent.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from poolrl.certificate.certificate import Certificate
from poolrl.certificate.files import CERTIFICATE, CONFIG, LABEL, POLICY, RECORD, SIGNATURE, TREES, sha256
from poolrl.ledger.chain import onto_disk
from poolrl.ledger.ledger import Ledger

WRITTEN = {POLICY, TREES, CERTIFICATE, SIGNATURE, LABEL, CONFIG, RECORD}
# A draft is for its owner's eyes until it is paid for.
DRAFT_MODE, PUBLISHED_MODE = 0o700, 0o755
Settled = Literal["finished", "removed"]


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """The draft's place, for one fit at a time."""
    lock = FileLock(folder.with_name(f".{folder.name}.lock"), blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(f"another fit is writing to {folder}: wait for it, or name another place with --out") from None
    try:
        yield folder.with_name(f".{folder.name}.draft")
    finally:
        lock.release()


def hashes_of(draft: Path) -> dict[str, str]:
    """What the ledger remembers of a release, as far as it is there."""
    return {name: sha256(draft / name) for name in (POLICY, CERTIFICATE) if (draft / name).exists()}


def publish(draft: Path, folder: Path) -> None:
    """Give a committed draft its name. What cannot be renamed is paid for, and stays where it is."""
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
    """Deal with what a killed fit has left: "finished" if it became the release, "removed" if it was not paid for."""
    for old in folder.parent.iterdir():
        if re.fullmatch(re.escape(draft.name) + "-[a-z0-9_]{8}", old.name):  # as version 0.5 named them
            raise _in_the_way(old, "may hold a release of version 0.5 that was paid for")
    if not os.path.lexists(draft):
        return None
    if not _is_ours(draft):
        raise _in_the_way(draft, "holds things that poolrl has not put there")
    hashes = hashes_of(draft)
    if hashes and not ledger.exists():
        raise _in_the_way(draft, f"may be a release that was paid for, but its ledger {ledger} is not there")
    if hashes and _was_committed(draft, hashes, ledger, config_sha256):
        publish(draft, folder)
        return "finished"
    shutil.rmtree(draft)
    return "removed"


def _was_committed(draft: Path, hashes: dict[str, str], path: Path, config_sha256: str) -> bool:
    """Whether the ledger has committed these files. What may have been paid for, but does not match, is refused."""
    with Ledger.existing(path) as ledger:
        entries, _ = ledger.state()
    commits, certificate = [entry for entry in entries if entry.kind == "commit"], _certificate(draft / CERTIFICATE)
    if any(entry.note == hashes for entry in commits):
        if certificate is None or certificate.config_sha256 != config_sha256:
            raise _in_the_way(draft, "is a release that was paid for, by a fit with another configuration")
        return True
    known = {found for entry in commits for found in entry.note.values()}
    named = None if certificate is None else certificate.ledger
    if not known.isdisjoint(hashes.values()) or (named and any(entry.refers == named.entry for entry in commits)):
        raise _in_the_way(draft, "is a release that was paid for, but has other files than were committed")
    if named and not any((entry.number, entry.seal) == (named.entry, named.seal) for entry in entries):
        raise _in_the_way(draft, f"may be a release that was paid for, but not in {path}")
    return False  # a fit commits when both files are complete, and not before


def _in_the_way(draft: Path, why: str) -> ValueError:
    return ValueError(
        f"{draft} {why}: move it to where it belongs, remove it if you do not want it, or name another place with --out"
    )


def _is_ours(draft: Path) -> bool:
    """Whether it is this user's folder of plain files that a fit writes."""
    if draft.is_symlink() or not draft.is_dir():
        return False
    files, me = list(draft.iterdir()), os.geteuid()
    plain = all(each.is_file() and not each.is_symlink() and each.name in WRITTEN for each in files)
    return plain and all(each.lstat().st_uid == me for each in (draft, *files))


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
