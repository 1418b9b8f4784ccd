"""An interrupt signal that comes soon, to work that must not go on without end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def interrupted_soon(release: Callable[[], object]) -> Iterator[None]:
    """A signal in a second ends what is done here; if it does not, `release` does, and that is a failure."""
    late = threading.Event()

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    def too_late() -> None:
        late.set()
        release()

    timer = threading.Timer(30, too_late)
    before = signal.signal(signal.SIGALRM, stop)
    timer.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 1)
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGALRM, before)
        timer.cancel()
    assert not late.is_set(), "the engine went on"
