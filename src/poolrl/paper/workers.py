"""The reproduction: which runs are wanted, which are still missing, and doing the missing ones in several processes.

A run depends on its setting and seed alone, so rows are the same whichever process makes it. Runs on one bench share
parts of their fits, so one process makes them all. They come back to the command as soon as they are finished, and only
the command writes to the results file.
"""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing import resource_tracker

import joblib
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from threadpoolctl import threadpool_limits

from poolrl.checks import one_of, whole
from poolrl.interrupts import deferred
from poolrl.paper.results import Results, resolved
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import FEWEST_SEEDS, PAPER_RUNS, SCALES, SWEEPS, TUNED, TUNING_SEEDS, Setting, settings_of
from poolrl.paper.trials import Run, run

Task = tuple[Setting, int]


@dataclass(frozen=True)
class Plan:
    """What to run: settings, seeds 0 .. runs − 1, and how many tuning seeds."""

    settings: tuple[Setting, ...]
    runs: int
    tuning_seeds: int

    def stages(self, done: dict[Task, Run]) -> Iterator[tuple[str, list[Task]]]:
        """What is missing: first the runs that choose the scale of Γ; when they are done, the runs that judge."""
        tuned = [
            replace(setting, scale=scale) for setting in self.settings if setting.scale == TUNED for scale in SCALES
        ]
        tuning = [(setting, seed) for seed in TUNING_SEEDS[: self.tuning_seeds] for setting in tuned]
        yield "choosing the scale of Γ", [task for task in tuning if task not in done]
        chosen = dict.fromkeys(resolved(setting, done) for setting in self.settings)
        # Seed by seed, so that a stopped reproduction shows complete curves.
        judging = [(setting, seed) for seed in range(self.runs) for setting in chosen]
        yield "runs", [task for task in judging if task not in done]


def plan_for(names: Iterable[str], *, runs: int | None = None, quick: bool = False, real: bool = True) -> Plan:
    """The plan for the named sweeps; unknown names are refused."""
    for name in names:
        one_of(SWEEPS, sweep=name)
    count = runs if runs is not None else (FEWEST_SEEDS if quick else PAPER_RUNS)
    whole(runs=count)
    # Runs of one bench stand together, and among them those that share a fit: one process does them all.
    settings = sorted(settings_of(names, quick=quick, real_data=real), key=lambda setting: (setting.bench, setting))
    return Plan(tuple(settings), count, 1 if quick else len(TUNING_SEEDS))


def carry_out(
    wanted: Plan,
    results: Results,
    *,
    real: Rossmann | None,
    workers: int,
    started: Callable[[str, int], None],
    finished: Callable[[Run], None],
) -> None:
    """Do every missing run. `started` is called with the number to come, `finished` with each that is stored."""
    if real is not None:
        results.same_source(real.md5)
    done = {(run.setting, run.seed): run for run in results.runs()}
    for stage, tasks in wanted.stages(done):
        started(stage, len(tasks))
        with closing(finished_runs(tasks, real=real, workers=workers)) as stream:
            for run in stream:
                results.add(run)
                done[run.setting, run.seed] = run
                finished(run)


def finished_runs(todo: Sequence[Task], *, real: Rossmann | None, workers: int) -> Generator[Run]:
    """Yield runs as their bench is finished. A caller that stops, as after Ctrl-C, ends the processes at once."""
    parallel = joblib.Parallel(
        workers,
        backend="loky",
        return_as="generator_unordered",
        batch_size=1,
        initializer=_end_with,
        initargs=(os.getpid(),),
    )
    together = groupby(todo, key=lambda task: (task[0].bench, task[1]))
    tasks = (joblib.delayed(_work)([*group], real) for _, group in together)
    stream: Generator[tuple[list[Run], Exception | None]] | None = None
    with lokys_thread_ends_quietly():
        try:
            with _workers_ignore_ctrl_c():
                stream = parallel(tasks)  # processes start here
            for done, error in stream:
                yield from done
                if error is not None:
                    raise error
        except BrokenProcessPool:
            raise OSError(
                "a worker process was killed, probably for want of memory; the runs before it are kept: run the same "
                "command again, with --workers 1 if memory is short"
            ) from None
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # joblib would warn about unused results
                if stream is not None:
                    stream.close()


def _work(tasks: list[Task], real: Rossmann | None) -> tuple[list[Run], Exception | None]:
    """Runs of one bench, in a worker process, as far as none fails, and why one did."""
    done: list[Run] = []
    for setting, seed in tasks:
        try:
            # One thread: sums would otherwise be split differently on machines with more cores.
            with threadpool_limits(1):
                done.append(run(setting, seed, real))
        except Exception as error:
            return done, RuntimeError(f"the run {setting} with seed {seed} failed: {error}")
    return done, None


def _end_with(command: int) -> None:
    """In a worker: end when the command that started it is gone. Otherwise loky waits minutes for work."""

    def watch() -> None:
        while os.getppid() == command:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


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


@contextmanager
def lokys_thread_ends_quietly() -> Iterator[None]:
    """Print nothing of the end of loky's own thread after Ctrl-C.

    That thread takes back all work, kills the workers, and may then look for a piece of work that it has just taken
    back. It would have ended in the next line. Any other exception of any thread is printed as ever.
    """
    usual = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        flags = getattr(raised.thread, "executor_flags", None)  # which only that thread has
        if raised.exc_type is not KeyError or flags is None or not flags.kill_workers:
            usual(raised)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = usual
