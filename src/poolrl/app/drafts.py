"""Drafts: a release is written to a hidden folder and renamed when it is whole and committed.

Whoever works on a draft holds a lock on it, so that what a killed command left can be told from what another command
is doing. The next fit to the same place tidies up: a draft that the ledger has committed is paid for, and is moved to
where it belongs; any other is removed, and what it cost stays spent.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from poolrl.app.files import CERTIFICATE, POLICY, sha256
from poolrl.privacy.chain import onto_disk
from poolrl.privacy.ledger import Ledger

INSIDE = "release"


@contextmanager
def draft_of(folder: Path) -> Iterator[Path]:
    """Where to write what is to become `folder`; gone afterwards, unless it was moved there."""
    with tempfile.TemporaryDirectory(prefix=_prefix(folder), dir=folder.parent) as draft:
        lock = os.open(draft, os.O_RDONLY)
        try:
            with suppress(OSError):  # some file systems know no locks
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(draft) / INSIDE
        finally:
            os.close(lock)


def move(draft: Path, folder: Path) -> None:
    """Whole or not at all."""
    os.rename(draft, folder)
    onto_disk(folder.parent)


def tidy(folder: Path, ledger_path: Path) -> tuple[bool, int]:
    """Finish or remove what killed commands have left; whether `folder` is there now, and how many were removed."""
    left = [path for path in folder.parent.glob(f"{_prefix(folder)}*") if path.is_dir() and not path.is_symlink()]
    committed = _committed(ledger_path) if left else []
    moved, removed = False, 0
    for path in left:
        lock = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # somebody is working on it
            continue
        else:
            files = [path / INSIDE / name for name in (POLICY, CERTIFICATE)]
            whole = all(file.is_file() for file in files)
            if whole and not moved and {file.name: sha256(file) for file in files} in committed:
                move(path / INSIDE, folder)
                moved = True
            else:
                removed += 1
            shutil.rmtree(path)
        finally:
            os.close(lock)
    return moved, removed


def _prefix(folder: Path) -> str:
    return f".{folder.name}.draft-"


def _committed(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with Ledger.existing(path) as ledger:
        ledger.accounts()  # refuses one that was tampered with
        return [entry.note for entry in ledger.entries() if entry.kind == "commit"]
