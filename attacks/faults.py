"""The faults that are tried on a command, by name."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from attacks.shop import Process, Shop, hold, spent
from poolrl.ledger.ledger import Ledger
from poolrl.paper.results import Results
from poolrl.paper.sweeps import BASE
from poolrl.paper.trials import MEASURES
from poolrl.paper.workers import Plan

Fault = Callable[[], list[str]]
WRITER = """
import sys
from poolrl.ledger.ledger import Ledger
from poolrl.ledger.ledger import Sketch
from poolrl.ledger.accounts import ProtectedUnit
with Ledger(sys.argv[1]) as ledger:
    ledger.open_account("writer", 1000)
    for number in range(10000):
        entry = ledger.reserve("writer", 0.001, ProtectedUnit("week"))
        print(entry.seal, flush=True)
        if number % 3 == 0:
            print(ledger.void(entry).seal, flush=True)
        else:
            ledger.read(entry, Sketch(bytes(16), ()))
            print(next(each.seal for each in reversed(ledger.entries()) if each.refers == entry.number), flush=True)
            print(ledger.commit(entry, {"policy": str(number)}).seal, flush=True)
"""
SMALL = replace(BASE, horizon=2, trajectories=60, granularity=10)
PLAN = Plan((SMALL, replace(SMALL, rho=0.3), replace(SMALL, data="normal", boundary=0.6)), runs=150, tuning_seeds=1)
REPRODUCER = """
import sys
from pathlib import Path
from attacks.faults import PLAN
from poolrl.paper.workers import carry_out
from poolrl.paper.results import Results
try:
    with Results(Path(sys.argv[1])) as results:
        carry_out(PLAN, results, real=None, workers=2, started=lambda *_: None,
                  finished=lambda run: print('finished', run.seed, run.setting, flush=True))
except (OSError, ValueError) as error:  # as the command line says it
    print(error)
    sys.exit(1)
"""
# The ledger's clock jumps by up to fifty years, in either direction, each time it is read.
CLOCK = """
import random, sys
import poolrl.ledger.chain as chain
from datetime import timedelta
class Clock(chain.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + timedelta(days=random.uniform(-18000, 18000))
chain.datetime = Clock
sys.argv = ["poolrl", *sys.argv[1:]]
from poolrl.cli.main import main
main()
"""


def rows_of(path: Path) -> set[tuple[object, ...]]:
    """Every stored run, bit by bit, without the time that it took."""
    measures = [name for name in MEASURES if name != "seconds"]
    with Results(path, read_only=True) as results:
        return {(run.setting, run.seed, *(float(getattr(run, m)).hex() for m in measures)) for run in results.runs()}


def faults(shop: Shop) -> dict[str, Fault]:
    """The faults by name; each returns how its commands ended."""
    rng, folder = shop.rng, shop.folder

    def disturbed(by: signal.Signals) -> list[str]:
        out, known = shop.out(), len(shop.entries())
        ended = shop.fit(out).end(after=rng.uniform(0.2, shop.seconds), by=by)
        # Before Python has started, and after it has ended, poolrl cannot answer a signal.
        if by != signal.SIGKILL and ended.code >= 0:
            hold(not (folder / f".{out.name}.draft").exists(), "a command that was interrupted left its draft")
        before = [entry.kind for entry in shop.entries()]
        shop.check()
        committed = len(before) > known and before[-1] == "commit" and not out.exists()
        word = shop.again(out)
        if committed:
            hold([entry.kind for entry in shop.entries()] == before, "a release that was paid for was paid for again")
        return [ended.word, word]

    def ledger_writes() -> list[str]:
        path = folder / "writers.sqlite"
        running = [Process([sys.executable, "-c", WRITER, str(path)]) for _ in range(rng.choice((1, 3)))]
        ends = [process.end(after=rng.uniform(0.3, 2.5)) for process in running]
        seals: set[str] = set()
        # A writer that is killed while it starts has made no ledger, and confirmed nothing.
        if path.exists() and path.stat().st_size:
            with Ledger.existing(path) as ledger:
                hold(not ledger.verify(), "a ledger that was killed while it was written does not verify")
                seals = {entry.seal for entry in ledger.entries()}
        enough = len(seals) > 3000
        for ended in ends:
            confirmed = [line for line in ended.said.splitlines() if len(line) == 64]
            hold(seals.issuperset(confirmed), "a confirmed entry is gone")
        # Every new entry reads all earlier ones, so a long ledger is slow.
        if enough:
            for leftover in folder.glob("writers.sqlite*"):
                leftover.unlink()
        return [ended.word for ended in ends]

    def reproduction(*, worker_only: bool) -> list[str]:
        path = folder / "results" / "results.jsonl"
        expected = reference(folder)
        process = Process([sys.executable, "-c", REPRODUCER, str(path)])
        time.sleep(rng.uniform(0.5, 6.0))
        if worker_only:
            with contextlib.suppress(ProcessLookupError):
                workers = children(process._process.pid)
                if workers:
                    os.kill(rng.choice(workers), signal.SIGKILL)
        ended = process.end(after=None if worker_only else 0.0)
        finished = {line for line in ended.said.splitlines() if line.startswith("finished ")}
        if finished:
            stored = rows_of(path)
            hold(stored <= expected, "a stored run differs from the undisturbed one")
            hold(finished <= {f"finished {row[1]} {row[0]}" for row in stored}, "a finished run is gone")
        if rng.random() < 0.5:
            hold(Process([sys.executable, "-c", REPRODUCER, str(path)]).end().code == 0, "it could not be continued")
            hold(rows_of(path) == expected, "the results differ from those without the fault")
            shutil.rmtree(path.parent)
        return [ended.word]

    def no_room() -> list[str]:
        most, out = int(10 ** rng.uniform(2.5, 5.5)), shop.out()
        ended = shop.fit(out, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))).end()
        shop.check()
        return [ended.word, shop.again(out)]

    def full_disk() -> list[str]:
        place = folder / "small"
        place.mkdir(exist_ok=True)
        with mounted(place, f"size={rng.randrange(24, 240)}k"):
            try:
                other = Shop(place, random.Random(rng.random()))
            except OSError:
                return ["no room even for the log"]
            ended = other.fit(other.out()).end()
            other.check()
            remount(place, "size=50m")
            word = other.again(other.folder / "out-1")
            other.check()
        return [ended.word, word]

    def read_only() -> list[str]:
        place = folder / "sealed"
        place.mkdir(exist_ok=True)
        with mounted(place, "size=50m"):
            other = Shop(place, random.Random(rng.random()))
            words = [other.again(other.out())] if rng.random() < 0.5 else []
            other.check()
            remount(place, "ro")
            out = other.out()
            ended = other.fit(out).end()
            hold(ended.code > 0 and "Traceback" not in ended.said, "a read-only folder was not refused with a message")
            other.check()
            remount(place, "rw")
            words += [ended.word, other.again(out)]
            other.check()
        return words

    def cut_log() -> list[str]:
        whole = (folder / "log.parquet").read_bytes()
        (folder / "cut.parquet").write_bytes(whole[: rng.randrange(len(whole))])
        shop.write(source="cut.parquet", name="cut.toml")
        before = spent(shop)
        ended = shop.fit(shop.out(), config="cut.toml").end()
        hold(ended.code > 0, "a cut log was read")
        hold(spent(shop) == before, "a log that could not be read cost something")
        return [ended.word]

    def clock() -> list[str]:
        out = shop.out()
        config = str(folder / "poolrl.toml")
        ended = Process(
            [sys.executable, "-c", CLOCK, *shop.first(), "--config", config, "--out", str(out), "--json"]
        ).end()
        hold(
            ended.code == 0 or "does not allow rho" in ended.said,
            f"a clock that jumps stops a fit: {ended.said[-300:]}",
        )
        shop.check()
        return [ended.word, shop.again(out)]

    known: dict[str, Fault] = {
        "kill -9 during fit": lambda: disturbed(signal.SIGKILL),
        "SIGTERM during fit": lambda: disturbed(signal.SIGTERM),
        "Ctrl-C during fit": lambda: disturbed(signal.SIGINT),
        "kill -9 during ledger writes": ledger_writes,
        "kill -9 during reproduce": lambda: reproduction(worker_only=False),
        "kill -9 of a worker of reproduce": lambda: reproduction(worker_only=True),
        "files that may not grow (RLIMIT_FSIZE)": no_room,
        "truncated Parquet file": cut_log,
        "a clock that jumps": clock,
    }
    if can_mount(folder):
        known |= {"full disk (tmpfs)": full_disk, "read-only folder (tmpfs)": read_only}
    return known


def reference(folder: Path) -> set[tuple[object, ...]]:
    """The rows of an undisturbed reproduction, made once."""
    path = folder / "reference" / "results.jsonl"
    if not path.exists():
        hold(
            Process([sys.executable, "-c", REPRODUCER, str(path)]).end().code == 0, "an undisturbed reproduction fails"
        )
    return rows_of(path)


def children(parent: int) -> list[int]:
    """Processes that a process has started, directly or through others."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            parents[int(entry.parent.name)] = int(entry.read_text().rsplit(")", 1)[1].split()[1])
    found = [parent]
    for each in found:
        found += [child for child, its in parents.items() if its == each and child not in found]
    return found[1:]


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
