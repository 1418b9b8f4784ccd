"""Processes that tests start, and what is left of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
POOLRL = [sys.executable, "-m", "poolrl.cli.main"]


def program(name: str, *arguments: object) -> list[str]:
    """The command line of a program in tests/helpers/programs."""
    return [sys.executable, str(PROGRAMS / f"{name}.py"), *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """The environment of a program that imports from `tests`."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | more


def wait_until(true: Callable[[], bool], *, seconds: float = 60) -> None:
    """Look again and again, until it is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def processes_of(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its = entry.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(its) == session and state != "Z":
            found.append(int(entry.parent.name))
    return found
