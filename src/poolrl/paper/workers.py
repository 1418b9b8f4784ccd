"""Runs spread over processes. A run depends on its setting and seed alone, so rows are the same for any number."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from poolrl.paper.rossmann import Rossmann
from poolrl.paper.sweeps import Setting
from poolrl.paper.trials import Run, run

# One thread per process: sums would otherwise be split differently on machines with more cores.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_real: Rossmann | None = None


def finished_runs(todo: Sequence[tuple[Setting, int]], *, real: Rossmann | None, workers: int) -> Generator[Run]:
    """Yield every run as it finishes, in any order; after Ctrl-C those in flight, then the interrupt goes on."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(real,))
    waiting, pending = iter(todo), set[Future[Run]]()
    try:
        while True:
            # Never far ahead of the workers, so that stopping is quick.
            while len(pending) < workers + 1 and (task := next(waiting, None)) is not None:
                with _as_workers_inherit():  # processes start when the first tasks come
                    pending.add(pool.submit(_run, *task))
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except KeyboardInterrupt:
        for future in [future for future in pending if not future.cancel()]:
            yield future.result()
        raise
    except BrokenProcessPool:
        raise OSError(
            "a worker process was killed, probably for want of memory; the runs before it are kept: run the same "
            "command again, with --workers 1 if memory is short"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _run(setting: Setting, seed: int) -> Run:
    try:
        return run(setting, seed, _real)
    except Exception as error:
        raise RuntimeError(f"the run {setting} with seed {seed} failed: {error}") from error


def _begin(real: Rossmann | None) -> None:
    global _real
    _real = real
    # A worker whose parent was killed would wait for work for ever.
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _as_workers_inherit() -> Iterator[None]:
    """One thread each, and deaf to Ctrl-C, which is the parent's to handle, once the worker has started whole."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited
    # Blocked here, the signal may still reach another thread, and Python would interrupt this one all the same.
    late: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: late.append(number)) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if late:
            raise KeyboardInterrupt
