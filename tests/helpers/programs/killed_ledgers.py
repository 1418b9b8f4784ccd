"""For n = 1, 2, ...: a process that dies, as by kill -9, when SQLite is about to run its n-th statement.

`killed_ledgers.py FOLDER` prints, as JSON, how each process ended and what had been confirmed to it before.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from typing import Any

from poolrl.ledger.ledger import Ledger
from tests.helpers.ledgers import WEEK, rows

connect = sqlite3.connect


def live(path: str, last: int, pipe: int) -> None:
    """Everything that a ledger does, up to a statement; confirmations go into a pipe."""
    seen = 0

    def say(word: str) -> None:
        os.write(pipe, f"{word}\n".encode())

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        file = connect(*args, **kwargs)

        def count(statement: str) -> None:
            nonlocal seen
            seen += 1
            if seen == last:
                os.kill(os.getpid(), signal.SIGKILL)

        file.set_trace_callback(count)
        return file

    sqlite3.connect = traced  # type: ignore[assignment]
    with Ledger(path) as ledger:
        say("opened")
        ledger.open_account("shop", 1)
        say("budget")
        entry = ledger.reserve("shop", 0.1, WEEK)
        say("reserved")
        ledger.read(entry, rows("rows"))
        say("released")
        ledger.commit(entry, {"policy": "ab"})
        say("committed")
        entry = ledger.reserve("shop", 0.1, WEEK)
        say("reserved again")
        ledger.void(entry)
        say("void")


if __name__ == "__main__":
    number = status = 1
    while status != 0:
        end, start = os.pipe()
        child = os.fork()
        if child == 0:
            live(f"{sys.argv[1]}/{number}.sqlite", number, start)
            os._exit(0)
        os.close(start)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps([number, status, os.fdopen(end).read().splitlines()]))
        number += 1
