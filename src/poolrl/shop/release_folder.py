"""Drafts: a release is written to a hidden folder and renamed when it is whole and committed.

Whoever works on a draft holds a lock on it, so that what a killed command left can be told from what another command
is doing. The next fit to the same place tidies up. A draft that the ledger has committed is paid for: it is moved to
where it belongs, or, if that cannot be, left where it is, and named. Any other is removed; what it cost stays spent.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolrl.certificate.certificate import read_certificate
from poolrl.certificate.files import CERTIFICATE, CONFIG, LABEL, POLICY, RECORD, sha256
from poolrl.ledger.chain import onto_disk
from poolrl.ledger.ledger import Ledger

INSIDE = "release"
WRITTEN = {POLICY, CERTIFICATE, LABEL, CONFIG, RECORD}
NOT_PAID_FOR = "was not paid for"
CHANGED = "is a release that was paid for, but has other files than were committed"


@dataclass
class Draft:
    """What is to become `folder`, written to `path`; removed when its command ends, unless it is `kept`."""

    folder: Path
    path: Path
    kept: bool = False

    def move(self) -> None:
        """Whole or not at all. What cannot be moved is paid for, and stays."""
        self.kept = True
        try:
            os.rename(self.path, self.folder)
        except OSError as error:
            raise ValueError(
                f"the release is whole and paid for, but cannot be moved to {self.folder} ({error.strerror}): it lies "
                f"in {self.path}"
            ) from None
        self.kept = False
        try:
            onto_disk(self.folder.parent)
        except OSError as error:
            raise ValueError(
                f"the release in {self.folder} is whole and paid for, but a power cut may still undo its name "
                f"({error.strerror}): copy it"
            ) from None


@contextmanager
def draft_of(folder: Path) -> Iterator[Draft]:
    """A draft of its own, under a lock."""
    hidden, lock = _locked_folder(folder)
    draft = Draft(folder, hidden / INSIDE)
    try:
        yield draft
    finally:
        if not draft.kept:
            shutil.rmtree(hidden, ignore_errors=True)
        os.close(lock)


@dataclass(frozen=True)
class Tidied:
    """What was done about drafts that killed commands had left."""

    finished: bool
    removed: int


def tidy(folder: Path, ledger: Path, config_sha256: str) -> Tidied:
    """Finish what was committed, with this configuration, and remove what was not."""
    finished, removed = False, 0
    for path in _left(folder):
        lock = _lock(path)
        if lock is None and not path.exists():  # its own fit has removed it meanwhile
            continue
        if lock is None:
            raise ValueError(f"another fit is writing to {folder}: wait for it, or name another place with --out")
        try:
            if not path.exists():
                continue
            problem = _what_hinders(path, ledger, config_sha256)
            if problem is None and finished:
                problem = "is a copy of the release that was just finished"
            if problem == NOT_PAID_FOR:
                removed += 1
            elif problem is not None:
                raise ValueError(
                    f"{path / INSIDE} {problem}: move it to where it belongs, remove {path} if you do not want it, or "
                    "name another place with --out"
                )
            else:
                Draft(folder, path / INSIDE).move()
                finished = True
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
    return Tidied(finished, removed)


def _what_hinders(draft: Path, path: Path, config_sha256: str) -> str | None:
    """Why a draft cannot become a release; None if it can. Nothing that may have been paid for is NOT_PAID_FOR."""
    release = draft / INSIDE
    if any(each != release for each in draft.iterdir()) or not _is_ours(release):
        return "holds, or lies among, things that poolrl has not put there"
    hashes = {name: sha256(release / name) for name in (POLICY, CERTIFICATE) if (release / name).exists()}
    if not hashes:
        return NOT_PAID_FOR  # a commit needs both
    if not path.exists():
        return f"may be a release that was paid for, but its ledger {path} is not there"
    with Ledger.existing(path) as ledger:
        ledger.accounts()  # refuses one that was tampered with
        entries = ledger.entries()
    commits = [entry for entry in entries if entry.kind == "commit"]
    facts = _facts(release / CERTIFICATE)
    if any(entry.note == hashes for entry in commits):
        if not facts or facts["config_sha256"] != config_sha256:
            return "is a release that was paid for, by a fit with another configuration or version"
        return None
    if any((entry.note or {}).get(name) == found for entry in commits for name, found in hashes.items()):
        return CHANGED
    if facts is None:
        return NOT_PAID_FOR  # what is committed is whole, and then its policy would be known
    if not facts:
        return "may be a release that was paid for, of another version"
    named = facts["ledger"]
    if not any((entry.number, entry.seal) == (named["entry"], named["seal"]) for entry in entries):
        return f"may be a release that was paid for, but not in {path}"
    return CHANGED if any(entry.refers == named["entry"] for entry in commits) else NOT_PAID_FOR


def _facts(certificate: Path) -> dict[str, Any] | None:
    """What a certificate says; nothing if this version cannot read it, and None if it is not there, or cut off."""
    try:
        content = certificate.read_bytes()
        json.loads(content)
    except (OSError, ValueError, RecursionError):
        return None
    with suppress(ValueError):
        return read_certificate(content)
    return {}


def _is_ours(release: Path) -> bool:
    """Whether it is a folder of plain files that a fit writes; one that is not yet there is."""
    if release.is_symlink() or not release.exists():
        return not release.is_symlink()
    return release.is_dir() and all(_is_plain(each) and each.name in WRITTEN for each in release.iterdir())


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _prefix(folder: Path) -> str:
    return f".{folder.name}.draft-"


def _left(folder: Path) -> list[Path]:
    """Folders of this user's that are named like drafts: another user's might hold anything."""
    named = re.compile(re.escape(_prefix(folder)) + "[a-z0-9_]{8}")  # as mkdtemp does
    found = []
    for path in sorted(folder.parent.iterdir()):
        with suppress(OSError):
            if not named.fullmatch(path.name):
                continue
            about = path.lstat()
            if path.is_dir() and not path.is_symlink() and about.st_uid == os.geteuid():
                found.append(path)
    return found


def _locked_folder(folder: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_prefix(folder), dir=folder.parent))
        lock = _lock(path)
        # Before it was locked somebody may have tidied it up.
        if lock is not None and path.exists() and os.fstat(lock).st_ino == path.stat().st_ino:
            return path, lock
        if lock is not None:
            os.close(lock)


def _lock(path: Path) -> int | None:
    """A handle that holds the lock of a folder; None if another has it, or the folder is gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        pass  # some file systems know no locks; there two fits to one place are not told apart
    return handle
