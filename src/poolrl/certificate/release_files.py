"""The files of a release, by name and by hash."""

import hashlib
from pathlib import Path

POLICY = "policy.npz"
TREES = "trees.npz"
# Beside a policy that was planned again: the certified one that it comes from.
CERTIFIED = "certified.npz"
CERTIFICATE = "certificate.json"
SIGNATURE = "certificate.sig"
LEAFLET = "leaflet.txt"
RECORD = "registry.yaml"
CONFIG = "poolrl.toml"
PAGE = "report.html"


def sha256(path: Path) -> str:
    """The hash of a file, of any size."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
