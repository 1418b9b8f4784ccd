"""One fit of a log, as somebody sees it who may look at clocks, memory and files."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

import numpy as np
from rich.console import Console

from benchmarks.neighbour_logs import LogPair, shop_rows, write_chain_config, write_log
from poolrl.audit.faults import Frozen
from poolrl.checks import IntArray
from poolrl.data.periods import sketch_of
from poolrl.ledger.chain import onto_disk
from poolrl.pool import Pool
from poolrl.privacy.noise.secure import SecureNoise
from poolrl.privacy.noise.source import Sampler
from poolrl.workflow.config.configuration import ConfigFile, load_config
from poolrl.workflow.open_log import open_log
from poolrl.workflow.page import draw_page
from poolrl.workflow.release_folder import Released, fit_release

LEDGER = "ledger.sqlite"

# What was measured → one number.
Measured = dict[str, float]


@dataclass(frozen=True)
class FitPlace:
    """Where a log is fitted again and again, each time by the second fit of the same ledger."""

    folder: Path
    log: Path
    before: Path  # the folder as it was before the fit

    @property
    def release(self) -> Path:
        """Where the fit leaves its release."""
        return self.folder / "release"

    def renew(self) -> ConfigFile:
        """Forget the last fit."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.before, self.folder)
        os.link(self.log, self.folder / self.log.name)
        return load_config(self.folder / "poolrl.toml")

    def fit(self) -> Released:
        """Fit the log."""
        return fit_release(self.renew(), self.release)


def places_of(pair: LogPair, folder: Path) -> tuple[FitPlace, FitPlace]:
    """Places for both logs of a pair. They have one path, so that not even its name differs."""
    before = folder / "before"
    before.mkdir(parents=True)
    # An earlier fit to other rows of the data set: both logs are new to the ledger, and the account is not.
    log = before / f"log.{pair.ending}"
    write_log(log, shop_rows("s150", seed=10**6), seed=1)
    fit_release(load_config(write_chain_config(before, pair.ending)), before / "earlier", new_account=True)
    shutil.rmtree(before / "earlier")
    log.unlink()
    first, second = (FitPlace(folder / "shop", path, before) for path in pair.write(folder))
    return first, second


def times(place: FitPlace) -> Measured:
    """Wall and processor time of a whole fit, then of its parts."""
    file = place.renew()
    wall, processor = time.perf_counter(), time.process_time()
    fit_release(file, place.release)
    found = {"fit, wall time": time.perf_counter() - wall, "fit, processor time": time.process_time() - processor}
    return found | _times_of_parts(file)


def _times_of_parts(file: ConfigFile) -> Measured:
    problem, noise = file.config.problem.posed, _Clocked()
    prepared = Pool(file.config.privacy.rho).prepare(problem)
    clock = [time.perf_counter()]
    with open_log(file) as log:
        log.check(problem)
        sketch_of(log)
        released = prepared.release(log, noise)
    clock.append(time.perf_counter())
    policy = prepared.learn(released)
    clock.append(time.perf_counter())
    policy.save(file.folder / "policy.npz")
    onto_disk(file.folder / "policy.npz")
    clock.append(time.perf_counter())
    reading, learning, writing = np.diff(clock).tolist()
    return {
        "reading and counting, wall time": reading - noise.seconds,
        "noise, wall time": noise.seconds,
        "learning, wall time": learning,
        "writing, wall time": writing,
    }


@dataclass
class _Clocked:
    """Secure noise that takes its own time."""

    seconds: float = 0.0
    sampler: Sampler = field(init=False)

    def begin(self) -> _Clocked:
        self.sampler = SecureNoise().begin()
        return self

    def add(self, counts: IntArray, variance: Fraction) -> IntArray:
        start = time.perf_counter()
        noisy = self.sampler.add(counts, variance)
        self.seconds += time.perf_counter() - start
        return noisy


def memory_and_sizes(place: FitPlace) -> Measured:
    """Peak memory and sizes of files. To be called once in a process, because a peak never falls."""
    file, ledger = place.renew(), place.folder / LEDGER
    before = _content_of(ledger)
    with tempfile.TemporaryDirectory() as spill, _bytes_under(Path(spill)) as spilled:
        tempfile.tempdir = spill
        try:
            fit_release(file, place.release)
        finally:
            tempfile.tempdir = None
    found = {
        "peak memory": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss),
        "temporary files": float(max(spilled)),
        "the ledger's growth": float(_content_of(ledger) - before),
    }
    return found | {f"size of {path.name}": float(path.stat().st_size) for path in sorted(place.release.iterdir())}


def _content_of(ledger: Path) -> int:
    """The letters in all tables of a ledger. Its file grows by whole pages, which would hide what was added."""
    with closing(sqlite3.connect(ledger)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for table in tables for row in file.execute(f'SELECT * FROM "{table}"')]
    return sum(len(str(value)) for row in rows for value in row)


@contextmanager
def _bytes_under(folder: Path) -> Iterator[list[int]]:
    """The bytes that lie under a folder, looked at every millisecond."""
    found, done = [0], threading.Event()

    def look() -> None:
        while not done.wait(0.001):
            with suppress(FileNotFoundError):  # a folder may go while it is listed
                found.append(sum(_size(path) for path in folder.rglob("*")))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # it was removed meanwhile
        return 0


def python_memory(place: FitPlace) -> Measured:
    """The peak of what Python and NumPy allocate."""
    file = place.renew()
    tracemalloc.start()
    try:
        fit_release(file, place.release)
        return {"peak memory of Python": float(tracemalloc.get_traced_memory()[1])}
    finally:
        tracemalloc.stop()


@contextmanager
def fixed_noise() -> Iterator[None]:
    """Fits whose tables do not depend on the log, at a fixed time. All that they write must not depend on it either.

    `fit_release` takes neither noise nor a clock, and rightly so. So both are replaced where it finds them.
    """
    with ExitStack() as replaced:
        replaced.enter_context(patch("poolrl.workflow.release_folder.SecureNoise", Frozen))
        replaced.enter_context(patch("poolrl.privacy.release.SECURE", (Frozen,)))
        replaced.enter_context(patch("poolrl.ledger.chain.datetime", _Noon))
        yield


class _Noon(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _Noon:
        return cls(2025, 1, 1, 12, tzinfo=tz)


def files_of(place: FitPlace) -> dict[str, bytes]:
    """Every file of a release, its page included."""
    draw_page(place.fit(), Console(quiet=True))
    return {path.name: path.read_bytes() for path in sorted(place.release.iterdir())}


def files_that_differ(places: tuple[FitPlace, FitPlace]) -> list[str]:
    """The names of files that are not the same to the byte for both logs, when the noise is fixed."""
    with fixed_noise():
        first, second = map(files_of, places)
    return sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
