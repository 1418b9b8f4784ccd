"""The reproduction: which runs are wanted, which are still missing, and doing the missing ones in several processes.

A run depends on its setting and seed alone, so rows are the same whichever process makes it. Runs on one bench share
parts of their fits, so one process makes them all. They come back to the command as soon as they are finished, and only
the command writes to the results file.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import cast

from threadpoolctl import threadpool_limits

from poolrl.checks import one_of, whole
from poolrl.interrupts import deferred
from poolrl.paper.results import Results, resolved
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import FEWEST_SEEDS, PAPER_RUNS, SCALES, SWEEPS, TUNED, TUNING_SEEDS, Setting, settings_of
from poolrl.paper.trials import Run, run

Task = tuple[Setting, int]
Done = tuple[list[Run], Exception | None]  # runs of one bench as far as none failed, and why one did


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
    together = [[*group] for _, group in groupby(todo, key=lambda task: (task[0].bench, task[1]))]
    work = partial(_work, real)
    stream = (work(tasks) for tasks in together) if workers == 1 else _in_processes(work, together, workers)
    with closing(stream):
        for done, error in stream:
            yield from done
            if error is not None:
                raise error


def _work(real: Rossmann | None, tasks: list[Task]) -> Done:
    done: list[Run] = []
    for setting, seed in tasks:
        try:
            # One thread: sums would otherwise be split differently on machines with more cores.
            with threadpool_limits(1):
                done.append(run(setting, seed, real))
        except Exception as error:
            return done, RuntimeError(f"the run {setting} with seed {seed} failed: {error}")
    return done, None


def _in_processes(work: Callable[[list[Task]], Done], together: list[list[Task]], workers: int) -> Generator[Done]:
    """Yield what a process has done as soon as it has. Each has a connection of its own, and one bench at a time."""
    context, left = multiprocessing.get_context("spawn"), iter(together)
    processes, busy = [], []
    try:
        with _ctrl_c_waits():
            for tasks in islice(left, workers):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, work), daemon=True)
                process.start()
                processes.append(process)
                theirs.close()  # so that its end is noticed
                ours.send(tasks)
                busy.append(ours)
        while busy:
            for ours in cast(list[Connection], wait(busy)):
                done = ours.recv()
                if (more := next(left, None)) is None:
                    busy.remove(ours)
                else:
                    ours.send(more)
                yield done
    except (EOFError, ConnectionError):
        raise OSError(
            "a worker process was killed, probably for want of memory; the runs before it are kept: run the same "
            "command again, with --workers 1 if memory is short"
        ) from None
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def _serve(command: Connection, work: Callable[[list[Task]], Done]) -> None:
    """In a process: do what comes. A thread sees that the command is gone while this one works."""
    threading.Thread(target=_end_with_command, daemon=True).start()
    with suppress(EOFError, ConnectionError):
        while True:
            command.send(work(command.recv()))


def _end_with_command() -> None:
    if command := multiprocessing.parent_process():
        command.join()
        os._exit(1)


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Until the end of the block. Processes that start in it ignore Ctrl-C for ever."""
    resource_tracker.ensure_running()  # it would unblock the signal when the first process asks for it
    # Blocked in this thread, the signal may still reach another one, and Python would then interrupt this one.
    with deferred():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited by the processes
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
