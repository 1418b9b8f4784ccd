"""Runs spread over workers. A run depends on its setting and seed alone, so rows are the same wherever it is made."""

from __future__ import annotations

import signal
import traceback
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby, islice
from multiprocessing import resource_tracker
from pathlib import Path

from joblib import Parallel, delayed
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from threadpoolctl import threadpool_limits

from poolrl.interrupts import deferred
from poolrl.paper.backends import Backend
from poolrl.paper.results import Results
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import Setting
from poolrl.paper.trials import Run, run

Task = tuple[Setting, int]
# Runs of one bench that a worker is given at once: enough to build the bench once, few enough to see progress.
AT_ONCE = 16


@dataclass(frozen=True)
class Part:
    """What a worker made of its tasks, up to the first that failed."""

    runs: list[Run]
    failure: Exception | None


def finished_runs(todo: Sequence[Task], file: Path, *, real: Rossmann | None, backend: Backend) -> Generator[Run]:
    """Yield runs in any order, some at a time. Workers that can write store each run as soon as it is finished.

    Ctrl-C ends the workers at once. What they had finished is stored.
    """
    home = file.resolve() if backend.writes else None
    parts = (delayed(_work)(tasks, real if _is_real(tasks) else None, home) for tasks in together(todo))
    parallel = Parallel(backend.workers, return_as="generator_unordered", batch_size=1, **backend.options)
    stream: Generator[Part] | None = None
    try:
        with _workers_ignore_ctrl_c():
            stream = parallel(parts)  # workers start here
        for part in stream:
            yield from part.runs
            if part.failure is not None:
                raise part.failure
    except backend.lost as error:
        elsewhere = (
            "" if backend.writes else f", or its machine has no poolrl ({type(error).__name__} of {backend.name})"
        )
        raise OSError(
            f"a worker process was killed, probably for want of memory{elsewhere}; the runs before it are kept: run "
            "the same command again, with --workers 1 if memory is short"
        ) from None
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib would warn about unused results
            if stream is not None:
                stream.close()


def together(todo: Iterable[Task]) -> Iterator[list[Task]]:
    """Neighbouring tasks of one bench and seed, a few at a time."""
    for _, tasks in groupby(todo, key=lambda task: (task[0].bench, task[1])):
        while some := list(islice(tasks, AT_ONCE)):
            yield some


def _is_real(tasks: list[Task]) -> bool:
    return tasks[0][0].data == "rossmann"


def _work(tasks: list[Task], real: Rossmann | None, home: Path | None) -> Part:
    """On a worker: do the tasks, and store each finished run in the file `home` if there is one.

    A failure is returned, not raised, so that the runs before it come along. Spark would also wrap it in pages of Java.
    """
    done: list[Run] = []
    try:
        # One thread: sums would otherwise be split differently on machines with more cores.
        with Results(home) if home is not None else nullcontext() as results, threadpool_limits(1):
            for setting, seed in tasks:
                finished = _run(setting, seed, real)
                if results is not None:
                    results.add(finished)
                done.append(finished)
    except Exception as error:
        error.add_note(traceback.format_exc())  # a traceback does not travel between processes
        return Part(done, error)
    return Part(done, None)


def _run(setting: Setting, seed: int, real: Rossmann | None) -> Run:
    try:
        return run(setting, seed, real)
    except Exception as error:
        raise RuntimeError(f"the run {setting} with seed {seed} failed: {error}") from error


@contextmanager
def _workers_ignore_ctrl_c() -> Iterator[None]:
    """Processes started in the block ignore Ctrl-C; here it waits until all of them have started."""
    for tracker in (resource_tracker, loky_tracker):
        tracker.ensure_running()  # it would unblock the signal when the first process asks for it
    # Blocked in this thread, the signal may still reach another one, and Python would then interrupt this one.
    with deferred():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited by the processes
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
