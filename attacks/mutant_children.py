"""Work in forked children, a few at a time: a child may hang, take all memory or crash, and nothing else notices.

A child starts with everything that its parent has imported, which is why a mutant takes a fraction of a second.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Job = TypeVar("Job")
# What a child may allocate beyond what it starts with.
MEMORY = 4 << 30
# How a child ends. Whatever it could not do itself is no answer about the mutant.
SURVIVED, KILLED, NOT_HERE, BROKEN = 0, 1, 3, 70


@dataclass(frozen=True)
class Ended:
    """How a child ended: "survived", "killed", "timeout", "crashed" or "not here"; its words; its processor time."""

    status: str
    said: str
    seconds: float


def in_children(
    jobs: Iterable[Job], work: Callable[[Job, Path], int], *, workers: int, limit: float
) -> Iterator[tuple[Job, Ended]]:
    """Each job in a child of its own, as they end. `work` gets a folder of its own, and writes its answer to `said`."""
    waiting = iter(jobs)
    running: dict[int, tuple[Job, Path, float]] = {}
    while True:
        while len(running) < workers and (job := next(waiting, None)) is not None:
            folder = Path(tempfile.mkdtemp(prefix="poolrl-mutant."))
            running[_forked(job, work, folder)] = job, folder, time.monotonic()
        if not running:
            return
        ended, status, used = os.wait4(-1, os.WNOHANG)
        now = time.monotonic()
        for child, (_, _, began) in running.items():
            if child != ended and now - began > limit:
                _end(child)
        if ended not in running:
            time.sleep(0.005)
            continue
        job, folder, _ = running.pop(ended)
        # Whatever the tests have started is in the child's group.
        _end(ended)
        said = (folder / "said").read_text() if (folder / "said").exists() else ""
        shutil.rmtree(folder, ignore_errors=True)
        yield job, Ended(_status(status, said), said, used.ru_utime + used.ru_stime)


def limit_cpu(seconds: float) -> None:
    """End this process after so much more work. Time is counted by the processor: other programs do not matter."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _forked(job: Job, work: Callable[[Job, Path], int], folder: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = BROKEN
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        # Tests write here only, even if a mutant makes them forget where.
        tempfile.tempdir = str(folder)
        for name in ("TMPDIR", "PYTEST_DEBUG_TEMPROOT", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            os.environ[name] = str(folder)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = work(job, folder)
    except BaseException:
        (folder / "said").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _end(child: int) -> None:
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _status(status: int, said: str) -> str:
    if os.WIFSIGNALED(status):
        stopped = os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGKILL, signal.SIGALRM)
        return "timeout" if stopped else "crashed"
    code = os.WEXITSTATUS(status)
    if code == BROKEN:
        raise RuntimeError(f"a child could not do its work:\n{said}")
    return {SURVIVED: "survived", KILLED: "killed", NOT_HERE: "not here"}.get(code, "crashed")
