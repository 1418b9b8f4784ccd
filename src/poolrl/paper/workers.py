"""The reproduction: which runs are wanted, which are still missing, and doing the missing ones on workers.

Workers are processes of this machine (loky), a Ray cluster or a Spark cluster, all through joblib. A run depends on its
setting and seed alone, so rows are the same wherever it is made. Workers on this machine write to the results file
themselves. Workers of Ray and Spark hand their runs back, and the command stores each part as it comes.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby, islice
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from joblib.parallel import ThreadingBackend
from threadpoolctl import threadpool_limits

from poolrl.checks import one_of, whole
from poolrl.interrupts import deferred
from poolrl.paper.results import Results, resolved, tuning
from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import FEWEST_SEEDS, PAPER_RUNS, SWEEPS, TUNING_SEEDS, Setting, settings_of
from poolrl.paper.trials import Run, run

Task = tuple[Setting, int]
# Runs of one bench that a worker is given at once: enough to build the bench once, few enough to see progress.
AT_ONCE = 16


@dataclass(frozen=True)
class Plan:
    """What to run: settings, seeds 0 .. runs − 1, and how many tuning seeds."""

    settings: tuple[Setting, ...]
    runs: int
    tuning_seeds: int

    def tuning_tasks(self) -> list[Task]:
        """Runs that choose the scale of Γ."""
        return [task for task in tuning(self.settings) if task[1] in TUNING_SEEDS[: self.tuning_seeds]]

    def tasks(self, done: dict[Task, Run]) -> list[Task]:
        """Runs that judge; seed by seed, so that a stopped reproduction shows complete curves."""
        chosen = dict.fromkeys(resolved(setting, done) for setting in self.settings)
        return [(setting, seed) for seed in range(self.runs) for setting in chosen]


def plan_for(names: Iterable[str], *, runs: int | None = None, quick: bool = False, real: bool = True) -> Plan:
    """The plan for the named sweeps; unknown names are refused."""
    for name in names:
        one_of(SWEEPS, sweep=name)
    count = runs if runs is not None else (FEWEST_SEEDS if quick else PAPER_RUNS)
    whole(runs=count)
    # Runs of one bench stand together, so that a worker builds it once.
    settings = sorted(settings_of(names, quick=quick, real_data=real), key=lambda setting: setting.bench)
    return Plan(tuple(settings), count, 1 if quick else len(TUNING_SEEDS))


@dataclass(frozen=True)
class Backend:
    """Something that `joblib.Parallel` can hand runs to."""

    name: str
    workers: int  # runs at a time
    options: dict[str, Any]  # of `joblib.Parallel`
    lost: type[Exception]  # raised when a worker is gone
    writes: bool = False  # whether its workers reach the results file


def carry_out(
    wanted: Plan,
    results: Results,
    *,
    real: Rossmann | None,
    backend: Backend,
    started: Callable[[str, int], None],
    finished: Callable[[Run], None],
) -> None:
    """Do every missing run. `started` is called with the number to come, `finished` with each that is stored."""
    if real is not None:
        results.same_source(real.md5)
    done = {(run.setting, run.seed): run for run in results.runs()}
    for stage in ("choosing the scale of Γ", "runs"):
        everything = wanted.tasks(done) if stage == "runs" else wanted.tuning_tasks()
        tasks = [task for task in everything if task not in done]
        started(stage, len(tasks))
        if not tasks:
            continue
        with closing(finished_runs(tasks, results.path, real=real, backend=backend)) as stream:
            for run in stream:
                results.add(run)  # already there if its worker could write it
                done[run.setting, run.seed] = run
                finished(run)


def finished_runs(todo: Sequence[Task], file: Path, *, real: Rossmann | None, backend: Backend) -> Generator[Run]:
    """Yield runs in any order, some at a time. Workers that can write store each run as soon as it is finished.

    Ctrl-C ends the workers at once. The store keeps their finished runs.
    """
    home = file.resolve() if backend.writes else None
    parts = (
        joblib.delayed(_work)(tasks, real if tasks[0][0].data == "rossmann" else None, home) for tasks in together(todo)
    )
    parallel = joblib.Parallel(backend.workers, return_as="generator_unordered", batch_size=1, **backend.options)
    stream: Generator[tuple[list[Run], Exception | None]] | None = None
    try:
        with _workers_ignore_ctrl_c():
            stream = parallel(parts)  # workers start here
        for runs, failure in stream:
            yield from runs
            if failure is not None:
                raise failure
    except backend.lost as error:
        words = f", or its machine has no poolrl ({type(error).__name__} of {backend.name})"
        raise OSError(
            f"a worker process was killed, probably for want of memory{'' if backend.writes else words}; the runs "
            "before it are kept: run the same command again, with --workers 1 if memory is short"
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


def _work(tasks: list[Task], real: Rossmann | None, home: Path | None) -> tuple[list[Run], Exception | None]:
    """On a worker: do the tasks up to the first that fails, and store each run in the file `home` if there is one.

    A failure is returned, not raised, so that the runs before it come along. Spark would also wrap it in pages of Java.
    """
    done: list[Run] = []
    try:
        # One thread: sums would otherwise be split differently on machines with more cores.
        with Results(home) if home is not None else nullcontext() as results, threadpool_limits(1):
            for setting, seed in tasks:
                try:
                    done.append(run(setting, seed, real))
                except Exception as error:
                    raise RuntimeError(f"the run {setting} with seed {seed} failed: {error}") from error
                if results is not None:
                    results.add(done[-1])
    except Exception as error:
        error.add_note(traceback.format_exc())  # a traceback does not travel between processes
        return done, error
    return done, None


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
def started(name: str = "loky", workers: int | None = None) -> Iterator[Backend]:
    """The named backend with this number of workers, or with all that it has."""
    one_of(BACKENDS, backend=name)
    if workers is not None:
        whole(workers=workers)
    with ExitStack() as running:
        try:
            backend = running.enter_context(BACKENDS[name](workers))
        except ImportError:
            raise ValueError(f"--backend {name} needs more packages: pip install 'poolrl[{name}]'") from None
        yield backend


@contextmanager
def _loky(workers: int | None) -> Iterator[Backend]:
    """Processes of this machine. How loky's own thread ends after Ctrl-C is not printed.

    That thread takes back all work, kills the workers, and may then look for a piece of work that it has just taken
    back. It would have ended in the next line. Any other exception of any thread is printed as ever.
    """
    usual = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        flags = getattr(raised.thread, "executor_flags", None)  # which only that thread has
        if raised.exc_type is not KeyError or flags is None or not flags.kill_workers:
            usual(raised)

    threading.excepthook = hook
    options = {"backend": "loky", "initializer": _end_with, "initargs": (os.getpid(),)}
    try:
        yield Backend("loky", workers or joblib.cpu_count(), options, BrokenProcessPool, writes=True)
    finally:
        threading.excepthook = usual


def _end_with(command: int) -> None:
    """In a worker: end when the command that started it is gone. Otherwise loky waits minutes for work."""

    def watch() -> None:
        while os.getppid() == command:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ray(workers: int | None) -> Iterator[Backend]:
    """The cluster that RAY_ADDRESS names, or else a Ray that we start on this machine."""
    import ray
    from ray.util.joblib.ray_backend import RayBackend

    ours = not ray.is_initialized()
    if ours:
        elsewhere = bool(os.environ.get("RAY_ADDRESS"))
        size = {} if elsewhere else {"address": "local", "num_cpus": workers, "include_dashboard": False}
        ray.init(logging_level=logging.ERROR, log_to_driver=False, **size)
    logging.getLogger("ray.util.multiprocessing").setLevel(logging.ERROR)
    backend = RayBackend()
    # Inherited from multiprocessing's pools, which may hang when a generator is dropped. Ray's do not.
    backend.supports_return_generator = True
    try:
        count = workers or int(ray.cluster_resources()["CPU"])
        yield Backend("ray", count, {"backend": backend}, ray.exceptions.RayError)
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _spark(workers: int | None) -> Iterator[Backend]:
    """The cluster of Spark's configuration; this machine if it names none."""
    from joblibspark.backend import SparkDistributedBackend
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise any python3 that a worker finds
    ours = SparkSession.getActiveSession() is None
    session = SparkSession.builder.appName("poolrl").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    try:
        backend = SparkDistributedBackend()
        # Its tasks wait in threads, so joblib can take each result as it comes.
        backend.supports_retrieve_callback = True
        backend.retrieve_result_callback = ThreadingBackend().retrieve_result_callback
        backend.submit = backend.apply_async
        yield Backend("spark", workers or backend.effective_n_jobs(-1), {"backend": backend}, Py4JError)
    finally:
        if ours:
            session.stop()


Opening = Callable[[int | None], AbstractContextManager[Backend]]
BACKENDS: dict[str, Opening] = {"loky": _loky, "ray": _ray, "spark": _spark}
