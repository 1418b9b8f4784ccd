"""The files of a release, and how files are written and named by their hashes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

POLICY = "policy.npz"
CERTIFICATE = "certificate.json"
LABEL = "label.txt"
RECORD = "registry.yaml"
CONFIG = "poolrl.toml"
PAGE = "report.html"


def sha256(path: Path) -> str:
    """The hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_sure_of(path: Path) -> None:
    """Get a file or a folder onto the disk, for the ledger will say that it is there, and a power cut may come."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
