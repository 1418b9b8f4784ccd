"""Where runs are made: processes of this machine (loky), a Ray cluster or a Spark cluster, all through joblib.

Workers on this machine write to the results file themselves. Workers of Ray and Spark may be on other machines, where
the file cannot be written (`results`). They hand their runs back, and the command stores each part as it comes.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import joblib
from joblib.parallel import ThreadingBackend

from poolrl.checks import whole


@dataclass(frozen=True)
class Backend:
    """Something that `joblib.Parallel` can hand runs to."""

    name: str
    workers: int  # runs at a time
    options: dict[str, Any]  # of `joblib.Parallel`
    lost: type[Exception]  # raised when a worker is gone
    writes: bool = False  # whether its workers reach the results file


@contextmanager
def started(name: str = "loky", workers: int | None = None) -> Iterator[Backend]:
    """The named backend with so many workers, or with as many as it has."""
    if name not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {name!r}")
    if workers is not None:
        whole(workers=workers)
    with BACKENDS[name](workers) as backend:
        yield backend


@contextmanager
def _loky(workers: int | None) -> Iterator[Backend]:
    options = {"backend": "loky", "initializer": _end_with, "initargs": (os.getpid(),)}
    with _quiet_when_killed():
        yield Backend("loky", workers or joblib.cpu_count(), options, BrokenProcessPool, writes=True)


@contextmanager
def _quiet_when_killed() -> Iterator[None]:
    """Do not print how loky's own thread ends after Ctrl-C.

    It takes back all work, kills the workers, and may then look for a piece of work that it has just taken back. It
    would have ended in the next line. Any other exception of any thread is printed as ever.
    """
    usual = threading.excepthook

    def heard(what: threading.ExceptHookArgs) -> None:
        flags = getattr(what.thread, "executor_flags", None)  # which only that thread has
        if what.exc_type is not KeyError or flags is None or not flags.kill_workers:
            usual(what)

    threading.excepthook = heard
    try:
        yield
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
    try:
        import ray
        from ray.util.joblib.ray_backend import RayBackend
    except ImportError:
        raise _needs_extra("ray") from None
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
        yield Backend(
            "ray", workers or int(ray.cluster_resources()["CPU"]), {"backend": backend}, ray.exceptions.RayError
        )
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _spark(workers: int | None) -> Iterator[Backend]:
    """The cluster of Spark's configuration; this machine if it names none."""
    try:
        from joblibspark.backend import SparkDistributedBackend
        from py4j.protocol import Py4JError
        from pyspark.sql import SparkSession
    except ImportError:
        raise _needs_extra("spark") from None
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


def _needs_extra(extra: str) -> ValueError:
    return ValueError(f"--backend {extra} needs more packages: pip install 'poolrl[{extra}]'")


BACKENDS: dict[str, Callable[[int | None], AbstractContextManager[Backend]]] = {
    "loky": _loky,
    "ray": _ray,
    "spark": _spark,
}
