"""A command that waits for a signal: `waiting_command.py callback`, or `... end`.

It waits in a compiled library's call back to Python, which can pass no exception on, or when Python ends.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
import time

from poolrl.cli import main as cli


def wait(seconds: int) -> int:
    print("waiting", flush=True)
    time.sleep(seconds)
    return 0


callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(wait)

if __name__ == "__main__":
    if sys.argv[1] == "end":
        atexit.register(wait, 60)
        cli.app = lambda: None  # type: ignore[assignment]
    else:
        cli.app = lambda: [callback(60), time.sleep(60)]  # type: ignore[assignment]
    cli.main()
