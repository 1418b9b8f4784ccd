"""Small disks in memory that can be filled or made read-only, for users who may mount them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[None]:
    """Mount a disk in memory."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True, capture_output=True)


def remount(place: Path, options: str) -> None:
    """Make the same disk larger, or read-only."""
    subprocess.run(["mount", "-o", f"remount,{options}", place], check=True, capture_output=True)


def can_mount(folder: Path) -> bool:
    """Whether this user may mount disks."""
    place = folder / "trial"
    place.mkdir(exist_ok=True)
    try:
        with mounted(place, "size=1m"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False
