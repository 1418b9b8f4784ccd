"""Interrupt signals: Ctrl-C (SIGINT) and SIGTERM end a command alike, by a KeyboardInterrupt in the main thread."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def as_keyboard_interrupt() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt for both signals; yields the list of those that came so far."""
    came: list[int] = []
    hook = sys.unraisablehook
    ours = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background may ignore it
        ours.append(signal.SIGINT)

    def stop(number: int, _: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    def lost(what: Any) -> None:
        """A compiled library swallows what its callbacks raise. The signal is sent again, a moment later."""
        if not came or what.exc_type is not KeyboardInterrupt:
            hook(what)
            return
        main = threading.main_thread().ident
        again = threading.Timer(0.01, lambda: signal.pthread_kill(main or 0, came[-1]))
        again.daemon = True
        again.start()

    for each in ours:
        signal.signal(each, stop)
    sys.unraisablehook = lost
    try:
        yield came
    finally:
        # Python is about to end. An exception there could leave a thread waiting for ever.
        for each in ours:
            signal.signal(each, signal.SIG_DFL)
        sys.unraisablehook = hook


@contextmanager
def deferred() -> Iterator[None]:
    """Both signals wait until the block has ended, and interrupt then."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread handles signals
        return
    late: list[int] = []
    heard = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, lambda number, _: late.append(number)) for each in heard}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if late:
        handler = before[signal.Signals(late[0])]
        if callable(handler):
            handler(late[0], None)
        raise KeyboardInterrupt
