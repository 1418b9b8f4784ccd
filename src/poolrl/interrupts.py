"""Requests to end: Ctrl-C and SIGTERM are answered alike, by a KeyboardInterrupt, as soon as one gets through."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def answered() -> Iterator[list[int]]:
    """Answer requests to end: drafts are removed, and what was not released is given back. Those that came so far."""
    asked: list[int] = []
    hook = sys.unraisablehook
    ours = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it may be ignored
        ours.append(signal.SIGINT)

    def stop(number: int, _: FrameType | None) -> None:
        asked.append(number)
        raise KeyboardInterrupt

    def lost(what: Any) -> None:
        """Where it can be raised to nobody, in a compiled library's call back to Python, it is raised again later."""
        if not asked or what.exc_type is not KeyboardInterrupt:
            hook(what)
            return
        main = threading.main_thread().ident
        again = threading.Timer(0.01, lambda: signal.pthread_kill(main or 0, asked[-1]))
        again.daemon = True
        again.start()

    for each in ours:
        signal.signal(each, stop)
    sys.unraisablehook = lost
    try:
        yield asked
    finally:
        # What follows is Python's own end. An exception there could leave a thread waiting for ever.
        for each in ours:
            signal.signal(each, signal.SIG_DFL)
        sys.unraisablehook = hook


@contextmanager
def undisturbed() -> Iterator[None]:
    """Between a payment and what was paid for nobody interrupts: Ctrl-C and a request to end wait, and then do."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    late: list[int] = []
    before = {
        each: signal.signal(each, lambda number, _: late.append(number)) for each in (signal.SIGINT, signal.SIGTERM)
    }
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
