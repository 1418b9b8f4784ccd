"""Tests that are collected once and run many times, which lines each of them runs, and work in forked children.

A child may hang, take all memory or crash, and nothing else notices. It starts with everything that its parent has
imported, which is why a mutant takes a fraction of a second.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

Job = TypeVar("Job")
# The most that a child may allocate beyond its start.
MEMORY = 4 << 30
# How a child ends. A child that could not do its work gives no answer about the mutant.
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
        # Processes that the tests have started are in the child's group.
        _end(ended)
        said = (folder / "said").read_text() if (folder / "said").exists() else ""
        shutil.rmtree(folder, ignore_errors=True)
        yield job, Ended(_status(status, said), said, used.ru_utime + used.ru_stime)


def limit_cpu(seconds: float) -> None:
    """End this process after `seconds` more work. Time is counted by the processor: other programs do not matter."""
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


# The quick tests, without output. Files that cannot be collected are left out.
ARGUMENTS = (
    *("-o", "addopts=", "-m", "not slow", "-p", "no:cacheprovider", "-s", "-q", "--tb=no", "--no-header"),
    # By its own patterns pytest would take a module called self_test for tests, and import it past every mutant.
    *("-o", "python_files=test_*.py"),
    # Plugins are imported before.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)


@dataclass(frozen=True)
class Ran:
    """What one test did: how long it takes alone, which lines of mutated modules it runs, and which other files."""

    cost: float
    hits: dict[str, list[int]]
    files: list[str]


@dataclass(frozen=True)
class Traced:
    """The tests of one file that pass, and the names of those that do not."""

    tests: dict[str, Ran]
    failed: list[str]

    def to_json(self) -> str:
        """As the map keeps it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Traced:
        """The inverse."""
        return cls({name: Ran(**ran) for name, ran in facts["tests"].items()}, facts["failed"])


class _Loop:
    """A plugin that hands the collected tests over instead of running them."""

    def __init__(self, work: Callable[[pytest.Session], None]) -> None:
        self._work, self.reached = work, False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.reached = True
        self._work(session)
        return True


class _Reports:
    """A plugin that remembers failures, how long everything took, and what fixtures ran."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self.failed: list[str] = []
        self.seconds: dict[str, float] = {}
        self.fixtures: dict[str, float] = {}
        self.fixture_hits: dict[str, Hits] = {}
        self._tracer = tracer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        if report.when != "setup":
            self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        name, began = fixturedef.argname, time.perf_counter()
        before = self._tracer.taken() if self._tracer else Hits()
        result = yield
        self.fixtures[name] = max(time.perf_counter() - began, self.fixtures.get(name, 0.0))
        if self._tracer:
            own = self._tracer.taken()
            self.fixture_hits[name] = self.fixture_hits.get(name, Hits()) | own
            self._tracer.give_back(before | own)
        return result


def collect(root: Path, files: Sequence[str], work: Callable[[pytest.Session], None]) -> bool:
    """Collect tests and hand them over; false if that failed before there were any."""
    loop = _Loop(work)
    pytest.main([*ARGUMENTS, f"--rootdir={root}", *files], plugins=[loop])
    return loop.reached


def first_failure(items: Sequence[pytest.Item], limits: dict[str, float], said: Path) -> str:
    """Run tests until one fails; its name, or nothing. The name of the running test is in `said`, should it hang."""
    reports = _Reports()
    items[0].config.pluginmanager.register(reports)
    for item, after in zip(items, [*items[1:], None], strict=True):
        said.write_text(item.nodeid)
        limit_cpu(limits[item.nodeid])
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if reports.failed:
            return reports.failed[0]
    return ""


def trace(items: Sequence[pytest.Item], tracer: Tracer, forget: Callable[[], None]) -> Traced:
    """Run tests, each with its lines. A shared fixture's lines and cost count for each test that asks for it.

    What earlier tests left in caches is forgotten, or only the first test would run what fills them.
    """
    reports, seen = _Reports(tracer), {}
    items[0].config.pluginmanager.register(reports)
    for item, after in zip(items, [*items[1:], None], strict=True):
        forget()
        with tracer.running():
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        seen[item.nodeid] = tracer.taken()
    tests = {}
    for item in items:
        cost, hits = reports.seconds.get(item.nodeid, 0.0), seen[item.nodeid]
        for name in getattr(item, "fixturenames", ()):
            cost, hits = cost + reports.fixtures.get(name, 0.0), hits | reports.fixture_hits.get(name, Hits())
        if item.nodeid not in reports.failed:
            tests[item.nodeid] = Ran(round(cost, 4), hits.by_file(), sorted(hits.files))
    return Traced(tests, sorted(set(reports.failed)))


@dataclass(frozen=True)
class Hits:
    """Lines that ran in files that matter, and other files that ran."""

    lines: frozenset[tuple[str, int]] = frozenset()
    files: frozenset[str] = frozenset()

    def __or__(self, other: Hits) -> Hits:
        return Hits(self.lines | other.lines, self.files | other.files)

    def by_file(self) -> dict[str, list[int]]:
        """The lines of each file."""
        found: dict[str, list[int]] = {}
        for name, line in sorted(self.lines):
            found.setdefault(name, []).append(line)
        return found


class Tracer:
    """Notes which lines of some files run, and which other files of a folder. Names are relative to a root."""

    def __init__(self, root: Path, files: Sequence[str], folder: Path) -> None:
        self._watched = {str(root / file): file for file in files}
        self._root, self._folder = len(f"{root}/"), str(folder)
        self._lines: set[tuple[str, int]] = set()
        self._files: set[str] = set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Note what runs inside, in every thread."""
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def taken(self) -> Hits:
        """What was noted since the last call."""
        hits = Hits(frozenset(self._lines), frozenset(self._files))
        self._lines, self._files = set(), set()
        return hits

    def give_back(self, hits: Hits) -> None:
        """Count them for what is running now, too."""
        self._lines |= hits.lines
        self._files |= hits.files

    def _enter(self, frame: Any, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if name in self._watched:
            self._lines.add((self._watched[name], frame.f_lineno))
            return self._line
        if name.startswith(self._folder):
            self._files.add(name[self._root :])
        return None

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        self._lines.add((self._watched[frame.f_code.co_filename], frame.f_lineno))
        return self._line
